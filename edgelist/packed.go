package edgelist

import "math"

// countWindow counts the edges of a packed head by time.
func (p *Page) countWindow(since, until int64) uint64 {
	in := func(t int64) bool { return t >= since && (t < until || until == math.MaxInt64) }
	var n uint64
	for i := range p.n {
		if in(int64(p.block.at(colTime, i))) {
			n++
		}
	}
	for i := range p.deltas {
		d := &p.deltas[i]
		if d.has(flagInBase) && in(int64(p.block.at(colTime, d.pos()))) {
			n--
		}
		if !d.has(flagDrop) && in(d.time) {
			n++
		}
	}
	return n
}

// timeHeap gives the edges of a packed head in order of time: its first element
// is the next one. A page of a listing takes few of them, so a heap is cheaper
// than sorting all.
type timeHeap struct {
	keys []Key
	desc bool
}

// timeOrder collects p's edges between two gaps of the time order.
func (p *Page) timeOrder(lo, hi gap, desc bool) timeHeap {
	h := timeHeap{keys: make([]Key, 0, p.live), desc: desc}
	add := func(k Key) {
		low := timeLess(k, lo.key) || lo.after && k == lo.key
		high := timeLess(hi.key, k) || !hi.after && k == hi.key
		if !low && !high {
			h.keys = append(h.keys, k)
		}
	}
	// The heap does not care for the order in which keys come.
	i := 0
	for j := range p.deltas {
		d := &p.deltas[j]
		if !d.has(flagDrop) {
			add(Key{Time: d.time, ID: d.id})
		}
		if d.has(flagInBase) {
			for ; i < d.pos(); i++ {
				add(p.keyAt(ByTime, i))
			}
			i++
		}
	}
	for ; i < p.n; i++ {
		add(p.keyAt(ByTime, i))
	}
	for i := len(h.keys)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	return h
}

func (h *timeHeap) less(i, j int) bool {
	if h.desc {
		i, j = j, i
	}
	return timeLess(h.keys[i], h.keys[j])
}

func timeLess(a, b Key) bool { return a.Time < b.Time || a.Time == b.Time && a.ID < b.ID }

func (h *timeHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.keys) {
			return
		}
		if child+1 < len(h.keys) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return
		}
		h.keys[i], h.keys[child] = h.keys[child], h.keys[i]
		i = child
	}
}

// pop takes the next edge's key.
func (h *timeHeap) pop() (Key, bool) {
	if len(h.keys) == 0 {
		return Key{}, false
	}
	k := h.keys[0]
	last := len(h.keys) - 1
	h.keys[0] = h.keys[last]
	h.keys = h.keys[:last]
	h.down(0)
	return k, true
}
