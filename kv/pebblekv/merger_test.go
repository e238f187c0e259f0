package pebblekv

import (
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/kvtest"
)

func testFolder() *folder {
	return newFolder(kvtest.Merger(), func([]byte, error) {})
}

func TestFold(t *testing.T) {
	chain := func(entries ...string) string {
		var b [][]byte
		for _, e := range entries {
			b = append(b, []byte(e))
		}
		return string(appendChain(nil, b))
	}
	for _, c := range []struct {
		name     string
		entries  []string // oldest first
		complete bool
		want     string // "" is corruption
	}{
		{"one operand, more below", []string{"o1"}, false, "o1"},
		{"one operand, nothing below", []string{"o1"}, true, "v1"},
		{"operands, more below", []string{"o1", "o2", "o3"}, false, "o123"},
		{"operands, nothing below", []string{"o1", "o2", "o3"}, true, "v123"},
		{"value and operands", []string{"v0", "o1"}, false, "v01"},
		{"a value hides what is older", []string{"o1", "vA", "o2", "vB", "o3"}, true, "vB3"},
		{"value on top", []string{"o1", "v0"}, false, "v0"},
		{"value alone", []string{"v0"}, true, "v0"},
		{"damaged operand", []string{"v0", "o!"}, true, ""},
		{"damaged operands, more below", []string{"o!", "o1"}, false, ""},
		{"one damaged operand waits for its reader", []string{"o!"}, false, "o!"},
		{"damage below a value is gone", []string{"o!", "v0", "o1"}, true, "v01"},
		{"empty value is a value", []string{"o1", ""}, true, ""},
		{"operand on a foreign value", []string{"", "o1"}, true, ""},
		{"chain that can be folded now", []string{chain("v0", "o1"), "o2"}, false, "v012"},
		{"chain of operands, more below", []string{chain("o1", "o2"), "o3"}, false, "o123"},
		{"chain under a value", []string{chain("o!"), "v1"}, true, "v1"},
		{"chain that cannot", []string{chain("v0", "o!"), "o2"}, true, ""},
		{"empty chain", []string{chain()}, true, ""},
		{"cut chain", []string{chainMagic + "\x05abc"}, true, ""},
		{"endless length", []string{chainMagic + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}, true, ""},
	} {
		var entries [][]byte
		for _, e := range c.entries {
			entries = append(entries, []byte(e))
		}
		got, err := testFolder().fold([]byte("k"), entries, c.complete)
		if c.name == "empty value is a value" {
			if err != nil || len(got) != 0 {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
		} else if c.want == "" != errors.Is(err, kv.ErrCorruption) || c.want != "" && string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

// TestFoldInGroups feeds one list of entries in every grouping and direction, as
// compactions do, and always gets the same value.
func TestFoldInGroups(t *testing.T) {
	m := testFolder().pebble()
	for name, entries := range map[string][]string{
		"value":    {"v0", "o1", "o2", "o3", "o4"},
		"operands": {"o0", "o1", "o2", "o3", "o4"},
		"damage":   {"v0", "o1", "o!", "o3", "o4"},
	} {
		for groups := range 1 << (len(entries) - 1) {
			var parts []string
			start := 0
			for i := range entries {
				if i == len(entries)-1 || groups>>i&1 == 1 {
					// The oldest group ends with its base only when it has one.
					parts = append(parts, finish(t, m.Merge, entries[start:i+1], groups&1 == 1, false))
					start = i + 1
				}
			}
			got, err := testFolder().resolve(nil, []byte(finish(t, m.Merge, parts, groups&2 == 2, true)))
			if name == "damage" {
				if !errors.Is(err, kv.ErrCorruption) {
					t.Errorf("groups %b of %v: %q, %v", groups, entries, got, err)
				}
			} else if string(got) != "v01234" || err != nil {
				t.Errorf("groups %b of %v: %q, %v", groups, entries, got, err)
			}
		}
	}
}

// finish merges parts, oldest first, in one of the two directions.
func finish(t *testing.T, merge func(key, value []byte) (pebble.ValueMerger, error), parts []string, newer, complete bool) string {
	t.Helper()
	if !newer {
		parts = slices.Clone(parts)
		slices.Reverse(parts)
	}
	scratch := []byte(parts[0])
	m, err := merge([]byte("k"), scratch)
	for _, p := range parts[1:] {
		copy(scratch, "zzzzzzzz") // the merger may not keep what it was lent
		scratch = []byte(p)
		if newer {
			err = errors.Join(err, m.MergeNewer(scratch))
		} else {
			err = errors.Join(err, m.MergeOlder(scratch))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	v, closer, err := m.Finish(complete)
	if err != nil {
		t.Fatal(err)
	}
	out := string(v)
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBadMergerIsCorruption(t *testing.T) {
	m := kvtest.Merger()
	m.Fold = func(_, _ []byte, ops [][]byte) ([]byte, error) { return ops[0], nil }
	m.Combine = func([]byte, [][]byte) ([]byte, error) { return []byte("v"), nil }
	f := newFolder(m, nil)
	entries := [][]byte{[]byte("o1"), []byte("o2")}
	for _, complete := range []bool{true, false} {
		if v, err := f.fold(nil, entries, complete); !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("complete %v: %q, %v", complete, v, err)
		}
	}
}

// TestChainLayout freezes the form on disk: stores hold it for as long as a key
// is damaged.
func TestChainLayout(t *testing.T) {
	got := hex.EncodeToString(appendChain(nil, [][]byte{[]byte("v0"), {}, []byte("o1")}))
	if want := "fd6c69616e612e756e666f6c6465640102763000026f31"; got != want {
		t.Errorf("chain %s, want %s", got, want)
	}
	if len(chainMagic) != 16 {
		t.Errorf("magic of %d bytes", len(chainMagic))
	}
}

func TestSetRefusesAChain(t *testing.T) {
	s := mustOpen(t, Options{FS: NewCrashFS().FS()})
	b := s.NewBatch()
	if err := b.Set([]byte("a"), []byte(chainMagic)); err == nil {
		t.Error("set a chain")
	}
	if err := errors.Join(b.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// FuzzChain: any bytes are a value or corruption, and what can be read keeps its
// entries through another round.
func FuzzChain(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x02v0\x02o1"))
	f.Add([]byte("\x02o1\x02o!"))
	f.Add([]byte("\x05abc"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		chain := append([]byte(chainMagic), body...)
		if v, err := testFolder().resolve([]byte("k"), chain); err != nil && !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("%q: %q, %v", body, v, err)
		}
		entries, err := chainEntries(nil, chain)
		if err != nil {
			return
		}
		again, err := chainEntries(nil, appendChain(nil, entries))
		if err != nil || !slices.EqualFunc(entries, again, slices.Equal) {
			t.Errorf("%q: %q, then %q, %v", body, entries, again, err)
		}
	})
}
