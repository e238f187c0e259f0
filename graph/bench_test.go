package graph

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkMutate measures durable adds, both directions, in process: callers
// that each send batches. Users are uniform, notes Zipf.
func BenchmarkMutate(b *testing.B) {
	for _, c := range []struct{ callers, batch int }{{64, 1}, {8, 1000}} {
		b.Run(fmt.Sprintf("callers=%d/batch=%d", c.callers, c.batch), func(b *testing.B) {
			w := newWorld(b, false, func(c *Config) {})
			like := w.edgeType("like")
			var next atomic.Int64
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range c.callers {
				wg.Go(func() {
					rng := rand.New(rand.NewSource(int64(i)))
					zipf := rand.NewZipf(rng, 1.01, 1, 1_000_000)
					for next.Add(int64(c.batch)) <= int64(b.N)+int64(c.batch) {
						ms := make([]Mutation, c.batch)
						for j := range ms {
							ms[j] = Mutation{Op: OpAdd, Type: like, Src: mix64(uint64(rng.Intn(1_000_000)))>>2 | 1, Dst: mix64(zipf.Uint64())>>2 | 1}
						}
						res, _, err := w.g.Mutate(context.Background(), ms, WaitBoth)
						if err != nil || res[0].Err != nil {
							b.Error(err, res[0].Err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "edges/s")
		})
	}
}
