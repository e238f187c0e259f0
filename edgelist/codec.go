package edgelist

import (
	"encoding/binary"
	"math/bits"
)

// kind is the kind and version of a page's layout: the low bits of its first byte.
type kind uint8

const (
	kindPacked     kind = 1
	kindTree       kind = 2
	kindIDLeaf     kind = 3
	kindTimeLeaf   kind = 4
	kindIDBranch   kind = 5
	kindTimeBranch kind = 6
)

// Flags of the first byte.
const (
	flagOperand = 0x80
	flagProps   = 0x40
	flagWeight  = 0x20
	kindMask    = 0x1f
)

// Upper bounds of encoded sizes in bytes, without looking at the values.
const (
	leafRow   = 8 + 8         // id, time
	branchRow = 8 + 8 + 4 + 8 // id, time, child, count
	propsRow  = 4             // end of an edge's properties
	// kind, weight, version, n, four column headers, endlen
	pageFixed = 1 + 3*binary.MaxVarintLen64 + 4*9 + 1
)

// The columns a block can have.
const (
	colID uint8 = iota
	colTime
	colChild
	colCount
	numCols
)

// columns is a list of columns in stored order. It is a string so that it is a constant.
type columns string

// columns returns the columns of a kind, none for a tree head or an unknown kind.
func (k kind) columns() columns {
	switch k {
	case kindPacked, kindIDLeaf:
		return "\x00\x01" // id, time
	case kindTimeLeaf:
		return "\x01\x00" // time, id
	case kindIDBranch:
		return "\x00\x02\x03" // id, child, count
	case kindTimeBranch:
		return "\x01\x00\x02\x03" // time, id, child, count
	}
	return ""
}

// keyColumns returns the columns of a block of drops.
func (k kind) keyColumns() columns {
	if k.order() == ByTime {
		return kindTimeLeaf.columns()
	}
	return "\x00" // id
}

func (k kind) order() Order {
	if k == kindTimeLeaf || k == kindTimeBranch {
		return ByTime
	}
	return ByID
}

func (k kind) branch() bool { return k == kindIDBranch || k == kindTimeBranch }

// hasProps says whether entries of this kind can carry properties.
func (k kind) hasProps() bool { return k == kindPacked || k == kindIDLeaf }

// row is one entry of a page, decoded. Leaves use id, time and props; branches
// use id and time as the separator, child and count.
type row struct {
	id    uint64
	time  int64
	count uint64
	child uint32
	props []byte
}

func (r *row) key(o Order) Key { return o.key(r.time, r.id) }

// col returns the value of column c as the codec stores it.
func (r *row) col(c uint8) uint64 {
	switch c {
	case colID:
		return r.id
	case colTime:
		return uint64(r.time)
	case colChild:
		return uint64(r.child)
	}
	return r.count
}

// column is where a block keeps one column: values less min, width bytes each,
// from off on.
type column struct {
	min   uint64
	off   uint32
	width uint8
}

// block is a parsed, not decoded, block: n rows within buf, read in place.
type block struct {
	buf  []byte
	n    int
	cols [numCols]column
	ends column // ends of properties, width 0 when there are none
	blob uint32 // offset of the properties' bytes
}

// at returns the value of column c in row i.
func (b *block) at(c uint8, i int) uint64 { return b.read(&b.cols[c], i) }

func (b *block) read(col *column, i int) uint64 {
	w := int(col.width)
	off := int(col.off) + i*w
	if off+8 <= len(b.buf) {
		// A shift by 64 gives 0, so the mask of width 8 is all ones.
		return col.min + binary.LittleEndian.Uint64(b.buf[off:])&(1<<(8*w)-1)
	}
	return col.min + tail(b.buf[off:off+w])
}

