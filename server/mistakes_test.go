package server

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// mistake is a request that is refused, and the field that is named.
type mistake struct {
	name  string
	err   error
	field string
}

// makeMistakes sends every kind of wrong request.
func makeMistakes(t *testing.T, r *rig) []mistake {
	ctx := testCtx(t)
	edge := func(change func(*pb.Edge)) error {
		e := like(1, 2)
		change(e)
		_, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e})
		return err
	}
	batch := func(ms ...*pb.Mutation) error {
		_, err := r.graph.MutateEdges(ctx, &pb.MutateEdgesRequest{Mutations: ms})
		return err
	}
	list := func(change func(*pb.ListEdgesRequest)) error {
		req := &pb.ListEdgesRequest{Vertex: user(1), Type: "like"}
		change(req)
		_, err := r.graph.ListEdges(ctx, req)
		return err
	}
	incr := func(ref *pb.CounterRef) error {
		_, err := r.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: ref, Delta: 1}})
		return err
	}
	good := &pb.Mutation{Op: pb.MutationOp_ADD, Type: "like", SrcId: 1, DstId: 2}
	has := func(srcs, dsts []uint64) error {
		_, err := r.graph.HasEdges(ctx, &pb.HasEdgesRequest{Type: "like", SrcIds: srcs, DstIds: dsts})
		return err
	}
	counts := func(vs []*pb.Vertex, ls ...*pb.ListKind) error {
		_, err := r.graph.CountEdgesBatch(ctx, &pb.CountEdgesBatchRequest{Vertices: vs, Lists: ls})
		return err
	}
	_, noEdge := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{})
	_, badWait := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(1, 2), Wait: 7})
	_, badDelete := r.graph.DeleteEdge(ctx, &pb.DeleteEdgeRequest{Src: user(0), Type: "like", Dst: note(1)})
	_, badHas := r.graph.HasEdge(ctx, &pb.HasEdgeRequest{Src: user(1), Type: "like", Dst: note(math.MaxUint64)})
	_, fresh := r.graph.HasEdge(ctx, &pb.HasEdgeRequest{Src: user(1), Type: "like", Dst: note(1), Consistency: &pb.Consistency{Level: pb.ReadLevel_AT_LEAST_AS_FRESH}})
	_, level := r.graph.HasEdge(ctx, &pb.HasEdgeRequest{Src: user(1), Type: "like", Dst: note(1), Consistency: &pb.Consistency{Level: 9}})
	_, token := r.graph.HasEdge(ctx, &pb.HasEdgeRequest{Src: user(1), Type: "like", Dst: note(1), Consistency: &pb.Consistency{Token: "bad"}})
	exporting, export := r.admin.ExportEdges(ctx, &pb.ExportEdgesRequest{Type: "x"})
	if export == nil {
		_, export = exporting.Recv()
	}
	_, longKey := r.counters.Set(ctx, &pb.SetCounterRequest{Counter: &pb.CounterRef{Key: strings.Repeat("k", 513)}})
	_, getMetric := r.counters.Get(ctx, &pb.GetCounterRequest{Counter: &pb.CounterRef{Vertex: note(1)}, Metrics: []string{"views", "x"}})
	_, keyMetrics := r.counters.Get(ctx, &pb.GetCounterRequest{Counter: &pb.CounterRef{Key: "k"}, Metrics: []string{"views"}})
	_, longID := r.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: &pb.CounterRef{Key: "k"}}, RequestId: strings.Repeat("i", 65)})
	_, batchRef := r.counters.BatchGet(ctx, &pb.BatchGetCountersRequest{Counters: []*pb.CounterRef{{Key: "k"}, {}}})
	_, noIncs := r.counters.IncrByBatch(ctx, &pb.IncrByBatchRequest{})
	_, badIncs := r.counters.IncrByBatch(ctx, &pb.IncrByBatchRequest{Increments: []*pb.Increment{{Counter: &pb.CounterRef{Key: "k"}}, {Counter: &pb.CounterRef{Vertex: note(1), Metric: "x"}}}})

	return []mistake{
		{"no edge", noEdge, "edge.type"},
		{"unknown edge type", edge(func(e *pb.Edge) { e.Type = "liked" }), "edge.type"},
		{"src of the wrong type", edge(func(e *pb.Edge) { e.Src = note(1) }), "edge.src.type"},
		{"unknown dst type", edge(func(e *pb.Edge) { e.Dst.Type = "nope" }), "edge.dst.type"},
		{"no dst", edge(func(e *pb.Edge) { e.Dst = nil }), "edge.dst.type"},
		{"id 0", edge(func(e *pb.Edge) { e.Src.Id = 0 }), "edge.src.id"},
		{"id 2^64-1", edge(func(e *pb.Edge) { e.Dst.Id = math.MaxUint64 }), "edge.dst.id"},
		{"time before 1970", edge(func(e *pb.Edge) { e.Time = -1 }), "edge.time"},
		{"properties", edge(func(e *pb.Edge) { e.Properties = map[string]string{"k": strings.Repeat("v", 1024)} }), "edge.properties"},
		{"wait", badWait, "wait"},
		{"delete, id 0", badDelete, "src.id"},
		{"has, id 2^64-1", badHas, "dst.id"},
		{"fresh without token", fresh, "consistency.token"},
		{"unknown level", level, "consistency.level"},
		{"bad token", token, "consistency.token"},
		{"empty batch", batch(), "mutations"},
		{"large batch", batch(make([]*pb.Mutation, graph.MaxBatch+1)...), "mutations"},
		{"batch, no op", batch(good, &pb.Mutation{Type: "like", SrcId: 1, DstId: 2}), "mutations[1].op"},
		{"batch, unknown type", batch(good, good, &pb.Mutation{Op: pb.MutationOp_ADD, Type: "x"}), "mutations[2].type"},
		{"batch, id 0", batch(good, &pb.Mutation{Op: pb.MutationOp_ADD, Type: "like", DstId: 2}), "mutations[1].src_id"},
		{"batch, properties", batch(&pb.Mutation{Op: pb.MutationOp_ADD, Type: "like", Properties: map[string]string{"": "x"}}), "mutations[0].properties"},
		{"no dst_ids", has([]uint64{1}, nil), "dst_ids"},
		{"no src_ids", has(nil, []uint64{1}), "src_ids"},
		{"neither one nor pairs", has([]uint64{1, 2}, []uint64{1, 2, 3}), "src_ids"},
		{"many dst_ids", has([]uint64{1}, make([]uint64, graph.MaxBatch+1)), "dst_ids"},
		{"dst_ids, id 0", has([]uint64{1}, []uint64{1, 0}), "dst_ids[1]"},
		{"page_size -1", list(func(r *pb.ListEdgesRequest) { r.PageSize = -1 }), "page_size"},
		{"page_size 2^31-1", list(func(r *pb.ListEdgesRequest) { r.PageSize = math.MaxInt32 }), "page_size"},
		{"page_token", list(func(r *pb.ListEdgesRequest) { r.PageToken = "\x01\x02" }), "page_token"},
		{"order", list(func(r *pb.ListEdgesRequest) { r.Order = -3 }), "order"},
		{"direction", list(func(r *pb.ListEdgesRequest) { r.Direction = 5 }), "direction"},
		{"a note likes nothing", list(func(r *pb.ListEdgesRequest) { r.Vertex = note(1) }), "vertex.type"},
		{"nobody likes a user", list(func(r *pb.ListEdgesRequest) { r.Direction = pb.Direction_IN }), "vertex.type"},
		{"no vertex", list(func(r *pb.ListEdgesRequest) { r.Vertex = nil }), "vertex.type"},
		{"no vertices", counts(nil, &pb.ListKind{Type: "like"}), "vertices"},
		{"no lists", counts([]*pb.Vertex{user(1)}), "lists"},
		{"too many counts", counts(make([]*pb.Vertex, 5001), &pb.ListKind{Type: "like"}, &pb.ListKind{Type: "follow"}), "vertices"},
		{"unknown list", counts([]*pb.Vertex{user(1)}, &pb.ListKind{Type: "like"}, &pb.ListKind{Type: "x"}), "lists[1].type"},
		{"vertex of another type", counts([]*pb.Vertex{user(1), note(1)}, &pb.ListKind{Type: "like"}), "vertices[1].type"},
		{"vertex with id 0", counts([]*pb.Vertex{user(1), user(0)}, &pb.ListKind{Type: "like"}, &pb.ListKind{Type: "follow"}), "vertices[1].id"},
		{"no counter", incr(nil), "increment.counter"},
		{"key and vertex", incr(&pb.CounterRef{Key: "k", Vertex: note(1), Metric: "views"}), "increment.counter"},
		{"unknown metric", incr(&pb.CounterRef{Vertex: note(1), Metric: "x"}), "increment.counter.metric"},
		{"no metric", incr(&pb.CounterRef{Vertex: note(1)}), "increment.counter.metric"},
		{"unknown vertex type", incr(&pb.CounterRef{Vertex: &pb.Vertex{Type: "x", Id: 1}, Metric: "views"}), "increment.counter.vertex.type"},
		{"long key", longKey, "counter.key"},
		{"unknown metric of a get", getMetric, "metrics[1]"},
		{"metrics of a key", keyMetrics, "metrics"},
		{"long request id", longID, "request_id"},
		{"no counter in a batch", batchRef, "counters[1]"},
		{"no increments", noIncs, "increments"},
		{"unknown metric in a batch", badIncs, "increments[1].counter.metric"},
		{"unknown type of an export", export, "type"},
	}
}

