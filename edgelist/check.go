package edgelist

// Stats is what Check found of a list.
type Stats struct {
	Tree      bool   // the list is in tree form
	Count     uint64 // edges
	Version   uint64
	WithProps uint64 // edges that have properties
	Pages     int    // the head included
	Bytes     int    // of all pages, as they would be written whole now
	Trees     [2]TreeStats
	// The largest page of its kind.
	MaxPageBytes, MaxLeafEntries, MaxBranchEntries int
}

// TreeStats is the shape of one order's tree.
type TreeStats struct {
	Height           int // branch levels above the leaves
	Leaves, Branches int
}

// Check reads a whole list and proves that it is sound: the order of entries
// and their bounds by separators, subtree counts and the count, the same edges
// in both trees, the totals of properties, page sizes, and that pages, which
// lists every stored page of the list (with or without its head), names those in use
// and no others. A nil pages skips the last. What is wrong is an error marked
// ErrCorrupt. It reads each page once; the memory is that of the page numbers.
func Check(src Source, pages func() ([]PageID, error)) (Stats, error) {
	l, err := Open(src)
	if err != nil {
		return Stats{}, err
	}
	c := checker{list: l, used: make(map[PageID]bool)}
	c.stats.Count, c.stats.Version = l.Count(), l.Version()
	if err := c.page(PageID{}, l.head); err != nil {
		return c.stats, err
	}
	if l.head.tree == nil {
		err = c.packed()
	} else {
		err = c.trees()
	}
	if err == nil && pages != nil {
		err = c.orphans(pages)
	}
	return c.stats, err
}

type checker struct {
	list      *List
	used      map[PageID]bool
	stats     Stats
	propBytes uint64
	digests   [2]uint64 // by order: sums over the edges of the leaves
}

// page proves what holds for each page alone.
func (c *checker) page(id PageID, p *Page) error {
	if c.used[id] {
		return corruptf("page %s is used twice", id)
	}
	c.used[id] = true
	c.stats.Pages++
	if p.kind == kindTree {
		c.stats.Bytes += len(p.tree.append(nil))
		return nil
	}
	rows := decoded(p)
	size := len(appendPage(nil, 0, p.version, rows))
	c.stats.Bytes += size
	c.stats.MaxPageBytes = max(c.stats.MaxPageBytes, size)
	blob := rows.propsLen()
	if i, ok := rows.sorted(); !ok {
		return corruptf("page %s: entries %d and %d are out of order", id, i-1, i)
	}
	largest := &c.stats.MaxLeafEntries
	if p.kind.branch() {
		largest = &c.stats.MaxBranchEntries
	}
	*largest = max(*largest, rows.n)
	switch {
	case rows.n != p.live || blob != p.blob:
		return corruptf("page %s: %d entries and %d bytes of properties, %d and %d were counted", id, rows.n, blob, p.live, p.blob)
	case size > maxPageBytes:
		return corruptf("page %s: %d bytes, at most %d", id, size, maxPageBytes)
	case size > p.sizeBound():
		return corruptf("page %s: %d bytes, over its bound of %d", id, size, p.sizeBound())
	}
	return nil
}

func (c *checker) packed() error {
	var r row
	for cur := c.list.head.first(); cur.next(&r); {
		if len(r.props) > 0 {
			c.stats.WithProps++
		}
	}
	return nil
}

func (c *checker) trees() error {
	t := c.list.head.tree
	c.stats.Tree = true
	for o := range t.roots {
		root := t.roots[o]
		c.stats.Trees[o].Height = int(root.height)
		n, err := c.subtree(Order(o), root.no, root.height, minKey(), nil)
		if err != nil {
			return err
		}
		if n != t.count {
			return corruptf("%s tree has %d edges, the head counts %d", Order(o), n, t.count)
		}
	}
	if c.stats.WithProps != t.withProps || c.propBytes != t.propBytes {
		return corruptf("%d edges have %d bytes of properties, the head says %d and %d",
			c.stats.WithProps, c.propBytes, t.withProps, t.propBytes)
	}
	return c.same()
}

