package cachetest

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lianadb/liana/cache"
)

// Stack is a stack of tiers under test over a model.
type Stack struct {
	Source cache.Source
	// Feed brings to the tiers all that has changed. Nil: there is no feeder.
	Feed func(t *testing.T)
	// Dense: ids are dense, so that chunks are asked for.
	Dense bool
}

// bound of staleness in the suite. Only the polls that the suite makes count.
const bound = time.Hour

// Run runs the suite: the same questions to a stack of tiers and to the model must
// be answered alike.
func Run(t *testing.T, build func(t *testing.T, m *Model) Stack) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"Empty", testEmpty},
		{"OwnWrites", testOwnWrites},
		{"WindowEdge", testWindowEdge},
		{"NewestRemoved", testNewestRemoved},
		{"BackDated", testBackDated},
		{"LargeNumbers", testLargeNumbers},
		{"Metrics", testMetrics},
		{"Properties", testProperties},
		{"Pages", testPages},
		{"BigBatch", testBigBatch},
		{"Random", testRandom},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := NewModel(8)
			w := &world{t: t, m: m, s: build(t, m), polls: cache.NewPolls(bound)}
			w.reader = cache.NewReader(m, w.s.Source, w.polls)
			for s := range m.Slots { // so that each slot is polled from the first on
				w.read(has(Like(uint64(s)), 1))
			}
			c.run(t, w)
		})
	}
}

// world is one storage with one reader.
type world struct {
	t      *testing.T
	m      *Model
	s      Stack
	polls  *cache.Polls
	reader *cache.Reader
	token  cache.Token
}

// write applies changes, one entry each, and has the token know of them.
func (w *world) write(cs ...cache.Change) {
	for _, c := range cs {
		w.m.Apply(c)
	}
	w.seeAll(cs)
}

func (w *world) seeAll(cs []cache.Change) {
	for _, c := range cs {
		s := w.m.SlotOf(c.List.Vertex)
		w.token.See(s, w.m.Last(s))
	}
}

// settle feeds the tiers and polls.
func (w *world) settle() {
	if w.s.Feed != nil {
		w.s.Feed(w.t)
	}
	if err := w.polls.Round(context.Background(), w.m); err != nil {
		w.t.Fatal(err)
	}
}

// read asks under the token and compares with the model as it is now: the token
// knows of all writes. Each query is asked three times, so that it is answered from
// entries that are missing, new and there already.
func (w *world) read(qs ...cache.Query) {
	w.t.Helper()
	for i := range qs {
		qs[i].Slot = w.m.SlotOf(qs[i].List.Vertex)
		qs[i].Dense = w.s.Dense
	}
	expect := make([]cache.Answer, len(qs))
	for i := range qs {
		expect[i] = answer(&qs[i], w.m.edgesOf(qs[i].List), w.m.valueOf(&qs[i]))
	}
	for round := range 3 {
		as := make([]cache.Answer, len(qs))
		if _, err := w.reader.Read(context.Background(), cache.Options{Token: w.token}, qs, as); err != nil {
			w.t.Fatal(err)
		}
		for i := range qs {
			if !same(&as[i], &expect[i]) {
				w.t.Fatalf("%s, round %d: got %+v, want %+v", describe(&qs[i]), round, as[i], expect[i])
			}
		}
	}
}

func (m *Model) edgesOf(l cache.List) []cache.Edge {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.edges(l)
}

func (m *Model) valueOf(q *cache.Query) cache.Field {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value(q)
}

// Like is the list that the suite writes to most: what user id likes.
func Like(id uint64) cache.List {
	return cache.List{Vertex: cache.Vertex{Type: 1, ID: id}, Edge: 1}
}

// Add is a change that adds an edge.
func Add(l cache.List, peer uint64, time int64) cache.Change {
	return cache.Change{Kind: cache.EdgeAdded, List: l, Edge: cache.Edge{Peer: peer, Time: time}}
}

// Remove is a change that removes an edge.
func Remove(l cache.List, peer uint64) cache.Change {
	return cache.Change{Kind: cache.EdgeRemoved, List: l, Edge: cache.Edge{Peer: peer}}
}

func has(l cache.List, peer uint64) cache.Query {
	return cache.Query{Kind: cache.HasEdge, List: l, Peer: peer}
}

func count(l cache.List) cache.Query {
	return cache.Query{Kind: cache.CountEdges, List: l, Page: cache.PageQuery{}.AllTime()}
}

func page(l cache.List, limit int) cache.Query {
	return cache.Query{Kind: cache.ListPage, List: l, Page: cache.PageQuery{Limit: limit}.AllTime()}
}

