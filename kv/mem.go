package kv

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/google/btree"
)

const (
	// memDegree is the B-tree's fan-out; any small figure does.
	memDegree = 16
	// memMaxOperands bounds the chain of a key. A longer one is combined, so that
	// the model exercises both functions of a Merger.
	memMaxOperands = 24
)

// Mem is the in-memory model of a Store: a copy-on-write B-tree whose clones are
// the snapshots and iterators. It keeps operands apart from values and folds
// them when they are read. It is meant for tests and small state: nothing is
// written to disk. AfterPowerLoss gives the store that a loss of power would leave.
type Mem struct {
	merger *Merger

	mu      sync.RWMutex
	closed  bool
	live    *btree.BTreeG[memRow]
	synced  *btree.BTreeG[memRow] // as of the last Sync commit or Flush
	flushed *btree.BTreeG[memRow] // as of the last Flush
	snaps   map[*memSnapshot]time.Time
	iters   int64
	flushes int64
	bytesIn uint64
}

var _ Store = (*Mem)(nil)

// memRow is one key. Rows and the slices in them are never changed once they are
// in a tree, so clones share them.
type memRow struct {
	key      []byte
	base     []byte // nil when !hasBase
	hasBase  bool
	operands [][]byte // oldest first, on top of base
}

func memLess(a, b memRow) bool { return bytes.Compare(a.key, b.key) < 0 }

// NewMem returns an empty store. A nil merger makes every Merge an error.
func NewMem(merger *Merger) *Mem {
	return newMem(merger, btree.NewG(memDegree, memLess))
}

func newMem(merger *Merger, tree *btree.BTreeG[memRow]) *Mem {
	return &Mem{
		merger:  merger,
		live:    tree,
		synced:  tree.Clone(),
		flushed: tree.Clone(),
		snaps:   make(map[*memSnapshot]time.Time),
	}
}

// AfterPowerLoss returns a new store that holds what loss of power or the end of
// the process now would leave of m in the worst case: all up to the last Sync commit or Flush. It may
// be called before and after Close, and leaves m as it is.
func (m *Mem) AfterPowerLoss() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return newMem(m.merger, m.synced.Clone())
}

// AfterKill returns a new store that holds what the end of the process now would
// leave of m in the best case: everything committed. The worst case is AfterPowerLoss.
func (m *Mem) AfterKill() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return newMem(m.merger, m.live.Clone())
}

// value folds row. The result may be shared with the tree.
func (m *Mem) value(row memRow) ([]byte, error) {
	if len(row.operands) == 0 {
		return row.base, nil
	}
	v, err := m.merger.Fold(row.key, row.base, row.operands)
	if err != nil {
		return nil, fmt.Errorf("kv: fold %x: %w", row.key, err)
	}
	return v, nil
}

// find appends the value of key in tree to dst. The caller makes sure that
// nobody writes to tree meanwhile.
func (m *Mem) find(tree *btree.BTreeG[memRow], dst, key []byte) ([]byte, error) {
	row, ok := tree.Get(memRow{key: key})
	if !ok {
		return dst, ErrNotFound
	}
	v, err := m.value(row)
	if err != nil {
		return dst, err
	}
	return append(dst, v...), nil
}

// Get implements Reader.
func (m *Mem) Get(dst, key []byte) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return dst, ErrClosed
	}
	return m.find(m.live, dst, key)
}

// GetDurable implements Store. It shows the state as of the last Flush.
func (m *Mem) GetDurable(dst, key []byte) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return dst, ErrClosed
	}
	return m.find(m.flushed, dst, key)
}

// NewIter implements Reader.
func (m *Mem) NewIter(span Span) (Iterator, error) {
	m.mu.Lock() // Clone writes to the tree it clones
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	return m.newIter(m.live.Clone(), span), nil
}

// NewSnapshot implements Store.
func (m *Mem) NewSnapshot() (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	s := &memSnapshot{m: m, tree: m.live.Clone()}
	m.snaps[s] = time.Now()
	return s, nil
}

// NewBatch implements Store.
func (m *Mem) NewBatch() Batch { return &memBatch{m: m} }

// Flush implements Store.
func (m *Mem) Flush() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.flushed = m.live.Clone()
	m.synced = m.live.Clone()
	m.flushes++
	return nil
}

// Compact implements Store. It folds the operands in span, as an engine would.
func (m *Mem) Compact(span Span) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	var folded []memRow
	ascendSpan(m.live, span, func(row memRow) bool {
		// A row that cannot be folded stays; whoever reads it gets the error.
		if v, err := m.value(row); err == nil && len(row.operands) > 0 {
			folded = append(folded, memRow{key: row.key, base: v, hasBase: true})
		}
		return true
	})
	for _, row := range folded {
		m.live.ReplaceOrInsert(row)
	}
	return nil
}

// EstimateDiskUsage implements Store. It is the size of keys and values.
func (m *Mem) EstimateDiskUsage(span Span) (uint64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return 0, ErrClosed
	}
	return treeBytes(m.live, span), nil
}

// Stats implements Store; figures that only a disk has are zero.
func (m *Mem) Stats() Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return Stats{}
	}
	st := Stats{
		MemTableBytes: treeBytes(m.live, Span{}),
		Flushes:       m.flushes,
		BytesIn:       m.bytesIn,
		OpenSnapshots: len(m.snaps),
		OpenIterators: m.iters,
	}
	for _, at := range m.snaps {
		st.OldestSnapshotSecs = max(st.OldestSnapshotSecs, int64(time.Since(at).Seconds()))
	}
	return st
}

// Close implements Store.
func (m *Mem) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.closed = true
	return nil
}

// open is the error of a store that was closed, or nil.
func (m *Mem) open() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return ErrClosed
	}
	return nil
}

// ascendSpan calls fn for each row of span in order until fn returns false.
func ascendSpan(tree *btree.BTreeG[memRow], span Span, fn func(memRow) bool) {
	tree.AscendGreaterOrEqual(memRow{key: span.Lower}, func(row memRow) bool {
		if span.Upper != nil && bytes.Compare(row.key, span.Upper) >= 0 {
			return false
		}
		return fn(row)
	})
}

func treeBytes(tree *btree.BTreeG[memRow], span Span) (n uint64) {
	ascendSpan(tree, span, func(row memRow) bool {
		n += uint64(len(row.key) + len(row.base))
		for _, op := range row.operands {
			n += uint64(len(op))
		}
		return true
	})
	return n
}
