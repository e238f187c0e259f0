package pebblekv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/kvtest"
)

// script is an endless, reproducible list of batches: batch n depends on seed
// and n only. Each sets "last" to n, so that a store tells how far it got.
type script struct{ seed uint64 }

const lastKey = "last"

// apply adds batch n to b and applies it to model.
func (s script) apply(t testing.TB, n uint64, b kv.Batch, model map[string]string) {
	rng := rand.New(rand.NewPCG(s.seed, n))
	key := func() string { return fmt.Sprintf("k%02d", rng.IntN(60)) }
	var err error
	for range 1 + rng.IntN(6) {
		k, text := key(), fmt.Sprintf("%d,%*d", n, rng.IntN(200), rng.IntN(10))
		switch op := rng.IntN(20); {
		case op < 8:
			err = errors.Join(err, b.Set([]byte(k), []byte("v"+text)))
			model[k] = "v" + text
		case op < 15:
			err = errors.Join(err, b.Merge([]byte(k), []byte("o"+text)))
			if _, ok := model[k]; !ok {
				model[k] = "v"
			}
			model[k] += text
		case op < 18:
			err = errors.Join(err, b.Delete([]byte(k)))
			delete(model, k)
		default:
			upper := key()
			err = errors.Join(err, b.DeleteRange(kv.Span{Lower: []byte(k), Upper: []byte(upper)}))
			maps.DeleteFunc(model, func(x string, _ string) bool { return x >= k && x < upper })
		}
	}
	err = errors.Join(err, b.Set([]byte(lastKey), binary.BigEndian.AppendUint64(nil, n)))
	if err != nil {
		t.Fatal(err)
	}
}

// model is the content of a store after batches 1..n.
func (s script) model(t testing.TB, n uint64) map[string]string {
	m := map[string]string{}
	for i := uint64(1); i <= n; i++ {
		s.apply(t, i, discard{}, m)
	}
	return m
}

// discard is a batch that forgets.
type discard struct{ kv.Batch }

func (discard) Set(_, _ []byte) error     { return nil }
func (discard) Merge(_, _ []byte) error   { return nil }
func (discard) Delete([]byte) error       { return nil }
func (discard) DeleteRange(kv.Span) error { return nil }

func lastOf(t testing.TB, get func(dst, key []byte) ([]byte, error)) uint64 {
	t.Helper()
	v, err := get(nil, []byte(lastKey))
	if errors.Is(err, kv.ErrNotFound) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(v)
}

// content reads the whole store but for "last".
func content(t testing.TB, s kv.Store) map[string]string {
	t.Helper()
	it, err := s.NewIter(kv.PrefixSpan([]byte("k")))
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.Value()
		if err != nil {
			t.Fatal(err)
		}
		m[string(it.Key())] = string(v)
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		t.Fatal(err)
	}
	return m
}

// crashRun drives one store through writes and crashes.
type crashRun struct {
	*testing.T
	script
	rng    *rand.Rand
	opts   Options
	fs     *CrashFS
	s      *Store
	n      uint64 // newest committed batch
	synced uint64 // newest batch committed with Sync or covered by a Flush
}

func (r *crashRun) open() {
	r.opts.FS = r.fs.FS()
	s, err := Open("store", r.opts)
	if err != nil {
		r.Fatalf("seed %d: open: %v", r.seed, err)
	}
	r.s = s
}

func (r *crashRun) write() {
	r.n++
	b := r.s.NewBatch()
	r.apply(r.T, r.n, b, map[string]string{})
	sync := kv.Durability(r.rng.IntN(10) == 0)
	if err := errors.Join(b.Commit(sync), b.Close()); err != nil {
		r.Fatal(err)
	}
	if sync {
		r.synced = r.n
	}
	switch r.rng.IntN(60) {
	case 0:
		if err := r.s.Flush(); err != nil {
			r.Fatal(err)
		}
		r.synced = r.n
		if got := lastOf(r.T, r.s.GetDurable); got != r.n {
			r.Errorf("seed %d: after a flush GetDurable shows batch %d of %d", r.seed, got, r.n)
		}
	case 1:
		if err := r.s.Compact(kv.Span{}); err != nil {
			r.Fatal(err)
		}
	}
}

