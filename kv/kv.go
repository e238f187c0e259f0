// Package kv is the contract between Liana and an ordered key-value engine.
//
// Keys have 1 to MaxKeySize bytes and are compared as bytes. A Store holds the state of all shards of a node
// (or its Raft log); an engine is named only where the process is wired
// together, so everything above this package runs on the in-memory model as
// well as on Pebble. The conformance suite in kvtest states the contract as
// tests; each engine runs it.
package kv

import (
	"bytes"
	"errors"
	"fmt"
)

// Errors that engines return. They are wrapped; test them with errors.Is.
var (
	// ErrNotFound is returned by Get and GetDurable when the key is absent.
	ErrNotFound = errors.New("kv: key not found")
	// ErrClosed is returned by every call on a store, snapshot, iterator or
	// batch that was closed, and by calls on a store being closed.
	ErrClosed = errors.New("kv: closed")
	// ErrLocked is returned by an engine's Open when another process holds
	// the directory.
	ErrLocked = errors.New("kv: directory is in use by another process")
	// ErrCorruption marks stored bytes that cannot be what was written. The
	// shard that reads them stops; the process goes on.
	ErrCorruption = errors.New("kv: corruption")
	// ErrTooLarge is returned by the writing methods of a Batch when a key is
	// longer than MaxKeySize or the batch would pass MaxBatchSize. The batch is as
	// it was before the call.
	ErrTooLarge = errors.New("kv: too large")
	// ErrEmptyKey is returned by the writing methods of a Batch for a key of no
	// bytes. Reading one is legal: it is absent.
	ErrEmptyKey = errors.New("kv: empty key")
	// ErrCommitted is returned by a Batch that is written to or committed after
	// its Commit.
	ErrCommitted = errors.New("kv: batch was committed already")
	// ErrNotOperand is returned by Batch.Merge for bytes that are no operand to
	// the store's Merger, and for all bytes when the store has none.
	ErrNotOperand = errors.New("kv: not a merge operand")
)

// Limits of every engine, in bytes.
const (
	// MaxKeySize bounds a key. It gives "no upper bound" a last key, and engines
	// compare whole keys at every step of a read. Liana's longest keys are those
	// of free-form counters.
	MaxKeySize = 2 << 10
	// MaxBatchSize bounds Len of a batch, and with it every value. It lies well
	// above what a group of log entries can carry and below the 4 GiB at which
	// an engine's batch format ends.
	MaxBatchSize = 512 << 20
)

// Corruptionf returns an error marked with ErrCorruption.
func Corruptionf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrCorruption, fmt.Errorf(format, args...))
}

// Span is the half-open key range [Lower, Upper). A nil Upper means no bound. A
// span with Lower >= Upper is empty, and an empty span is legal everywhere.
type Span struct {
	Lower, Upper []byte
}

// Empty reports whether no key lies in the span.
func (s Span) Empty() bool {
	return s.Upper != nil && bytes.Compare(s.Lower, s.Upper) >= 0
}

// Overlaps reports whether a key can lie in both spans.
func (s Span) Overlaps(other Span) bool {
	return !s.Empty() && !other.Empty() &&
		(s.Upper == nil || bytes.Compare(other.Lower, s.Upper) < 0) && (other.Upper == nil || bytes.Compare(s.Lower, other.Upper) < 0)
}

// PrefixSpan returns the span of all keys that begin with prefix.
func PrefixSpan(prefix []byte) Span {
	upper := append([]byte(nil), prefix...)
	for i := len(upper) - 1; i >= 0; i-- {
		if upper[i] != 0xff {
			upper[i]++
			return Span{Lower: prefix, Upper: upper[:i+1]}
		}
	}
	return Span{Lower: prefix}
}

// Reader reads keys. A Store reads its newest committed state at each call; a
// Snapshot reads one state for its whole life.
type Reader interface {
	// Get appends the value of key to dst and returns the extended slice, which
	// belongs to the caller. An absent key is ErrNotFound and returns dst as it was.
	Get(dst, key []byte) ([]byte, error)
	// NewIter returns an unpositioned iterator over span. It reads the state as
	// of this call, however long it stays open. It must be closed.
	NewIter(span Span) (Iterator, error)
}

// Iterator walks the keys of a span in order. The positioning methods report
// whether the iterator stands on a key; once one reports false, Error says
// whether that was the end or a fault. An iterator is used by one goroutine.
//
// A store being closed ends its iterators: they report false, ErrClosed. They
// must still be closed; Store.Close waits for that, since Key and Value may lie
// in the engine's own memory.
type Iterator interface {
	First() bool
	Last() bool
	// SeekGE moves to the first key >= key; SeekLT to the last key < key.
	SeekGE(key []byte) bool
	SeekLT(key []byte) bool
	// Next and Prev move by one key. On an iterator that stands on no key they
	// report false.
	Next() bool
	Prev() bool
	// Key and Value are valid until the next positioning call or Close, and only
	// while the iterator stands on a key.
	Key() []byte
	Value() ([]byte, error)
	Error() error
	Close() error
}

// Snapshot is a Reader of one state. Snapshots pin what compaction could
// otherwise drop, so they are closed soon.
type Snapshot interface {
	Reader
	Close() error
}

