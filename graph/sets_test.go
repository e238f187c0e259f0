package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lianadb/liana/edgelist"
)

// set is the answer to a set query by the model.
func (wd *wander) set(q SetQuery) []SetMember {
	a, b := wd.list(q.A.List, NewestFirst, q.A.Window), wd.list(q.B.List, NewestFirst, q.B.Window)
	timesA, timesB := timesOf(a), timesOf(b)
	drive := a
	if q.Op == Intersect && len(b) < len(a) {
		drive = b
	}
	if q.Op == Union {
		drive = append(slices.Clone(a), b...)
		slices.SortFunc(drive, func(x, y edgelist.Edge) int { return compareUint(x.Peer, y.Peer) })
		drive = slices.CompactFunc(drive, func(x, y edgelist.Edge) bool { return x.Peer == y.Peer })
	}
	var out []SetMember
	for _, e := range drive {
		m := SetMember{ID: e.Peer}
		m.TimeA, m.InA = timesA[e.Peer], has(timesA, e.Peer)
		m.TimeB, m.InB = timesB[e.Peer], has(timesB, e.Peer)
		if q.Op == Union || m.InA && m.InB == (q.Op == Intersect) {
			out = append(out, m)
		}
	}
	return out
}

func timesOf(es []edgelist.Edge) map[uint64]int64 {
	out := map[uint64]int64{}
	for _, e := range es {
		out[e.Peer] = e.Time
	}
	return out
}

func has(times map[uint64]int64, id uint64) bool { _, ok := times[id]; return ok }

func (wd *wander) randomSide(op SetOp) SetSide {
	s := SetSide{Window: AllTime()}
	switch wd.rng.Intn(3) {
	case 0:
		s.List = ListKey{wd.vertex("user", 1+uint64(wd.rng.Intn(42))), wd.follow, Out}
	case 1:
		s.List = ListKey{wd.vertex("user", 1+uint64(wd.rng.Intn(5))), wd.follow, In}
	default:
		s.List = ListKey{wd.vertex("note", 1+uint64(wd.rng.Intn(5))), wd.like, In}
	}
	if op != Union && wd.rng.Intn(3) == 0 {
		s.Window.Until = int64(wd.rng.Intn(3000))
	}
	return s
}

// pages reads a set page by page.
func (wd *wander) pages(t *testing.T, q SetQuery) (got []SetMember, short int) {
	t.Helper()
	for i := 0; ; i++ {
		page, err := wd.routers[i%2].Combine(context.Background(), wd.ro, q)
		must(t, err)
		if len(page.Members) > q.PageSize {
			t.Fatalf("%+v: a page of %d", q, len(page.Members))
		}
		got = append(got, page.Members...)
		if page.Next == "" {
			return got, short
		}
		if len(page.Members) < q.PageSize {
			short++
		}
		if q.PageToken = page.Next; i > 10_000 {
			t.Fatalf("%+v never ends", q)
		}
	}
}

func TestSetsAreThoseOfTheModel(t *testing.T) {
	wd := newWander(t, 2000, 21)
	short := 0
	for range 150 {
		op := SetOp(1 + wd.rng.Intn(3))
		q := SetQuery{Op: op, A: wd.randomSide(op), B: wd.randomSide(op), PageSize: 1 + wd.rng.Intn(20), MaxEdges: 1 + wd.rng.Intn(60)}
		got, n := wd.pages(t, q)
		short += n
		if want := wd.set(q); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%+v:\n%v, want\n%v", q, got, want)
		}
	}
	if short == 0 {
		t.Fatal("the bound on edges never cut a page")
	}
}

