package pebblekv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/kvtest"
)

// faults collects what OnFault was told.
type faults struct {
	mu   sync.Mutex
	errs []error
	// fatal, when set, is closed by the first fatal fault, and its goroutine stays
	// where it is, as at the end of the process.
	fatal chan struct{}
}

func (f *faults) add(err error) {
	f.mu.Lock()
	f.errs = append(f.errs, err)
	f.mu.Unlock()
	if f.fatal != nil && errors.Is(err, ErrFatal) {
		f.stopHere()
	}
}

func (f *faults) stopHere() {
	f.mu.Lock()
	select {
	case <-f.fatal:
	default:
		close(f.fatal)
	}
	f.mu.Unlock()
	select {}
}

func (f *faults) have(target error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Is(errors.Join(f.errs...), target)
}

// waitFor is for what other goroutines do; it fails the test after ten seconds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within ten seconds", what)
		}
	}
}

// failing is a file system in which the operations that match fail while on.
func failing(base *CrashFS, on *atomic.Bool, match func(errorfs.Op) bool) FS {
	return FS{fs: errorfs.Wrap(base.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if on.Load() && match(op) {
			return errorfs.ErrInjected
		}
		return nil
	}))}
}

func writesTo(suffix string) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		return strings.HasSuffix(op.Path, suffix) && op.Kind.ReadOrWrite() == errorfs.OpIsWrite
	}
}

func setOne(s *Store, key string, sync kv.Durability) error {
	b := s.NewBatch()
	defer b.Close()
	return errors.Join(b.Set([]byte(key), []byte("v")), b.Commit(sync))
}

