package kvtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
)

func testMerge(t *testing.T, open New) {
	merge := func(t *testing.T, s kv.Store, key string, operands ...string) {
		t.Helper()
		for _, op := range operands {
			write(t, s, func(b kv.Batch) { must(t, b.Merge([]byte(key), []byte(op))) })
		}
	}
	del := func(t *testing.T, s kv.Store, key string) {
		t.Helper()
		write(t, s, func(b kv.Batch) { must(t, b.Delete([]byte(key))) })
	}
	// Each way of putting flushes and compactions between the writes gives the
	// same answers.
	for name, pause := range map[string]func(*testing.T, kv.Store){
		"InMemory":  func(*testing.T, kv.Store) {},
		"Flushed":   func(t *testing.T, s kv.Store) { must(t, s.Flush()) },
		"Compacted": func(t *testing.T, s kv.Store) { must(t, s.Flush()); must(t, s.Compact(kv.Span{})) },
	} {
		cases(t, open, map[string]func(*testing.T, kv.Store){
			name: func(t *testing.T, s kv.Store) {
				set(t, s, "base", "vB", "deleted", "vB", "replaced", "vB")
				pause(t, s)
				merge(t, s, "base", "o1", "o2")
				merge(t, s, "none", "o1")
				merge(t, s, "deleted", "o1")
				merge(t, s, "replaced", "o1")
				pause(t, s)
				merge(t, s, "none", "o2")
				del(t, s, "deleted")
				set(t, s, "replaced", "vC")
				pause(t, s)
				merge(t, s, "base", "o3")
				merge(t, s, "none", "o3")
				merge(t, s, "deleted", "o2")
				merge(t, s, "replaced", "o2")
				const want = "base=vB123 deleted=v2 none=v123 replaced=vC2"
				wantPairs(t, s, kv.Span{}, want)
				pause(t, s)
				wantPairs(t, s, kv.Span{}, want)
				for _, kv := range strings.Fields(want) {
					k, v, _ := strings.Cut(kv, "=")
					wantGet(t, s, k, v)
				}
				write(t, s, func(b kv.Batch) { must(t, b.DeleteRange(kv.Span{Lower: []byte("c"), Upper: []byte("o")})) })
				pause(t, s)
				merge(t, s, "none", "o9")
				wantPairs(t, s, kv.Span{}, "base=vB123 none=v9 replaced=vC2")
			},
		})
	}
	cases(t, open, map[string]func(*testing.T, kv.Store){
		"LongChains":      mergeLongChains,
		"OldSnapshots":    mergeUnderSnapshots,
		"DamagedOperands": mergeDamage,
	})
	t.Run("WithoutAMerger", func(t *testing.T) {
		s := open(t, nil)
		b := s.NewBatch()
		wantErr(t, "merge", b.Merge([]byte("a"), []byte("o1")), kv.ErrNotOperand)
		must(t, b.Close())
		must(t, s.Close())
	})
}

func mergeLongChains(t *testing.T, s kv.Store) {
	var want strings.Builder
	want.WriteString("v")
	set(t, s, "based", "v")
	for i := range 500 {
		write(t, s, func(b kv.Batch) {
			op := fmt.Appendf(nil, "o%d,", i)
			must(t, b.Merge([]byte("based"), op))
			must(t, b.Merge([]byte("bare"), op))
		})
		fmt.Fprintf(&want, "%d,", i)
		switch i {
		case 120, 240:
			must(t, s.Flush())
		case 360:
			must(t, s.Compact(kv.Span{}))
		}
	}
	wantGet(t, s, "based", want.String())
	wantGet(t, s, "bare", want.String())
	must(t, s.Flush())
	must(t, s.Compact(kv.Span{}))
	wantGet(t, s, "based", want.String())
	wantGet(t, s, "bare", want.String())
}

func mergeUnderSnapshots(t *testing.T, s kv.Store) {
	var snaps []kv.Snapshot
	var want []string
	for i := range 6 {
		write(t, s, func(b kv.Batch) {
			must(t, b.Merge([]byte("a"), fmt.Appendf(nil, "o%d", i)))
			if i == 3 {
				must(t, b.Delete([]byte("a")))
			}
		})
		snap, err := s.NewSnapshot()
		must(t, err)
		snaps, want = append(snaps, snap), append(want, get(t, snap, "a"))
	}
	if got := strings.Join(want, " "); got != "v0 v01 v012 <absent> v4 v45" {
		t.Fatalf("in memory: %s", got)
	}
	for range 2 {
		must(t, s.Flush())
		must(t, s.Compact(kv.Span{}))
		for i, snap := range snaps {
			wantGet(t, snap, "a", want[i])
		}
		wantGet(t, s, "a", "v45")
	}
	for i, snap := range snaps {
		must(t, snap.Close())
		if i%2 == 0 {
			must(t, s.Compact(kv.Span{}))
			wantGet(t, s, "a", "v45")
		}
	}
}

// mergeDamage: an operand that cannot be folded is found by the reader of its
// key and by nobody else; setting or deleting the key heals it.
func mergeDamage(t *testing.T, s kv.Store) {
	for _, key := range []string{"based", "bare", "healed", "gone"} {
		if key != "bare" {
			set(t, s, key, "vB")
		}
		for _, op := range []string{"o1", "o!", "o2"} {
			write(t, s, func(b kv.Batch) { must(t, b.Merge([]byte(key), []byte(op))) })
			must(t, s.Flush())
		}
	}
	set(t, s, "other", "v")
	damaged := func(key string) {
		t.Helper()
		dst, err := s.Get([]byte("dst"), []byte(key))
		wantErr(t, "get "+key, err, kv.ErrCorruption)
		if string(dst) != "dst" {
			t.Errorf("dst became %q", dst)
		}
	}
	damaged("based")
	damaged("bare")
	must(t, s.Flush())
	must(t, s.Compact(kv.Span{}))
	damaged("based")
	damaged("bare")
	wantGet(t, s, "other", "v")

	it, err := s.NewIter(kv.PrefixSpan([]byte("based")))
	must(t, err)
	if it.First() {
		_, err = it.Value()
	} else {
		err = it.Error()
	}
	wantErr(t, "value", err, kv.ErrCorruption)
	if err := it.Close(); err != nil {
		wantErr(t, "close", err, kv.ErrCorruption)
	}

	set(t, s, "healed", "vH")
	write(t, s, func(b kv.Batch) {
		must(t, b.Merge([]byte("healed"), []byte("o3")))
		must(t, b.Delete([]byte("gone")))
		must(t, b.Merge([]byte("gone"), []byte("o3")))
	})
	for range 2 {
		wantGet(t, s, "healed", "vH3")
		wantGet(t, s, "gone", "v3")
		must(t, s.Flush())
		must(t, s.Compact(kv.Span{}))
	}
	damaged("based")
}
