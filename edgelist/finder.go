package edgelist

// Finder looks up peers one after the other. Ascending peers that lie in one leaf share the
// way to it, so many look-ups cost about as much as a merge of two sorted lists: the finder
// leaps from leaf to leaf. Peers in any other order are found as well.
type Finder struct {
	list *List
	leaf *Page
	// The leaf holds the peers from least up to below, where bounded.
	least, below uint64
	bounded      bool
}

// Finder returns a finder.
func (l *List) Finder() Finder { return Finder{list: l} }

// Time is when the edge to peer came; false: there is none.
func (f *Finder) Time(peer uint64) (int64, bool, error) {
	if f.leaf == nil || peer < f.least || f.bounded && peer >= f.below {
		if err := f.descend(peer); err != nil {
			return 0, false, err
		}
	}
	r, ok := f.leaf.get(f.leaf.find(Key{ID: peer}))
	return r.time, ok, nil
}

// descend goes to the leaf that has peer or would have it.
func (f *Finder) descend(peer uint64) error {
	f.leaf, f.least, f.bounded = nil, 0, false
	t := f.list.head.tree
	if t == nil {
		f.leaf = f.list.head
		return nil
	}
	k := Key{ID: peer}
	root := t.roots[ByID]
	p, err := f.list.node(ByID, root.no, root.height)
	for level := root.height; level > 0 && err == nil; level-- {
		var r row
		after := p.after(k)
		c := after
		if !c.prev(&r) {
			return corruptf("%s branch at height %d has no child for id %d", ByID, level, peer)
		}
		child := r.child
		f.least = max(f.least, r.id)
		if after.next(&r) && (!f.bounded || r.id < f.below) {
			f.below, f.bounded = r.id, true
		}
		p, err = f.list.node(ByID, child, level-1)
	}
	if err != nil {
		return err
	}
	f.leaf = p
	return nil
}