// check compares the store just opened with the script.
func (r *crashRun) check(durable uint64) {
	got := lastOf(r.T, r.s.Get)
	if got < r.synced || got < durable || got > r.n {
		r.Fatalf("seed %d: reopened at batch %d; synced %d, durable %d, committed %d", r.seed, got, r.synced, durable, r.n)
	}
	if d := lastOf(r.T, r.s.GetDurable); d > got {
		r.Errorf("seed %d: durable %d is ahead of %d", r.seed, d, got)
	}
	if want, have := r.model(r.T, got), content(r.T, r.s); !maps.Equal(want, have) {
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if want[k] != have[k] {
				r.Errorf("%q = %q, want %q", k, have[k], want[k])
			}
		}
		r.Fatalf("seed %d: content after batch %d differs", r.seed, got)
	}
	r.n = got
}

// TestCrashKeepsSyncedBatchesAndAPrefix crashes a store at random moments, many
// times in a row: what was synced or flushed is there, what was not is there up
// to one batch and not beyond it, and each batch is whole.
func TestCrashKeepsSyncedBatchesAndAPrefix(t *testing.T) {
	rounds := 3
	if os.Getenv("LIANA_LONG") == "1" {
		rounds = 200
	}
	start := uint64(time.Now().UnixNano())
	for i := range uint64(rounds) {
		seed := start + i
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { crashes(t, seed) })
	}
}

func crashes(t *testing.T, seed uint64) {
	r := &crashRun{T: t, script: script{seed}, rng: rand.New(rand.NewPCG(seed, 0)), fs: NewCrashFS()}
	r.opts = Options{Profile: Profile(seed % 2), Merger: kvtest.Merger(), MemTableBytes: minMemTable}
	r.open()
	for range 6 {
		for range r.rng.IntN(120) {
			r.write()
		}
		durable := lastOf(t, r.s.GetDurable)
		image := r.fs.PowerLoss(r.rng.Uint64(), r.rng.IntN(3)*50)
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		r.fs = image
		r.open()
		r.check(durable)
		r.synced = lastOf(t, r.s.GetDurable)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	r.open()
	if got := lastOf(t, r.s.Get); got != r.n {
		t.Errorf("seed %d: after a clean close batch %d of %d", seed, got, r.n)
	}
	r.check(0)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCrashUnderALoad takes images of the disk while a writer, flushes and
// compactions run, and opens each of them.
func TestCrashUnderALoad(t *testing.T) {
	sc := script{uint64(time.Now().UnixNano())}
	fs := NewCrashFS()
	opts := Options{Merger: kvtest.Merger(), MemTableBytes: minMemTable, FS: fs.FS()}
	s, err := Open("store", opts)
	if err != nil {
		t.Fatal(err)
	}
	var started, synced atomic.Uint64
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for n := uint64(1); n <= 1000; n++ {
			started.Store(n)
			b := s.NewBatch()
			sc.apply(t, n, b, map[string]string{})
			if err := errors.Join(b.Commit(n%7 == 0), b.Close()); err != nil {
				t.Error(err)
				return
			}
			if n%7 == 0 {
				synced.Store(n)
			}
			if n%100 == 0 {
				if err := errors.Join(s.Flush(), s.Compact(kv.Span{})); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	type image struct {
		fs          *CrashFS
		least, most uint64
	}
	var images []image
	for started.Load() < 1000 && len(images) < 12 && !t.Failed() {
		least := max(synced.Load(), lastOf(t, s.GetDurable))
		img := fs.PowerLoss(sc.seed+uint64(len(images)), len(images)%3*50)
		images = append(images, image{img, least, started.Load()})
		time.Sleep(2 * time.Millisecond)
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, img := range images {
		opts.FS = img.fs.FS()
		r := &crashRun{T: t, script: sc, fs: img.fs, opts: opts, n: img.most, synced: img.least}
		r.open()
		r.check(0)
		if err := r.s.Close(); err != nil {
			t.Fatalf("image %d: %v", i, err)
		}
	}
	t.Logf("seed %d: %d images", sc.seed, len(images))
}