// Batch gathers writes that become visible, and durable, together. Later
// writes of a batch win over earlier ones: a DeleteRange removes what the batch
// set before it and not what it sets after it. A batch is used by one goroutine
// and its arguments may be reused as soon as a call returns.
type Batch interface {
	Set(key, value []byte) error
	// Merge hands operand to the store's Merger for key; see ErrNotOperand. Bytes
	// that Fold cannot read are found by the reader of the key, not here.
	Merge(key, operand []byte) error
	Delete(key []byte) error
	DeleteRange(span Span) error
	// Len is the size of the batch in bytes, Count the number of writes in it.
	Len() int
	Count() int
	// Commit applies the batch atomically. With Sync it returns after the batch,
	// and all committed before it, would survive loss of power. With NoSync the end
	// of the process or loss of power may lose the newest batches, each as a whole
	// and never one without those after it. (Pebble's log gathers 32 KiB before it
	// writes, so kill -9 alone loses some.) A batch is committed once.
	Commit(sync Durability) error
	// Close releases the batch; it is needed whether or not Commit was called.
	Close() error
}

// Durability says what Commit waits for.
type Durability bool

// The two durabilities of a commit.
const (
	NoSync Durability = false
	Sync   Durability = true
)

// Parts names what a Replacement replaces: a data span, which may be large, and small
// spans beside it. They are disjoint.
type Parts struct {
	Data  Span
	Local []Span
}

// Spans returns all of them.
func (p Parts) Spans() []Span { return append([]Span{p.Data}, p.Local...) }

// Row is a key and its value.
type Row struct{ Key, Value []byte }

// Replacement gathers the new content of parts of a store, unseen until Commit. It is
// used by one goroutine.
type Replacement interface {
	// Set adds a key of one of the parts. Those of a span ascend, and the spans follow
	// each other as in Parts.Spans. The arguments may be reused as soon as it returns.
	Set(key, value []byte) error
	// Commit replaces everything in the parts by what was set, and sets rows, which lie
	// outside of the parts, in one atomic and durable step. GetDurable may show it only
	// after a Flush. Snapshots that are open may lose sight of what was replaced;
	// iterators that are open do not. It is called once.
	Commit(rows []Row) error
	// Close discards what was not committed.
	Close() error
}

// ErrOutside is returned by a Replacement for keys outside of its parts, for rows
// inside of them or given twice, and for keys that do not ascend.
var ErrOutside = errors.New("kv: key does not belong to the replacement")

// Store is an open engine. All methods may be called concurrently.
type Store interface {
	Reader
	NewBatch() Batch
	NewSnapshot() (Snapshot, error)
	// Replace begins to replace parts of the store. Parts that the same time others
	// write to are the caller's to prevent.
	Replace(parts Parts) (Replacement, error)
	// GetDurable is Get on a state that loss of power cannot take: the state at
	// some moment in the past, whole batches, never ahead of Get. It is a lower
	// bound (Pebble: what lies in flushed tables; a synced batch is durable in the
	// log and may not show yet). After a Flush it shows at least what the Flush
	// covered.
	GetDurable(dst, key []byte) ([]byte, error)
	// Flush makes everything committed so far durable and returns then.
	Flush() error
	// Compact rewrites span so that it takes the least space; it takes as long as
	// reading and writing all tables that overlap span.
	Compact(span Span) error
	// EstimateDiskUsage is the size in bytes of the tables that hold span.
	EstimateDiskUsage(span Span) (uint64, error)
	// Stats are the engine's figures now; zero after Close.
	Stats() Stats
	// Close ends the store's iterators and snapshots and releases the directory.
	// It does not Flush. A second Close returns ErrClosed.
	Close() error
}

// Stats are an engine's figures at one moment, for metrics.
type Stats struct {
	DiskBytes          uint64 // live tables and logs
	MemTableBytes      uint64
	BlockCacheBytes    int64
	BlockCacheHits     int64
	BlockCacheMisses   int64
	Compactions        int64
	CompactionDebt     uint64 // bytes
	Flushes            int64
	L0Files            int64
	ReadAmplification  int
	WriteStalls        int64
	WALBytesWritten    uint64
	BytesIn            uint64 // logical bytes written by batches
	BytesCompacted     uint64
	BytesFlushed       uint64
	OpenSnapshots      int
	TombstoneCount     uint64
	OldestSnapshotSecs int64
	OpenIterators      int64
	DiskFreeBytes      uint64 // left on the store's file system; 0 = not known
	BackgroundErrors   int64  // failed flushes and compactions since Open
}

// Merger folds merge operands into values. Its functions are total: bytes they
// do not understand are an error marked ErrCorruption, never a panic. They depend
// on nothing but their arguments and neither keep nor change them; a result may
// share memory with an argument. They are called from several goroutines at once.
//
// An engine hands values and operands on alike, so they must be told apart by
// their bytes: IsOperand is true for all that was written with Merge or came
// from Combine, false for all that Fold returns and for all that is written with
// Set under a key that is ever merged. Values of keys that are never merged may
// be any bytes. With that, nothing is added to what is stored.
type Merger struct {
	// Name is stored with the data; a store refuses to open under another.
	Name string
	// IsOperand tells an operand from a value. It looks at the leading bytes only;
	// bytes that are neither (empty ones too) are not an operand.
	IsOperand func(b []byte) bool
	// Fold applies operands, oldest first, to base (nil where the key has no
	// value) and returns the new value.
	Fold func(key, base []byte, operands [][]byte) ([]byte, error)
	// Combine joins operands, oldest first, into one operand with the same
	// effect on every base.
	Combine func(key []byte, operands [][]byte) ([]byte, error)
}
