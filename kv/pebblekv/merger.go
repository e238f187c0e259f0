package pebblekv

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lianadb/liana/kv"
)

// chainMagic begins an unfolded chain; see the package comment.
const chainMagic = "\xfdliana.unfolded\x01"

// noMerger is the merger name of a store that was opened without a kv.Merger.
const noMerger = "liana.none"

func isChain(b []byte) bool {
	return len(b) >= len(chainMagic) && string(b[:len(chainMagic)]) == chainMagic
}

// appendChain appends the unfolded chain of entries to dst.
func appendChain(dst []byte, entries [][]byte) []byte {
	dst = append(dst, chainMagic...)
	for _, e := range entries {
		dst = binary.AppendUvarint(dst, uint64(len(e)))
		dst = append(dst, e...)
	}
	return dst
}

// chainEntries appends the entries of an unfolded chain to dst. They share b.
func chainEntries(dst [][]byte, b []byte) ([][]byte, error) {
	for b = b[len(chainMagic):]; len(b) > 0; {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return nil, kv.Corruptionf("unfolded chain: entry of %d bytes in %d", n, len(b))
		}
		dst = append(dst, b[w:w+int(n)])
		b = b[w+int(n):]
	}
	return dst, nil
}

// folder applies a kv.Merger to what Pebble hands over: values and operands of
// one key in one list.
type folder struct {
	kv.Merger
	// failed is told of chains that a flush or compaction could not fold.
	failed func(key []byte, err error)
	pool   sync.Pool // of *valueMerger
}

// newFolder takes nil for a store without merges.
func newFolder(m *kv.Merger, failed func(key []byte, err error)) *folder {
	f := &folder{failed: failed}
	if m != nil {
		f.Merger = *m
	} else {
		refuse := func([]byte, [][]byte) ([]byte, error) {
			return nil, kv.Corruptionf("operand in a store without merges")
		}
		f.Merger = kv.Merger{
			Name:      noMerger,
			IsOperand: func([]byte) bool { return false },
			Fold:      func(key, _ []byte, ops [][]byte) ([]byte, error) { return refuse(key, ops) },
			Combine:   refuse,
		}
	}
	f.pool.New = func() any { return &valueMerger{f: f} }
	return f
}

// pebble is the folder in Pebble's terms.
func (f *folder) pebble() *pebble.Merger {
	return &pebble.Merger{
		Name: f.Name,
		Merge: func(key, value []byte) (pebble.ValueMerger, error) {
			m := f.pool.Get().(*valueMerger)
			m.key = append(m.key[:0], key...)
			m.bytes, m.ends = append(m.bytes[:0], value...), append(m.ends[:0], len(value))
			m.olderLast = false
			return m, nil
		},
	}
}

// fold brings entries, oldest first, to one. complete says that nothing older
// can exist, so that operands without a value below them apply to no value.
func (f *folder) fold(key []byte, entries [][]byte, complete bool) ([]byte, error) {
	if slices.ContainsFunc(entries, isChain) {
		var err error
		if entries, err = expand(entries); err != nil {
			return nil, err
		}
	}
	// A value hides all that is older, whether or not it was written with Set: a
	// compaction may leave a folded value where an operand was.
	first := len(entries)
	for first > 0 && f.IsOperand(entries[first-1]) {
		first--
	}
	operands := entries[first:]
	switch {
	case len(operands) == 0:
		return entries[len(entries)-1], nil
	case first > 0:
		return f.foldOnto(key, entries[first-1], operands)
	case complete:
		return f.foldOnto(key, nil, operands)
	case len(operands) == 1:
		return operands[0], nil
	}
	one, err := f.Combine(key, operands)
	if err == nil && !f.IsOperand(one) {
		err = kv.Corruptionf("merger %s: Combine of %d operands is no operand", f.Name, len(operands))
	}
	return one, err
}

func (f *folder) foldOnto(key, base []byte, operands [][]byte) ([]byte, error) {
	v, err := f.Fold(key, base, operands)
	if err == nil && (f.IsOperand(v) || isChain(v)) {
		err = kv.Corruptionf("merger %s: Fold of %d operands is no value", f.Name, len(operands))
	}
	return v, err
}

// resolve turns what Pebble returned for key into the value a reader gets. It
// differs from b only for an unfolded chain.
func (f *folder) resolve(key, b []byte) ([]byte, error) {
	if !isChain(b) {
		return b, nil
	}
	v, err := f.fold(key, [][]byte{b}, true)
	if err != nil {
		return nil, fmt.Errorf("fold key %x: %w", key, corrupt(err))
	}
	return v, nil
}

// expand replaces the chains among entries by their entries.
func expand(entries [][]byte) ([][]byte, error) {
	var all [][]byte
	for _, e := range entries {
		if !isChain(e) {
			all = append(all, e)
			continue
		}
		var err error
		if all, err = chainEntries(all, e); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, kv.Corruptionf("unfolded chain without entries")
	}
	return all, nil
}

// valueMerger collects the entries of one key for one fold. It copies them, as
// Pebble lends each only for the call, and is its own closer: after Close
// another fold reuses its memory.
type valueMerger struct {
	f         *folder
	key       []byte
	bytes     []byte // the entries, one after another in order of arrival
	ends      []int  // end of each in bytes
	olderLast bool   // arrival is newest first
	entries   [][]byte
}

var (
	_ pebble.ValueMerger = (*valueMerger)(nil)
	_ io.Closer          = (*valueMerger)(nil)
)

// MergeNewer implements pebble.ValueMerger.
func (m *valueMerger) MergeNewer(value []byte) error {
	m.bytes = append(m.bytes, value...)
	m.ends = append(m.ends, len(m.bytes))
	return nil
}

// MergeOlder implements pebble.ValueMerger.
func (m *valueMerger) MergeOlder(value []byte) error {
	m.olderLast = true
	return m.MergeNewer(value)
}

// Finish implements pebble.ValueMerger. It does not fail; see the package comment.
func (m *valueMerger) Finish(includesBase bool) ([]byte, io.Closer, error) {
	m.entries = m.entries[:0]
	from := 0
	for _, end := range m.ends {
		m.entries = append(m.entries, m.bytes[from:end:end])
		from = end
	}
	if m.olderLast {
		slices.Reverse(m.entries)
	}
	v, err := m.f.fold(m.key, m.entries, includesBase)
	if err != nil {
		m.f.failed(m.key, err)
		return m.unfolded(), m, nil
	}
	return v, m, nil
}

// unfolded keeps the entries as they are. A damaged chain among them cannot be
// expanded and is kept whole as an entry.
func (m *valueMerger) unfolded() []byte {
	entries, err := expand(m.entries)
	if err != nil {
		entries = m.entries
	}
	return appendChain(nil, entries)
}

// maxPooled bounds the memory, in bytes, that an idle valueMerger may keep.
const maxPooled = 256 << 10

// Close ends the life of the bytes that Finish returned.
func (m *valueMerger) Close() error {
	clear(m.entries)
	if cap(m.bytes) <= maxPooled {
		m.f.pool.Put(m)
	}
	return nil
}

// checkName refuses names that Pebble's options file cannot hold.
func checkName(m *kv.Merger) error {
	if m.Name == "" || m.Name == noMerger || strings.ContainsAny(m.Name, "\n\r=[]") {
		return fmt.Errorf("pebblekv: merger name %q", m.Name)
	}
	if m.IsOperand == nil || m.Fold == nil || m.Combine == nil {
		return fmt.Errorf("pebblekv: merger %s lacks a function", m.Name)
	}
	return nil
}
