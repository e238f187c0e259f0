package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/target"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// clusterPlan is the extent of the measurements of clusters.
type clusterPlan struct {
	rounds     int
	load       measure.Load
	failovers  int
	readRate   float64 // calls a second of the reads during a move
	graphUsers int     // of the graph that is read, 128 likes each
	moves      int     // rounds of idle and move
	idleShards int
	idleTime   time.Duration
}

// clusterRun measures clusters; fields stay zero for what failed.
type clusterRun struct {
	*lab
	plan clusterPlan
	ids  workload.IDs

	writes    *report.Comparison
	failover  measure.Spread // seconds
	moves     measure.Spread // p99 during a move over p99 at rest
	idleShare measure.Spread // of a core, by node
}

func newClusterCommand() *cobra.Command {
	var c config
	run := clusterRun{plan: clusterPlan{rounds: 5, failovers: 5, readRate: 500, graphUsers: 4000, moves: 3, idleShards: 64, idleTime: 20 * time.Second}}
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Measure three nodes: writes, failover, reads during moves, idle cost",
		Long: `Measure three nodes on this machine: durable writes with three voters against one,
the time from kill -9 of a leader until all its shards take writes, reads while a
node is drained and filled again, and what 64 idle shards cost a node.
About six minutes.`,
		Example: `  lianabench cluster
  lianabench cluster --rounds 3 --failovers 3 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ids, err := c.validate()
			if err != nil {
				return err
			}
			if c.liana.Addr != "" {
				return errors.New("--liana-addr: this command kills and moves nodes, so it starts its own")
			}
			failed := 0
			err = inLab(&c, "Liana benchmark: three nodes", cmd.OutOrStdout(), func(l *lab) error {
				run.lab, run.ids = l, ids
				run.plan.load = measure.Load{Warmup: time.Second, Duration: 5 * time.Second}
				failed = run.run(cmd.Context())
				l.report.Verdicts = run.verdicts()
				return cmd.Context().Err()
			})
			if err == nil && failed > 0 {
				return fmt.Errorf("%d parts failed; the report names them", failed)
			}
			return err
		},
	}
	c.addFlags(cmd, nil)
	f := cmd.Flags()
	f.IntVar(&run.plan.rounds, "rounds", run.plan.rounds, "turns of each cluster under writes")
	f.IntVar(&run.plan.failovers, "failovers", run.plan.failovers, "how often a leader is killed")
	f.IntVar(&run.plan.moves, "moves", run.plan.moves, "how often a node is drained and filled again")
	f.DurationVar(&run.plan.idleTime, "idle-time", run.plan.idleTime, "how long idle nodes are watched")
	return cmd
}

// run goes through the parts and returns how many failed.
func (r *clusterRun) run(ctx context.Context) int {
	return r.lab.parts(ctx, []part{
		{"writes", r.voters},
		{"failover", r.failOver},
		{"reads during a move", r.readsInMove},
		{"idle cost", r.idle},
	})
}

// startCluster starts a cluster that the lab looks after.
func (l *lab) startCluster(ctx context.Context, name string, nodes, replication, shards int) (*subject, *target.Cluster, error) {
	dir, err := l.newDir(name)
	if err != nil {
		return nil, nil, err
	}
	o := l.cfg.liana
	o.Shards = shards
	l.progress.say("starting %s: %d nodes, %d voters a shard, %d shards", name, nodes, replication, shards)
	c, err := target.StartCluster(ctx, name, dir, nodes, replication, o)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return l.look(c, dir), c, nil
}

// voters compares durable writes with one voter and with three.
func (r *clusterRun) voters(ctx context.Context) error {
	mix, err := workload.NewMix("write", r.cfg.seed, 1_000_000, 1_000_000, r.ids)
	if err != nil {
		return err
	}
	c := &contest{name: "Durable likes, one a call", unit: "likes", rounds: r.plan.rounds, load: r.plan.load,
		about: fmt.Sprintf("%d callers over all nodes, closed loop, notes by Zipf 0.99, %s ids", writers, r.ids)}
	for _, of := range []struct {
		name               string
		nodes, replication int
	}{{"three voters", 3, 3}, {"one voter, one node", 1, 1}, {"one voter, three nodes", 3, 1}} {
		s, _, err := r.startCluster(ctx, of.name, of.nodes, of.replication, r.cfg.liana.Shards)
		if err != nil {
			return err
		}
		c.entries = append(c.entries, &entry{label: of.name, subject: s, mix: mix, callers: writers})
	}
	r.writes, err = r.compare(ctx, c)
	return err
}

// probers of a failover write for as many users, so that every shard is asked.
const probers = 64

// failOver kills the node that leads most shards and waits until each of many users can
// write again by another node, several times over.
func (r *clusterRun) failOver(ctx context.Context) error {
	_, c, err := r.startCluster(ctx, "failover", 3, 3, r.cfg.liana.Shards)
	if err != nil {
		return err
	}
	var seconds []float64
	for i := range r.plan.failovers {
		took, err := r.failOnce(ctx, c, uint64(i+1))
		if err != nil {
			return err
		}
		r.progress.say("failover %d: all shards took writes after %.2f s", i+1, took.Seconds())
		seconds = append(seconds, took.Seconds())
		if err := c.WaitAtRest(ctx, time.Minute); err != nil {
			return err
		}
	}
	r.failover = measure.SpreadOf(seconds)
	return nil
}

func (r *clusterRun) failOnce(ctx context.Context, c *target.Cluster, round uint64) (time.Duration, error) {
	// Writes go by another node than the one that dies. Asking it first opens what they need.
	victim, err := c.LeaderOfMost(ctx)
	if err != nil {
		return 0, err
	}
	gateway := (victim + 1) % 3
	if _, err := r.allWrite(ctx, c, gateway, 2*round); err != nil {
		return 0, err
	}
	if err := c.CrashNode(victim); err != nil {
		return 0, err
	}
	took, err := r.allWrite(ctx, c, gateway, 2*round+1)
	return took, errors.Join(err, c.RestartNode(ctx, victim))
}

// allWrite has every prober write one like, as often as it takes, and returns the time
// until the last one was through.
func (r *clusterRun) allWrite(ctx context.Context, c *target.Cluster, gateway int, note uint64) (time.Duration, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	errs := make([]error, probers)
	var wg sync.WaitGroup
	for i := range probers {
		wg.Go(func() {
			session, err := c.SessionAt(ctx, gateway)
			for err == nil {
				_, err = session.AddEdge(ctx, workload.Edge{Src: uint64(i + 1), Dst: note<<16 | uint64(i), Time: int64(note)})
				if err == nil || ctx.Err() != nil {
					break
				}
				err = nil
				time.Sleep(10 * time.Millisecond)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return time.Since(begun), errors.Join(errs...)
}

// readsInMove reads at a fixed rate while nothing moves, and while the replicas of a
// fourth node go elsewhere and come back.
func (r *clusterRun) readsInMove(ctx context.Context) error {
	mix, err := workload.NewMix("has", r.cfg.seed, r.plan.graphUsers, 1_000_000, r.ids)
	if err != nil {
		return err
	}
	s, c, err := r.startCluster(ctx, "moves", 4, 3, 16)
	if err != nil {
		return err
	}
	if err := r.store(ctx, s, mix); err != nil {
		return err
	}
	id, err := c.ID(ctx, 3)
	if err != nil {
		return err
	}
	readers, err := newCrew(ctx, s, mix, 32, 0, 0)
	if err != nil {
		return err
	}
	defer func() { _ = readers.close() }()
	var ratios []float64
	for i := range r.plan.moves {
		rest, err := r.readFor(ctx, readers, "at rest", func(ctx context.Context) error { return sleep(ctx, 10*time.Second) })
		if err != nil {
			return err
		}
		moving, err := r.readFor(ctx, readers, "in a move", func(ctx context.Context) error { return awayAndBack(ctx, c, id) })
		if err != nil {
			return err
		}
		ratio := measure.Micros(moving.All(), 99) / measure.Micros(rest.All(), 99)
		r.progress.say("round %d: p99 of reads at rest %s, in a move %s: × %s (%d and %d calls, %.0f s of moving)", i+1, report.Micros(measure.Micros(rest.All(), 99)),
			report.Micros(measure.Micros(moving.All(), 99)), report.Number(ratio), rest.Calls, moving.Calls, moving.Elapsed.Seconds())
		if moving.Errors > 0 {
			r.note("Reads in a move: %d failed: %v", moving.Errors, moving.FirstError)
		}
		ratios = append(ratios, ratio)
	}
	r.moves = measure.SpreadOf(ratios)
	return nil
}

// readFor reads at the plan's rate until do returns.
func (r *clusterRun) readFor(ctx context.Context, readers *crew, what string, do func(context.Context) error) (*measure.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var live atomic.Int64
	defer r.progress.during("reads "+what, &live, 0)()
	return steady(ctx, measure.Load{Duration: 2 * time.Second, Rate: r.plan.readRate, Live: &live}, readers, do)
}

// steady puts a load on until do returns, in slices of the load's duration, as nobody
// knows beforehand how long do takes.
func steady(ctx context.Context, load measure.Load, callers *crew, do func(context.Context) error) (*measure.Result, error) {
	total := &measure.Result{}
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	for {
		part, err := measure.Run(ctx, load, callers.workers)
		if err != nil {
			return nil, err
		}
		total.Merge(part)
		load.Seed++
		select {
		case err := <-done:
			return total, err
		default:
		}
	}
}

// awayAndBack drains a node and fills it again.
func awayAndBack(ctx context.Context, c *target.Cluster, id string) error {
	for _, step := range []func(context.Context, string) error{c.Drain, c.Activate} {
		if err := step(ctx, id); err != nil {
			return err
		}
		// The catalog's leader looks at its wishes twice a second.
		if err := sleep(ctx, 2*time.Second); err != nil {
			return err
		}
		if err := c.WaitAtRest(ctx, 5*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// idle watches nodes that have nothing to do.
func (r *clusterRun) idle(ctx context.Context) error {
	s, _, err := r.startCluster(ctx, "idle", 3, 3, r.plan.idleShards)
	if err != nil {
		return err
	}
	measure.Settle(s.PIDs(), 10*time.Second)
	pids := s.PIDs()
	before := make([]time.Duration, len(pids))
	for i, pid := range pids {
		before[i] = measure.UsageOf(pid).CPU
	}
	r.progress.say("watching %d idle shards for %v", r.plan.idleShards, r.plan.idleTime)
	if err := sleep(ctx, r.plan.idleTime); err != nil {
		return err
	}
	var shares []float64
	for i, pid := range pids {
		shares = append(shares, (measure.UsageOf(pid).CPU-before[i]).Seconds()/r.plan.idleTime.Seconds())
	}
	r.idleShare = measure.SpreadOf(shares)
	return nil
}

// verdicts compares with the targets.
func (r *clusterRun) verdicts() []report.Verdict {
	three, one, spread := rates(r.writes, "three voters"), rates(r.writes, "one voter, one node"), rates(r.writes, "one voter, three nodes")
	ratio := measure.RatioOf(three, one)
	rows := []report.Verdict{
		{What: "AddEdge, 64 callers, three voters to one", Least: "0.3 ×", Aim: "0.5 ×",
			Measured: fmt.Sprintf("%s/s: %s one node, %s three nodes with one voter each", report.Number(measure.SpreadOf(three).Median), times(ratio), times(measure.RatioOf(three, spread))),
			Grade:    report.Judgement{Value: ratio.Median, Least: 0.3, Aim: 0.5}.Grade()},
		{What: "kill -9 of a leader until its shards take writes", Least: "3 s", Aim: "1.5 s",
			Measured: report.SpreadText(r.failover) + " s",
			Grade:    report.Judgement{Value: r.failover.Median, Least: 3, Aim: 1.5, Lower: true}.Grade()},
		{What: "reads during moves, p99 to that at rest", Least: "2 ×", Aim: "1.2 ×",
			Measured: times(r.moves),
			Grade:    report.Judgement{Value: r.moves.Median, Least: 2, Aim: 1.2, Lower: true}.Grade()},
		{What: fmt.Sprintf("idle cost of %d shards a node, share of a core", r.plan.idleShards), Least: "5 %", Aim: "2 %",
			Measured: fmt.Sprintf("%.1f %% (%.1f–%.1f)", 100*r.idleShare.Median, 100*r.idleShare.Min, 100*r.idleShare.Max),
			Grade:    report.Judgement{Value: r.idleShare.Median, Least: 0.05, Aim: 0.02, Lower: true}.Grade()},
	}
	return absent(rows)
}