// tail reads a little-endian value of less than eight bytes, or eight.
func tail(b []byte) uint64 {
	var v uint64
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// keyAt returns row i's key; for ByID only the id is read.
func (b *block) keyAt(o Order, i int) Key {
	if o == ByID {
		return Key{ID: b.at(colID, i)}
	}
	return Key{Time: int64(b.at(colTime, i)), ID: b.at(colID, i)}
}

// rowAt decodes row i. Its properties alias the block.
func (b *block) rowAt(i int) row {
	return row{
		id:    b.at(colID, i),
		time:  int64(b.at(colTime, i)),
		child: uint32(b.at(colChild, i)),
		count: b.at(colCount, i),
		props: b.propsAt(i),
	}
}

// propsAt returns the properties of row i, nil when it has none.
func (b *block) propsAt(i int) []byte {
	if b.ends.width == 0 {
		return nil
	}
	start, end := b.propsRange(i)
	if start == end {
		return nil
	}
	return b.buf[b.blob+start : b.blob+end : b.blob+end]
}

func (b *block) propsRange(i int) (start, end uint32) {
	if b.ends.width == 0 {
		return 0, 0
	}
	if i > 0 {
		start = uint32(b.read(&b.ends, i-1))
	}
	return start, uint32(b.read(&b.ends, i))
}

// propsLen is the size of all properties of the block.
func (b *block) propsLen() int {
	if b.ends.width == 0 || b.n == 0 {
		return 0
	}
	return int(b.read(&b.ends, b.n-1))
}

// lowerBound returns the first row whose key is >= k, n when there is none.
func (b *block) lowerBound(o Order, k Key) int {
	lo, hi := 0, b.n
	if o == ByID {
		for lo < hi {
			mid := int(uint(lo+hi) >> 1)
			if b.at(colID, mid) < k.ID {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		return lo
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if t := int64(b.at(colTime, mid)); t < k.Time || t == k.Time && b.at(colID, mid) < k.ID {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// reader takes values off the front of bytes; it fails for good at the first
// value that is not there.
type reader struct {
	buf []byte
	off int
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.buf[r.off:])
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.off += n
	return v
}

func (r *reader) byte() byte {
	if r.off >= len(r.buf) {
		r.bad = true
		return 0
	}
	r.off++
	return r.buf[r.off-1]
}

func (r *reader) take(n int) []byte {
	if n > len(r.buf)-r.off {
		r.bad = true
		return nil
	}
	r.off += n
	return r.buf[r.off-n : r.off]
}

// block parses a block with the given columns. The work is O(1) in the number
// of rows, except where rows have properties.
func (r *reader) block(cols, keys columns, props bool) (b block, err error) {
	n := r.uvarint()
	if r.bad {
		return b, corruptf("cut before the number of entries")
	}
	b.buf = r.buf
	if n == 0 {
		if props {
			return b, corruptf("properties of no entries")
		}
		return b, nil
	}
	// Keys differ, so n rows take at least n-1 values of one byte.
	if n > uint64(len(r.buf)) {
		return b, corruptf("%d entries in %d bytes", n, len(r.buf))
	}
	b.n = int(n)
	for i := range len(cols) {
		c := cols[i]
		head := r.byte()
		minlen, width := int(head>>4), head&15
		if minlen > 8 || width > 8 || c == colChild && (minlen > 4 || width > 4) {
			return b, corruptf("column header %#x", head)
		}
		b.cols[c] = column{min: tail(r.take(minlen)), width: width}
		if c == colTime {
			b.cols[c].min = unzigzag(b.cols[c].min)
		}
	}
	for i := range len(cols) {
		c := cols[i]
		b.cols[c].off = uint32(r.off)
		r.take(b.n * int(b.cols[c].width))
	}
	keyWidth := 0
	for i := range len(keys) {
		keyWidth += int(b.cols[keys[i]].width)
	}
	if r.bad || b.n > 1 && keyWidth == 0 {
		return b, corruptf("columns do not hold %d entries", n)
	}
	if props {
		err = r.props(&b)
	}
	return b, err
}

func (r *reader) props(b *block) error {
	width := r.byte()
	if width < 1 || width > 4 {
		return corruptf("properties end width %d", width)
	}
	b.ends = column{off: uint32(r.off), width: width}
	r.take(b.n * int(width))
	if r.bad {
		return corruptf("properties ends cut")
	}
	b.blob = uint32(r.off)
	last := uint64(0)
	for i := range b.n {
		end := b.read(&b.ends, i)
		if end < last || end-last > MaxProps {
			return corruptf("properties of entry %d end at %d after %d", i, end, last)
		}
		last = end
	}
	if last == 0 || last > uint64(len(r.buf)-r.off) {
		return corruptf("%d bytes of properties in %d", last, len(r.buf)-r.off)
	}
	r.take(int(last))
	return nil
}

// byteLen is the number of bytes that v needs: 0 for 0, at most 8.
func byteLen(v uint64) uint8 { return uint8((bits.Len64(v) + 7) / 8) }

func appendWidth(dst []byte, v uint64, width uint8) []byte {
	for range width {
		dst = append(dst, byte(v))
		v >>= 8
	}
	return dst
}

// zigzag and unzigzag turn two's complement into small numbers and back.
func zigzag(v uint64) uint64   { return v<<1 ^ uint64(int64(v)>>63) }
func unzigzag(v uint64) uint64 { return v>>1 ^ -(v & 1) }
