package graph

import (
	"encoding/binary"
	"slices"

	"github.com/lianadb/liana/kv"
)

// totals are the numbers of edges in the lists of a shard, by edge type and
// direction. They are part of the state, and answer without a read that a shard
// has no edge of a type at all.
//
//	row: version [1] | n × (edge type, OUT edges, IN edges) (uvarint), by edge type
type totals []total

type total struct {
	t EdgeType
	n [2]uint64 // by direction
}

const totalsVersion = 1

func (ts *totals) of(t EdgeType) *total {
	i, ok := slices.BinarySearchFunc(*ts, t, func(x total, t EdgeType) int { return int(x.t) - int(t) })
	if !ok {
		*ts = slices.Insert(*ts, i, total{t: t})
	}
	return &(*ts)[i]
}

// add counts the growth of a list by one, or by minus one.
func (ts *totals) add(l ListKey, kind recordKind) {
	switch kind {
	case recAdd:
		ts.of(l.Type).n[l.Dir]++
	case recDelete:
		ts.of(l.Type).n[l.Dir]--
	}
}

func (ts totals) encode() []byte {
	b := []byte{totalsVersion}
	for _, x := range ts {
		b = binary.AppendUvarint(b, uint64(x.t))
		b = binary.AppendUvarint(b, x.n[Out])
		b = binary.AppendUvarint(b, x.n[In])
	}
	return b
}

func decodeTotals(b []byte) (totals, error) {
	d := decoder{b: b}
	if v := d.byte(); v != totalsVersion && d.err == nil {
		return nil, kv.Corruptionf("totals: version %d", v)
	}
	var ts totals
	for len(d.b) > 0 {
		x := total{t: EdgeType(d.uint16()), n: [2]uint64{d.uvarint(), d.uvarint()}}
		if len(ts) > 0 && ts[len(ts)-1].t >= x.t {
			d.fail("totals: out of order")
		}
		ts = append(ts, x)
	}
	return ts, d.err
}
