package edgelist

// cursor walks the live entries of a page: its base with its deltas laid over.
// It stands in a gap: all base rows before bi and all deltas before di have
// smaller keys than all from there on, so it can walk either way from anywhere.
type cursor struct {
	p      *Page
	bi, di int
}

// first stands before all entries, last after all.
func (p *Page) first() cursor { return cursor{p: p} }
func (p *Page) last() cursor  { return cursor{p: p, bi: p.n, di: len(p.deltas)} }

// before stands before the first entry whose key is >= k.
func (p *Page) before(k Key) cursor {
	o := p.kind.order()
	return cursor{p: p, bi: p.lowerBound(o, k), di: p.deltaBound(o, k)}
}

// after stands behind the last entry whose key is <= k.
func (p *Page) after(k Key) cursor {
	c := p.before(k)
	o := p.kind.order()
	if c.bi < p.n && o.compare(p.keyAt(o, c.bi), k) == 0 {
		c.bi++
	}
	if c.di < len(p.deltas) && o.compare(p.deltas[c.di].key(o), k) == 0 {
		c.di++
	}
	return c
}

// atRank stands before the entry with rank r (from 0), behind all when there
// are at most r.
func (p *Page) atRank(r int) cursor {
	// Between two deltas the rank grows with the base row.
	shift := 0 // rank of the next base row less its number
	for i := range p.deltas {
		d := &p.deltas[i]
		pos := d.pos()
		if r < pos+shift {
			return cursor{p: p, bi: r - shift, di: i}
		}
		if d.has(flagDrop) {
			if d.has(flagInBase) {
				shift--
			}
			continue
		}
		if r == pos+shift {
			return cursor{p: p, bi: pos, di: i}
		}
		if !d.has(flagInBase) {
			shift++
		}
	}
	return cursor{p: p, bi: min(max(r-shift, 0), p.n), di: len(p.deltas)}
}

// next stores the entry behind the gap in r and steps over it.
func (c *cursor) next(r *row) bool {
	o := c.p.kind.order()
	for c.di < len(c.p.deltas) {
		d := &c.p.deltas[c.di]
		if c.bi < c.p.n {
			cmp := o.compare(c.p.keyAt(o, c.bi), d.key(o))
			if cmp < 0 {
				break
			}
			if cmp == 0 {
				c.bi++
			}
		}
		c.di++
		if !d.has(flagDrop) {
			*r = c.p.deltaRow(d)
			return true
		}
	}
	if c.bi >= c.p.n {
		return false
	}
	*r = c.p.rowAt(c.bi)
	c.bi++
	return true
}

// prev stores the entry before the gap in r and steps back over it.
func (c *cursor) prev(r *row) bool {
	o := c.p.kind.order()
	for c.di > 0 {
		d := &c.p.deltas[c.di-1]
		if c.bi > 0 {
			cmp := o.compare(c.p.keyAt(o, c.bi-1), d.key(o))
			if cmp > 0 {
				break
			}
			if cmp == 0 {
				c.bi--
			}
		}
		c.di--
		if !d.has(flagDrop) {
			*r = c.p.deltaRow(d)
			return true
		}
	}
	if c.bi == 0 {
		return false
	}
	c.bi--
	*r = c.p.rowAt(c.bi)
	return true
}

// rank is the number of live entries before the gap.
func (c *cursor) rank() int {
	n := c.bi
	for i := range c.p.deltas[:c.di] {
		d := &c.p.deltas[i]
		if d.has(flagDrop) && d.has(flagInBase) {
			n--
		} else if !d.has(flagDrop) && !d.has(flagInBase) {
			n++
		}
	}
	return n
}

// appendRows adds all live entries of p to t.
func (p *Page) appendRows(t *table) {
	i := 0
	for j := range p.deltas {
		d := &p.deltas[j]
		t.appendBlock(&p.block, i, d.pos())
		i = d.pos()
		if d.has(flagInBase) {
			i++
		}
		if !d.has(flagDrop) {
			r := p.deltaRow(d)
			t.append(&r)
		}
	}
	t.appendBlock(&p.block, i, p.n)
}
