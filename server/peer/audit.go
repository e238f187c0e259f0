package peer

import (
	"context"

	"github.com/lianadb/liana/graph"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// Auditor answers for this node where the cluster is checked. graph.Graph implements it
// for this node, Client for another.
type Auditor interface {
	Check(ctx context.Context, progress func(graph.CheckProgress)) (graph.CheckReport, error)
	Digest(ctx context.Context, shard uint32) (graph.Digest, error)
	SumEnds(ctx context.Context, shard uint32, seed uint64) ([]uint64, error)
	FindEnds(ctx context.Context, shard uint32, seed uint64, sums []uint32) ([]graph.EdgeEnd, error)
	LookAtEnds(ctx context.Context, shard uint32, seed uint64, ends []graph.EdgeEnd) (*graph.SeenEnds, error)
	SumDerived(ctx context.Context, shard uint32, seed uint64) ([]uint64, error)
	FindDerived(ctx context.Context, shard uint32, seed uint64, sums []uint32) (*graph.DerivedParts, error)
}

var _ Auditor = (*Client)(nil)

// audit serves the Audit calls of other nodes: decode, call, encode.
type audit struct {
	peerv1.UnimplementedAuditServer
	local Auditor
}

func (a *audit) CheckReplicas(ctx context.Context, _ *peerv1.CheckReplicasRequest) (*peerv1.CheckReplicasResponse, error) {
	r, err := a.local.Check(ctx, nil)
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.CheckReplicasResponse{
		Lists: r.Lists, Edges: r.Edges, Counters: r.Counters, Skipped: r.Skipped, Elsewhere: r.Elsewhere,
		Faults: r.Faults, Findings: r.Findings,
	}, nil
}

func (a *audit) Digest(ctx context.Context, req *peerv1.DigestRequest) (*peerv1.DigestResponse, error) {
	d, err := a.local.Digest(ctx, req.GetShard())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.DigestResponse{Applied: d.Applied, Hash: d.Hash}, nil
}

func (a *audit) SumEnds(ctx context.Context, req *peerv1.SumEndsRequest) (*peerv1.SumEndsResponse, error) {
	sums, err := a.local.SumEnds(ctx, req.GetShard(), req.GetSeed())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.SumEndsResponse{Sums: sums}, nil
}

func (a *audit) FindEnds(ctx context.Context, req *peerv1.FindEndsRequest) (*peerv1.FindEndsResponse, error) {
	ends, err := a.local.FindEnds(ctx, req.GetShard(), req.GetSeed(), req.GetSums())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.FindEndsResponse{Ends: each(ends, wireEnd)}, nil
}

func (a *audit) LookAtEnds(ctx context.Context, req *peerv1.LookAtEndsRequest) (*peerv1.LookAtEndsResponse, error) {
	seen, err := a.local.LookAtEnds(ctx, req.GetShard(), req.GetSeed(), each(req.GetEnds(), edgeEnd))
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.LookAtEndsResponse{
		Given: seen.Given, Received: seen.Received,
		Ends: each(seen.Ends, func(e graph.SeenEnd) *peerv1.SeenEnd {
			return &peerv1.SeenEnd{Content: e.Content, Before: e.Before, After: e.After, Away: e.Away}
		}),
	}, nil
}

func (a *audit) SumDerived(ctx context.Context, req *peerv1.SumEndsRequest) (*peerv1.SumEndsResponse, error) {
	sums, err := a.local.SumDerived(ctx, req.GetShard(), req.GetSeed())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.SumEndsResponse{Sums: sums}, nil
}

func (a *audit) FindDerived(ctx context.Context, req *peerv1.FindEndsRequest) (*peerv1.FindDerivedResponse, error) {
	found, err := a.local.FindDerived(ctx, req.GetShard(), req.GetSeed(), req.GetSums())
	if err != nil {
		return nil, StatusOf(err)
	}
	wire := func(p graph.DerivedPart) *peerv1.DerivedPart {
		return &peerv1.DerivedPart{VertexType: uint32(p.Owner.Type), VertexId: p.Owner.ID, Metric: uint32(p.Metric), Sum: p.Sum, Value: p.Value}
	}
	return &peerv1.FindDerivedResponse{Parts: each(found.Parts, wire), Given: found.Given, Received: found.Received}, nil
}

// SumDerived implements Auditor.
func (c *Client) SumDerived(ctx context.Context, shard uint32, seed uint64) ([]uint64, error) {
	r, err := call(ctx, c, false, c.audit.SumDerived, &peerv1.SumEndsRequest{Shard: shard, Seed: seed})
	return r.GetSums(), err
}

// FindDerived implements Auditor.
func (c *Client) FindDerived(ctx context.Context, shard uint32, seed uint64, sums []uint32) (*graph.DerivedParts, error) {
	r, err := call(ctx, c, false, c.audit.FindDerived, &peerv1.FindEndsRequest{Shard: shard, Seed: seed, Sums: sums})
	if err != nil {
		return nil, err
	}
	part := func(p *peerv1.DerivedPart) graph.DerivedPart {
		return graph.DerivedPart{
			Owner:  graph.Vertex{Type: graph.VertexType(p.GetVertexType()), ID: p.GetVertexId()},
			Metric: graph.Metric(p.GetMetric()), Sum: p.GetSum(), Value: p.GetValue(),
		}
	}
	return &graph.DerivedParts{Parts: each(r.GetParts(), part), Given: r.GetGiven(), Received: r.GetReceived()}, nil
}

func wireEnd(e graph.EdgeEnd) *peerv1.EdgeEnd {
	return &peerv1.EdgeEnd{Type: uint32(e.Type), Src: e.Src, Dst: e.Dst, AtSource: e.AtSource, Content: e.Content, Hidden: e.Hidden}
}

func edgeEnd(e *peerv1.EdgeEnd) graph.EdgeEnd {
	return graph.EdgeEnd{
		EdgeName: graph.EdgeName{Type: graph.EdgeType(e.GetType()), Src: e.GetSrc(), Dst: e.GetDst(), Hidden: e.GetHidden()},
		AtSource: e.GetAtSource(), Content: e.GetContent(),
	}
}

// Check implements Auditor; it tells no progress.
func (c *Client) Check(ctx context.Context, _ func(graph.CheckProgress)) (graph.CheckReport, error) {
	r, err := call(ctx, c, false, c.audit.CheckReplicas, &peerv1.CheckReplicasRequest{})
	return graph.CheckReport{
		Lists: r.GetLists(), Edges: r.GetEdges(), Counters: r.GetCounters(), Skipped: r.GetSkipped(), Elsewhere: r.GetElsewhere(),
		Faults: r.GetFaults(), Findings: r.GetFindings(),
	}, err
}

// Digest implements Auditor.
func (c *Client) Digest(ctx context.Context, shard uint32) (graph.Digest, error) {
	r, err := call(ctx, c, false, c.audit.Digest, &peerv1.DigestRequest{Shard: shard})
	return graph.Digest{Shard: shard, Applied: r.GetApplied(), Hash: r.GetHash()}, err
}

// SumEnds implements Auditor.
func (c *Client) SumEnds(ctx context.Context, shard uint32, seed uint64) ([]uint64, error) {
	r, err := call(ctx, c, false, c.audit.SumEnds, &peerv1.SumEndsRequest{Shard: shard, Seed: seed})
	return r.GetSums(), err
}

// FindEnds implements Auditor.
func (c *Client) FindEnds(ctx context.Context, shard uint32, seed uint64, sums []uint32) ([]graph.EdgeEnd, error) {
	r, err := call(ctx, c, false, c.audit.FindEnds, &peerv1.FindEndsRequest{Shard: shard, Seed: seed, Sums: sums})
	return each(r.GetEnds(), edgeEnd), err
}

// LookAtEnds implements Auditor.
func (c *Client) LookAtEnds(ctx context.Context, shard uint32, seed uint64, ends []graph.EdgeEnd) (*graph.SeenEnds, error) {
	r, err := call(ctx, c, false, c.audit.LookAtEnds, &peerv1.LookAtEndsRequest{Shard: shard, Seed: seed, Ends: each(ends, wireEnd)})
	if err != nil {
		return nil, err
	}
	return &graph.SeenEnds{
		Given: r.GetGiven(), Received: r.GetReceived(),
		Ends: each(r.GetEnds(), func(e *peerv1.SeenEnd) graph.SeenEnd {
			return graph.SeenEnd{Content: e.GetContent(), Before: e.GetBefore(), After: e.GetAfter(), Away: e.GetAway()}
		}),
	}, c.sized(len(r.GetEnds()), len(ends))
}
