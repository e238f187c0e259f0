package pebblekv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lianadb/liana/kv"
)

// closeTimeout bounds how long Close waits for calls and iterators in use. An
// iterator that is not closed by then is leaked: a bug of its owner.
const closeTimeout = 10 * time.Second

// Store is an open Pebble instance.
type Store struct {
	dir      string
	db       *pebble.DB
	fs       vfs.FS
	fsCloser io.Closer
	folder   *folder
	log      *slog.Logger
	gate     *gate
	lastKey  []byte // beyond every key: the upper bound of "no bound"
	options  *pebble.Options

	replacements atomic.Int64 // begun so far

	events    *events
	iters     atomic.Int64
	closeWait time.Duration
	closeMu   sync.Mutex // serialises Close
	closed    bool

	snapMu sync.Mutex
	snaps  map[*snapshot]struct{}
}

var _ kv.Store = (*Store)(nil)

// Open opens the store in dir, which is created when it does not exist (unless
// ReadOnly). kv.ErrLocked: another process, or this one, has it open.
func Open(dir string, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir:       dir,
		log:       opts.Logger.With("store", dir),
		gate:      newGate(),
		lastKey:   bytes.Repeat([]byte{0xff}, kv.MaxKeySize+1),
		closeWait: closeTimeout,
		snaps:     make(map[*snapshot]struct{}),
	}
	s.folder = newFolder(opts.Merger, func(key []byte, err error) {
		s.log.Error("merge chain left unfolded", "key", fmt.Sprintf("%x", key), "err", err)
	})
	s.events = newEvents(s.log, s.gate, opts)
	s.fs, s.fsCloser = newFS(opts.FS.fs, opts.Profile == Log && opts.FS.fs == nil, s.events)
	p := opts.pebble()
	p.FS = s.fs
	p.Merger = s.folder.pebble()
	p.Logger = s.events
	p.EventListener = s.events.listener()
	s.options = p
	if s.db, err = openDB(dir, p); err == nil && !opts.ReadOnly {
		// What a crash left behind was not committed. Before the directory was locked
		// it could have been what another process is writing.
		if err = s.fs.RemoveAll(s.replacementDir()); err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}
	if err != nil {
		s.fsCloser.Close()
		s.events.close()
		return nil, fmt.Errorf("pebblekv: open %s: %w", dir, openError(err))
	}
	s.events.running.Store(true)
	return s, nil
}

// openDB is pebble.Open with its panics over a failing disk as errors: while
// opening there is nothing to lose yet, and the caller can say more.
func openDB(dir string, p *pebble.Options) (db *pebble.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			fault, ok := r.(error)
			if _, bug := r.(runtime.Error); !ok || bug {
				panic(r)
			}
			db, err = nil, fault
		}
	}()
	return pebble.Open(dir, p)
}

// Get implements kv.Reader.
func (s *Store) Get(dst, key []byte) ([]byte, error) {
	if err := s.gate.enter(); err != nil {
		return dst, err
	}
	defer s.gate.leave()
	return s.get(s.db, dst, key)
}

// get reads from the database or a snapshot of it. It runs inside the gate.
func (s *Store) get(r pebble.Reader, dst, key []byte) ([]byte, error) {
	if len(key) == 0 {
		return dst, kv.ErrNotFound
	}
	b, closer, err := r.Get(key)
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			return dst, kv.ErrNotFound // unwrapped: absence is an answer, not a fault
		}
		return dst, s.readError(key, err)
	}
	v, err := s.folder.resolve(key, b)
	if err == nil {
		dst = append(dst, v...)
	}
	if cerr := closer.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return dst, s.readError(key, err)
	}
	return dst, nil
}

func (s *Store) readError(key []byte, err error) error {
	return fmt.Errorf("pebblekv: get %x in %s: %w", key, s.dir, corrupt(err))
}

// GetDurable implements kv.Store. It shows what lies in flushed tables.
func (s *Store) GetDurable(dst, key []byte) ([]byte, error) {
	if err := s.gate.enter(); err != nil {
		return dst, err
	}
	defer s.gate.leave()
	if len(key) == 0 {
		return dst, kv.ErrNotFound
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: key, OnlyReadGuaranteedDurable: true})
	if err != nil {
		return dst, s.readError(key, err)
	}
	dst, err = s.getAt(it, dst, key)
	if cerr := it.Close(); err == nil && cerr != nil {
		err = s.readError(key, cerr)
	}
	return dst, err
}

