package graph

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/lianadb/liana/edgelist"
)

// model is the trivial graph: a map of edges.
type model map[modelKey]edgelist.Edge

type modelKey struct {
	t        EdgeType
	src, dst uint64
}

func (m model) apply(mu Mutation) Outcome {
	k := modelKey{mu.Type, mu.Src, mu.Dst}
	old, ok := m[k]
	e := edgelist.Edge{Time: mu.Time, Props: mu.Props}
	switch {
	case mu.Op == OpAdd && ok, mu.Op == OpDelete && !ok:
		return Unchanged
	case mu.Op == OpUpdate && !ok:
		return Missing
	case mu.Op == OpUpdate && old.Time == e.Time && bytes.Equal(old.Props, e.Props):
		return Unchanged
	case mu.Op == OpDelete:
		delete(m, k)
	default:
		m[k] = e
	}
	return Changed
}

// list returns the model's list in ascending (time, id) order.
func (m model) list(l ListKey) []edgelist.Edge {
	var out []edgelist.Edge
	for k, e := range m {
		if k.t != l.Type {
			continue
		}
		if l.Dir == Out && k.src == l.Vertex.ID {
			out = append(out, edgelist.Edge{Peer: k.dst, Time: e.Time, Props: e.Props})
		} else if l.Dir == In && k.dst == l.Vertex.ID {
			out = append(out, edgelist.Edge{Peer: k.src, Time: e.Time, Props: e.Props})
		}
	}
	slices.SortFunc(out, func(a, b edgelist.Edge) int {
		if a.Time != b.Time {
			return int(min(max(a.Time-b.Time, -1), 1))
		}
		return compareUint(a.Peer, b.Peer)
	})
	return out
}

func compareUint(a, b uint64) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

func sameEdges(a, b []edgelist.Edge) bool {
	return slices.EqualFunc(a, b, func(x, y edgelist.Edge) bool {
		return x.Peer == y.Peer && x.Time == y.Time && bytes.Equal(x.Props, y.Props)
	})
}

// variants are configurations under which the same operations must give the same
// answers.
func variants() map[string]func(*Config) {
	small := edgelist.DefaultOptions()
	small.SplitEntries, small.Branch, small.MaxDeltas = 8, 5, 4
	return map[string]func(*Config){
		"default":          nil,
		"one shard":        func(c *Config) { c.Shards = 1 },
		"seven shards":     func(c *Config) { c.Shards = 7; c.Lists = small },
		"small pages":      func(c *Config) { c.Lists = small },
		"cache of nothing": func(c *Config) { c.CacheBytes = 1; c.Lists = small },
		"short change log": func(c *Config) { c.Retain = 10 },
	}
}

func TestGraphAnswersLikeTheModel(t *testing.T) {
	for name, change := range variants() {
		engines := []bool{true, false}
		if raceEnabled && name != "default" {
			engines = engines[:1] // `make test` runs the others on Pebble without the race detector
		}
		for _, mem := range engines {
			t.Run(fmt.Sprintf("%s/mem=%v", name, mem), func(t *testing.T) {
				t.Parallel()
				runModel(t, newWorld(t, mem, change), 1)
			})
		}
	}
}

func runModel(t *testing.T, w *world, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	t.Logf("seed %d", seed)
	m := model{}
	types := []EdgeType{w.edgeType("like"), w.edgeType("follow"), w.edgeType("published")}
	steps := 120
	if raceEnabled && !w.mem {
		steps = 40
	}
	for step := range steps {
		batch := make([]Mutation, 1+rng.Intn(40))
		for i := range batch {
			batch[i] = randomMutation(rng, types)
		}
		want := make([]Outcome, len(batch))
		for i, mu := range batch {
			want[i] = m.apply(mu)
		}
		got := w.mutate(slices.Clone(batch)...)
		for i := range batch {
			if got[i].Outcome != want[i] {
				t.Fatalf("step %d, mutation %d %+v: %v, want %v", step, i, batch[i], got[i].Outcome, want[i])
			}
		}
		compareReads(t, w, m, rng, types)
		if step%40 == 39 {
			w.check()
			w.reopen()
		}
	}
	compareDerived(t, w, m)
	w.check()
}

func randomMutation(rng *rand.Rand, types []EdgeType) Mutation {
	mu := Mutation{
		Op: Op(1 + rng.Intn(3)), Type: types[rng.Intn(len(types))],
		Src: uint64(1 + rng.Intn(30)), Dst: uint64(1 + rng.Intn(12)),
	}
	if rng.Intn(3) == 0 {
		mu.Op = OpAdd
	}
	if mu.Op != OpDelete {
		mu.Time = 1 + int64(rng.Intn(50))
		if rng.Intn(4) == 0 {
			mu.Props, _ = EncodeProps(map[string]string{"k": fmt.Sprint(rng.Intn(5))})
		}
	}
	return mu
}

