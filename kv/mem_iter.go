package kv

import (
	"bytes"
	"slices"
	"sync"

	"github.com/google/btree"
)

// memSnapshot reads a clone of the tree that nobody writes to.
type memSnapshot struct {
	m      *Mem
	tree   *btree.BTreeG[memRow]
	mu     sync.Mutex // guards closed, and tree while it is cloned
	closed bool
}

func (s *memSnapshot) open() error {
	if s.closed {
		return ErrClosed
	}
	return s.m.open()
}

func (s *memSnapshot) Get(dst, key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return dst, err
	}
	return s.m.find(s.tree, dst, key)
}

func (s *memSnapshot) NewIter(span Span) (Iterator, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.closed || s.m.closed {
		return nil, ErrClosed
	}
	return s.m.newIter(s.tree.Clone(), span), nil
}

func (s *memSnapshot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.closed = true
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	delete(s.m.snaps, s)
	return nil
}

// memIter walks a clone of the tree. A B-tree has no cursor: each step seeks anew.
type memIter struct {
	m      *Mem
	tree   *btree.BTreeG[memRow]
	span   Span
	row    memRow
	valid  bool
	err    error
	closed bool
}

// newIter returns an iterator over tree, which it takes over; m.mu is held.
func (m *Mem) newIter(tree *btree.BTreeG[memRow], span Span) *memIter {
	m.iters++
	return &memIter{m: m, tree: tree, span: Span{Lower: slices.Clone(span.Lower), Upper: slices.Clone(span.Upper)}}
}

// ready reports whether the iterator may move, and sets its error when not.
func (it *memIter) ready() bool {
	if it.closed {
		it.err = ErrClosed
	} else {
		it.err = it.m.open()
	}
	it.valid = false
	return it.err == nil
}

// ascend moves to the first row of the span with key >= from, or > from.
func (it *memIter) ascend(from []byte, orEqual bool) bool {
	if bytes.Compare(from, it.span.Lower) < 0 {
		from, orEqual = it.span.Lower, true
	}
	it.tree.AscendGreaterOrEqual(memRow{key: from}, func(row memRow) bool {
		if !orEqual && bytes.Equal(row.key, from) {
			return true
		}
		it.land(row)
		return false
	})
	return it.valid
}

// land stands on row if it lies in the span.
func (it *memIter) land(row memRow) {
	it.row = row
	it.valid = bytes.Compare(row.key, it.span.Lower) >= 0 &&
		(it.span.Upper == nil || bytes.Compare(row.key, it.span.Upper) < 0)
}

// descend moves to the last row of the span with key < before.
func (it *memIter) descend(before []byte) bool {
	if it.span.Upper != nil && bytes.Compare(it.span.Upper, before) < 0 {
		before = it.span.Upper
	}
	it.tree.DescendLessOrEqual(memRow{key: before}, func(row memRow) bool {
		if bytes.Equal(row.key, before) {
			return true
		}
		it.land(row)
		return false
	})
	return it.valid
}

func (it *memIter) First() bool { return it.ready() && it.ascend(it.span.Lower, true) }

func (it *memIter) Last() bool {
	if !it.ready() {
		return false
	}
	if it.span.Upper != nil {
		return it.descend(it.span.Upper)
	}
	if row, ok := it.tree.Max(); ok {
		it.land(row)
	}
	return it.valid
}

func (it *memIter) SeekGE(key []byte) bool { return it.ready() && it.ascend(key, true) }

func (it *memIter) SeekLT(key []byte) bool { return it.ready() && it.descend(key) }

func (it *memIter) Next() bool {
	was := it.valid
	return it.ready() && was && it.ascend(it.row.key, false)
}

func (it *memIter) Prev() bool {
	was := it.valid
	return it.ready() && was && it.descend(it.row.key)
}

func (it *memIter) Key() []byte {
	if !it.valid {
		return nil
	}
	return it.row.key
}

func (it *memIter) Value() ([]byte, error) {
	if !it.valid {
		return nil, it.err
	}
	return it.m.value(it.row)
}

func (it *memIter) Error() error { return it.err }

func (it *memIter) Close() error {
	if it.closed {
		return ErrClosed
	}
	it.closed, it.valid = true, false
	it.m.mu.Lock()
	defer it.m.mu.Unlock()
	it.m.iters--
	return nil
}
