package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/target"
)

// countersRun measures INCRBY over the Redis protocol; fields stay nil for what failed.
type countersRun struct {
	*lab
	rounds  int
	load    measure.Load
	clients int
	depth   int
	keys    uint64

	single, piped *report.Comparison
}

func newCountersCommand() *cobra.Command {
	var c config
	run := countersRun{}
	load := measure.Load{Warmup: 500 * time.Millisecond}
	cmd := &cobra.Command{
		Use:   "counters",
		Short: "Measure INCRBY over the Redis protocol, beside a Redis with fsync always",
		Long: `Measure durable INCRBY over the Redis protocol: one by one and pipelined, on many
keys and all on one, beside a Redis with appendfsync always on the same disk.
About a minute and a half.`,
		Example: `  lianabench counters
  lianabench counters --rounds 5 --seconds 5 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := c.validate(); err != nil {
				return err
			}
			if c.liana.Addr != "" {
				return errors.New("--liana-addr: this command asks the Redis-protocol port, so it starts its own server")
			}
			failed := 0
			err := inLab(&c, "Liana benchmark: counters over the Redis protocol", cmd.OutOrStdout(), func(l *lab) error {
				run.lab, run.load = l, load
				failed = l.parts(cmd.Context(), []part{{"INCRBY", run.measure}})
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
	f.IntVar(&run.rounds, "rounds", 3, "turns of each system")
	f.DurationVar(&load.Duration, "seconds", 3*time.Second, "length of a turn")
	f.IntVar(&run.clients, "clients", 50, "connections")
	f.IntVar(&run.depth, "depth", 50, "commands of a pipeline")
	f.Uint64Var(&run.keys, "keys", 100_000, "keys that are counted under")
	return cmd
}

// incrementer is a connection that counts: a measure.Worker.
type incrementer struct {
	pipe *target.Pipe
	rng  *rand.Rand
	keys uint64
	next []uint64
}

func (w *incrementer) Prepare() {
	for i := range w.next {
		w.next[i] = w.rng.Uint64N(w.keys)
	}
}

func (w *incrementer) Run(ctx context.Context) (measure.Outcome, error) {
	return measure.Outcome{Units: len(w.next)}, w.pipe.IncrBy(ctx, w.next)
}

// newIncrementers opens a connection for each client.
func newIncrementers(ctx context.Context, s *subject, clients, depth int, keys, seed uint64) (*crew, error) {
	c := &crew{}
	for i := range clients {
		p, err := target.OpenPipe(ctx, s.Server)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.pipes = append(c.pipes, p)
		c.workers = append(c.workers, &incrementer{pipe: p, keys: keys, next: make([]uint64, depth), rng: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	return c, nil
}

func (r *countersRun) measure(ctx context.Context) error {
	liana, err := r.start(ctx, "liana", false)
	if err != nil {
		return err
	}
	redis, err := r.start(ctx, "redis-fsync", false)
	if err != nil {
		return err
	}
	if r.single, err = r.contest(ctx, "INCRBY, one a call", 1, liana, redis); err != nil {
		return err
	}
	r.piped, err = r.contest(ctx, fmt.Sprintf("INCRBY, pipelined by %d", r.depth), r.depth, liana, redis)
	return err
}

const (
	spreadLabel = "liana"
	hotLabel    = "liana, one key"
	redisLabel  = "redis-fsync"
)

// contest compares the systems with pipelines of a depth.
func (r *countersRun) contest(ctx context.Context, name string, depth int, liana, redis *subject) (*report.Comparison, error) {
	c := &contest{name: name, unit: "increments", rounds: r.rounds, load: r.load,
		about: fmt.Sprintf("%d connections, closed loop, %d keys, durable before the reply", r.clients, r.keys)}
	for _, e := range []struct {
		label   string
		subject *subject
		keys    uint64
	}{{spreadLabel, liana, r.keys}, {hotLabel, liana, 1}, {redisLabel, redis, r.keys}} {
		crew, err := newIncrementers(ctx, e.subject, r.clients, depth, e.keys, r.cfg.seed)
		if err != nil {
			return nil, err
		}
		c.entries = append(c.entries, &entry{label: e.label, subject: e.subject, crew: crew})
	}
	return r.compare(ctx, c)
}

func (r *countersRun) verdicts() []report.Verdict {
	return absent([]report.Verdict{
		toRedis(r.piped, fmt.Sprintf("RESP INCRBY durable, %d clients, pipelined by %d", r.clients, r.depth), 1.2),
		toRedis(r.single, fmt.Sprintf("RESP INCRBY durable, %d clients, one a call", r.clients), 1),
		hotKey(r.piped, "all clients on one key, pipelined"),
		hotKey(r.single, "all clients on one key, one a call"),
	})
}

func toRedis(c *report.Comparison, what string, aim float64) report.Verdict {
	ratio := measure.RatioOf(rates(c, spreadLabel), rates(c, redisLabel))
	return report.Verdict{
		What: what, Least: "0.5 × Redis with fsync always", Aim: fmt.Sprintf("%v ×", aim),
		Measured: fmt.Sprintf("%s/s to %s/s: %s", report.Number(rate(c, spreadLabel)), report.Number(rate(c, redisLabel)), times(ratio)),
		Grade:    report.Judgement{Value: ratio.Median, Least: 0.5, Aim: aim}.Grade(),
	}
}

func hotKey(c *report.Comparison, what string) report.Verdict {
	ratio := measure.RatioOf(rates(c, hotLabel), rates(c, spreadLabel))
	return report.Verdict{
		What: what, Least: "1 × the spread figure", Aim: "2 ×",
		Measured: fmt.Sprintf("%s/s: %s", report.Number(rate(c, hotLabel)), times(ratio)),
		Grade:    report.Judgement{Value: ratio.Median, Least: 1, Aim: 2}.Grade(),
	}
}
