package server

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// Vertices are hidden, restored and deleted over the wire; the states are told.
func TestVerticesOverTheWire(t *testing.T) {
	r, ctx := serveBackend(t, openGraph(t), nil), testCtx(t)
	follows(t, r)
	become := func(v *pb.Vertex, want pb.VertexState) *pb.VertexJob {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			j, err := r.graph.GetVertexJob(ctx, &pb.GetVertexJobRequest{Vertex: v})
			if err != nil {
				t.Fatal(err)
			}
			if j.State == want {
				return j
			}
			if time.Since(begun) > 20*time.Second {
				t.Fatalf("%v, want %v", j, want)
			}
		}
	}
	likes := func(want uint64) {
		t.Helper()
		c, err := r.graph.CountEdges(ctx, &pb.CountEdgesRequest{Vertex: note(5), Type: "like", Direction: pb.Direction_IN})
		if err != nil || c.Count != want {
			t.Errorf("%v likes, %v, want %d", c, err, want)
		}
	}
	if j, err := r.graph.HideVertex(ctx, &pb.HideVertexRequest{Vertex: note(5)}); err != nil || j.State != pb.VertexState_VERTEX_HIDING || j.Total != 4 || j.Vertex.GetId() != 5 {
		t.Fatalf("hide: %v, %v", j, err)
	}
	become(note(5), pb.VertexState_VERTEX_HIDDEN)
	likes(0)
	if _, err := r.graph.RestoreVertex(ctx, &pb.RestoreVertexRequest{Vertex: note(5)}); err != nil {
		t.Fatal(err)
	}
	become(note(5), pb.VertexState_VERTEX_PLAIN)
	likes(4)
	if _, err := r.graph.DeleteVertex(ctx, &pb.DeleteVertexRequest{Vertex: user(2)}); err != nil {
		t.Fatal(err)
	}
	become(user(2), pb.VertexState_VERTEX_PLAIN)
	likes(3)
	if all, err := r.graph.ListJobs(ctx, &pb.ListJobsRequest{}); err != nil || len(all.Vertices)+len(all.Backfills) > 0 {
		t.Errorf("jobs: %v, %v", all, err)
	}
	for _, v := range []*pb.Vertex{nil, {Type: "nobody", Id: 1}, {Type: "user"}} {
		if _, err := r.graph.DeleteVertex(ctx, &pb.DeleteVertexRequest{Vertex: v}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("delete %v: %v", v, err)
		}
	}
}
