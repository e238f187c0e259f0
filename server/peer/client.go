package peer

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// Client is another node, as a graph.Service.
type Client struct {
	node    string
	conn    *lane
	calls   peerv1.CallsClient
	cluster peerv1.ClusterClient
	audit   peerv1.AuditClient
	cache   peerv1.CacheClient
}

var _ graph.Service = (*Client)(nil)

func newClient(node string, conn *grpc.ClientConn) *Client {
	l := newLane(conn)
	return &Client{
		node: node, conn: l,
		calls: peerv1.NewCallsClient(l), cluster: peerv1.NewClusterClient(conn), audit: peerv1.NewAuditClient(conn),
		cache: peerv1.NewCacheClient(conn),
	}
}

// call makes a call and tells what its error means: whether it came as far as a
// connection decides what a write may have done.
func call[Req, Res any](ctx context.Context, c *Client, write bool,
	method func(context.Context, Req, ...grpc.CallOption) (Res, error), req Req,
) (Res, error) {
	var p peer.Peer
	res, err := method(ctx, req, grpc.Peer(&p))
	return res, errorOf(c.node, err, write, p.Addr != nil)
}

// Mutate implements graph.Service.
func (c *Client) Mutate(ctx context.Context, ms []graph.Mutation, wait graph.Wait) ([]graph.MutationResult, string, error) {
	res, err := call(ctx, c, true, c.calls.Mutate, &peerv1.MutateRequest{Mutations: each(ms, wireMutation), Wait: uint32(wait)})
	if err != nil {
		return nil, "", err
	}
	if err := c.sized(len(res.GetResults()), len(ms)); err != nil {
		return nil, "", err
	}
	return each(res.GetResults(), func(r *peerv1.MutationResult) graph.MutationResult {
		return graph.MutationResult{Outcome: graph.Outcome(r.GetOutcome()), Changed: r.GetChanged(), Err: decodeError(c.node, r.GetError())}
	}), res.GetToken(), nil
}

// sized checks that an answer has as many items as were asked for.
func (c *Client) sized(got, want int) error {
	if got == want {
		return nil
	}
	return &farError{c.node, fmt.Sprintf("%d answers to %d items", got, want), graph.ErrCut}
}

// HasEdges implements graph.Service.
func (c *Client) HasEdges(ctx context.Context, ro graph.ReadOptions, t graph.EdgeType, srcs, dsts []uint64, exists []bool) (string, error) {
	res, err := call(ctx, c, false, c.calls.HasEdges, &peerv1.HasEdgesRequest{
		Options: wireReadOptions(ro), Type: uint32(t), Srcs: srcs, Dsts: dsts,
	})
	if err != nil {
		return "", err
	}
	copy(exists, res.GetExists())
	return res.GetToken(), c.sized(len(res.GetExists()), len(dsts))
}

// GetEdge implements graph.Service.
func (c *Client) GetEdge(ctx context.Context, ro graph.ReadOptions, t graph.EdgeType, src, dst uint64) (edgelist.Edge, string, error) {
	res, err := call(ctx, c, false, c.calls.GetEdge, &peerv1.GetEdgeRequest{
		Options: wireReadOptions(ro), Type: uint32(t), Src: src, Dst: dst,
	})
	if err != nil {
		return edgelist.Edge{}, "", err
	}
	return edge(res.GetEdge()), res.GetToken(), nil
}

// CountEdges implements graph.Service.
func (c *Client) CountEdges(ctx context.Context, ro graph.ReadOptions, lists []graph.ListKey, w graph.Window, counts []uint64) (string, error) {
	res, err := call(ctx, c, false, c.calls.CountEdges, &peerv1.CountEdgesRequest{
		Options: wireReadOptions(ro), Lists: each(lists, wireListKey), Window: wireWindow(w),
	})
	if err != nil {
		return "", err
	}
	copy(counts, res.GetCounts())
	return res.GetToken(), c.sized(len(res.GetCounts()), len(lists))
}

// ListEdges implements graph.Service.
func (c *Client) ListEdges(ctx context.Context, ro graph.ReadOptions, q graph.ListQuery) (graph.ListPage, error) {
	res, err := call(ctx, c, false, c.calls.ListEdges, &peerv1.ListEdgesRequest{
		Options: wireReadOptions(ro), List: wireListKey(q.List), Order: uint32(q.Order), PageSize: uint32(q.PageSize),
		PageToken: q.PageToken, Skip: q.Skip, Window: wireWindow(q.Window),
	})
	if err != nil {
		return graph.ListPage{}, err
	}
	return graph.ListPage{Edges: each(res.GetEdges(), edge), Next: res.GetNextPageToken(), Token: res.GetToken()}, nil
}

// IncrPart implements graph.Service.
func (c *Client) IncrPart(ctx context.Context, ins []graph.Increment, ordinals []uint32, requestID string) ([]graph.IncrResult, string, error) {
	req := &peerv1.IncrementRequest{RequestId: requestID}
	for i := range ins {
		req.Increments = append(req.Increments, wireIncrement(ins[i], ordinals[i]))
	}
	res, err := call(ctx, c, true, c.calls.Increment, req)
	if err != nil {
		return nil, "", err
	}
	if err := c.sized(len(res.GetResults()), len(ins)); err != nil {
		return nil, "", err
	}
	return each(res.GetResults(), func(r *peerv1.IncrementResult) graph.IncrResult {
		return graph.IncrResult{Value: r.GetValue(), Changed: r.GetChanged(), Err: decodeError(c.node, r.GetError())}
	}), res.GetToken(), nil
}

