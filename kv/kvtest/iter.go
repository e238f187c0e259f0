package kvtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
)

func testIter(t *testing.T, open New) {
	cases(t, open, map[string]func(*testing.T, kv.Store){
		"Script":                iterScript,
		"Spans":                 iterSpans,
		"StandsNowhereAtFirst":  iterUnpositioned,
		"BoundsAreReusable":     iterOwnsBounds,
		"ManyKeysAcrossFlushes": iterManyKeys,
	})
}

// iterScript walks [b, f) of a, b, c, e, f, g step by step.
func iterScript(t *testing.T, s kv.Store) {
	set(t, s, "a", "1", "b", "2", "c", "3", "e", "4", "f", "5", "g", "6")
	for _, script := range []struct{ steps, want string }{
		{"first next next next", "b c e ."},
		{"last prev prev prev", "e c b ."},
		{"first prev", "b ."},
		{"last next", "e ."},
		{"first next next prev prev prev", "b c e c b ."},
		{"last prev next next", "e c e ."},
		{"seekge:a seekge:b seekge:bb seekge:d seekge:ee", "b b c e ."},
		{"seekge:f", "."},
		{"seekge:z", "."},
		{"seeklt:z seeklt:f seeklt:e seeklt:d seeklt:c seeklt:b", "e e c c b ."},
		{"seeklt:a", "."},
		{"seeklt:", "."},
		{"seekge:", "b"},
		{"seekge:d prev prev next next next", "e c b c e ."},
		{"seeklt:d next prev prev prev", "c e c b ."},
		{"seekge:c seeklt:c seekge:c", "c b c"},
		{"first next next next next prev", "b c e . . ."},
		{"last prev prev prev first", "e c b . b"},
		{"seekge:z last", ". e"},
	} {
		it, err := s.NewIter(kv.Span{Lower: []byte("b"), Upper: []byte("f")})
		must(t, err)
		var got []string
		for _, step := range strings.Fields(script.steps) {
			got = append(got, iterStep(t, it, step))
		}
		if g := strings.Join(got, " "); g != script.want {
			t.Errorf("%s: %s, want %s", script.steps, g, script.want)
		}
		must(t, it.Error())
		must(t, it.Close())
	}
}

// iterStep moves it and returns the key it stands on, or ".".
func iterStep(t *testing.T, it kv.Iterator, step string) string {
	t.Helper()
	op, arg, _ := strings.Cut(step, ":")
	var ok bool
	switch op {
	case "first":
		ok = it.First()
	case "last":
		ok = it.Last()
	case "next":
		ok = it.Next()
	case "prev":
		ok = it.Prev()
	case "seekge":
		ok = it.SeekGE([]byte(arg))
	case "seeklt":
		ok = it.SeekLT([]byte(arg))
	default:
		t.Fatalf("step %q", step)
	}
	if ok != (it.Key() != nil) {
		t.Errorf("%s returned %v at key %q", step, ok, it.Key())
	}
	if !ok {
		return "."
	}
	return string(it.Key())
}

func iterSpans(t *testing.T, s kv.Store) {
	set(t, s, "\x00", "0", "a", "1", "b", "2", "\xff", "3", "\xff\xff", "4")
	key := func(s string) []byte { return []byte(s) }
	for _, c := range []struct {
		span kv.Span
		want string
	}{
		{kv.Span{}, "\x00=0 a=1 b=2 \xff=3 \xff\xff=4"},
		{kv.Span{Lower: key("a")}, "a=1 b=2 \xff=3 \xff\xff=4"},
		{kv.Span{Upper: key("b")}, "\x00=0 a=1"},
		{kv.Span{Lower: key("a"), Upper: key("a")}, ""},
		{kv.Span{Lower: key("b"), Upper: key("a")}, ""},
		{kv.Span{Upper: key("")}, ""},
		{kv.Span{Lower: key("a"), Upper: key("a\x00")}, "a=1"},
		{kv.PrefixSpan(key("\xff")), "\xff=3 \xff\xff=4"},
		{kv.PrefixSpan(key("")), "\x00=0 a=1 b=2 \xff=3 \xff\xff=4"},
	} {
		wantPairs(t, s, c.span, c.want)
		back := strings.Fields(pairs(t, s, c.span, true))
		for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
			back[i], back[j] = back[j], back[i]
		}
		if got := strings.Join(back, " "); got != c.want {
			t.Errorf("span %q backward = %q, want %q", c.span, got, c.want)
		}
		it, err := s.NewIter(c.span)
		must(t, err)
		if c.want == "" && (it.First() || it.Last() || it.SeekGE(nil) || it.SeekGE(key("a")) || it.SeekLT(key("z"))) {
			t.Errorf("empty span %q holds %q", c.span, it.Key())
		}
		must(t, it.Close())
	}
}

func iterUnpositioned(t *testing.T, s kv.Store) {
	set(t, s, "a", "1")
	it, err := s.NewIter(kv.Span{})
	must(t, err)
	if it.Next() || it.Prev() || it.Key() != nil {
		t.Error("a fresh iterator stands on a key")
	}
	if v, err := it.Value(); v != nil || err != nil {
		t.Errorf("value %q, error %v", v, err)
	}
	if !it.First() {
		t.Error("first found nothing")
	}
	must(t, it.Close())
}

func iterOwnsBounds(t *testing.T, s kv.Store) {
	set(t, s, "a", "1", "b", "2", "c", "3")
	lower, upper, seek := []byte("a"), []byte("c"), []byte("b")
	it, err := s.NewIter(kv.Span{Lower: lower, Upper: upper})
	must(t, err)
	lower[0], upper[0] = 'z', 'z'
	if !it.SeekGE(seek) {
		t.Fatal("b not found")
	}
	seek[0] = 'z'
	if string(it.Key()) != "b" || it.Next() {
		t.Errorf("at %q, want the end of the span", it.Key())
	}
	if !it.First() || string(it.Key()) != "a" {
		t.Errorf("first is %q", it.Key())
	}
	must(t, it.Close())
}

func iterManyKeys(t *testing.T, s kv.Store) {
	const n = 3000
	key := func(i int) string { return fmt.Sprintf("k%05d", i) }
	for i := range n { // scattered over many tables and the memtable
		set(t, s, key(i*7%n), fmt.Sprint(i*7%n))
		if i%700 == 699 {
			must(t, s.Flush())
		}
	}
	it, err := s.NewIter(kv.Span{})
	must(t, err)
	defer func() { must(t, it.Close()) }()
	i := 0
	for ok := it.First(); ok; ok = it.Next() {
		if string(it.Key()) != key(i) {
			t.Fatalf("key %d is %q", i, it.Key())
		}
		i++
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		i--
		if string(it.Key()) != key(i) {
			t.Fatalf("backward: key %d is %q", i, it.Key())
		}
	}
	if i != 0 {
		t.Errorf("%d more keys forward than backward", i)
	}
}
