package peer

import (
	"context"

	"github.com/lianadb/liana/graph"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// Local is what the replicas of this node answer. graph.Graph implements it.
type Local interface {
	graph.Service
	Auditor
	Deliver(ctx context.Context, to uint32, delivery []byte) ([]byte, error)
}

// calls serves the Calls of other nodes: decode, call, encode.
type calls struct {
	peerv1.UnimplementedCallsServer
	local Local
}

func (c *calls) Mutate(ctx context.Context, req *peerv1.MutateRequest) (*peerv1.MutateResponse, error) {
	res, token, err := c.local.Mutate(ctx, each(req.GetMutations(), mutation), graph.Wait(req.GetWait()))
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.MutateResponse{Results: each(res, wireMutationResult), Token: token}, nil
}

func (c *calls) HasEdges(ctx context.Context, req *peerv1.HasEdgesRequest) (*peerv1.HasEdgesResponse, error) {
	exists := make([]bool, len(req.GetDsts()))
	token, err := c.local.HasEdges(ctx, readOptions(req.GetOptions()), graph.EdgeType(req.GetType()), req.GetSrcs(), req.GetDsts(), exists)
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.HasEdgesResponse{Exists: exists, Token: token}, nil
}

func (c *calls) GetEdge(ctx context.Context, req *peerv1.GetEdgeRequest) (*peerv1.GetEdgeResponse, error) {
	e, token, err := c.local.GetEdge(ctx, readOptions(req.GetOptions()), graph.EdgeType(req.GetType()), req.GetSrc(), req.GetDst())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.GetEdgeResponse{Edge: wireEdge(e), Token: token}, nil
}

func (c *calls) CountEdges(ctx context.Context, req *peerv1.CountEdgesRequest) (*peerv1.CountEdgesResponse, error) {
	counts := make([]uint64, len(req.GetLists()))
	token, err := c.local.CountEdges(ctx, readOptions(req.GetOptions()), each(req.GetLists(), listKey), window(req.GetWindow()), counts)
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.CountEdgesResponse{Counts: counts, Token: token}, nil
}

func (c *calls) ListEdges(ctx context.Context, req *peerv1.ListEdgesRequest) (*peerv1.ListEdgesResponse, error) {
	page, err := c.local.ListEdges(ctx, readOptions(req.GetOptions()), graph.ListQuery{
		List: listKey(req.GetList()), Order: graph.Order(req.GetOrder()), PageSize: int(req.GetPageSize()),
		PageToken: req.GetPageToken(), Skip: req.GetSkip(), Window: window(req.GetWindow()),
	})
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.ListEdgesResponse{Edges: each(page.Edges, wireEdge), NextPageToken: page.Next, Token: page.Token}, nil
}

func (c *calls) Increment(ctx context.Context, req *peerv1.IncrementRequest) (*peerv1.IncrementResponse, error) {
	ordinals := each(req.GetIncrements(), (*peerv1.Increment).GetOrdinal)
	res, token, err := c.local.IncrPart(ctx, each(req.GetIncrements(), increment), ordinals, req.GetRequestId())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.IncrementResponse{Results: each(res, wireIncrResult), Token: token}, nil
}

func (c *calls) GetCounters(ctx context.Context, req *peerv1.GetCountersRequest) (*peerv1.GetCountersResponse, error) {
	values, token, err := c.local.GetCounters(ctx, readOptions(req.GetOptions()), each(req.GetCounters(), counterRef))
	if err != nil {
		return nil, StatusOf(err)
	}
	wire := func(v graph.CounterValue) *peerv1.CounterValue {
		return &peerv1.CounterValue{Value: v.Value, Exists: v.Exists, ExpireAt: v.ExpireAt}
	}
	return &peerv1.GetCountersResponse{Values: each(values, wire), Token: token}, nil
}

func (c *calls) SetCounter(ctx context.Context, req *peerv1.SetCounterRequest) (*peerv1.SetCounterResponse, error) {
	token, err := c.local.SetCounter(ctx, counterRef(req.GetCounter()), req.GetValue(), req.GetExpireAt())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.SetCounterResponse{Token: token}, nil
}

func (c *calls) DeleteCounter(ctx context.Context, req *peerv1.DeleteCounterRequest) (*peerv1.DeleteCounterResponse, error) {
	existed, token, err := c.local.DeleteCounter(ctx, counterRef(req.GetCounter()))
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.DeleteCounterResponse{Existed: existed, Token: token}, nil
}

func (c *calls) EditCounters(ctx context.Context, req *peerv1.EditCountersRequest) (*peerv1.EditCountersResponse, error) {
	res, err := c.local.EditCounters(ctx, each(req.GetEdits(), counterEdit))
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.EditCountersResponse{Results: each(res, wireEditResult)}, nil
}

func (c *calls) Deliver(ctx context.Context, req *peerv1.DeliverRequest) (*peerv1.DeliverResponse, error) {
	answer, err := c.local.Deliver(ctx, req.GetTo(), req.GetDelivery())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.DeliverResponse{Answer: answer}, nil
}
