package pebblekv

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lianadb/liana/kv"
)

// recordOverhead bounds what Pebble adds to key and value in a batch, in bytes:
// the kind and two lengths.
const recordOverhead = 1 + 2*5

// batch is an unindexed Pebble batch: it is written, not read.
type batch struct {
	s         *Store
	b         *pebble.Batch // nil after Close
	committed bool
}

// check says whether key and value may be added. An empty key that comes to lie
// alone in a table's block would panic the flush: Pebble's column format has no
// form for it.
func (b *batch) check(key, value []byte) error {
	switch {
	case b.b == nil:
		return kv.ErrClosed
	case b.committed:
		return kv.ErrCommitted
	case len(key) == 0:
		return kv.ErrEmptyKey
	case len(key) > kv.MaxKeySize:
		return fmt.Errorf("%w: key of %d bytes, limit %d", kv.ErrTooLarge, len(key), kv.MaxKeySize)
	case b.b.Len()+len(key)+len(value)+recordOverhead > kv.MaxBatchSize:
		return fmt.Errorf("%w: batch of more than %d bytes", kv.ErrTooLarge, kv.MaxBatchSize)
	}
	return nil
}

func (b *batch) Set(key, value []byte) error {
	if err := b.check(key, value); err != nil {
		return err
	}
	if isChain(value) {
		return fmt.Errorf("pebblekv: set %x: the value begins like an unfolded chain", key)
	}
	return b.b.Set(key, value, nil)
}

func (b *batch) Merge(key, operand []byte) error {
	if err := b.check(key, operand); err != nil {
		return err
	}
	if !b.s.folder.IsOperand(operand) || isChain(operand) {
		return fmt.Errorf("%w: merge %x", kv.ErrNotOperand, key)
	}
	return b.b.Merge(key, operand, nil)
}

func (b *batch) Delete(key []byte) error {
	if err := b.check(key, nil); err != nil {
		return err
	}
	return b.b.Delete(key, nil)
}

func (b *batch) DeleteRange(span kv.Span) error {
	lower, upper := b.s.bounds(span)
	if bytes.Equal(lower, upper) {
		return b.check([]byte(firstKey), nil) // writes nothing
	}
	if err := b.check(lower, upper); err != nil {
		return err
	}
	return b.b.DeleteRange(lower, upper, nil)
}

func (b *batch) Len() int {
	if b.b == nil {
		return 0
	}
	return b.b.Len()
}

func (b *batch) Count() int {
	if b.b == nil {
		return 0
	}
	return int(b.b.Count())
}

func (b *batch) Commit(sync kv.Durability) error {
	switch {
	case b.b == nil:
		return kv.ErrClosed
	case b.committed:
		return kv.ErrCommitted
	}
	if err := b.s.gate.enter(); err != nil {
		return err
	}
	defer b.s.gate.leave()
	b.committed = true
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	if err := b.b.Commit(opts); err != nil {
		return fmt.Errorf("pebblekv: commit to %s: %w", b.s.dir, corrupt(err))
	}
	return nil
}

func (b *batch) Close() error {
	if b.b == nil {
		return kv.ErrClosed
	}
	p := b.b
	b.b = nil
	return p.Close()
}
