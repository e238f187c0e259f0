package server

import (
	"context"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server on a fake, with clients.
type rig struct {
	*Server
	fake     *fake
	conn     *grpc.ClientConn
	graph    pb.GraphClient
	counters pb.CountersClient
	admin    pb.AdminClient
}

func testConfig() Config {
	cfg := Defaults()
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.RESPAddr, cfg.PeerAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	return cfg
}

// newRig serves a fake until the end of the test.
func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	f := newFake()
	r := serveBackend(t, f, change)
	r.fake = f
	return r
}

// serveBackend serves b until the end of the test.
func serveBackend(t *testing.T, b Backend, change func(*Config)) *rig {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := Listen(cfg, slog.New(slog.NewTextHandler(testWriter{t}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.Attach(Attachment{Backend: b, Node: Node{Version: "test", ClusterID: "c", NodeID: "n"}})
	r := &rig{Server: s}
	r.conn = dial(t, s)
	r.graph, r.counters, r.admin = pb.NewGraphClient(r.conn), pb.NewCountersClient(r.conn), pb.NewAdminClient(r.conn)
	t.Cleanup(func() {
		if s.calls.stopping.Err() == nil {
			stop(t, s)
		}
	})
	select {
	case <-s.Ready():
	case <-time.After(10 * time.Second):
		t.Fatal("not ready")
	}
	return r
}

func dial(t *testing.T, s *Server) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// testWriter is a log that shows with the test that failed. Nothing is written
// after the test's end: the server has stopped by then.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func testCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func user(id uint64) *pb.Vertex { return &pb.Vertex{Type: "user", Id: id} }
func note(id uint64) *pb.Vertex { return &pb.Vertex{Type: "note", Id: id} }

func like(src, dst uint64) *pb.Edge {
	return &pb.Edge{Src: user(src), Type: "like", Dst: note(dst), Time: 1000}
}

// wantError checks code, reason and field of an error, and that it is ours.
func wantError(t *testing.T, err error, code codes.Code, reason, field string) *errdetails.ErrorInfo {
	t.Helper()
	st := status.Convert(err)
	if err == nil || st.Code() != code {
		t.Fatalf("got %v, want %v", err, code)
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			if info.Domain != "liana.dev" || info.Reason != reason || info.Metadata["field"] != field {
				t.Fatalf("%v: domain %q reason %q field %q, want reason %q field %q",
					err, info.Domain, info.Reason, info.Metadata["field"], reason, field)
			}
			return info
		}
	}
	t.Fatalf("%v has no ErrorInfo", err)
	return nil
}

func TestEdgesRoundTrip(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	e := like(1, 2)
	e.Properties = map[string]string{"client": "web", "": ""}
	_, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e})
	wantError(t, err, codes.InvalidArgument, "INVALID_FIELD", "edge.properties")
	delete(e.Properties, "")

	add, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e, Wait: pb.Wait_FORWARD})
	if err != nil || !add.Changed || add.Token == "" {
		t.Fatalf("add: %v, %v", add, err)
	}
	if add, err = r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e}); err != nil || add.Changed {
		t.Fatalf("second add: %v, %v", add, err)
	}
	e.Time = 2000
	if up, err := r.graph.UpdateEdge(ctx, &pb.UpdateEdgeRequest{Edge: e}); err != nil || !up.Changed {
		t.Fatalf("update: %v, %v", up, err)
	}
	_, err = r.graph.UpdateEdge(ctx, &pb.UpdateEdgeRequest{Edge: like(1, 3)})
	wantError(t, err, codes.NotFound, "NO_EDGE", "")

	has, err := r.graph.HasEdge(ctx, &pb.HasEdgeRequest{Src: user(1), Type: "like", Dst: note(2)})
	if err != nil || !has.Exists {
		t.Fatalf("has: %v, %v", has, err)
	}
	got, err := r.graph.GetEdge(ctx, &pb.GetEdgeRequest{Src: user(1), Type: "like", Dst: note(2)})
	if err != nil || got.Edge.Time != 2000 || got.Edge.Properties["client"] != "web" || got.Edge.Dst.Id != 2 {
		t.Fatalf("get: %v, %v", got, err)
	}
	_, err = r.graph.GetEdge(ctx, &pb.GetEdgeRequest{Src: user(1), Type: "like", Dst: note(9)})
	wantError(t, err, codes.NotFound, "NO_EDGE", "")
	del := &pb.DeleteEdgeRequest{Src: user(1), Type: "like", Dst: note(2)}
	if d, err := r.graph.DeleteEdge(ctx, del); err != nil || !d.Changed {
		t.Fatalf("delete: %v, %v", d, err)
	}
	if d, err := r.graph.DeleteEdge(ctx, del); err != nil || d.Changed {
		t.Fatalf("second delete: %v, %v", d, err)
	}
}

