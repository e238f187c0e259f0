package edgelist

import "math"

// step is one page on the way from a root to a leaf.
type step struct {
	no    uint32
	page  *Page
	sep   Key  // of the page's entry in the branch above
	first bool // the page is the first of its level
	last  bool // the page is the last of its level
}

// bias says where a page that must be split is cut. Lists mostly grow at one end,
// by time or by ids that ascend: there the full side is left nearly full, as
// nothing will be added to it.
type bias uint8

const (
	even        bias = iota
	append9to1       // grows at its end: the left part keeps nine tenths
	prepend1to9      // grows at its start
)

// descend fills w.path with the pages from the root of order o to the leaf of k
// and returns k's place there.
func (w *Writer) descend(o Order, k Key) (place, error) {
	root := w.head.tree.roots[o]
	p, err := w.node(o, root.no, root.height)
	w.path = append(w.path[:0], step{no: root.no, page: p, first: true, last: true})
	for level := root.height; level > 0 && err == nil; level-- {
		above := w.path[len(w.path)-1]
		var r row
		c := p.after(k)
		last := c.bi == p.n && c.di == len(p.deltas)
		if !c.prev(&r) {
			return place{}, corruptf("%s branch at height %d has no child for id %d, time %d", o, level, k.ID, k.Time)
		}
		p, err = w.node(o, r.child, level-1)
		w.path = append(w.path, step{
			no: r.child, page: p, sep: r.key(o),
			first: above.first && c.bi == 0 && c.di == 0,
			last:  above.last && last,
		})
	}
	if err != nil {
		return place{}, err
	}
	return p.find(k), nil
}

// change applies do, which adds d entries at a place, to the leaf at the end of
// w.path, and brings counts, fills and heights above it in order.
func (w *Writer) change(o Order, at place, d int, do func(p *Page)) error {
	depth := len(w.path) - 1
	leaf := w.owned(o, depth)
	cut := even
	switch s := &w.path[depth]; {
	case s.last && at.bi == leaf.n && at.di == len(leaf.deltas):
		cut = append9to1
	case s.first && at.bi == 0 && at.di == 0:
		cut = prepend1to9
	}
	blob := leaf.blob
	do(leaf)
	shrunk := d < 0 || leaf.blob < blob
	for i := depth; i > 0; i-- {
		if err := w.settle(o, i, d, cut, shrunk); err != nil {
			return err
		}
	}
	return w.settleRoot(o, cut)
}

// owned makes the page at a depth of w.path changeable.
func (w *Writer) owned(o Order, depth int) *Page {
	s := &w.path[depth]
	s.page = w.own(PageID{Order: o, No: s.no}, s.page)
	return s.page
}

// settle counts a change of d edges below the page at a depth in the branch
// above it, and splits or fills up the page.
func (w *Writer) settle(o Order, depth, d int, cut bias, shrunk bool) error {
	s := &w.path[depth]
	level := uint8(len(w.path) - 1 - depth)
	switch {
	case w.over(s.page):
		parts := w.partition(w.load(s.page), cut)
		return w.replace(o, depth, s.sep, level, []uint32{s.no}, parts)
	case shrunk && w.under(s.page):
		return w.refill(o, depth, level)
	case d == 0:
		return nil
	}
	parent := w.owned(o, depth-1)
	at := parent.find(s.sep)
	r, ok := parent.get(at)
	if !ok {
		return corruptf("%s branch %d lost its child %d", o, w.path[depth-1].no, s.no)
	}
	r.count += uint64(d)
	parent.put(at, r)
	return nil
}

// settleRoot splits a root that is over its bounds, and drops a root branch
// with one child.
func (w *Writer) settleRoot(o Order, cut bias) error {
	s := &w.path[0]
	r := &w.ownHead().tree.roots[o]
	if w.over(s.page) {
		parts := w.partition(w.load(s.page), cut)
		top, err := w.store(o, r.height, minKey(), []uint32{s.no}, parts)
		if err != nil {
			return err
		}
		return w.raise(o, top)
	}
	for p := s.page; r.height > 0 && p.live == 1; {
		var child row
		c := p.first()
		c.next(&child)
		w.remove(PageID{Order: o, No: r.no})
		r.no, r.height = child.child, r.height-1
		var err error
		if p, err = w.node(o, r.no, r.height); err != nil {
			return err
		}
	}
	return nil
}

// under says that a page is below a quarter of its bounds and should be merged
// with a neighbour.
func (w *Writer) under(p *Page) bool {
	if p.kind.branch() {
		return p.live < max(2, w.opt.Branch/4)
	}
	return p.live < max(1, w.opt.SplitEntries/4) && p.sizeBound() < w.opt.MaxPageBytes/4
}

