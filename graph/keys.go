package graph

import (
	"bytes"
	"encoding/binary"

	"github.com/lianadb/liana/kv"
)

// Keys of the state store, all big-endian, so that they sort as their parts do:
//
//	data      slot [2] | vertex type [2] | vertex id [8] | family [1] | …
//	  0x10    … | edge type [2] | direction [1]                              list head
//	          (direction: OUT, IN, hidden, hidden IN)
//	  0x10    … | edge type [2] | direction [1] | order [1] | page number [4]  list page
//	  0x20    counter row of the vertex
//	  0x21    … | metric [2]                                                 expiry of a metric
//	          slot [2] | 0xFFFD | vertex type [2] | vertex id [8]            mark of a vertex
//	          slot [2] | 0xFFFE | …                                          dedupe rows (kv/counter)
//	          slot [2] | 0xFFFF | key                                        free-form counter
//	local     0xFFF0 [2] | shard [4] | family [1] | …
//	  'm'     meta: timeline, change counter
//	  'y'     schema
//	  'w'     owners of all slots
//	  'f'     family: the shards that this one was one with
//	  't'     totals of edges
//	  'r'     how often the shard was recovered; absent: never
//	  'k'     derived counters that do not count all vertices yet; absent: none
//	  'b'     … | key of a list head          IN lists in tree form
//	  'c'     … | position [8]                change rows, by the last position in each
//	  'o'     … | shard [4] | position [8]    outbox rows, likewise
//	  's'     … | shard [4]                   outgoing stream: epoch, trimmed
//	  'd'     … | shard [4]                   incoming stream: epoch, cursor
//
// A slot is below 0x1000, so data and local rows never mix, and the slots of a
// shard are one span. Vertex type numbers end at 0xFEFF.

// NumSlots is the number of hash slots. It is part of every data key.
const NumSlots = 4096

const (
	familyList    = 0x10
	familyCounter = 0x20
	familyExpiry  = 0x21

	typeMark    = 0xFFFD
	typeDedupe  = 0xFFFE
	typeFreeKey = 0xFFFF

	localPrefix     = 0xFFF0
	localMeta       = 'm'
	localSchema     = 'y'
	localOwners     = 'w'
	localFamily     = 'f'
	localBirth      = 'p'
	localTotals     = 't'
	localRecoveries = 'r'
	localBackfills  = 'k'
	localTree       = 'b'
	localChange     = 'c'
	localOutbox     = 'o'
	localStreamOut  = 's'
	localStreamIn   = 'd'
)

// localFamilies are all that there are.
var localFamilies = []byte{
	localMeta, localSchema, localOwners, localFamily, localBirth, localTotals, localRecoveries, localBackfills,
	localTree, localChange, localOutbox, localStreamOut, localStreamIn,
}

// Slot is a hash slot: 0 to NumSlots-1.
type Slot uint16

// SlotOf returns the slot of a vertex: the top twelve bits of its mixed type
// and id (the finalizer of splitmix64). Stored keys depend on it.
func SlotOf(v Vertex) Slot {
	return Slot(mix64(v.ID+uint64(v.Type)*0x9E3779B97F4A7C15) >> 52)
}

// SlotOfKey returns the slot of a free-form counter (FNV-1a, mixed).
func SlotOfKey(key string) Slot {
	h := uint64(0xcbf29ce484222325)
	for i := 0; i < len(key); i++ {
		h = (h ^ uint64(key[i])) * 0x100000001b3
	}
	return Slot(mix64(h) >> 52)
}

func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func appendVertex(b []byte, v Vertex) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(SlotOf(v)))
	b = binary.BigEndian.AppendUint16(b, uint16(v.Type))
	return binary.BigEndian.AppendUint64(b, v.ID)
}

// headSize is the length of a list head's key; a page's key is pageSuffix longer.
const (
	headSize   = 2 + 2 + 8 + 1 + 2 + 1
	pageSuffix = 1 + 4
)

func appendHeadKey(b []byte, l ListKey) []byte {
	b = append(appendVertex(b, l.Vertex), familyList)
	b = binary.BigEndian.AppendUint16(b, uint16(l.Type))
	return append(b, byte(l.Dir))
}

// parseListKey reads the key of a head or page, and reports whether it is one.
func parseListKey(k []byte) (l ListKey, page []byte, ok bool) {
	if len(k) != headSize && len(k) != headSize+pageSuffix || k[12] != familyList {
		return ListKey{}, nil, false
	}
	l.Vertex = Vertex{Type: VertexType(binary.BigEndian.Uint16(k[2:])), ID: binary.BigEndian.Uint64(k[4:])}
	l.Type = EdgeType(binary.BigEndian.Uint16(k[13:]))
	l.Dir = Direction(k[15])
	return l, k[headSize:], l.Dir <= hiddenIn && binary.BigEndian.Uint16(k) < NumSlots && VertexType(l.Vertex.Type) <= maxTypeID
}

func slotSpan(first, last Slot) (lower, upper []byte) {
	return binary.BigEndian.AppendUint16(nil, uint16(first)), binary.BigEndian.AppendUint16(nil, uint16(last)+1)
}

// dataSpan holds the data of a range of slots; nothing for nil.
func dataSpan(own *Claim) kv.Span {
	if own == nil {
		return kv.Span{Lower: []byte{0}, Upper: []byte{0}}
	}
	lower, upper := slotSpan(own.First, own.Last)
	return kv.Span{Lower: lower, Upper: upper}
}

func appendLocal(b []byte, shard uint32, family byte) []byte {
	b = binary.BigEndian.AppendUint16(b, localPrefix)
	b = binary.BigEndian.AppendUint32(b, shard)
	return append(b, family)
}

func changeKey(b []byte, shard uint32, pos uint64) []byte {
	return binary.BigEndian.AppendUint64(appendLocal(b, shard, localChange), pos)
}

func outboxKey(b []byte, shard, to uint32, pos uint64) []byte {
	b = binary.BigEndian.AppendUint32(appendLocal(b, shard, localOutbox), to)
	return binary.BigEndian.AppendUint64(b, pos)
}

func streamKey(b []byte, shard uint32, family byte, peer uint32) []byte {
	return binary.BigEndian.AppendUint32(appendLocal(b, shard, family), peer)
}

// Reads implements shard.RowReader by the drawing at the top of this file.
func (m *Machine) Reads(key []byte) error {
	if !knownKey(key) {
		return kv.Corruptionf("row of an unknown kind: key %x", key)
	}
	return nil
}

func knownKey(k []byte) bool {
	if len(k) < 4 {
		return false
	}
	kind := binary.BigEndian.Uint16(k[2:])
	switch first := binary.BigEndian.Uint16(k); {
	case first == localPrefix:
		return len(k) > 6 && bytes.IndexByte(localFamilies, k[6]) >= 0
	case first >= NumSlots:
		return false
	case kind == typeMark:
		_, is := parseMarkKey(k)
		return is
	case kind == typeDedupe, kind == typeFreeKey:
		return true
	case kind > maxTypeID || len(k) <= 12:
		return false
	case k[12] == familyList:
		return isList(k)
	}
	return k[12] == familyCounter || k[12] == familyExpiry
}
