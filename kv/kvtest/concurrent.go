package kvtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lianadb/liana/kv"
)

func testConcurrent(t *testing.T, open New) {
	cases(t, open, map[string]func(*testing.T, kv.Store){
		"ReadersSeeWholeBatchesInOrder": wholeBatches,
		"ManyWriters":                   manyWriters,
	})
}

// wholeBatches: a writer sets 8 keys to one number per batch; readers of an
// iterator or snapshot see one number, and it never falls.
func wholeBatches(t *testing.T, s kv.Store) {
	const keys, rounds = 8, 400
	key := func(i int) []byte { return fmt.Appendf(nil, "key %d", i) }
	put := func(n uint64) {
		write(t, s, func(b kv.Batch) {
			must(t, b.DeleteRange(kv.Span{}))
			for i := range keys {
				must(t, b.Set(key(i), binary.BigEndian.AppendUint64(nil, n)))
			}
		})
	}
	put(0)
	var done atomic.Bool
	var wg sync.WaitGroup
	read := func(reader func() (kv.Reader, func() error, error)) {
		defer wg.Done()
		for last := uint64(0); !done.Load(); {
			r, release, err := reader()
			if err == nil {
				last, err = oneNumber(r, keys, last)
				err = errors.Join(err, release())
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}
	wg.Add(2)
	go read(func() (kv.Reader, func() error, error) { return s, func() error { return nil }, nil })
	go read(func() (kv.Reader, func() error, error) {
		snap, err := s.NewSnapshot()
		if err != nil {
			return nil, nil, err
		}
		return snap, snap.Close, nil
	})
	for n := range uint64(rounds) {
		put(n)
		if n%100 == 99 {
			must(t, s.Flush())
		}
	}
	done.Store(true)
	wg.Wait()
}

// oneNumber reads all keys of r through one iterator and returns their number.
func oneNumber(r kv.Reader, keys int, last uint64) (uint64, error) {
	it, err := r.NewIter(kv.Span{})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	count, number := 0, uint64(0)
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.Value()
		if err != nil {
			return 0, err
		}
		n := binary.BigEndian.Uint64(v)
		if count > 0 && n != number {
			return 0, fmt.Errorf("torn batch: %d and %d", number, n)
		}
		count, number = count+1, n
	}
	if count != keys || number < last {
		return 0, fmt.Errorf("%d keys of batch %d after batch %d", count, number, last)
	}
	return number, it.Error()
}

func manyWriters(t *testing.T, s kv.Store) {
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				b := s.NewBatch()
				err := errors.Join(
					b.Set(fmt.Appendf(nil, "k%d/%03d", w, i), nil),
					b.Merge([]byte("log"), []byte("o.")),
					b.Commit(kv.Durability(i%10 == 0)),
					b.Close())
				if err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	if got := len(get(t, s, "log")) - 1; got != writers*each {
		t.Errorf("%d merges of %d", got, writers*each)
	}
	it, err := s.NewIter(kv.PrefixSpan([]byte("k")))
	must(t, err)
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	must(t, it.Close())
	if n != writers*each {
		t.Errorf("%d keys of %d", n, writers*each)
	}
}