func value(v cache.Vertex, metric uint16) cache.Query {
	return cache.Query{Kind: cache.ReadMetric, List: cache.List{Vertex: v}, Metric: metric}
}

func testEmpty(t *testing.T, w *world) {
	for range 2 {
		w.read(has(Like(1), 7), count(Like(1)), page(Like(1), 10), value(cache.Vertex{Type: 1, ID: 1}, 2))
		w.settle()
	}
}

func testOwnWrites(t *testing.T, w *world) {
	l := Like(3)
	for i := range uint64(40) {
		w.write(Add(l, i+1, int64(i)))
		if i%3 == 0 {
			w.settle()
		}
		w.read(has(l, i+1), has(l, i+2), count(l), page(l, 5))
		if i%5 == 4 {
			w.write(Remove(l, i-1), cache.Change{Kind: cache.EdgeMoved, List: l, Edge: cache.Edge{Peer: i, Time: 1000}})
			w.read(has(l, i-1), has(l, i), count(l), page(l, 50))
		}
	}
}

func testWindowEdge(t *testing.T, w *world) {
	l := Like(2)
	var cs []cache.Change
	for i := range int64(998) {
		cs = append(cs, Add(l, uint64(i+1), 10*i))
	}
	w.m.Apply(cs...)
	w.seeAll(cs)
	w.read(count(l))
	for i := int64(999); i <= 1503; i++ {
		w.write(Add(l, uint64(i), 10*i))
		if i > 1003 && i%97 != 0 {
			continue
		}
		for range 2 {
			w.read(has(l, 1), has(l, 2), has(l, uint64(i)), has(l, uint64(i)+1), count(l), page(l, 20), page(l, 998), page(l, 999), page(l, 1000), page(l, 1001))
			w.settle()
		}
	}
}

func testNewestRemoved(t *testing.T, w *world) {
	l := Like(5)
	var cs []cache.Change
	for i := range int64(1300) {
		cs = append(cs, Add(l, uint64(i+1), i))
	}
	w.m.Apply(cs...)
	w.seeAll(cs)
	w.read(page(l, 10), count(l))
	w.settle()
	for i := 1300; i > 0; i-- {
		w.write(Remove(l, uint64(i)))
		if i%50 > 2 && i > 5 {
			continue
		}
		w.settle()
		w.read(page(l, 10), count(l), has(l, uint64(i)), has(l, uint64(max(1, i-1))), has(l, 1), page(l, 500))
	}
}

func testBackDated(t *testing.T, w *world) {
	l := Like(6)
	for i := range int64(1100) {
		w.write(Add(l, uint64(i+1), 1000+i%7)) // most share a time
	}
	w.read(page(l, 30), count(l))
	w.settle()
	for i, c := range []cache.Change{
		Add(l, 5000, 0), Add(l, 5001, 1003), Add(l, 1<<63, 1003), Add(l, 5002, -5), Add(l, 5003, 1000), Remove(l, 5000),
		{Kind: cache.EdgeMoved, List: l, Edge: cache.Edge{Peer: 5002, Time: 1004}},
		{Kind: cache.EdgeMoved, List: l, Edge: cache.Edge{Peer: 5001, Time: -9}},
		Remove(l, 5001), Remove(l, 3), Add(l, 3, 1003),
	} {
		w.write(c)
		if i%2 == 0 {
			w.settle()
		}
		w.read(page(l, 30), page(l, 700), page(l, 1000), count(l), has(l, c.Edge.Peer), has(l, 3), has(l, 5001))
	}
}

func testLargeNumbers(t *testing.T, w *world) {
	l := Like(4)
	for i := range uint64(30) {
		w.write(Add(l, math.MaxUint64-1-i, 1_700_000_000_000_000+int64(i/3)), Add(l, 1<<63+i, math.MaxInt64-int64(i)), Add(l, 1<<53+i, math.MinInt64+int64(i)))
		if i%4 == 0 {
			w.settle()
		}
		w.read(page(l, 100), count(l), has(l, math.MaxUint64-1-i), has(l, 1<<63+i), has(l, 1<<53+i), has(l, 1<<53+i+1))
	}
	w.write(Remove(l, 1<<63), Remove(l, 1<<53+1))
	w.settle()
	w.read(page(l, 100), count(l), has(l, 1<<63), has(l, 1<<53), has(l, 1<<53+1))
}

