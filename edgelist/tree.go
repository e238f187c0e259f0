package edgelist

import (
	"bytes"
	"slices"
)

// treeInsert adds r to both trees unless its peer is there.
func (w *Writer) treeInsert(r row) (bool, error) {
	at, err := w.descend(ByID, Key{ID: r.id})
	if err != nil {
		return false, err
	}
	if _, ok := w.path[len(w.path)-1].page.get(at); ok {
		return false, nil
	}
	if err := w.change(ByID, at, 1, func(p *Page) { p.put(at, r) }); err != nil {
		return false, err
	}
	if err := w.timeInsert(r); err != nil {
		return false, err
	}
	t := w.ownHead().tree
	t.count++
	t.countProps(nil, r.props)
	return true, nil
}

func (w *Writer) timeInsert(r row) error {
	r.props = nil
	at, err := w.descend(ByTime, r.key(ByTime))
	if err != nil {
		return err
	}
	if at.inBase || at.inDelta {
		if _, ok := w.path[len(w.path)-1].page.get(at); ok {
			return corruptf("edge to %d at %d is in the by-time tree only", r.id, r.time)
		}
	}
	return w.change(ByTime, at, 1, func(p *Page) { p.put(at, r) })
}

// treeDelete removes the edge to peer from both trees.
func (w *Writer) treeDelete(peer uint64) (row, bool, error) {
	k := Key{ID: peer}
	at, err := w.descend(ByID, k)
	if err != nil {
		return row{}, false, err
	}
	old, ok := w.path[len(w.path)-1].page.get(at)
	if !ok {
		return row{}, false, nil
	}
	if err := w.change(ByID, at, -1, func(p *Page) { p.drop(at, k) }); err != nil {
		return row{}, false, err
	}
	if err := w.timeDelete(old); err != nil {
		return row{}, false, err
	}
	t := w.ownHead().tree
	t.count--
	t.countProps(old.props, nil)
	return old, true, w.demote()
}

func (w *Writer) timeDelete(r row) error {
	k := r.key(ByTime)
	at, err := w.descend(ByTime, k)
	if err != nil {
		return err
	}
	if _, ok := w.path[len(w.path)-1].page.get(at); !ok {
		return corruptf("edge to %d at %d is in the by-id tree only", r.id, r.time)
	}
	return w.change(ByTime, at, -1, func(p *Page) { p.drop(at, k) })
}

// treeUpdate replaces time and properties of the edge to n.id.
func (w *Writer) treeUpdate(n row) (row, bool, error) {
	at, err := w.descend(ByID, Key{ID: n.id})
	if err != nil {
		return row{}, false, err
	}
	old, ok := w.path[len(w.path)-1].page.get(at)
	if !ok || old.time == n.time && bytes.Equal(old.props, n.props) {
		return old, ok, nil
	}
	if err := w.change(ByID, at, 0, func(p *Page) { p.put(at, n) }); err != nil {
		return row{}, false, err
	}
	if old.time != n.time {
		if err := w.timeDelete(old); err != nil {
			return row{}, false, err
		}
		if err := w.timeInsert(n); err != nil {
			return row{}, false, err
		}
	}
	w.ownHead().tree.countProps(old.props, n.props)
	return old, true, w.demote()
}

// countProps keeps the totals of properties when old ones give way to new ones.
func (t *treeHead) countProps(old, new []byte) {
	if len(old) > 0 {
		t.withProps--
		t.propBytes -= uint64(len(old))
	}
	if len(new) > 0 {
		t.withProps++
		t.propBytes += uint64(len(new))
	}
}

// promote turns a packed head that is over its bounds into two trees.
func (w *Writer) promote() error {
	head := w.head
	var rows table
	rows.reset(kindIDLeaf)
	head.appendRows(&rows)
	t := &treeHead{version: head.version, count: uint64(rows.n), next: 1}
	for _, b := range rows.props {
		t.countProps(nil, b)
	}
	w.setHead(&Page{kind: kindTree, tree: t})
	if err := w.plant(ByID, &rows); err != nil {
		return err
	}
	keys := make([]Key, rows.n)
	for i := range keys {
		keys[i] = rows.keyAt(ByTime, i)
	}
	slices.SortFunc(keys, ByTime.compare)
	rows.reset(kindTimeLeaf)
	for _, k := range keys {
		rows.appendKey(k)
	}
	return w.plant(ByTime, &rows)
}

// plant builds the tree of one order from rows in its order.
func (w *Writer) plant(o Order, rows *table) error {
	w.head.tree.roots[o] = root{}
	parts := w.partition(rows, even)
	children, err := w.store(o, 0, minKey(), nil, parts)
	if err != nil {
		return err
	}
	return w.raise(o, children)
}

// raise puts branches over the pages of a tree's top level until one is left,
// which is the root. The level is that of the present root.
func (w *Writer) raise(o Order, top []row) error {
	r := &w.head.tree.roots[o]
	for len(top) > 1 {
		w.rows.reset(nodeKind(o, r.height+1))
		for i := range top {
			w.rows.append(&top[i])
		}
		parts := w.partition(&w.rows, even)
		above, err := w.store(o, r.height+1, minKey(), nil, parts)
		if err != nil {
			return err
		}
		r.height++
		top = above
	}
	r.no = top[0].child
	return nil
}

// demote turns a list that has shrunk to half the bounds of a page back into a
// packed one.
func (w *Writer) demote() error {
	t := w.head.tree
	if t.count > uint64(w.opt.SplitEntries/2) ||
		uint64(sizeBound(kindPacked, int(t.count), 0))+t.count*propsRow+t.propBytes > uint64(w.opt.MaxPageBytes/2) {
		return nil
	}
	rows := &w.rows
	rows.reset(kindPacked)
	it := w.Iter(Query{})
	for it.Next() && uint64(rows.n) <= t.count {
		e := it.Edge()
		rows.append(&row{id: e.Peer, time: e.Time, props: e.Props})
	}
	if it.Err() != nil {
		return it.Err()
	}
	if uint64(rows.n) != t.count {
		return corruptf("by-id tree has %d edges, the head counts %d", rows.n, t.count)
	}
	for _, o := range []Order{ByID, ByTime} {
		if err := w.fell(o, t.roots[o].no, t.roots[o].height); err != nil {
			return err
		}
	}
	head, err := w.encode(t.version, rows)
	if err != nil {
		return err
	}
	w.setHead(head)
	return nil
}

// fell removes a page and all below it.
func (w *Writer) fell(o Order, no uint32, height uint8) error {
	if height > 0 {
		p, err := w.node(o, no, height)
		if err != nil {
			return err
		}
		var r row
		for c := p.first(); c.next(&r); {
			if err := w.fell(o, r.child, height-1); err != nil {
				return err
			}
		}
	}
	id := PageID{Order: o, No: no}
	if s := w.slots[id.pack()]; s != nil && s.gone {
		return corruptf("page %s is used twice", id)
	}
	w.remove(id)
	return nil
}
