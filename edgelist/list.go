package edgelist

import (
	"fmt"
	"math"
)

// List is the read side of an edge list. It reads the head once, when it is
// opened, and other pages as they are needed; its Source must go on to answer
// from the state that the head is of. A List may be used by many goroutines
// if its Source may.
type List struct {
	src  Source
	head *Page // never nil: an absent head is an empty packed one
}

// Open reads the head of a list. An absent head is the empty list.
func Open(src Source) (*List, error) {
	l := new(List)
	if err := l.open(src, src); err != nil {
		return nil, err
	}
	return l, nil
}

// open reads the head from headSrc; src serves all later pages.
func (l *List) open(src, headSrc Source) error {
	head, err := headSrc.Page(PageID{})
	if err != nil {
		return fmt.Errorf("edgelist: page head: %w", err)
	}
	if head == nil {
		head = &Page{kind: kindPacked}
	}
	if head.kind != kindPacked && head.kind != kindTree {
		return corruptf("page head: kind %d", head.kind)
	}
	l.src, l.head = src, head
	return nil
}

// Count is the number of edges.
func (l *List) Count() uint64 {
	if t := l.head.tree; t != nil {
		return t.count
	}
	return uint64(l.head.live)
}

// Version is the position of the last change, as the writer gave it.
func (l *List) Version() uint64 {
	if t := l.head.tree; t != nil {
		return t.version
	}
	return l.head.version
}

// Has says whether the list has an edge to peer.
func (l *List) Has(peer uint64) (bool, error) {
	_, ok, err := l.lookup(peer)
	return ok, err
}

// Get returns the edge to peer. Its properties belong to the list and may not
// be changed.
func (l *List) Get(peer uint64) (Edge, bool, error) {
	r, ok, err := l.lookup(peer)
	return Edge{Peer: r.id, Time: r.time, Props: r.props}, ok, err
}

func (l *List) lookup(peer uint64) (row, bool, error) {
	k := Key{ID: peer}
	leaf, err := l.leaf(ByID, k)
	if err != nil {
		return row{}, false, err
	}
	r, ok := leaf.get(leaf.find(k))
	return r, ok, nil
}

// CountWindow is the number of edges with since <= time < until. An until of
// math.MaxInt64 is no bound, so that the latest time of all can be counted.
func (l *List) CountWindow(since, until int64) (uint64, error) {
	if since >= until && until != math.MaxInt64 {
		return 0, nil
	}
	if l.head.tree == nil {
		return l.head.countWindow(since, until), nil
	}
	below, err := l.rank(ByTime, gap{key: Key{Time: since}})
	if err != nil {
		return 0, err
	}
	upto := l.head.tree.count
	if until != math.MaxInt64 {
		if upto, err = l.rank(ByTime, gap{key: Key{Time: until}}); err != nil {
			return 0, err
		}
	}
	if upto < below {
		return 0, corruptf("%d edges before %d, %d before %d", upto, until, below, since)
	}
	return upto - below, nil
}

// CountPeers is the number of edges to peers from first to last, both included.
func (l *List) CountPeers(first, last uint64) (uint64, error) {
	if first > last {
		return 0, nil
	}
	below, err := l.rank(ByID, gap{key: Key{ID: first}})
	if err != nil {
		return 0, err
	}
	upto, err := l.rank(ByID, gap{key: Key{ID: last}, after: true})
	if err != nil {
		return 0, err
	}
	if upto < below {
		return 0, corruptf("%d edges to peers up to %d, %d before %d", upto, last, below, first)
	}
	return upto - below, nil
}

// leaf returns the leaf that has k or would have it; of a packed list, the head.
func (l *List) leaf(o Order, k Key) (*Page, error) {
	if l.head.tree == nil {
		return l.head, nil
	}
	root := l.head.tree.roots[o]
	p, err := l.node(o, root.no, root.height)
	for level := root.height; level > 0 && err == nil; level-- {
		var r row
		c := p.after(k)
		if !c.prev(&r) {
			return nil, corruptf("%s branch at height %d has no child for id %d, time %d", o, level, k.ID, k.Time)
		}
		p, err = l.node(o, r.child, level-1)
	}
	return p, err
}

// node loads a tree page and proves that it is of the kind its place asks for.
func (l *List) node(o Order, no uint32, level uint8) (*Page, error) {
	id := PageID{Order: o, No: no}
	p, err := l.src.Page(id)
	if err != nil {
		return nil, fmt.Errorf("edgelist: page %s: %w", id, err)
	}
	if p == nil {
		return nil, corruptf("page %s is missing", id)
	}
	if want := nodeKind(o, level); p.kind != want {
		return nil, corruptf("page %s: kind %d at height %d, not %d", id, p.kind, level, want)
	}
	return p, nil
}

func nodeKind(o Order, level uint8) kind {
	switch {
	case o == ByID && level == 0:
		return kindIDLeaf
	case o == ByID:
		return kindIDBranch
	case level == 0:
		return kindTimeLeaf
	}
	return kindTimeBranch
}
