package graph

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv/shard"
)

// long makes a test as large as the case was in the field.
func long() bool { return os.Getenv("LIANA_LONG") != "" }

// Case 1: many clients insert the same set at once, each in another order.
func TestCase1SameEdgesFromManyClients(t *testing.T) {
	clients, pairs := 16, 1024
	if long() {
		clients, pairs = 64, 16384
	}
	w := newWorld(t, false, nil)
	like := w.edgeType("like")
	var created, there atomic.Int64
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			order := rand.New(rand.NewSource(int64(c))).Perm(pairs)
			for len(order) > 0 {
				n := min(len(order), 64)
				ms := make([]Mutation, n)
				for i, p := range order[:n] {
					ms[i] = Mutation{Op: OpAdd, Type: like, Src: uint64(1 + p%128), Dst: uint64(1 + p/128)}
				}
				order = order[n:]
				res, _, err := w.g.Mutate(context.Background(), ms, WaitBoth)
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range res {
					switch r.Outcome {
					case Changed:
						created.Add(1)
					case Unchanged:
						there.Add(1)
					default:
						t.Error(r.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	if created.Load() != int64(pairs) || there.Load() != int64(pairs*(clients-1)) {
		t.Errorf("%d created, %d already there; want %d and %d", created.Load(), there.Load(), pairs, pairs*(clients-1))
	}
	if r := w.check(); r.Edges != uint64(2*pairs) {
		t.Errorf("%d edges in all lists, want %d", r.Edges, 2*pairs)
	}
}

// Case 2: the same edge several times in one batch.
func TestCase2OneBatchActsInOrder(t *testing.T) {
	w := newWorld(t, true, nil)
	like := w.edgeType("like")
	ops := map[string][]Op{
		"add, delete, add":    {OpAdd, OpDelete, OpAdd},
		"delete, add, delete": {OpDelete, OpAdd, OpDelete},
		"twice":               {OpAdd, OpAdd},
	}
	dst := uint64(0)
	for name, seq := range ops {
		for src := uint64(1); src <= 8; src++ { // pairs in one shard and across
			dst++
			var ms []Mutation
			want := false
			for _, op := range seq {
				ms = append(ms, Mutation{Op: op, Type: like, Src: src, Dst: dst})
				want = op == OpAdd
			}
			w.mutate(ms...)
			n := uint64(0)
			if want {
				n = 1
			}
			in := ListKey{Vertex: Vertex{2, dst}, Type: like, Dir: In}
			if w.has(like, src, dst) != want || w.count(in, AllTime()) != n || uint64(len(w.list(ListQuery{List: in, Window: AllTime()}))) != n {
				t.Errorf("%s: the two sides do not agree on %v", name, want)
			}
		}
	}
	w.check()
}

// Cases 4 and 6: double clicks, alternation, self-likes, deletes that come twice.
func TestCase4And6DoubleClicks(t *testing.T) {
	w := newWorld(t, true, nil)
	like, follow := w.edgeType("like"), w.edgeType("follow")
	parallel := func(n int, m func(i int) Mutation) (changed int64) {
		var c atomic.Int64
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				res, _, err := w.g.Mutate(context.Background(), []Mutation{m(i)}, WaitBoth)
				if err != nil || res[0].Err != nil {
					t.Error(err, res)
				} else if res[0].Changed {
					c.Add(1)
				}
			})
		}
		wg.Wait()
		return c.Load()
	}
	in := ListKey{Vertex: Vertex{2, 9}, Type: like, Dir: In}
	add := func(int) Mutation { return Mutation{Op: OpAdd, Type: like, Src: 5, Dst: 9} }
	del := func(int) Mutation { return Mutation{Op: OpDelete, Type: like, Src: 5, Dst: 9} }
	if n := parallel(50, add); n != 1 || w.count(in, AllTime()) != 1 {
		t.Errorf("50 adds at once: %d changed, count %d", n, w.count(in, AllTime()))
	}
	if n := parallel(100, del); n != 1 || w.count(in, AllTime()) != 0 {
		t.Errorf("100 deletes at once: %d changed, count %d", n, w.count(in, AllTime()))
	}
	parallel(200, func(i int) Mutation {
		if i%2 == 0 {
			return add(i)
		}
		return del(i)
	})
	n := w.count(in, AllTime())
	if n > 1 || w.has(like, 5, 9) != (n == 1) {
		t.Errorf("after alternation: count %d, has %v", n, w.has(like, 5, 9))
	}
	w.add(follow, 7, 7, 1)
	out := ListKey{Vertex: Vertex{1, 7}, Type: follow}
	back := ListKey{Vertex: Vertex{1, 7}, Type: follow, Dir: In}
	if w.count(out, AllTime()) != 1 || w.count(back, AllTime()) != 1 {
		t.Error("a self-edge counts once in each direction")
	}
	w.delete(follow, 7, 7)
	if w.count(out, AllTime()) != 0 || w.count(back, AllTime()) != 0 {
		t.Error("a self-edge is gone from both directions")
	}
	w.check()
}

// Cases 10 and 12: pages through ties, at page borders, and times a microsecond apart.
func TestCase10And12PagesThroughTies(t *testing.T) {
	n := 1000
	if long() {
		n = 10_000
	}
	w := newWorld(t, true, nil)
	like := w.edgeType("like")
	load := func(src uint64, n int, time func(i int) int64) {
		for from := 0; from < n; from += 500 {
			var ms []Mutation
			for i := from; i < min(n, from+500); i++ {
				ms = append(ms, Mutation{Op: OpAdd, Type: like, Src: src, Dst: uint64(n - i), Time: time(i)})
			}
			w.mutate(ms...)
		}
	}
	load(1, n, func(int) int64 { return 1000 })
	load(2, n, func(i int) int64 { return 1_700_000_000_000_000 + int64(i) })
	for src := uint64(1); src <= 2; src++ {
		q := ListQuery{List: ListKey{Vertex: Vertex{1, src}, Type: like}, PageSize: 7, Window: AllTime()}
		newest := w.list(q)
		q.Order = OldestFirst
		oldest := w.list(q)
		if len(newest) != n || len(oldest) != n {
			t.Fatalf("%d and %d edges, want %d", len(newest), len(oldest), n)
		}
		for i := range oldest {
			if oldest[i].Peer != newest[n-1-i].Peer {
				t.Fatal("the two directions are not mirrors of each other")
			}
			if src == 2 && oldest[i].Peer != uint64(n-i) {
				t.Fatal("order is that of the likes' times, not of the ids")
			}
		}
	}
	for i, size := range []int{0, 1, 7, 14} {
		src := uint64(10 + i)
		if size > 0 {
			load(src, size, func(int) int64 { return 5 })
		}
		calls, q := 0, ListQuery{List: ListKey{Vertex: Vertex{1, src}, Type: like}, PageSize: 7, Window: AllTime()}
		for got := 0; ; calls++ {
			p, err := w.g.ListEdges(context.Background(), ReadOptions{}, q)
			must(t, err)
			got += len(p.Edges)
			if q.PageToken = p.Next; p.Next == "" {
				if got != size {
					t.Errorf("%d edges, want %d", got, size)
				}
				break
			}
		}
		if calls > (size+6)/7 {
			t.Errorf("a list of %d takes %d calls", size, calls+1)
		}
	}
}

// Case 11: page sizes and page tokens that were never given out.
func TestCase11BadPagesAreRefused(t *testing.T) {
	w := newWorld(t, true, nil)
	like := w.edgeType("like")
	for i := range 20 {
		w.add(like, 1, uint64(i+1), int64(i+1))
		w.add(like, 2, uint64(i+1), int64(i+1))
	}
	q := ListQuery{List: ListKey{Vertex: Vertex{1, 1}, Type: like}, PageSize: 3, Window: AllTime()}
	page, err := w.g.ListEdges(context.Background(), ReadOptions{}, q)
	must(t, err)
	flipped := []byte(page.Next)
	flipped[len(flipped)/2] ^= 1
	other := q
	other.List.Vertex.ID = 2
	foreign, err := parseCursor(testKey, &ListQuery{List: q.List, Window: AllTime(), PageToken: page.Next})
	must(t, err)
	bad := map[string]func(*ListQuery){
		"page_size -1":        func(q *ListQuery) { q.PageSize = -1 },
		"page_size 2^31-1":    func(q *ListQuery) { q.PageSize = math.MaxInt32 },
		"random bytes":        func(q *ListQuery) { q.PageToken = "AAAA" },
		"not base64":          func(q *ListQuery) { q.PageToken = "\x00\xff" },
		"cut":                 func(q *ListQuery) { q.PageToken = page.Next[:len(page.Next)-1] },
		"altered":             func(q *ListQuery) { q.PageToken = string(flipped) },
		"other vertex":        func(q *ListQuery) { q.List.Vertex.ID = 2; q.PageToken = page.Next },
		"other order":         func(q *ListQuery) { q.Order = OldestFirst; q.PageToken = page.Next },
		"other window":        func(q *ListQuery) { q.Window.Since = 1; q.PageToken = page.Next },
		"other cluster":       func(q *ListQuery) { q.PageToken = foreign.encode([]byte("another key of sufficient length"), q) },
		"very long":           func(q *ListQuery) { q.PageToken = string(make([]byte, 1<<20)) },
		"skip with token":     func(q *ListQuery) { q.PageToken, q.Skip = page.Next, 1 },
		"window with by id":   func(q *ListQuery) { q.Order = IDAscending; q.Window.Since = 1 },
		"window turned round": func(q *ListQuery) { q.Window = Window{5, 4} },
		"unknown order":       func(q *ListQuery) { q.Order = 9 },
		"unknown type":        func(q *ListQuery) { q.List.Type = 99 },
		"wrong vertex type":   func(q *ListQuery) { q.List.Vertex.Type = 2 },
		"id 0":                func(q *ListQuery) { q.List.Vertex.ID = 0 },
		"id 2^64-1":           func(q *ListQuery) { q.List.Vertex.ID = math.MaxUint64 },
	}
	for name, change := range bad {
		query := q
		change(&query)
		_, err := w.g.ListEdges(context.Background(), ReadOptions{}, query)
		var inv *InvalidError
		if !errors.As(err, &inv) || inv.Field == "" {
			t.Errorf("%s: %v, want an InvalidError", name, err)
		}
	}
	// A valid token after the list has shrunk to nothing is an empty last page.
	for i := range 20 {
		w.delete(like, 1, uint64(i+1))
	}
	q.PageToken = page.Next
	page, err = w.g.ListEdges(context.Background(), ReadOptions{}, q)
	if err != nil || len(page.Edges) != 0 || page.Next != "" {
		t.Errorf("after the list has shrunk: %+v, %v", page, err)
	}
}

// P7: an edge that is there during the whole listing appears exactly once.
func TestListingIsStableWhileTheListChanges(t *testing.T) {
	opt := edgelist.DefaultOptions()
	opt.SplitEntries, opt.Branch = 8, 5
	w := newWorld(t, true, func(c *Config) { c.Lists = opt })
	like := w.edgeType("like")
	rng := rand.New(rand.NewSource(1))
	for i := uint64(1); i <= 200; i++ {
		w.add(like, 1, i*2, int64(rng.Intn(20)+1))
	}
	for _, order := range []Order{NewestFirst, OldestFirst, IDAscending, IDDescending} {
		seen := map[uint64]int{}
		q := ListQuery{List: ListKey{Vertex: Vertex{1, 1}, Type: like}, Order: order, PageSize: 7, Window: AllTime()}
		for {
			p, err := w.g.ListEdges(context.Background(), ReadOptions{}, q)
			must(t, err)
			for _, e := range p.Edges {
				seen[e.Peer]++
			}
			if q.PageToken = p.Next; p.Next == "" {
				break
			}
			var ms []Mutation
			for range 10 { // odd ids come and go
				id := uint64(rng.Intn(200))*2 + 1
				ms = append(ms, Mutation{Op: Op(1 + rng.Intn(2)), Type: like, Src: 1, Dst: id, Time: int64(rng.Intn(20) + 1)})
			}
			w.mutate(ms...)
		}
		for i := uint64(1); i <= 200; i++ {
			if seen[i*2] != 1 {
				t.Errorf("order %d: edge %d appeared %d times", order, i*2, seen[i*2])
			}
		}
	}
}

// Case 40, and the bad input of writes: refused with field and limit, nothing changed.
func TestCase40BadMutationsAreRefused(t *testing.T) {
	now := time.UnixMicro(1_800_000_000_000_000)
	w := newWorld(t, true, func(c *Config) { c.Now = func() time.Time { return now } })
	like := w.edgeType("like")
	good := Mutation{Op: OpAdd, Type: like, Src: 1, Dst: 2}
	bad := map[string]struct {
		field  string
		change func(*Mutation)
	}{
		"time in ten years":        {"time", func(m *Mutation) { m.Time = now.AddDate(10, 0, 0).UnixMicro() }},
		"time six minutes ahead":   {"time", func(m *Mutation) { m.Time = now.Add(6 * time.Minute).UnixMicro() }},
		"time -1":                  {"time", func(m *Mutation) { m.Time = -1 }},
		"time at the end of int64": {"time", func(m *Mutation) { m.Time = math.MaxInt64 }},
		"source 0":                 {"src_id", func(m *Mutation) { m.Src = 0 }},
		"source 2^64-1":            {"src_id", func(m *Mutation) { m.Src = math.MaxUint64 }},
		"destination 0":            {"dst_id", func(m *Mutation) { m.Dst = 0 }},
		"destination 2^64-1":       {"dst_id", func(m *Mutation) { m.Dst = math.MaxUint64 }},
		"unknown type":             {"type", func(m *Mutation) { m.Type = 99 }},
		"unknown op":               {"op", func(m *Mutation) { m.Op = 9 }},
		"properties":               {"properties", func(m *Mutation) { m.Props = make([]byte, MaxProps+1) }},
	}
	for name, c := range bad {
		m := good
		c.change(&m)
		_, _, err := w.g.Mutate(context.Background(), []Mutation{good, m}, WaitBoth)
		var inv *InvalidError
		if !errors.As(err, &inv) || inv.Field != "mutations[1]."+c.field || inv.Limit == "" {
			t.Errorf("%s: %v, want an InvalidError of mutations[1].%s", name, err, c.field)
		}
	}
	for _, n := range []int{0, MaxBatch + 1} {
		if _, _, err := w.g.Mutate(context.Background(), make([]Mutation, n), WaitBoth); err == nil {
			t.Errorf("a batch of %d was taken", n)
		}
	}
	if w.has(like, 1, 2) {
		t.Error("a refused batch changed something")
	}
	ok := good
	ok.Time = now.Add(4 * time.Minute).UnixMicro()
	w.mutate(ok)
	w.add(like, 1, 3, 0)
	if e := w.list(ListQuery{List: ListKey{Vertex: Vertex{1, 1}, Type: like}, Window: AllTime()}); len(e) != 2 || e[1].Time < now.UnixMicro() || e[1].Time > now.UnixMicro()+100 {
		t.Errorf("times: %+v", e)
	}
}

// Edges without a time keep their order of arrival, also within one microsecond.
func TestEdgesWithoutTimeKeepTheirOrder(t *testing.T) {
	now := time.UnixMicro(1_800_000_000_000_000)
	w := newWorld(t, true, func(c *Config) { c.Now = func() time.Time { return now } })
	like := w.edgeType("like")
	var ms []Mutation
	for i := range 50 {
		ms = append(ms, Mutation{Op: OpAdd, Type: like, Src: 1, Dst: uint64(1000 - i)})
	}
	w.mutate(ms...)
	for i, e := range w.list(ListQuery{List: ListKey{Vertex: Vertex{1, 1}, Type: like}, Order: OldestFirst, Window: AllTime()}) {
		if e.Peer != uint64(1000-i) {
			t.Fatalf("place %d has edge %d", i, e.Peer)
		}
	}
}

func TestSymmetricEdgesAreOneFact(t *testing.T) {
	s, err := ParseSchema([]byte(`
vertices: [{name: user, id: 1}]
edges: [{name: friend, id: 1, from: user, to: user, symmetric: true}]
`))
	must(t, err)
	w := newWorld(t, true, func(c *Config) { c.Schema = s })
	friend := EdgeType(1)
	for i := uint64(2); i < 20; i++ {
		if !w.add(friend, i, 1, int64(i)) || w.add(friend, 1, i, 99) {
			t.Fatal("the edge and its mirror are one")
		}
		if !w.has(friend, 1, i) || !w.has(friend, i, 1) {
			t.Fatal("seen from both ends")
		}
		for _, d := range []Direction{Out, In} {
			if n := w.count(ListKey{Vertex: Vertex{1, i}, Type: friend, Dir: d}, AllTime()); n != 1 {
				t.Fatalf("count %d at %d, %v", n, i, d)
			}
		}
		e, _, err := w.g.GetEdge(context.Background(), ReadOptions{}, friend, i, 1)
		if err != nil || e.Peer != 1 || e.Time != int64(i) {
			t.Fatalf("get: %+v, %v", e, err)
		}
	}
	if n := w.count(ListKey{Vertex: Vertex{1, 1}, Type: friend}, AllTime()); n != 18 {
		t.Fatalf("18 friends, count %d", n)
	}
	if !w.delete(friend, 3, 1) || w.has(friend, 1, 3) {
		t.Fatal("deleted from the other end")
	}
	if _, _, err := w.g.Mutate(context.Background(), []Mutation{{Op: OpAdd, Type: friend, Src: 5, Dst: 5}}, WaitBoth); err == nil {
		t.Fatal("a symmetric self-edge was taken")
	}
	exported := 0
	must(t, w.g.Export(context.Background(), 0, func(es []ExportedEdge) error { exported += len(es); return nil }))
	if exported != 17 {
		t.Fatalf("%d edges exported, want 17", exported)
	}
	w.check()
}

// Cases 7 and 18: callers give up at any time; whatever took effect, both sides agree.
func TestCase7CancelledWritesLeaveBothSidesAlike(t *testing.T) {
	w := newWorld(t, false, nil)
	like := w.edgeType("like")
	n := 300
	if long() {
		n = 10_000
	}
	var acked sync.Map
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewSource(int64(c)))
			for i := range n / 8 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.Intn(4000))*time.Microsecond)
				m := Mutation{Op: OpAdd, Type: like, Src: uint64(c*1000 + i + 1), Dst: uint64(rng.Intn(20) + 1)}
				res, _, err := w.g.Mutate(ctx, []Mutation{m}, WaitBoth)
				cancel()
				switch {
				case err != nil:
					t.Error(err)
				case res[0].Err == nil || errors.Is(res[0].Err, ErrInverseLate):
					acked.Store(m.Src, m.Dst)
				case res[0].Outcome == Failed && !errors.Is(res[0].Err, context.DeadlineExceeded),
					res[0].Outcome == Unknown && !errors.Is(res[0].Err, shard.ErrOutcomeUnknown):
					t.Error(res[0])
				}
			}
		})
	}
	wg.Wait()
	settleAll(t, w)
	acked.Range(func(src, dst any) bool {
		if !w.has(like, src.(uint64), dst.(uint64)) {
			t.Errorf("acknowledged edge %v -> %v is not there", src, dst)
		}
		return true
	})
	w.check()
}

