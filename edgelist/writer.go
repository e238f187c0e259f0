package edgelist

import (
	"bytes"
	"fmt"
	"slices"
)

// Writer changes one list. There is one writer of a list at a time, used by one
// goroutine; what it embeds reads the list with the writer's own changes. After
// an error other than ErrPropsTooLarge the writer is of no more use: each further
// change and Flush returns that error, and nothing of the writer's may be kept.
//
// A writer keeps the pages it has touched, also after Flush, so what it reads
// does not depend on when the caller makes the flushed pages visible.
type Writer struct {
	List
	base   Source
	opt    Options
	slots  map[uint64]*slot // touched pages but the head, by PageID.pack
	top    slot             // the head
	stored bool             // the head is in the store
	err    error            // sticky
	*Scratch
}

// Scratch is the working memory of writers. Writers that one goroutine uses may
// share one, which saves each of them its own. The zero value is ready.
type Scratch struct {
	path        []step // the way down to the leaf being changed
	rows        table  // entries of pages being rewritten
	puts, drops table  // entries of operands
	buf         []byte // encoded bytes
}

// slot is what a writer knows of one page.
type slot struct {
	page  *Page
	own   bool // page is the writer's copy and may be changed in place
	dirty bool // to be handed out by Flush
	whole bool // by Put: the page is new, or its rows moved
	born  bool // the store does not have it
	gone  bool // removed
}

// OpenWriter opens a list for changes. opt must be valid and stay unchanged;
// nil means the defaults.
func OpenWriter(src Source, opt *Options) (*Writer, error) {
	return new(Scratch).OpenWriter(src, opt)
}

// OpenWriter is the function OpenWriter with s for working memory.
func (s *Scratch) OpenWriter(src Source, opt *Options) (*Writer, error) {
	w := &Writer{base: src, Scratch: s}
	if opt != nil {
		w.opt = *opt
	} else {
		w.opt = DefaultOptions()
	}
	head, err := src.Page(PageID{})
	if err != nil {
		return nil, fmt.Errorf("edgelist: page head: %w", err)
	}
	w.stored = head != nil
	if err := w.open(w, headSource{head}); err != nil {
		return nil, err
	}
	w.top = slot{page: w.head, own: !w.stored, whole: !w.stored}
	return w, nil
}

// headSource answers with a head that was read already.
type headSource struct{ head *Page }

func (h headSource) Page(PageID) (*Page, error) { return h.head, nil }

// Page is the writer's view of a page; with it a Writer is a Source.
func (w *Writer) Page(id PageID) (*Page, error) {
	if id == (PageID{}) {
		return w.head, nil
	}
	if s := w.slots[id.pack()]; s != nil {
		if s.gone {
			return nil, nil
		}
		return s.page, nil
	}
	return w.base.Page(id)
}

// Insert adds e unless the list has an edge to its peer already; then it changes
// nothing and returns false. The writer copies e.Props.
func (w *Writer) Insert(e Edge) (bool, error) {
	if err := w.admit(e); err != nil {
		return false, err
	}
	r := row{id: e.Peer, time: e.Time, props: cloneProps(e.Props)}
	if w.head.tree != nil {
		ok, err := w.treeInsert(r)
		return ok, w.fail(err)
	}
	at := w.head.find(Key{ID: e.Peer})
	if _, ok := w.head.get(at); ok {
		return false, nil
	}
	w.ownHead().put(at, r)
	if w.over(w.head) {
		return true, w.fail(w.promote())
	}
	return true, nil
}

// Delete removes the edge to peer and returns it; ok is false, and nothing
// changed, when there is none.
func (w *Writer) Delete(peer uint64) (old Edge, ok bool, err error) {
	if w.err != nil {
		return old, false, w.err
	}
	var r row
	if w.head.tree != nil {
		r, ok, err = w.treeDelete(peer)
		w.fail(err)
	} else {
		k := Key{ID: peer}
		at := w.head.find(k)
		if r, ok = w.head.get(at); ok {
			w.ownHead().drop(at, k)
		}
	}
	if err != nil || !ok {
		return Edge{}, false, err
	}
	return Edge{Peer: peer, Time: r.time, Props: r.props}, true, nil
}

