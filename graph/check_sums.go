package graph

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"

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
// bits: that a difference hides has the chance of one in 2^64. Sums by the same key add
// up, so each node of a cluster makes those of its shards.
type endSums struct {
	seed uint64
	sums []uint64
}

// edgeName names an edge from either end.
type edgeName struct {
	kind     EdgeType
	src, dst uint64
	hidden   bool
}

func newEndSums(seed uint64) *endSums {
	return &endSums{seed: seed, sums: make([]uint64, checkBuckets)}
}

// checkSeed is the key of one check.
func checkSeed() uint64 { return rand.Uint64() }

// add counts the edge e of list l.
func (s *endSums) add(def *EdgeTypeDef, l ListKey, e *edgelist.Edge) {
	name, source := def.nameOf(l, e.Peer)
	if def.Symmetric && name.src == name.dst {
		return // its two ends are one entry
	}
	h := name.hash(s.seed)
	if source {
		s.sums[h%checkBuckets] += contentHash(h, e, name.hidden)
	} else {
		s.sums[h%checkBuckets] -= contentHash(h, e, name.hidden)
	}
}

func (n edgeName) hash(seed uint64) uint64 {
	var b [8 + 8 + 8 + 8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint64(b[8:], uint64(n.kind)|uint64(flagOf(n.hidden))<<16)
	binary.LittleEndian.PutUint64(b[16:], n.src)
	binary.LittleEndian.PutUint64(b[24:], n.dst)
	return xxhash.Sum64(b[:])
}

// contentHash is a hash of all that both ends of an edge must agree on, never 0. name is
// that of its name. Of a hidden edge the ends share the time only.
func contentHash(name uint64, e *edgelist.Edge, hidden bool) uint64 {
	var b [8 + 8 + 8]byte
	binary.LittleEndian.PutUint64(b[:], name)
	binary.LittleEndian.PutUint64(b[8:], uint64(e.Time))
	if len(e.Props) > 0 && !hidden {
		binary.LittleEndian.PutUint64(b[16:], xxhash.Sum64(e.Props))
	}
	return max(1, xxhash.Sum64(b[:]))
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
	return s.sums[name.hash(s.seed)%checkBuckets] != 0
}

// nameOf names the edge of list l to peer, and says whether l is at its source. A
// symmetric edge has its source at the smaller id.
func (d *EdgeTypeDef) nameOf(l ListKey, peer uint64) (name edgeName, source bool) {
	source = l.Dir == Out || l.Dir == hidden
	if d.Symmetric {
		source = l.Vertex.ID <= peer
	}
	if source {
		return edgeName{d.ID, l.Vertex.ID, peer, l.Dir >= hidden}, true
	}
	return edgeName{d.ID, peer, l.Vertex.ID, l.Dir >= hidden}, false
}
