// Package kvtest states the contract of package kv as tests that every engine
// runs:
//
//	func TestConformance(t *testing.T) {
//		kvtest.Run(t, func(t *testing.T, m *kv.Merger) kv.Store { … })
//	}
package kvtest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/lianadb/liana/kv"
)

// New opens an empty store that folds with merger (nil: no merges). The suite
// closes it.
type New func(t *testing.T, merger *kv.Merger) kv.Store

// Run runs the suite.
func Run(t *testing.T, open New) {
	for _, group := range []struct {
		name string
		run  func(*testing.T, New)
	}{
		{"Read", testRead},
		{"Iter", testIter},
		{"Batch", testBatch},
		{"Merge", testMerge},
		{"Isolation", testIsolation},
		{"Durable", testDurable},
		{"Close", testClose},
		{"Concurrent", testConcurrent},
		{"Replace", testReplace},
		{"Random", testRandom},
	} {
		t.Run(group.name, func(t *testing.T) { group.run(t, open) })
	}
}

// cases runs each test on a store of its own, with Merger.
func cases(t *testing.T, open New, tests map[string]func(*testing.T, kv.Store)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := open(t, Merger())
			t.Cleanup(func() {
				if err := s.Close(); err != nil && !errors.Is(err, kv.ErrClosed) {
					t.Errorf("close: %v", err)
				}
			})
			test(t, s)
		})
	}
}

// must fails the test at once on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErr checks the class of an error.
func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// write commits what fill puts into one batch.
func write(t *testing.T, s kv.Store, fill func(kv.Batch)) {
	t.Helper()
	b := s.NewBatch()
	fill(b)
	must(t, b.Commit(kv.NoSync))
	must(t, b.Close())
}

// set commits one batch that sets keys and values in turn.
func set(t *testing.T, s kv.Store, pairs ...string) {
	t.Helper()
	write(t, s, func(b kv.Batch) {
		for i := 0; i < len(pairs); i += 2 {
			must(t, b.Set([]byte(pairs[i]), []byte(pairs[i+1])))
		}
	})
}

// absent is what get returns for a key that is not there.
const absent = "<absent>"

func get(t *testing.T, r kv.Reader, key string) string {
	t.Helper()
	v, err := r.Get(nil, []byte(key))
	return answer(t, key, v, err)
}

func answer(t *testing.T, key string, v []byte, err error) string {
	t.Helper()
	if errors.Is(err, kv.ErrNotFound) {
		return absent
	}
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	return string(v)
}

func wantGet(t *testing.T, r kv.Reader, key, want string) {
	t.Helper()
	if got := get(t, r, key); got != want {
		t.Errorf("get %q = %q, want %q", key, got, want)
	}
}

// pairs renders keys and values of a span as "k=v k=v", walking forward or back.
func pairs(t *testing.T, r kv.Reader, span kv.Span, back bool) string {
	t.Helper()
	it, err := r.NewIter(span)
	must(t, err)
	var out bytes.Buffer
	first, step := it.First, it.Next
	if back {
		first, step = it.Last, it.Prev
	}
	for ok := first(); ok; ok = step() {
		v, err := it.Value()
		must(t, err)
		fmt.Fprintf(&out, "%s=%s ", it.Key(), v)
	}
	must(t, it.Error())
	must(t, it.Close())
	return string(bytes.TrimSpace(out.Bytes()))
}

func wantPairs(t *testing.T, r kv.Reader, span kv.Span, want string) {
	t.Helper()
	if got := pairs(t, r, span, false); got != want {
		t.Errorf("span %q = %q, want %q", span, got, want)
	}
}

// Merger is the suite's merger. A value is 'v' and text, an operand 'o' and text;
// Fold appends the texts of the operands to that of the value. An operand with
// '!' in it is damaged.
func Merger() *kv.Merger {
	join := func(kind byte, base []byte, operands [][]byte) ([]byte, error) {
		out := append([]byte{kind}, base...)
		for _, op := range operands {
			if !isOperand(op) || bytes.IndexByte(op, '!') >= 0 {
				return nil, kv.Corruptionf("operand %q", op)
			}
			out = append(out, op[1:]...)
		}
		return out, nil
	}
	return &kv.Merger{
		Name:      "kvtest.append",
		IsOperand: isOperand,
		Fold: func(_, base []byte, operands [][]byte) ([]byte, error) {
			if base == nil {
				return join('v', nil, operands)
			}
			if len(base) == 0 || base[0] != 'v' {
				return nil, kv.Corruptionf("value %q", base)
			}
			return join('v', base[1:], operands)
		},
		Combine: func(_ []byte, operands [][]byte) ([]byte, error) {
			return join('o', nil, operands)
		},
	}
}

func isOperand(b []byte) bool { return len(b) > 0 && b[0] == 'o' }
