package peer

import (
	"context"
	"fmt"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// cacheCalls serves what the caches of other nodes ask: decode, call, encode.
type cacheCalls struct {
	peerv1.UnimplementedCacheServer
	local  Local
	copies Copies
}

func (c *cacheCalls) LastChanges(ctx context.Context, req *peerv1.LastChangesRequest) (*peerv1.LastChangesResponse, error) {
	at := make([]uint64, len(req.GetSlots()))
	timeline, err := c.local.LastChanges(ctx, req.GetShard(), each(req.GetSlots(), slot), at)
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.LastChangesResponse{Timeline: timeline, Positions: at}, nil
}

// slot is a slot of another node, past all slots where there is no such one.
func slot(s uint32) graph.Slot { return graph.Slot(min(s, graph.NumSlots)) }

func (c *cacheCalls) Excerpts(ctx context.Context, req *peerv1.ExcerptsRequest) (*peerv1.ExcerptsResponse, error) {
	wants := each(req.GetWants(), excerptWant)
	got := make([]graph.Excerpt, len(wants))
	if err := c.local.Excerpts(ctx, wants, got); err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.ExcerptsResponse{Excerpts: each(got, wireExcerpt)}, nil
}

// LastChanges implements graph.Service.
func (c *Client) LastChanges(ctx context.Context, shard uint32, slots []graph.Slot, at []uint64) (timeline uint64, err error) {
	req := &peerv1.LastChangesRequest{Shard: shard, Slots: each(slots, func(s graph.Slot) uint32 { return uint32(s) })}
	res, err := call(ctx, c, false, c.cache.LastChanges, req)
	if err != nil {
		return 0, err
	}
	copy(at, res.GetPositions())
	return res.GetTimeline(), c.sized(len(res.GetPositions()), len(slots))
}

// Excerpts implements graph.Service.
func (c *Client) Excerpts(ctx context.Context, wants []graph.ExcerptWant, got []graph.Excerpt) error {
	res, err := call(ctx, c, false, c.cache.Excerpts, &peerv1.ExcerptsRequest{Wants: each(wants, wireExcerptWant)})
	if err != nil {
		return err
	}
	if err := c.sized(len(res.GetExcerpts()), len(wants)); err != nil {
		return err
	}
	for i, e := range res.GetExcerpts() {
		if got[i], err = c.excerpt(&wants[i], e); err != nil {
			return err
		}
	}
	return nil
}

func excerptWant(w *peerv1.ExcerptWant) graph.ExcerptWant {
	return graph.ExcerptWant{
		Kind: graph.ExcerptKind(w.GetKind()), List: graph.ListKey{
			Vertex: graph.Vertex{Type: graph.VertexType(w.GetVertexType()), ID: w.GetVertexId()},
			Type:   graph.EdgeType(w.GetType()), Dir: graph.Direction(w.GetDirection()),
		},
		Min: w.GetMin(), First: w.GetFirst(), Span: w.GetSpan(), Least: w.GetLeast(), Edges: int(w.GetEdges()),
	}
}

func wireExcerptWant(w graph.ExcerptWant) *peerv1.ExcerptWant {
	return &peerv1.ExcerptWant{
		Kind: uint32(w.Kind), VertexType: uint32(w.List.Vertex.Type), VertexId: w.List.Vertex.ID,
		Type: uint32(w.List.Type), Direction: uint32(w.List.Dir),
		Min: w.Min, First: w.First, Span: w.Span, Least: w.Least, Edges: uint32(w.Edges),
	}
}

func wireExcerpt(e graph.Excerpt) *peerv1.Excerpt {
	out := &peerv1.Excerpt{
		Timeline: e.Timeline, Position: e.Position, Total: e.Total, Properties: e.Props, Bits: e.Bits,
		Metrics: each(e.Metrics, func(m graph.CounterValue) *peerv1.Metric {
			return &peerv1.Metric{Metric: uint32(m.Counter.Metric), Value: m.Value, Exists: m.Exists, ExpireAt: m.ExpireAt}
		}),
		Lengths: each(e.Counts, func(l graph.ListCount) *peerv1.Length {
			return &peerv1.Length{Type: uint32(l.List.Type), Direction: uint32(l.List.Dir), Count: l.Count}
		}),
	}
	before := int64(0)
	for _, edge := range e.Edges {
		out.Peers, out.Times = append(out.Peers, edge.Peer), append(out.Times, edge.Time-before)
		before = edge.Time
	}
	return out
}

// excerpt is the excerpt that was wanted as w.
func (c *Client) excerpt(w *graph.ExcerptWant, e *peerv1.Excerpt) (graph.Excerpt, error) {
	out := graph.Excerpt{
		Timeline: e.GetTimeline(), Position: e.GetPosition(), Total: e.GetTotal(), Props: e.GetProperties(), Bits: e.GetBits(),
		Metrics: each(e.GetMetrics(), func(m *peerv1.Metric) graph.CounterValue {
			ref := graph.CounterRef{Vertex: w.List.Vertex, Metric: graph.Metric(m.GetMetric())}
			return graph.CounterValue{Counter: ref, Value: m.GetValue(), Exists: m.GetExists(), ExpireAt: m.GetExpireAt()}
		}),
		Counts: each(e.GetLengths(), func(l *peerv1.Length) graph.ListCount {
			list := graph.ListKey{Vertex: w.List.Vertex, Type: graph.EdgeType(l.GetType()), Dir: graph.Direction(l.GetDirection())}
			return graph.ListCount{List: list, Count: l.GetCount()}
		}),
	}
	if len(e.GetTimes()) != len(e.GetPeers()) || w.Kind == graph.ExcerptPeers && e.GetTimeline() != 0 && uint64(len(e.GetBits()))*8 != w.Span {
		return out, &farError{c.node, fmt.Sprintf("an excerpt of %d peers, %d times and %d bytes", len(e.GetPeers()), len(e.GetTimes()), len(e.GetBits())), graph.ErrCut}
	}
	before := int64(0)
	for i, peer := range e.GetPeers() {
		before += e.GetTimes()[i]
		out.Edges = append(out.Edges, edgelist.Edge{Peer: peer, Time: before})
	}
	return out, nil
}
