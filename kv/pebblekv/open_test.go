package pebblekv

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/kvtest"
)

func TestSecondOpenIsErrLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "store")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, kv.ErrLocked) {
		t.Errorf("in this process: %v", err)
	}
	if _, err := Open(dir, Options{ReadOnly: true}); !errors.Is(err, kv.ErrLocked) {
		t.Errorf("read-only: %v", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lockEnv+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "locked: true") {
		t.Errorf("in another process: %s, %v", out, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatalf("after close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadOnlyChangesNothing(t *testing.T) {
	fs := NewCrashFS()
	if _, err := Open("store", Options{FS: fs.FS(), ReadOnly: true}); err == nil {
		t.Error("opened a store that does not exist")
	}
	s := mustOpen(t, Options{FS: fs.FS()})
	if err := errors.Join(setOne(s, "a", kv.NoSync), s.Flush(), setOne(s, "b", kv.Sync), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, Options{FS: fs.FS(), ReadOnly: true})
	for _, key := range []string{"a", "b"} {
		if _, err := s.Get(nil, []byte(key)); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	for what, err := range map[string]error{"commit": setOne(s, "c", kv.Sync), "flush": s.Flush(), "compact": s.Compact(kv.Span{})} {
		if !errors.Is(err, pebble.ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	other := kvtest.Merger()
	other.Name = "other"
	fs := NewCrashFS()
	s := mustOpen(t, Options{FS: fs.FS(), Merger: kvtest.Merger()})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for what, o := range map[string]Options{
		"another merger":   {Merger: other},
		"no merger":        {},
		"unnamed merger":   {Merger: &kv.Merger{}},
		"half a merger":    {Merger: &kv.Merger{Name: "x"}},
		"small memtable":   {MemTableBytes: 1},
		"negative cache":   {CacheBytes: -1},
		"unknown profile":  {Profile: 7},
		"large memtable":   {MemTableBytes: 1 << 40},
		"newline in names": {Merger: &kv.Merger{Name: "a\nb"}},
	} {
		o.FS = fs.FS()
		if s, err := Open("store", o); err == nil {
			t.Errorf("%s: opened", what)
			s.Close()
		}
	}
}

// TestFormat freezes what is written to disk. An older binary refuses a newer
// format, so raising it is a step without return.
func TestFormat(t *testing.T) {
	s := mustOpen(t, Options{FS: NewCrashFS().FS()})
	if v := s.db.FormatMajorVersion(); v != pebble.FormatTableFormatV6 || uint64(v) != 21 || v < pebble.FormatVirtualSSTables {
		t.Errorf("format %d", v)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOnFlushFollowsTheDurableState(t *testing.T) {
	var s *Store
	var seen, calls, inside atomic.Int64
	ready := make(chan struct{})
	opts := Options{FS: NewCrashFS().FS(), MemTableBytes: minMemTable, OnFlush: func() {
		<-ready
		if inside.Add(1) != 1 {
			t.Error("OnFlush runs twice at once")
		}
		defer inside.Add(-1)
		calls.Add(1)
		if v, err := s.GetDurable(nil, []byte("n")); err == nil {
			var n int64
			fmt.Sscan(string(v), &n)
			seen.Store(n)
		}
	}}
	s = mustOpen(t, opts)
	close(ready)
	put := func(n int) {
		b := s.NewBatch()
		err := errors.Join(b.Set([]byte("n"), fmt.Append(nil, n)), b.Set([]byte("fill"), make([]byte, 2000)), b.Commit(kv.NoSync), b.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 300 { // flushes by itself
		put(n)
	}
	waitFor(t, "OnFlush", func() bool { return calls.Load() > 0 })
	put(1000)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the durable state in OnFlush", func() bool { return seen.Load() == 1000 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseReportsALeakedIterator(t *testing.T) {
	s := mustOpen(t, Options{FS: NewCrashFS().FS()})
	s.closeWait = 10 * time.Millisecond
	it, err := s.NewIter(kv.Span{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "1 calls or iterators") {
		t.Errorf("close: %v", err)
	}
	if it.First() || !errors.Is(it.Error(), kv.ErrClosed) {
		t.Errorf("iterator of a closing store: %v", it.Error())
	}
	if err := errors.Join(it.Close(), s.Close()); err != nil {
		t.Errorf("close after the iterator's: %v", err)
	}
}

// TestDamagedTableIsCorruption flips a byte in each table of a store on disk: the
// reader gets kv.ErrCorruption, the owner is told, and the process goes on.
func TestDamagedTableIsCorruption(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	var f faults
	opts := Options{OnFault: f.add, Logger: slog.New(slog.NewTextHandler(&out, nil))}
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	for i := range 1000 {
		if err := b.Set(fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "value %d", i*i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Commit(kv.Sync), b.Close(), s.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, name := range tables {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		data[100] ^= 1
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = Open(dir, opts); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(nil, []byte("key 0")); !errors.Is(err, kv.ErrCorruption) {
		t.Errorf("get: %v", err)
	}
	if err := setOne(s, "key 0", kv.Sync); err != nil {
		t.Errorf("set: %v", err)
	}
	if v, err := s.Get(nil, []byte("key 0")); string(v) != "v" || err != nil {
		t.Errorf("after set: %q, %v", v, err)
	}
	waitFor(t, "fault", func() bool { return f.have(kv.ErrCorruption) })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "damaged table") {
		t.Errorf("log: %s", out.String())
	}
}
