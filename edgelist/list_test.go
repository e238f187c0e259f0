package edgelist

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// long says whether long tests run: LIANA_LONG=1.
func long() bool { return os.Getenv("LIANA_LONG") == "1" }

// freeze remembers what a page holds, and fails the test if that ever changes.
func (s *memStore) freeze(t *testing.T, p *Page) func() {
	fingerprint := func() string {
		if p.tree != nil {
			return fmt.Sprint(*p.tree, p.buf)
		}
		return fmt.Sprint(p.kind, p.weight, p.version, p.live, p.blob, p.deltas, p.props, p.buf)
	}
	was := fingerprint()
	return func() {
		if now := fingerprint(); now != was {
			t.Fatalf("a published page changed:\n%s\n%s", was, now)
		}
	}
}

func TestPublishedPagesNeverChange(t *testing.T) {
	for seed := range uint64(6) {
		r := newRun(t, seed)
		var frozen []func()
		for i := range 400 {
			r.grow = 40 + i%40
			r.step()
			if i%7 == 0 {
				r.flush()
				for _, p := range r.store.cache {
					frozen = append(frozen, r.store.freeze(t, p))
				}
			}
		}
		for _, check := range frozen {
			check()
		}
	}
}

// TestDeltasFoldToTheSamePage proves that the page in memory, base and deltas, is
// what the stored base and operands fold to.
func TestDeltasFoldToTheSamePage(t *testing.T) {
	for seed := range uint64(20) {
		r := newRun(t, seed)
		for i := range 300 {
			r.grow = 60
			r.step()
			if i%5 != 0 {
				continue
			}
			r.flush()
			for id, p := range r.store.cache {
				v, err := r.store.fold(r.store.pages[id])
				if err != nil {
					t.Fatal(err)
				}
				if p.tree != nil {
					continue
				}
				if want := appendPage(nil, p.weight, p.version, decoded(p)); string(v) != string(want) {
					t.Fatalf("seed %d, page %s: stored %x, in memory %x", seed, id, v, want)
				}
			}
		}
	}
}

// TestOptionsDoNotShow runs one history under many options: every answer is the
// same, whatever the pages look like.
func TestOptionsDoNotShow(t *testing.T) {
	const seed = 11
	var first []Edge
	for i := range uint64(8) {
		r := newRun(t, seed)
		r.opt = randomOptions(rand.New(rand.NewPCG(i, i)))
		if i == 7 {
			r.opt = DefaultOptions()
		}
		r.reopen()
		r.grow = 70
		for n := range 800 {
			r.step()
			if n%(5+int(i)) == 0 {
				r.flush()
				// A restart with other options finds pages over its bounds.
				if n%3 == 0 {
					r.opt = randomOptions(rand.New(rand.NewPCG(i, uint64(n))))
				}
				r.reopen()
			}
		}
		r.flush()
		r.store.check(t)
		l, err := Open(r.store)
		if err != nil {
			t.Fatal(err)
		}
		edges := slices.Concat(collect(t, l, Query{}, math.MaxInt), collect(t, l, Query{Order: ByTime, Descending: true, Skip: 3}, math.MaxInt))
		if i == 0 {
			first = edges
		}
		compareEdges(t, fmt.Sprint("options ", i), edges, first)
	}
}

// TestPagesOfAChangingListShowEachEdgeOnce lists page by page with a cursor while
// edges come and go. An edge that is there all the time appears exactly once, in
// every order and direction, however many share its time.
func TestPagesOfAChangingListShowEachEdgeOnce(t *testing.T) {
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 9))
		q := Query{Order: Order(seed % 2), Descending: seed/2%2 == 0}
		times := []int64{1, 3, 1 << 40}[rng.IntN(3)]
		store := newStore(seed, 50)
		opt := Options{SplitEntries: 16, MaxPageBytes: 5 << 10, MaxDeltas: 8, Branch: 4}
		stays := map[uint64]int{}
		change := func(n int, stay bool) {
			w, err := OpenWriter(store, &opt)
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				e := Edge{Peer: rng.Uint64N(2000), Time: rng.Int64N(times)}
				if _, ok := stays[e.Peer]; ok {
					continue
				}
				if rng.IntN(2) == 0 && !stay {
					_, _, err = w.Delete(e.Peer)
				} else if _, err = w.Insert(e); stay {
					stays[e.Peer] = 0
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Flush(store); err != nil {
				t.Fatal(err)
			}
		}
		change(300, true)
		change(300, false)
		pages := 0
		for ; ; pages++ {
			l, err := Open(store)
			if err != nil {
				t.Fatal(err)
			}
			page := collect(t, l, q, 7)
			for _, e := range page {
				if _, ok := stays[e.Peer]; ok {
					stays[e.Peer]++
				}
			}
			if len(page) == 0 {
				break
			}
			last := page[len(page)-1]
			q.From = &Key{Time: last.Time, ID: last.Peer}
			if rng.IntN(2) == 0 { // the cursor's own edge may vanish
				if _, ok := stays[last.Peer]; !ok {
					w, _ := OpenWriter(store, &opt)
					_, _, _ = w.Delete(last.Peer)
					if err := w.Flush(store); err != nil {
						t.Fatal(err)
					}
				}
			}
			change(20, false)
		}
		for id, n := range stays {
			if n != 1 {
				t.Fatalf("seed %d: edge %d appeared %d times in %d pages", seed, id, n, pages)
			}
		}
	}
}

