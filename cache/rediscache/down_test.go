package rediscache

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// far is a storage that takes a while to answer.
type far struct {
	*cachetest.Model
	takes time.Duration
}

func (f far) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	time.Sleep(f.takes)
	return f.Model.Load(ctx, wants, got)
}

func (f far) Read(ctx context.Context, opt cache.Options, qs []cache.Query, as []cache.Answer) (cache.Token, error) {
	time.Sleep(f.takes)
	return f.Model.Read(ctx, opt, qs, as)
}

// BenchmarkReadsWhileRedisIsDown compares the times of reads with a Redis that does not
// answer, and one that is gone, with those of a gateway that has none, in rounds of the
// same run. Storage takes 300 µs. Outages begin with each round, so what it takes to
// find out is in.
func BenchmarkReadsWhileRedisIsDown(b *testing.B) {
	b.Cleanup(func() { time.Sleep(1100 * time.Millisecond) }) // the clients' pools try to dial once a second
	s := startServer(b)
	m := cachetest.NewModel(16)
	for id := range uint64(5000) {
		for peer := range id % 16 {
			m.Apply(cachetest.Add(cachetest.Like(id), peer, 1))
		}
	}
	storage := far{m, 300 * time.Microsecond}
	polls := cache.NewPolls(time.Hour)
	feeder := NewFeeder(FeederConfig{}, s.client(onlyFeeder), m)
	gateway := func() func(cache.Query) {
		hot, err := cache.NewHot(NewTier(TierConfig{}, s.client(), cache.NewFlights(storage)), cache.NewTopK(4096, 64), 1<<24)
		must(b, err)
		r := cache.NewReader(storage, hot, polls)
		return func(q cache.Query) {
			_, err := r.Read(context.Background(), cache.Options{}, []cache.Query{q}, make([]cache.Answer, 1))
			must(b, err)
		}
	}
	bare := func(q cache.Query) {
		_, err := storage.Read(context.Background(), cache.Options{}, []cache.Query{q}, make([]cache.Answer, 1))
		must(b, err)
	}
	for range 2 { // has all slots polled
		for id := range uint64(16) {
			gateway()(benchQuestion(m, id, 1))
		}
		must(b, polls.Round(b.Context(), m))
	}
	var none, hangs, gone []time.Duration
	for b.Loop() {
		must(b, feeder.Round(b.Context()))
		none = append(none, readTimes(m, bare)...)
		read := gateway()
		readTimes(m, read)
		s.pause()
		hangs = append(hangs, readTimes(m, read)...)
		s.resume()
		read = gateway()
		readTimes(m, read)
		s.kill()
		gone = append(gone, readTimes(m, read)...)
		s.start()
		eventually(b, "Redis is fed again", func() error { return feeder.Round(b.Context()) })
	}
	b.ReportMetric(0, "ns/op")
	for _, p := range []struct {
		name string
		at   func([]time.Duration) float64
	}{{"p50", quantile(0.50)}, {"p99", quantile(0.99)}, {"p99.9", quantile(0.999)}} {
		b.ReportMetric(p.at(none), p.name+"-none-µs")
		b.ReportMetric(p.at(hangs)/p.at(none), p.name+"-hangs:none")
		b.ReportMetric(p.at(gone)/p.at(none), p.name+"-gone:none")
	}
}

func quantile(q float64) func([]time.Duration) float64 {
	return func(times []time.Duration) float64 {
		slices.Sort(times)
		return float64(times[int(q*float64(len(times)))].Microseconds())
	}
}

func benchQuestion(m *cachetest.Model, id, n uint64) cache.Query {
	l := cachetest.Like(id)
	q := cache.Query{Kind: cache.CountEdges, List: l, Slot: m.SlotOf(l.Vertex), Page: cache.PageQuery{}.AllTime()}
	if n%2 == 0 {
		q.Kind, q.Peer = cache.HasEdge, n%16
	}
	return q
}

// readTimes has 16 callers ask for two seconds, one question a call.
func readTimes(m *cachetest.Model, read func(cache.Query)) (times []time.Duration) {
	var mu sync.Mutex
	var callers sync.WaitGroup
	began := time.Now()
	for range benchCalls {
		callers.Go(func() {
			var own []time.Duration
			for time.Since(began) < 2*time.Second {
				q := benchQuestion(m, rand.Uint64N(5000), rand.Uint64())
				at := time.Now()
				read(q)
				own = append(own, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, own...)
		})
	}
	callers.Wait()
	return times
}
