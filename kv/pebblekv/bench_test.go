package pebblekv

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/kvtest"
)

func benchStore(b *testing.B, opts Options) *Store {
	b.Helper()
	s, err := Open(b.TempDir(), opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// benchKey is a key of 13 bytes, scattered.
func benchKey(dst []byte, n uint64) []byte {
	return append(binary.BigEndian.AppendUint64(dst[:0], n*0x9e3779b97f4a7c15), "/like"...)
}

// benchWrites commits batches of 100 writes without sync; an op is one write.
func benchWrites(b *testing.B, write func(kv.Batch, uint64) error) {
	s := benchStore(b, Options{Merger: kvtest.Merger()})
	b.ResetTimer()
	for n := 0; n < b.N; {
		batch := s.NewBatch()
		for range 100 {
			if err := write(batch, uint64(n)); err != nil {
				b.Fatal(err)
			}
			n++
		}
		if err := batch.Commit(kv.NoSync); err != nil {
			b.Fatal(err)
		}
		batch.Close()
	}
}

func BenchmarkSet(b *testing.B) {
	var key []byte
	value := make([]byte, 24)
	benchWrites(b, func(batch kv.Batch, n uint64) error {
		key = benchKey(key, n)
		return batch.Set(key, value)
	})
}

func BenchmarkMerge(b *testing.B) {
	var key []byte
	operand := []byte("o.......................")
	benchWrites(b, func(batch kv.Batch, n uint64) error {
		key = benchKey(key, n%10_000)
		return batch.Merge(key, operand)
	})
}

func BenchmarkSyncCommit(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := benchStore(b, Options{Profile: Log})
			b.SetParallelism(callers)
			value := make([]byte, 200)
			work := func(next func() bool) {
				for n := uint64(0); next(); n++ {
					batch := s.NewBatch()
					if err := batch.Set(benchKey(nil, rand.Uint64()), value); err != nil {
						b.Error(err)
					}
					if err := batch.Commit(kv.Sync); err != nil {
						b.Error(err)
					}
					batch.Close()
				}
			}
			if callers == 1 {
				work(b.Loop)
				return
			}
			b.RunParallel(func(pb *testing.PB) { work(pb.Next) })
		})
	}
}

// BenchmarkGet reads values of 400 bytes, about 80 MB of them, by random key.
func BenchmarkGet(b *testing.B) {
	const keys = 200_000
	for name, cache := range map[string]int64{"cached": 256 << 20, "cache=4MiB": 4 << 20} {
		b.Run(name, func(b *testing.B) {
			s := benchStore(b, Options{CacheBytes: cache})
			fillForGet(b, s, keys)
			rng := rand.New(rand.NewPCG(1, 1))
			var key, dst []byte
			for b.Loop() {
				var err error
				key = benchKey(key, rng.Uint64N(keys))
				if dst, err = s.Get(dst[:0], key); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.Stats().DiskBytes)/keys, "disk-B/key")
		})
	}
}

func fillForGet(b *testing.B, s *Store, keys uint64) {
	rng := rand.New(rand.NewPCG(2, 2))
	value := make([]byte, 400)
	for n := uint64(0); n < keys; {
		batch := s.NewBatch()
		for range 1000 {
			for i := 0; i < len(value)/2; i += 8 { // half of a value is noise
				binary.LittleEndian.PutUint64(value[i:], rng.Uint64())
			}
			if err := batch.Set(benchKey(nil, n), value); err != nil {
				b.Fatal(err)
			}
			n++
		}
		if err := batch.Commit(kv.NoSync); err != nil {
			b.Fatal(err)
		}
		batch.Close()
	}
	if err := s.Compact(kv.Span{}); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkIterate(b *testing.B) {
	s := benchStore(b, Options{CacheBytes: 256 << 20})
	fillForGet(b, s, 200_000)
	it, err := s.NewIter(kv.Span{})
	if err != nil {
		b.Fatal(err)
	}
	defer it.Close()
	it.First()
	for b.Loop() {
		if _, err := it.Value(); err != nil {
			b.Fatal(err)
		}
		if !it.Next() {
			it.First()
		}
	}
}
