package counter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/lianadb/liana/kv"
)

const sec = int64(1_000_000) // µs

// testPrefix is what graph does: a vertex type that no schema can name.
func testPrefix(dst []byte, slot uint16) []byte {
	return append(binary.BigEndian.AppendUint16(dst, slot), 0xff, 0xfe)
}

func testConfig() Config { return Config{Prefix: testPrefix, FirstSlot: 0, EndSlot: 8} }

// ref names field of vertex id, whose slot is id modulo 8.
func ref(id int, field uint16) Ref {
	slot := uint16(id % 8)
	row := binary.BigEndian.AppendUint16(nil, slot)
	row = append(row, 0, 7)
	row = binary.BigEndian.AppendUint64(row, uint64(id))
	return Ref{Slot: slot, Row: append(row, 1), Field: field}
}

func at(now int64) Clock { return Clock{Now: now, Elapsed: now} }

// rig is a State over a store, as the shard drives it.
type rig struct {
	t     testing.TB
	cfg   Config
	store kv.Store
	*State
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	r := &rig{t: t, cfg: cfg, store: kv.NewMem(nil)}
	r.reopen()
	return r
}

func (r *rig) reopen() {
	r.t.Helper()
	s, err := Open(r.cfg, r.store)
	if err != nil {
		r.t.Fatal(err)
	}
	r.State = s
}

func (r *rig) cut() {
	r.t.Helper()
	b := r.store.NewBatch()
	defer b.Close()
	if err := r.Cut(b); err != nil {
		r.t.Fatal(err)
	}
	if err := b.Commit(kv.NoSync); err != nil {
		r.t.Fatal(err)
	}
	r.Published(r.store)
}

func (r *rig) restart() {
	r.t.Helper()
	r.cut()
	r.reopen()
}

func (r *rig) incr(in Increment, clk Clock) Result {
	r.t.Helper()
	res, err := r.Incr(in, clk)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// want runs an increment and compares its answer, written `value outcome`.
func (r *rig) want(in Increment, clk Clock, want string) {
	r.t.Helper()
	res := r.incr(in, clk)
	got := fmt.Sprintf("%d %v", res.Value, res.Outcome)
	if res.Repeated {
		got += " again"
	}
	if got != want {
		r.t.Fatalf("%v %+d: got %q, want %q", in.Ref, in.Delta, got, want)
	}
}

func (r *rig) wantValue(ref Ref, now int64, want Counter) {
	r.t.Helper()
	got, err := r.Get(ref, now)
	if err != nil {
		r.t.Fatal(err)
	}
	if got != want {
		r.t.Fatalf("%v at %d: got %+v, want %+v", ref, now, got, want)
	}
}

// dump lists all rows of the store.
func (r *rig) dump() string {
	r.t.Helper()
	it, err := r.store.NewIter(kv.Span{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer it.Close()
	var out []byte
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.Value()
		if err != nil {
			r.t.Fatal(err)
		}
		out = fmt.Appendf(out, "%x = %x\n", it.Key(), v)
	}
	return string(out)
}

// check proves the store whole; prefix rows aside, all rows are counter rows.
func (r *rig) check() {
	r.t.Helper()
	for _, err := range r.faults() {
		r.t.Error(err)
	}
}

func (r *rig) faults() (faults []error) {
	r.t.Helper()
	report := func(err error) { faults = append(faults, err) }
	for slot := r.cfg.FirstSlot; slot < r.cfg.EndSlot; slot++ {
		if err := CheckSlot(r.cfg, r.store, slot, report); err != nil {
			r.t.Fatal(err)
		}
	}
	it, err := r.store.NewIter(kv.Span{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		slot := binary.BigEndian.Uint16(it.Key())
		if bytes.HasPrefix(it.Key(), testPrefix(nil, slot)) {
			continue
		}
		v, err := it.Value()
		if err != nil {
			r.t.Fatal(err)
		}
		if err := CheckRow(r.cfg, r.store, slot, it.Key(), v, report); err != nil {
			r.t.Fatal(err)
		}
	}
	return faults
}
