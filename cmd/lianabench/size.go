package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/target"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// sizeConfig is the flags of the command size.
type sizeConfig struct {
	config
	likes   int
	restart int
	shape   float64
	lists   bool
	budget  time.Duration
}

func newSizeCommand() *cobra.Command {
	var c sizeConfig
	cmd := &cobra.Command{
		Use:   "size",
		Short: "Measure bytes a like on disk, memory, and the return after kill -9",
		Long: `Fill a system with likes (users uniform, notes by Zipf; six likes a user and ten a
note, as in MovieTweetings), settle its data (compaction, vacuum, log rewrite) and
measure the space. With --restart, fill on, kill it and time its return.`,
		Example: `  lianabench size --likes 5000000 --ids dense
  lianabench size --likes 1000000 --restart 2000000 --targets liana,redis-fsync,postgres`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ids, err := c.validate()
			if err == nil && (c.likes < 1 || c.restart < 0 || c.shape <= 0) {
				err = errors.New("--likes and --shape must be positive, --restart not negative")
			}
			if err != nil {
				return err
			}
			return inLab(&c.config, "Liana benchmark: space and recovery", cmd.OutOrStdout(), func(l *lab) error {
				for _, name := range c.targets {
					if err := l.size(cmd.Context(), name, &c, ids); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.addFlags(cmd, []string{"liana"})
	f := cmd.Flags()
	f.IntVar(&c.likes, "likes", 5_000_000, "likes to store before the space is measured")
	f.IntVar(&c.restart, "restart", 0, "then fill on up to so many, kill the system and time its return (0: do not)")
	f.Float64Var(&c.shape, "shape", 0.9, "Zipf shape of the notes")
	f.BoolVar(&c.lists, "lists", false, "have Redis and PostgreSQL keep lists by time too, as Liana always does")
	f.DurationVar(&c.budget, "budget", 15*time.Minute, "most time for filling; the store stays smaller if that is not enough")
	return cmd
}

// size measures one system.
func (l *lab) size(ctx context.Context, name string, c *sizeConfig, ids workload.IDs) error {
	s, err := l.start(ctx, name, c.lists)
	if err != nil {
		return err
	}
	likes := workload.NewLikes(c.seed, max(c.likes, c.restart), c.shape, ids)
	deadline := time.Now().Add(c.budget)
	stored, rate, err := l.pour(ctx, s, likes, c.likes, deadline)
	if err != nil {
		return err
	}
	if err := l.space(ctx, s, ids, stored, rate); err != nil {
		return err
	}
	if c.restart > 0 {
		more := 0
		if c.restart > c.likes {
			if more, _, err = l.pour(ctx, s, likes, c.restart-c.likes, deadline); err != nil {
				return err
			}
		}
		if err := l.killAndReturn(ctx, s, likes, stored+more); err != nil {
			return err
		}
	}
	return l.stop(s)
}

// pour stores n likes, as far as the deadline allows, and returns how many were
// new and how many a second were sent.
func (l *lab) pour(ctx context.Context, s *subject, likes *workload.Likes, n int, deadline time.Time) (int, float64, error) {
	sent := 0
	created, took, err := l.fill(ctx, s, "filling", n, func(emit func(workload.Edge) error) error {
		for ; sent < n; sent++ {
			if sent%loadBatch == 0 && time.Now().After(deadline) {
				l.note("%s: only %s of %s likes were stored in the time for it.", s.Name(), report.Number(float64(sent)), report.Number(float64(n)))
				return nil
			}
			if err := emit(likes.Next()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	rate := float64(sent) / took.Seconds()
	l.progress.say("filled %s with %s likes at %s/s", s.Name(), report.Number(float64(created)), report.Number(rate))
	return created, rate, nil
}

// space measures the disk. The system may be another process afterwards.
func (l *lab) space(ctx context.Context, s *subject, ids workload.IDs, likes int, rate float64) error {
	size := report.Size{Name: ids.String(), Target: s.Name(), Likes: likes, LoadRate: rate, PeakResident: l.keepPeak(s)}
	parts, err := s.DiskUsage(ctx)
	s.watch()
	if err != nil {
		return fmt.Errorf("%s: space on disk: %w", s.Name(), err)
	}
	sum := uint64(0)
	for _, p := range parts {
		size.Parts = append(size.Parts, report.Part(p))
		if !p.Apart {
			sum += p.Bytes
		}
	}
	size.PerLike = float64(sum) / float64(max(likes, 1))
	l.report.Sizes = append(l.report.Sizes, size)
	l.progress.say("%s: %s bytes a like (%s ids, %s likes)", s.Name(), report.Number(size.PerLike), ids, report.Number(float64(likes)))
	return nil
}

// returnTime is how long a killed system may take to serve again.
const returnTime = 10 * time.Minute

// killAndReturn kills a system after an acknowledged like and waits until it
// serves that like again.
func (l *lab) killAndReturn(ctx context.Context, s *subject, likes *workload.Likes, stored int) error {
	last, err := l.acknowledged(ctx, s, likes)
	if err != nil {
		return err
	}
	l.keepPeak(s)
	if err := s.Crash(); err != nil {
		return err
	}
	start := time.Now()
	if err := s.Restart(ctx); err != nil {
		return err
	}
	s.watch()
	_, err = target.WaitReady(ctx, s, returnTime, func(ctx context.Context, c target.Session) error {
		var there [1]bool
		if err := c.HasEdges(ctx, last.Src, []uint64{last.Dst}, there[:]); err != nil {
			return err
		}
		if !there[0] {
			return errors.New("an acknowledged like is gone")
		}
		return nil
	})
	if err != nil {
		return err
	}
	took := time.Since(start)
	l.report.Restarts = append(l.report.Restarts, report.Restart{Target: s.Name(), Likes: stored, Seconds: took.Seconds(), Resident: s.peak()})
	l.progress.say("%s serves again %.2f s after kill -9, with %s likes", s.Name(), took.Seconds(), report.Number(float64(stored)))
	return nil
}

// acknowledged stores one more like and returns it.
func (l *lab) acknowledged(ctx context.Context, s *subject, likes *workload.Likes) (workload.Edge, error) {
	session, err := s.Session(ctx)
	if err != nil {
		return workload.Edge{}, err
	}
	defer func() { _ = session.Close() }()
	for {
		e := likes.Next()
		changed, err := session.AddEdge(ctx, e)
		if err != nil || changed {
			return e, err
		}
	}
}
