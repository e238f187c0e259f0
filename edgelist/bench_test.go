package edgelist

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// pageMap is a store of published pages: what a cache that never misses is.
type pageMap struct {
	pages  map[PageID]*Page
	values map[PageID]int // stored bytes, operands counted
	bytes  int            // handed out
}

func newPageMap() *pageMap {
	return &pageMap{pages: map[PageID]*Page{}, values: map[PageID]int{}}
}

func (m *pageMap) Page(id PageID) (*Page, error) { return m.pages[id], nil }

func (m *pageMap) Put(id PageID, p *Page, value []byte) error {
	m.pages[id], m.values[id] = p, len(value)
	m.bytes += len(value)
	return nil
}

func (m *pageMap) Merge(id PageID, p *Page, operand []byte) error {
	m.pages[id] = p
	m.values[id] += len(operand)
	m.bytes += len(operand)
	return nil
}

func (m *pageMap) Remove(id PageID) error {
	delete(m.pages, id)
	delete(m.values, id)
	return nil
}

// scattered is a 62-bit id for each i, no two the same.
func scattered(i int) uint64 { return (uint64(i)*0x9E3779B97F4A7C15 ^ 0x5DEECE66D) & (1<<62 - 1) }

// arrival is the time of the i-th like, some microseconds after the one before.
func arrival(i int) int64 {
	return 1_700_000_000_000_000 + int64(i)*37_000 + int64(scattered(i)%20_000)
}

// cpuTime is the processor time of this process. On a busy machine it says more
// than the clock does.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reportCPU reports the processor time for one operation; begin a benchmark's
// loop with defer reportCPU(b, cpuTime()).
func reportCPU(b *testing.B, start time.Duration) {
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
}

// benchList builds a list of n edges, group changes to a flush.
func benchList(b testing.TB, n, group int, opt *Options) *pageMap {
	m := newPageMap()
	var scratch Scratch
	for i := 0; i < n; {
		w, err := scratch.OpenWriter(m, opt)
		if err != nil {
			b.Fatal(err)
		}
		for range min(group, n-i) {
			if _, err := w.Insert(Edge{Peer: scattered(i), Time: arrival(i)}); err != nil {
				b.Fatal(err)
			}
			i++
		}
		w.SetVersion(uint64(i) + 1_000_000)
		if err := w.Flush(m); err != nil {
			b.Fatal(err)
		}
	}
	return m
}

var benchSizes = []int{1, 10, 100, 500, 10_000, 200_000}

func BenchmarkHas(b *testing.B) {
	for _, n := range benchSizes {
		m := benchList(b, n, 100, nil)
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b, cpuTime())
			rng := rand.New(rand.NewPCG(1, 2))
			for range b.N {
				l, err := Open(m)
				if err != nil {
					b.Fatal(err)
				}
				if ok, err := l.Has(scattered(rng.IntN(n))); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

// BenchmarkInsert opens a writer, changes a group of edges and flushes it; the
// figure is for one change. Each insert is followed by the delete of the oldest
// edge, so that the list keeps its size.
func BenchmarkInsert(b *testing.B) {
	for _, n := range benchSizes {
		for _, group := range []int{1, 16} {
			m := benchList(b, n, 100, nil)
			oldest, next := 0, n
			b.Run(fmt.Sprintf("n=%d/group=%d", n, group), func(b *testing.B) {
				b.ReportAllocs()
				defer reportCPU(b, cpuTime())
				m.bytes = 0
				var scratch Scratch
				for i := 0; i < b.N; i += group {
					w, err := scratch.OpenWriter(m, nil)
					if err != nil {
						b.Fatal(err)
					}
					for range group {
						if next-oldest <= n {
							_, err = w.Insert(Edge{Peer: scattered(next), Time: arrival(next)})
							next++
						} else {
							_, _, err = w.Delete(scattered(oldest))
							oldest++
						}
						if err != nil {
							b.Fatal(err)
						}
					}
					w.SetVersion(uint64(next+oldest) + 1_000_000)
					if err := w.Flush(m); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(m.bytes)/float64(b.N), "B-out/op")
			})
		}
	}
}

func BenchmarkFirstPage(b *testing.B) {
	for _, n := range benchSizes {
		m := benchList(b, n, 100, nil)
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b, cpuTime())
			for range b.N {
				l, _ := Open(m)
				it := l.Iter(Query{Order: ByTime, Descending: true})
				for i := 0; i < 20 && it.Next(); i++ {
				}
				if it.Err() != nil {
					b.Fatal(it.Err())
				}
			}
		})
	}
}