// Case 9: overflow is refused with the value unchanged, and amounts are exact.
func TestCase9CounterOverflow(t *testing.T) {
	w := newWorld(t, true, nil)
	ctx := context.Background()
	views := CounterRef{Vertex: Vertex{2, 7}, Metric: 1}
	free := CounterRef{Key: "any key {x}\x00\xff"}
	for _, c := range []CounterRef{views, free} {
		incr := func(delta int64) IncrResult {
			t.Helper()
			res, _, err := w.g.IncrBy(ctx, []Increment{{Counter: c, Delta: delta}}, "")
			must(t, err)
			return res[0]
		}
		for _, d := range []int64{3_000_000_000, 17_179_869_184, -3_000_000_000, -17_179_869_184} {
			incr(d)
		}
		if r := incr(9_223_372_036_854_775_800); r.Err != nil || r.Value != 9_223_372_036_854_775_800 {
			t.Fatalf("%+v", r)
		}
		if r := incr(100); !errors.Is(r.Err, ErrOverflow) || r.Changed {
			t.Errorf("past the top: %+v", r)
		}
		if v := w.counter(c); v != 9_223_372_036_854_775_800 {
			t.Errorf("value %d after a refused increment", v)
		}
		_, err := w.g.SetCounter(ctx, c, math.MinInt64, 0)
		must(t, err)
		if r := incr(-1); !errors.Is(r.Err, ErrOverflow) {
			t.Errorf("past the bottom: %+v", r)
		}
		if v := w.counter(c); v != math.MinInt64 {
			t.Errorf("value %d", v)
		}
	}
	w.reopen()
	if v := w.counter(free); v != math.MinInt64 {
		t.Errorf("value %d after a restart", v)
	}
}

