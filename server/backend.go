package server

import (
	"context"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
)

// Backend is the domain as the services use it; *graph.Graph is one.
type Backend interface {
	Writer
	Reader
	Walker
	Vertices
	Watcher
	Counters
	Operator
}

// Writer changes edges.
type Writer interface {
	// Mutate applies ms; those of one source vertex in their order. An error refuses
	// the call as a whole: nothing was changed. What became of each mutation is in
	// the results, which have the length of ms.
	Mutate(ctx context.Context, ms []graph.Mutation, wait graph.Wait) ([]graph.MutationResult, string, error)
}

// Reader reads edges. Each answer comes with a token.
type Reader interface {
	// HasEdges fills exists, one for each of dsts. srcs holds one source for all, or
	// one for each.
	HasEdges(ctx context.Context, opts graph.ReadOptions, t graph.EdgeType, srcs, dsts []uint64, exists []bool) (string, error)
	// GetEdge fails with graph.ErrNoEdge where there is none.
	GetEdge(ctx context.Context, opts graph.ReadOptions, t graph.EdgeType, src, dst uint64) (edgelist.Edge, string, error)
	// CountEdges fills counts, one for each of lists.
	CountEdges(ctx context.Context, opts graph.ReadOptions, lists []graph.ListKey, w graph.Window, counts []uint64) (string, error)
	ListEdges(ctx context.Context, opts graph.ReadOptions, q graph.ListQuery) (graph.ListPage, error)
}

// Vertices deletes, hides and restores vertices, by jobs in the background.
type Vertices interface {
	VertexJob(ctx context.Context, op graph.VertexOp, v graph.Vertex) (graph.VertexJob, error)
	// Jobs are those at work, by shard.
	Jobs(ctx context.Context) ([]graph.ShardJobs, error)
}

// Walker answers questions that take many lists.
type Walker interface {
	// Traverse calls tell from one goroutine, in order of depth.
	Traverse(ctx context.Context, opts graph.ReadOptions, q graph.TraverseQuery, tell func([]graph.Reached) error) (graph.TraverseEnd, error)
	Combine(ctx context.Context, opts graph.ReadOptions, q graph.SetQuery) (graph.SetPage, error)
	// IntersectMany answers for each of q's lists, in their order.
	IntersectMany(ctx context.Context, opts graph.ReadOptions, q graph.ManyQuery) ([]graph.ManyResult, string, error)
}

// Watcher tells changes.
type Watcher interface {
	// Watch calls tell from one goroutine until ctx ends, or tell fails.
	Watch(ctx context.Context, q graph.WatchQuery, tell func(graph.Watched) error) error
}

// Counters reads and writes counters.
type Counters interface {
	IncrBy(ctx context.Context, incs []graph.Increment, requestID string) ([]graph.IncrResult, string, error)
	// GetCounters answers refs one by one, in their order.
	GetCounters(ctx context.Context, opts graph.ReadOptions, refs []graph.CounterRef) ([]graph.CounterValue, string, error)
	SetCounter(ctx context.Context, ref graph.CounterRef, value, expireAt int64) (string, error)
	DeleteCounter(ctx context.Context, ref graph.CounterRef) (changed bool, token string, err error)
	// EditCounters makes edits, those of one shard together and in their order.
	EditCounters(ctx context.Context, es []graph.CounterEdit) ([]graph.EditResult, error)
}

// Operator is what operators ask.
type Operator interface {
	Schema() *graph.Schema
	// Timeline is the number that all tokens of the cluster carry.
	Timeline() uint64
	Status() []graph.ShardStatus
	// Ready is nil when every shard serves.
	Ready() error
	// Check proves the stored data; progress is called from one goroutine.
	Check(ctx context.Context, progress func(graph.CheckProgress)) (graph.CheckReport, error)
	// Export hands on the edges of a type (0: of all) by source vertex, from one
	// goroutine; the slice is valid during the call.
	Export(ctx context.Context, t graph.EdgeType, each func([]graph.ExportedEdge) error) error
}

// Store names an engine whose figures become metrics.
type Store struct {
	Name  string // e.g. "state"
	Stats func() kv.Stats
}

// Attachment is what a server serves, once it is open.
type Attachment struct {
	Backend Backend
	Node    Node
	Stores  []Store
	Disk    *DiskGuard // may be nil
	Cluster Cluster    // may be nil
	Cache   Cache      // may be nil
}

// Node says who serves.
type Node struct {
	Version   string
	ClusterID string
	NodeID    string
}
