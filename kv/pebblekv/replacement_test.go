package pebblekv

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/kvtest"
)

// testParts and testRows are the parts that these tests replace, "k1" to "k3" and "k5".
var (
	testParts = kv.Parts{
		Data:  kv.Span{Lower: []byte("k1"), Upper: []byte("k4")},
		Local: []kv.Span{{Lower: []byte("k5"), Upper: []byte("k6")}},
	}
	testRows = []kv.Row{{Key: []byte("k0"), Value: []byte("new")}, {Key: []byte("k7"), Value: []byte("new")}}

	oldContent = map[string]string{"k0": "v", "k1": "v", "k2": "v", "k4": "v", "k5": "v", "k6": "v"}
	newContent = map[string]string{"k0": "new", "k2": "new", "k3": "new", "k4": "v", "k50": "new", "k6": "v", "k7": "new"}
)

func fillOld(t *testing.T, s *Store, from, to string, sync kv.Durability) {
	t.Helper()
	for k := range oldContent {
		if k >= from && k < to {
			if err := setOne(s, k, sync); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func begin(t *testing.T, s *Store) kv.Replacement {
	t.Helper()
	r, err := s.Replace(testParts)
	for _, k := range []string{"k2", "k3", "k50"} {
		if err == nil {
			err = r.Set([]byte(k), []byte("new"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// stepFS calls step before and after whatever changes what a loss of power leaves.
type stepFS struct {
	vfs.FS
	step func()
}

func (s stepFS) around(do func() error) error {
	s.step()
	err := do()
	s.step()
	return err
}

func (s stepFS) file(f vfs.File, err error) (vfs.File, error) { return stepFile{f, s}, err }

func (s stepFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	s.step()
	return s.file(s.FS.Create(name, c))
}

func (s stepFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	s.step()
	return s.file(s.FS.ReuseForWrite(old, name, c))
}

func (s stepFS) OpenDir(name string) (vfs.File, error) { return s.file(s.FS.OpenDir(name)) }

func (s stepFS) Link(old, name string) error {
	return s.around(func() error { return s.FS.Link(old, name) })
}

func (s stepFS) Rename(old, name string) error {
	return s.around(func() error { return s.FS.Rename(old, name) })
}

func (s stepFS) Remove(name string) error {
	return s.around(func() error { return s.FS.Remove(name) })
}

type stepFile struct {
	vfs.File
	fs stepFS
}

func (f stepFile) Sync() error     { return f.fs.around(f.File.Sync) }
func (f stepFile) SyncData() error { return f.fs.around(f.File.SyncData) }

func (f stepFile) SyncTo(length int64) (full bool, err error) {
	err = f.fs.around(func() error { full, err = f.File.SyncTo(length); return err })
	return full, err
}

// TestCrashInAReplacementLeavesAllOrNothing loses power at each step of a
// replacement: it is there as a whole or not at all, and there once Commit returned.
// What it replaces lies in tables, in memory or in both.
func TestCrashInAReplacementLeavesAllOrNothing(t *testing.T) {
	for name, tables := range map[string]string{"InMemory": "", "InTables": "z", "InBoth": "k2"} {
		t.Run(name, func(t *testing.T) {
			fs := NewCrashFS()
			var mu sync.Mutex
			type image struct {
				fs        *CrashFS
				committed bool
			}
			var images []image
			var on, committed bool
			take := func() {
				mu.Lock()
				defer mu.Unlock()
				for seed := range 3 {
					if on {
						images = append(images, image{fs.PowerLoss(uint64(len(images)), seed*50), committed})
					}
				}
			}
			set := func(flag *bool, to bool) {
				mu.Lock()
				defer mu.Unlock()
				*flag = to
			}
			s := mustOpen(t, Options{Merger: kvtest.Merger(), FS: FS{stepFS{fs.mem, take}}})
			fillOld(t, s, "", tables, kv.NoSync)
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			fillOld(t, s, tables, "z", kv.Sync)
			set(&on, true)
			r := begin(t, s)
			err := r.Commit(testRows)
			set(&committed, true)
			take()
			if err := errors.Join(err, r.Close(), s.Flush()); err != nil {
				t.Fatal(err)
			}
			take()
			set(&on, false)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			replaced := 0
			for i, img := range images {
				s := mustOpen(t, Options{Merger: kvtest.Merger(), FS: img.fs.FS()})
				switch got := content(t, s); {
				case maps.Equal(got, newContent):
					replaced++
				case img.committed || !maps.Equal(got, oldContent):
					t.Errorf("image %d, committed %v: %q", i, img.committed, got)
				}
				if left, err := img.fs.mem.List("store.incoming"); err == nil {
					t.Errorf("image %d: Open left %q", i, left)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if replaced == 0 || replaced == len(images) || len(images) < 20 {
				t.Errorf("%d of %d images after the replacement", replaced, len(images))
			}
		})
	}
}

// TestRefusedOpenLeavesReplacementsAlone: who does not get the lock removes nothing.
func TestRefusedOpenLeavesReplacementsAlone(t *testing.T) {
	fs := NewCrashFS()
	s := mustOpen(t, Options{Merger: kvtest.Merger(), FS: fs.FS()})
	fillOld(t, s, "", "z", kv.NoSync)
	r := begin(t, s)
	if _, err := Open("store", Options{FS: fs.FS()}); !errors.Is(err, kv.ErrLocked) {
		t.Errorf("second open: %v", err)
	}
	if err := errors.Join(r.Commit(testRows), r.Close()); err != nil {
		t.Error(err)
	}
	if got := content(t, s); !maps.Equal(got, newContent) {
		t.Errorf("content %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestFailedReplacementChangesNothing lets each write to the new tables' directory
// fail in turn, until one replacement goes through.
func TestFailedReplacementChangesNothing(t *testing.T) {
	for i := int64(0); i < 100; i++ {
		fs := NewCrashFS()
		var on atomic.Bool
		var n atomic.Int64
		s := mustOpen(t, Options{Merger: kvtest.Merger(), FS: failing(fs, &on, func(op errorfs.Op) bool {
			return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && len(op.Path) > 14 && op.Path[:14] == "store.incoming" && n.Add(1) == i+1
		})})
		fillOld(t, s, "", "z", kv.NoSync)
		on.Store(true)
		r, err := s.Replace(testParts)
		for _, k := range []string{"k2", "k3", "k50"} {
			if err == nil {
				err = r.Set([]byte(k), []byte("new"))
			}
		}
		if err == nil {
			err = r.Commit(testRows)
		}
		on.Store(false)
		want := oldContent
		if err == nil {
			want = newContent
		} else if !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("write %d: %v", i, err)
		}
		if got := content(t, s); !maps.Equal(got, want) {
			t.Errorf("write %d: content %q after %v", i, got, err)
		}
		if r != nil {
			_ = r.Close() // tells of the failure again
		}
		if left, err := fs.mem.List("store.incoming"); err == nil && len(left) > 0 {
			t.Errorf("write %d: left %q", i, left)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n.Load() <= i {
			if i < 5 {
				t.Errorf("only %d writes to let fail", i)
			}
			return
		}
	}
	t.Error("no replacement went through")
}
