package main

import (
	"context"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func (f *fakeServer) counter(ref *lianav1.CounterRef) *lianav1.Counter {
	name := counterText(ref)
	if f.counters[name] == nil {
		f.counters[name] = &lianav1.Counter{Counter: ref}
	}
	return f.counters[name]
}

func (f *fakeServer) IncrBy(_ context.Context, r *lianav1.IncrByRequest) (*lianav1.IncrByResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last["incr"] = r
	c, i := f.counter(r.GetIncrement().GetCounter()), r.GetIncrement()
	sum := c.Value + i.Delta
	if i.Delta > 0 && c.Value > math.MaxInt64-i.Delta {
		return nil, status.Error(codes.OutOfRange, "the counter would overflow")
	}
	if i.Max != nil && sum > *i.Max || i.Min != nil && sum < *i.Min {
		return &lianav1.IncrByResponse{Value: c.Value, Token: f.token()}, nil
	}
	c.Value, c.Exists = sum, true
	if c.ExpireAt == 0 {
		c.ExpireAt = i.ExpireAt
	}
	f.writes++
	return &lianav1.IncrByResponse{Value: sum, Changed: true, Token: f.token()}, nil
}

func (f *fakeServer) Get(_ context.Context, r *lianav1.GetCounterRequest) (*lianav1.GetCounterResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &lianav1.GetCounterResponse{Token: f.token()}
	ref := r.GetCounter()
	if ref.GetVertex() == nil {
		answer.Counters = append(answer.Counters, f.counter(ref))
		return answer, nil
	}
	metrics := r.GetMetrics()
	if len(metrics) == 0 {
		metrics = []string{"views", "replies", "shares"}
	}
	for _, metric := range metrics {
		answer.Counters = append(answer.Counters, f.counter(&lianav1.CounterRef{Vertex: ref.Vertex, Metric: metric}))
	}
	return answer, nil
}

func (f *fakeServer) Set(_ context.Context, r *lianav1.SetCounterRequest) (*lianav1.SetCounterResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counter(r.GetCounter())
	c.Value, c.Exists, c.ExpireAt = r.GetValue(), true, r.GetExpireAt()
	f.writes++
	return &lianav1.SetCounterResponse{Token: f.token()}, nil
}

func (f *fakeServer) Delete(_ context.Context, r *lianav1.DeleteCounterRequest) (*lianav1.DeleteCounterResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	there := f.counter(r.GetCounter()).Exists
	delete(f.counters, counterText(r.GetCounter()))
	f.writes++
	return &lianav1.DeleteCounterResponse{Changed: there, Token: f.token()}, nil
}

func (f *fakeServer) GetSchema(context.Context, *lianav1.GetSchemaRequest) (*lianav1.GetSchemaResponse, error) {
	return &lianav1.GetSchemaResponse{Yaml: "vertex_types:\n  - name: user\n", Version: 1}, nil
}

func (f *fakeServer) GetStatus(context.Context, *lianav1.GetStatusRequest) (*lianav1.GetStatusResponse, error) {
	return &lianav1.GetStatusResponse{Version: "test", ClusterId: f.cluster, NodeId: "n1", Shards: []*lianav1.ShardStatus{
		{Id: 1, LastSlot: 2047, Leader: true, Applied: 12, Position: 7},
		{Id: 2, FirstSlot: 2048, LastSlot: 4095, Fault: "corrupt page"},
	}}, nil
}

func (f *fakeServer) Check(r *lianav1.CheckRequest, stream grpc.ServerStreamingServer[lianav1.CheckResponse]) error {
	f.mu.Lock()
	f.wholeCluster = r.GetCluster()
	f.mu.Unlock()
	for _, r := range f.check {
		if err := stream.Send(r); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeServer) ExportEdges(r *lianav1.ExportEdgesRequest, stream grpc.ServerStreamingServer[lianav1.ExportEdgesResponse]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, e := range f.edges {
		if r.GetType() != "" && r.GetType() != key.kind {
			continue
		}
		if f.onBatch != nil {
			f.batches++
			if err := f.onBatch(f.batches); err != nil {
				return err
			}
		}
		if err := stream.Send(&lianav1.ExportEdgesResponse{Edges: []*lianav1.Edge{e}}); err != nil {
			return err
		}
	}
	return nil
}
