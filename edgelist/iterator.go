package edgelist

import "math"

// Query says which edges an Iterator gives, and in which order. The zero value
// is all edges by peer, ascending.
type Query struct {
	Order      Order
	Descending bool
	// From, when set, starts right behind this key in the direction of the
	// walk, whether or not an edge with it exists. ByID looks at its ID only.
	From *Key
	// Skip passes over this many edges first: O(log n) in tree form, except
	// ByID within a window.
	Skip uint64
	// Since and Until keep edges with Since <= Time < Until. Both 0 is no
	// window; an Until of math.MaxInt64 is no upper bound. ByTime only the
	// window is read; ByID all edges are, and those outside are passed over.
	Since, Until int64
	// Bare leaves properties out, where they would have to be looked up.
	Bare bool
}

func (q *Query) windowed() bool { return q.Since != 0 || q.Until != 0 }

// contains says whether time t lies in the window.
func (q *Query) contains(t int64) bool {
	return !q.windowed() || t >= q.Since && (t < q.Until || q.Until == math.MaxInt64)
}

// bounds returns the gaps between which the edges of q lie.
func (q *Query) bounds() (lo, hi gap) {
	lo = gap{key: minKey()}
	hi = gap{key: Key{Time: math.MaxInt64, ID: math.MaxUint64}, after: true}
	if q.Order == ByTime && q.windowed() {
		lo.key.Time = q.Since
		if q.Until != math.MaxInt64 {
			hi = gap{key: Key{Time: q.Until}}
		}
	}
	if q.From == nil {
		return lo, hi
	}
	from := gap{key: q.Order.key(q.From.Time, q.From.ID), after: !q.Descending}
	if q.Descending && from.compare(q.Order, hi) < 0 {
		hi = from
	}
	if !q.Descending && from.compare(q.Order, lo) > 0 {
		lo = from
	}
	return lo, hi
}

// Iterator walks a list's edges. It reads pages as it goes; one made from a
// Writer is good until the writer's next change.
type Iterator struct {
	list   *List
	q      Query
	lo, hi gap
	path   []cursor // in the branches, from the root down, each past the child below it
	leaf   cursor
	heap   timeHeap // packed, ByTime: instead of path and leaf
	packed bool
	begun  bool
	done   bool
	edge   Edge
	err    error
}

// Iter returns an iterator before the first edge of q.
func (l *List) Iter(q Query) *Iterator {
	it := &Iterator{list: l, q: q}
	it.lo, it.hi = q.bounds()
	it.packed = q.Order == ByTime && l.head.tree == nil
	return it
}

// Edge is the edge that Next moved to. Its properties belong to the list and
// may not be changed.
func (it *Iterator) Edge() Edge { return it.edge }

// Err is the error that ended the walk, nil at the end of the list.
func (it *Iterator) Err() error { return it.err }

// Next moves to the next edge; false means the end or an error.
func (it *Iterator) Next() bool {
	if !it.begun {
		it.begun = true
		it.err = it.start()
	}
	if it.done || it.err != nil {
		return false
	}
	var ok bool
	if ok, it.err = it.step(); it.err != nil || !ok {
		it.done = true
		return false
	}
	return true
}

// start stands before the first edge: in the gap of the query's key or, to
// skip, in the gap of the rank.
func (it *Iterator) start() error {
	if it.q.windowed() && it.q.Since >= it.q.Until && it.q.Until != math.MaxInt64 ||
		it.lo.compare(it.q.Order, it.hi) >= 0 || it.q.Skip >= it.list.Count() && it.q.Skip > 0 {
		it.done = true
		return nil
	}
	if it.packed {
		it.heap = it.list.head.timeOrder(it.lo, it.hi, it.q.Descending)
		for range it.q.Skip {
			it.heap.pop()
		}
		return nil
	}
	from := it.lo
	if it.q.Descending {
		from = it.hi
	}
	if it.q.Skip == 0 || it.q.Order == ByID && it.q.windowed() {
		return it.seek(from)
	}
	rank, err := it.list.rank(it.q.Order, from)
	if err != nil {
		return err
	}
	// Skip is less than the count, so the sum does not overflow.
	target := rank + it.q.Skip
	if it.q.Descending {
		target = rank - it.q.Skip
	}
	if it.q.Descending && it.q.Skip >= rank || target >= it.list.Count() && !it.q.Descending {
		it.done = true
		return nil
	}
	return it.seekRank(target)
}

