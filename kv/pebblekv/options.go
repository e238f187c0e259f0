package pebblekv

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lianadb/liana/kv"
)

// Profile says what a store is used for.
type Profile uint8

const (
	// State is for the shards' data: unsynced batches, point reads, scans, merges.
	State Profile = iota
	// Log is for the Raft log: synced batches that are mostly removed by range,
	// oldest first, before they are read again.
	Log
)

// formatVersion is the on-disk format of new stores, named so that an upgrade of
// Pebble does not change it. It has checksums in table footers, log records that
// tell damage from the end of the log, and virtual tables, which an ingest that
// replaces a span (IngestAndExcise) needs.
const formatVersion = pebble.FormatTableFormatV6

// Options of a store. The zero value is a State store with the defaults and no
// merges.
type Options struct {
	Profile Profile
	// Merger folds merge operands; nil refuses Merge. A store that was written
	// with one must be opened with one of the same name.
	Merger *kv.Merger
	// CacheBytes is the size of the block cache. Default 64 MiB (State), 8 MiB (Log).
	CacheBytes int64
	// MemTableBytes is the size of a memtable; up to maxMemTables of them exist
	// before writes wait for a flush. Default 32 MiB.
	MemTableBytes uint64
	// ReadOnly opens an existing store without changing it: for offline checks.
	ReadOnly bool
	// Logger gets Pebble's events: debug for the daily business, warn for stalls,
	// slow disks and failed flushes. Default: discarded.
	Logger *slog.Logger
	// OnFlush is called after flushes, when GetDurable shows their effect. Flushes
	// that end during a call share the next one. It runs on its own goroutine, for
	// which Close waits; it may use the store but not close it.
	OnFlush func()
	// OnFault is told of failed flushes and compactions (Pebble tries them again)
	// and of damaged tables (kv.ErrCorruption), on its own goroutine like OnFlush.
	// A fault that Pebble cannot survive is marked ErrFatal and told at once, on
	// the goroutine that met it, with Pebble's locks held: OnFault must then not
	// use the store and should end the process. All calls on the store return the
	// fault from now on; when OnFault returns, Pebble ends the process by a panic
	// at its next step.
	OnFault func(error)
	// FS is the file system; nil is the operating system's. Crashable builds one
	// for tests.
	FS FS
}

// FS is a file system that a store can be opened on, opaque to callers.
type FS struct{ fs vfs.FS }

const (
	// maxMemTables bounds the memtables in memory, the one being written included.
	maxMemTables = 4
	minMemTable  = 64 << 10
	maxMemTable  = 1 << 30
	// stateBlockSize is that of the State profile, in bytes before compression.
	stateBlockSize = 16 << 10
	// flushDelay is how long a range deletion waits for its memtable to fill; the
	// space it frees is not free before the flush.
	flushDelay = 10 * time.Second
)

// withDefaults fills what is zero and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if o.Profile > Log {
		return o, fmt.Errorf("pebblekv: unknown profile %d", o.Profile)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
		if o.Profile == Log {
			o.CacheBytes = 8 << 20
		}
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 32 << 20
	}
	if o.MemTableBytes < minMemTable || o.MemTableBytes > maxMemTable {
		return o, fmt.Errorf("pebblekv: memtable of %d bytes, must lie in %d..%d", o.MemTableBytes, minMemTable, maxMemTable)
	}
	if o.CacheBytes < 0 {
		return o, fmt.Errorf("pebblekv: cache of %d bytes", o.CacheBytes)
	}
	if o.Merger != nil {
		if err := checkName(o.Merger); err != nil {
			return o, err
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// pebble returns Pebble's options for o.
func (o Options) pebble() *pebble.Options {
	p := &pebble.Options{
		FormatMajorVersion:          formatVersion,
		CacheSize:                   o.CacheBytes,
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: maxMemTables,
		ReadOnly:                    o.ReadOnly,
		ErrorIfNotExists:            o.ReadOnly,
		L0CompactionThreshold:       2, // in sub-levels, i.e. reads of a key that is absent
		L0StopWritesThreshold:       24,
		MaxOpenFiles:                2048,
	}
	// A second compaction is for a backlog only; one processor stays for the node.
	p.CompactionConcurrencyRange = func() (int, int) { return 1, max(1, runtime.GOMAXPROCS(0)/2) }
	if o.Profile == Log {
		o.logProfile(p)
	} else {
		o.stateProfile(p)
	}
	return p
}

// stateProfile is measured in DESIGN.md.
func (o Options) stateProfile(p *pebble.Options) {
	p.LBaseMaxBytes = 64 << 20
	p.TargetFileSizes[0] = 4 << 20
	for i := range p.Levels {
		p.Levels[i].BlockSize = stateBlockSize
		p.Levels[i].IndexBlockSize = 64 << 10
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // 1 % false positives
		p.Levels[i].Compression = func() *block.CompressionProfile { return sstable.SnappyCompression }
	}
	// Deleting a large list frees its space without waiting for other writes.
	p.FlushDelayDeleteRange = flushDelay
}

// logProfile keeps the log out of the tables as long as memory allows, and
// drops what reached them whole, by range.
func (o Options) logProfile(p *pebble.Options) {
	p.LBaseMaxBytes = 64 << 20
	p.TargetFileSizes[0] = 8 << 20
	for i := range p.Levels {
		p.Levels[i].BlockSize = 32 << 10
		p.Levels[i].Compression = func() *block.CompressionProfile { return sstable.SnappyCompression }
	}
	p.FlushDelayDeleteRange = flushDelay
}
