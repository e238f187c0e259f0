package edgelist

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// Page is one page of a list: bytes that are searched in place, and a small
// sorted set of changes over them, which mirrors the operands that were stored
// since the page was last written whole. A published page never changes.
type Page struct {
	kind    kind
	block           // the page as it was last written whole or read
	deltas  []delta // sorted by key, one a key
	props   [][]byte
	live    int       // entries, deltas counted
	blob    int       // bytes of all properties, deltas counted
	weight  int       // changes since the page was written whole
	version uint64    // of a packed head
	tree    *treeHead // of a tree head
}

// treeHead is the head of a list in tree form.
type treeHead struct {
	version   uint64
	count     uint64 // edges
	withProps uint64 // edges that have properties
	propBytes uint64 // bytes of all properties
	next      uint64 // next free page number; past 2^32-1 there is none
	roots     [2]root
}

// root is the top page of one order's tree; at height 0 it is a leaf.
type root struct {
	no     uint32
	height uint8
}

// maxHeight bounds the branch levels of a tree: with two children a branch it
// still holds more leaves than there are page numbers.
const maxHeight = 32

// maxDecode bounds the bytes of a page or operand, so that offsets and row
// numbers fit their fields.
const maxDecode = 1<<(32-deltaFlags) - 1

// IsOperand tells merge operands from stored pages by the first byte.
func IsOperand(b []byte) bool { return len(b) > 0 && b[0]&flagOperand != 0 }

// DecodePage parses a stored page and keeps b, which must not change any more.
// It checks header and lengths, not the order of the entries (Check does). Bytes
// that are no page give an error marked ErrCorrupt.
func DecodePage(b []byte) (*Page, error) {
	p := new(Page)
	if err := p.decode(b); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Page) decode(b []byte) error {
	if len(b) == 0 || len(b) > maxDecode {
		return corruptf("page of %d bytes", len(b))
	}
	p.kind = kind(b[0] & kindMask)
	switch {
	case b[0]&flagOperand != 0:
		return corruptf("page is an operand (%#x)", b[0])
	case p.kind < kindPacked || p.kind > kindTimeBranch:
		return corruptf("unknown page kind %#x", b[0])
	case b[0]&flagProps != 0 && !p.kind.hasProps():
		return corruptf("page kind %#x with properties", b[0])
	}
	r := reader{buf: b, off: 1}
	if err := p.decodeBody(&r, b[0]); err != nil {
		return err
	}
	if r.bad || r.off != len(b) {
		return corruptf("page of kind %d is %d bytes, %d were expected", p.kind, len(b), r.off)
	}
	return nil
}

func (p *Page) decodeBody(r *reader, first byte) (err error) {
	if first&flagWeight != 0 {
		p.weight = weightOf(r.uvarint())
	}
	if p.kind == kindTree {
		if first&flagWeight != 0 {
			return corruptf("tree head with a weight")
		}
		p.block.buf = r.buf
		p.tree = new(treeHead)
		return p.tree.decode(r)
	}
	if p.kind == kindPacked {
		p.version = r.uvarint()
	}
	if r.bad {
		return corruptf("page header cut")
	}
	if p.block, err = r.block(p.kind.columns(), p.kind.keyColumns(), first&flagProps != 0); err != nil {
		return err
	}
	p.live, p.blob = p.block.n, p.block.propsLen()
	return nil
}

// weightOf bounds a stored weight, so that sums of weights cannot overflow.
func weightOf(v uint64) int { return int(min(v, 1<<30)) }

func (t *treeHead) decode(r *reader) error {
	t.version, t.count = r.uvarint(), r.uvarint()
	t.withProps, t.propBytes = r.uvarint(), r.uvarint()
	t.next = r.uvarint()
	for o := range t.roots {
		no, height := r.uvarint(), r.uvarint()
		if no == 0 || no >= t.next || height > maxHeight {
			return corruptf("root %d at height %d of the %s tree", no, height, Order(o))
		}
		t.roots[o] = root{no: uint32(no), height: uint8(height)}
	}
	if t.next > 1<<32 || t.withProps > t.count {
		return corruptf("tree head: next page %d, %d of %d edges with properties", t.next, t.withProps, t.count)
	}
	return nil
}

func (t *treeHead) append(dst []byte) []byte {
	dst = append(dst, byte(kindTree))
	for _, v := range []uint64{t.version, t.count, t.withProps, t.propBytes, t.next} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, root := range t.roots {
		dst = binary.AppendUvarint(dst, uint64(root.no))
		dst = binary.AppendUvarint(dst, uint64(root.height))
	}
	return dst
}

// appendPage appends a table as a whole page.
func appendPage(dst []byte, weight int, version uint64, t *table) []byte {
	blob := t.propsLen()
	first := byte(t.kind)
	if blob > 0 {
		first |= flagProps
	}
	if weight > 0 {
		first |= flagWeight
	}
	dst = append(dst, first)
	if weight > 0 {
		dst = binary.AppendUvarint(dst, uint64(weight))
	}
	if t.kind == kindPacked {
		dst = binary.AppendUvarint(dst, version)
	}
	dst = t.appendTo(dst, t.kind.columns())
	if blob > 0 {
		dst = t.appendPropsTo(dst)
	}
	return dst
}

// sizeBound is an upper bound of a page's encoded size. It depends on the
// content alone, so splits do not depend on how a page came to be.
func sizeBound(k kind, n, blob int) int {
	per := leafRow
	if k.branch() {
		per = branchRow
	}
	if blob > 0 {
		per += propsRow
	}
	return pageFixed + n*per + blob
}

func (p *Page) sizeBound() int { return sizeBound(p.kind, p.live, p.blob) }

// MemSize is the memory a published page holds on to, in bytes.
func (p *Page) MemSize() int {
	n := int(unsafe.Sizeof(*p)) + cap(p.buf) + cap(p.deltas)*int(unsafe.Sizeof(delta{}))
	for _, b := range p.props {
		n += cap(b)
	}
	n += cap(p.props) * int(unsafe.Sizeof([]byte(nil)))
	if p.tree != nil {
		n += int(unsafe.Sizeof(*p.tree))
	}
	return n
}

// clone returns a page that may be changed. The base bytes are shared.
func (p *Page) clone() *Page {
	c := *p
	c.deltas = make([]delta, len(p.deltas), len(p.deltas)+4)
	copy(c.deltas, p.deltas)
	c.props = slices.Clip(p.props) // the first append copies
	if p.tree != nil {
		t := *p.tree
		c.tree = &t
	}
	return &c
}