func testMetrics(t *testing.T, w *world) {
	v := cache.Vertex{Type: 2, ID: 9}
	set := func(metric uint16, f cache.Field) cache.Change {
		return cache.Change{Kind: cache.MetricSet, List: cache.List{Vertex: v}, Metric: metric, Value: f}
	}
	all := []cache.Query{value(v, 0), value(v, 1), value(v, 2), value(v, 3), count(cache.List{Vertex: v, Edge: 2, In: true})}
	w.read(all...)
	for i, c := range []cache.Change{
		set(1, 5), set(2, -7), set(1, 6), set(0, 1<<62), set(3, cache.FieldOf(math.MaxInt64)), set(2, cache.FieldOf(math.MinInt64+2)),
		{Kind: cache.MetricGone, List: cache.List{Vertex: v}, Metric: 1}, set(2, -1), set(1, 0),
		Add(cache.List{Vertex: v, Edge: 2, In: true}, 4, 4), set(1, -1<<53-1),
	} {
		w.write(c)
		if i%2 == 0 {
			w.settle()
		}
		w.read(all...)
	}
}

func testProperties(t *testing.T, w *world) {
	l := Like(7)
	w.write(Add(l, 1, 1), Add(l, 2, 2))
	w.read(page(l, 5), has(l, 1))
	c := Add(l, 3, 3)
	c.Props = true
	w.write(c)
	w.settle()
	before, _ := w.m.Calls()
	_, asked := w.m.Calls()
	w.read(page(l, 5))
	if _, now := w.m.Calls(); now < asked+3 {
		t.Errorf("pages with properties were answered %d times by storage, %d entries were loaded, want 3 answers", now-asked, before)
	}
	w.read(has(l, 3), count(l))
}

func testPages(t *testing.T, w *world) {
	l := Like(1)
	for i := range int64(60) {
		w.write(Add(l, uint64(i*7919%61)+1, i/4))
	}
	w.settle()
	for _, limit := range []int{1, 7, 60, 100} {
		q := page(l, limit)
		for {
			as := make([]cache.Answer, 1)
			w.read(q)
			if _, err := w.reader.Read(context.Background(), cache.Options{Token: w.token}, []cache.Query{q}, as); err != nil {
				t.Fatal(err)
			}
			if !as[0].More {
				break
			}
			last := as[0].Edges[len(as[0].Edges)-1]
			q.Page.From = &last
		}
	}
	for _, since := range []int64{math.MinInt64, 0, 3, 14, 15} {
		for _, until := range []int64{0, 4, 14, math.MaxInt64} {
			for _, skip := range []uint64{0, 1, 13, 70} {
				q := page(l, 9)
				q.Page.Since, q.Page.Until, q.Page.Skip = since, until, skip
				c := q
				c.Kind = cache.CountEdges
				w.read(q, c)
			}
		}
	}
}

func testBigBatch(t *testing.T, w *world) {
	var qs []cache.Query
	for i := range uint64(300) {
		w.m.Apply(Add(Like(i), i+1, int64(i)), cache.Change{Kind: cache.MetricSet, List: cache.List{Vertex: Like(i).Vertex}, Metric: 1, Value: cache.Field(i)})
		qs = append(qs, has(Like(i), i+1), count(Like(i)), value(Like(i).Vertex, 1), has(Like(i), 7))
		w.token.See(w.m.SlotOf(Like(i).Vertex), w.m.Last(w.m.SlotOf(Like(i).Vertex)))
	}
	w.read(qs...)
	w.settle()
	w.read(qs...)
}

func testRandom(t *testing.T, w *world) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 4))
		w.t.Logf("seed %d", seed)
		for range 300 {
			l := cache.List{Vertex: cache.Vertex{Type: 1, ID: 10*seed + r.Uint64N(4)}, Edge: uint16(r.IntN(2)), In: r.IntN(4) == 0}
			peer := r.Uint64N(12) + 1
			switch r.IntN(8) {
			case 0, 1, 2:
				w.write(Add(l, peer, r.Int64N(9)))
			case 3:
				w.write(Remove(l, peer))
			case 4:
				w.write(cache.Change{Kind: cache.EdgeMoved, List: l, Edge: cache.Edge{Peer: peer, Time: r.Int64N(9)}})
			case 5:
				w.write(cache.Change{Kind: cache.MetricSet, List: cache.List{Vertex: l.Vertex}, Metric: uint16(r.IntN(3)), Value: cache.Field(r.IntN(100))})
			case 6:
				w.settle()
			}
			q := page(l, r.IntN(14)+1)
			q.Page.Skip = r.Uint64N(3)
			old := count(l)
			old.Page.Since, old.Page.Until = r.Int64N(9), r.Int64N(9)
			w.read(has(l, peer), has(l, r.Uint64N(12)+1), count(l), q, old, value(l.Vertex, 1))
		}
	}
}