func mustOpen(t *testing.T, opts Options) *Store {
	t.Helper()
	s, err := Open("store", opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFailedFlushIsToldAndTriedAgain(t *testing.T) {
	var on atomic.Bool
	var f faults
	s := mustOpen(t, Options{FS: failing(NewCrashFS(), &on, writesTo(".sst")), OnFault: f.add})
	if err := setOne(s, "a", kv.NoSync); err != nil {
		t.Fatal(err)
	}
	on.Store(true)
	if err := s.Flush(); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("flush: %v", err)
	}
	waitFor(t, "fault", func() bool { return f.have(errorfs.ErrInjected) })
	if err := setOne(s, "b", kv.Sync); err != nil {
		t.Errorf("the log works, and yet: %v", err)
	}
	if n := s.Stats().BackgroundErrors; n == 0 {
		t.Error("no background error counted")
	}
	on.Store(false)
	waitFor(t, "flush", func() bool { _, err := s.GetDurable(nil, []byte("a")); return err == nil })
	if err := errors.Join(s.Flush(), s.Close()); err != nil {
		t.Error(err)
	}
}

func TestFailedReadIsAnErrorAndNotAbsence(t *testing.T) {
	var on atomic.Bool
	fs := NewCrashFS()
	s := mustOpen(t, Options{FS: fs.FS()})
	if err := errors.Join(setOne(s, "a", kv.NoSync), s.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, Options{FS: failing(fs, &on, func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileReadAt })})
	on.Store(true)
	for name, get := range map[string]func(dst, key []byte) ([]byte, error){"get": s.Get, "get durable": s.GetDurable} {
		if _, err := get(nil, []byte("a")); !errors.Is(err, errorfs.ErrInjected) || errors.Is(err, kv.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	it, err := s.NewIter(kv.Span{})
	if err == nil {
		if it.First() {
			t.Error("first found something")
		}
		err = errors.Join(it.Error(), it.Close())
	}
	if !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("iterator: %v", err)
	}
	on.Store(false)
	if v, err := s.Get(nil, []byte("a")); string(v) != "v" || err != nil {
		t.Errorf("a = %q, %v", v, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestFailedLogWriteIsFatal(t *testing.T) {
	if !alone(t) {
		return
	}
	var on atomic.Bool
	var f faults
	s := mustOpen(t, Options{FS: failing(NewCrashFS(), &on, writesTo(".log")), OnFault: f.add})
	on.Store(true)
	func() {
		defer func() {
			if err, ok := recover().(error); !ok || !errors.Is(err, ErrFatal) || !errors.Is(err, errorfs.ErrInjected) {
				t.Errorf("panic with %v", err)
			}
		}()
		t.Errorf("commit returned: %v", setOne(s, "a", kv.Sync))
	}()
	if !f.have(ErrFatal) || !f.have(errorfs.ErrInjected) {
		t.Errorf("told: %v", f.errs)
	}
	_, getErr := s.Get(nil, []byte("a"))
	for what, err := range map[string]error{"get": getErr, "commit": setOne(s, "b", kv.Sync), "flush": s.Flush(), "close": s.Close()} {
		if !errors.Is(err, ErrFatal) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOneFailedWriteLosesNothingAcknowledged lets each write of a short life fail
// in turn, once. Whatever that leads to, the synced batches that were
// acknowledged are on the disk, and an error that cost something was told.
func TestOneFailedWriteLosesNothingAcknowledged(t *testing.T) {
	if !alone(t) {
		return
	}
	// Every fourth write, another quarter each time; all of them in a long run.
	hit, first, step := 0, time.Now().UnixNano()%4, int64(4)
	if os.Getenv("LIANA_LONG") == "1" {
		first, step = 0, 1
	}
	for i := first; i < 120; i += step {
		fs := NewCrashFS()
		f := faults{fatal: make(chan struct{})}
		var writes atomic.Int64
		injected := errorfs.Wrap(fs.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && writes.Add(1) == i+1 {
				return errorfs.ErrInjected
			}
			return nil
		}))
		l := &life{script: script{uint64(i)}, opts: Options{Merger: kvtest.Merger(), MemTableBytes: minMemTable, FS: FS{injected}, OnFault: f.add}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.run(t)
		}()
		select {
		case <-done:
		case <-f.fatal:
		case <-time.After(20 * time.Second):
			t.Fatalf("write %d: hangs", i)
		}
		if writes.Load() <= i {
			break
		}
		hit++
		l.check(t, i, fs, &f)
	}
	if hit < 10 {
		t.Errorf("only %d writes to let fail", hit)
	}
}

// life is one run of a store until the first error.
type life struct {
	script
	opts Options

	mu sync.Mutex // a fatal fault leaves run running
	progress
}

type progress struct {
	begun  uint64 // batches
	synced uint64 // newest batch acknowledged with Sync or Flush
	err    error
}

func (l *life) update(change func(*progress)) progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.progress)
	return l.progress
}

func (l *life) fail(err error) {
	l.update(func(p *progress) { p.err = errors.Join(p.err, err) })
}

func (l *life) run(t *testing.T) {
	s, err := Open("store", l.opts)
	if err != nil {
		l.fail(err)
		return
	}
	rng := rand.New(rand.NewPCG(l.seed, 5))
	for n := uint64(1); n <= 60 && err == nil; n++ {
		l.update(func(p *progress) { p.begun = n })
		b := s.NewBatch()
		l.apply(t, n, b, map[string]string{})
		sync := kv.Durability(rng.IntN(4) == 0)
		err = errors.Join(b.Commit(sync), b.Close())
		if err == nil && n%20 == 0 {
			sync, err = kv.Sync, errors.Join(s.Flush(), s.Compact(kv.Span{}))
		}
		if err == nil && bool(sync) {
			l.update(func(p *progress) { p.synced = n })
		}
	}
	l.fail(errors.Join(err, s.Close()))
}

func (l *life) check(t *testing.T, i int64, fs *CrashFS, f *faults) {
	before := l.update(func(*progress) {})
	image := fs.PowerLoss(0, 0)
	after := l.update(func(*progress) {})
	s, err := Open("store", Options{Merger: kvtest.Merger(), FS: image.FS()})
	if err != nil {
		if before.synced > 0 {
			t.Errorf("write %d: cannot open again: %v", i, err)
		}
		return
	}
	defer s.Close()
	got := lastOf(t, s.Get)
	if got < before.synced || got > after.begun {
		t.Errorf("write %d: batch %d on the disk, %d acknowledged, %d begun", i, got, before.synced, after.begun)
	}
	if got != after.begun && after.err == nil && !f.have(errorfs.ErrInjected) {
		t.Errorf("write %d: lost batches %d..%d and told nobody", i, got, after.begun)
	}
	if want := l.model(t, got); fmt.Sprint(want) != fmt.Sprint(content(t, s)) {
		t.Errorf("write %d: content differs after batch %d", i, got)
	}
}
