package counter

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/lianadb/liana/kv"
)

func atMost(n int64) Bounds { return Bounds{Max: n, HasMax: true} }

func TestIncrementsOfOneCutAddUpInOneRow(t *testing.T) {
	r := newRig(t, testConfig())
	for i := range 10 {
		res := r.incr(Increment{Ref: ref(1, 0), Delta: int64(i)}, at(1))
		if want := int64(i * (i + 1) / 2); res.Value != want {
			t.Fatalf("increment %d answered %d, want %d", i, res.Value, want)
		}
	}
	b := r.store.NewBatch()
	defer b.Close()
	if err := r.Cut(b); err != nil {
		t.Fatal(err)
	}
	if b.Count() != 1 {
		t.Fatalf("the cut wrote %d rows, want 1", b.Count())
	}
}

func TestCapHoldsBackAndSaysSo(t *testing.T) {
	r := newRig(t, testConfig())
	c := ref(1, 0)
	r.want(Increment{Ref: c, Delta: 6, Caps: atMost(5)}, at(1), "0 capped")
	r.wantValue(c, 1, Counter{})
	r.want(Increment{Ref: c, Delta: 5, Caps: atMost(5)}, at(1), "5 applied")
	r.want(Increment{Ref: c, Delta: 1, Caps: atMost(5)}, at(1), "5 capped")
	r.want(Increment{Ref: c, Delta: 1, Caps: atMost(9), Schema: atMost(5)}, at(1), "5 capped")
	r.want(Increment{Ref: c, Delta: -6, Caps: Bounds{HasMin: true}}, at(1), "5 capped")
	r.want(Increment{Ref: c, Delta: -5, Caps: Bounds{HasMin: true}}, at(1), "0 applied")
	r.wantValue(c, 1, Counter{Exists: true})
}

func TestOverflowChangesNothing(t *testing.T) {
	r := newRig(t, testConfig())
	up, down := ref(1, 0), ref(2, 0)
	r.want(Increment{Ref: up, Delta: 9223372036854775800}, at(1), "9223372036854775800 applied")
	r.want(Increment{Ref: up, Delta: 100}, at(1), "9223372036854775800 overflow")
	r.want(Increment{Ref: up, Delta: 100, Caps: atMost(math.MaxInt64)}, at(1), "9223372036854775800 capped")
	r.want(Increment{Ref: up, Delta: 7}, at(1), "9223372036854775807 applied")
	r.want(Increment{Ref: down, Delta: math.MinInt64}, at(1), "-9223372036854775808 applied")
	r.want(Increment{Ref: down, Delta: -1}, at(1), "-9223372036854775808 overflow")
	r.want(Increment{Ref: down, Delta: 17179869184}, at(1), "-9223372019674906624 applied")
}

func TestBoundsIntersect(t *testing.T) {
	b := Bounds{Min: -5, HasMin: true}.Intersect(Bounds{Min: -3, HasMin: true, Max: 9, HasMax: true}).
		Intersect(Bounds{Min: -4, HasMin: true, Max: 7, HasMax: true}).Intersect(Bounds{Max: 8, HasMax: true}).
		Intersect(Bounds{})
	if want := (Bounds{Min: -3, Max: 7, HasMin: true, HasMax: true}); b != want {
		t.Fatalf("got %+v, want %+v", b, want)
	}
}

func TestSetAndDelete(t *testing.T) {
	r := newRig(t, testConfig())
	c := ref(1, 2)
	set := func(a Assignment, now int64, want Outcome) {
		t.Helper()
		a.Ref = c
		if got, err := r.Set(a, at(now)); got != want || err != nil {
			t.Fatalf("%+v: %v (%v), want %v", a, got, err, want)
		}
	}
	set(Assignment{Value: 6, Schema: atMost(5)}, 1, Capped)
	set(Assignment{Value: 6, ExpireAt: 1}, 1, ExpirePast)
	r.wantValue(c, 1, Counter{})
	set(Assignment{Value: 6, ExpireAt: 9}, 1, Applied)
	r.wantValue(c, 1, Counter{Value: 6, Exists: true, ExpireAt: 9})
	set(Assignment{Value: 0}, 2, Applied) // takes the expiry away
	r.restart()
	r.wantValue(c, 99, Counter{Exists: true})
	for _, want := range []bool{true, false} {
		if existed, err := r.Delete(c, at(3)); existed != want || err != nil {
			t.Fatalf("deleted: %v (%v), want %v", existed, err, want)
		}
	}
	r.cut()
	if dump := r.dump(); dump != "" {
		t.Fatalf("left behind:\n%s", dump)
	}
}

// recording is a batch that lists its writes in order.
type recording struct {
	kv.Batch
	keys [][]byte
}

func (b *recording) Set(key, _ []byte) error { b.keys = append(b.keys, bytes.Clone(key)); return nil }
func (b *recording) Delete(key []byte) error { return b.Set(key, nil) }

func TestCutDependsOnTheChangesAlone(t *testing.T) {
	var want [][]byte
	for run := range 4 {
		r := newRig(t, testConfig())
		for i := range 50 {
			i = (i*7 + run*13) % 50
			r.incr(Increment{Ref: ref(i, 0), Delta: 1, ExpireAt: 9, RequestID: fmt.Sprint(i)}, at(1))
		}
		var b recording
		if err := r.Cut(&b); err != nil {
			t.Fatal(err)
		}
		if run == 0 {
			want = b.keys
		}
		if !slices.EqualFunc(b.keys, want, bytes.Equal) {
			t.Fatalf("run %d writes %x, the first wrote %x", run, b.keys, want)
		}
	}
}

func TestCutWritesEachChangeOnce(t *testing.T) {
	r := newRig(t, testConfig())
	r.incr(Increment{Ref: ref(1, 0), Delta: 1, ExpireAt: 9, RequestID: "a"}, at(1))
	r.cut()
	r.wantValue(ref(1, 0), 1, Counter{Value: 1, Exists: true, ExpireAt: 9})
	var b recording
	if err := r.Cut(&b); err != nil || len(b.keys) != 0 {
		t.Fatalf("a cut of nothing writes %x (%v)", b.keys, err)
	}
}

func TestCacheOfRowsIsBounded(t *testing.T) {
	cfg := testConfig()
	cfg.CacheRows = 100
	r := newRig(t, cfg)
	for i := range 5000 {
		r.incr(Increment{Ref: ref(i, 0), Delta: 1}, at(1))
		r.incr(Increment{Ref: ref(1, 0), Delta: 1}, at(1))
		if i%10 == 9 {
			r.cut()
		}
	}
	if n := len(r.rows.young) + len(r.rows.old); n > 120 {
		t.Fatalf("%d rows are kept", n)
	}
	r.wantValue(ref(1, 0), 1, Counter{Value: 5001, Exists: true})
}
