package edgelist

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is an edge list that cannot be wrong: a map.
type model map[uint64]Edge

// sorted returns the edges in an order.
func (m model) sorted(o Order, desc bool) []Edge {
	edges := make([]Edge, 0, len(m))
	for _, e := range m {
		edges = append(edges, e)
	}
	slices.SortFunc(edges, func(a, b Edge) int {
		return o.compare(o.key(a.Time, a.Peer), o.key(b.Time, b.Peer))
	})
	if desc {
		slices.Reverse(edges)
	}
	return edges
}

// query answers q by looking at all edges.
func (m model) query(q Query) []Edge {
	var out []Edge
	for _, e := range m.sorted(q.Order, q.Descending) {
		if q.From != nil {
			c := q.Order.compare(q.Order.key(e.Time, e.Peer), q.Order.key(q.From.Time, q.From.ID))
			if q.Descending {
				c = -c
			}
			if c <= 0 {
				continue
			}
		}
		if q.contains(e.Time) {
			out = append(out, e)
		}
	}
	return out[min(q.Skip, uint64(len(out))):]
}

func sameEdge(a, b Edge) bool {
	return a.Peer == b.Peer && a.Time == b.Time && bytes.Equal(a.Props, b.Props)
}

// collect walks at most limit edges.
func collect(t testing.TB, l *List, q Query, limit int) []Edge {
	t.Helper()
	var out []Edge
	it := l.Iter(q)
	for len(out) < limit && it.Next() {
		out = append(out, it.Edge())
	}
	if it.Err() != nil {
		t.Fatalf("%+v: %v", q, it.Err())
	}
	return out
}

func compareEdges(t testing.TB, what string, got, want []Edge) {
	t.Helper()
	if !slices.EqualFunc(got, want, sameEdge) {
		for i := range min(len(got), len(want)) {
			if !sameEdge(got[i], want[i]) {
				t.Fatalf("%s: edge %d is %.80v, want %.80v (of %d, want %d)", what, i, got[i], want[i], len(got), len(want))
			}
		}
		t.Fatalf("%s: %d edges, want %d", what, len(got), len(want))
	}
}

// world draws random edges from a small or an extreme universe.
type world struct {
	rng   *rand.Rand
	ids   func() uint64
	times func() int64
	props func() []byte
}

func newWorld(rng *rand.Rand, size int) *world {
	w := &world{rng: rng}
	edgeIDs := []uint64{0, 1, math.MaxUint64, math.MaxUint64 - 1, 1 << 63, 1<<63 - 1}
	edgeTimes := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64, math.MaxInt64 - 1}
	scale := []uint64{1, 3, 1 << 20, math.MaxUint64 / uint64(size+1)}[rng.IntN(4)]
	w.ids = func() uint64 {
		if rng.IntN(50) == 0 {
			return edgeIDs[rng.IntN(len(edgeIDs))]
		}
		return uint64(rng.IntN(size)) * scale
	}
	span := []int64{1, 5, 1000, 1 << 50, math.MaxInt64}[rng.IntN(5)]
	w.times = func() int64 {
		if rng.IntN(50) == 0 {
			return edgeTimes[rng.IntN(len(edgeTimes))]
		}
		return rng.Int64N(span) - span/2
	}
	kind := rng.IntN(4)
	w.props = func() []byte {
		switch {
		case kind == 0 || kind == 1 && rng.IntN(20) > 0:
			return nil
		case kind == 2:
			return randBytes(rng, rng.IntN(20))
		}
		return randBytes(rng, rng.IntN(MaxProps+1))
	}
	return w
}

func randBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func (w *world) edge() Edge { return Edge{Peer: w.ids(), Time: w.times(), Props: w.props()} }

// randomOptions are small, so that trees are deep.
func randomOptions(rng *rand.Rand) Options {
	opt := Options{
		SplitEntries: []int{4, 5, 8, 16, 50, 128}[rng.IntN(6)],
		MaxPageBytes: []int{5 << 10, 16 << 10}[rng.IntN(2)],
		MaxDeltas:    []int{1, 2, 8, 128}[rng.IntN(4)],
		Branch:       []int{4, 5, 8, 64}[rng.IntN(4)],
	}
	if err := opt.Validate(); err != nil {
		panic(err)
	}
	return opt
}

// run is one random history of a list beside its model.
type run struct {
	t     testing.TB
	world *world
	model model
	store *memStore
	opt   Options
	w     *Writer
	ver   uint64
	grow  int // chance of an insert in percent
}

func newRun(t testing.TB, seed uint64) *run {
	rng := rand.New(rand.NewPCG(seed, 2))
	r := &run{
		t: t, model: model{}, opt: randomOptions(rng),
		world: newWorld(rng, []int{10, 100, 1500}[rng.IntN(3)]),
		store: newStore(seed, []int{0, 50, 100}[rng.IntN(3)]),
	}
	r.reopen()
	return r
}

func (r *run) reopen() {
	w, err := OpenWriter(r.store, &r.opt)
	if err != nil {
		r.t.Fatal(err)
	}
	r.w = w
}

func (r *run) flush() {
	if err := r.w.Flush(r.store); err != nil {
		r.t.Fatal(err)
	}
}