func (s *Store) getAt(it *pebble.Iterator, dst, key []byte) ([]byte, error) {
	if !it.First() || !bytes.Equal(it.Key(), key) {
		if err := it.Error(); err != nil {
			return dst, s.readError(key, err)
		}
		return dst, kv.ErrNotFound
	}
	b, err := it.ValueAndErr()
	if err == nil {
		b, err = s.folder.resolve(key, b)
	}
	if err != nil {
		return dst, s.readError(key, err)
	}
	return append(dst, b...), nil
}

// NewIter implements kv.Reader.
func (s *Store) NewIter(span kv.Span) (kv.Iterator, error) { return s.newIter(s.db, span) }

// NewBatch implements kv.Store.
func (s *Store) NewBatch() kv.Batch { return &batch{s: s, b: s.db.NewBatch()} }

// NewSnapshot implements kv.Store.
func (s *Store) NewSnapshot() (kv.Snapshot, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	n := &snapshot{s: s, snap: s.db.NewSnapshot(), at: time.Now()}
	s.snapMu.Lock()
	defer s.snapMu.Unlock()
	s.snaps[n] = struct{}{}
	return n, nil
}

// Flush implements kv.Store. A flush that fails is tried again by Pebble for as
// long as it takes, but the error is returned as soon as it is known.
func (s *Store) Flush() error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	failed := s.events.nextFlushError()
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("pebblekv: flush %s: %w", s.dir, err)
	}
	select {
	case <-flushed:
		return nil
	case <-failed.done:
		return fmt.Errorf("pebblekv: flush %s: %w", s.dir, corrupt(failed.err))
	}
}

// Compact implements kv.Store.
func (s *Store) Compact(span kv.Span) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	lower, upper := s.bounds(span)
	if bytes.Equal(lower, upper) {
		return nil
	}
	if err := s.db.Compact(context.Background(), lower, upper, true); err != nil {
		return fmt.Errorf("pebblekv: compact %x..%x in %s: %w", span.Lower, span.Upper, s.dir, corrupt(err))
	}
	return nil
}

// EstimateDiskUsage implements kv.Store.
func (s *Store) EstimateDiskUsage(span kv.Span) (uint64, error) {
	if err := s.gate.enter(); err != nil {
		return 0, err
	}
	defer s.gate.leave()
	lower, upper := s.bounds(span)
	if bytes.Equal(lower, upper) {
		return 0, nil
	}
	n, err := s.db.EstimateDiskUsage(lower, upper)
	if err != nil {
		return 0, fmt.Errorf("pebblekv: disk usage of %x..%x in %s: %w", span.Lower, span.Upper, s.dir, corrupt(err))
	}
	return n, nil
}

// firstKey is the least key. Pebble's own checks (on in race builds) cannot take
// empty keys, so it stands for them in bounds and seeks.
const firstKey = "\x00"

// orFirst is key, or the least key for an empty one.
func orFirst(key []byte) []byte {
	if len(key) == 0 {
		return []byte(firstKey)
	}
	return key
}

// bounds are the bounds of span as keys, lower <= upper; equal if it is empty.
func (s *Store) bounds(span kv.Span) (lower, upper []byte) {
	lower, upper = orFirst(span.Lower), span.Upper
	if upper == nil {
		upper = s.lastKey
	}
	if bytes.Compare(lower, upper) > 0 {
		return s.lastKey, s.lastKey
	}
	return lower, upper
}

// Close implements kv.Store. It waits for calls in flight and for iterators to
// be closed by their owners; when they are not within ten seconds the store
// stays open, returns an error and may be closed again.
func (s *Store) Close() error {
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	if s.closed {
		return kv.ErrClosed
	}
	s.gate.shut(kv.ErrClosed)
	if fault := s.gate.err(); errors.Is(fault, ErrFatal) {
		// The engine's locks and pipeline are in no known state. The process ends.
		s.closed = true
		s.events.close()
		return fmt.Errorf("pebblekv: close %s: %w", s.dir, fault)
	}
	if err := s.gate.wait(s.closeWait); err != nil {
		return fmt.Errorf("pebblekv: close %s: %w", s.dir, err)
	}
	s.closed = true
	s.snapMu.Lock()
	snaps := s.snaps
	s.snaps = nil
	s.snapMu.Unlock()
	for n := range snaps {
		n.end()
	}
	s.events.running.Store(false)
	err := errors.Join(s.db.Close(), s.fsCloser.Close())
	s.events.close()
	if err != nil {
		return fmt.Errorf("pebblekv: close %s: %w", s.dir, corrupt(err))
	}
	return nil
}
