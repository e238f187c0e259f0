package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/workload"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/pebblekv"
)

// rawBatch is the number of likes of one batch of the raw engine.
const rawBatch = 100

// rawConfig is the flags of the command raw.
type rawConfig struct {
	config
	rounds   int
	duration time.Duration
}

func newRawCommand() *cobra.Command {
	var c rawConfig
	cmd := &cobra.Command{
		Use:   "raw",
		Short: "Measure the bare engine: two small writes a like, nothing else",
		Long: `Measure the bare engine in this process: for each like two keys are set, one a
direction, in batches of 100 that are not synced. It is the ceiling for what a
store on this engine can do with one writer.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ids, err := c.validate()
			if err == nil && (c.rounds < 1 || c.duration <= 0) {
				err = errors.New("--rounds and --duration must be positive")
			}
			if err != nil {
				return err
			}
			return inLab(&c.config, "Liana benchmark: the bare engine", cmd.OutOrStdout(), func(l *lab) error {
				_, err := l.raw(cmd.Context(), ids, c.rounds, c.duration)
				return err
			})
		},
	}
	c.addFlags(cmd, nil)
	cmd.Flags().IntVar(&c.rounds, "rounds", 3, "rounds, each on an empty store")
	cmd.Flags().DurationVar(&c.duration, "duration", 5*time.Second, "measured time of a round")
	return cmd
}

// raw measures the engine and adds it to the report.
func (l *lab) raw(ctx context.Context, ids workload.IDs, rounds int, duration time.Duration) (measure.Spread, error) {
	var rates []float64
	all := measure.NewHistogram()
	for round := range rounds {
		dir := filepath.Join(l.dir, fmt.Sprintf("raw-%d", round))
		store, err := pebblekv.Open(dir, pebblekv.Options{})
		if err != nil {
			return measure.Spread{}, err
		}
		var live atomic.Int64
		stop := l.progress.during(fmt.Sprintf("raw engine · round %d/%d", round+1, rounds), &live, 0)
		w := &rawWriter{store: store, likes: workload.NewLikes(l.cfg.seed, 5_000_000, 0.9, ids)}
		r, err := measure.Run(ctx, measure.Load{Duration: duration, Live: &live}, []measure.Worker{w})
		stop()
		if err := errors.Join(err, store.Close(), os.RemoveAll(dir)); err != nil {
			return measure.Spread{}, fmt.Errorf("raw engine: %w", err)
		}
		rates = append(rates, r.Rate())
		all.Merge(r.All())
		l.progress.say("raw engine · round %d/%d: %s likes/s", round+1, rounds, report.Number(r.Rate()))
	}
	rate := measure.SpreadOf(rates)
	l.report.Loads = append(l.report.Loads, report.Comparison{
		Name: "raw engine", Unit: "likes", Rounds: rounds,
		About: fmt.Sprintf("Two Sets a like, batches of %d, one writer, never synced, %s ids", rawBatch, ids),
		Cells: []report.Cell{{Label: "pebble", Target: "raw", PerRound: rates, Rate: rate, Latency: measure.Quantiles(all), Calls: all.TotalCount()}},
	})
	return rate, nil
}

// rawWriter writes batches of likes: a measure.Worker.
type rawWriter struct {
	store *pebblekv.Store
	likes *workload.Likes
	edges [rawBatch]workload.Edge
	key   []byte
	value [8]byte
}

func (w *rawWriter) Prepare() {
	for i := range w.edges {
		w.edges[i] = w.likes.Next()
	}
}

func (w *rawWriter) Run(context.Context) (measure.Outcome, error) {
	b := w.store.NewBatch()
	for _, e := range w.edges {
		binary.BigEndian.PutUint64(w.value[:], uint64(e.Time))
		if err := errors.Join(w.set(b, 0, e.Src, e.Dst), w.set(b, 1, e.Dst, e.Src)); err != nil {
			return measure.Outcome{}, errors.Join(err, b.Close())
		}
	}
	err := b.Commit(kv.NoSync)
	return measure.Outcome{Units: rawBatch}, errors.Join(err, b.Close())
}

// set writes direction [1] | vertex [8] | peer [8] → time [8].
func (w *rawWriter) set(b kv.Batch, direction byte, vertex, peer uint64) error {
	w.key = append(w.key[:0], direction)
	w.key = binary.BigEndian.AppendUint64(w.key, vertex)
	w.key = binary.BigEndian.AppendUint64(w.key, peer)
	return b.Set(w.key, w.value[:])
}