// step does one random change and compares its answer.
func (r *run) step() {
	e := r.world.edge()
	old, had := r.model[e.Peer]
	var got Edge
	var ok bool
	var err error
	switch n := r.world.rng.IntN(100); {
	case n < r.grow:
		ok, err = r.w.Insert(e)
		if ok == had {
			r.t.Fatalf("insert %d: %v, present %v", e.Peer, ok, had)
		}
		if !had {
			r.model[e.Peer] = e
		}
		got, ok = old, had
	case n < 85:
		got, ok, err = r.w.Delete(e.Peer)
		delete(r.model, e.Peer)
	default:
		got, ok, err = r.w.Update(e)
		if had {
			r.model[e.Peer] = e
		}
	}
	if err != nil || ok != had || had && !sameEdge(got, old) {
		r.t.Fatalf("change of %d: %.80v %v %v, want %.80v %v", e.Peer, got, ok, err, old, had)
	}
	r.ver++
	r.w.SetVersion(r.ver)
}

// reads compares random questions to the list with the model.
func (r *run) reads(l *List) {
	r.t.Helper()
	rng := r.world.rng
	if l.Count() != uint64(len(r.model)) || l.Version() != r.ver {
		r.t.Fatalf("count %d version %d, want %d %d", l.Count(), l.Version(), len(r.model), r.ver)
	}
	for range 5 {
		id := r.world.ids()
		want, had := r.model[id]
		if got, ok, err := l.Get(id); err != nil || ok != had || had && !sameEdge(got, want) {
			r.t.Fatalf("get %d: %.80v %v %v, want %.80v %v", id, got, ok, err, want, had)
		}
		since, until := r.world.times(), r.world.times()
		n := uint64(len(r.model.query(Query{Order: ByTime, Since: since, Until: until})))
		if since == 0 && until == 0 {
			n = 0
		}
		if got, err := l.CountWindow(since, until); err != nil || got != n {
			r.t.Fatalf("window [%d,%d): %d %v, want %d", since, until, got, err, n)
		}
	}
	q := Query{Order: Order(rng.IntN(2)), Descending: rng.IntN(2) == 0}
	if rng.IntN(2) == 0 {
		q.From = &Key{Time: r.world.times(), ID: r.world.ids()}
	}
	if rng.IntN(2) == 0 {
		q.Skip = uint64(rng.IntN(len(r.model) + 2))
	}
	if rng.IntN(3) == 0 {
		q.Since, q.Until = r.world.times(), r.world.times()
	}
	compareEdges(r.t, fmt.Sprintf("%+v", q), collect(r.t, l, q, math.MaxInt), r.model.query(q))
	r.finds(l)
}

// finds looks up peers with one finder: some in random order, then ascending.
func (r *run) finds(l *List) {
	r.t.Helper()
	peers := make([]uint64, 12)
	for i := range peers {
		peers[i] = r.world.ids()
	}
	f := l.Finder()
	slices.Sort(peers[4:])
	for _, peer := range peers {
		want, had := r.model[peer]
		if got, ok, err := f.Time(peer); err != nil || ok != had || had && got != want.Time {
			r.t.Fatalf("find %d: %d %v %v, want %d %v", peer, got, ok, err, want.Time, had)
		}
	}
}

func (r *run) all(l *List) {
	r.t.Helper()
	for _, o := range []Order{ByID, ByTime} {
		for _, desc := range []bool{false, true} {
			q := Query{Order: o, Descending: desc}
			compareEdges(r.t, fmt.Sprintf("%+v", q), collect(r.t, l, q, math.MaxInt), r.model.query(q))
		}
	}
}

// history runs n changes in waves of growth and shrinking.
func (r *run) history(n int) {
	rng := r.world.rng
	for i := range n {
		if i%(n/6+1) == 0 {
			r.grow = []int{80, 60, 40, 5}[rng.IntN(4)]
		}
		r.step()
		if rng.IntN(10) == 0 {
			r.reads(&r.w.List)
		}
		if rng.IntN(12) == 0 {
			r.flush()
			if rng.IntN(3) == 0 {
				r.opt.MaxDeltas = 1 + rng.IntN(20)
			}
			if rng.IntN(2) == 0 {
				r.reopen()
			}
		}
	}
	r.finish()
}

// finish flushes and proves that what is stored is the model.
func (r *run) finish() {
	r.flush()
	l, err := Open(r.store)
	if err != nil {
		r.t.Fatal(err)
	}
	r.reads(l)
	r.all(l)
	s := r.store.check(r.t)
	if s.Count != uint64(len(r.model)) {
		r.t.Fatalf("check counts %d, want %d", s.Count, len(r.model))
	}
	if s.MaxLeafEntries > r.opt.SplitEntries || s.MaxPageBytes > r.opt.MaxPageBytes || s.MaxBranchEntries > r.opt.Branch {
		r.t.Fatalf("pages over the limits %+v: %+v", r.opt, s)
	}
}

func TestRandomHistoriesAgreeWithTheModel(t *testing.T) {
	start := uint64(time.Now().UnixNano())
	for i := range uint64(20) {
		seed := start + i
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			newRun(t, seed).history(800)
		})
	}
}
