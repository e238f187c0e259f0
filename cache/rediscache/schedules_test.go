package rediscache

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// stage is one gateway, one feeder, one Redis and one storage, driven step by step.
type stage struct {
	t       *testing.T
	m       *cachetest.Model
	redis   *modelRedis
	tier    *Tier
	feeder  *Feeder
	leaders cache.Leaders
	source  cache.Source // above the tier
	loaded  func()       // called once, between a load's snapshot and its fill
	bad     error        // the first wrong answer

	unconfirmed bool // R1 is broken: an old leader's polls are heard
}

func newStage(t *testing.T, f simFaults) *stage {
	w := &stage{t: t, m: cachetest.NewModel(4), redis: newModelRedis()}
	w.m.Record, w.m.Window, w.m.Flaws, w.redis.flaws = true, 3, f.storage, f.redis
	w.leaders, w.unconfirmed = w.m, f.unconfirmed
	w.tier = newTier(patient(), w.redis, hooked{w})
	w.source = w.tier
	cfg := FeederConfig{Window: 3, Least: 1}
	if f.oneGen {
		cfg.Rand = func() uint64 { return 7 }
	}
	w.feeder = newFeeder(cfg, w.redis, w.m)
	w.feed()
	return w
}

// hooked is storage with a hook.
type hooked struct{ w *stage }

func (h hooked) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	err := h.w.m.Load(ctx, wants, got)
	if f := h.w.loaded; f != nil {
		h.w.loaded = nil
		f()
	}
	return err
}

// feed brings all changes to Redis, as if its slots had not been looked at for a while.
func (w *stage) feed() {
	w.t.Helper()
	for _, s := range w.feeder.shards {
		for i := range s.slots {
			s.slots[i].seen, s.slots[i].raised = time.Time{}, time.Time{}
		}
	}
	for range 2 {
		must(w.t, w.feeder.Round(context.Background()))
	}
}

// ask polls, then asks, and checks that the answer is of now.
func (w *stage) ask(q cache.Query, tok cache.Token) (cache.Answer, cache.Token) {
	w.t.Helper()
	polls := cache.NewPolls(time.Hour)
	reader := cache.NewReader(w.m, w.source, polls)
	q.Slot = w.m.SlotOf(q.List.Vertex)
	as := make([]cache.Answer, 1)
	_, err := reader.Read(context.Background(), cache.Options{}, []cache.Query{q}, as)
	must(w.t, err)
	must(w.t, polls.Round(context.Background(), w.leaders))
	asked := cachetest.Asked{Query: q, At: time.Now(), Token: tok}
	w.tier.rebuilds = cache.NewRebuilds(cache.DefaultRebuildLimits())
	time.Sleep(2 * time.Millisecond) // leases end
	got, err := reader.Read(context.Background(), cache.Options{Token: tok}, []cache.Query{q}, as)
	must(w.t, err)
	if err := w.m.Check(&asked, &as[0], &got); err != nil && w.bad == nil {
		w.bad = err
	}
	return as[0], got
}

// all asks everything about a list and its vertex, once to fill and once to hit.
func (w *stage) all(l cache.List) {
	w.t.Helper()
	for range 2 {
		for peer := range uint64(6) {
			w.ask(cache.Query{Kind: cache.HasEdge, List: l, Peer: peer + 1, Dense: true}, cache.Token{})
		}
		w.ask(cache.Query{Kind: cache.ListPage, List: l, Page: cache.PageQuery{Limit: 3}.AllTime()}, cache.Token{})
		w.ask(cache.Query{Kind: cache.CountEdges, List: l, Page: cache.PageQuery{}.AllTime()}, cache.Token{})
		for metric := range uint16(2) {
			w.ask(cache.Query{Kind: cache.ReadMetric, List: cache.List{Vertex: l.Vertex}, Metric: metric}, cache.Token{})
		}
	}
}

func (w *stage) hits(f func()) uint64 {
	before := w.tier.stats.Hits.Load()
	f()
	return w.tier.stats.Hits.Load() - before
}

func (w *stage) nudge(c cache.Change) {
	w.tier.Nudge(context.Background(), w.m.Last(c.Slot).Timeline, &c)
}

