package rediscache

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

func TestBreakerOpensAndTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		for range breakerFailures {
			if !b.allow("a") {
				t.Fatal("open before its time")
			}
			b.report("a", false)
		}
		if b.allow("a") || !b.allow("b") || b.open() != 1 {
			t.Error("the failing server alone should be left alone")
		}
		for _, pause := range []time.Duration{breakerLeast, 2 * breakerLeast, 4 * breakerLeast} {
			time.Sleep(pause - time.Nanosecond)
			if b.allow("a") {
				t.Errorf("tried before %v", pause)
			}
			time.Sleep(time.Nanosecond)
			first := b.allow("a")
			if second := b.allow("a"); !first || second {
				t.Errorf("after %v, one request and no more should be let through", pause)
			}
			b.report("a", false)
		}
		time.Sleep(breakerMost)
		if !b.allow("a") {
			t.Fatal("never tried again")
		}
		b.report("a", true)
		for range 2 {
			if !b.allow("a") || b.open() != 0 {
				t.Error("still left alone after an answer")
			}
		}
	})
}

// world is a model of storage behind a tier on a real Redis.
type realWorld struct {
	t      *testing.T
	m      *cachetest.Model
	tier   *Tier
	feeder *Feeder
	polls  *cache.Polls
	reader *cache.Reader
}

func newRealWorld(t *testing.T, cfg TierConfig, reads, feeds redis.UniversalClient) *realWorld {
	m := cachetest.NewModel(16)
	m.Record = true
	w := &realWorld{t: t, m: m, tier: NewTier(cfg, reads, m), feeder: NewFeeder(FeederConfig{}, feeds, m), polls: cache.NewPolls(10 * time.Second)}
	w.reader = cache.NewReader(m, cache.NewFlights(w.tier), w.polls)
	for s := range uint64(16) {
		w.ask(count(s))
	}
	must(t, w.polls.Round(t.Context(), m))
	return w
}

func count(id uint64) cache.Query {
	return cache.Query{Kind: cache.CountEdges, List: cachetest.Like(id), Page: cache.PageQuery{}.AllTime()}
}

// ask asks one query and checks the answer against the history.
func (w *realWorld) ask(q cache.Query) time.Duration {
	w.t.Helper()
	q.Slot = w.m.SlotOf(q.List.Vertex)
	asked := cachetest.Asked{Query: q, At: time.Now(), Bound: 10 * time.Second}
	as := make([]cache.Answer, 1)
	tok, err := w.reader.Read(context.Background(), cache.Options{}, []cache.Query{q}, as)
	must(w.t, err)
	if err := w.m.Check(&asked, &as[0], &tok); err != nil {
		w.t.Error(err)
	}
	return time.Since(asked.At)
}

func onlyFeeder(o *redis.UniversalOptions) { *o = FeederOptions(*o) }

// A Redis that neither answers nor refuses costs one bounded wait, then nothing, and
// is used again when it is back (CASES 32). What changed meanwhile is not forgotten.
func TestRedisThatDoesNotAnswer(t *testing.T) {
	s := startServer(t)
	w := newRealWorld(t, TierConfig{Timeout: 150 * time.Millisecond}, s.client(), s.client(onlyFeeder))
	must(t, w.feeder.Round(t.Context()))
	w.ask(count(1))
	w.ask(count(1))
	if w.tier.Stats().Hits.Load() == 0 {
		t.Fatal("nothing was cached")
	}
	s.pause()
	var waits time.Duration
	for i := range uint64(200) {
		waits += w.ask(count(i % 4))
	}
	if waits > 6*150*time.Millisecond {
		t.Errorf("200 reads waited %v for a Redis that does not answer", waits)
	}
	if w.tier.OpenBreakers() != 1 {
		t.Error("its breaker is not open")
	}
	w.m.Apply(cachetest.Add(cachetest.Like(1), 5, 5))
	s.resume()
	eventually(t, "Redis is used again", func() error {
		before := w.tier.Stats().Hits.Load()
		_ = w.feeder.Round(t.Context())
		w.ask(count(1))
		if w.tier.Stats().Hits.Load() == before {
			return fmt.Errorf("no hit")
		}
		return nil
	})
}

// A server that comes back empty is opened anew (P9: Redis empty).
func TestRedisThatLostEverything(t *testing.T) {
	s := startServer(t)
	w := newRealWorld(t, patient(), s.client(), s.client(onlyFeeder))
	must(t, w.feeder.Round(t.Context()))
	id := uint64(1)
	for round := range uint64(3) {
		w.m.Apply(cachetest.Add(cachetest.Like(1), round+1, 5))
		must(t, w.feeder.Round(t.Context()))
		// The client's pool may take a second to believe in the server again.
		eventually(t, "something is cached", func() error {
			before := w.tier.Stats().Hits.Load()
			id += 16 // another vertex each time: rebuilds of one are limited
			must(t, w.feeder.Round(t.Context()))
			for range 3 {
				w.ask(count(id))
			}
			if w.tier.Stats().Hits.Load() == before {
				return fmt.Errorf("no hit")
			}
			return nil
		})
		s.kill()
		w.ask(count(1))
		w.m.Apply(cachetest.Add(cachetest.Like(2), round+1, 5))
		if err := w.feeder.Round(t.Context()); err == nil {
			t.Error("fed a server that is not there")
		}
		s.start()
		eventually(t, "fed again", func() error { return w.feeder.Round(t.Context()) })
		must(t, w.feeder.Round(t.Context()))
		w.tier.breakers = newBreakers()
	}
}

// Gateways that miss the same entry at once load it once: single flight within each,
// a lease between them.
func TestOneLoadForAllGateways(t *testing.T) {
	s := startServer(t)
	cfg := patient()
	cfg.Lease = 10 * time.Second
	w := newRealWorld(t, cfg, s.client(), s.client(onlyFeeder))
	must(t, w.feeder.Round(t.Context()))
	loads, _ := w.m.Calls()
	var all sync.WaitGroup
	for range 4 {
		reader := cache.NewReader(w.m, cache.NewFlights(NewTier(cfg, s.client(), w.m)), w.polls)
		for range 16 {
			all.Go(func() {
				q := count(3)
				q.Slot = w.m.SlotOf(q.List.Vertex)
				if _, err := reader.Read(context.Background(), cache.Options{}, []cache.Query{q}, make([]cache.Answer, 1)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if now, _ := w.m.Calls(); now != loads+1 {
		t.Errorf("%d loads of one entry by four gateways", now-loads)
	}
}
