package kvtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/lianadb/liana/kv"
)

func testIsolation(t *testing.T, open New) {
	cases(t, open, map[string]func(*testing.T, kv.Store){
		"SnapshotReadsOneState": func(t *testing.T, s kv.Store) {
			set(t, s, "a", "v1", "b", "v1")
			snap, err := s.NewSnapshot()
			must(t, err)
			write(t, s, func(b kv.Batch) {
				must(t, b.Merge([]byte("a"), []byte("o2")))
				must(t, b.Delete([]byte("b")))
				must(t, b.Set([]byte("c"), []byte("v2")))
			})
			for range 2 {
				wantPairs(t, snap, kv.Span{}, "a=v1 b=v1")
				wantGet(t, snap, "a", "v1")
				wantGet(t, snap, "c", absent)
				wantPairs(t, s, kv.Span{}, "a=v12 c=v2")
				must(t, s.Flush())
				must(t, s.Compact(kv.Span{}))
			}
			it, err := snap.NewIter(kv.Span{})
			must(t, err)
			must(t, snap.Close())
			if !it.First() || string(it.Key()) != "a" || !it.Next() {
				t.Error("the iterator did not outlive its snapshot")
			}
			must(t, it.Close())
		},
		"IteratorReadsTheStateOfItsBirth": func(t *testing.T, s kv.Store) {
			set(t, s, "a", "1", "b", "1", "c", "1")
			it, err := s.NewIter(kv.Span{})
			must(t, err)
			if !it.First() {
				t.Fatal("nothing found")
			}
			write(t, s, func(b kv.Batch) {
				must(t, b.DeleteRange(kv.Span{}))
				must(t, b.Set([]byte("bb"), []byte("2")))
			})
			must(t, s.Flush())
			must(t, s.Compact(kv.Span{}))
			got := string(it.Key())
			for it.Next() {
				got += string(it.Key())
			}
			if got != "abc" {
				t.Errorf("keys %q", got)
			}
			must(t, it.Close())
			wantPairs(t, s, kv.Span{}, "bb=2")
		},
	})
}

func testClose(t *testing.T, open New) {
	cases(t, open, map[string]func(*testing.T, kv.Store){
		"ClosedStoreAnswersErrClosed": closedStore,
		"ClosedIteratorAndSnapshot": func(t *testing.T, s kv.Store) {
			set(t, s, "a", "1")
			it, err := s.NewIter(kv.Span{})
			must(t, err)
			it.First()
			must(t, it.Close())
			if it.First() || it.Next() || it.SeekGE(nil) || it.Key() != nil {
				t.Error("a closed iterator moves")
			}
			wantErr(t, "iterator", it.Error(), kv.ErrClosed)
			wantErr(t, "second close", it.Close(), kv.ErrClosed)
			snap, err := s.NewSnapshot()
			must(t, err)
			must(t, snap.Close())
			_, err = snap.Get(nil, []byte("a"))
			wantErr(t, "snapshot get", err, kv.ErrClosed)
			_, err = snap.NewIter(kv.Span{})
			wantErr(t, "snapshot iterator", err, kv.ErrClosed)
			wantErr(t, "second close", snap.Close(), kv.ErrClosed)
		},
		"CloseEndsIterators": closeEndsIterators,
	})
}

func closedStore(t *testing.T, s kv.Store) {
	set(t, s, "a", "1")
	snap, err := s.NewSnapshot()
	must(t, err)
	b := s.NewBatch()
	must(t, b.Set([]byte("b"), nil))
	must(t, s.Close())
	_, get := s.Get(nil, []byte("a"))
	_, durable := s.GetDurable(nil, []byte("a"))
	_, iter := s.NewIter(kv.Span{})
	_, snapshot := s.NewSnapshot()
	_, usage := s.EstimateDiskUsage(kv.Span{})
	_, snapGet := snap.Get(nil, []byte("a"))
	_, snapIter := snap.NewIter(kv.Span{})
	for what, err := range map[string]error{
		"get": get, "get durable": durable, "iterator": iter, "snapshot": snapshot, "usage": usage,
		"get of a snapshot": snapGet, "iterator of a snapshot": snapIter,
		"commit": b.Commit(kv.NoSync), "flush": s.Flush(), "compact": s.Compact(kv.Span{}), "close": s.Close(),
	} {
		wantErr(t, what+" after close", err, kv.ErrClosed)
	}
	must(t, b.Close())
	if err := snap.Close(); err != nil {
		wantErr(t, "close of a snapshot", err, kv.ErrClosed)
	}
	if st := s.Stats(); st != (kv.Stats{}) {
		t.Errorf("stats %+v", st)
	}
	b = s.NewBatch()
	wantErr(t, "commit of a batch made after close", b.Commit(kv.NoSync), kv.ErrClosed)
	must(t, b.Close())
}

// closeEndsIterators closes the store under readers and writers that stop at the
// first error, as they should.
func closeEndsIterators(t *testing.T, s kv.Store) {
	for i := range 50 {
		set(t, s, fmt.Sprintf("key %d", i), "v")
	}
	var wg sync.WaitGroup
	started := make(chan struct{}, 4)
	stop := func(what string, err error) bool {
		if err != nil && !errors.Is(err, kv.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
		return err != nil
	}
	for _, loop := range []func() error{
		func() error { return scanOnce(s) },
		func() error { _, err := s.Get(nil, []byte("key 1")); return err },
		func() error {
			b := s.NewBatch()
			defer b.Close()
			if err := b.Set([]byte("key 2"), []byte("v")); err != nil {
				return err
			}
			return b.Commit(kv.NoSync)
		},
		func() error {
			snap, err := s.NewSnapshot()
			if err != nil {
				return err
			}
			_, err = snap.Get(nil, []byte("key 1"))
			return errors.Join(err, snap.Close())
		},
	} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; !stop("loop", loop()); i++ {
				if i == 10 {
					started <- struct{}{}
				}
			}
		}()
	}
	for range 4 {
		<-started
	}
	must(t, s.Close())
	wg.Wait()
}

func scanOnce(s kv.Store) error {
	it, err := s.NewIter(kv.Span{})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
	}
	return errors.Join(it.Error(), it.Close())
}