// seek descends to the gap g.
func (it *Iterator) seek(g gap) error {
	p, level, err := it.root()
	for ; level > 0 && err == nil; level-- {
		var r row
		c := p.after(g.key)
		if !c.prev(&r) {
			return corruptf("%s branch at height %d has no child for id %d, time %d", it.q.Order, level, g.key.ID, g.key.Time)
		}
		if !it.q.Descending {
			c.next(&r)
		}
		it.path = append(it.path, c)
		p, err = it.list.node(it.q.Order, r.child, level-1)
	}
	if err != nil {
		return err
	}
	it.leaf = p.at(g)
	return it.skipFiltered()
}

// seekRank descends to the gap that has rank edges before it.
func (it *Iterator) seekRank(rank uint64) error {
	p, level, err := it.root()
	for ; level > 0 && err == nil; level-- {
		var r row
		var c cursor
		c, rank = p.child(rank)
		if !c.next(&r) {
			return corruptf("%s branch at height %d has no child for rank %d", it.q.Order, level, rank)
		}
		if it.q.Descending {
			c.prev(&r)
		}
		it.path = append(it.path, c)
		p, err = it.list.node(it.q.Order, r.child, level-1)
	}
	if err != nil {
		return err
	}
	it.leaf = p.atRank(int(min(rank, math.MaxInt32)))
	return nil
}

func (it *Iterator) root() (*Page, uint8, error) {
	t := it.list.head.tree
	if t == nil {
		return it.list.head, 0, nil
	}
	root := t.roots[it.q.Order]
	p, err := it.list.node(it.q.Order, root.no, root.height)
	return p, root.height, err
}

// skipFiltered skips edges of a ByID walk within a window, one by one.
func (it *Iterator) skipFiltered() error {
	for range it.q.Skip {
		if ok, err := it.step(); err != nil || !ok {
			it.done = true
			return err
		}
	}
	return nil
}

// step moves to the next edge of the query.
func (it *Iterator) step() (bool, error) {
	if it.packed {
		k, ok := it.heap.pop()
		if !ok {
			return false, nil
		}
		it.edge = Edge{Peer: k.ID, Time: k.Time}
		return true, it.fetchProps()
	}
	var r row
	for {
		ok, err := it.nextRow(&r)
		if err != nil || !ok {
			return false, err
		}
		at := gap{key: r.key(it.q.Order)}
		if it.q.Descending && at.compare(it.q.Order, it.lo) < 0 || !it.q.Descending && at.compare(it.q.Order, it.hi) >= 0 {
			return false, nil
		}
		if it.q.Order == ByID && !it.q.contains(r.time) {
			continue
		}
		it.edge = Edge{Peer: r.id, Time: r.time, Props: r.props}
		if it.q.Order == ByTime {
			return true, it.fetchProps()
		}
		return true, nil
	}
}

// nextRow takes the next entry of the leaf, or of the leaves behind it.
func (it *Iterator) nextRow(r *row) (bool, error) {
	for !it.move(&it.leaf, r) {
		level := len(it.path)
		for level > 0 && !it.move(&it.path[level-1], r) {
			level--
		}
		if level == 0 {
			return false, nil
		}
		for ; level <= len(it.path); level++ {
			p, err := it.list.node(it.q.Order, r.child, uint8(len(it.path)-level))
			if err != nil {
				return false, err
			}
			c := p.first()
			if it.q.Descending {
				c = p.last()
			}
			if level == len(it.path) {
				it.leaf = c
				break
			}
			if !it.move(&c, r) {
				return false, corruptf("%s branch without children", it.q.Order)
			}
			it.path[level] = c
		}
	}
	return true, nil
}

// move steps a cursor in the direction of the walk.
func (it *Iterator) move(c *cursor, r *row) bool {
	if it.q.Descending {
		return c.prev(r)
	}
	return c.next(r)
}

// fetchProps adds the properties of an edge found by time, from the by-id side.
func (it *Iterator) fetchProps() error {
	head := it.list.head
	if it.q.Bare || head.tree == nil && head.blob == 0 || head.tree != nil && head.tree.withProps == 0 {
		return nil
	}
	r, ok, err := it.list.lookup(it.edge.Peer)
	if err == nil && (!ok || r.time != it.edge.Time) {
		err = corruptf("edge to %d at %d is in the by-time tree only", it.edge.Peer, it.edge.Time)
	}
	it.edge.Props = r.props
	return err
}