func set(v cache.Vertex, metric uint16, f cache.Field) cache.Change {
	return cache.Change{Kind: cache.MetricSet, List: cache.List{Vertex: v}, Metric: metric, Value: f}
}

// The counterexamples of CACHE.md section 1, by their numbers. Each schedule ends well,
// and badly with its rule taken out.
func TestCounterexamples(t *testing.T) {
	l := cachetest.Like(1)
	for name, c := range map[string]struct {
		run     func(*stage)
		without func(*simFaults) // nil: see the test's own checks
	}{
		"1 group commit": {func(w *stage) {
			w.all(l)
			for _, c := range w.m.Apply(cachetest.Add(l, 1, 1), cachetest.Add(l, 2, 2)) {
				w.nudge(c)
			}
			w.feed()
			w.all(l)
		}, func(f *simFaults) { f.storage.OneNumberAnEntry = true }},
		"2 split": {func(w *stage) {
			for i := range uint64(9) {
				w.m.Apply(cachetest.Add(cachetest.Like(2), i%2+1, 1), cachetest.Remove(cachetest.Like(2), i%2+1))
			}
			w.m.Apply(cachetest.Add(cachetest.Like(3), 1, 1))
			w.feed()
			w.all(cachetest.Like(3))
			w.m.Split(2)
			w.m.Apply(cachetest.Add(cachetest.Like(3), 2, 1), cachetest.Add(cachetest.Like(3), 3, 1))
			w.feed()
			w.all(cachetest.Like(3))
		}, func(f *simFaults) { f.storage.CounterFromOne = true }},
		"3 restore": {func(w *stage) {
			b := w.m.Backup()
			w.m.Apply(cachetest.Add(l, 1, 1))
			w.feed()
			w.all(l)
			w.m.Restore(b, rand.New(rand.NewPCG(1, 1)))
			w.m.Apply(cachetest.Add(l, 2, 1), cachetest.Add(l, 3, 1))
			w.feed()
			w.all(l)
		}, func(f *simFaults) { f.storage.TimelineKept = true }},
		"4 a token past a quiet list": {func(w *stage) {
			w.m.Apply(cachetest.Add(l, 1, 1))
			w.feed()
			w.all(l)
			w.m.Apply(cachetest.Add(cachetest.Like(5), 1, 1)) // in the same slot
			w.feed()
			var tok cache.Token
			tok.See(1, w.m.Last(1))
			if w.hits(func() { w.ask(cache.Query{Kind: cache.HasEdge, List: l, Peer: 1}, tok) }) == 0 {
				w.bad = errors.New("no hit under a token of another list of the slot")
			}
		}, nil},
		"5 emptied and made anew": {func(w *stage) {
			w.m.Apply(cachetest.Add(l, 1, 1))
			w.feed()
			w.all(l)
			w.m.Apply(cachetest.Remove(l, 1))
			w.nudge(w.m.Apply(cachetest.Add(l, 2, 2))[0])
			w.all(l)
		}, func(f *simFaults) { f.redis.createAdds = true }},
		"6 two writers of a row": {func(w *stage) {
			w.m.Apply(set(l.Vertex, 0, 9), set(l.Vertex, 1, 54))
			w.feed()
			w.all(l)
			a, b := w.m.Apply(set(l.Vertex, 0, 10))[0], w.m.Apply(set(l.Vertex, 1, 55))[0]
			w.nudge(b) // passed by
			w.nudge(a)
			w.all(l)
			w.feed()
			w.all(l)
		}, nil},
		"7 a change of an absent row": {func(w *stage) {
			w.m.Apply(set(l.Vertex, 0, 10), set(l.Vertex, 1, 54))
			w.feed()
			delete(w.redis.keys, entryKey(1, w.feeder.shards[1].slots[1].p.gen, ptr(cache.RowKey(1, l.Vertex))))
			w.m.Apply(set(l.Vertex, 0, 11))
			w.feed()
			w.all(l)
		}, func(f *simFaults) { f.redis.pushCreates = true }},
		"8 a chunk has no chain": {func(w *stage) {
			far := uint64(5 * cache.ChunkPeers)
			w.m.Apply(cachetest.Add(l, 1, 9), cachetest.Add(l, 2, 9), cachetest.Add(l, far, 9), cachetest.Add(l, far+1, 9), cachetest.Add(l, far+2, 9))
			w.feed()
			w.all(l)
			w.m.Apply(cachetest.Add(l, far+3, 9), cachetest.Remove(l, 1), cachetest.Add(l, 3, 0))
			w.feed()
			w.all(l)
			if w.hits(func() { w.ask(cache.Query{Kind: cache.HasEdge, List: l, Peer: 1, Dense: true}, cache.Token{}) }) < 2 {
				w.bad = errors.New("changes elsewhere have dropped the chunk")
			}
		}, nil},
		"9 an absent chunk says nothing": {func(w *stage) {
			w.m.Apply(cachetest.Add(l, 1, 1), cachetest.Add(l, 2, 2), cachetest.Add(l, 3, 3), cachetest.Add(l, 4, 4), cachetest.Add(l, 5, 5))
			w.feed()
			w.all(l)
			for k := range maps.Clone(w.redis.keys) {
				if k[len(k)-1] == 'b' {
					delete(w.redis.keys, k)
				}
			}
			w.all(l)
		}, nil},
		"10 a late fill": {func(w *stage) {
			w.loaded = func() {
				w.m.Apply(cachetest.Add(l, 2, 2))
				w.feed()
			}
			w.ask(cache.Query{Kind: cache.HasEdge, List: l, Peer: 1}, cache.Token{})
			w.bad = nil // it was asked before the write
			w.all(l)
		}, func(f *simFaults) { f.redis.fillAnyPosition = true }},
		"11 a very late fill": {func(w *stage) {
			w.loaded = func() {
				for i := range uint64(100) {
					w.m.Apply(cachetest.Add(l, i%5+1, 1), cachetest.Remove(l, (i+3)%5+1))
					w.feed()
				}
				clear(w.redis.keys)
				w.feed()
			}
			w.ask(cache.Query{Kind: cache.HasEdge, List: l, Peer: 1}, cache.Token{})
			w.bad = nil
			w.all(l)
		}, nil},
		"12 two writers' deltas swapped": {func(w *stage) {
			w.m.Apply(cachetest.Add(l, 1, 1))
			w.feed()
			w.all(l)
			a, b := w.m.Apply(cachetest.Add(l, 2, 2))[0], w.m.Apply(cachetest.Add(l, 3, 3))[0]
			w.nudge(b)
			w.nudge(a)
			w.feed()
			if w.hits(func() { w.all(l) }) < 10 {
				w.bad = errors.New("the window was dropped")
			}
		}, nil},
		"15 failover loses what was pushed": {func(w *stage) {
			w.m.Apply(cachetest.Add(l, 1, 1))
			w.feed()
			w.all(l)
			replica := maps.Clone(w.redis.keys)
			w.m.Apply(cachetest.Add(l, 2, 2))
			w.feed()
			w.redis.keys = replica
			w.all(l)
			w.m.Apply(cachetest.Add(l, 3, 3))
			must(w.t, w.feeder.Round(context.Background()))
			w.all(l)
			w.feed()
			w.all(l)
		}, func(f *simFaults) { f.redis.pushAnywhere = true }},
		"17 an old leader says it is fresh": {func(w *stage) {
			w.m.Apply(cachetest.Add(l, 1, 1))
			w.feed()
			w.all(l)
			old := w.m.Frozen()
			w.m.Apply(cachetest.Add(l, 2, 2))
			f := newFeeder(FeederConfig{}, w.redis, old)
			must(w.t, f.Round(context.Background()))
			if w.unconfirmed {
				w.leaders = old
			}
			w.all(l)
			w.feed()
			w.all(l)
		}, func(f *simFaults) { f.unconfirmed = true }},
		"19 p is evicted, the entries are not": {func(w *stage) {
			w.m.Apply(cachetest.Add(l, 1, 1))
			w.feed()
			w.all(l)
			delete(w.redis.keys, headKey(1, 1))
			w.m.Apply(cachetest.Add(l, 2, 2))
			w.m.Trim(0)
			w.feed()
			w.all(l)
		}, func(f *simFaults) { f.oneGen = true }},
		"22 a pending inverse": {func(w *stage) {
			in := l
			in.In = true
			w.feed()
			w.all(in)
			tok := cache.Token{Timeline: 1, Pending: []cache.Pending{{Src: 3, Number: 1, Dst: 1}}}
			if w.hits(func() {
				w.ask(cache.Query{Kind: cache.CountEdges, List: in, Page: cache.PageQuery{}.AllTime()}, tok)
			}) > 0 {
				w.bad = errors.New("a cache answered what only storage knows")
			}
		}, nil},
		"23 HasEdge of the IN side": {func(w *stage) {
			in := l
			in.In = true
			w.m.Apply(cachetest.Add(in, 1, 1), cachetest.Add(in, 2, 1))
			w.feed()
			w.all(in)
			if w.hits(func() { w.ask(cache.Query{Kind: cache.HasEdge, List: in, Peer: 1, Dense: true}, cache.Token{}) }) > 0 {
				w.bad = errors.New("a cache answered for the edge from its mirror")
			}
		}, nil},
		"25 pages from two places": {func(w *stage) {
			for i := range uint64(3) {
				w.m.Apply(cachetest.Add(l, i+1, int64(i)))
			}
			w.feed()
			w.all(l)
			w.m.Apply(cachetest.Remove(l, 3), cachetest.Add(l, 3, 0)) // 3 moves to the end
			q := cache.Query{Kind: cache.ListPage, List: l, Page: cache.PageQuery{Limit: 2}.AllTime()}
			a, tok := w.ask(q, cache.Token{}) // of storage: Redis is behind
			// Another gateway, which has heard of no change, goes on.
			w.leaders = idle{w.m}
			q.Page.From = &a.Edges[1]
			w.ask(q, tok)
		}, nil},
		"27 many edges at the floor's time": {func(w *stage) {
			for _, peer := range []uint64{2, 4, 6, 8} {
				w.m.Apply(cachetest.Add(l, peer, 5))
			}
			w.feed()
			w.all(l)
			w.m.Apply(cachetest.Remove(l, 8), cachetest.Add(l, 1, 5))
			w.feed()
			w.all(l)
		}, func(f *simFaults) { f.redis.floorIsTime = true }},
		"28 a counter that expires": {func(w *stage) {
			w.m.Apply(set(l.Vertex, 0, 5))
			w.feed()
			w.all(l)
			w.m.Apply(set(l.Vertex, 0, cache.Unknown))
			w.feed()
			asked := w.reads(func() {
				w.ask(cache.Query{Kind: cache.ReadMetric, List: cache.List{Vertex: l.Vertex}}, cache.Token{})
			})
			if w.bad = nil; asked < 2 { // one of them before the poll
				w.bad = errors.New("a cache answered for a counter that expires")
			}
		}, nil},
		"29 a row from before a metric": {func(w *stage) {
			w.all(l)
			if _, ok := w.redis.keys[headKey(1, 1)]; !ok {
				w.t.Fatal("not fed")
			}
			asked := w.reads(func() {
				w.ask(cache.Query{Kind: cache.ReadMetric, List: cache.List{Vertex: l.Vertex}, Metric: 100}, cache.Token{})
			})
			if asked < 2 {
				w.bad = errors.New("a cache answered for a metric that its row does not have")
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newStage(t, simFaults{})
				if c.run(w); w.bad != nil {
					t.Fatal(w.bad)
				}
				if c.without == nil {
					return
				}
				var f simFaults
				c.without(&f)
				w = newStage(t, f)
				if c.run(w); w.bad == nil {
					t.Error("its rule taken out, the schedule still ends well")
				} else {
					t.Logf("without the rule: %v", w.bad)
				}
			})
		})
	}
}

