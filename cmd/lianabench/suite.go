package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// plan is the extent of a suite.
type plan struct {
	scale      string // what a reader must know of a reduced run
	rounds     int
	load       measure.Load
	hasUsers   int
	graphUsers int
	openRate   float64
	curve      []int // of a user's list
	celebrity  int   // of a note's list; also a step of curve
	likes      int   // stored before space is measured
	restart    int   // … and before kill -9
	others     int   // the same for the systems that Liana is compared with
	budget     time.Duration
}

// fullPlan measures what the targets name. It fits into 25 minutes.
func fullPlan() plan {
	return plan{
		rounds: 5, load: measure.Load{Warmup: time.Second, Duration: 5 * time.Second},
		hasUsers: 8000, graphUsers: 100_000, openRate: 2000,
		curve: []int{100, 1000, 10_000, 100_000, 1_000_000, 2_000_000, 10_000_000}, celebrity: 2_000_000,
		likes: 5_000_000, restart: 10_000_000, others: 1_000_000, budget: 4 * time.Minute,
	}
}

// quickPlan shows in about three minutes where things stand.
func quickPlan() plan {
	return plan{
		scale:  "A quick run: short rounds, small lists and stores. Its figures are hints.",
		rounds: 2, load: measure.Load{Warmup: 500 * time.Millisecond, Duration: 1500 * time.Millisecond},
		hasUsers: 2000, graphUsers: 20_000, openRate: 1000,
		curve: []int{100, 1000, 10_000, 100_000, 200_000}, celebrity: 200_000,
		likes: 300_000, restart: 500_000, others: 100_000, budget: 15 * time.Second,
	}
}

// suite is a run of everything. Its fields hold what the verdicts need; what
// could not be measured stays zero.
type suite struct {
	*lab
	plan plan
	ids  workload.IDs

	raw       measure.Spread
	durable   *report.Comparison // liana, redis-fsync, postgres, liana on one note
	batches   *report.Comparison // mutate, stream, redis-fsync, postgres
	has       *report.Comparison // liana, redis
	user      *report.Curve
	celebrity *report.Curve
}