func TestIntersectManyIsTheModel(t *testing.T) {
	wd := newWander(t, 2000, 22)
	full := 0
	for i := range 60 {
		q := ManyQuery{A: wd.randomSide(Intersect), Window: AllTime(), Limit: 1 + wd.rng.Intn(30), MaxEdges: MaxSetEdges}
		if wd.rng.Intn(3) == 0 {
			q.Window.Since = int64(wd.rng.Intn(2000))
		}
		for range 1 + wd.rng.Intn(20) {
			q.Lists = append(q.Lists, ListKey{wd.vertex("note", 1+uint64(wd.rng.Intn(60))), wd.like, In})
		}
		got, _, err := wd.routers[i%2].IntersectMany(context.Background(), wd.ro, q)
		must(t, err)
		for j, l := range q.Lists {
			want := wd.set(SetQuery{Op: Intersect, A: q.A, B: SetSide{l, q.Window}})
			more := len(want) > q.Limit
			if more {
				want = want[:q.Limit]
				full++
			}
			if fmt.Sprint(got[j].Members) != fmt.Sprint(want) || more && !got[j].More {
				t.Fatalf("%+v, list %d: %+v, want %v more %v", q, j, got[j], want, more)
			}
		}
	}
	if full == 0 {
		t.Fatal("no list was cut")
	}
	// With little effort it says that there may be more.
	q := ManyQuery{
		A: SetSide{ListKey{wd.vertex("user", 1), wd.follow, In}, AllTime()}, Window: AllTime(), MaxEdges: 1,
		Lists: []ListKey{{wd.vertex("note", 1), wd.like, In}},
	}
	got, _, err := wd.routers[0].IntersectMany(context.Background(), wd.ro, q)
	must(t, err)
	if !got[0].More {
		t.Errorf("cut after one edge: %+v", got[0])
	}
}

func TestBadSetQueriesAreRefused(t *testing.T) {
	wd := newWander(t, 10, 23)
	a := SetSide{ListKey{wd.vertex("user", 1), wd.follow, Out}, AllTime()}
	liked := SetSide{ListKey{wd.vertex("user", 1), wd.like, Out}, AllTime()}
	window := SetSide{a.List, Window{Since: 1, Until: 2}}
	for field, q := range map[string]SetQuery{
		"op":          {A: a, B: a},
		"b.type":      {Op: Intersect, A: a, B: liked},
		"a.vertex.id": {Op: Intersect, A: SetSide{List: ListKey{Type: wd.follow, Vertex: Vertex{Type: a.List.Vertex.Type}}}, B: a},
		"a.window":    {Op: Union, A: window, B: a},
		"page_size":   {Op: Union, A: a, B: a, PageSize: MaxPageSize + 1},
		"max_edges":   {Op: Union, A: a, B: a, MaxEdges: -1},
		"page_token":  {Op: Union, A: a, B: a, PageToken: "x"},
	} {
		_, err := wd.routers[0].Combine(context.Background(), wd.ro, q)
		var bad *InvalidError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	// A token of another query, or of a listing, is none of this one.
	q := SetQuery{Op: Intersect, A: a, B: a}
	key := wd.nodes[0].g.cfg.PageKey
	token := setCursor{ID: 7}.encode(key, &q)
	q.PageToken = token
	if _, err := wd.routers[0].Combine(context.Background(), wd.ro, q); err != nil {
		t.Errorf("its own: %v", err)
	}
	q.Op = Union
	if _, err := wd.routers[0].Combine(context.Background(), wd.ro, q); err == nil {
		t.Error("the token of an intersection went on with a union")
	}
	lq := ListQuery{List: a.List, Window: AllTime()}
	q.PageToken = PageCursor{ID: 7}.encode(key, &lq)
	if _, err := wd.routers[0].Combine(context.Background(), wd.ro, q); err == nil {
		t.Error("the token of a listing went on with a union")
	}
}

func FuzzSetCursor(f *testing.F) {
	q := SetQuery{Op: Intersect, A: SetSide{Window: AllTime()}, B: SetSide{Window: AllTime()}}
	f.Add(setCursor{ByB: true, Time: -1, ID: 9, Token: "abc"}.encode(testKey, &q))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		q := q
		q.PageToken = text
		c, err := parseSetCursor(testKey, &q)
		if err != nil || c == nil {
			return
		}
		if again := c.encode(testKey, &q); again != text {
			t.Fatalf("%q was read as %+v, which is %q", text, *c, again)
		}
	})
}
