package edgelist

import (
	"encoding/binary"
	"slices"
)

// operand is a decoded merge operand: changes sorted by key, one a key.
type operand struct {
	kind    kind
	weight  int
	version uint64
	changes []change
}

// change puts a row or drops the key of one.
type change struct {
	row
	drop bool
}

// operand returns p's fresh changes as an operand.
func (p *Page) operand() operand {
	op := operand{kind: p.kind, version: p.version}
	for i := range p.deltas {
		d := &p.deltas[i]
		if d.has(flagFresh) {
			op.changes = append(op.changes, change{row: p.deltaRow(d), drop: d.has(flagDrop)})
		}
	}
	op.weight = max(1, len(op.changes))
	return op
}

func (op *operand) append(dst []byte) []byte {
	puts := make([]row, 0, len(op.changes))
	var drops []row
	blob := 0
	for _, c := range op.changes {
		if c.drop {
			drops = append(drops, c.row)
			continue
		}
		puts = append(puts, c.row)
		blob += len(c.props)
	}
	first := byte(op.kind) | flagOperand
	if blob > 0 {
		first |= flagProps
	}
	weighed := op.weight != max(1, len(op.changes))
	if weighed {
		first |= flagWeight
	}
	dst = append(dst, first)
	if weighed {
		dst = binary.AppendUvarint(dst, uint64(op.weight))
	}
	if op.kind == kindPacked {
		dst = binary.AppendUvarint(dst, op.version)
	}
	dst = appendBlock(dst, op.kind.columns(), puts)
	if blob > 0 {
		dst = appendProps(dst, puts)
	}
	return appendBlock(dst, op.kind.keyColumns(), drops)
}

func decodeOperand(b []byte) (op operand, err error) {
	if !IsOperand(b) {
		return op, corruptf("not an operand: %d bytes", len(b))
	}
	op.kind = kind(b[0] & kindMask)
	props := b[0]&flagProps != 0
	if op.kind.columns() == nil || props && !op.kind.hasProps() {
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
	puts, err := r.block(op.kind.columns(), keys, props)
	if err != nil {
		return op, err
	}
	drops, err := r.block(keys, keys, false)
	if err != nil {
		return op, err
	}
	if r.bad || r.off != len(b) {
		return op, corruptf("operand of kind %d is %d bytes, %d were expected", op.kind, len(b), r.off)
	}
	if b[0]&flagWeight == 0 {
		op.weight = max(1, puts.n+drops.n)
	}
	return op, op.merge(&puts, &drops)
}

// merge fills the changes from two sorted blocks without a common key.
func (op *operand) merge(puts, drops *block) error {
	o := op.kind.order()
	op.changes = make([]change, 0, puts.n+drops.n)
	for i, j := 0, 0; i < puts.n || j < drops.n; {
		if j == drops.n || i < puts.n && o.compare(puts.keyAt(o, i), drops.keyAt(o, j)) < 0 {
			op.changes = append(op.changes, change{row: puts.rowAt(i)})
			i++
			continue
		}
		k := drops.keyAt(o, j)
		op.changes = append(op.changes, change{row: row{id: k.ID, time: k.Time}, drop: true})
		j++
	}
	for i := 1; i < len(op.changes); i++ {
		if o.compare(op.changes[i-1].key(o), op.changes[i].key(o)) >= 0 {
			return corruptf("operand entries %d and %d are out of order", i-1, i)
		}
	}
	return nil
}

// decodeOperands joins operands, oldest first, into one with the same effect.
func decodeOperands(operands [][]byte) (operand, error) {
	all, err := decodeOperand(operands[0])
	if err != nil || len(operands) == 1 {
		return all, err
	}
	for i, b := range operands[1:] {
		op, err := decodeOperand(b)
		if err != nil {
			return op, err
		}
		if op.kind != all.kind {
			return op, corruptf("operand %d is of kind %d after kind %d", i+1, op.kind, all.kind)
		}
		all.weight = min(all.weight+op.weight, 1<<30)
		all.version = op.version
		all.changes = append(all.changes, op.changes...)
	}
	o := all.kind.order()
	// Stable: of one key's changes the newest stays last, and only it is kept.
	slices.SortStableFunc(all.changes, func(a, b change) int { return o.compare(a.key(o), b.key(o)) })
	keep := all.changes[:0]
	for i, c := range all.changes {
		if i+1 == len(all.changes) || c.key(o) != all.changes[i+1].key(o) {
			keep = append(keep, c)
		}
	}
	all.changes = keep
	return all, nil
}

// Combine joins operands of one page, oldest first, into one operand with the
// same effect on every base: of each key the newest change. It is not larger
// than its arguments together but for a few bytes. Bytes that are no operands give an
// error marked ErrCorrupt.
func Combine(operands [][]byte) ([]byte, error) {
	if len(operands) == 0 {
		return nil, corruptf("no operands to combine")
	}
	op, err := decodeOperands(operands)
	if err != nil {
		return nil, err
	}
	return op.append(nil), nil
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
		return slices.Clone(base), nil
	}
	op, err := decodeOperands(operands)
	if err != nil {
		return nil, err
	}
	if base != nil && op.kind != p.kind {
		return nil, corruptf("operand of kind %d on a page of kind %d", op.kind, p.kind)
	}
	rows, err := foldRows(&p.block, &op)
	if err != nil {
		return nil, err
	}
	weight := min(p.weight+op.weight, 1<<30)
	return appendPage(nil, op.kind, weight, op.version, rows), nil
}

// foldRows lays changes over the rows of a base and proves their order.
func foldRows(b *block, op *operand) ([]row, error) {
	o := op.kind.order()
	rows := make([]row, 0, b.n+len(op.changes))
	i := 0
	var last Key
	for _, c := range op.changes {
		k := c.key(o)
		for ; i < b.n; i++ {
			bk := b.keyAt(o, i)
			if i > 0 && o.compare(last, bk) >= 0 {
				return nil, corruptf("entries %d and %d are out of order", i-1, i)
			}
			cmp := o.compare(bk, k)
			if cmp > 0 {
				break
			}
			last = bk
			if cmp < 0 {
				rows = append(rows, b.rowAt(i))
			}
		}
		if !c.drop {
			rows = append(rows, c.row)
		}
	}
	for ; i < b.n; i++ {
		bk := b.keyAt(o, i)
		if i > 0 && o.compare(last, bk) >= 0 {
			return nil, corruptf("entries %d and %d are out of order", i-1, i)
		}
		last = bk
		rows = append(rows, b.rowAt(i))
	}
	return rows, nil
}
