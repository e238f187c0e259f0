package counter

import (
	"strconv"
	"testing"

	"github.com/lianadb/liana/kv"
)

// discard takes a cut and drops it.
type discard struct{ kv.Batch }

func (discard) Set(_, _ []byte) error { return nil }
func (discard) Delete(_ []byte) error { return nil }

// BenchmarkIncr times one increment, with a cut after each 1,000 but without the
// engine: what is cut is dropped, and each read of the view finds nothing.
func BenchmarkIncr(b *testing.B) {
	plain := func(c Ref, _ int) Increment { return Increment{Ref: c, Delta: 1} }
	for _, bench := range []struct {
		name     string
		counters int
		make     func(Ref, int) Increment
	}{
		{"hot", 1, plain},
		{"spread over 10k", 10_000, plain},
		{"spread over 1M", 1_000_000, plain},
		{"hot with ids", 1, func(c Ref, i int) Increment {
			return Increment{Ref: c, Delta: 1, RequestID: strconv.Itoa(i)}
		}},
		{"spread over 10k with ids", 10_000, func(c Ref, i int) Increment {
			return Increment{Ref: c, Delta: 1, RequestID: strconv.Itoa(i)}
		}},
		{"spread over 10k that expire", 10_000, func(c Ref, i int) Increment {
			return Increment{Ref: c, Delta: 1, ExpireAt: int64(i + 20_000)}
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			cfg := testConfig()
			cfg.MaxAnswers = 1 << 30
			r := newRig(b, cfg)
			refs := make([]Ref, bench.counters)
			for i := range refs {
				refs[i] = ref(i, 0)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				in := bench.make(refs[i*7919%len(refs)], i)
				if _, err := r.Incr(in, at(int64(i))); err != nil {
					b.Fatal(err)
				}
				if i%1000 == 999 {
					if err := r.Cut(discard{}); err != nil {
						b.Fatal(err)
					}
					r.Published(r.store)
				}
			}
		})
	}
}

func BenchmarkReadField(b *testing.B) {
	var rec record
	for f := range uint16(4) {
		rec.set(f, int64(f), 0)
	}
	raw := rec.appendTo(nil)
	b.ReportAllocs()
	for range b.N {
		row, err := ParseRow(raw)
		if err != nil || row.Get(2, 0).Value != 2 {
			b.Fatal(err)
		}
	}
}
