package tiers

import (
	"context"
	"fmt"
	"sync"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/graph"
)

// Log is the change log of the shards that this node leads. All that is told of a shard is
// told for the slots that Led gave it: where a split has taken some of them away since, it is
// an error, as what changed there is not told any more.
type Log struct {
	graph *graph.Graph

	mu  sync.Mutex
	led map[uint32]graph.Claim
}

var _ cache.Log = (*Log)(nil)

// NewLog returns the log of a node.
func NewLog(g *graph.Graph) *Log { return &Log{graph: g, led: map[uint32]graph.Claim{}} }

// Led implements cache.Log.
func (l *Log) Led() []cache.Shard {
	claims := l.graph.Led()
	led := make(map[uint32]graph.Claim, len(claims))
	var out []cache.Shard
	for _, c := range claims {
		b, err := l.graph.ChangeBounds(c.Shard)
		if err != nil {
			continue
		}
		led[c.Shard] = c
		out = append(out, cache.Shard{ID: c.Shard, Timeline: b.Timeline, First: cache.Slot(c.First), Last: cache.Slot(c.Last)})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.led = led
	return out
}

// Bounds implements cache.Log.
func (l *Log) Bounds(shard uint32) (cache.Bounds, error) {
	b, err := l.graph.ChangeBounds(shard)
	if err != nil {
		return cache.Bounds{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.led[shard]; !ok || b.Own == nil || *b.Own != c {
		return cache.Bounds{}, fmt.Errorf("shard %d has other slots than it had", shard)
	}
	return cache.Bounds{First: b.Floor + 1, Last: b.Last}, nil
}

// Changes implements cache.Log.
func (l *Log) Changes(ctx context.Context, shard uint32, after uint64, limit int, tell func(*cache.Change)) (uint64, error) {
	through, err := l.graph.ReadChanges(ctx, shard, after, limit, func(c *graph.Change) {
		if told, ok := changeOf(c); ok {
			tell(&told)
		}
	})
	if err != nil {
		return through, err
	}
	// Slots never come back, so if they are the same after the read, they were in it.
	if _, err := l.Bounds(shard); err != nil {
		return after, err
	}
	return through, nil
}

// changeOf is a change as caches see it; ok is false for what they do not keep.
func changeOf(c *graph.Change) (out cache.Change, ok bool) {
	switch c.Kind {
	case graph.CounterChanged:
		return counterChange(c)
	case graph.SlotsMoved:
		return out, false // Bounds tells of it
	}
	out = cache.Change{
		Number: c.Position, Slot: slotOf(c.List.Vertex), List: listOf(c.List),
		Edge: cache.Edge{Time: c.Edge.Time, Peer: c.Edge.Peer}, Props: len(c.Edge.Props) > 0,
	}
	switch c.Kind {
	case graph.EdgeAdded:
		out.Kind = cache.EdgeAdded
	case graph.EdgeDeleted:
		out.Kind = cache.EdgeRemoved
	case graph.EdgeUpdated:
		out.Kind, out.Old = cache.EdgeMoved, cache.Edge{Time: c.OldTime, Peer: c.Edge.Peer}
	default:
		out.Kind = cache.Untold // of a newer version
	}
	return out, true
}

func counterChange(c *graph.Change) (cache.Change, bool) {
	out := cache.Change{
		Kind: cache.MetricSet, Number: c.Position, Slot: slotOf(c.Counter.Vertex),
		List: cache.List{Vertex: vertexOf(c.Counter.Vertex)}, Metric: uint16(c.Counter.Metric), Value: cache.FieldOf(c.Value),
	}
	switch {
	case c.Gone:
		out.Kind = cache.MetricGone
	case c.Expires:
		out.Value = cache.Unknown
	}
	return out, c.Counter.Key == ""
}
