package edgelist

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// seedPages are pages and operands of every kind, from a random list.
func seedPages(tb testing.TB) (pages, operands [][]byte) {
	store := newStore(3, 0)
	opt := Options{SplitEntries: 8, MaxPageBytes: 16 << 10, MaxDeltas: 20, Branch: 8}
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 60 {
		w, err := OpenWriter(store, &opt)
		if err != nil {
			tb.Fatal(err)
		}
		for range 1 + i%3 {
			if _, err := w.Insert(Edge{Peer: rng.Uint64N(200), Time: rng.Int64N(99) - 9, Props: randBytes(rng, rng.IntN(4))}); err != nil {
				tb.Fatal(err)
			}
			if _, _, err := w.Delete(rng.Uint64N(200)); err != nil {
				tb.Fatal(err)
			}
		}
		w.SetVersion(uint64(i))
		if err := w.Flush(store); err != nil {
			tb.Fatal(err)
		}
	}
	for _, c := range store.pages {
		pages = append(pages, c.base)
		operands = append(operands, c.operands...)
	}
	return pages, operands
}

// useAll calls everything a page can be asked, so that a page which decodes but
// cannot be read shows.
func useAll(t *testing.T, p *Page) {
	if p.tree != nil {
		return
	}
	o := p.kind.order()
	p.MemSize()
	var r row
	n := 0
	for c := p.first(); c.next(&r); n++ {
		p.get(p.find(r.key(o)))
	}
	if n != p.live {
		t.Fatalf("%d entries, %d live", n, p.live)
	}
	for c := p.last(); c.prev(&r); n-- {
	}
	if n != 0 {
		t.Fatalf("%d entries more forwards than backwards", n)
	}
	for i := range min(p.live, 50) + 2 {
		c := p.atRank(i)
		c.next(&r)
	}
	if p.kind.branch() {
		c := p.last()
		total := c.sum()
		p.child(total / 2)
	} else if p.kind == kindPacked {
		p.countWindow(-5, 5)
		p.timeOrder(gap{key: minKey()}, gap{key: Key{Time: 1 << 40}}, true)
	}
}

func FuzzDecodePage(f *testing.F) {
	pages, operands := seedPages(f)
	for _, b := range append(pages, operands...) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePage(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error without its mark: %v", err)
			}
			return
		}
		if IsOperand(b) {
			t.Fatal("an operand decodes as a page")
		}
		useAll(t, p)
		// A page alone can be a whole list, if it is a head.
		source := mapSource{PageID{}: p}
		if l, err := Open(source); err == nil {
			readAll(t, l)
			if w, err := OpenWriter(source, nil); err == nil {
				fuzzWrites(t, w)
			}
			_, _ = Check(source, nil)
		}
	})
}

// mapSource serves fixed pages.
type mapSource map[PageID]*Page

func (m mapSource) Page(id PageID) (*Page, error) { return m[id], nil }

// readAll reads a list that may be corrupt: errors are fine if they are marked.
func readAll(t *testing.T, l *List) {
	for _, q := range []Query{{}, {Descending: true}, {Order: ByTime}, {Order: ByTime, Descending: true, Skip: 2}} {
		it := l.Iter(q)
		for i := 0; i < 1000 && it.Next(); i++ {
		}
		mustBeMarked(t, it.Err())
	}
	_, _, err := l.Get(7)
	mustBeMarked(t, err)
	_, err = l.CountWindow(1, 50)
	mustBeMarked(t, err)
}

func fuzzWrites(t *testing.T, w *Writer) {
	_, err := w.Insert(Edge{Peer: 7, Time: 3, Props: []byte("x")})
	mustBeMarked(t, err)
	_, _, err = w.Delete(9)
	mustBeMarked(t, err)
	_, _, err = w.Update(Edge{Peer: 7, Time: 4})
	mustBeMarked(t, err)
	mustBeMarked(t, w.Flush(newPageMap()))
}

func mustBeMarked(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFull) {
		t.Fatalf("error without its mark: %v", err)
	}
}

// FuzzFold cuts its input into a base and three operands. Whatever the bytes
// are, combining operands first must not change the result.
func FuzzFold(f *testing.F) {
	pages, operands := seedPages(f)
	for i, b := range pages {
		o := operands[i%len(operands)]
		f.Add(b, o, operands[(i+1)%len(operands)], o)
		for _, o := range operands {
			if o[0]&kindMask == b[0]&kindMask {
				f.Add(b, o, o, o)
			}
		}
	}
	f.Add([]byte(nil), operands[0], operands[1], operands[2])
	f.Fuzz(func(t *testing.T, base, a, b, c []byte) {
		if len(base) == 0 {
			base = nil
		}
		v, err := Fold(base, [][]byte{a, b, c})
		if err != nil {
			mustBeMarked(t, err)
			return
		}
		if IsOperand(v) {
			t.Fatal("fold made an operand")
		}
		p, err := DecodePage(v)
		if err != nil {
			t.Fatalf("fold made what does not decode: %v", err)
		}
		if i, ok := decoded(p).sorted(); !ok {
			t.Fatalf("fold made a page out of order at %d", i)
		}
		useAll(t, p)
		bc, err := Combine([][]byte{b, c})
		if err != nil {
			t.Fatalf("operands fold, but do not combine: %v", err)
		}
		if grouped, err := Fold(base, [][]byte{a, bc}); err != nil || !bytes.Equal(grouped, v) {
			t.Fatalf("combined %x, one by one %x: %v", grouped, v, err)
		}
		first, err := Fold(base, [][]byte{a})
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := Fold(first, [][]byte{bc}); err != nil || !bytes.Equal(twice, v) {
			t.Fatalf("in two steps %x, in one %x: %v", twice, v, err)
		}
	})
}

func FuzzCombine(f *testing.F) {
	_, operands := seedPages(f)
	for i, o := range operands {
		f.Add(o, operands[(i+3)%len(operands)])
		f.Add(o, o)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		v, err := Combine([][]byte{a, b})
		if err != nil {
			mustBeMarked(t, err)
			return
		}
		if !IsOperand(v) {
			t.Fatal("combine made what is no operand")
		}
		if len(v) > len(a)+len(b)+2*pageFixed+16*(len(a)+len(b)) {
			t.Fatalf("%d and %d bytes combined to %d", len(a), len(b), len(v))
		}
		again, err := Combine([][]byte{v})
		if err != nil || !bytes.Equal(again, v) {
			t.Fatalf("not stable: %x, then %x: %v", v, again, err)
		}
	})
}

// FuzzOps takes a seed and bytes that steer a history: two bytes a change.
func FuzzOps(f *testing.F) {
	f.Add(uint64(1), []byte("\x00\x01\x00\x02\x01\x01\x00\x03\x03\x00"))
	f.Add(uint64(7), bytes.Repeat([]byte{0, 1, 0, 2, 0, 3, 2, 2, 1, 1, 3, 0, 0, 9}, 20))
	f.Fuzz(func(t *testing.T, seed uint64, ops []byte) {
		r := newRun(t, seed)
		ops = ops[:min(len(ops), 600)]
		for len(ops) >= 2 {
			verb, arg := ops[0], ops[1]
			ops = ops[2:]
			switch verb % 8 {
			case 7:
				r.flush()
			case 6:
				r.flush()
				r.reopen()
			default:
				r.grow = int(arg) % 100
				r.step()
			}
		}
		r.finish()
	})
}