func compareReads(t *testing.T, w *world, m model, rng *rand.Rand, types []EdgeType) {
	t.Helper()
	for range 6 {
		l := ListKey{Type: types[rng.Intn(len(types))], Dir: Direction(rng.Intn(2))}
		def, _ := w.g.Schema().EdgeTypeByID(l.Type)
		l.Vertex = Vertex{def.From, uint64(1 + rng.Intn(30))}
		if l.Dir == In {
			l.Vertex.Type = def.To
		}
		want := m.list(l)
		if got := w.count(l, AllTime()); got != uint64(len(want)) {
			t.Fatalf("count %v: %d, want %d", l, got, len(want))
		}
		win := Window{Since: int64(rng.Intn(50)), Until: int64(rng.Intn(60))}
		if win.Since > win.Until {
			win.Since, win.Until = win.Until, win.Since
		}
		inside := slices.DeleteFunc(slices.Clone(want), func(e edgelist.Edge) bool { return e.Time < win.Since || e.Time >= win.Until })
		if got := w.count(l, win); got != uint64(len(inside)) {
			t.Fatalf("count %v in %v: %d, want %d", l, win, got, len(inside))
		}
		compareListings(t, w, l, want, inside, win, rng)
		src, dst := uint64(1+rng.Intn(30)), uint64(1+rng.Intn(12))
		if _, ok := m[modelKey{l.Type, src, dst}]; ok != w.has(l.Type, src, dst) {
			t.Fatalf("has %d %d %d: want %v", l.Type, src, dst, ok)
		}
	}
}

func compareListings(t *testing.T, w *world, l ListKey, want, inside []edgelist.Edge, win Window, rng *rand.Rand) {
	t.Helper()
	size := 1 + rng.Intn(9)
	same := func(what string, got, want []edgelist.Edge) {
		t.Helper()
		if !sameEdges(got, want) {
			t.Fatalf("%s of %v: %v, want %v", what, l, got, want)
		}
	}
	q := ListQuery{List: l, Order: OldestFirst, PageSize: size, Window: AllTime()}
	same("oldest first", w.list(q), want)
	newest := slices.Clone(want)
	slices.Reverse(newest)
	q.Order = NewestFirst
	same("newest first", w.list(q), newest)
	skip := rng.Intn(len(want) + 2)
	q.Skip = uint64(skip)
	same("newest first with skip", w.list(q), newest[min(skip, len(newest)):])
	q = ListQuery{List: l, Order: OldestFirst, PageSize: size, Window: win}
	same("window", w.list(q), inside)
	byID := slices.Clone(want)
	slices.SortFunc(byID, func(a, b edgelist.Edge) int { return compareUint(a.Peer, b.Peer) })
	same("by id", w.list(ListQuery{List: l, Order: IDAscending, PageSize: size, Window: AllTime()}), byID)
	slices.Reverse(byID)
	same("by id, descending", w.list(ListQuery{List: l, Order: IDDescending, PageSize: size, Window: AllTime()}), byID)
}

// compareDerived recomputes likes_received of every user.
func compareDerived(t *testing.T, w *world, m model) {
	t.Helper()
	settleAll(t, w)
	user, _ := w.g.Schema().VertexType("user")
	metric, _ := w.g.Schema().Metric(user, "likes_received")
	for id := uint64(1); id <= 30; id++ {
		var want int64
		for k := range m {
			if k.t != w.edgeType("published") || k.src != id {
				continue
			}
			want += int64(len(m.list(ListKey{Vertex: Vertex{2, k.dst}, Type: w.edgeType("like"), Dir: In})))
		}
		if got := w.counter(CounterRef{Vertex: Vertex{user, id}, Metric: metric.ID}); got != want {
			t.Fatalf("likes_received of user %d: %d, want %d", id, got, want)
		}
	}
}

// settleAll waits until no outbox holds anything.
func settleAll(t *testing.T, w *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for range 2 { // deliveries give rise to others once
		for from := range w.g.cfg.Shards {
			for to := range w.g.cfg.Shards {
				must(t, w.g.settle(ctx, uint32(from), uint32(to)))
			}
		}
	}
}

func TestWindowsAtTheEdgesOfTime(t *testing.T) {
	w := newWorld(t, true, nil)
	like := w.edgeType("like")
	w.add(like, 1, 2, 5)
	l := ListKey{Vertex: Vertex{1, 1}, Type: like}
	for _, c := range []struct {
		win  Window
		want uint64
	}{
		{Window{0, 0}, 0}, {Window{5, 5}, 0}, {Window{5, 6}, 1}, {Window{0, 5}, 0},
		{Window{math.MinInt64, 6}, 1}, {Window{5, math.MaxInt64}, 1}, {AllTime(), 1},
	} {
		if got := w.count(l, c.win); got != c.want {
			t.Errorf("count in %v: %d, want %d", c.win, got, c.want)
		}
		got := w.list(ListQuery{List: l, Window: c.win})
		if uint64(len(got)) != c.want {
			t.Errorf("list in %v: %d edges, want %d", c.win, len(got), c.want)
		}
	}
}

// settle waits until everything that shard from has sent to shard to is applied.
func (g *Graph) settle(ctx context.Context, from, to uint32) error {
	if from == to {
		return nil
	}
	snd := g.sender(from, to)
	if snd == nil {
		return nil
	}
	snd.mu.Lock()
	given := snd.given
	snd.mu.Unlock()
	return snd.await(ctx, given, math.MaxUint64)
}