// Update replaces time and properties of the edge to e.Peer and returns the edge
// as it was; ok is false, and nothing changed, when there is none. The writer
// copies e.Props.
func (w *Writer) Update(e Edge) (old Edge, ok bool, err error) {
	if err := w.admit(e); err != nil {
		return old, false, err
	}
	n := row{id: e.Peer, time: e.Time, props: cloneProps(e.Props)}
	var r row
	if w.head.tree != nil {
		r, ok, err = w.treeUpdate(n)
		w.fail(err)
	} else {
		at := w.head.find(Key{ID: e.Peer})
		if r, ok = w.head.get(at); ok {
			w.ownHead().put(at, n)
			if w.over(w.head) {
				err = w.fail(w.promote())
			}
		}
	}
	if err != nil || !ok {
		return Edge{}, false, err
	}
	return Edge{Peer: e.Peer, Time: r.time, Props: r.props}, true, nil
}

// SetVersion records the position of the list's last change in its head. The
// head of an emptied list is kept for the version's sake, unless that is 0.
func (w *Writer) SetVersion(v uint64) {
	if v == w.Version() {
		return
	}
	h := w.ownHead()
	if h.tree != nil {
		h.tree.version = v
	} else {
		h.version = v
	}
}

func (w *Writer) admit(e Edge) error {
	if w.err == nil && len(e.Props) > MaxProps {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrPropsTooLarge, len(e.Props), MaxProps)
	}
	return w.err
}

func cloneProps(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}

// fail makes err stick: pages may be half changed.
func (w *Writer) fail(err error) error {
	if err != nil && w.err == nil {
		w.err = err
	}
	return err
}

// over says that a leaf or a packed head must be split, or a branch.
func (w *Writer) over(p *Page) bool { return w.overs(p.kind, p.live, p.blob) }

// overs says that n rows with blob bytes of properties do not fit a page.
func (w *Writer) overs(k kind, n, blob int) bool {
	if k.branch() {
		return n > w.opt.Branch
	}
	return n > w.opt.SplitEntries || sizeBound(k, n, blob) > w.opt.MaxPageBytes
}

// ownHead returns the head for changing.
func (w *Writer) ownHead() *Page {
	if !w.top.own {
		w.top.page, w.top.own = w.top.page.clone(), true
		w.head = w.top.page
	}
	w.top.dirty = true
	return w.head
}

// setHead replaces the head by a new page.
func (w *Writer) setHead(p *Page) {
	w.head = p
	w.top = slot{page: p, own: true, dirty: true, whole: true}
}

// own returns a tree page for changing. p is the page as the writer sees it.
func (w *Writer) own(id PageID, p *Page) *Page {
	s := w.slots[id.pack()]
	if s == nil {
		s = &slot{page: p}
		w.keep(id, s)
	}
	if !s.own {
		s.page, s.own = s.page.clone(), true
	}
	s.dirty = true
	return s.page
}

func (w *Writer) keep(id PageID, s *slot) {
	if w.slots == nil {
		w.slots = make(map[uint64]*slot, 8)
	}
	w.slots[id.pack()] = s
}

// rewrite makes rows the whole content of a tree page.
func (w *Writer) rewrite(id PageID, rows *table) (*Page, error) {
	p, err := w.encode(0, rows)
	if err != nil {
		return nil, err
	}
	s := w.slots[id.pack()]
	if s == nil {
		s = new(slot)
		w.keep(id, s)
	}
	s.page, s.own, s.dirty, s.whole, s.gone = p, true, true, true, false
	return p, nil
}

// encode makes a page without deltas.
func (w *Writer) encode(version uint64, rows *table) (*Page, error) {
	w.buf = appendPage(w.buf[:0], 0, version, rows)
	p, err := DecodePage(bytes.Clone(w.buf))
	if err != nil {
		return nil, fmt.Errorf("edgelist: own page does not decode: %w", err)
	}
	return p, nil
}

