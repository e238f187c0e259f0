package graph

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"testing"
)

// change begins an operation on a vertex.
func (w *world) change(op VertexOp, v Vertex) {
	w.t.Helper()
	if _, err := w.g.VertexJob(context.Background(), op, v); err != nil {
		w.t.Fatalf("operation %d on %v: %v", op, v, err)
	}
}

// become waits until a vertex is in a state.
func (w *world) become(t *testing.T, v Vertex, want VertexState) {
	t.Helper()
	waitFor(t, fmt.Sprintf("vertex %v to be %v", v, want), func() bool {
		job, err := w.g.VertexJob(context.Background(), VertexLook, v)
		return err == nil && job.State == want
	})
}

// CASES 3: a node with 3,000 OUT and 2,000 IN edges of three types is deleted whole. No
// list mentions it, each neighbour's count fell by exactly its edges with it, and the
// change log tells each removal once.
func TestCase3_AWholeVertexIsDeleted(t *testing.T) {
	w := newWorld(t, true, nil)
	a := Vertex{1, 77}
	like, follow, published := w.edgeType("like"), w.edgeType("follow"), w.edgeType("published")
	var ms []Mutation
	for i := uint64(1); i <= 1500; i++ {
		ms = append(ms, Mutation{Op: OpAdd, Type: like, Src: a.ID, Dst: i, Time: 1}, Mutation{Op: OpAdd, Type: like, Src: 9000 + i%7, Dst: i, Time: 1})
	}
	for i := uint64(1); i <= 500; i++ {
		ms = append(ms, Mutation{Op: OpAdd, Type: published, Src: a.ID, Dst: i, Time: 1})
	}
	for i := uint64(1); i <= 1000; i++ {
		ms = append(ms, Mutation{Op: OpAdd, Type: follow, Src: a.ID, Dst: 10_000 + i, Time: 1})
	}
	for i := uint64(1); i <= 2000; i++ {
		ms = append(ms, Mutation{Op: OpAdd, Type: follow, Src: 10_000 + i, Dst: a.ID, Time: 1})
	}
	ms = append(ms, Mutation{Op: OpAdd, Type: follow, Src: a.ID, Dst: a.ID, Time: 1})
	w.mutate(ms...)
	settleAll(t, w)
	if got := w.counter(CounterRef{Vertex: a, Metric: 1}); got != 1000 {
		t.Fatalf("%d likes received", got)
	}
	w.change(VertexDelete, a)
	w.become(t, a, VertexPlain)
	settleAll(t, w)
	for _, l := range []ListKey{{a, like, Out}, {a, published, Out}, {a, follow, Out}, {a, follow, In}} {
		if n := w.count(l, AllTime()); n != 0 {
			t.Errorf("%d edges in %v", n, l)
		}
	}
	for i := uint64(1); i <= 2000; i++ {
		if i <= 1500 {
			if n := w.count(ListKey{Vertex{2, i}, like, In}, AllTime()); n != 1 {
				t.Fatalf("note %d has %d likes, want 1", i, n)
			}
		}
		for _, dir := range []Direction{In, Out} {
			if n := w.count(ListKey{Vertex{1, 10_000 + i}, follow, dir}, AllTime()); n != 0 {
				t.Fatalf("user %d: %d edges", 10_000+i, n)
			}
		}
	}
	if got := w.counter(CounterRef{Vertex: a, Metric: 1}); got != 0 {
		t.Errorf("%d likes received by nobody", got)
	}
	removed := map[modelKey]int{}
	for id := range w.g.cfg.Shards {
		_, err := w.g.ReadChanges(context.Background(), uint32(id), 0, 1<<30, func(c *Change) {
			if c.Kind == EdgeDeleted && c.List.Dir == Out {
				removed[modelKey{c.List.Type, c.List.Vertex.ID, c.Edge.Peer}]++
			}
		})
		must(t, err)
	}
	if len(removed) != 1500+500+1000+2000+1 {
		t.Errorf("%d removals are told", len(removed))
	}
	for k, n := range removed {
		if n != 1 {
			t.Errorf("the removal of %+v is told %d times", k, n)
		}
	}
	w.check()
}

