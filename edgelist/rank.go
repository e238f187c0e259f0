package edgelist

import "math"

// gap is a place between entries: before the entry with a key, or behind it.
// The entry need not exist.
type gap struct {
	key   Key
	after bool
}

// compare is negative when g lies before h.
func (g gap) compare(o Order, h gap) int {
	if c := o.compare(g.key, h.key); c != 0 || g.after == h.after {
		return c
	}
	if g.after {
		return 1
	}
	return -1
}

// at returns a cursor standing in gap g.
func (p *Page) at(g gap) cursor {
	if g.after {
		return p.after(g.key)
	}
	return p.before(g.key)
}

// sum is the number of edges below the branch entries before the gap.
func (c *cursor) sum() uint64 {
	n, _ := c.p.sumTo(0, c.bi, math.MaxUint64)
	for i := range c.p.deltas[:c.di] {
		d := &c.p.deltas[i]
		if d.has(flagInBase) {
			n -= c.p.block.at(colCount, d.pos())
		}
		if !d.has(flagDrop) {
			n += d.count
		}
	}
	return n
}

// sumTo adds up the counts of base rows i to j-1, but stops before the row with
// which the sum would reach limit. It returns the sum and the row it stopped at.
func (b *block) sumTo(i, j int, limit uint64) (sum uint64, stop int) {
	col := b.cols[colCount]
	for ; i < j; i++ {
		next := sum + b.read(&col, i)
		if next >= limit {
			break
		}
		sum = next
	}
	return sum, i
}

// rank is the number of edges before gap g in order o. On a packed list only
// ByID has ranks.
func (l *List) rank(o Order, g gap) (uint64, error) {
	if l.head.tree == nil {
		c := l.head.at(g)
		return uint64(c.rank()), nil
	}
	root := l.head.tree.roots[o]
	p, err := l.node(o, root.no, root.height)
	var before uint64
	for level := root.height; level > 0 && err == nil; level-- {
		var r row
		c := p.after(g.key)
		if !c.prev(&r) {
			return 0, corruptf("%s branch at height %d has no child for id %d, time %d", o, level, g.key.ID, g.key.Time)
		}
		before += c.sum()
		p, err = l.node(o, r.child, level-1)
	}
	if err != nil {
		return 0, err
	}
	c := p.at(g)
	return before + uint64(c.rank()), nil
}

// child finds, in a branch, the child that has the gap of the given rank. The
// cursor stands before that child; the rank returned is that of the gap within it.
func (p *Page) child(rank uint64) (cursor, uint64) {
	c := p.first()
	for {
		upto := p.n
		if c.di < len(p.deltas) {
			upto = p.deltas[c.di].pos()
		}
		sum, stop := p.sumTo(c.bi, upto, rank)
		rank -= sum
		c.bi = stop
		if stop < upto || c.di == len(p.deltas) {
			return c, rank
		}
		d := &p.deltas[c.di]
		if !d.has(flagDrop) {
			if d.count >= rank {
				return c, rank
			}
			rank -= d.count
		}
		c.di++
		if d.has(flagInBase) {
			c.bi++
		}
	}
}