// GetCounters implements graph.Service.
func (c *Client) GetCounters(ctx context.Context, ro graph.ReadOptions, refs []graph.CounterRef) ([]graph.CounterValue, string, error) {
	res, err := call(ctx, c, false, c.calls.GetCounters, &peerv1.GetCountersRequest{
		Options: wireReadOptions(ro), Counters: each(refs, wireCounterRef),
	})
	if err != nil {
		return nil, "", err
	}
	if err := c.sized(len(res.GetValues()), len(refs)); err != nil {
		return nil, "", err
	}
	out := make([]graph.CounterValue, len(refs))
	for i, v := range res.GetValues() {
		out[i] = graph.CounterValue{Counter: refs[i], Value: v.GetValue(), Exists: v.GetExists(), ExpireAt: v.GetExpireAt()}
	}
	return out, res.GetToken(), nil
}

// SetCounter implements graph.Service.
func (c *Client) SetCounter(ctx context.Context, ref graph.CounterRef, value, expireAt int64) (string, error) {
	res, err := call(ctx, c, true, c.calls.SetCounter, &peerv1.SetCounterRequest{
		Counter: wireCounterRef(ref), Value: value, ExpireAt: expireAt,
	})
	return res.GetToken(), err
}

// DeleteCounter implements graph.Service.
func (c *Client) DeleteCounter(ctx context.Context, ref graph.CounterRef) (bool, string, error) {
	res, err := call(ctx, c, true, c.calls.DeleteCounter, &peerv1.DeleteCounterRequest{Counter: wireCounterRef(ref)})
	return res.GetExisted(), res.GetToken(), err
}

// EditCounters implements graph.Service.
func (c *Client) EditCounters(ctx context.Context, es []graph.CounterEdit) ([]graph.EditResult, error) {
	res, err := call(ctx, c, true, c.calls.EditCounters, &peerv1.EditCountersRequest{Edits: each(es, wireCounterEdit)})
	if err != nil {
		return nil, err
	}
	if err := c.sized(len(res.GetResults()), len(es)); err != nil {
		return nil, err
	}
	return each(res.GetResults(), func(r *peerv1.EditResult) graph.EditResult {
		return graph.EditResult{
			Edited: counter.Edited{
				Before: counterValue(r.GetBefore()), Value: r.GetValue(),
				Outcome: counter.Outcome(r.GetOutcome()), Changed: r.GetChanged(),
			},
			Pos: r.GetPosition(), Err: decodeError(c.node, r.GetError()),
		}
	}), nil
}

// Deliver has the node apply a delivery to a shard that it leads.
func (c *Client) Deliver(ctx context.Context, to uint32, delivery []byte) ([]byte, error) {
	res, err := call(ctx, c, true, c.calls.Deliver, &peerv1.DeliverRequest{To: to, Delivery: delivery})
	return res.GetAnswer(), err
}

// Join makes the asking node a member of the node's cluster.
func (c *Client) Join(ctx context.Context, req *peerv1.JoinRequest) (*peerv1.JoinResponse, error) {
	return call(ctx, c, true, c.cluster.Join, req)
}

// WatchMap calls got with what changes in the map, until ctx or the connection ends.
func (c *Client) WatchMap(ctx context.Context, have uint64, got func(delta []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.cluster.WatchMap(ctx, &peerv1.WatchMapRequest{HaveVersion: have})
	for err == nil {
		var res *peerv1.WatchMapResponse
		if res, err = stream.Recv(); err == nil {
			if err := got(res.GetMap()); err != nil {
				return err
			}
		}
	}
	return errorOf(c.node, err, false, true)
}

// Propose has the catalog apply a command, where the node leads it.
func (c *Client) Propose(ctx context.Context, req *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	return call(ctx, c, true, c.cluster.Propose, req)
}

// PrepareReplica makes a replica on the node that waits to be added.
func (c *Client) PrepareReplica(ctx context.Context, req *peerv1.PrepareReplicaRequest) (*peerv1.PrepareReplicaResponse, error) {
	return call(ctx, c, true, c.cluster.PrepareReplica, req)
}

// DestroyReplica removes a replica of the node.
func (c *Client) DestroyReplica(ctx context.Context, req *peerv1.DestroyReplicaRequest) (*peerv1.DestroyReplicaResponse, error) {
	return call(ctx, c, true, c.cluster.DestroyReplica, req)
}

// ChangeMembers changes the members of a shard that the node leads.
func (c *Client) ChangeMembers(ctx context.Context, req *peerv1.ChangeMembersRequest) (*peerv1.ChangeMembersResponse, error) {
	return call(ctx, c, true, c.cluster.ChangeMembers, req)
}

// SplitShard has the node split a shard that it leads.
func (c *Client) SplitShard(ctx context.Context, req *peerv1.SplitShardRequest) (*peerv1.SplitShardResponse, error) {
	return call(ctx, c, true, c.cluster.SplitShard, req)
}

// GetReplicas tells what the node's replicas are doing.
func (c *Client) GetReplicas(ctx context.Context) (*peerv1.GetReplicasResponse, error) {
	return call(ctx, c, false, c.cluster.GetReplicas, &peerv1.GetReplicasRequest{})
}
