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
//	version 2, where edges are hidden: … OUT, IN, hidden, hidden IN edges
type totals []total

type total struct {
	t EdgeType
	n [4]uint64 // by direction
}

const (
	totalsVersion       = 1
	hiddenTotalsVersion = 2
)

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
	b, n := []byte{totalsVersion}, int(hidden)
	if slices.ContainsFunc(ts, func(x total) bool { return x.n[hidden] > 0 || x.n[hiddenIn] > 0 }) {
		b[0], n = hiddenTotalsVersion, len(total{}.n)
	}
	for _, x := range ts {
		b = binary.AppendUvarint(b, uint64(x.t))
		for _, count := range x.n[:n] {
			b = binary.AppendUvarint(b, count)
		}
	}
	return b
}

func decodeTotals(b []byte) (totals, error) {
	d := decoder{b: b}
	n := int(hidden)
	switch v := d.byte(); {
	case v == hiddenTotalsVersion:
		n = len(total{}.n)
	case v != totalsVersion && d.err == nil:
		return nil, kv.Corruptionf("totals: version %d", v)
	}
	var ts totals
	for len(d.b) > 0 {
		x := total{t: EdgeType(d.uint16())}
		for i := range x.n[:n] {
			x.n[i] = d.uvarint()
		}
		if len(ts) > 0 && ts[len(ts)-1].t >= x.t {
			d.fail("totals: out of order")
		}
		ts = append(ts, x)
	}
	return ts, d.err
}
