package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// flushBackoff is how long a flush waits after one that failed. Left alone,
// Pebble tries again at once, for as long as the disk is full.
const flushBackoff = 200 * time.Millisecond

// events turns what Pebble reports into logs, counters and calls of the owner.
// It is Pebble's Logger as well. All methods may run with Pebble's locks held.
type events struct {
	log     *slog.Logger
	gate    *gate
	onFault func(error)
	flushes *notifier[struct{}] // nil without OnFlush
	faults  *notifier[error]    // nil without OnFault

	running    atomic.Bool // open, and no fatal fault was told yet
	stalls     atomic.Int64
	background atomic.Int64 // failed flushes and compactions

	pause atomic.Bool // the newest flush failed

	mu        sync.Mutex
	flushErr  error         // how the newest flush ended
	flushFail *flushFailure // of the flush that fails next
}

// flushFailure is done when a flush has failed with err.
type flushFailure struct {
	done chan struct{}
	err  error
}

func newEvents(log *slog.Logger, gate *gate, opts Options) *events {
	e := &events{log: log, gate: gate, onFault: opts.OnFault, flushFail: &flushFailure{done: make(chan struct{})}}
	if opts.OnFlush != nil {
		e.flushes = newNotifier(1, func(struct{}) { opts.OnFlush() })
	}
	if opts.OnFault != nil {
		e.faults = newNotifier(16, opts.OnFault)
	}
	return e
}

// close waits for the owner's functions to return.
func (e *events) close() {
	if e.flushes != nil {
		e.flushes.close()
	}
	if e.faults != nil {
		e.faults.close()
	}
}

// nextFlushError is done when a flush fails from now on.
func (e *events) nextFlushError() *flushFailure {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flushFail
}

// flushEnd runs before backgroundError of the same flush. The flush of a memtable
// without content has an error too and yet moves the durable state, so only
// backgroundError knows which errors are failures.
func (e *events) flushEnd(i pebble.FlushInfo) {
	e.event(slog.LevelDebug, "flush", i)
	e.mu.Lock()
	e.flushErr = i.Err
	e.mu.Unlock()
	if e.flushes != nil {
		e.flushes.notify(struct{}{})
	}
}

func (e *events) backgroundError(err error) {
	e.background.Add(1)
	e.log.Warn("background work failed; it will be tried again", "err", err)
	e.fault(fmt.Errorf("pebblekv: background work: %w", corrupt(err)))
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flushErr != nil && errors.Is(err, e.flushErr) {
		e.flushFail.err = err
		close(e.flushFail.done)
		e.flushFail = &flushFailure{done: make(chan struct{})}
		e.flushErr = nil
		e.pause.Store(true)
	}
}

// tableCreated runs without locks, at the start of each output of a flush.
func (e *events) tableCreated(i pebble.TableCreateInfo) {
	if i.Reason == "flushing" && e.pause.CompareAndSwap(true, false) {
		time.Sleep(flushBackoff)
	}
}

func (e *events) diskSlow(i vfs.DiskSlowInfo) { e.event(slog.LevelWarn, "slow disk", i) }

func (e *events) fault(err error) {
	if e.faults != nil {
		e.faults.notify(err)
	}
}

// listener is Pebble's view of e.
func (e *events) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: e.backgroundError,
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			e.event(slog.LevelError, "damaged table", i)
			e.fault(damagedTable(i))
		},
		CompactionEnd: func(i pebble.CompactionInfo) { e.event(slog.LevelDebug, "compaction", i) },
		FlushEnd:      e.flushEnd,
		TableCreated:  e.tableCreated,
		LowDiskSpace:  func(i pebble.LowDiskSpaceInfo) { e.event(slog.LevelWarn, "low disk space", i) },
		TableIngested: func(i pebble.TableIngestInfo) { e.event(slog.LevelDebug, "ingest", i) },
		WALCreated:    func(i pebble.WALCreateInfo) { e.event(slog.LevelDebug, "log created", i) },
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			e.stalls.Add(1)
			e.log.Warn("writes wait", "reason", i.Reason)
		},
		WriteStallEnd: func() { e.log.Warn("writes go on") },
	}
}

// Infof implements pebble.Logger.
func (e *events) Infof(format string, args ...any) { e.text(slog.LevelDebug, format, args) }

// Errorf implements pebble.Logger.
func (e *events) Errorf(format string, args ...any) { e.text(slog.LevelError, format, args) }

// event renders ev only when it is logged.
func (e *events) event(level slog.Level, msg string, ev fmt.Stringer) {
	if ctx := context.Background(); e.log.Enabled(ctx, level) {
		e.log.Log(ctx, level, msg, "event", ev.String())
	}
}

func (e *events) text(level slog.Level, format string, args []any) {
	if ctx := context.Background(); e.log.Enabled(ctx, level) {
		e.log.Log(ctx, level, fmt.Sprintf(format, args...))
	}
}

// Fatalf implements pebble.Logger. Pebble calls it where it cannot go on and
// relies on it not to return.
func (e *events) Fatalf(format string, args ...any) {
	err := newFatalFault(format, args)
	e.doomed(err)
	panic(err)
}

// doomed shuts the store for a fault that Pebble does not survive, and tells the
// owner of the first. While the store is opened or closed, Open or Close tell.
func (e *events) doomed(err error) {
	if !e.running.CompareAndSwap(true, false) {
		return
	}
	e.gate.shut(err)
	e.log.Error("the store cannot go on", "err", err)
	if e.onFault != nil {
		e.onFault(err)
	}
}

// fatalFault is ErrFatal with Pebble's text; the errors in the text stay within
// reach of errors.Is.
type fatalFault struct {
	text string
	is   []error
}

func newFatalFault(format string, args []any) error {
	f := &fatalFault{text: fmt.Sprintf(format, args...), is: []error{ErrFatal}}
	for _, a := range args {
		if cause, ok := a.(error); ok {
			f.is = append(f.is, corrupt(cause))
		}
	}
	return f
}

func (f *fatalFault) Error() string   { return ErrFatal.Error() + ": " + f.text }
func (f *fatalFault) Unwrap() []error { return f.is }
