package edgelist

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// operand is a parsed merge operand.
type operand struct {
	kind    kind
	weight  int
	version uint64
	puts    block
	drops   block // key columns only
}

// appendOperand appends an operand that puts and drops entries.
func appendOperand(dst []byte, k kind, weight int, version uint64, puts, drops *table) []byte {
	blob := puts.propsLen()
	first := byte(k) | flagOperand
	if blob > 0 {
		first |= flagProps
	}
	weighed := weight != max(1, puts.n+drops.n)
	if weighed {
		first |= flagWeight
	}
	dst = append(dst, first)
	if weighed {
		dst = binary.AppendUvarint(dst, uint64(weight))
	}
	if k == kindPacked {
		dst = binary.AppendUvarint(dst, version)
	}
	dst = puts.appendTo(dst, k.columns())
	if blob > 0 {
		dst = puts.appendPropsTo(dst)
	}
	return drops.appendTo(dst, k.keyColumns())
}

func decodeOperand(b []byte) (op operand, err error) {
	if !IsOperand(b) || len(b) > maxDecode {
		return op, corruptf("not an operand: %d bytes", len(b))
	}
	op.kind = kind(b[0] & kindMask)
	props := b[0]&flagProps != 0
	if op.kind.columns() == "" || props && !op.kind.hasProps() {
		return op, corruptf("unknown operand %#x", b[0])
	}
	r := reader{buf: b, off: 1}
	if b[0]&flagWeight != 0 {
		op.weight = weightOf(r.uvarint())
	}
	if op.kind == kindPacked {
		op.version = r.uvarint()
	}
	if r.bad {
		return op, corruptf("operand header cut")
	}
	keys := op.kind.keyColumns()
	if op.puts, err = r.block(op.kind.columns(), keys, props); err != nil {
		return op, err
	}
	if op.drops, err = r.block(keys, keys, false); err != nil {
		return op, err
	}
	if r.bad || r.off != len(b) {
		return op, corruptf("operand of kind %d is %d bytes, %d were expected", op.kind, len(b), r.off)
	}
	if b[0]&flagWeight == 0 {
		op.weight = max(1, op.puts.n+op.drops.n)
	}
	return op, nil
}

// edit is one change of one key within a run of operands: row i of an operand's
// puts or drops.
type edit struct {
	key  Key
	op   int32
	row  int32
	drop bool
}

// edits is the joint effect of operands of one page: of each key the newest
// change, sorted by key.
type edits struct {
	kind    kind
	weight  int
	version uint64
	ops     []operand
	list    []edit
}

// decodeOperands parses operands, oldest first, of which there is at least one.
func decodeOperands(operands [][]byte) (*edits, error) {
	all := &edits{ops: make([]operand, len(operands))}
	n := 0
	for i, b := range operands {
		op, err := decodeOperand(b)
		if err != nil {
			return nil, err
		}
		if i > 0 && op.kind != all.kind {
			return nil, corruptf("operand %d is of kind %d after kind %d", i, op.kind, all.kind)
		}
		all.ops[i] = op
		all.kind, all.version = op.kind, op.version
		all.weight = min(all.weight+op.weight, 1<<30)
		n += op.puts.n + op.drops.n
	}
	all.list = make([]edit, 0, n)
	for i := range all.ops {
		all.add(int32(i), &all.ops[i].drops, true)
		all.add(int32(i), &all.ops[i].puts, false)
	}
	return all, all.sort()
}

func (e *edits) add(op int32, b *block, drop bool) {
	o := e.kind.order()
	for i := range b.n {
		e.list = append(e.list, edit{key: b.keyAt(o, i), op: op, row: int32(i), drop: drop})
	}
}

// sort orders the edits and keeps the newest of each key.
func (e *edits) sort() error {
	o := e.kind.order()
	slices.SortFunc(e.list, func(a, b edit) int {
		if c := o.compare(a.key, b.key); c != 0 {
			return c
		}
		return int(a.op - b.op)
	})
	keep := e.list[:0]
	for i, c := range e.list {
		if i+1 < len(e.list) && o.compare(c.key, e.list[i+1].key) == 0 {
			if c.op == e.list[i+1].op {
				return corruptf("operand has id %d, time %d twice", c.key.ID, c.key.Time)
			}
			continue
		}
		keep = append(keep, c)
	}
	e.list = keep
	return nil
}

// rowOf returns the entry that an edit puts.
func (e *edits) rowOf(c *edit) row { return e.ops[c.op].puts.rowAt(int(c.row)) }

// Combine joins operands of one page, oldest first, into one operand with the
// same effect on every base: of each key the newest change. It has at most as
// many entries as its arguments together, of at most 28 bytes and their properties.
// Bytes that are no operands give an error marked ErrCorrupt.
func Combine(operands [][]byte) ([]byte, error) {
	if len(operands) == 0 {
		return nil, corruptf("no operands to combine")
	}
	all, err := decodeOperands(operands)
	if err != nil {
		return nil, err
	}
	var puts, drops table
	puts.reset(all.kind)
	drops.reset(all.kind)
	for i := range all.list {
		if c := &all.list[i]; c.drop {
			drops.appendKey(c.key)
		} else {
			r := all.rowOf(c)
			puts.append(&r)
		}
	}
	return appendOperand(nil, all.kind, all.weight, all.version, &puts, &drops), nil
}

// Fold applies operands, oldest first, to a stored page and returns the new
// one. A nil base is an empty page. The result depends on the bytes alone, and
// not on how operands were combined before. Anything that is no page with
// operands of its kind gives an error marked ErrCorrupt.
func Fold(base []byte, operands [][]byte) ([]byte, error) {
	var p Page
	if base != nil {
		if err := p.decode(base); err != nil {
			return nil, err
		}
	}
	if len(operands) == 0 {
		if base == nil {
			return nil, corruptf("nothing to fold")
		}
		return bytes.Clone(base), nil
	}
	all, err := decodeOperands(operands)
	if err != nil {
		return nil, err
	}
	if base != nil && all.kind != p.kind {
		return nil, corruptf("operand of kind %d on a page of kind %d", all.kind, p.kind)
	}
	var t table
	t.reserve(all.kind, p.n+len(all.list))
	all.apply(&p.block, &t)
	if i, ok := t.sorted(); !ok {
		return nil, corruptf("entries %d and %d are out of order", i-1, i)
	}
	weight := min(p.weight+all.weight, 1<<30)
	dst := make([]byte, 0, len(base)+2*leafRow*len(all.list)+pageFixed)
	return appendPage(dst, weight, all.version, &t), nil
}

// apply lays the edits over the rows of a base.
func (e *edits) apply(b *block, t *table) {
	o := e.kind.order()
	i := 0
	for n := range e.list {
		c := &e.list[n]
		j := max(i, b.lowerBound(o, c.key)) // of a base out of order, no less than i
		t.appendBlock(b, i, j)
		i = j
		if i < b.n && o.compare(b.keyAt(o, i), c.key) == 0 {
			i++
		}
		if !c.drop {
			r := e.rowOf(c)
			t.append(&r)
		}
	}
	t.appendBlock(b, i, b.n)
}
