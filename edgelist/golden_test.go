package edgelist

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestGoldenBytes freezes the stored form of every kind of page and operand. A
// difference here is a new layout: it needs a new kind number, and a reader for
// the old one, as stores hold pages of the old one.
func TestGoldenBytes(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden", func(t *testing.T, d *datadriven.TestData) string {
		b := goldenBytes(t, d)
		if IsOperand(b) != (d.Cmd == "operand") {
			t.Fatalf("%s: IsOperand %v", d.Pos, IsOperand(b))
		}
		roundTrip(t, d, b)
		return fmt.Sprintf("%d bytes\n%s", len(b), strings.TrimSpace(hex.Dump(b)))
	})
}

var kindNames = map[string]kind{
	"packed": kindPacked, "tree": kindTree, "id-leaf": kindIDLeaf,
	"time-leaf": kindTimeLeaf, "id-branch": kindIDBranch, "time-branch": kindTimeBranch,
}

// goldenBytes encodes what a script describes: "put id=1 time=2 …" and "drop id=1".
func goldenBytes(t *testing.T, d *datadriven.TestData) []byte {
	var name string
	var version, weight int
	d.ScanArgs(t, "kind", &name)
	d.MaybeScanArgs(t, "version", &version)
	d.MaybeScanArgs(t, "weight", &weight)
	k := kindNames[name]
	if k == kindTree {
		head := &treeHead{
			version: uint64(version), count: 700, withProps: 2, propBytes: 33, next: 9,
			roots: [2]root{{no: 7, height: 1}, {no: 8, height: 2}},
		}
		return head.append(nil)
	}
	var puts, drops table
	puts.reset(k)
	drops.reset(k)
	for line := range strings.Lines(d.Input) {
		verb, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		r := parseRow(t, args)
		if verb == "drop" {
			drops.appendKey(r.key(k.order()))
		} else {
			puts.append(&r)
		}
	}
	if d.Cmd == "operand" {
		return appendOperand(nil, k, max(weight, 1, puts.n+drops.n), uint64(version), &puts, &drops)
	}
	return appendPage(nil, weight, uint64(version), &puts)
}

func parseRow(t *testing.T, args string) row {
	var r row
	for _, arg := range strings.Fields(args) {
		key, value, _ := strings.Cut(arg, "=")
		var err error
		switch key {
		case "id":
			r.id, err = strconv.ParseUint(value, 10, 64)
		case "time":
			r.time, err = strconv.ParseInt(value, 10, 64)
		case "count":
			r.count, err = strconv.ParseUint(value, 10, 64)
		case "child":
			var n uint64
			n, err = strconv.ParseUint(value, 10, 32)
			r.child = uint32(n)
		case "props":
			r.props = []byte(value)
		default:
			t.Fatalf("unknown field %q", key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// roundTrip decodes golden bytes and encodes them again.
func roundTrip(t *testing.T, d *datadriven.TestData, b []byte) {
	var again []byte
	if d.Cmd == "operand" {
		var err error
		if again, err = Combine([][]byte{b}); err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
	} else {
		p, err := DecodePage(b)
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		if p.tree != nil {
			again = p.tree.append(nil)
		} else {
			again = appendPage(nil, p.weight, p.version, decoded(p))
		}
	}
	if string(again) != string(b) {
		t.Fatalf("%s: decoded and encoded again: %x, was %x", d.Pos, again, b)
	}
}

// TestHeaderSize freezes the cost of the most frequent page: the head of a list
// with one edge. Millions of lists have no more; a byte here is a byte for each
// direction of each of them.
func TestHeaderSize(t *testing.T) {
	var one table
	one.reset(kindPacked)
	one.append(&row{id: 1 << 61, time: 1_700_000_000_000_000})
	const id, time = 8, 7
	for version, size := range map[uint64]int{1: 1, 1 << 20: 3, 1<<28 - 1: 4, 1 << 40: 6} {
		if got := len(appendPage(nil, 0, version, &one)); got != 4+id+time+size {
			t.Errorf("version %d: %d bytes, want 4 + id %d + time %d + version %d", version, got, id, time, size)
		}
	}
}
