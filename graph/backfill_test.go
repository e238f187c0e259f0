package graph

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// withFavorites is the default schema with one more derived counter, over edges that
// were always there: how often an author's notes are favourites.
func withFavorites(t testing.TB) *Schema {
	t.Helper()
	doc := defaultDoc()
	doc.Version = 2
	doc.Vertices[0].Metrics = append(doc.Vertices[0].Metrics,
		metricDoc{Name: "favorites_received", ID: 2, Derived: &derivedDoc{Sum: "favorite", Over: "published"}})
	s, err := newSchema(doc)
	must(t, err)
	return s
}

// received is what a derived counter of a user should be: the edges of a type that reach
// what the user has published.
func (m model) received(user uint64, sum EdgeType) (n int64) {
	for k := range m {
		if k.t == 4 && k.src == user {
			n += int64(len(m.list(ListKey{Vertex: Vertex{2, k.dst}, Type: sum, Dir: In})))
		}
	}
	return n
}

// step makes the next step of a shard's backfill, if it has one.
func (s *shards) step(m *Machine, cut bool, owned, walked int) bool {
	s.t.Helper()
	v, err := m.acquire()
	must(s.t, err)
	defer v.release()
	step, ok, err := v.nextBackfill(owned, walked)
	must(s.t, err)
	if ok {
		s.apply(m, cut, step.encode())
	}
	return ok
}

func (s *shards) compareReceived(sum EdgeType, metric Metric) {
	s.t.Helper()
	for user := uint64(1); user <= 30; user++ {
		want := s.model.received(user, sum)
		if got := s.value(CounterRef{Vertex: Vertex{1, user}, Metric: metric}); got != want {
			s.t.Errorf("metric %d of user %d: %d, the sum is %d", metric, user, got, want)
		}
	}
}

// A derived counter is declared while edges come and go, shards are split, deliveries
// are delayed, repeated and out of order, steps are made twice and shards start again: it
// comes to the sums of the model, and a check finds no fault at any place in between.
func TestBackfillsAtRandomAgreeWithTheModel(t *testing.T) {
	seeds := int64(60)
	if raceEnabled {
		seeds = 12
	}
	if os.Getenv("LIANA_LONG") != "" {
		seeds = 2000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { backfillAtRandom(t, seed) })
	}
}

func backfillAtRandom(t *testing.T, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	s := newShards(t, 1+rng.Intn(3))
	types := []EdgeType{1, 2, 2, 4, 4}
	for range 80 {
		s.mutate(randomMutation(rng, types), rng.Intn(2) == 0)
	}
	next := encodeInit(77, withFavorites(t), len(s.machines))
	pick := func() *Machine { ids := s.ids(); return s.machines[ids[rng.Intn(len(ids))]] }
	for step := range 200 {
		switch n := rng.Intn(20); {
		case n < 8:
			s.mutate(randomMutation(rng, types), rng.Intn(2) == 0)
		case n < 12:
			from, to := pick().cfg.ID, pick().cfg.ID
			if d := s.next(from, to, 1+rng.Intn(3)); d != nil && from != to {
				s.deliver(to, d, rng.Intn(2) == 0)
			}
		case n < 15:
			s.step(pick(), rng.Intn(2) == 0, 1+rng.Intn(2), 1+rng.Intn(4))
		case n == 15:
			s.apply(pick(), rng.Intn(2) == 0, next)
		case n == 16 && rng.Intn(3) == 0:
			s.restart(pick().cfg.ID)
		case n == 17 && len(s.machines) < 6:
			m := pick()
			if m.own.First < m.own.Last {
				at := max(m.own.First+1, min(m.own.Last, SlotOf(Vertex{2, uint64(1 + rng.Intn(12))})))
				s.apply(m, false, split{uint32(len(s.machines)), at}.encode())
			}
		case n == 18 && step%40 == 0:
			s.settle()
			s.check()
		}
	}
	for _, id := range s.ids() {
		s.apply(s.machines[id], false, next)
	}
	s.settle()
	s.check() // proves what is counted already
	for _, id := range s.ids() {
		for s.step(s.machines[id], rng.Intn(2) == 0, 2, 3) {
			s.mutate(randomMutation(rng, types), rng.Intn(2) == 0)
			cutNow(t, s.machines[id], s.index)
		}
		if b := s.machines[id].backfills; len(b) > 0 {
			t.Errorf("shard %d is not through: %+v", id, b)
		}
	}
	s.settle()
	s.check()
	s.compareReceived(1, 1)
	s.compareReceived(2, 2)
}

// A step that comes a second time, or is of another place, does nothing.
func TestBackfillStepsAreMadeOnce(t *testing.T) {
	s := newShards(t, 1)
	for note := uint64(1); note <= 6; note++ {
		s.mutate(Mutation{Op: OpAdd, Type: 4, Src: 1, Dst: note, Time: 1}, false)
		s.mutate(Mutation{Op: OpAdd, Type: 2, Src: 9, Dst: note, Time: 1}, true)
	}
	m := s.machines[0]
	s.apply(m, true, encodeInit(77, withFavorites(t), 1))
	v, err := m.acquire()
	must(t, err)
	defer v.release()
	first, ok, err := v.nextBackfill(2, 100)
	must(t, err)
	if !ok {
		t.Fatal("there is nothing to backfill")
	}
	foreign := first
	foreign.from[0]++
	for range 3 {
		s.apply(m, true, first.encode(), foreign.encode())
	}
	ref := CounterRef{Vertex: Vertex{1, 1}, Metric: 2}
	if got := s.value(ref); got != 2 {
		t.Errorf("after a step of two notes, made three times, the counter is %d", got)
	}
	for s.step(m, true, 2, 100) {
	}
	if got := s.value(ref); got != 6 {
		t.Errorf("%d at the end, want 6", got)
	}
}