func (w *stage) reads(f func()) int {
	_, before := w.m.Calls()
	f()
	_, after := w.m.Calls()
	return after - before
}

// idle are leaders that were asked before anything happened.
type idle struct{ m *cachetest.Model }

func (l idle) Poll(_ context.Context, slots []cache.Slot, tell func(cache.Slot, cache.Position)) error {
	for _, s := range slots {
		at := l.m.Last(s)
		at.Number = 0
		tell(s, at)
	}
	return nil
}

// CACHE.md 1.16: where one node cannot be reached, the slots of the others go on.
func TestOneNodeDownLeavesTheOthers(t *testing.T) {
	m := cachetest.NewModel(4)
	c := &halfConn{modelRedis: newModelRedis()}
	tier, f := newTier(patient(), c, m), newFeeder(FeederConfig{}, c, m)
	must(t, f.Round(t.Context()))
	c.down = true
	m.Apply(cachetest.Add(cachetest.Like(0), 1, 1), cachetest.Add(cachetest.Like(1), 1, 1))
	for range 5 {
		if err := f.Round(t.Context()); err == nil {
			t.Error("a node is down and the feeder says nothing")
		}
		wants := []cache.Want{
			{Key: cache.WindowKey(0, cachetest.Like(0)), Min: m.Last(0)}, {Key: cache.WindowKey(1, cachetest.Like(1)), Min: m.Last(1)},
		}
		must(t, tier.Load(t.Context(), wants, make([]cache.Entry, 2)))
		time.Sleep(2 * time.Millisecond)
	}
	m.Apply(cachetest.Add(cachetest.Like(1), 2, 2))
	if err := f.Round(t.Context()); err == nil {
		t.Error("a node is down and the feeder says nothing")
	}
	if p := f.shards[1].slots[1].p; p.h < m.Last(1).Number {
		t.Errorf("the slot of the node that is up is fed up to %d, its last change is %d", p.h, m.Last(1).Number)
	}
	if s := tier.Stats(); s.Hits.Load() != 4 || tier.OpenBreakers() != 1 {
		t.Errorf("%d hits of 4 on the node that is up, %d breakers open", s.Hits.Load(), tier.OpenBreakers())
	}
}

