package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// The fake deletes at once, and hides at the second look.

func (f *fakeServer) DeleteVertex(_ context.Context, r *lianav1.DeleteVertexRequest) (*lianav1.VertexJob, error) {
	f.keep("delete vertex", r)
	return &lianav1.VertexJob{Vertex: r.Vertex, State: lianav1.VertexState_VERTEX_DELETING, Total: 7}, nil
}

func (f *fakeServer) HideVertex(_ context.Context, r *lianav1.HideVertexRequest) (*lianav1.VertexJob, error) {
	f.keep("hide vertex", r)
	return &lianav1.VertexJob{Vertex: r.Vertex, State: lianav1.VertexState_VERTEX_HIDING, Total: 7}, nil
}

func (f *fakeServer) RestoreVertex(_ context.Context, r *lianav1.RestoreVertexRequest) (*lianav1.VertexJob, error) {
	f.keep("restore vertex", r)
	return &lianav1.VertexJob{Vertex: r.Vertex, State: lianav1.VertexState_VERTEX_PLAIN}, nil
}

func (f *fakeServer) GetVertexJob(_ context.Context, r *lianav1.GetVertexJobRequest) (*lianav1.VertexJob, error) {
	f.keep("vertex job", r)
	return &lianav1.VertexJob{Vertex: r.Vertex, State: lianav1.VertexState_VERTEX_HIDDEN, Total: 7, Done: 7}, nil
}

func (f *fakeServer) ListJobs(context.Context, *lianav1.ListJobsRequest) (*lianav1.ListJobsResponse, error) {
	return &lianav1.ListJobsResponse{
		Vertices:  []*lianav1.VertexJob{{Vertex: &lianav1.Vertex{Type: "user", Id: 8}, State: lianav1.VertexState_VERTEX_DELETING, Total: 1000, Done: 10}},
		Backfills: []*lianav1.Backfill{{VertexType: "user", Metric: "likes_received", Done: 0.25}},
	}, nil
}

func TestVertexCommands(t *testing.T) {
	f, addr := startFake(t)
	for _, c := range []struct{ line, name, shown string }{
		{"vertex delete user:42", "delete vertex", "deleting"},
		{"vertex hide user:42 --wait", "vertex job", "hidden"},
		{"vertex restore user:42", "restore vertex", "plain"},
		{"vertex show user:42", "vertex job", "hidden"},
		{"vertex jobs", "", "25 %"},
	} {
		out := must(t, append(strings.Fields(c.line), "--addr", addr)...)
		if !strings.Contains(out, c.shown) {
			t.Errorf("%s shows %q, want %q", c.line, out, c.shown)
		}
		if c.name == "" {
			continue
		}
		f.mu.Lock()
		asked := strings.ReplaceAll(fmt.Sprint(f.last[c.name]), "  ", " ")
		f.mu.Unlock()
		if asked != `vertex:{type:"user" id:42}` {
			t.Errorf("%s asks %s", c.line, asked)
		}
	}
	liana("vertex", "delete", "nobody", "--addr", addr).expect(t, exitUsage, "VERTEX")
}