// The same answers whatever the pages, shards and caches: a graph is written to while
// vertices are deleted, hidden and restored, and starts again in between.
func TestJobsRunUnderWrites(t *testing.T) {
	for name, change := range variants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobsUnderWrites(t, newWorld(t, true, change))
		})
	}
}

func jobsUnderWrites(t *testing.T, w *world) {
	all := model{}
	var ms []Mutation
	rng := rand.New(rand.NewSource(4))
	for range 3000 {
		mu := Mutation{Op: OpAdd, Type: []EdgeType{1, 3, 4}[rng.Intn(3)], Src: 1 + uint64(rng.Intn(60)), Dst: 1 + uint64(rng.Intn(60)), Time: 1 + int64(rng.Intn(9))}
		mu.Props, _ = EncodeProps(map[string]string{"k": fmt.Sprint(rng.Intn(5))})
		all.apply(mu)
		ms = append(ms, mu)
	}
	w.mutate(ms...)
	gone, away, back := Vertex{1, 3}, Vertex{2, 5}, Vertex{1, 9}
	for _, v := range []Vertex{away, back} {
		w.change(VertexHide, v)
	}
	w.change(VertexDelete, gone)
	var writers sync.WaitGroup
	var mu sync.Mutex
	for n := range 3 {
		rng := rand.New(rand.NewSource(int64(n)))
		writers.Go(func() {
			for range 60 {
				m := Mutation{Op: Op(1 + rng.Intn(2)), Type: []EdgeType{1, 3, 4}[rng.Intn(3)], Src: 20 + uint64(rng.Intn(40)), Dst: 20 + uint64(rng.Intn(40)), Time: 3}
				mu.Lock() // the model takes them in the order of the store
				w.mutate(m)
				all.apply(m)
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	w.become(t, back, VertexHidden)
	w.change(VertexRestore, back)
	w.reopen()
	w.become(t, gone, VertexPlain)
	w.become(t, away, VertexHidden)
	w.become(t, back, VertexPlain)
	settleAll(t, w)
	for k := range all {
		if k.touches(gone) || k.touches(away) {
			delete(all, k)
		}
	}
	for id := uint64(1); id <= 60; id++ {
		for _, l := range []ListKey{
			{Vertex{1, id}, 1, Out}, {Vertex{1, id}, 3, Out}, {Vertex{1, id}, 4, Out},
			{Vertex{2, id}, 1, In}, {Vertex{1, id}, 3, In}, {Vertex{2, id}, 4, In},
		} {
			got := w.list(ListQuery{List: l, Order: OldestFirst, PageSize: 100, Window: AllTime()})
			if want := all.list(l); !sameEdges(got, want) {
				t.Fatalf("list %v: %v, want %v", l, got, want)
			}
		}
	}
	for user := uint64(1); user <= 60; user++ {
		if got, want := w.counter(CounterRef{Vertex: Vertex{1, user}, Metric: 1}), all.received(user, 1); got != want {
			t.Errorf("likes_received of user %d: %d, want %d", user, got, want)
		}
	}
	w.check()
}

// An edge to a vertex in another shard that is being deleted, or is hidden, is refused
// before it is proposed; afterwards the vertex is a fresh one.
func TestEdgesOfMarkedVerticesAreRefused(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards = 2; c.JobEdges = 40 })
	r := NewRouter(RouterConfig{Local: w.g, Self: w.node.ID(), Replicas: func(uint32) []string { return []string{w.node.ID()} }})
	x, n := apart()
	note := Vertex{2, n}
	add := func(src uint64) error {
		res, _, err := r.Mutate(context.Background(), []Mutation{
			{Op: OpAdd, Type: 1, Src: src, Dst: n, Time: 1}, {Op: OpAdd, Type: 1, Src: src, Dst: n + 1000, Time: 1},
		}, WaitBoth)
		must(t, err)
		if res[1].Err != nil {
			t.Errorf("another edge of the call: %v", res[1].Err)
		}
		return res[0].Err
	}
	must(t, add(x))
	w.change(VertexHide, note)
	w.become(t, note, VertexHidden)
	if err := add(x + 1000); !errors.Is(err, ErrHidden) {
		t.Errorf("an edge to a hidden note: %v", err)
	}
	if err := add(x); err != nil && !errors.Is(err, ErrHidden) {
		t.Errorf("an edge that is hidden: %v", err)
	}
	w.change(VertexRestore, note)
	w.become(t, note, VertexPlain)
	must(t, add(x+1))
	w.change(VertexDelete, note)
	if err := add(x + 2); err != nil && !errors.Is(err, ErrDeleting) {
		t.Errorf("an edge to a note that is being deleted: %v", err)
	}
	w.become(t, note, VertexPlain)
	must(t, add(x+3))
	if n := w.count(ListKey{note, 1, In}, AllTime()); n != 1 {
		t.Errorf("%d edges, want that of the note made anew", n)
	}
	for _, bad := range []struct {
		op VertexOp
		v  Vertex
	}{{VertexDelete, Vertex{99, 1}}, {VertexHide, Vertex{1, 0}}, {9, note}} {
		var invalid *InvalidError
		if _, err := r.VertexJob(context.Background(), bad.op, bad.v); !errors.As(err, &invalid) {
			t.Errorf("operation %d on %v: %v", bad.op, bad.v, err)
		}
	}
	w.check()
}

// CASES 14: a note with very many likes from all shards is deleted while others are
// written to. Each liker's count falls by one.
func TestCase14_AFamousVertexIsDeleted(t *testing.T) {
	const likers = 20_000
	w := newWorld(t, true, func(c *Config) { c.JobEdges = 1 << 20 })
	note := Vertex{2, 5}
	for from := uint64(1); from <= likers; from += 1000 {
		var ms []Mutation
		for u := from; u < from+1000; u++ {
			ms = append(ms, Mutation{Op: OpAdd, Type: 1, Src: u, Dst: note.ID, Time: 1}, Mutation{Op: OpAdd, Type: 1, Src: u, Dst: 100 + u%10, Time: 1})
		}
		w.mutate(ms...)
	}
	w.change(VertexDelete, note)
	seen := []uint64{}
	for n := uint64(1); ; n++ {
		w.add(2, n%500+1, n, 1)
		job, err := w.g.VertexJob(context.Background(), VertexLook, note)
		must(t, err)
		if job.State == VertexPlain {
			break
		}
		if job.Total != likers {
			t.Fatalf("the job tells of %d edges", job.Total)
		}
		seen = append(seen, job.Done)
		if n == 100 {
			w.reopen()
		}
	}
	if !slices.IsSorted(seen) || len(seen) == 0 {
		t.Errorf("progress: %d", seen)
	}
	settleAll(t, w)
	if n := w.count(ListKey{note, 1, In}, AllTime()); n != 0 {
		t.Errorf("%d likes", n)
	}
	lists := make([]ListKey, likers)
	for i := range lists {
		lists[i] = ListKey{Vertex{1, uint64(i + 1)}, 1, Out}
	}
	counts := make([]uint64, likers)
	for part := range slices.Chunk(lists, 10_000) {
		_, err := w.g.CountEdges(context.Background(), ReadOptions{}, part, AllTime(), counts[:len(part)])
		must(t, err)
		for i, n := range counts[:len(part)] {
			if n != 1 {
				t.Fatalf("%v has %d edges, want 1", part[i], n)
			}
		}
	}
	w.check()
}