// halfConn is two nodes, of which that of the even slots can be down.
type halfConn struct {
	*modelRedis
	down bool
}

func (c *halfConn) node(key string) string { return "ab"[nodeOf(key, 2):][:1] }

func (c *halfConn) do(ctx context.Context, calls []call) []reply {
	out := make([]reply, len(calls))
	for i := range calls {
		if c.down && nodeOf(calls[i].keys[0], 2) == 0 {
			out[i].err = errLost
		} else {
			out[i] = c.modelRedis.do(ctx, calls[i:i+1])[0]
		}
	}
	return out
}

func TestForgetASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newStage(t, simFaults{}), cachetest.Like(1)
		must(t, w.tier.Forget(t.Context(), 1, 3))
		w.m.Apply(cachetest.Add(l, 1, 1))
		w.feed()
		w.all(l)
		before := w.redis.keys[headKey(1, 1)]
		for k := range maps.Clone(w.redis.keys) { // something that storage never said
			if k[len(k)-1] == 'c' {
				w.redis.keys[k] = encodeEntry(&cache.Entry{At: cache.Position{Number: 1}, Row: &cache.Row{Fields: make([]cache.Field, 12)}})
			}
		}
		must(t, w.tier.Forget(t.Context(), 1, 1))
		if after := w.redis.keys[headKey(1, 1)]; after == before || after[8:] != before[8:] {
			t.Errorf("p was %x, is %x", before, after)
		}
		w.all(l)
		w.m.Apply(cachetest.Add(l, 2, 2))
		w.feed()
		w.all(l)
		if w.bad != nil {
			t.Error(w.bad)
		}
	})
}

// Nothing is cached past the largest number that scripts can hold.
func TestPositionsPastWhatScriptsHold(t *testing.T) {
	c, far := newModelRedis(), uint64(math.MaxUint64/4)
	l := cachetest.Like(1)
	tier := newTier(patient(), c, fixedSource(cache.Position{Timeline: 1, Number: far}))
	c.keys[headKey(1, 1)] = head{3, 5}.encode()
	for range 3 {
		got := make([]cache.Entry, 1)
		must(t, tier.Load(t.Context(), []cache.Want{{Key: cache.WindowKey(1, l), Min: cache.Position{Timeline: 1, Number: far}}}, got))
		time.Sleep(2 * time.Millisecond)
	}
	if len(c.keys) != 1 || tier.Stats().Fills.Load() > 0 {
		t.Errorf("%d keys, %d fills", len(c.keys), tier.Stats().Fills.Load())
	}
}

type fixedSource cache.Position

func (s fixedSource) Load(_ context.Context, wants []cache.Want, got []cache.Entry) error {
	for i := range wants {
		got[i] = cache.Entry{At: cache.Position(s), Window: &cache.Window{}}
	}
	return nil
}