// A step sees what came after its view and before it in the log, cut or not, and in its
// own entry.
func TestBackfillStepsSeeWhatIsNotCut(t *testing.T) {
	s := newShards(t, 1)
	add := func(et EdgeType, src, note uint64) Mutation {
		return Mutation{Op: OpAdd, Type: et, Src: src, Dst: note, Time: 1}
	}
	s.mutate(add(4, 1, 1), false)
	s.mutate(add(2, 1, 1), true)
	m := s.machines[0]
	s.apply(m, true, encodeInit(77, withFavorites(t), 1))
	v, err := m.acquire()
	must(t, err)
	defer v.release()
	all, _, err := v.nextBackfill(100, 100)
	must(t, err)
	s.mutate(add(4, 1, 2), false)
	s.mutate(add(2, 5, 2), false)
	s.apply(m, true, mutateCommand(add(4, 1, 3), add(2, 5, 3), add(2, 6, 3)), all.encode(), mutateCommand(add(2, 7, 3)))
	if got := s.value(CounterRef{Vertex: Vertex{1, 1}, Metric: 2}); got != 5 {
		t.Errorf("%d, want 5", got)
	}
}

// A derived counter over edge types of which a shard has none is counted at once.
func TestNothingIsBackfilledWhereThereIsNothing(t *testing.T) {
	s := newShards(t, 1)
	s.mutate(Mutation{Op: OpAdd, Type: 4, Src: 1, Dst: 7, Time: 1}, true)
	s.apply(s.machines[0], true, encodeInit(77, withFavorites(t), 1))
	if b := s.machines[0].backfills; len(b) > 0 {
		t.Errorf("%+v", b)
	}
	s.mutate(Mutation{Op: OpAdd, Type: 2, Src: 3, Dst: 7, Time: 1}, true)
	s.settle()
	if got := s.value(CounterRef{Vertex: Vertex{1, 1}, Metric: 2}); got != 1 {
		t.Errorf("%d, want 1", got)
	}
}

func TestBackfillRowsComeBack(t *testing.T) {
	b := backfills{{derivedName{1, 2}, placeOf(Vertex{2, 7})}, {derivedName{3, 4}, place{}}}
	back, err := decodeBackfills(b.encode())
	must(t, err)
	if !slices.Equal(back, b) {
		t.Errorf("%+v, want %+v", back, b)
	}
	if _, err := decodeBackfills(b.encode()[:20]); err == nil {
		t.Error("a row that is cut short was read")
	}
}

// The counter is declared on a store that is written to, is stopped in the middle, and
// goes on by itself.
func TestBackfillGoesOnUnderWritesAndAfterARestart(t *testing.T) {
	w := newWorld(t, true, nil)
	const notes = 3000
	ms := make([]Mutation, 0, 2*notes)
	for n := uint64(1); n <= notes; n++ {
		ms = append(ms, Mutation{Op: OpAdd, Type: 4, Src: 1 + n%50, Dst: n, Time: 1},
			Mutation{Op: OpAdd, Type: 2, Src: 1 + n%7, Dst: n, Time: 1})
	}
	w.mutate(ms...)
	all := model{}
	for _, mu := range ms {
		all.apply(mu)
	}
	w.g.Adopt(withFavorites(t))
	ctx, stop := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	var written atomic.Int64
	writer.Go(func() {
		rng := rand.New(rand.NewSource(1))
		for ctx.Err() == nil {
			batch := make([]Mutation, 20)
			for i := range batch {
				batch[i] = Mutation{Op: Op(1 + rng.Intn(2)), Type: []EdgeType{2, 4}[rng.Intn(2)], Src: 1 + uint64(rng.Intn(50)), Dst: 1 + uint64(rng.Intn(notes)), Time: 2}
				all.apply(batch[i])
			}
			w.mutate(batch...)
			written.Add(1)
		}
	})
	waitFor(t, "the first steps", func() bool { return under(w.g) < 1 && written.Load() > 5 })
	stop()
	writer.Wait()
	w.cfg.Schema = nil
	w.reopen()
	waitFor(t, "the end of the backfill", func() bool { return w.g.Schema().Version == 2 && under(w.g) == 0 })
	settleAll(t, w)
	for user := uint64(1); user <= 50; user++ {
		if got, want := w.counter(CounterRef{Vertex: Vertex{1, user}, Metric: 2}), all.received(user, 2); got != want {
			t.Errorf("favorites_received of user %d: %d, want %d", user, got, want)
		}
	}
	w.check()
}

// under is the share of the slots, of the shards of a graph, that is not counted yet.
func under(g *Graph) (left float64) {
	st := g.Status()
	for _, s := range st {
		for _, b := range s.Backfills {
			left += (1 - b.Done) / float64(len(st))
		}
	}
	for _, mb := range g.replicas() {
		if v, err := mb.machine.acquire(); err == nil {
			if v.schema.Version < 2 {
				left++
			}
			v.release()
		}
	}
	return left
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
	}
}
