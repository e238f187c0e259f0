package graph

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lianadb/liana/edgelist"
)

// stingy is a node that answers a part of what it is asked for, as one whose calls are at
// their bounds.
type stingy struct {
	Service
	mu  *sync.Mutex
	rng *rand.Rand
}

func (s stingy) ReadLists(ctx context.Context, ro ReadOptions, reads []ListRead, runs []ListRun) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 1 + s.rng.Intn(len(reads))
	token, err := s.Service.ReadLists(ctx, ro, reads[:n], runs[:n])
	if last := &runs[n-1]; len(last.Peers) > 1 {
		k := 1 + s.rng.Intn(len(last.Peers)-1)
		last.Peers, last.Times, last.More = last.Peers[:k], last.Times[:k], true
	}
	return token, err
}

// wander is a random graph over two nodes with small pages, beside its model.
type wander struct {
	*town
	model        model
	like, follow EdgeType
	rng          *rand.Rand
	ro           ReadOptions
}

func newWander(t *testing.T, edges int, seed int64) *wander {
	t.Helper()
	small := edgelist.DefaultOptions()
	small.SplitEntries, small.Branch, small.MaxDeltas = 8, 5, 4
	wd := &wander{town: newTown(t, func(_ int, c *Config) { c.Lists = small }), model: model{}, rng: rand.New(rand.NewSource(seed))}
	for i, r := range wd.routers {
		plain, mu, rng := r.cfg.Service, new(sync.Mutex), rand.New(rand.NewSource(int64(i)))
		r.cfg.Service = func(node string) (Service, error) {
			s, err := plain(node)
			return stingy{s, mu, rng}, err
		}
	}
	wd.like, wd.follow = wd.nodes[0].edgeType("like"), wd.nodes[0].edgeType("follow")
	for edges > 0 {
		ms := make([]Mutation, min(edges, 500))
		for i := range ms {
			m := randomMutation(wd.rng, []EdgeType{wd.like, wd.follow})
			m.Src, m.Dst = 1+uint64(wd.rng.Intn(40)), 1+uint64(wd.rng.Intn(60))
			if wd.rng.Intn(3) == 0 {
				m.Dst = 1 + uint64(wd.rng.Intn(3)) // some are liked by many
			}
			wd.model.apply(m)
			ms[i] = m
		}
		edges -= len(ms)
		_, token, err := wd.routers[0].Mutate(context.Background(), ms, WaitBoth)
		must(t, err)
		wd.ro = ReadOptions{Level: AtLeastAsFresh, Token: token}
	}
	wd.ro = ReadOptions{Level: Linearizable}
	return wd
}

func (wd *wander) vertex(name string, id uint64) Vertex {
	t, _ := wd.nodes[0].g.Schema().VertexType(name)
	return Vertex{t, id}
}

// list is a list of the model in an order and a window.
func (wd *wander) list(l ListKey, o Order, w Window) []edgelist.Edge {
	es := slices.DeleteFunc(wd.model.list(l), func(e edgelist.Edge) bool { return !w.has(e.Time) })
	if o >= IDAscending {
		slices.SortFunc(es, func(a, b edgelist.Edge) int { return compareUint(a.Peer, b.Peer) })
	}
	if o == NewestFirst || o == IDDescending {
		slices.Reverse(es)
	}
	return es
}

// reach is a traversal of the model: depths of what is reached, and how many lists a
// step's limit cut.
func (wd *wander) reach(q TraverseQuery) (depths map[Vertex]int, cut int) {
	s := wd.nodes[0].g.Schema()
	depths = map[Vertex]int{q.Start: 0}
	at := []Vertex{q.Start}
	for d := 1; d <= q.Depth; d++ {
		st := q.Steps[min(d, len(q.Steps))-1]
		var next []Vertex
		for _, x := range at {
			es := wd.list(ListKey{x, st.Type, st.Dir}, st.Order, st.Window)
			if len(es) > st.Limit {
				es = es[:st.Limit]
				cut++
			}
			for _, e := range es {
				y := Vertex{s.peerType(st.Type, st.Dir), e.Peer}
				if _, ok := depths[y]; !ok {
					depths[y] = d
					next = append(next, y)
				}
			}
		}
		at = next
	}
	delete(depths, q.Start)
	return depths, cut
}

