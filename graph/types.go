package graph

import (
	"fmt"
	"math"

	"github.com/lianadb/liana/edgelist"
)

// VertexType and EdgeType are the schema's numbers for its types; Metric is
// the number of a metric within its vertex type. They are stored, and never
// reused for another name.
type (
	VertexType uint16
	EdgeType   uint16
	Metric     uint16
)

// Vertex is one end of an edge.
type Vertex struct {
	Type VertexType
	ID   uint64
}

// The ids that a vertex may have. The two outermost numbers are kept free.
const (
	MinID = 1
	MaxID = math.MaxUint64 - 1
)

// Direction tells the two lists of a vertex and an edge type apart.
type Direction uint8

// The directions.
const (
	Out Direction = iota // edges that leave the vertex
	In                   // edges that reach it
)

func (d Direction) String() string {
	return [...]string{"out", "in", "hidden", "hidden in"}[min(d, hiddenIn)]
}

// Op is what a mutation does.
type Op uint8

// The operations.
const (
	OpAdd    Op = iota + 1 // nothing where the edge is there already
	OpDelete               // nothing where it is not
	OpUpdate               // replaces time and properties of an edge that is there
)

// Mutation is one write of an edge. The types of both ends follow from Type.
type Mutation struct {
	Op       Op
	Type     EdgeType
	Src, Dst uint64
	Time     int64  // µs since 1970; 0: the leader's clock
	Props    []byte // as EncodeProps makes them
}

// Wait says what a write waits for.
type Wait uint8

// The waits.
const (
	WaitBoth    Wait = iota // the edge and its inverse are durable
	WaitForward             // the edge is
)

// Outcome is what became of one mutation.
type Outcome uint8

// The outcomes.
const (
	Changed        Outcome = iota + 1
	Unchanged              // it already was as asked
	Missing                // an update found no edge
	InversePending         // durable; the inverse follows by itself
	Failed                 // refused, nothing was changed
	Unknown                // it may or may not have taken effect

	// Of a shard's answer only.
	refusedDeleting // ErrDeleting
	refusedHidden   // ErrHidden
)

// MutationResult is the answer to one mutation. Err is set for InversePending,
// Failed and Unknown. Changed is what the edge list says, also where the
// outcome is InversePending.
type MutationResult struct {
	Outcome Outcome
	Changed bool
	Err     error
}

// ReadLevel says how fresh a read must be, cheapest first.
type ReadLevel uint8

// The read levels.
const (
	MinimizeLatency ReadLevel = iota
	AtLeastAsFresh
	Linearizable
)

// ReadOptions ask for a freshness. A token is honoured at every level.
type ReadOptions struct {
	Level ReadLevel
	Token string
}

// ListKey names an edge list.
type ListKey struct {
	Vertex Vertex
	Type   EdgeType
	Dir    Direction
}

// Window is since <= time < until.
type Window struct {
	Since, Until int64
}

// AllTime is the window without bounds.
func AllTime() Window { return Window{Since: math.MinInt64, Until: math.MaxInt64} }

// IsAll reports whether w has no bounds.
func (w Window) IsAll() bool { return w == AllTime() }

// Order of a listing.
type Order uint8

// The orders.
const (
	NewestFirst Order = iota
	OldestFirst
	IDAscending
	IDDescending
)

// ListQuery asks for one page of a list.
type ListQuery struct {
	List      ListKey
	Order     Order
	PageSize  int // 1 to MaxPageSize
	PageToken string
	Skip      uint64
	Window    Window
}

// ListPage is one page of a list. An empty Next says that this was all.
type ListPage struct {
	Edges []edgelist.Edge
	Next  string
	Token string
}

// Limits of requests. They bound what one call can cost.
const (
	MaxBatch          = 10_000   // mutations, membership tests, counts or counters of a call
	MaxPageSize       = 10_000   // edges
	MaxPageBytes      = 1 << 20  // bytes of edges in a page, well under gRPC's 4 MiB
	MaxProps          = 1 << 10  // bytes of an edge's encoded properties
	MaxCounterKey     = 512      // bytes
	MaxRequestID      = 64       // bytes
	MaxClockAhead     = 5 * 60e6 // µs that a client's time may lie ahead of the server's
	DefaultPageSize   = 100      // edges
	maxTokenSlots     = 32       // positions in a token
	maxTokenTextBytes = 2048     // characters of a token or page token
)

// CounterRef names a counter: a metric of a vertex, or (Key not empty) a
// free-form key.
type CounterRef struct {
	Vertex Vertex
	Metric Metric
	Key    string
}

// Increment adds Delta to a counter, unless the sum would leave [Min, Max].
type Increment struct {
	Counter        CounterRef
	Delta          int64
	Min, Max       int64 // used where HasMin, HasMax
	HasMin, HasMax bool
	ExpireAt       int64 // µs since 1970; 0: leave the expiry alone
}

// IncrResult is the answer to one increment. Changed is false where a cap held it
// back; then Value is the value as it stands.
type IncrResult struct {
	Value   int64
	Changed bool
	Err     error
}

// CounterValue is a counter as read.
type CounterValue struct {
	Counter  CounterRef
	Value    int64
	Exists   bool
	ExpireAt int64
}

func (v Vertex) String() string { return fmt.Sprintf("%d:%d", v.Type, v.ID) }
