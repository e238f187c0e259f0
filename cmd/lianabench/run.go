package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// runConfig is the flags of the command run.
type runConfig struct {
	config
	mix      string
	users    int
	notes    int
	callers  int
	batch    int
	rounds   int
	duration time.Duration
	warmup   time.Duration
	count    int64
	rate     float64
	arrivals string
}

func newRunCommand() *cobra.Command {
	var c runConfig
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Give one mix of operations to several systems in turn",
		Long: `Give one mix of operations to several systems in turn.

Mixes:
  write      adds only: users uniform, notes by Zipf 0.99
  hot        adds only, all on one note
  has        100 membership tests a call; half of the likes exist
  feed       a proposed profile of likes: 97 % batched reads, 3 % writes
  linkbench  LinkBench's operations on links, over its distribution of degrees
  celebrity  see the command celebrity

By default the loop is closed: a caller sends its next call when the last one is
answered. With --rate it is open: calls are due at that rate whatever the answers
do, and latency runs from when a call was due.`,
		Example: `  lianabench run --mix write --targets liana,redis-fsync,postgres --callers 64 --duration 10s
  lianabench run --mix has --targets liana,redis --callers 16 --users 8000
  lianabench run --mix write --batch 1000 --callers 16 --targets liana,liana-stream
  lianabench run --mix linkbench --rate 2000 --arrivals poisson --html linkbench.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.mix == "celebrity" {
				star := starConfig{config: c.config, edges: []int{1_000_000}, side: "both", small: 100, probes: 500}
				return runStar(cmd, &star)
			}
			return c.run(cmd)
		},
	}
	c.addFlags(cmd, []string{"liana", "redis-fsync", "postgres"})
	f := cmd.Flags()
	f.StringVar(&c.mix, "mix", "write", "operations: "+strings.Join(append(workload.Names(), "celebrity"), ", "))
	f.IntVar(&c.users, "users", 0, "number of users (default 1,000,000; 8,000 for has, 100,000 for feed and linkbench)")
	f.IntVar(&c.notes, "notes", 0, "number of notes (default 1,000,000)")
	f.IntVar(&c.callers, "callers", 64, "concurrent callers")
	f.IntVar(&c.batch, "batch", 1, "likes a call, for the mixes write and hot")
	f.IntVar(&c.rounds, "rounds", 3, "turns of each system")
	f.DurationVar(&c.duration, "duration", 10*time.Second, "measured time of a round")
	f.DurationVar(&c.warmup, "warmup", 2*time.Second, "time before it that is not measured")
	f.Int64Var(&c.count, "count", 0, "end a round after so many calls (0: by time only)")
	f.Float64Var(&c.rate, "rate", 0, "calls a second of an open loop (0: closed loop)")
	f.StringVar(&c.arrivals, "arrivals", "even", "arrivals of an open loop: even or poisson")
	return cmd
}

func (c *runConfig) check() error {
	switch {
	case c.callers < 1 || c.callers > 10_000:
		return fmt.Errorf("--callers: %d must be in 1 … 10000", c.callers)
	case c.rounds < 1 || c.rounds > 1000:
		return fmt.Errorf("--rounds: %d must be in 1 … 1000", c.rounds)
	case c.duration <= 0 || c.warmup < 0:
		return errors.New("--duration must be positive and --warmup not negative")
	case c.count < 0 || c.rate < 0:
		return errors.New("--count and --rate must not be negative")
	case c.batch < 1 || c.batch > 10_000:
		return fmt.Errorf("--batch: %d must be in 1 … 10000", c.batch)
	case c.batch > 1 && c.mix != "write" && c.mix != "hot":
		return fmt.Errorf("--batch: the mix %s has calls of its own sizes", c.mix)
	case c.arrivals != "even" && c.arrivals != "poisson":
		return fmt.Errorf("--arrivals: %q is neither even nor poisson", c.arrivals)
	}
	return nil
}

// sizes fills in the numbers of users and notes that were not given.
func (c *runConfig) sizes() {
	if c.users == 0 {
		c.users = map[string]int{"has": 8000, "feed": 100_000, "linkbench": 100_000}[c.mix]
	}
	if c.users == 0 {
		c.users = 1_000_000
	}
	if c.notes == 0 {
		c.notes = 1_000_000
	}
}

func (c *runConfig) run(cmd *cobra.Command) error {
	ids, err := c.validate()
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return err
	}
	c.sizes()
	mix, err := workload.NewMix(c.mix, c.seed, c.users, c.notes, ids)
	if err != nil {
		return err
	}
	return inLab(&c.config, "Liana benchmark: "+c.mix, cmd.OutOrStdout(), func(l *lab) error {
		_, err := l.mixContest(cmd.Context(), mix, c)
		return err
	})
}

// mixContest starts the systems, stores what the mix needs and compares them.
func (l *lab) mixContest(ctx context.Context, mix *workload.Mix, c *runConfig) ([]*subject, error) {
	contest := &contest{
		name: mix.Name, about: c.about(), unit: unitOf(mix.Name), rounds: c.rounds,
		load: measure.Load{Warmup: c.warmup, Duration: c.duration, Count: c.count, Rate: c.rate, Poisson: c.arrivals == "poisson"},
	}
	var subjects []*subject
	for _, name := range c.targets {
		s, err := l.start(ctx, name, mix.Lists)
		if err != nil {
			return subjects, err
		}
		subjects = append(subjects, s)
		if err := l.store(ctx, s, mix); err != nil {
			return subjects, err
		}
		// A salt of its own for a target that is named twice at one address.
		salt := uint64(slices.Index(c.targets, name))
		if c.liana.Addr == "" {
			salt = 0
		}
		contest.entries = append(contest.entries, &entry{label: name, subject: s, mix: mix, callers: c.callers, batch: c.batch, salt: salt})
	}
	_, err := l.compare(ctx, contest)
	return subjects, err
}

// unitOf names what the rate of a mix counts.
func unitOf(mix string) string {
	switch mix {
	case "write", "hot":
		return "likes"
	case "has":
		return "tests"
	}
	return "answers"
}

func (c *runConfig) about() string {
	loop := "closed loop"
	if c.rate > 0 {
		loop = fmt.Sprintf("open loop at %g calls/s (%s)", c.rate, c.arrivals)
	}
	size := ""
	if c.batch > 1 {
		size = fmt.Sprintf(", %d likes a call", c.batch)
	}
	return fmt.Sprintf("%d callers, %s%s, %s ids, %v a round", c.callers, loop, size, c.ids, c.duration)
}
