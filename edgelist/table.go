package edgelist

import "encoding/binary"

// table is decoded entries, column by column, sorted by key: what a page is
// rewritten from. It is reset and used again; only the columns of its kind are
// filled.
type table struct {
	kind  kind
	n     int
	cols  [numCols][]uint64
	props [][]byte // as long as n, or empty when no entry has properties
}

// reset empties t for entries of a kind.
func (t *table) reset(k kind) {
	t.kind, t.n = k, 0
	for c := range t.cols {
		t.cols[c] = t.cols[c][:0]
	}
	clear(t.props)
	t.props = t.props[:0]
}

// reserve empties t and makes room for n entries.
func (t *table) reserve(k kind, n int) {
	t.reset(k)
	cols := k.columns()
	for j := range len(cols) {
		c := cols[j]
		t.cols[c] = make([]uint64, 0, n)
	}
}

// append adds one entry.
func (t *table) append(r *row) {
	cols := t.kind.columns()
	for j := range len(cols) {
		c := cols[j]
		t.cols[c] = append(t.cols[c], r.col(c))
	}
	t.n++
	if len(r.props) > 0 || len(t.props) > 0 {
		t.appendProps(r.props)
	}
}

// appendProps gives the last entry its properties, and those before it none
// when they have no place yet.
func (t *table) appendProps(b []byte) {
	for len(t.props) < t.n-1 {
		t.props = append(t.props, nil)
	}
	t.props = append(t.props, b)
}

// appendKey adds one entry of which only the key counts.
func (t *table) appendKey(k Key) {
	t.cols[colID] = append(t.cols[colID], k.ID)
	t.cols[colTime] = append(t.cols[colTime], uint64(k.Time))
	t.n++
}

// appendBlock adds rows i to j-1 of b.
func (t *table) appendBlock(b *block, i, j int) {
	if i >= j {
		return
	}
	cols := t.kind.columns()
	for x := range len(cols) {
		c := cols[x]
		t.cols[c] = b.appendColumn(t.cols[c], &b.cols[c], i, j)
	}
	if b.ends.width == 0 {
		t.n += j - i
		for len(t.props) > 0 && len(t.props) < t.n {
			t.props = append(t.props, nil)
		}
		return
	}
	for ; i < j; i++ {
		t.n++
		t.appendProps(b.propsAt(i))
	}
}

// appendColumn appends rows i to j-1 of a column.
func (b *block) appendColumn(dst []uint64, col *column, i, j int) []uint64 {
	w := int(col.width)
	off := int(col.off) + i*w
	mask := uint64(1)<<(8*w) - 1
	for ; i < j && off+8 <= len(b.buf); i++ {
		dst = append(dst, col.min+binary.LittleEndian.Uint64(b.buf[off:])&mask)
		off += w
	}
	for ; i < j; i++ {
		dst = append(dst, col.min+tail(b.buf[off:off+w]))
		off += w
	}
	return dst
}

// at returns entry i; its properties alias those of the page it came from.
func (t *table) at(i int) row {
	r := row{id: t.cols[colID][i]}
	cols := t.kind.columns()
	for j := range len(cols) {
		c := cols[j]
		switch v := t.cols[c][i]; c {
		case colTime:
			r.time = int64(v)
		case colChild:
			r.child = uint32(v)
		case colCount:
			r.count = v
		}
	}
	if len(t.props) > 0 {
		r.props = t.props[i]
	}
	return r
}

// keyAt returns the key of entry i.
func (t *table) keyAt(o Order, i int) Key {
	k := Key{ID: t.cols[colID][i]}
	if o == ByTime {
		k.Time = int64(t.cols[colTime][i])
	}
	return k
}

// slice is the table of entries i to j-1, which shares t's memory.
func (t *table) slice(i, j int) table {
	s := table{kind: t.kind, n: j - i}
	cols := t.kind.columns()
	for x := range len(cols) {
		c := cols[x]
		s.cols[c] = t.cols[c][i:j]
	}
	if len(t.props) > 0 {
		s.props = t.props[i:j]
	}
	return s
}

// propsLen is the size of all properties.
func (t *table) propsLen() int {
	n := 0
	for _, b := range t.props {
		n += len(b)
	}
	return n
}

// propsLenAt is the size of entry i's properties.
func (t *table) propsLenAt(i int) int {
	if len(t.props) == 0 {
		return 0
	}
	return len(t.props[i])
}

// edges is the number of edges at or below the entries.
func (t *table) edges() uint64 {
	if !t.kind.branch() {
		return uint64(t.n)
	}
	var n uint64
	for _, v := range t.cols[colCount] {
		n += v
	}
	return n
}

// sorted says whether the keys ascend, none twice; else which entry does not.
func (t *table) sorted() (int, bool) {
	o := t.kind.order()
	for i := 1; i < t.n; i++ {
		if o.compare(t.keyAt(o, i-1), t.keyAt(o, i)) >= 0 {
			return i, false
		}
	}
	return 0, true
}

// appendTo appends the table as a block of the given columns.
func (t *table) appendTo(dst []byte, cols columns) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.n))
	if t.n == 0 {
		return dst
	}
	var mins [numCols]uint64
	var widths [numCols]uint8
	size := 8 // room for the last value's eight-byte store
	for j := range len(cols) {
		c := cols[j]
		lo, hi := span(t.cols[c], c == colTime)
		mins[c], widths[c] = lo, byteLen(hi-lo)
		size += t.n * int(widths[c])
		if c == colTime {
			lo = zigzag(lo)
		}
		dst = append(dst, byteLen(lo)<<4|widths[c])
		dst = appendWidth(dst, lo, byteLen(lo))
	}
	dst = grow(dst, size)
	for j := range len(cols) {
		c := cols[j]
		dst = appendValues(dst, t.cols[c], mins[c], int(widths[c]))
	}
	return dst
}

// appendProps appends the properties, of which there are some.
func (t *table) appendPropsTo(dst []byte) []byte {
	total := t.propsLen()
	width := byteLen(uint64(total))
	dst = append(dst, width)
	end := 0
	for i := range t.n {
		if i < len(t.props) {
			end += len(t.props[i])
		}
		dst = appendWidth(dst, uint64(end), width)
	}
	for _, b := range t.props {
		dst = append(dst, b...)
	}
	return dst
}

// appendValues appends values less min in width bytes each. dst has room for
// them and eight bytes more.
func appendValues(dst []byte, values []uint64, min uint64, width int) []byte {
	if width == 0 {
		return dst
	}
	off := len(dst)
	dst = dst[:off+len(values)*width]
	room := dst[:len(dst)+8]
	for _, v := range values {
		binary.LittleEndian.PutUint64(room[off:], v-min)
		off += width
	}
	return dst
}

// span returns the least and greatest of values, with or without sign.
func span(values []uint64, signed bool) (lo, hi uint64) {
	flip := uint64(0)
	if signed {
		flip = 1 << 63
	}
	lo, hi = values[0]^flip, values[0]^flip
	for _, v := range values {
		v ^= flip
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo ^ flip, hi ^ flip
}

// grow makes room for n more bytes.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return append(make([]byte, 0, len(dst)+n), dst...)
}
