package kvtest

import (
	"bytes"
	"testing"

	"github.com/lianadb/liana/kv"
)

func testBatch(t *testing.T, open New) {
	a := []byte("a")
	cases(t, open, map[string]func(*testing.T, kv.Store){
		"LaterWritesWin": laterWritesWin,
		"InvisibleBeforeCommit": func(t *testing.T, s kv.Store) {
			b := s.NewBatch()
			must(t, b.Set(a, []byte("1")))
			wantGet(t, s, "a", absent)
			must(t, b.Close())
			wantGet(t, s, "a", absent)
		},
		"ArgumentsAreReusable": func(t *testing.T, s kv.Store) {
			buf := []byte("abcd")
			write(t, s, func(b kv.Batch) {
				must(t, b.Set(buf[:1], buf[1:2]))
				must(t, b.Merge(buf[2:3], []byte("o1")))
				must(t, b.DeleteRange(kv.Span{Lower: []byte("x"), Upper: buf[3:]}))
				copy(buf, "zzzz")
			})
			wantPairs(t, s, kv.Span{}, "a=b c=v1")
		},
		"DeleteRangeToTheEnd": func(t *testing.T, s kv.Store) {
			set(t, s, "a", "1", "b", "2", "\xff\xff", "3")
			write(t, s, func(b kv.Batch) { must(t, b.DeleteRange(kv.Span{Lower: []byte("b")})) })
			wantPairs(t, s, kv.Span{}, "a=1")
		},
		"LenCountAndEmptyCommit": func(t *testing.T, s kv.Store) {
			write(t, s, func(kv.Batch) {})
			b := s.NewBatch()
			before := b.Len()
			must(t, b.Set(a, make([]byte, 1000)))
			must(t, b.Delete(a))
			if b.Count() != 2 || b.Len() < before+1000 {
				t.Errorf("count %d, len %d", b.Count(), b.Len())
			}
			must(t, b.Close())
		},
		"MisuseIsAnError": batchMisuse,
	})
}

// laterWritesWin: a holds "vold" before each batch.
func laterWritesWin(t *testing.T, s kv.Store) {
	a := []byte("a")
	ab := kv.Span{Lower: a, Upper: []byte("c")}
	for _, c := range []struct {
		fill func(kv.Batch) []error
		want string
	}{
		{func(b kv.Batch) []error { return errs(b.Set(a, []byte("v1")), b.Set(a, []byte("v2"))) }, "v2"},
		{func(b kv.Batch) []error { return errs(b.Set(a, []byte("v1")), b.Delete(a)) }, absent},
		{func(b kv.Batch) []error { return errs(b.Delete(a), b.Set(a, []byte("v1"))) }, "v1"},
		{func(b kv.Batch) []error { return errs(b.Set(a, []byte("v1")), b.DeleteRange(ab)) }, absent},
		{func(b kv.Batch) []error { return errs(b.DeleteRange(ab), b.Set(a, []byte("v1"))) }, "v1"},
		{func(b kv.Batch) []error { return errs(b.Merge(a, []byte("o1")), b.Merge(a, []byte("o2"))) }, "vold12"},
		{func(b kv.Batch) []error { return errs(b.Set(a, []byte("v1")), b.Merge(a, []byte("o2"))) }, "v12"},
		{func(b kv.Batch) []error { return errs(b.Merge(a, []byte("o2")), b.Set(a, []byte("v1"))) }, "v1"},
		{func(b kv.Batch) []error { return errs(b.Delete(a), b.Merge(a, []byte("o1"))) }, "v1"},
		{func(b kv.Batch) []error { return errs(b.Merge(a, []byte("o1")), b.Delete(a)) }, absent},
		{func(b kv.Batch) []error {
			return errs(b.Merge(a, []byte("o1")), b.DeleteRange(ab), b.Merge(a, []byte("o2")))
		}, "v2"},
		{func(b kv.Batch) []error {
			return errs(b.DeleteRange(ab), b.Set(a, []byte("v1")), b.DeleteRange(kv.Span{}), b.Merge(a, []byte("o3")))
		}, "v3"},
		{func(b kv.Batch) []error { return errs(b.DeleteRange(kv.Span{Upper: a})) }, "vold"},
		{func(b kv.Batch) []error { return errs(b.DeleteRange(kv.Span{Lower: []byte("b"), Upper: a})) }, "vold"},
	} {
		set(t, s, "a", "vold")
		n := 0
		write(t, s, func(b kv.Batch) {
			for _, err := range c.fill(b) {
				must(t, err)
				n++
			}
		})
		if got := get(t, s, "a"); got != c.want {
			t.Errorf("batch of %d: a = %q, want %q", n, got, c.want)
		}
	}
}

func errs(e ...error) []error { return e }

func batchMisuse(t *testing.T, s kv.Store) {
	b := s.NewBatch()
	a := []byte("a")
	must(t, b.Set(a, a))
	wantErr(t, "set of a long key", b.Set(make([]byte, kv.MaxKeySize+1), nil), kv.ErrTooLarge)
	wantErr(t, "merge of a value", b.Merge(a, []byte("value")), kv.ErrNotOperand)
	wantErr(t, "merge of nothing", b.Merge(a, nil), kv.ErrNotOperand)
	if b.Count() != 1 {
		t.Errorf("refused writes count: %d", b.Count())
	}
	must(t, b.Commit(kv.NoSync))
	wantErr(t, "second commit", b.Commit(kv.NoSync), kv.ErrCommitted)
	wantErr(t, "set after commit", b.Set(a, a), kv.ErrCommitted)
	wantErr(t, "delete after commit", b.Delete(a), kv.ErrCommitted)
	must(t, b.Close())
	for what, err := range map[string]error{
		"set": b.Set(a, a), "merge": b.Merge(a, []byte("o")), "delete": b.Delete(a),
		"delete range": b.DeleteRange(kv.Span{}), "commit": b.Commit(kv.NoSync), "close": b.Close(),
	} {
		wantErr(t, what+" after close", err, kv.ErrClosed)
	}
	if v, err := s.Get(nil, a); err != nil || !bytes.Equal(v, a) {
		t.Errorf("a = %q, error %v", v, err)
	}
}