func newSuiteCommand() *cobra.Command {
	var c config
	var quick bool
	cmd := &cobra.Command{
		Use:   "suite",
		Short: "Measure everything and compare it with the targets",
		Long: `Measure everything and compare it with the targets: durable writes one by one and
in batches, one hot note, membership, mixes, an open loop, lists of up to ten
million edges, space, memory, the return after kill -9. Up to 25 minutes; with
--quick about three, at a small scale.`,
		Example: `  lianabench suite --quick
  lianabench suite --html suite.html -o json > suite.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ids, err := c.validate()
			if err != nil {
				return err
			}
			if c.liana.Addr != "" {
				return errors.New("--liana-addr: the suite kills and restarts the server, so it starts its own")
			}
			failed := 0
			err = inLab(&c, "Liana benchmark suite", cmd.OutOrStdout(), func(l *lab) error {
				s := &suite{lab: l, plan: fullPlan(), ids: ids}
				if quick {
					s.plan = quickPlan()
				}
				l.report.Scale = s.plan.scale
				failed = s.run(cmd.Context())
				l.report.Verdicts = s.verdicts()
				return cmd.Context().Err()
			})
			if err == nil && failed > 0 {
				return fmt.Errorf("%d parts of the suite failed; the report names them", failed)
			}
			return err
		},
	}
	c.addFlags(cmd, nil)
	cmd.Flags().BoolVar(&quick, "quick", false, "a small scale, about three minutes")
	return cmd
}

// run goes through the parts and returns how many failed.
func (s *suite) run(ctx context.Context) int {
	return s.parts(ctx, []part{
		{"raw engine", s.rawEngine},
		{"durable writes", s.durableWrites},
		{"durable batches", s.durableBatches},
		{"membership", s.membership},
		{"feed", func(ctx context.Context) error { return s.mixed(ctx, "feed") }},
		{"linkbench", func(ctx context.Context) error { return s.mixed(ctx, "linkbench") }},
		{"open loop", s.openLoop},
		{"a user's list", s.userList},
		{"a note's list", s.noteList},
		{"space and return", s.space},
	})
}

func (s *suite) rawEngine(ctx context.Context) (err error) {
	s.raw, err = s.lab.raw(ctx, s.ids, min(s.plan.rounds, 3), s.plan.load.Duration)
	return err
}

// startAll starts systems with empty stores.
func (s *suite) startAll(ctx context.Context, lists bool, names ...string) ([]*subject, error) {
	var all []*subject
	for _, name := range names {
		one, err := s.start(ctx, name, lists)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// mix makes a mix of the suite's size.
func (s *suite) mix(name string, users int) (*workload.Mix, error) {
	const notes = 1_000_000
	return workload.NewMix(name, s.cfg.seed, users, notes, s.ids)
}

// writers is the number of callers that the targets name for single writes.
const writers = 64

// contest is a contest of the suite's extent.
func (s *suite) contest(name, about, unit string, entries ...*entry) *contest {
	return &contest{name: name, about: about, unit: unit, rounds: s.plan.rounds, load: s.plan.load, entries: entries}
}

func (s *suite) durableWrites(ctx context.Context) error {
	write, err := s.mix("write", 1_000_000)
	if err != nil {
		return err
	}
	hot, err := s.mix("hot", 1_000_000)
	if err != nil {
		return err
	}
	all, err := s.startAll(ctx, false, "liana", "redis-fsync", "postgres")
	if err != nil {
		return err
	}
	single := func(label string, on *subject, mix *workload.Mix) *entry {
		return &entry{label: label, subject: on, mix: mix, callers: writers}
	}
	s.durable, err = s.compare(ctx, s.contest("Durable likes, one a call",
		fmt.Sprintf("%d callers, closed loop, notes by Zipf 0.99 or all on one note, %s ids", writers, s.ids), "likes",
		single("liana", all[0], write), single("redis-fsync", all[1], write), single("postgres", all[2], write),
		single("liana, one note", all[0], hot), single("redis, one note", all[1], hot), single("postgres, one note", all[2], hot)))
	return err
}

func (s *suite) durableBatches(ctx context.Context) error {
	const callers, size = 16, 1000
	write, err := s.mix("write", 1_000_000)
	if err != nil {
		return err
	}
	all, err := s.startAll(ctx, false, "liana", "liana-stream", "redis-fsync", "postgres")
	if err != nil {
		return err
	}
	var entries []*entry
	for i, label := range []string{"liana MutateEdges", "liana StreamMutations", "redis-fsync, pipelined", "postgres, batched"} {
		entries = append(entries, &entry{label: label, subject: all[i], mix: write, callers: callers, batch: size})
	}
	s.batches, err = s.compare(ctx, s.contest("Durable likes, in batches",
		fmt.Sprintf("%d callers, %d likes a call (Redis: pipelines of 50), closed loop, %s ids", callers, size, s.ids), "likes", entries...))
	return err
}

func (s *suite) membership(ctx context.Context) error {
	const callers = 16
	mix, err := s.mix("has", s.plan.hasUsers)
	if err != nil {
		return err
	}
	all, err := s.filled(ctx, mix, "liana", "redis")
	if err != nil {
		return err
	}
	s.has, err = s.compare(ctx, s.contest("Membership, 100 a call",
		fmt.Sprintf("%d callers, warm, %d users with 128 likes each, half of the answers are yes (Redis: SISMEMBER in pipelines of 50, nothing durable), %s ids", callers, s.plan.hasUsers, s.ids), "tests",
		&entry{label: "liana HasEdges", subject: all[0], mix: mix, callers: callers},
		&entry{label: "redis SISMEMBER", subject: all[1], mix: mix, callers: callers}))
	return err
}

// filled starts systems and stores what the mix needs.
func (s *suite) filled(ctx context.Context, mix *workload.Mix, names ...string) ([]*subject, error) {
	all, err := s.startAll(ctx, mix.Lists, names...)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		if err := s.store(ctx, one, mix); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// mixed compares under one of the mixes of reads and writes.
func (s *suite) mixed(ctx context.Context, name string) error {
	const callers = 32
	mix, err := s.mix(name, s.plan.graphUsers)
	if err != nil {
		return err
	}
	all, err := s.filled(ctx, mix, "liana", "redis-fsync", "postgres")
	if err != nil {
		return err
	}
	c := s.contest("Mix “"+name+"”", fmt.Sprintf("%d callers, closed loop, a graph of %s likes; Redis and PostgreSQL keep lists by time too, %s ids",
		callers, report.Number(float64(mix.Graph.Edges())), s.ids), unitOf(name))
	c.rounds = min(c.rounds, 3)
	for _, one := range all {
		c.entries = append(c.entries, &entry{label: one.Name(), subject: one, mix: mix, callers: callers})
	}
	_, err = s.compare(ctx, c)
	return err
}

// openLoop shows latency at a rate that all systems can serve.
func (s *suite) openLoop(ctx context.Context) error {
	write, err := s.mix("write", 1_000_000)
	if err != nil {
		return err
	}
	all, err := s.startAll(ctx, false, "liana", "redis-fsync", "postgres")
	if err != nil {
		return err
	}
	c := s.contest("Latency of a durable like at a fixed rate",
		fmt.Sprintf("open loop, %g calls/s with Poisson arrivals, latency from when a call was due, %s ids", s.plan.openRate, s.ids), "likes")
	c.rounds = min(c.rounds, 3)
	c.load.Rate, c.load.Poisson = s.plan.openRate, true
	for _, one := range all {
		c.entries = append(c.entries, &entry{label: one.Name(), subject: one, mix: write, callers: writers})
	}
	_, err = s.compare(ctx, c)
	return err
}

// starPlan is the suite's way of asking lists.
func (s *suite) starPlan(edges []int) *starConfig {
	return &starConfig{config: *s.cfg, edges: edges, small: 100, probes: 2000, budget: s.plan.budget}
}

func (s *suite) userList(ctx context.Context) error {
	one, err := s.start(ctx, "liana", true)
	if err != nil {
		return err
	}
	s.user, err = s.star(ctx, one, s.starPlan(s.plan.curve), s.ids, false)
	return err
}

func (s *suite) noteList(ctx context.Context) error {
	one, err := s.start(ctx, "liana", true)
	if err != nil {
		return err
	}
	s.celebrity, err = s.star(ctx, one, s.starPlan([]int{s.plan.celebrity}), s.ids, true)
	return err
}

// space measures bytes a like and the return after kill -9: Liana with both
// kinds of ids, the others at a smaller scale.
func (s *suite) space(ctx context.Context) error {
	c := sizeConfig{config: *s.cfg, likes: s.plan.likes, shape: 0.9, budget: s.plan.budget}
	var errs []error
	for _, ids := range []string{"scattered", "dense"} {
		kind, err := workload.ParseIDs(ids)
		if err != nil {
			return err
		}
		c.restart = 0
		if kind.Scattered() {
			c.restart = s.plan.restart
		}
		errs = append(errs, s.size(ctx, "liana", &c, kind))
	}
	c.likes, c.restart = s.plan.others, s.plan.others
	for _, name := range []string{"redis-fsync", "postgres"} {
		errs = append(errs, s.size(ctx, name, &c, s.ids))
	}
	return errors.Join(errs...)
}
