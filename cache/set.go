package cache

import "math/bits"

// mix spreads a number over 64 bits.
func mix(n uint64) uint64 {
	hi, lo := bits.Mul64(n^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

// peerSet is the set of the peers of a window: a table at most half full, where a peer
// lies at the first free place from its hash on. Peer 0 marks a free place, so
// whether it is in the set is kept apart.
type peerSet struct {
	table []uint64
	zero  bool
}

func newPeerSet(edges []Edge) *peerSet {
	s := &peerSet{table: make([]uint64, 2<<bits.Len(uint(len(edges))))}
	for i := range edges {
		peer := edges[i].Peer
		if peer == 0 {
			s.zero = true
			continue
		}
		place := s.place(peer)
		s.table[place] = peer
	}
	return s
}

// place is where a peer lies, or would.
func (s *peerSet) place(peer uint64) uint64 {
	last := uint64(len(s.table) - 1)
	place := mix(peer) & last
	for s.table[place] != 0 && s.table[place] != peer {
		place = (place + 1) & last
	}
	return place
}

func (s *peerSet) has(peer uint64) bool {
	if peer == 0 {
		return s.zero
	}
	return s.table[s.place(peer)] == peer
}

// hash is the same for the same key.
func (k *Key) hash() uint64 {
	n := uint64(k.Slot) | uint64(k.Kind)<<16 | uint64(k.Vertex.Type)<<24 | uint64(k.Edge)<<40
	if k.In {
		n |= 1 << 56
	}
	return mix(mix(mix(k.Vertex.ID)^k.Chunk) ^ n)
}

// keyIndex finds the places of keys among wants.
type keyIndex struct {
	table []int32 // places, plus 1; as peerSet's
}

// clear makes an empty index for up to n keys.
func (x *keyIndex) clear(n int) {
	if need := 2 << bits.Len(uint(n)); need > cap(x.table) {
		x.table = make([]int32, need)
	} else {
		x.table = x.table[:need]
		clear(x.table)
	}
}

// place returns the place of a key's want. Where it is not known it is to be added at
// the end of wants, and that is its place.
func (x *keyIndex) place(wants []Want, k *Key) (place int, known bool) {
	if n := len(wants); n > 0 && wants[n-1].Key == *k { // many questions of one list
		return n - 1, true
	}
	last := uint64(len(x.table) - 1)
	for at := k.hash() & last; ; at = (at + 1) & last {
		switch place := int(x.table[at]) - 1; {
		case place < 0:
			x.table[at] = int32(len(wants) + 1)
			return len(wants), false
		case wants[place].Key == *k:
			return place, true
		}
	}
}
