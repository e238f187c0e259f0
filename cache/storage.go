package cache

import "context"

// Want asks a Source for an entry at or past a position.
type Want struct {
	Key Key
	Min Position
}

// Source gives entries. Tiers are Sources that stand on another.
type Source interface {
	// Load sets got[i] to an entry for wants[i], or leaves it none: then the
	// question itself is to be put to storage. An entry must cover its want;
	// absence is an entry too (an empty window, a row of absent fields). got has the
	// length of wants, and holds nothing yet. An error is one of storage: a
	// tier that fails only leaves gaps.
	Load(ctx context.Context, wants []Want, got []Entry) error
}

// Storage is what the cache stands on. package graph's reader and its cluster
// router fit behind it.
type Storage interface {
	// Load reads entries. Of each, position, head and edges come from one
	// snapshot, and the entry's position is the shard's change counter in it, not the
	// version of the list. A window has the newest WindowEdges edges. A chunk that
	// holds few edges is left none.
	Source
	// Read answers queries as the token and the level in opt ask, and returns
	// opt's token with what was seen.
	Read(ctx context.Context, opt Options, qs []Query, as []Answer) (Token, error)
	Leaders
}

// WindowEdges is how many edges a window has when it is filled.
const WindowEdges = 1000

// Leaders tells how far slots have come.
type Leaders interface {
	// Poll calls tell for each of slots with the position of its last change, or a
	// later one, and that of the shard's timeline. It asks the leaders as a
	// linearizable read does: their leadership confirmed by a round begun after the
	// call, and what was acknowledged before the call applied. Slots whose leader
	// cannot say so in time are left out. tell may be called by several goroutines.
	Poll(ctx context.Context, slots []Slot, tell func(Slot, Position)) error
}

// Options are what a read asks for.
type Options struct {
	Linearizable bool
	Token        Token
}

// QueryKind is what a query asks.
type QueryKind uint8

// The kinds of queries.
const (
	HasEdge    QueryKind = iota + 1 // is Peer in List?
	CountEdges                      // how many edges has List between Since and Until?
	ListPage                        // a page of List
	ReadMetric                      // the value of Metric of List.Vertex
)

// Query is one question about the list or the vertex of a slot.
type Query struct {
	Kind   QueryKind
	Slot   Slot
	List   List
	Peer   uint64
	Dense  bool // HasEdge: the ids of peers are dense, a bitmap may pay
	Page   PageQuery
	Metric uint16
}

// Answer is the answer to a query.
type Answer struct {
	Found bool   // HasEdge; ReadMetric: the counter exists
	Count uint64 // CountEdges
	Value int64  // ReadMetric
	Edges []Edge // ListPage
	More  bool   // ListPage: edges lie behind the page
	// What only storage tells, as it is not cached: of a page the properties of each
	// edge, nil if none has any; of a counter its expiry.
	Props    [][]byte
	ExpireAt int64
}

// The change log, as the feeder of a tier needs it.

// Log is the change log of the shards that are led here.
type Log interface {
	// Led returns the shards that this node leads. What is told of a shard by Bounds and
	// Changes is for the slots that Led told; where it has lost some since, they fail.
	Led() []Shard
	// Bounds returns where a shard's log begins and ends: the changes with
	// first <= number <= last can be read. All of them are committed.
	Bounds(shard uint32) (Bounds, error)
	// Changes calls tell with the changes of a shard past after, in order,
	// until limit of them are told, and returns the position up to which all are
	// told. Numbers of changes rise, with gaps; changes of one number are told
	// together. What was trimmed meanwhile is an error.
	Changes(ctx context.Context, shard uint32, after uint64, limit int, tell func(*Change)) (through uint64, err error)
}

// Shard is a range of slots, and the timeline of its state.
type Shard struct {
	ID       uint32
	Timeline uint64
	First    Slot
	Last     Slot // included
}

// Bounds of a change log.
type Bounds struct {
	First, Last uint64
}

// ChangeKind is what a change does.
type ChangeKind uint8

// The kinds of changes.
const (
	EdgeAdded ChangeKind = iota + 1
	EdgeRemoved
	EdgeMoved  // a new time, or new properties
	MetricSet  // a new value
	MetricGone // deleted, or expired
	// Untold says that more changed in the slot than is told: a vertex was removed or
	// hidden as a whole. What is cached of the slot is to be forgotten.
	Untold
)

// Change is one change of a list or of a metric.
type Change struct {
	Kind   ChangeKind
	Number uint64
	Prev   uint64 // of the list's change before, 0 if it was empty; only for who nudges
	Slot   Slot
	List   List // metrics: only List.Vertex
	Edge   Edge // EdgeRemoved: with the time that it had
	Old    Edge // EdgeMoved
	Props  bool // the edge has properties
	Metric uint16
	Value  Field // MetricSet; Unknown if the counter expires
}