func (wd *wander) randomSteps() []Step {
	steps := [][]Step{
		{{Type: wd.follow}},
		{{Type: wd.follow, Dir: In}},
		{{Type: wd.follow}, {Type: wd.follow, Dir: In}},
		{{Type: wd.like}, {Type: wd.like, Dir: In}},
		{{Type: wd.follow}, {Type: wd.like}},
	}[wd.rng.Intn(5)]
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].Order, steps[i].Window, steps[i].Limit = Order(wd.rng.Intn(4)), AllTime(), 1+wd.rng.Intn(80)
		if steps[i].Order < IDAscending && wd.rng.Intn(3) == 0 {
			steps[i].Window.Since = int64(wd.rng.Intn(2000))
		}
	}
	return steps
}

func TestTraverseReachesWhatTheModelDoes(t *testing.T) {
	wd := newWander(t, 1500, 11)
	cuts := 0
	for i := range 60 {
		q := TraverseQuery{Start: wd.vertex("user", 1+uint64(wd.rng.Intn(45))), Steps: wd.randomSteps()}
		q.Depth = len(q.Steps)
		if len(q.Steps) == 1 {
			q.Depth += wd.rng.Intn(4)
		}
		want, cut := wd.reach(q)
		got := map[Vertex]int{}
		depth := 0
		end, err := wd.routers[i%2].Traverse(context.Background(), wd.ro, q, func(rs []Reached) error {
			for _, x := range rs {
				if _, twice := got[x.Vertex]; twice || x.Depth < depth {
					t.Fatalf("%+v: %v at depth %d after %d, twice: %v", q, x.Vertex, x.Depth, depth, twice)
				}
				depth = x.Depth
				got[x.Vertex] = depth
				if before := want[x.From]; depth > 1 && before != depth-1 || depth == 1 && x.From != q.Start {
					t.Fatalf("%+v: %v at depth %d from %v", q, x.Vertex, depth, x.From)
				}
			}
			return nil
		})
		must(t, err)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%+v: reached\n%v, want\n%v", q, got, want)
		}
		told := 0
		for _, c := range end.Cuts {
			told += c.Vertices
			if c.By != CutByStep {
				t.Fatalf("%+v: cut by %d", q, c.By)
			}
		}
		if told != cut {
			t.Fatalf("%+v: %d lists cut, want %d", q, told, cut)
		}
		cuts += cut
	}
	if cuts == 0 {
		t.Fatal("nothing was ever cut")
	}
}

func TestTraverseSaysWhichLimitEndedIt(t *testing.T) {
	wd := newWander(t, 1000, 12)
	step := []Step{{Type: wd.follow, Window: AllTime()}}
	for _, c := range []struct {
		q    TraverseQuery
		by   CutBy
		most int
	}{
		{TraverseQuery{Steps: step, Depth: 4, Limit: 7}, CutByLimit, 7},
		{TraverseQuery{Steps: step, Depth: 4, MaxEdges: 9}, CutByMaxEdges, 9},
		{TraverseQuery{Steps: []Step{{Type: wd.follow, Window: AllTime(), Limit: 2}}, Depth: 1}, CutByStep, 2},
	} {
		c.q.Start = wd.vertex("user", 5)
		n := 0
		end, err := wd.routers[0].Traverse(context.Background(), wd.ro, c.q, func(rs []Reached) error { n += len(rs); return nil })
		must(t, err)
		if n > c.most || n == 0 || len(end.Cuts) == 0 || end.Cuts[len(end.Cuts)-1].By != c.by {
			t.Errorf("%+v: %d vertices, %+v", c.q, n, end.Cuts)
		}
		if end.Query.Limit == 0 || end.Query.MaxEdges == 0 || end.Query.Steps[0].Limit == 0 {
			t.Errorf("the limits in force are not told: %+v", end.Query)
		}
	}
}

