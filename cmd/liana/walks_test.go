package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// The fake answers walks and sets with what says that the request came whole.

func (f *fakeServer) keep(name string, request any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[name] = request
}

func (f *fakeServer) Traverse(r *lianav1.TraverseRequest, stream grpc.ServerStreamingServer[lianav1.TraverseResponse]) error {
	f.keep("traverse", r)
	reached := &lianav1.ReachedVertex{Vertex: &lianav1.Vertex{Type: "user", Id: 8}, Depth: 1, From: r.Start}
	if err := stream.Send(&lianav1.TraverseResponse{Vertices: []*lianav1.ReachedVertex{reached}}); err != nil {
		return err
	}
	return stream.Send(&lianav1.TraverseResponse{End: &lianav1.TraverseEnd{
		Cuts:       []*lianav1.TraverseCut{{Limit: lianav1.TraverseCut_STEP_LIMIT, Depth: 2, Vertices: 3}, {Limit: lianav1.TraverseCut_VERTICES, Depth: 3}},
		StepLimits: []int32{50, 60}, Limit: 10, Token: "t",
	}})
}

func (f *fakeServer) Intersect(_ context.Context, r *lianav1.IntersectRequest) (*lianav1.IntersectResponse, error) {
	f.keep("intersect", r)
	return &lianav1.IntersectResponse{Members: []*lianav1.SetMember{{Id: 8, ATime: proto.Int64(1e6)}}, Type: "user", NextPageToken: "n", Token: "t"}, nil
}

func (f *fakeServer) IntersectMany(_ context.Context, r *lianav1.IntersectManyRequest) (*lianav1.IntersectManyResponse, error) {
	f.keep("intersect", r)
	return &lianav1.IntersectManyResponse{Type: "user", Results: []*lianav1.IntersectManyResult{{}, {Members: []*lianav1.SetMember{{Id: 8}}, More: true}}}, nil
}

func (f *fakeServer) Difference(_ context.Context, r *lianav1.DifferenceRequest) (*lianav1.DifferenceResponse, error) {
	f.keep("difference", r)
	return &lianav1.DifferenceResponse{Type: "user"}, nil
}

func (f *fakeServer) Union(_ context.Context, r *lianav1.UnionRequest) (*lianav1.UnionResponse, error) {
	f.keep("union", r)
	return &lianav1.UnionResponse{Type: "user"}, nil
}

func TestWalkCommandsAskForWhatIsWritten(t *testing.T) {
	f, addr := startFake(t)
	for _, c := range []struct{ line, name, want, shown string }{
		{"traverse user:42 follow like:in:50 --depth 3 --limit 9 --max-edges 8 --oldest --since 5us --token x", "traverse",
			`start:{type:"user" id:42} steps:{type:"follow" direction:OUT order:OLDEST_FIRST window:{since:5}} steps:{type:"like" direction:IN order:OLDEST_FIRST window:{since:5} limit:50} depth:3 limit:9 max_edges:8 consistency:{level:AT_LEAST_AS_FRESH token:"x"}`,
			"user:8"},
		{"intersect user:42 follow note:7 like:in --limit 5 --until 9us --page-token p", "intersect",
			`a:{vertex:{type:"user" id:42} type:"follow" direction:OUT} b:{vertex:{type:"note" id:7} type:"like" direction:IN window:{until:9}} page_size:5 page_token:"p"`,
			"1970-01-01T00:00:01Z"},
		{"intersect user:42 follow note:7 note:9 like:in --linearizable", "intersect",
			`a:{vertex:{type:"user" id:42} type:"follow" direction:OUT} vertices:{type:"note" id:7} vertices:{type:"note" id:9} type:"like" direction:IN consistency:{level:LINEARIZABLE}`,
			"note:9"},
		{"difference user:1 follow user:1 follow:in --max-edges 7", "difference",
			`a:{vertex:{type:"user" id:1} type:"follow" direction:OUT} b:{vertex:{type:"user" id:1} type:"follow" direction:IN} max_edges:7`, "TIME A"},
		{"union user:1 follow user:1 follow:in", "union",
			`a:{vertex:{type:"user" id:1} type:"follow" direction:OUT} b:{vertex:{type:"user" id:1} type:"follow" direction:IN}`, "VERTEX"},
	} {
		out := must(t, append(strings.Fields(c.line), "--addr", addr)...)
		f.mu.Lock()
		got := strings.Join(strings.Fields(fmt.Sprint(f.last[c.name])), " ")
		f.mu.Unlock()
		if got != c.want {
			t.Errorf("%s asks\n%s, want\n%s", c.line, got, c.want)
		}
		if !strings.Contains(out, c.shown) {
			t.Errorf("%s shows\n%s", c.line, out)
		}
	}
	asMessage(t, new(lianav1.TraverseResponse), "traverse", "user:1", "follow", "--addr", addr)
	page := asMessage(t, new(lianav1.IntersectResponse), "intersect", "user:1", "follow", "note:7", "like:in", "--addr", addr)
	if page.NextPageToken != "n" || page.Members[0].BTime != nil {
		t.Errorf("%v", page)
	}
}

func TestBadWalksAreUsageErrors(t *testing.T) {
	for _, line := range []string{
		"traverse user:42", "traverse 42 follow", "traverse user:42 follow:up", "traverse user:42 follow:in:0", "traverse user:42 :in",
		"traverse user:42 a:in:5:6", "intersect user:1 follow note:7", "intersect user:1 follow note:7 like:up", "difference user:1 follow 7 like",
		"intersect user:1 follow note:7 note:8 like:in --page-token x", "union user:1 follow user:2 follow --since -1d",
	} {
		liana(strings.Fields(line)...).expect(t, exitUsage, "--help")
	}
}
