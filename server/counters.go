package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// counterService is liana.v1.Counters.
type counterService struct {
	pb.UnimplementedCountersServer
	*calls
}

// Where the fields of the domain's arguments lie in a request for one counter.
var (
	incrementPaths = paths{"increments[0]", "increment", "expire_at", "increment.expire_at"}
	counterPaths   = paths{"token", "consistency.token", "counters[0]", "counter"}
)

func (s *counterService) IncrBy(ctx context.Context, req *pb.IncrByRequest) (*pb.IncrByResponse, error) {
	g := s.domain()
	inc, err := decodeIncrement(names{g.Schema()}, "increment", req.GetIncrement())
	if err != nil {
		return nil, err
	}
	results, token, err := g.IncrBy(ctx, []graph.Increment{inc}, req.GetRequestId())
	if err == nil {
		err = results[0].Err
	}
	if errors.Is(err, graph.ErrOverflow) {
		return nil, annotate(err, "field", "increment.delta", "limit", "a sum of -9223372036854775808 to 9223372036854775807")
	}
	if err != nil {
		return nil, incrementPaths.rename(err)
	}
	return &pb.IncrByResponse{Value: results[0].Value, Changed: results[0].Changed, Token: token}, nil
}

func (s *counterService) IncrByBatch(ctx context.Context, req *pb.IncrByBatchRequest) (*pb.IncrByBatchResponse, error) {
	g := s.domain()
	n := names{g.Schema()}
	if len(req.GetIncrements()) == 0 || len(req.GetIncrements()) > graph.MaxBatch {
		return nil, batchSize("increments", len(req.GetIncrements()))
	}
	incs := make([]graph.Increment, len(req.GetIncrements()))
	for i, p := range req.GetIncrements() {
		var err error
		if incs[i], err = decodeIncrement(n, "increment", p); err != nil {
			_, err = decodeIncrement(n, index("increments", i), p) // again, to name the field
			return nil, err
		}
	}
	results, token, err := g.IncrBy(ctx, incs, req.GetRequestId())
	if err != nil {
		return nil, err
	}
	resp := &pb.IncrByBatchResponse{Results: make([]*pb.IncrementResult, len(results)), Token: token}
	for i, r := range results {
		resp.Results[i] = &pb.IncrementResult{Value: r.Value, Changed: r.Changed}
		if r.Err != nil {
			v := s.table.judge(r.Err)
			s.report(ctx, v, r.Err)
			resp.Results[i].ErrorReason, resp.Results[i].ErrorMessage = v.reason, v.message
		}
	}
	return resp, nil
}

func decodeIncrement(n names, field string, p *pb.Increment) (graph.Increment, error) {
	ref, err := n.writable(field+".counter", p.GetCounter())
	if err != nil {
		return graph.Increment{}, err
	}
	inc := graph.Increment{Counter: ref, Delta: p.GetDelta(), ExpireAt: p.GetExpireAt()}
	if p.Min != nil {
		inc.Min, inc.HasMin = *p.Min, true
	}
	if p.Max != nil {
		inc.Max, inc.HasMax = *p.Max, true
	}
	return inc, nil
}

func (s *counterService) Get(ctx context.Context, req *pb.GetCounterRequest) (*pb.GetCounterResponse, error) {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return nil, err
	}
	asked, refs, err := decodeGet(names{g.Schema()}, req)
	if err != nil {
		return nil, err
	}
	if len(refs) == 0 { // all metrics of a type that has none
		return &pb.GetCounterResponse{}, nil
	}
	values, token, err := g.GetCounters(ctx, opts, refs)
	if err != nil {
		return nil, counterPaths.rename(err)
	}
	return &pb.GetCounterResponse{Counters: encodeCounters(asked, values), Token: token}, nil
}