// subtree proves one page and all below it: each key k has lower <= k, and
// k < upper when there is one. It returns the number of edges.
func (c *checker) subtree(o Order, no uint32, level uint8, lower Key, upper *Key) (uint64, error) {
	p, err := c.list.node(o, no, level)
	if err != nil {
		return 0, err
	}
	id := PageID{Order: o, No: no}
	if uint64(no) >= c.list.head.tree.next {
		return 0, corruptf("page %s: the head gives out %d next", id, c.list.head.tree.next)
	}
	if err := c.page(id, p); err != nil {
		return 0, err
	}
	rows := decoded(p)
	for i := range rows.n {
		k := rows.keyAt(o, i)
		if o.compare(k, lower) < 0 || upper != nil && o.compare(k, *upper) >= 0 {
			return 0, corruptf("page %s: entry %d (id %d, time %d) is outside of its separators", id, i, k.ID, k.Time)
		}
	}
	if level == 0 {
		c.leaf(o, rows)
		return uint64(rows.n), nil
	}
	c.stats.Trees[o].Branches++
	if rows.n == 0 || o.compare(rows.keyAt(o, 0), lower) != 0 {
		return 0, corruptf("page %s: the first separator is not the branch's own", id)
	}
	if rows.n == 1 {
		return 0, corruptf("page %s: a branch with one child", id)
	}
	return c.children(o, id, level, rows, upper)
}

// children proves the pages below a branch.
func (c *checker) children(o Order, id PageID, level uint8, rows *table, upper *Key) (uint64, error) {
	var total uint64
	for i := range rows.n {
		bound := upper
		if i+1 < rows.n {
			k := rows.keyAt(o, i+1)
			bound = &k
		}
		r := rows.at(i)
		n, err := c.subtree(o, r.child, level-1, r.key(o), bound)
		if err != nil {
			return 0, err
		}
		if n != r.count {
			return 0, corruptf("page %s: child %d has %d edges, %d were counted", id, r.child, n, r.count)
		}
		total += n
	}
	return total, nil
}

func (c *checker) leaf(o Order, rows *table) {
	c.stats.Trees[o].Leaves++
	for i := range rows.n {
		c.digests[o] += digest(rows.cols[colID][i], rows.cols[colTime][i])
	}
	for _, b := range rows.props {
		if len(b) > 0 {
			c.stats.WithProps++
			c.propBytes += uint64(len(b))
		}
	}
}

// decoded returns the entries of p.
func decoded(p *Page) *table {
	t := new(table)
	t.reset(p.kind)
	p.appendRows(t)
	return t
}

// digest is a hash of an edge. Sums of digests compare sets of edges in whatever
// order they come: that two which differ have the same sum has the chance of one
// in 2^64.
func digest(id, time uint64) uint64 { return mix(mix(id) + time) }

// mix is the finalizer of splitmix64, after its step.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// same proves that both trees hold the same edges, by their digests: looking for
// each edge of one in the other would read a page an edge. Where they differ it
// does that, to say which. They hold equally many, and within a tree no two are
// the same, so looking from one side is enough.
func (c *checker) same() error {
	if c.digests[ByID] == c.digests[ByTime] {
		return nil
	}
	it := c.list.Iter(Query{})
	for it.Next() {
		e := it.Edge()
		k := Key{Time: e.Time, ID: e.Peer}
		leaf, err := c.list.leaf(ByTime, k)
		if err != nil {
			return err
		}
		if _, ok := leaf.get(leaf.find(k)); !ok {
			return corruptf("edge to %d at %d is in the by-id tree only", e.Peer, e.Time)
		}
	}
	return it.Err()
}

func (c *checker) orphans(pages func() ([]PageID, error)) error {
	ids, err := pages()
	if err != nil {
		return err
	}
	seen := 0
	for _, id := range ids {
		if !c.used[id] {
			return corruptf("page %s belongs to no tree", id)
		}
		if id != (PageID{}) {
			seen++
		}
	}
	if want := len(c.used) - 1; seen != want {
		return corruptf("%d tree pages are in use, %d were listed", want, seen)
	}
	return nil
}
