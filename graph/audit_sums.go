package graph

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv/counter"
)

// What a derived counter sums may lie in shards of which no node has replicas of all. For a
// check of a cluster each shard adds what its vertices give to each counter, and takes
// away the counters that it has: together that is nothing, but for counters that differ.

// DerivedPart is what a shard knows of a derived counter.
type DerivedPart struct {
	Owner  Vertex
	Metric Metric
	Sum    int64 // of what lies in the shard
	Value  int64 // of the counter, where that lies in the shard
}

// DerivedParts are parts as one view shows them. Given and Received say how far the
// shard's streams to and from others have come.
type DerivedParts struct {
	Parts           []DerivedPart
	Given, Received map[uint32]uint64
}

// SumDerived returns sums over what this node's replica of a shard knows of derived
// counters. Those of all shards, by the same seed, add up to 0 but for counters that
// differ from what they stand for.
func (g *Graph) SumDerived(ctx context.Context, id uint32, seed uint64) ([]uint64, error) {
	sums := make([]uint64, checkBuckets)
	v, err := g.viewOf(id)
	if err != nil {
		return nil, err
	}
	defer v.release()
	return sums, v.eachDerived(ctx, func(p DerivedPart) {
		h := p.hash(seed)
		sums[h%checkBuckets] += (h | 1) * uint64(p.Sum-p.Value)
	})
}

// FindDerived returns what this node's replica of a shard knows of the derived counters
// whose sums are among the numbered ones: the first MaxFoundEnds.
func (g *Graph) FindDerived(ctx context.Context, id uint32, seed uint64, sums []uint32) (*DerivedParts, error) {
	v, err := g.viewOf(id)
	if err != nil {
		return nil, err
	}
	defer v.release()
	ends, err := v.streamEnds()
	if err != nil {
		return nil, err
	}
	wanted := make([]bool, checkBuckets)
	for _, n := range sums {
		wanted[n%checkBuckets] = true
	}
	out := &DerivedParts{Given: ends.given, Received: ends.received}
	at := map[derivedRef]int{} // 1 + its place
	err = v.eachDerived(ctx, func(p DerivedPart) {
		ref := derivedRef{p.Owner, p.Metric}
		if !wanted[p.hash(seed)%checkBuckets] || at[ref] == 0 && len(out.Parts) == MaxFoundEnds {
			return
		}
		if at[ref] == 0 {
			out.Parts = append(out.Parts, DerivedPart{Owner: p.Owner, Metric: p.Metric})
			at[ref] = len(out.Parts)
		}
		known := &out.Parts[at[ref]-1]
		known.Sum, known.Value = known.Sum+p.Sum, known.Value+p.Value
	})
	return out, err
}

type derivedRef struct {
	owner  Vertex
	metric Metric
}

func (p *DerivedPart) hash(seed uint64) uint64 {
	var b [8 + 8 + 8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint64(b[8:], uint64(p.Owner.Type)<<16|uint64(p.Metric))
	binary.LittleEndian.PutUint64(b[16:], p.Owner.ID)
	return xxhash.Sum64(b[:])
}

// eachDerived calls do with what the lists and counters of the view's shard say of
// derived counters, each by itself.
func (v *view) eachDerived(ctx context.Context, do func(DerivedPart)) error {
	if v.schema == nil || v.own == nil {
		return nil
	}
	return v.scan(ctx, func(r *storedRow) error {
		switch {
		case r.kind == familyCounter && r.owner.Type <= maxTypeID:
			row, err := counter.ParseRow(r.value)
			if err != nil {
				return nil // the check of the row tells
			}
			for _, d := range v.schema.derived {
				if n := row.Get(uint16(d.Metric)-1, v.now).Value; d.Vertex == r.owner.Type && n != 0 {
					do(DerivedPart{Owner: r.owner, Metric: d.Metric, Value: n})
				}
			}
		case r.kind == familyList && r.list.Dir == In:
			for _, d := range v.schema.sumsOver[r.list.Type] {
				if err := v.partsOf(ctx, r.list, d, do); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// partsOf tells what the vertex of a list of owners gives to each of these.
func (v *view) partsOf(ctx context.Context, owners ListKey, d *Derived, do func(DerivedPart)) error {
	if !v.backfills.counts(d, owners.Vertex) {
		return nil
	}
	counted := owners
	counted.Type = d.Sum
	sum, err := edgelist.Open(&proofSource{key: counted, read: v.snap})
	if err != nil {
		return fmt.Errorf("list %v: %w", counted, err)
	}
	if sum.Count() == 0 {
		return nil
	}
	list, err := edgelist.Open(&proofSource{key: owners, read: v.snap})
	if err != nil {
		return fmt.Errorf("list %v: %w", owners, err)
	}
	return each(ctx, list, func(e *edgelist.Edge) error {
		do(DerivedPart{Owner: Vertex{d.Vertex, e.Peer}, Metric: d.Metric, Sum: int64(sum.Count())})
		return nil
	})
}