// refill merges the page at a depth with a neighbour, or evens the two out when
// they do not fit in three quarters of a page.
func (w *Writer) refill(o Order, depth int, level uint8) error {
	s := &w.path[depth]
	parent := w.owned(o, depth-1)
	var left, right row
	c := parent.after(s.sep)
	if !c.prev(&right) {
		return corruptf("%s branch %d lost its child %d", o, w.path[depth-1].no, s.no)
	}
	if !c.prev(&left) {
		left = right
		c = parent.after(s.sep)
		if !c.next(&right) {
			return corruptf("%s branch %d has one child", o, w.path[depth-1].no)
		}
	}
	lp, err := w.node(o, left.child, level)
	if err != nil {
		return err
	}
	rp, err := w.node(o, right.child, level)
	if err != nil {
		return err
	}
	rp.appendRows(w.load(lp))
	sep := right.key(o)
	parent.drop(parent.find(sep), sep)
	parts := []table{w.rows}
	if !w.fits(&w.rows, 3, 4) {
		parts = w.partition(&w.rows, even)
	}
	return w.replace(o, depth, left.key(o), level, []uint32{left.child, right.child}, parts)
}

// replace stores parts in place of the pages nos, and as the children of the
// branch above depth. The first part keeps the separator; the branch has no
// entries any more for the other pages.
func (w *Writer) replace(o Order, depth int, sep Key, level uint8, nos []uint32, parts []table) error {
	children, err := w.store(o, level, sep, nos, parts)
	if err != nil {
		return err
	}
	parent := w.owned(o, depth-1)
	for _, r := range children {
		parent.put(parent.find(r.key(o)), r)
	}
	return nil
}

// store writes parts as pages of a level, to the pages nos first and to new
// ones then, and removes pages left over. It returns the branch entries.
func (w *Writer) store(o Order, level uint8, sep Key, nos []uint32, parts []table) ([]row, error) {
	children := make([]row, 0, len(parts))
	for i := range parts {
		part := &parts[i]
		no, err := w.number(o, nos, i)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			sep = part.keyAt(o, 0)
		}
		if _, err := w.rewrite(PageID{Order: o, No: no}, part); err != nil {
			return nil, err
		}
		children = append(children, row{id: sep.ID, time: sep.Time, child: no, count: part.edges()})
	}
	for _, no := range nos[min(len(parts), len(nos)):] {
		w.remove(PageID{Order: o, No: no})
	}
	return children, nil
}

// number returns nos[i] or a new page number.
func (w *Writer) number(o Order, nos []uint32, i int) (uint32, error) {
	if i < len(nos) {
		return nos[i], nil
	}
	t := w.ownHead().tree
	if t.next > math.MaxUint32 {
		return 0, ErrFull
	}
	no := uint32(t.next)
	t.next++
	if id := (PageID{Order: o, No: no}); w.slots[id.pack()] == nil {
		w.keep(id, &slot{born: true})
	}
	return no, nil
}

// fits says whether rows keep to num/den of a page's bounds.
func (w *Writer) fits(rows *table, num, den int) bool {
	if rows.kind.branch() {
		return rows.n*den <= w.opt.Branch*num
	}
	size := sizeBound(rows.kind, rows.n, rows.propsLen())
	return rows.n*den <= w.opt.SplitEntries*num && size*den <= w.opt.MaxPageBytes*num
}

// partition cuts rows into parts that each fit a page: one when they do, two by
// weight when that is enough, else as many as it takes.
func (w *Writer) partition(rows *table, cut bias) []table {
	if w.fits(rows, 1, 1) {
		return []table{*rows}
	}
	i := w.cutAt(rows, cut)
	left, right := rows.slice(0, i), rows.slice(i, rows.n)
	if w.fits(&left, 1, 1) && w.fits(&right, 1, 1) {
		return []table{left, right}
	}
	var parts []table
	from, blob := 0, 0
	if rows.kind.branch() {
		// Evenly, as no branch may be left with one child.
		for n := (rows.n + w.opt.Branch - 1) / w.opt.Branch; n > 1; n-- {
			size := (rows.n - from) / n
			parts = append(parts, rows.slice(from, from+size))
			from += size
		}
		return append(parts, rows.slice(from, rows.n))
	}
	for i := range rows.n {
		size := rows.propsLenAt(i)
		blob += size
		if w.overs(rows.kind, i+1-from, blob) {
			parts = append(parts, rows.slice(from, i))
			from, blob = i, size
		}
	}
	return append(parts, rows.slice(from, rows.n))
}

// cutAt returns the row at which the bias cuts. A row weighs its share of a
// page's entries and its share of a page's bytes. Neither part of a branch has
// less than two children.
func (w *Writer) cutAt(rows *table, cut bias) int {
	weigh := func(i int) int {
		return w.opt.MaxPageBytes + w.opt.SplitEntries*(leafRow+propsRow+rows.propsLenAt(i))
	}
	total := 0
	for i := range rows.n {
		total += weigh(i)
	}
	goal := total / 2
	switch cut {
	case append9to1:
		goal = total / 10 * 9
	case prepend1to9:
		goal = total / 10
	}
	least := 1
	if rows.kind.branch() {
		least = 2
	}
	at, sum := 0, 0
	for at < rows.n && sum < goal {
		sum += weigh(at)
		at++
	}
	return min(max(at, least), rows.n-least)
}