// remove deletes a tree page.
func (w *Writer) remove(id PageID) {
	s := w.slots[id.pack()]
	if s == nil {
		s = new(slot)
		w.keep(id, s)
	}
	*s = slot{gone: true, dirty: !s.born, born: s.born}
}

// Flush hands every changed page to sink once, in order of PageID. The pages
// are published by that: the writer goes on with copies. A page takes its changes
// as an operand, unless it was rearranged, has taken MaxDeltas of them or is
// small.
func (w *Writer) Flush(sink Sink) error {
	if w.err != nil {
		return w.err
	}
	if w.top.dirty {
		if err := w.flushHead(sink); err != nil {
			return w.fail(fmt.Errorf("edgelist: page head: %w", err))
		}
	}
	var dirty []uint64
	for v, s := range w.slots {
		if s.dirty {
			dirty = append(dirty, v)
		}
	}
	slices.Sort(dirty)
	for _, v := range dirty {
		if err := w.flushPage(sink, unpack(v), w.slots[v]); err != nil {
			return w.fail(fmt.Errorf("edgelist: page %s: %w", unpack(v), err))
		}
	}
	return nil
}

func (w *Writer) flushHead(sink Sink) error {
	s := &w.top
	switch p := s.page; {
	case p.tree != nil:
		value := p.tree.append(nil)
		p.block.buf = value
		s.own, s.dirty, s.whole = false, false, false
		w.stored = true
		return sink.Put(PageID{}, p, value)
	case p.live == 0 && p.version == 0:
		if !w.stored {
			s.dirty = false
			return nil
		}
		w.stored = false
		w.head = &Page{kind: kindPacked}
		w.top = slot{page: w.head, own: true, whole: true}
		return sink.Remove(PageID{})
	}
	w.stored = true
	err := w.flushChanged(sink, PageID{}, s)
	w.head = s.page
	return err
}

func (w *Writer) flushPage(sink Sink, id PageID, s *slot) error {
	if s.gone {
		*s = slot{gone: true, born: true}
		return sink.Remove(id)
	}
	if !s.whole && s.page.fresh() == 0 {
		s.page.settle()
		s.own, s.dirty = false, false
		return nil
	}
	return w.flushChanged(sink, id, s)
}

// flushChanged hands out a page of entries that has changed.
func (w *Writer) flushChanged(sink Sink, id PageID, s *slot) error {
	p := s.page
	whole := s.whole
	*s = slot{page: p}
	if !whole && p.sizeBound() > smallPage && p.weight+p.fresh() < w.opt.MaxDeltas {
		weight := w.changes(p)
		w.buf = appendOperand(w.buf[:0], p.kind, weight, p.version, &w.puts, &w.drops)
		if putRatio*len(w.buf) < p.sizeBound() {
			p.weight += weight
			p.settle()
			return sink.Merge(id, p, bytes.Clone(w.buf))
		}
	}
	if whole && len(p.deltas) == 0 && p.buf != nil && p.kind != kindPacked {
		return sink.Put(id, p, p.buf)
	}
	n, err := w.encode(p.version, w.load(p))
	if err != nil {
		return err
	}
	s.page = n
	return sink.Put(id, n, n.buf)
}

// load fills w.rows with the entries of p.
func (w *Writer) load(p *Page) *table {
	w.rows.reset(p.kind)
	p.appendRows(&w.rows)
	return &w.rows
}

// changes fills w.puts and w.drops with p's fresh changes and returns their
// weight.
func (w *Writer) changes(p *Page) int {
	w.puts.reset(p.kind)
	w.drops.reset(p.kind)
	o := p.kind.order()
	for i := range p.deltas {
		switch d := &p.deltas[i]; {
		case !d.has(flagFresh):
		case d.has(flagDrop):
			w.drops.appendKey(d.key(o))
		default:
			r := p.deltaRow(d)
			w.puts.append(&r)
		}
	}
	return max(1, w.puts.n+w.drops.n)
}

// A page is written whole when that is not over putRatio times its operand: a
// value needs no fold to be read. Up to smallPage bytes that is always so.
const (
	putRatio  = 2
	smallPage = pageFixed + 2*leafRow
)