// A daily limit: a cap and an expiry at the day's end (issue 5 of the counters).
func TestDailyLikeLimit(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	w := newWorld(t, true, func(c *Config) { c.Now = func() time.Time { return time.UnixMicro(now.Load()) } })
	ctx := context.Background()
	c := CounterRef{Key: "likes today of user 42"}
	end := now.Load() + 1_500_000
	for i := range 8 {
		res, _, err := w.g.IncrBy(ctx, []Increment{{Counter: c, Delta: 1, Max: 5, HasMax: true, ExpireAt: end}}, "")
		must(t, err)
		want := min(int64(i+1), 5)
		if res[0].Value != want || res[0].Changed != (i < 5) {
			t.Errorf("increment %d: %+v", i, res[0])
		}
	}
	time.Sleep(1600 * time.Millisecond)
	now.Store(time.Now().UnixMicro())
	got, _, err := w.g.GetCounters(ctx, ReadOptions{}, []CounterRef{c})
	must(t, err)
	if got[0].Value != 0 || got[0].Exists {
		t.Errorf("after the day: %+v", got[0])
	}
}

func TestRequestIDsApplyOnce(t *testing.T) {
	w := newWorld(t, false, nil)
	ctx := context.Background()
	ins := []Increment{
		{Counter: CounterRef{Vertex: Vertex{2, 7}, Metric: 1}, Delta: 5},
		{Counter: CounterRef{Vertex: Vertex{2, 8}, Metric: 1}, Delta: 6},
		{Counter: CounterRef{Vertex: Vertex{2, 7}, Metric: 1}, Delta: 5},
	}
	first, _, err := w.g.IncrBy(ctx, ins, "req-1")
	must(t, err)
	for i := range 3 {
		again, _, err := w.g.IncrBy(ctx, ins, "req-1")
		must(t, err)
		if fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("retry %d: %v, want %v", i, again, first)
		}
		w.reopen()
	}
	if v := w.counter(ins[0].Counter); v != 10 {
		t.Errorf("value %d, want 10", v)
	}
	ins[0].Delta = 99
	other, _, err := w.g.IncrBy(ctx, ins[:1], "req-1")
	must(t, err)
	if !errors.Is(other[0].Err, ErrRequestIDReused) {
		t.Errorf("other arguments: %+v", other[0])
	}
}

func TestDerivedMetricsCannotBeWritten(t *testing.T) {
	w := newWorld(t, true, nil)
	ctx := context.Background()
	c := CounterRef{Vertex: Vertex{1, 7}, Metric: 1}
	_, _, err := w.g.IncrBy(ctx, []Increment{{Counter: c, Delta: 1}}, "")
	if !errors.Is(err, ErrDerived) {
		t.Errorf("incr: %v", err)
	}
	if _, err := w.g.SetCounter(ctx, c, 1, 0); !errors.Is(err, ErrDerived) {
		t.Errorf("set: %v", err)
	}
	if _, _, err := w.g.DeleteCounter(ctx, c); !errors.Is(err, ErrDerived) {
		t.Errorf("delete: %v", err)
	}
}