func TestReadsSeeBothDirections(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	for _, e := range []*pb.Edge{like(1, 10), like(1, 11), like(2, 10)} {
		if _, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e}); err != nil {
			t.Fatal(err)
		}
	}
	many, err := r.graph.HasEdges(ctx, &pb.HasEdgesRequest{Type: "like", SrcIds: []uint64{1}, DstIds: []uint64{11, 12, 10}})
	if err != nil || len(many.Exists) != 3 || !many.Exists[0] || many.Exists[1] || !many.Exists[2] {
		t.Fatalf("one source: %v, %v", many, err)
	}
	many, err = r.graph.HasEdges(ctx, &pb.HasEdgesRequest{Type: "like", SrcIds: []uint64{2, 2}, DstIds: []uint64{11, 10}})
	if err != nil || many.Exists[0] || !many.Exists[1] {
		t.Fatalf("pairs: %v, %v", many, err)
	}
	count, err := r.graph.CountEdges(ctx, &pb.CountEdgesRequest{Vertex: note(10), Type: "like", Direction: pb.Direction_IN})
	if err != nil || count.Count != 2 {
		t.Fatalf("count: %v, %v", count, err)
	}
	counts, err := r.graph.CountEdgesBatch(ctx, &pb.CountEdgesBatchRequest{
		Vertices: []*pb.Vertex{user(1), user(2)}, Lists: []*pb.ListKind{{Type: "like"}, {Type: "favorite"}},
	})
	if err != nil || len(counts.Counts) != 4 || counts.Counts[0] != 2 || counts.Counts[2] != 1 || counts.Counts[3] != 0 {
		t.Fatalf("counts: %v, %v", counts, err)
	}
	page, err := r.graph.ListEdges(ctx, &pb.ListEdgesRequest{Vertex: note(10), Type: "like", Direction: pb.Direction_IN, PageSize: 1})
	if err != nil || len(page.Edges) != 1 || page.NextPageToken == "" {
		t.Fatalf("page: %v, %v", page, err)
	}
	if e := page.Edges[0]; e.Src.Type != "user" || e.Src.Id != 1 || e.Dst.Type != "note" || e.Dst.Id != 10 || e.Type != "like" {
		t.Fatalf("edge of an IN list: %v", e)
	}
	until := int64(1000)
	count, err = r.graph.CountEdges(ctx, &pb.CountEdgesRequest{Vertex: note(10), Type: "like", Direction: pb.Direction_IN, Window: &pb.Window{Until: &until}})
	if err != nil || count.Count != 0 {
		t.Fatalf("window: %v, %v", count, err)
	}
}