func TestBadTraversalsAreRefused(t *testing.T) {
	wd := newWander(t, 10, 13)
	follow, like := Step{Type: wd.follow, Window: AllTime()}, Step{Type: wd.like, Window: AllTime()}
	user := wd.vertex("user", 1)
	for field, q := range map[string]TraverseQuery{
		"steps":          {Start: user},
		"start.id":       {Start: Vertex{Type: user.Type}, Steps: []Step{follow}},
		"start.type":     {Start: wd.vertex("note", 1), Steps: []Step{follow}},
		"steps[1].type":  {Start: user, Steps: []Step{like, follow}},
		"steps[0].type":  {Start: user, Steps: []Step{like}, Depth: 2},
		"depth":          {Start: user, Steps: []Step{follow}, Depth: MaxDepth + 1},
		"limit":          {Start: user, Steps: []Step{follow}, Limit: -1},
		"max_edges":      {Start: user, Steps: []Step{follow}, MaxEdges: MaxTraverseEdges + 1},
		"steps[0].limit": {Start: user, Steps: []Step{{Type: wd.follow, Window: AllTime(), Limit: -1}}},
		"steps[0].order": {Start: user, Steps: []Step{{Type: wd.follow, Window: AllTime(), Order: 9}}},
	} {
		_, err := wd.routers[0].Traverse(context.Background(), wd.ro, q, nil)
		var bad *InvalidError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func (w *world) addAll(ms []Mutation) {
	w.t.Helper()
	for len(ms) > 0 {
		n := min(len(ms), MaxBatch)
		w.mutate(ms[:n]...)
		ms = ms[n:]
	}
}

func TestCase15TraverseThroughABigVertexSaysWhenItCut(t *testing.T) {
	w := newWorld(t, true, nil)
	follow := w.edgeType("follow")
	user, _ := w.g.Schema().VertexType("user")
	for i, n := range []int{1001, 5000} {
		hub := uint64(100_000 * (i + 1))
		var ms []Mutation
		ms = append(ms, Mutation{Op: OpAdd, Type: follow, Src: 1, Dst: hub, Time: 1})
		for k := range n {
			ms = append(ms, Mutation{Op: OpAdd, Type: follow, Src: hub, Dst: hub + 1 + uint64(k), Time: int64(2 + k)})
		}
		w.addAll(ms)
		l := ListKey{Vertex{user, hub}, follow, Out}
		for _, limit := range []int{10, 1000, 0, MaxStepLimit} {
			q := TraverseQuery{Start: Vertex{user, hub}, Steps: []Step{{Type: follow, Window: AllTime(), Limit: limit}}}
			reached := 0
			end, err := w.router().Traverse(context.Background(), ReadOptions{}, q, func(rs []Reached) error { reached += len(rs); return nil })
			must(t, err)
			most := end.Query.Steps[0].Limit
			if reached != min(most, n) || (len(end.Cuts) > 0) != (n > most) {
				t.Errorf("limit %d of %d: %d reached, cuts %+v", limit, n, reached, end.Cuts)
			}
			if c := w.count(l, AllTime()); c != uint64(n) || !w.has(follow, hub, hub+1) {
				t.Errorf("limit %d: count %d of %d", limit, c, n)
			}
		}
		if got := w.list(ListQuery{List: l, PageSize: 7, Window: AllTime()}); len(got) != n {
			t.Errorf("paging reached %d of %d", len(got), n)
		}
	}
}

func TestCase16TraversalIsBounded(t *testing.T) {
	w := newWorld(t, true, nil)
	follow := w.edgeType("follow")
	user, _ := w.g.Schema().VertexType("user")
	var ms []Mutation
	edge := func(a, b uint64) {
		ms = append(ms, Mutation{Op: OpAdd, Type: follow, Src: a, Dst: b, Time: int64(len(ms) + 1)})
	}
	for a := range uint64(200) {
		for b := range uint64(200) {
			edge(1+a, 1+b)
		}
	}
	edge(1001, 1002)
	edge(1002, 1001)
	edge(1003, 1003)
	many := 50_000
	if long() {
		many = 1_000_000
	}
	for k := range many {
		edge(2000, 10_000+uint64(k))
	}
	w.addAll(ms)
	steps := []Step{{Type: follow, Window: AllTime()}}
	for _, c := range []struct {
		name         string
		start        uint64
		depth, limit int
		reached      int
		most         int // edges read
		deepest      int
	}{
		{"complete graph", 1, 6, 0, 199, 200 * 200, 1},
		{"ring", 1001, 6, 0, 1, 2, 1},
		{"self-loop", 1003, 6, 0, 0, 1, 0},
		{"one of a million", 2000, 10, 1, 1, firstRun, 1},
	} {
		seen := map[uint64]bool{}
		begun := time.Now()
		q := TraverseQuery{Start: Vertex{user, c.start}, Steps: steps, Depth: c.depth, Limit: c.limit}
		end, err := w.router().Traverse(context.Background(), ReadOptions{}, q, func(rs []Reached) error {
			for _, x := range rs {
				if seen[x.Vertex.ID] || x.Depth > c.deepest {
					t.Errorf("%s: %v", c.name, x)
				}
				seen[x.Vertex.ID] = true
			}
			return nil
		})
		must(t, err)
		if len(seen) != c.reached || end.Edges > c.most {
			t.Errorf("%s: %d reached by %d edges", c.name, len(seen), end.Edges)
		}
		if took := time.Since(begun); took > time.Second && !raceEnabled {
			t.Errorf("%s took %v", c.name, took)
		}
	}
	// Cancelled after the first vertices, it ends.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	q := TraverseQuery{Start: Vertex{user, 2000}, Steps: []Step{{Type: follow, Window: AllTime(), Limit: MaxStepLimit}}, Limit: MaxReached}
	rounds := 0
	var at time.Time
	_, err := w.router().Traverse(ctx, ReadOptions{}, q, func([]Reached) error {
		if rounds++; rounds == 1 {
			cancel()
			at = time.Now()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || rounds != 1 || time.Since(at) > 100*time.Millisecond {
		t.Errorf("cancelled: %v after %d rounds, %v", err, rounds, time.Since(at))
	}
}

// A node that is asked for much stops soon after nobody waits for the answer.
func TestReadsOfManyListsStopWithTheirContext(t *testing.T) {
	w := newWorld(t, true, nil)
	follow := w.edgeType("follow")
	user, _ := w.g.Schema().VertexType("user")
	var ms []Mutation
	for k := range uint64(3000) {
		ms = append(ms, Mutation{Op: OpAdd, Type: follow, Src: 1, Dst: 2 + k, Time: int64(k + 1)})
	}
	w.addAll(ms)
	ended := &endsAfter{Context: context.Background(), left: 3}
	reads := []ListRead{{List: ListKey{Vertex{user, 1}, follow, Out}, Window: AllTime(), Limit: 3000}}
	runs := make([]ListRun, 1)
	if _, err := w.g.ReadLists(ended, ReadOptions{}, reads, runs); !errors.Is(err, context.Canceled) || len(runs[0].Peers) > 3*looks {
		t.Errorf("read: %v after %d edges", err, len(runs[0].Peers))
	}
	peers := make([]uint64, 3000)
	for i := range peers {
		peers[i] = uint64(i + 1)
	}
	ended.left = 2
	found := make([]FoundPeers, 1)
	if _, err := w.g.FindPeers(ended, ReadOptions{}, []ListKey{reads[0].List}, peers, found); !errors.Is(err, context.Canceled) || len(found[0].At) > 2*looks {
		t.Errorf("find: %v after %d peers", err, len(found[0].At))
	}
}

// endsAfter is a context that has ended when it was looked at a number of times.
type endsAfter struct {
	context.Context
	left int
}

func (c *endsAfter) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}
