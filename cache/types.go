package cache

import "fmt"

// NumSlots is the number of slots that vertices are hashed to.
const NumSlots = 4096

// Slot is the slot of a vertex. All that is cached of a slot lies together.
type Slot uint16

// Vertex names a vertex by the numbers that the schema gives its type.
type Vertex struct {
	Type uint16
	ID   uint64
}

// List names an edge list.
type List struct {
	Vertex Vertex
	Edge   uint16 // the edge type
	In     bool   // the edges that reach the vertex
}

// Edge is one edge of a list as tiers keep it. Properties are not cached.
type Edge struct {
	Time int64 // µs since 1970
	Peer uint64
}

// Compare orders edges by time, then peer.
func (e Edge) Compare(o Edge) int {
	switch {
	case e.Time < o.Time:
		return -1
	case e.Time > o.Time:
		return 1
	case e.Peer < o.Peer:
		return -1
	case e.Peer > o.Peer:
		return 1
	}
	return 0
}

// Position is a place in the history of a slot: the number of a change in its
// shard's counter. Timelines part at a restore; positions of two timelines are
// not to be compared. Timeline 0 is none.
type Position struct {
	Timeline uint64
	Number   uint64
}

// Covers reports whether a state at p may answer what needs a state at need.
func (p Position) Covers(need Position) bool {
	return p.Timeline == need.Timeline && p.Number >= need.Number
}

// MaxNumber is the largest position that is cached. Redis' scripts compute in
// doubles, which hold whole numbers up to it.
const MaxNumber = 1<<53 - 1

// Kind is what an entry holds.
type Kind uint8

// The kinds.
const (
	KindRow    Kind = iota + 1 // counts and metrics of a vertex
	KindWindow                 // the newest edges of a list
	KindChunk                  // a bitmap of some peers of a list
)

// Key names an entry.
type Key struct {
	Slot   Slot
	Kind   Kind
	Vertex Vertex
	Edge   uint16 // windows and chunks
	In     bool   // windows and chunks
	Chunk  uint64 // chunks: peer / ChunkPeers
}

// RowKey names the row of a vertex.
func RowKey(s Slot, v Vertex) Key { return Key{Slot: s, Kind: KindRow, Vertex: v} }

// WindowKey names the window of a list.
func WindowKey(s Slot, l List) Key {
	return Key{Slot: s, Kind: KindWindow, Vertex: l.Vertex, Edge: l.Edge, In: l.In}
}

// ChunkKey names the chunk of a list that holds a peer.
func ChunkKey(s Slot, l List, peer uint64) Key {
	return Key{Slot: s, Kind: KindChunk, Vertex: l.Vertex, Edge: l.Edge, In: l.In, Chunk: peer / ChunkPeers}
}

// List is the list of a window or a chunk.
func (k Key) List() List { return List{Vertex: k.Vertex, Edge: k.Edge, In: k.In} }

func (k Key) String() string {
	switch k.Kind {
	case KindRow:
		return fmt.Sprintf("row %d:%d", k.Vertex.Type, k.Vertex.ID)
	case KindChunk:
		return fmt.Sprintf("chunk %d of %v", k.Chunk, k.List())
	}
	return fmt.Sprintf("window of %v", k.List())
}

func (l List) String() string {
	dir := "out"
	if l.In {
		dir = "in"
	}
	return fmt.Sprintf("%d:%d %d %s", l.Vertex.Type, l.Vertex.ID, l.Edge, dir)
}

// Entry is the state of what a key names, as it was at a position. Exactly one
// of the pointers is set; what they point to is never changed. The zero Entry is
// none.
type Entry struct {
	At     Position
	Row    *Row
	Window *Window
	Chunk  *Chunk
}

// IsNone reports whether there is no entry.
func (e *Entry) IsNone() bool { return e.Row == nil && e.Window == nil && e.Chunk == nil }

// size is about how many bytes an entry takes in memory.
func (e *Entry) size() int {
	n := 96
	switch {
	case e.Row != nil:
		n += 8 * len(e.Row.Fields)
	case e.Window != nil:
		n += 16 * len(e.Window.Edges)
	case e.Chunk != nil:
		n += len(e.Chunk.Bits)
	}
	return n
}