func TestCountersRoundTrip(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	views := &pb.CounterRef{Vertex: note(1), Metric: "views"}
	most := int64(5)
	incr, err := r.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: views, Delta: 5, Max: &most, ExpireAt: 99}})
	if err != nil || incr.Value != 5 || !incr.Changed || incr.Token == "" {
		t.Fatalf("incr: %v, %v", incr, err)
	}
	incr, err = r.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: views, Delta: 1, Max: &most}})
	if err != nil || incr.Value != 5 || incr.Changed {
		t.Fatalf("past its cap: %v, %v", incr, err)
	}
	_, err = r.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: views, Delta: math.MaxInt64}})
	if info := wantError(t, err, codes.OutOfRange, "OVERFLOW", "increment.delta"); info.Metadata["limit"] == "" {
		t.Errorf("metadata %v", info.Metadata)
	}
	batch, err := r.counters.IncrByBatch(ctx, &pb.IncrByBatchRequest{Increments: []*pb.Increment{
		{Counter: &pb.CounterRef{Key: "k"}, Delta: 1}, {Counter: views, Delta: math.MaxInt64}, {Counter: &pb.CounterRef{Key: "k"}, Delta: 1},
	}})
	if err != nil || batch.Results[0].Value != 1 || batch.Results[1].ErrorReason != "OVERFLOW" || batch.Results[2].Value != 2 {
		t.Fatalf("batch: %v, %v", batch, err)
	}
	get, err := r.counters.Get(ctx, &pb.GetCounterRequest{Counter: &pb.CounterRef{Vertex: note(1)}})
	if err != nil || len(get.Counters) != 3 || get.Counters[0].Counter.Metric != "views" || get.Counters[0].Value != 5 ||
		get.Counters[0].ExpireAt != 99 || get.Counters[1].Exists {
		t.Fatalf("all metrics: %v, %v", get, err)
	}
	get, err = r.counters.Get(ctx, &pb.GetCounterRequest{Counter: views, Metrics: []string{"shares"}})
	if err != nil || len(get.Counters) != 2 || get.Counters[1].Counter.Metric != "shares" {
		t.Fatalf("metric and metrics: %v, %v", get, err)
	}
	if get, err = r.counters.Get(ctx, &pb.GetCounterRequest{Counter: &pb.CounterRef{Vertex: &pb.Vertex{Type: "comment", Id: 1}}}); err != nil || len(get.Counters) != 0 {
		t.Fatalf("a type without metrics: %v, %v", get, err)
	}
	bg, err := r.counters.BatchGet(ctx, &pb.BatchGetCountersRequest{Counters: []*pb.CounterRef{{Key: "k"}, views, {Key: "absent"}}})
	if err != nil || bg.Counters[0].Value != 2 || bg.Counters[1].Value != 5 || bg.Counters[2].Exists || bg.Counters[2].Counter.Key != "absent" {
		t.Fatalf("batch get: %v, %v", bg, err)
	}
	if _, err = r.counters.Set(ctx, &pb.SetCounterRequest{Counter: views, Value: -3}); err != nil {
		t.Fatal(err)
	}
	del, err := r.counters.Delete(ctx, &pb.DeleteCounterRequest{Counter: views})
	if err != nil || !del.Changed {
		t.Fatalf("delete: %v, %v", del, err)
	}
}

func TestAdmin(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	schema, err := r.admin.GetSchema(ctx, &pb.GetSchemaRequest{})
	if err != nil || !strings.Contains(schema.Yaml, "name: like") || schema.Version == 0 {
		t.Fatalf("schema: %v, %v", schema, err)
	}
	st, err := r.admin.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil || st.Version != "test" || st.ClusterId != "c" || len(st.Shards) != 2 || st.Shards[1].Fault != "planted" || st.Shards[1].FirstSlot != 2048 {
		t.Fatalf("status: %v, %v", st, err)
	}
	check, err := r.admin.Check(ctx, &pb.CheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := check.Recv()
	if err != nil || first.Done || first.ListsTotal != 2 {
		t.Fatalf("progress: %v, %v", first, err)
	}
	if last, err := check.Recv(); err != nil || !last.Done || last.Edges != 6 {
		t.Fatalf("report: %v, %v", last, err)
	}
	whole, err := r.admin.Check(ctx, &pb.CheckRequest{Cluster: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := whole.Recv(); status.Code(err) != codes.Unimplemented {
		t.Fatalf("a check of no cluster: %v", err)
	}
	for i := range uint64(2500) {
		r.fake.mutate(graph.Mutation{Op: graph.OpAdd, Type: 1, Src: 1, Dst: i + 1, Props: []byte("\x01k\x01v")})
	}
	export, err := r.admin.ExportEdges(ctx, &pb.ExportEdgesRequest{Type: "like"})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for {
		m, err := export.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e := m.Edges[0]; e.Src.Type != "user" || e.Properties["k"] != "v" {
			t.Fatalf("exported %v", e)
		}
		total += len(m.Edges)
	}
	if total != 2500 {
		t.Errorf("exported %d", total)
	}
}
