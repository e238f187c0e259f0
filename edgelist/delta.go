package edgelist

import "slices"

// delta is one change laid over a page's base: an entry put or dropped. It
// holds no pointer, so that sets of deltas are cheap to copy.
type delta struct {
	id    uint64
	time  int64
	count uint64 // of a branch entry
	ref   uint32 // child of a branch entry; of a leaf's, 1 + index in Page.props or 0
	bits  uint32 // flags, and above them the base row that the key has or would have
}

// Flags of a delta.
const (
	flagDrop   = 1 << iota // the key is dropped, else put
	flagInBase             // the base has the key
	flagStored             // an operand already stored has the key
	flagFresh              // not handed out by Flush yet
	deltaFlags = iota
)

func (d *delta) has(flag uint32) bool { return d.bits&flag != 0 }
func (d *delta) pos() int             { return int(d.bits >> deltaFlags) }
func (d *delta) key(o Order) Key      { return o.key(d.time, d.id) }

// deltaRow is the entry that d puts.
func (p *Page) deltaRow(d *delta) row {
	r := row{id: d.id, time: d.time, count: d.count}
	if p.kind.branch() {
		r.child = d.ref
	} else if d.ref > 0 {
		r.props = p.props[d.ref-1]
	}
	return r
}

// deltaBound returns the first delta whose key is >= k.
func (p *Page) deltaBound(o Order, k Key) int {
	lo, hi := 0, len(p.deltas)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if o.compare(p.deltas[mid].key(o), k) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// place is where a key lies in a page: its base row and its delta, or where
// they would be.
type place struct {
	bi, di          int
	inBase, inDelta bool
}

func (p *Page) find(k Key) place {
	o := p.kind.order()
	at := place{di: p.deltaBound(o, k)}
	if at.di < len(p.deltas) && o.compare(p.deltas[at.di].key(o), k) == 0 {
		d := &p.deltas[at.di]
		at.inDelta, at.inBase, at.bi = true, d.has(flagInBase), d.pos()
		return at
	}
	at.bi = p.lowerBound(o, k)
	at.inBase = at.bi < p.n && o.compare(p.keyAt(o, at.bi), k) == 0
	return at
}

// get returns the live entry at a place.
func (p *Page) get(at place) (row, bool) {
	if at.inDelta {
		d := &p.deltas[at.di]
		if d.has(flagDrop) {
			return row{}, false
		}
		return p.deltaRow(d), true
	}
	if !at.inBase {
		return row{}, false
	}
	return p.rowAt(at.bi), true
}

// put sets the entry with r's key, which lies at the given place. The page keeps
// r.props.
func (p *Page) put(at place, r row) {
	if old, ok := p.get(at); ok {
		p.blob -= len(old.props)
	} else {
		p.live++
	}
	p.blob += len(r.props)
	d := p.deltaFor(at, r.key(p.kind.order()))
	d.bits = d.bits&^flagDrop | flagFresh
	d.time, d.count, d.ref = r.time, r.count, r.child
	if len(r.props) > 0 {
		p.props = append(p.props, r.props)
		d.ref = uint32(len(p.props))
	}
}

// drop removes the live entry at the given place.
func (p *Page) drop(at place, k Key) {
	old, ok := p.get(at)
	if !ok {
		return
	}
	p.live--
	p.blob -= len(old.props)
	if at.inDelta && !p.deltas[at.di].has(flagInBase|flagStored) {
		p.deltas = slices.Delete(p.deltas, at.di, at.di+1)
		return
	}
	d := p.deltaFor(at, k)
	d.bits |= flagDrop | flagFresh
	d.count, d.ref = 0, 0
}

// deltaFor returns the delta at a place, made when there is none.
func (p *Page) deltaFor(at place, k Key) *delta {
	if !at.inDelta {
		d := delta{id: k.ID, time: k.Time, bits: uint32(at.bi) << deltaFlags}
		if at.inBase {
			d.bits |= flagInBase
		}
		p.deltas = slices.Insert(p.deltas, at.di, d)
	}
	return &p.deltas[at.di]
}

// fresh is the number of changes that Flush has not handed out yet.
func (p *Page) fresh() int {
	n := 0
	for i := range p.deltas {
		if p.deltas[i].has(flagFresh) {
			n++
		}
	}
	return n
}

// settle marks all deltas as stored. A drop of a key that the base has not is
// of no more use in memory: the operands stored cancel each other.
func (p *Page) settle() {
	useless := false
	for i := range p.deltas {
		d := &p.deltas[i]
		if d.has(flagFresh) {
			d.bits = d.bits&^flagFresh | flagStored
			useless = useless || d.useless()
		}
	}
	if useless {
		p.deltas = slices.DeleteFunc(p.deltas, func(d delta) bool { return d.useless() })
	}
}

func (d *delta) useless() bool { return d.has(flagDrop) && !d.has(flagInBase) }