// decodeGet names the counters that a Get asks for: a key, or the given metrics
// of a vertex, or all of them.
func decodeGet(n names, req *pb.GetCounterRequest) ([]*pb.CounterRef, []graph.CounterRef, error) {
	ref := req.GetCounter()
	wanted := req.GetMetrics()
	if len(wanted) > graph.MaxBatch {
		return nil, nil, batchSize("metrics", len(wanted))
	}
	if ref.GetKey() != "" || ref.GetVertex() == nil {
		if len(wanted) > 0 {
			return nil, nil, invalid("metrics", "with a vertex", "a key has no metrics")
		}
		r, err := n.counter("counter", ref)
		return []*pb.CounterRef{ref}, []graph.CounterRef{r}, err
	}
	v, err := n.vertex("counter.vertex", ref.GetVertex())
	if err != nil {
		return nil, nil, err
	}
	if ref.GetMetric() != "" {
		if _, err := n.metric("counter.metric", v.Type, ref.GetMetric()); err != nil {
			return nil, nil, err
		}
		wanted = append([]string{ref.GetMetric()}, wanted...)
	}
	if len(wanted) == 0 {
		for _, m := range n.Metrics(v.Type) {
			wanted = append(wanted, m.Name)
		}
	}
	asked := make([]*pb.CounterRef, len(wanted))
	refs := make([]graph.CounterRef, len(wanted))
	for i, name := range wanted {
		m, err := n.metric(index("metrics", i), v.Type, name)
		if err != nil {
			return nil, nil, err
		}
		asked[i] = &pb.CounterRef{Vertex: ref.GetVertex(), Metric: name}
		refs[i] = graph.CounterRef{Vertex: v, Metric: m}
	}
	return asked, refs, nil
}

// maxKeyBytes bounds the keys of a BatchGet together: the answer repeats them and
// must pass a client with gRPC's default limit of 4 MiB.
const maxKeyBytes = 3 << 20

func (s *counterService) BatchGet(ctx context.Context, req *pb.BatchGetCountersRequest) (*pb.BatchGetCountersResponse, error) {
	g := s.domain()
	n := names{g.Schema()}
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return nil, err
	}
	asked := req.GetCounters()
	if len(asked) == 0 || len(asked) > graph.MaxBatch {
		return nil, batchSize("counters", len(asked))
	}
	refs := make([]graph.CounterRef, len(asked))
	keys := 0
	for i, ref := range asked {
		if refs[i], err = n.counter("counter", ref); err != nil {
			return nil, paths{"counter", index("counters", i)}.rename(err)
		}
		keys += len(ref.GetKey())
	}
	if keys > maxKeyBytes {
		return nil, invalid("counters", fmt.Sprintf("at most %d bytes of keys", maxKeyBytes), "%d bytes of keys", keys)
	}
	values, token, err := g.GetCounters(ctx, opts, refs)
	if err != nil {
		return nil, readPaths.rename(err)
	}
	return &pb.BatchGetCountersResponse{Counters: encodeCounters(asked, values), Token: token}, nil
}

// encodeCounters answers under the names that were asked for.
func encodeCounters(asked []*pb.CounterRef, values []graph.CounterValue) []*pb.Counter {
	out := make([]*pb.Counter, len(values))
	for i, v := range values {
		out[i] = &pb.Counter{Counter: asked[i], Value: v.Value, Exists: v.Exists, ExpireAt: v.ExpireAt}
	}
	return out
}

func (s *counterService) Set(ctx context.Context, req *pb.SetCounterRequest) (*pb.SetCounterResponse, error) {
	g := s.domain()
	ref, err := names{g.Schema()}.writable("counter", req.GetCounter())
	if err != nil {
		return nil, err
	}
	token, err := g.SetCounter(ctx, ref, req.GetValue(), req.GetExpireAt())
	if err != nil {
		return nil, counterPaths.rename(err)
	}
	return &pb.SetCounterResponse{Token: token}, nil
}

func (s *counterService) Delete(ctx context.Context, req *pb.DeleteCounterRequest) (*pb.DeleteCounterResponse, error) {
	g := s.domain()
	ref, err := names{g.Schema()}.writable("counter", req.GetCounter())
	if err != nil {
		return nil, err
	}
	changed, token, err := g.DeleteCounter(ctx, ref)
	if err != nil {
		return nil, counterPaths.rename(err)
	}
	return &pb.DeleteCounterResponse{Changed: changed, Token: token}, nil
}
