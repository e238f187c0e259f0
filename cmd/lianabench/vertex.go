package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/target"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// vertexConfig is the flags of vertex.
type vertexConfig struct {
	config
	edges, rounds int
	rate          float64 // writes a second
	rest          time.Duration
}

// vertexRun measures deletions of notes.
type vertexRun struct {
	*lab
	c   *vertexConfig
	ids workload.IDs

	p99   []float64 // during a deletion over at rest, by round
	speed []float64 // edges a second
}

func newVertexCommand() *cobra.Command {
	var c vertexConfig
	cmd := &cobra.Command{
		Use:   "vertex",
		Short: "Delete a note with N likes under writes: p99 of the writes to that at rest",
		Long: `Delete a note with N likes while others write likes at a fixed rate, and compare the
p99 of these writes with that before the deletion, round by round.`,
		Example: "  lianabench vertex --edges 1000000\n  lianabench vertex --edges 100000 --rounds 5",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ids, err := c.validate()
			if err != nil {
				return err
			}
			if c.edges < 1000 || c.rounds < 1 || c.rate <= 0 {
				return errors.New("--edges: at least 1,000; --rounds: at least 1; --rate: above 0")
			}
			title := fmt.Sprintf("Liana benchmark: a note with %s likes is deleted", report.Number(float64(c.edges)))
			return inLab(&c.config, title, cmd.OutOrStdout(), func(l *lab) error {
				run := vertexRun{lab: l, c: &c, ids: ids}
				err := run.run(cmd.Context())
				l.report.Verdicts = run.verdicts()
				return err
			})
		},
	}
	c.addFlags(cmd, nil)
	f := cmd.Flags()
	f.IntVar(&c.edges, "edges", 1_000_000, "likes of the note")
	f.IntVar(&c.rounds, "rounds", 3, "notes that are deleted")
	f.Float64Var(&c.rate, "rate", 1000, "writes a second")
	f.DurationVar(&c.rest, "rest", 10*time.Second, "how long writes are measured before a deletion")
	return cmd
}

func (r *vertexRun) run(ctx context.Context) error {
	mix, err := workload.NewMix("write", r.cfg.seed, 1_000_000, 1_000_000, r.ids)
	if err != nil {
		return err
	}
	s, err := r.start(ctx, "liana", true)
	if err != nil {
		return err
	}
	deleter, ok := s.Server.(target.VertexDeleter)
	if !ok {
		return fmt.Errorf("%s deletes no vertices", s.Name())
	}
	writers, err := newCrew(ctx, s, mix, 64, 0, 0)
	if err != nil {
		return err
	}
	defer func() { _ = writers.close() }()
	for i := range r.c.rounds {
		note := &probe{star: workload.NewStar(true, 100+i, r.ids)}
		if err := r.grow(ctx, s, note, r.c.edges, time.Now().Add(30*time.Minute)); err != nil {
			return err
		}
		measure.Settle(s.PIDs(), 10*time.Second)
		if err := r.round(ctx, i, writers, deleter, note.star.Center); err != nil {
			return err
		}
	}
	return r.stop(s)
}

// round measures writes at rest, and then while a note is deleted.
func (r *vertexRun) round(ctx context.Context, i int, writers *crew, deleter target.VertexDeleter, note uint64) error {
	rest, err := r.writeFor(ctx, writers, "at rest", func(ctx context.Context) error { return sleep(ctx, r.c.rest) })
	if err != nil {
		return err
	}
	during, err := r.writeFor(ctx, writers, "during a deletion", func(ctx context.Context) error {
		return deleter.DeleteNote(ctx, note, func(uint64, uint64) {})
	})
	if err != nil {
		return err
	}
	before, after := measure.Micros(rest.All(), 99), measure.Micros(during.All(), 99)
	speed := float64(r.c.edges) / during.Elapsed.Seconds()
	r.progress.say("round %d: p99 of writes at rest %s, during a deletion %s: × %s (%d and %d calls; %s edges/s)", i+1,
		report.Micros(before), report.Micros(after), report.Number(after/before), rest.Calls, during.Calls, report.Number(speed))
	if during.Errors > 0 {
		r.note("During a deletion %d writes failed: %v", during.Errors, during.FirstError)
	}
	r.p99, r.speed = append(r.p99, after/before), append(r.speed, speed)
	return nil
}

// writeFor writes at the rate of the run until do returns.
func (r *vertexRun) writeFor(ctx context.Context, writers *crew, what string, do func(context.Context) error) (*measure.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var live atomic.Int64
	defer r.progress.during("writes "+what, &live, 0)()
	return steady(ctx, measure.Load{Duration: 2 * time.Second, Rate: r.c.rate, Live: &live}, writers, do)
}

func (r *vertexRun) verdicts() []report.Verdict {
	ratio, speed := measure.SpreadOf(r.p99), measure.SpreadOf(r.speed)
	return absent([]report.Verdict{{
		What:  fmt.Sprintf("writes while a note with %s likes is deleted, p99 to that at rest", report.Number(float64(r.c.edges))),
		Least: "2 ×", Aim: "1.3 ×", Measured: fmt.Sprintf("%s; %s edges/s", times(ratio), report.Number(speed.Median)),
		Grade: report.Judgement{Value: ratio.Median, Least: 2, Aim: 1.3, Lower: true}.Grade(),
	}})
}