func TestMistakesNameTheirField(t *testing.T) {
	f := newFake()
	for name, b := range map[string]Backend{"fake": f, "graph": openGraph(t)} {
		t.Run(name, func(t *testing.T) {
			r := serveBackend(t, b, nil)
			for _, c := range makeMistakes(t, r) {
				t.Run(c.name, func(t *testing.T) {
					info := wantError(t, c.err, codes.InvalidArgument, "INVALID_FIELD", c.field)
					if info.Metadata["limit"] == "" || info.Metadata["retryable"] != "false" {
						t.Errorf("metadata %v", info.Metadata)
					}
				})
			}
			report, err := b.Check(testCtx(t), func(graph.CheckProgress) {})
			if err != nil || (name == "graph" && report.Edges+report.Counters != 0) {
				t.Errorf("something was changed: %+v, %v", report, err)
			}
		})
	}
	if len(f.edges) != 0 || len(f.counters) != 0 {
		t.Errorf("something was changed: %v, %v", f.edges, f.counters)
	}
}

func TestWritesOfDerivedMetricsNameTheirField(t *testing.T) {
	for name, b := range map[string]Backend{"fake": newFake(), "graph": openGraph(t)} {
		t.Run(name, func(t *testing.T) {
			r, ctx := serveBackend(t, b, nil), testCtx(t)
			derived := &pb.CounterRef{Vertex: user(1), Metric: "likes_received"}
			inc := &pb.Increment{Counter: derived, Delta: 1}
			_, incr := r.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: inc})
			_, batch := r.counters.IncrByBatch(ctx, &pb.IncrByBatchRequest{Increments: []*pb.Increment{{Counter: &pb.CounterRef{Key: "k"}}, inc}})
			_, set := r.counters.Set(ctx, &pb.SetCounterRequest{Counter: derived, Value: 1})
			_, del := r.counters.Delete(ctx, &pb.DeleteCounterRequest{Counter: derived})
			for _, c := range []mistake{
				{"incr", incr, "increment.counter.metric"},
				{"batch", batch, "increments[1].counter.metric"},
				{"set", set, "counter.metric"},
				{"delete", del, "counter.metric"},
			} {
				t.Run(c.name, func(t *testing.T) {
					wantError(t, c.err, codes.FailedPrecondition, "DERIVED_METRIC", c.field)
					if !strings.Contains(c.err.Error(), c.field+": likes_received: ") {
						t.Errorf("the message is %v", c.err)
					}
				})
			}
		})
	}
}
