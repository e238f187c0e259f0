package graph

import (
	"hash/maphash"

	"github.com/lianadb/liana/edgelist"
)

// checkBuckets is the number of sums that a check keeps: 2 MiB. More would make
// fewer edges share a bucket with one that differs.
const checkBuckets = 1 << 18

// endSums compare the two ends of all edges in one pass over the lists, where
// looking for each edge in its other list would read as many lists as there are
// edges. An edge belongs to a bucket by its name. At its source it adds a hash of all
// that both ends must agree on to the bucket, at its destination it takes that
// away. A bucket that is not zero at the end holds an edge whose ends differ, and
// only its edges are looked at one by one. The hashes have a random key and 64
// bits: that a difference hides has the chance of one in 2^64.
type endSums struct {
	seed maphash.Seed
	sums []uint64
}

// edgeName names an edge from either end.
type edgeName struct {
	kind     EdgeType
	src, dst uint64
}

// edgeContent is what both ends must agree on.
type edgeContent struct {
	name, props uint64 // hashes
	time        int64
}

func newEndSums() *endSums {
	return &endSums{seed: maphash.MakeSeed(), sums: make([]uint64, checkBuckets)}
}

// add counts the edge e of list l.
func (s *endSums) add(def *EdgeTypeDef, l ListKey, e *edgelist.Edge) {
	name, source := def.nameOf(l, e.Peer)
	if def.Symmetric && name.src == name.dst {
		return // its two ends are one entry
	}
	h := maphash.Comparable(s.seed, name)
	content := edgeContent{name: h, time: e.Time}
	if len(e.Props) > 0 {
		content.props = maphash.Bytes(s.seed, e.Props)
	}
	if source {
		s.sums[h%checkBuckets] += maphash.Comparable(s.seed, content)
	} else {
		s.sums[h%checkBuckets] -= maphash.Comparable(s.seed, content)
	}
}

// differ reports whether any bucket holds an edge whose ends differ.
func (s *endSums) differ() bool {
	for _, sum := range s.sums {
		if sum != 0 {
			return true
		}
	}
	return false
}

// suspects reports whether the ends of the edge of list l to peer may differ.
func (s *endSums) suspects(def *EdgeTypeDef, l ListKey, peer uint64) bool {
	name, _ := def.nameOf(l, peer)
	return s.sums[maphash.Comparable(s.seed, name)%checkBuckets] != 0
}

// nameOf names the edge of list l to peer, and says whether l is at its source. A
// symmetric edge has its source at the smaller id.
func (d *EdgeTypeDef) nameOf(l ListKey, peer uint64) (name edgeName, source bool) {
	source = l.Dir == Out
	if d.Symmetric {
		source = l.Vertex.ID <= peer
	}
	if source {
		return edgeName{d.ID, l.Vertex.ID, peer}, true
	}
	return edgeName{d.ID, peer, l.Vertex.ID}, false
}
