package server

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// openGraph is the real domain, on engines in memory.
func openGraph(t *testing.T) *graph.Graph {
	t.Helper()
	state, log := kv.NewMem(graph.Merger()), kv.NewMem(nil)
	node, err := shard.OpenNode(shard.NodeConfig{State: state, Log: log, StablePath: filepath.Join(t.TempDir(), "raft.db")})
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Open(graph.Config{Node: node, Store: state, Timeline: 7, PageKey: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Close()
		if err := node.Close(); err != nil {
			t.Error(err)
		}
		_ = log.Close()
		_ = state.Close()
	})
	return g
}

// CASES 40: times that a client cannot mean are refused, whatever unit it
// thinks in, and the rest is stored as it is.
func TestTimesAreRefusedOrKept(t *testing.T) {
	r, ctx := serveBackend(t, openGraph(t), nil), testCtx(t)
	now := time.Now()
	for i, at := range []int64{-1, -1 << 63, 1<<63 - 1, now.AddDate(10, 0, 0).UnixMicro(), now.Add(6 * time.Minute).UnixMicro(), now.UnixNano()} {
		e := like(1, 1)
		e.Time = at
		_, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e})
		if info := wantError(t, err, codes.InvalidArgument, "INVALID_FIELD", "edge.time"); info.Metadata["limit"] == "" {
			t.Errorf("%d: no limit", i)
		}
	}
	for i, at := range []int64{1, 0, now.UnixMicro(), now.Add(4 * time.Minute).UnixMicro(), now.Unix()} { // the last: seconds
		e := like(1, uint64(i+1))
		e.Time = at
		if _, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e}); err != nil {
			t.Fatal(err)
		}
		got, err := r.graph.GetEdge(ctx, &pb.GetEdgeRequest{Src: user(1), Type: "like", Dst: note(uint64(i + 1))})
		if err != nil || (at != 0 && got.Edge.Time != at) || got.Edge.Time == 0 {
			t.Errorf("time %d became %v, %v", at, got, err)
		}
	}
	seen, token := 0, ""
	for last := int64(1<<63 - 1); ; {
		page, err := r.graph.ListEdges(ctx, &pb.ListEdgesRequest{Vertex: user(1), Type: "like", PageSize: 1, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Edges {
			if e.Time > last {
				t.Errorf("%d after %d", e.Time, last)
			}
			last = e.Time
			seen++
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if seen != 5 {
		t.Errorf("listed %d", seen)
	}
}

// CASES 11: page tokens that are foreign, cut or altered are refused; one
// outlives the edges that it points between.
func TestPageTokensAreChecked(t *testing.T) {
	r, ctx := serveBackend(t, openGraph(t), nil), testCtx(t)
	for i := range uint64(10) {
		if _, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(1, i+1)}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(change func(*pb.ListEdgesRequest)) (*pb.ListEdgesResponse, error) {
		req := &pb.ListEdgesRequest{Vertex: user(1), Type: "like", PageSize: 3}
		change(req)
		return r.graph.ListEdges(ctx, req)
	}
	first, err := list(func(*pb.ListEdgesRequest) {})
	if err != nil || len(first.Edges) != 3 {
		t.Fatalf("%v, %v", first, err)
	}
	token := first.NextPageToken
	altered := []byte(token)
	altered[len(altered)/2] ^= 1
	other := serveBackend(t, openGraph(t), nil)
	foreign := func() error {
		_, err := other.graph.ListEdges(ctx, &pb.ListEdgesRequest{Vertex: user(1), Type: "follow", PageToken: token})
		return err
	}
	for name, ask := range map[string]func() error{
		"cut": func() error {
			_, err := list(func(q *pb.ListEdgesRequest) { q.PageToken = token[:len(token)-1] })
			return err
		},
		"altered": func() error {
			_, err := list(func(q *pb.ListEdgesRequest) { q.PageToken = string(altered) })
			return err
		},
		"random": func() error {
			_, err := list(func(q *pb.ListEdgesRequest) { q.PageToken = "AAAAAAAAAAAAAAAA" })
			return err
		},
		"other vertex": func() error {
			_, err := list(func(q *pb.ListEdgesRequest) { q.PageToken, q.Vertex = token, user(2) })
			return err
		},
		"other type": func() error {
			_, err := list(func(q *pb.ListEdgesRequest) { q.PageToken, q.Type = token, "favorite" })
			return err
		},
		"other order": func() error {
			_, err := list(func(q *pb.ListEdgesRequest) { q.PageToken, q.Order = token, pb.Order_OLDEST_FIRST })
			return err
		},
		"other list":     foreign,
		"a read's token": func() error { _, err := list(func(q *pb.ListEdgesRequest) { q.PageToken = first.Token }); return err },
		"as a read token": func() error {
			_, err := list(func(q *pb.ListEdgesRequest) { q.Consistency = &pb.Consistency{Token: token} })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			field := "page_token"
			if name == "as a read token" {
				field = "consistency.token"
			}
			wantError(t, ask(), codes.InvalidArgument, "INVALID_FIELD", field)
		})
	}
	for i := range uint64(10) {
		if _, err := r.graph.DeleteEdge(ctx, &pb.DeleteEdgeRequest{Src: user(1), Type: "like", Dst: note(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	rest, err := list(func(q *pb.ListEdgesRequest) { q.PageToken = token })
	if err != nil || len(rest.Edges) != 0 || rest.NextPageToken != "" {
		t.Errorf("after the list has shrunk to nothing: %v, %v", rest, err)
	}
}

// The whole API on the whole domain, read back at each level.
func TestTheServicesServeTheGraph(t *testing.T) {
	r, ctx := serveBackend(t, openGraph(t), nil), testCtx(t)
	stream, err := r.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var token string
	for b := range uint64(20) {
		var edges []*pb.Edge
		for i := range uint64(50) {
			edges = append(edges, like(i+1, b+1))
		}
		sendBatch(t, stream, b, edges...)
		resp, err := stream.Recv()
		if err != nil || resp.Sequence != b || len(resp.Errors) != 0 {
			t.Fatalf("batch %d: %v, %v", b, resp, err)
		}
		token = resp.Token
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*pb.Consistency{nil, {Token: token}, {Level: pb.ReadLevel_LINEARIZABLE}} {
		in, err := r.graph.CountEdges(ctx, &pb.CountEdgesRequest{Vertex: note(20), Type: "like", Direction: pb.Direction_IN, Consistency: c})
		if err != nil || in.Count != 50 {
			t.Errorf("%v: %v, %v", c, in, err)
		}
	}
	for range 2 { // a retry
		incr, err := r.counters.IncrBy(ctx, &pb.IncrByRequest{
			Increment: &pb.Increment{Counter: &pb.CounterRef{Key: "k"}, Delta: 5}, RequestId: "once",
		})
		if err != nil || incr.Value != 5 || !incr.Changed {
			t.Errorf("increment: %v, %v", incr, err)
		}
	}
	_, err = r.counters.IncrBy(ctx, &pb.IncrByRequest{
		Increment: &pb.Increment{Counter: &pb.CounterRef{Key: "k"}, Delta: 6}, RequestId: "once",
	})
	wantError(t, err, codes.FailedPrecondition, "REQUEST_ID_REUSED", "")
	check, err := r.admin.Check(ctx, &pb.CheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := check.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.Done {
			if m.Faults != 0 || m.Edges == 0 {
				t.Errorf("check: %v", m)
			}
			break
		}
	}
	st, err := r.admin.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil || len(st.Shards) != 4 || st.Shards[3].LastSlot != 4095 {
		t.Errorf("status: %v, %v", st, err)
	}
	for i, s := range st.GetShards() {
		if !s.Leader || s.Fault != "" {
			t.Error(fmt.Sprint("shard ", i, ": ", s))
		}
	}
}
