package edgelist

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestCheckFindsWhatIsWrong damages a sound list in every way that Check is there
// to find, one at a time.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	opt := Options{SplitEntries: 8, MaxPageBytes: 16 << 10, MaxDeltas: 1, Branch: 4}
	build := func() (*pageMap, *Page) {
		m := newPageMap()
		w, err := OpenWriter(m, &opt)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if _, err := w.Insert(Edge{Peer: uint64(10 + i), Time: int64(1000 - i), Props: []byte("p")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(m); err != nil {
			t.Fatal(err)
		}
		head := m.pages[PageID{}].clone()
		m.pages[PageID{}] = head
		return m, head
	}
	// page finds a page of a kind, not the first of its level, and edits its rows.
	page := func(m *pageMap, k kind, edit func(rows *table)) {
		ids := slices.SortedFunc(maps.Keys(m.pages), func(a, b PageID) int { return cmp.Compare(a.pack(), b.pack()) })
		slices.Reverse(ids)
		for _, id := range ids {
			if p := m.pages[id]; p.kind == k && decoded(p).keyAt(k.order(), 0) != k.order().key(minKey().Time, 0) {
				rows := decoded(p)
				edit(rows)
				n, err := DecodePage(appendPage(nil, 0, 0, rows))
				if err != nil {
					t.Fatal(err)
				}
				m.pages[id] = n
				return
			}
		}
		t.Fatalf("no page of kind %d", k)
	}
	for what, damage := range map[string]func(m *pageMap, head *Page){
		"the head counts":           func(_ *pageMap, head *Page) { head.tree.count++ },
		"the head says":             func(_ *pageMap, head *Page) { head.tree.withProps-- },
		"bytes of properties":       func(_ *pageMap, head *Page) { head.tree.propBytes++ },
		"at height":                 func(_ *pageMap, head *Page) { head.tree.roots[ByTime].height-- },
		"the head gives out":        func(_ *pageMap, head *Page) { head.tree.next = uint64(head.tree.roots[ByID].no) },
		"belongs to no tree":        func(m *pageMap, _ *Page) { m.pages[PageID{ByTime, 9999}] = m.pages[PageID{}] },
		"is missing":                func(m *pageMap, head *Page) { delete(m.pages, PageID{ByID, head.tree.roots[ByID].no}) },
		"outside of its separators": func(m *pageMap, _ *Page) { page(m, kindIDLeaf, func(r *table) { r.cols[colID][0] = 1 }) },
		"are out of order":          func(m *pageMap, _ *Page) { page(m, kindTimeLeaf, func(r *table) { slices.Reverse(r.cols[colTime]) }) },
		"were counted":              func(m *pageMap, _ *Page) { page(m, kindIDBranch, func(r *table) { r.cols[colCount][1]++ }) },
		"edges, ":                   func(m *pageMap, _ *Page) { page(m, kindTimeLeaf, func(r *table) { *r = r.slice(1, r.n) }) },
		"by-id tree only":           func(m *pageMap, _ *Page) { page(m, kindIDLeaf, func(r *table) { r.cols[colTime][1] = 5 }) },
		"is used twice": func(m *pageMap, _ *Page) {
			page(m, kindIDBranch, func(r *table) { r.cols[colChild][1] = r.cols[colChild][0] })
		},
		"is not the branch's own": func(m *pageMap, _ *Page) { page(m, kindIDBranch, func(r *table) { r.cols[colID][0]++ }) },
		"a branch with one child": func(m *pageMap, _ *Page) { page(m, kindIDBranch, func(r *table) { *r = r.slice(0, 1) }) },
	} {
		m, head := build()
		pages := func() ([]PageID, error) { return slices.Collect(maps.Keys(m.pages)), nil }
		if _, err := Check(m, pages); err != nil {
			t.Fatalf("sound list: %v", err)
		}
		damage(m, head)
		_, err := Check(m, pages)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), what) {
			t.Errorf("%q was expected, Check says: %v", what, err)
		}
	}
}

func TestCheckOfAnAbsentList(t *testing.T) {
	none := func() ([]PageID, error) { return nil, nil }
	if s, err := Check(mapSource{}, none); err != nil || s.Count != 0 {
		t.Fatal(s, err)
	}
	orphan := func() ([]PageID, error) { return []PageID{{ByID, 1}}, nil }
	if _, err := Check(mapSource{}, orphan); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("an orphan page of an absent list: %v", err)
	}
}

// TestMissingAndForeignPagesAreErrors asks every question of a list whose tree
// pages are gone, or are of another kind.
func TestMissingAndForeignPagesAreErrors(t *testing.T) {
	opt := Options{SplitEntries: 8, MaxPageBytes: 16 << 10, MaxDeltas: 1, Branch: 4}
	m := benchList(t, 100, 10, &opt)
	head := m.pages[PageID{}]
	for _, src := range []Source{mapSource{PageID{}: head}, foreignSource{head}} {
		l, err := Open(src)
		if err != nil {
			t.Fatal(err)
		}
		errs := map[string]error{}
		_, errs["has"] = l.Has(1)
		_, _, errs["get"] = l.Get(1)
		_, errs["window"] = l.CountWindow(1, 1<<60)
		for _, q := range []Query{{}, {Descending: true}, {Skip: 5}, {Order: ByTime}, {Order: ByTime, Skip: 3, Descending: true}} {
			it := l.Iter(q)
			if it.Next() {
				t.Errorf("%+v gives an edge", q)
			}
			errs["list"] = it.Err()
		}
		w, err := OpenWriter(src, &opt)
		if err != nil {
			t.Fatal(err)
		}
		_, errs["insert"] = w.Insert(Edge{Peer: 1})
		for what, err := range errs {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if _, err := Open(mapSource{PageID{}: &Page{kind: kindIDLeaf}}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a leaf opens as a list: %v", err)
	}
}

// foreignSource serves the head for every page.
type foreignSource struct{ head *Page }

func (f foreignSource) Page(PageID) (*Page, error) { return f.head, nil }
