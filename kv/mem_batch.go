package kv

import (
	"fmt"
	"slices"

	"github.com/google/btree"
)

// memBatch is a list of writes, applied in order at Commit.
type memBatch struct {
	m         *Mem
	ops       []memOp
	size      int
	closed    bool
	committed bool
}

type memOpKind uint8

const (
	opSet memOpKind = iota
	opMerge
	opDelete
	opDeleteRange
)

// memOp owns its bytes. For a range, key and value are its bounds.
type memOp struct {
	kind       memOpKind
	key, value []byte
}

func (b *memBatch) add(kind memOpKind, key, value []byte) error {
	switch {
	case b.closed:
		return ErrClosed
	case b.committed:
		return ErrCommitted
	case len(key) == 0 && kind != opDeleteRange:
		return ErrEmptyKey
	case len(key) > MaxKeySize:
		return fmt.Errorf("%w: key of %d bytes, limit %d", ErrTooLarge, len(key), MaxKeySize)
	case len(value) > MaxBatchSize-b.size-len(key):
		return fmt.Errorf("%w: batch of more than %d bytes", ErrTooLarge, MaxBatchSize)
	}
	b.size += len(key) + len(value)
	b.ops = append(b.ops, memOp{kind, slices.Clone(key), slices.Clone(value)})
	return nil
}

func (b *memBatch) Set(key, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	return b.add(opSet, key, value)
}

func (b *memBatch) Merge(key, operand []byte) error {
	if b.closed {
		return ErrClosed
	}
	if b.m.merger == nil || !b.m.merger.IsOperand(operand) {
		return fmt.Errorf("%w: merge %x", ErrNotOperand, key)
	}
	return b.add(opMerge, key, operand)
}

func (b *memBatch) Delete(key []byte) error { return b.add(opDelete, key, nil) }

func (b *memBatch) DeleteRange(span Span) error {
	return b.add(opDeleteRange, span.Lower, span.Upper)
}

func (b *memBatch) Len() int   { return b.size }
func (b *memBatch) Count() int { return len(b.ops) }

func (b *memBatch) Commit(sync Durability) error {
	switch {
	case b.closed:
		return ErrClosed
	case b.committed:
		return ErrCommitted
	}
	m := b.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	b.committed = true
	for _, op := range b.ops {
		m.apply(op)
	}
	m.bytesIn += uint64(b.size)
	if sync {
		m.synced = m.live.Clone()
	}
	return nil
}

func (b *memBatch) Close() error {
	if b.closed {
		return ErrClosed
	}
	b.closed = true
	b.ops = nil
	return nil
}

// apply changes the live tree by one write; m.mu is held.
func (m *Mem) apply(op memOp) {
	switch op.kind {
	case opSet:
		m.live.ReplaceOrInsert(memRow{key: op.key, base: op.value, hasBase: true})
	case opMerge:
		row, _ := m.live.Get(memRow{key: op.key})
		m.live.ReplaceOrInsert(m.push(row, op))
	case opDelete:
		m.live.Delete(memRow{key: op.key})
	case opDeleteRange:
		deleteSpan(m.live, Span{Lower: op.key, Upper: op.value})
	}
}

// push returns row with op on top of its operands.
func (m *Mem) push(row memRow, op memOp) memRow {
	operands := append(slices.Clip(row.operands), op.value)
	if len(operands) > memMaxOperands {
		// What cannot be combined stays as it is; the reader gets the error.
		if one, err := m.merger.Combine(op.key, operands); err == nil {
			operands = [][]byte{one}
		}
	}
	return memRow{key: op.key, base: row.base, hasBase: row.hasBase, operands: operands}
}

func deleteSpan(tree *btree.BTreeG[memRow], span Span) {
	var doomed []memRow
	ascendSpan(tree, span, func(row memRow) bool {
		doomed = append(doomed, row)
		return true
	})
	for _, row := range doomed {
		tree.Delete(row)
	}
}
