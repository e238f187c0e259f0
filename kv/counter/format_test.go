package counter

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
)

// The stored bytes of version 1. Another encoding of the same content is another
// version: data directories written before must stay readable.
func TestGoldenRows(t *testing.T) {
	cfg := testConfig()
	r := newRig(t, cfg)
	r.incr(Increment{Ref: ref(1, 0), Delta: 258, RequestID: "req", Ordinal: 2}, at(0x0102))
	r.incr(Increment{Ref: ref(1, 9), Delta: -1, ExpireAt: 0x0a0b0c}, at(0x0102))
	r.incr(Increment{Ref: Ref{Slot: 2, Row: []byte("\x00\x02key")}, Delta: 7}, at(0x0102))
	r.cut()
	z := func(n int) string { return strings.Repeat("00", n) }
	want := []string{
		// the vertex row: field 0 = 258, 1 to 8 absent, 9 = -1 with its expiry
		"00010007" + "0000000000000001" + "01 = " +
			"0000000000000102" + z(64) + "ffffffffffffffff" + "00000000000a0b0c" + "0102" + "0002" + "0a" + "02",
		"0001fffe" + "01" + "00000000000a0b0c" + "09" + "00010007" + "0000000000000001" + "01 = ",
		"0001fffe" + "02" + "0000000000000102" + "03" + "726571" + "00000002 = ",
		"0001fffe" + "03" + "03" + "726571" + "00000002 = " +
			"01" + "01" + "0000000000000102" + "63993034dd54eee8" + "0000000000000102",
		"0001fffe" + "04 = " + "0000000000000001",
		// a free-form key
		"00026b6579 = " + "0000000000000007" + "01" + "01" + "01",
	}
	if got := r.dump(); got != strings.Join(want, "\n")+"\n" {
		t.Fatalf("stored\n%swant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestOutcomesAreStoredByNumber(t *testing.T) {
	if Applied != 1 || Capped != 2 || Overflow != 3 {
		t.Fatal("an outcome that answers hold has another number")
	}
}

func TestRowKeepsItsFields(t *testing.T) {
	var rec record
	for _, f := range []uint16{0, 7, 8, 63} {
		rec.set(f, int64(f)-8, int64(f)) // field 0 does not expire
	}
	rec.set(30, math.MinInt64, 5)
	rec.clear(30)
	row, err := ParseRow(rec.appendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	if row.Fields() != 64 {
		t.Fatalf("%d fields", row.Fields())
	}
	for f := range uint16(70) {
		want := Counter{}
		switch f {
		case 0, 7, 8, 63:
			want = Counter{Value: int64(f) - 8, Exists: true, ExpireAt: int64(f)}
		}
		if got := row.Get(f, 6); got != want {
			t.Errorf("field %d: got %+v, want %+v", f, got, want)
		}
	}
	if got := row.Get(7, 7); got != (Counter{}) {
		t.Errorf("field 7 is past its time and reads %+v", got)
	}
	rec.clear(63)
	rec.clear(8)
	if row, err = ParseRow(rec.appendTo(nil)); err != nil || row.Fields() != 8 {
		t.Fatalf("%d fields are left, want 8 (%v)", row.Fields(), err)
	}
}

func TestReadingARowTakesNoMemory(t *testing.T) {
	var rec record
	rec.set(2, 5, 9)
	b := rec.appendTo(nil)
	n := testing.AllocsPerRun(100, func() {
		if row, err := ParseRow(b); err != nil || !row.Get(2, 1).Exists {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestForeignRowsAreCorruption(t *testing.T) {
	for _, text := range []string{
		"", "01", "0101", "00000000000000070101", // short
		"0000000000000007" + "01" + "01" + "00",                      // version 0
		"0000000000000007" + "01" + "01" + "03",                      // version 3
		"0000000000000007" + "01" + "00" + "01",                      // no field
		"0000000000000007" + "01" + "41" + "01",                      // 65 fields
		"0000000000000007" + "00" + "01" + "01",                      // nothing present
		"0000000000000007" + "03" + "01" + "01",                      // present past the end
		"0000000000000007" + "0000000000000007" + "01" + "02" + "01", // absent at the end
		"0000000000000007" + "0000000000000007" + "02" + "02" + "01", // absent, not 0
		"0000000000000007" + "01" + "00" + "01" + "02",               // nothing expires
		"0000000000000007" + "0000000000000000" + "01" + "01" + "01" + "02",
		"0000000000000007" + "8000000000000000" + "01" + "01" + "01" + "02",
		"0000000000000000" + "0000000000000007" + "0000000000000001" + "02" + "01" + "02" + "02",
		"00" + "0000000000000007" + "01" + "01" + "01", // long
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseRow(b); !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParseRow(f *testing.F) {
	var rec record
	rec.set(0, 7, 0)
	f.Add(rec.appendTo(nil))
	rec.set(9, -7, 3)
	f.Add(rec.appendTo(nil))
	rec.set(63, 1, math.MaxInt64)
	f.Add(rec.appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		row, err := ParseRow(b)
		if err != nil {
			if !errors.Is(err, kv.ErrCorruption) {
				t.Fatal(err)
			}
			return
		}
		rec := recordOf(row)
		if again := rec.appendTo(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x is written again as %x", b, again)
		}
		for f := range uint16(MaxFields + 3) {
			if got := row.Get(f, math.MinInt64); f < MaxFields && got != rec.get(f) {
				t.Fatalf("field %d: %+v in place, %+v in memory", f, got, rec.get(f))
			}
		}
	})
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(answer{outcome: Capped, value: -3, hash: 4, elapsed: 5}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAnswer(b)
		if err != nil {
			if !errors.Is(err, kv.ErrCorruption) {
				t.Fatal(err)
			}
			return
		}
		if again := a.append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x is written again as %x", b, again)
		}
	})
}

func FuzzTimeOfID(f *testing.F) {
	f.Add(uuidAt(1_700_000_000 * sec))
	f.Fuzz(func(t *testing.T, id string) {
		if µs, ok := timeOfID(id); ok && uuidAt(µs)[:15] != strings.ToLower(id[:15]) {
			t.Fatalf("%q has time %d, which is %q", id, µs, uuidAt(µs))
		}
	})
}

func TestOnlyUUIDsOfVersion7TellTheirTime(t *testing.T) {
	const id = "018bcfe5-6800-7abc-8def-0123456789ab"
	if µs, ok := timeOfID(id); !ok || µs != 1_700_000_000*sec {
		t.Errorf("%s: %d %v", id, µs, ok)
	}
	if _, ok := timeOfID(strings.ToUpper(id)); !ok {
		t.Error("upper case is another id's business")
	}
	for _, other := range []string{
		"", "a", id + "0", id[:35], strings.ReplaceAll(id, "-", ""),
		"018bcfe5-6800-4abc-8def-0123456789ab", // version 4
		"018bcfe5-6800-7abc-cdef-0123456789ab", // another variant
		"018bcfe5-6800-7abc-8def-0123456789ag",
		"018bcfe5-6800-7abc-8def-012345678-ab",
		"018bcfe5x6800-7abc-8def-0123456789ab",
	} {
		if _, ok := timeOfID(other); ok {
			t.Errorf("%q has a time", other)
		}
	}
}
