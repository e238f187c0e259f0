package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// starConfig is the flags of celebrity and curve: one list grows through the
// steps of edges and is asked beside a small one at each.
type starConfig struct {
	config
	edges  []int
	side   string
	small  int
	probes int
	budget time.Duration // for growing one list
}

func newCelebrityCommand() *cobra.Command {
	var c starConfig
	cmd := &cobra.Command{
		Use:   "celebrity",
		Short: "Grow one list to N edges and ask it beside a list of 100",
		Long: `Grow one list to N edges and ask it beside a list of 100, in turns: membership,
add, delete, first page, page at rank N/2, count, count in a window of time. The
answers are checked. Both kinds of lists are grown: a user who likes N notes (out)
and a note that N users like (in).`,
		Example: `  lianabench celebrity --edges 2000000
  lianabench celebrity --edges 100000 --targets liana,redis,postgres --side in`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runStar(cmd, &c) },
	}
	c.addStarFlags(cmd, []int{2_000_000}, "both")
	return cmd
}

func newCurveCommand() *cobra.Command {
	var c starConfig
	cmd := &cobra.Command{
		Use:     "curve",
		Short:   "Ask one list as it grows from 100 to 10,000,000 edges",
		Long:    "Ask one list as it grows, as celebrity does at each step. The HTML report draws the cost over the length.",
		Example: "  lianabench curve --edges 100,10000,1000000 --html curve.html",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runStar(cmd, &c) },
	}
	c.addStarFlags(cmd, []int{100, 1000, 10_000, 100_000, 1_000_000, 10_000_000}, "out")
	return cmd
}

func (c *starConfig) addStarFlags(cmd *cobra.Command, edges []int, side string) {
	c.addFlags(cmd, []string{"liana"})
	f := cmd.Flags()
	f.IntSliceVar(&c.edges, "edges", edges, "lengths of the list, rising")
	f.StringVar(&c.side, "side", side, "list that grows: out (of a user), in (of a note) or both")
	f.IntVar(&c.small, "small", 100, "length of the small list beside it")
	f.IntVar(&c.probes, "probes", 2000, "calls of each kind and list, as far as two seconds allow")
	f.DurationVar(&c.budget, "budget", 15*time.Minute, "most time for growing a list; it stays shorter if that is not enough")
}

func (c *starConfig) check() error {
	for i, n := range c.edges {
		if n < 100 || n > 1<<27 || i > 0 && n <= c.edges[i-1] {
			return fmt.Errorf("--edges: %v must rise and be in 100 … 2^27", c.edges)
		}
	}
	switch {
	case len(c.edges) == 0:
		return errors.New("--edges: name at least one length")
	case c.side != "out" && c.side != "in" && c.side != "both":
		return fmt.Errorf("--side: %q is none of out, in, both", c.side)
	case c.small < pageSize || c.small > 1<<20:
		return fmt.Errorf("--small: %d must be in %d … 2^20", c.small, pageSize)
	case c.probes < probeBlocks:
		return fmt.Errorf("--probes: at least %d", probeBlocks)
	}
	return nil
}

func runStar(cmd *cobra.Command, c *starConfig) error {
	ids, err := c.validate()
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return err
	}
	title := fmt.Sprintf("Liana benchmark: a list of up to %s edges", report.Number(float64(slices.Max(c.edges))))
	return inLab(&c.config, title, cmd.OutOrStdout(), func(l *lab) error {
		for _, name := range c.targets {
			if err := l.stars(cmd.Context(), name, c, ids); err != nil {
				return err
			}
		}
		return nil
	})
}

// stars measures one system.
func (l *lab) stars(ctx context.Context, name string, c *starConfig, ids workload.IDs) error {
	s, err := l.start(ctx, name, true)
	if err != nil {
		return err
	}
	for _, in := range []bool{false, true} {
		if c.side == "both" || (c.side == "in") == in {
			if _, err := l.star(ctx, s, c, ids, in); err != nil {
				return err
			}
		}
	}
	return l.stop(s)
}

// star grows and asks one list.
func (l *lab) star(ctx context.Context, s *subject, c *starConfig, ids workload.IDs, in bool) (*report.Curve, error) {
	side := "likes of one user"
	if in {
		side = "likers of one note"
	}
	curve := report.Curve{Name: "One list grows: " + side, Target: s.Name(),
		About: fmt.Sprintf("The cost of one call, one caller, beside a list of %d edges; %s ids", c.small, ids)}
	session, err := s.Session(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }()
	big, small := &probe{star: workload.NewStar(in, 0, ids)}, &probe{star: workload.NewStar(in, 1, ids)}
	if err := l.grow(ctx, s, small, c.small, time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(c.budget)
	for _, n := range c.edges {
		if err := l.grow(ctx, s, big, n, deadline); err != nil {
			return nil, err
		}
		measure.Settle(s.PIDs(), settleTime)
		p := &prober{ctx: ctx, session: session, pids: s.PIDs(), probes: c.probes, big: big, small: small}
		point, err := p.run()
		if err != nil {
			return nil, fmt.Errorf("%s, list of %d edges: %w", s.Name(), big.edges, err)
		}
		curve.Points = append(curve.Points, point)
		l.progress.say("%s · %s · %s edges: worst ratio of p50 %s", side, s.Name(), report.Number(float64(big.edges)), report.Number(point.WorstRatio()))
		if big.edges < n {
			l.note("%s: the list of %s reached %s of %s edges within %v.", s.Name(), side, report.Number(float64(big.edges)), report.Number(float64(n)), c.budget)
			break
		}
	}
	l.report.Curves = append(l.report.Curves, curve)
	return &curve, nil
}

// grow adds edges to a star until it has n of them, or the deadline is over.
func (l *lab) grow(ctx context.Context, s *subject, p *probe, n int, deadline time.Time) error {
	before := p.edges
	created, _, err := l.fill(ctx, s, "growing", n-before, func(emit func(workload.Edge) error) error {
		for p.edges < n && (p.edges%loadBatch != 0 || time.Now().Before(deadline)) {
			if err := emit(p.star.Edge(p.edges)); err != nil {
				return err
			}
			p.edges++
		}
		return nil
	})
	if err == nil && created != p.edges-before {
		return fmt.Errorf("%s: %d of %d edges were new", s.Name(), created, p.edges-before)
	}
	return err
}
