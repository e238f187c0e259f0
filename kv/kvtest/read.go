package kvtest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
)

func testRead(t *testing.T, open New) {
	cases(t, open, map[string]func(*testing.T, kv.Store){
		"AbsentKeyIsErrNotFoundAndKeepsDst": func(t *testing.T, s kv.Store) {
			dst, err := s.Get([]byte("dst"), []byte("a"))
			wantErr(t, "get", err, kv.ErrNotFound)
			if string(dst) != "dst" {
				t.Errorf("dst became %q", dst)
			}
		},
		"GetAppendsToDst": func(t *testing.T, s kv.Store) {
			set(t, s, "a", "1")
			dst, err := s.Get([]byte("dst"), []byte("a"))
			must(t, err)
			if string(dst) != "dst1" {
				t.Errorf("got %q", dst)
			}
		},
		"EmptyValue": func(t *testing.T, s kv.Store) {
			set(t, s, "a", "")
			write(t, s, func(b kv.Batch) { must(t, b.Set([]byte("b"), nil)) })
			wantGet(t, s, "a", "")
			wantPairs(t, s, kv.Span{}, "a= b=")
		},
		"EmptyKeyIsAbsentAndRefused": func(t *testing.T, s kv.Store) {
			b := s.NewBatch()
			wantErr(t, "set", b.Set(nil, []byte("1")), kv.ErrEmptyKey)
			wantErr(t, "merge", b.Merge([]byte{}, []byte("o1")), kv.ErrEmptyKey)
			wantErr(t, "delete", b.Delete(nil), kv.ErrEmptyKey)
			must(t, b.Commit(kv.NoSync))
			must(t, b.Close())
			wantGet(t, s, "", absent)
			if _, err := s.GetDurable(nil, nil); !errors.Is(err, kv.ErrNotFound) {
				t.Errorf("get durable: %v", err)
			}
		},
		"BinaryKeysAreOrderedAsBytes": testBinaryKeys,
		"LongestKeyAndLargeValue": func(t *testing.T, s kv.Store) {
			key := strings.Repeat("\xff", kv.MaxKeySize)
			set(t, s, key, strings.Repeat("x", 1<<20))
			if got := get(t, s, key); len(got) != 1<<20 {
				t.Errorf("got %d bytes", len(got))
			}
			write(t, s, func(b kv.Batch) { must(t, b.DeleteRange(kv.Span{})) })
			wantGet(t, s, key, absent)
		},
		"ResultBelongsToTheCaller": func(t *testing.T, s kv.Store) {
			set(t, s, "a", "1")
			v, err := s.Get(nil, []byte("a"))
			must(t, err)
			v[0] = 'X'
			wantGet(t, s, "a", "1")
		},
		"FiguresAfterWrites": testFigures,
	})
}

func testBinaryKeys(t *testing.T, s kv.Store) {
	keys := []string{"\x00", "\x00\x00", "\x00\xff", "a", "a\x00", "a\x00b", "a\xff", "b", "\xfe\xff", "\xff", "\xff\x00", "\xff\xff"}
	for i := len(keys) - 1; i >= 0; i-- {
		set(t, s, keys[i], fmt.Sprint(i))
	}
	it, err := s.NewIter(kv.Span{})
	must(t, err)
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n >= len(keys) || string(it.Key()) != keys[n] {
			t.Fatalf("key %d is %q", n, it.Key())
		}
		n++
	}
	if n != len(keys) {
		t.Errorf("%d keys of %d", n, len(keys))
	}
	must(t, it.Close())
	for i, key := range keys {
		wantGet(t, s, key, fmt.Sprint(i))
	}
	for prefix, want := range map[string]int{"\x00": 3, "\xff": 3, "a": 4, "a\x00": 2, "\xff\xff": 1, "": len(keys)} {
		if got := strings.Count(pairs(t, s, kv.PrefixSpan([]byte(prefix)), false), "="); got != want {
			t.Errorf("%d keys begin with %q, want %d", got, prefix, want)
		}
	}
}

func testFigures(t *testing.T, s kv.Store) {
	for i := range 100 {
		set(t, s, fmt.Sprintf("key %03d", i), strings.Repeat("x", 1000))
	}
	must(t, s.Flush())
	must(t, s.Compact(kv.Span{}))
	must(t, s.Compact(kv.Span{Lower: []byte("b"), Upper: []byte("a")}))
	n, err := s.EstimateDiskUsage(kv.Span{})
	must(t, err)
	if n == 0 {
		t.Error("100 keys take no space")
	}
	if n, err = s.EstimateDiskUsage(kv.Span{Lower: []byte("b"), Upper: []byte("a")}); n != 0 || err != nil {
		t.Errorf("an empty span takes %d bytes, error %v", n, err)
	}
	snap, err := s.NewSnapshot()
	must(t, err)
	it, err := s.NewIter(kv.Span{})
	must(t, err)
	if st := s.Stats(); st.OpenSnapshots != 1 || st.OpenIterators != 1 || st.Flushes == 0 || st.BytesIn < 100_000 {
		t.Errorf("stats %+v", st)
	}
	must(t, it.Close())
	must(t, snap.Close())
	if st := s.Stats(); st.OpenSnapshots != 0 || st.OpenIterators != 0 {
		t.Errorf("stats %+v", st)
	}
}

func testDurable(t *testing.T, open New) {
	durable := func(t *testing.T, s kv.Store, key string) string {
		t.Helper()
		v, err := s.GetDurable(nil, []byte(key))
		return answer(t, key, v, err)
	}
	cases(t, open, map[string]func(*testing.T, kv.Store){
		"FlushMakesItShow": func(t *testing.T, s kv.Store) {
			set(t, s, "a", "1")
			must(t, s.Flush())
			set(t, s, "a", "2", "ab", "x")
			if got := durable(t, s, "a"); got != "1" && got != "2" {
				t.Errorf("durable a = %q", got)
			}
			must(t, s.Flush())
			if got := durable(t, s, "a"); got != "2" {
				t.Errorf("after the flush: durable a = %q", got)
			}
			dst, err := s.GetDurable([]byte("dst"), []byte("a"))
			must(t, err)
			if !bytes.Equal(dst, []byte("dst2")) {
				t.Errorf("got %q", dst)
			}
			if got := durable(t, s, "aa"); got != absent {
				t.Errorf("durable aa = %q", got)
			}
		},
		"MergesAndDeletesShowToo": func(t *testing.T, s kv.Store) {
			set(t, s, "a", "v1", "b", "v1")
			must(t, s.Flush())
			write(t, s, func(b kv.Batch) {
				must(t, b.Merge([]byte("a"), []byte("o2")))
				must(t, b.Delete([]byte("b")))
			})
			must(t, s.Flush())
			if a, b := durable(t, s, "a"), durable(t, s, "b"); a != "v12" || b != absent {
				t.Errorf("durable a = %q, b = %q", a, b)
			}
		},
		"FlushOfNothing": func(t *testing.T, s kv.Store) {
			must(t, s.Flush())
			must(t, s.Flush())
		},
		"SyncCommit": func(t *testing.T, s kv.Store) {
			b := s.NewBatch()
			must(t, b.Set([]byte("a"), []byte("1")))
			must(t, b.Commit(kv.Sync))
			must(t, b.Close())
			wantGet(t, s, "a", "1")
		},
	})
}