// growth builds a list of n edges, in an order of ids, and takes it down again.
func growth(t *testing.T, n int, id func(i int) uint64) {
	store := newPageMap()
	const group = 500
	change := func(i int, do func(w *Writer, e Edge) (bool, error)) {
		w, err := OpenWriter(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		for j := i; j < min(i+group, n); j++ {
			ok, err := do(w, Edge{Peer: id(j), Time: arrival(j)})
			if !ok || err != nil {
				t.Fatalf("edge %d: %v %v", j, ok, err)
			}
		}
		if err := w.Flush(store); err != nil {
			t.Fatal(err)
		}
	}
	pages := func() ([]PageID, error) { return slices.Collect(maps.Keys(store.pages)), nil }
	check := func(count int) Stats {
		s, err := Check(store, pages)
		if err != nil || s.Count != uint64(count) {
			t.Fatalf("%v: %+v, want %d edges", err, s, count)
		}
		return s
	}
	for i := 0; i < n; i += group {
		change(i, func(w *Writer, e Edge) (bool, error) { return w.Insert(e) })
		if i == n/2 {
			check(i + group)
		}
	}
	s := check(n)
	opt := DefaultOptions()
	if s.MaxPageBytes > opt.MaxPageBytes || s.MaxLeafEntries > opt.SplitEntries || s.Trees[ByID].Height > 2 {
		t.Errorf("grown to %+v", s)
	}
	t.Logf("%d edges: %d pages, %.2f bytes an edge, heights %d and %d, by-time leaves %.0f %% full", n, s.Pages,
		float64(s.Bytes)/float64(n), s.Trees[ByID].Height, s.Trees[ByTime].Height,
		100*float64(n)/float64(s.Trees[ByTime].Leaves*opt.SplitEntries))
	for i := 0; i < n; i += group {
		change(i, func(w *Writer, e Edge) (bool, error) { _, ok, err := w.Delete(e.Peer); return ok, err })
		if i == n/2 {
			check(n - i - group)
		}
	}
	if s := check(0); s.Pages != 1 || len(store.pages) != 0 {
		t.Errorf("emptied list: %+v, %d pages stored", s, len(store.pages))
	}
}

func TestGrowthAndShrinking(t *testing.T) {
	n := 10_000
	if long() {
		n = 2_000_000
	}
	for name, id := range map[string]func(i int) uint64{
		"ascending":  func(i int) uint64 { return uint64(i) },
		"descending": func(i int) uint64 { return math.MaxUint64 - uint64(i) },
		"scattered":  func(i int) uint64 { return uint64(i) * 0x9E3779B97F4A7C15 },
	} {
		t.Run(name, func(t *testing.T) { growth(t, n, id) })
	}
}

// countingSource counts pages read.
type countingSource struct {
	Source
	loads int
}

func (c *countingSource) Page(id PageID) (*Page, error) {
	c.loads++
	return c.Source.Page(id)
}

// TestCostIsLogarithmic bounds the pages each question and each change touches
// by the height of the trees, not by the length of the list.
func TestCostIsLogarithmic(t *testing.T) {
	const n = 20_000
	opt := DefaultOptions()
	opt.SplitEntries, opt.Branch = 32, 8
	m := benchList(t, n, 1000, &opt)
	stats, err := Check(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := 1 + max(stats.Trees[ByID].Height, stats.Trees[ByTime].Height)
	if path > 6 {
		t.Fatalf("%d pages from root to leaf", path)
	}
	src := &countingSource{Source: m}
	cost := func(what string, most int, do func(l *List) error) {
		src.loads = 0
		l, err := Open(src)
		if err == nil {
			err = do(l)
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if src.loads > most {
			t.Errorf("%s reads %d pages of %d, at most %d were expected", what, src.loads, stats.Pages, most)
		}
	}
	page := func(q Query) func(l *List) error {
		return func(l *List) error { collect(t, l, q, 20); return nil }
	}
	mid := &Key{Time: arrival(n / 2), ID: scattered(n / 2)}
	cost("has", 1+path, func(l *List) error { _, err := l.Has(scattered(77)); return err })
	cost("count", 1, func(l *List) error { l.Count(); return nil })
	cost("window", 1+2*path, func(l *List) error { _, err := l.CountWindow(arrival(5), arrival(n-5)); return err })
	for _, o := range []Order{ByID, ByTime} {
		for _, desc := range []bool{false, true} {
			// A page of 20 may begin near a leaf's end and go on in the next.
			cost("first page", 1+2*path, page(Query{Order: o, Descending: desc}))
			cost("page from a key", 1+2*path, page(Query{Order: o, Descending: desc, From: mid}))
			cost("page at a rank", 1+3*path, page(Query{Order: o, Descending: desc, Skip: n / 2}))
		}
	}
	src.loads = 0
	w, err := OpenWriter(src, &opt)
	if err == nil {
		_, err = w.Insert(Edge{Peer: scattered(n + 1), Time: arrival(n / 3)})
	}
	if most := 1 + 2*path; err != nil || src.loads > most {
		t.Errorf("insert reads %d pages, at most %d were expected: %v", src.loads, most, err)
	}
}

// TestReadersBesideAWriter reads published pages while the writer goes on; the
// race detector and the counts say whether pages are shared rightly.
func TestReadersBesideAWriter(t *testing.T) {
	opt := Options{SplitEntries: 32, MaxPageBytes: 16 << 10, MaxDeltas: 16, Branch: 8}
	store := newPageMap()
	var mu sync.Mutex // guards the map, not the pages
	snapshot := func() *List {
		mu.Lock()
		defer mu.Unlock()
		l, err := Open(mapSource(maps.Clone(store.pages)))
		if err != nil {
			t.Error(err)
		}
		return l
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 {
		wg.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				l := snapshot()
				got := uint64(0)
				it := l.Iter(Query{Order: Order(n % 2), Descending: n%3 == 0})
				for it.Next() {
					got++
				}
				if it.Err() != nil || got != l.Count() {
					t.Errorf("%d edges of %d: %v", got, l.Count(), it.Err())
					return
				}
			}
		})
	}
	w, err := OpenWriter(mapSource{}, &opt)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		for range 20 {
			e := Edge{Peer: rng.Uint64N(800), Time: rng.Int64N(100), Props: randBytes(rng, rng.IntN(9))}
			if _, err := w.Insert(e); err != nil {
				t.Fatal(err)
			}
			if _, _, err := w.Delete(rng.Uint64N(800)); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		err := w.Flush(store)
		mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}

// TestFoldNeedsNoReader proves that an insert can be folded into a packed head
// that its writer has not read, present or absent.
func TestFoldNeedsNoReader(t *testing.T) {
	var puts, drops table
	puts.reset(kindPacked)
	puts.append(&row{id: 9, time: 5, props: []byte("p")})
	op := appendOperand(nil, kindPacked, 1, 77, &puts, &drops)
	for _, before := range []model{{}, {3: {Peer: 3, Time: 1}}, {9: {Peer: 9, Time: 1}}} {
		store := newStore(1, 0)
		w, _ := OpenWriter(store, nil)
		for _, e := range before {
			if _, err := w.Insert(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(store); err != nil {
			t.Fatal(err)
		}
		c := store.pages[PageID{}]
		if c == nil {
			c = new(chain)
			store.pages[PageID{}] = c
		}
		c.operands = append(c.operands, op)
		want := maps.Clone(before)
		want[9] = Edge{Peer: 9, Time: 5, Props: []byte("p")}
		l, err := Open(store)
		if err != nil {
			t.Fatal(err)
		}
		if l.Count() != uint64(len(want)) || l.Version() != 77 {
			t.Fatalf("count %d version %d", l.Count(), l.Version())
		}
		compareEdges(t, "folded", collect(t, l, Query{}, 10), want.sorted(ByID, false))
	}
}

var errDisk = errors.New("disk on fire")

// failing fails from the n-th call of Page or of the sink on.
type failing struct {
	*pageMap
	left int
}

func (f *failing) spend() error {
	if f.left--; f.left < 0 {
		return errDisk
	}
	return nil
}

func (f *failing) Page(id PageID) (*Page, error) {
	if err := f.spend(); err != nil {
		return nil, err
	}
	return f.pageMap.Page(id)
}

func (f *failing) Put(id PageID, p *Page, value []byte) error {
	if err := f.spend(); err != nil {
		return err
	}
	return f.pageMap.Put(id, p, value)
}

// TestErrorsPassThroughAndStick fails each call in turn.
func TestErrorsPassThroughAndStick(t *testing.T) {
	opt := Options{SplitEntries: 8, MaxPageBytes: 16 << 10, MaxDeltas: 2, Branch: 4}
	work := func(src *failing) (*Writer, error) {
		w, err := OpenWriter(src, &opt)
		if err != nil {
			return nil, err
		}
		for i := range 30 {
			if _, err := w.Insert(Edge{Peer: scattered(1000 + i), Time: int64(i)}); err != nil {
				return w, err
			}
			if _, _, err := w.Delete(scattered(i)); err != nil {
				return w, err
			}
			if _, _, err := w.Update(Edge{Peer: scattered(50 + i), Time: 1}); err != nil {
				return w, err
			}
		}
		return w, w.Flush(src)
	}
	for n := 0; ; n++ {
		src := &failing{pageMap: benchList(t, 100, 10, &opt), left: n}
		w, err := work(src)
		if err == nil {
			if n < 100 {
				t.Fatalf("only %d calls were made", n)
			}
			return
		}
		if !errors.Is(err, errDisk) || errors.Is(err, ErrCorrupt) {
			t.Fatalf("call %d: %v", n, err)
		}
		if w == nil {
			continue
		}
		if again := w.Flush(src); !errors.Is(again, errDisk) {
			t.Fatalf("call %d: a failed writer flushes: %v", n, again)
		}
		if _, again := w.Insert(Edge{Peer: 1}); !errors.Is(again, errDisk) {
			t.Fatalf("call %d: a failed writer inserts: %v", n, again)
		}
	}
}

func TestPropsLimit(t *testing.T) {
	w, err := OpenWriter(mapSource{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the refusal does not stick
		if _, err := w.Insert(Edge{Peer: 1, Props: make([]byte, MaxProps+1)}); !errors.Is(err, ErrPropsTooLarge) {
			t.Fatal(err)
		}
	}
	if ok, err := w.Insert(Edge{Peer: 1, Props: make([]byte, MaxProps)}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, _, err := w.Update(Edge{Peer: 1, Props: make([]byte, MaxProps+1)}); !errors.Is(err, ErrPropsTooLarge) {
		t.Fatal(err)
	}
	if e, ok, err := w.Get(1); !ok || err != nil || len(e.Props) != MaxProps {
		t.Fatal(len(e.Props), ok, err)
	}
}

func TestOptionsValidate(t *testing.T) {
	if err := DefaultOptions().Validate(); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(o *Options){
		func(o *Options) { o.SplitEntries = 3 },
		func(o *Options) { o.SplitEntries = maxSplitEntries + 1 },
		func(o *Options) { o.SplitEntries = 2000 },
		func(o *Options) { o.Branch = 3 },
		func(o *Options) { o.Branch = 1000 },
		func(o *Options) { o.MaxDeltas = 0 },
		func(o *Options) { o.MaxPageBytes = 1000 },
		func(o *Options) { o.MaxPageBytes = maxPageBytes + 1 },
	} {
		o := DefaultOptions()
		change(&o)
		if o.Validate() == nil {
			t.Errorf("change %d passes: %+v", i, o)
		}
	}
}

// TestEmptyHeads: a list without edges and version leaves no head behind, one
// with a version does.
func TestEmptyHeads(t *testing.T) {
	store := newStore(1, 0)
	w, err := OpenWriter(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	flush := func(heads int) {
		t.Helper()
		if err := w.Flush(store); err != nil || len(store.pages) != heads {
			t.Fatalf("%d pages stored, want %d: %v", len(store.pages), heads, err)
		}
	}
	change := func() {
		t.Helper()
		if ok, err := w.Insert(Edge{Peer: 1}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	remove := func() {
		t.Helper()
		if _, ok, err := w.Delete(1); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	flush(0)
	change()
	remove()
	flush(0)
	change()
	flush(1)
	remove()
	flush(0)
	change()
	flush(1)
	remove()
	w.SetVersion(3)
	flush(1)
	if l, err := Open(store); err != nil || l.Version() != 3 || l.Count() != 0 {
		t.Fatal(l, err)
	}
}