func BenchmarkSkip(b *testing.B) {
	for _, n := range benchSizes {
		m := benchList(b, n, 100, nil)
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			defer reportCPU(b, cpuTime())
			for range b.N {
				l, _ := Open(m)
				it := l.Iter(Query{Order: ByTime, Skip: uint64(rng.IntN(n))})
				if !it.Next() {
					b.Fatal(it.Err())
				}
			}
		})
	}
}

func BenchmarkCountWindow(b *testing.B) {
	for _, n := range benchSizes {
		m := benchList(b, n, 100, nil)
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			defer reportCPU(b, cpuTime())
			for range b.N {
				l, _ := Open(m)
				from := arrival(rng.IntN(n))
				if _, err := l.CountWindow(from, from+1e9); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFold folds a chain of half of MaxDeltas operands into a full page.
func BenchmarkFold(b *testing.B) {
	for _, chain := range []int{1, 16, 64} {
		base, operands := foldInput(500, chain)
		b.Run(fmt.Sprintf("operands=%d", chain), func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b, cpuTime())
			for range b.N {
				if _, err := Fold(base, operands); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func foldInput(n, chain int) ([]byte, [][]byte) {
	var rows, drops table
	rows.reset(kindIDLeaf)
	for i := range n {
		rows.append(&row{id: uint64(i) << 51, time: arrival(i)})
	}
	base := appendPage(nil, 0, 0, &rows)
	var operands [][]byte
	for i := range chain {
		rows.reset(kindIDLeaf)
		rows.append(&row{id: scattered(i), time: arrival(1000 + i)})
		operands = append(operands, appendOperand(nil, kindIDLeaf, 1, 0, &rows, &drops))
	}
	return base, operands
}

func BenchmarkDecodePage(b *testing.B) {
	base, _ := foldInput(500, 0)
	b.ReportAllocs()
	defer reportCPU(b, cpuTime())
	for range b.N {
		if _, err := DecodePage(base); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkThresholds compares split thresholds on a list of 100,000 edges that
// is built one change at a time, as when likes are spread over many lists: the
// bytes handed out and stored, an insert, a membership test, and the fold of a
// leaf with 32 operands, which is what a leaf costs that no cache has.
func BenchmarkThresholds(b *testing.B) {
	const n = 100_000
	for _, split := range []int{128, 256, 512, 1024} {
		opt := DefaultOptions()
		opt.SplitEntries, opt.MaxPageBytes = split, 32<<10
		b.Run(fmt.Sprintf("split=%d", split), func(b *testing.B) {
			var m *pageMap
			start := cpuTime()
			for range b.N {
				m = benchList(b, n, 1, &opt)
			}
			b.ReportMetric(float64(cpuTime()-start)/float64(b.N)/n, "cpu-ns/insert")
			b.ReportMetric(float64(m.bytes)/n, "B-out/edge")
			stats, err := Check(m, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(stats.Bytes)/n, "B/edge")
			b.ReportMetric(float64(stats.Pages), "pages")
			b.ReportMetric(cpuEach(n, func(i int) {
				l, _ := Open(m)
				if ok, err := l.Has(scattered(i)); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}), "cpu-ns/has")
			base, operands := foldInput(split*7/10, 32)
			b.ReportMetric(cpuEach(1000, func(int) {
				if _, err := Fold(base, operands); err != nil {
					b.Fatal(err)
				}
			}), "cpu-ns/fold")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpuEach is the processor time of one of n calls, in nanoseconds.
func cpuEach(n int, do func(i int)) float64 {
	start := cpuTime()
	for i := range n {
		do(i)
	}
	return float64(cpuTime()-start) / float64(n)
}
