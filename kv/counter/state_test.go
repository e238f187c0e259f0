package counter

import (
	"math"
	"testing"
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
