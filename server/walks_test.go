package server

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// follows has users 2 to 9 followed by user 1, the even ones back, and note 5 liked by 1, 2,
// 3 and 20.
func follows(t *testing.T, r *rig) {
	t.Helper()
	ctx := testCtx(t)
	add := func(src *pb.Vertex, kind string, dst *pb.Vertex, at int64) {
		t.Helper()
		if _, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: &pb.Edge{Src: src, Type: kind, Dst: dst, Time: at}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := uint64(2); i <= 9; i++ {
		add(user(1), "follow", user(i), int64(i))
		if i%2 == 0 {
			add(user(i), "follow", user(1), int64(100+i))
		}
	}
	for i, u := range []uint64{1, 2, 3, 20} {
		add(user(u), "like", note(5), int64(200+i))
	}
}

func list(v *pb.Vertex, kind string, d pb.Direction) *pb.EdgeList {
	return &pb.EdgeList{Vertex: v, Type: kind, Direction: d}
}

func ids(ms []*pb.SetMember) (out []uint64) {
	for _, m := range ms {
		out = append(out, m.Id)
	}
	return out
}

func TestSetsOverTheWire(t *testing.T) {
	r, ctx := serveBackend(t, openGraph(t), nil), testCtx(t)
	follows(t, r)
	following, followers := list(user(1), "follow", pb.Direction_OUT), list(user(1), "follow", pb.Direction_IN)
	likers := list(note(5), "like", pb.Direction_IN)

	both, err := r.graph.Intersect(ctx, &pb.IntersectRequest{A: following, B: likers})
	if err != nil || fmt.Sprint(ids(both.Members)) != "[3 2]" || both.OrderedBy != pb.SetSide_B || both.Type != "user" || both.NextPageToken != "" || both.Token == "" {
		t.Errorf("intersect: %v, %v", both, err)
	} else if m := both.Members[0]; m.GetATime() != 3 || m.GetBTime() != 202 {
		t.Errorf("times: %v", m)
	}
	var got []uint64
	for token := ""; ; {
		page, err := r.graph.Difference(ctx, &pb.DifferenceRequest{A: following, B: followers, PageSize: 3, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Members {
			if m.BTime != nil || m.ATime == nil {
				t.Errorf("times: %v", m)
			}
		}
		got = append(got, ids(page.Members)...)
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if fmt.Sprint(got) != "[9 7 5 3]" {
		t.Errorf("difference: %v", got)
	}
	union, err := r.graph.Union(ctx, &pb.UnionRequest{A: likers, B: followers})
	if err != nil || fmt.Sprint(ids(union.Members)) != "[1 2 3 4 6 8 20]" {
		t.Errorf("union: %v, %v", union, err)
	}
	many, err := r.graph.IntersectMany(ctx, &pb.IntersectManyRequest{
		A: following, Vertices: []*pb.Vertex{note(4), note(5)}, Type: "like", Direction: pb.Direction_IN, Limit: 1,
	})
	if err != nil || len(many.Results) != 2 || len(many.Results[0].Members) != 0 || fmt.Sprint(ids(many.Results[1].Members)) != "[3]" || !many.Results[1].More {
		t.Errorf("many: %v, %v", many, err)
	}
}

func TestTraverseOverTheWire(t *testing.T) {
	r, ctx := serveBackend(t, openGraph(t), nil), testCtx(t)
	follows(t, r)
	walk := func(req *pb.TraverseRequest) (got []*pb.ReachedVertex, end *pb.TraverseEnd, err error) {
		stream, err := r.graph.Traverse(ctx, req)
		if err != nil {
			return nil, nil, err
		}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return got, end, nil
			}
			if err != nil {
				return got, end, err
			}
			got, end = append(got, m.Vertices...), m.End
		}
	}
	got, end, err := walk(&pb.TraverseRequest{Start: user(1), Steps: []*pb.Step{{Type: "follow", Limit: 4}, {Type: "like", Direction: pb.Direction_OUT}}})
	if err != nil || len(got) != 4 || end == nil || end.Token == "" {
		t.Fatalf("%v, %v, %v", got, end, err)
	}
	if len(end.Cuts) != 1 || end.Cuts[0].Limit != pb.TraverseCut_STEP_LIMIT || end.Cuts[0].Depth != 1 || fmt.Sprint(end.StepLimits) != "[4 1000]" || end.Limit != 10_000 || end.MaxEdges != 1_000_000 {
		t.Errorf("end: %v", end)
	}
	if x := got[0]; x.Depth != 1 || x.Vertex.Id != 9 || x.From.Id != 1 || x.Vertex.Type != "user" {
		t.Errorf("first: %v", x)
	}
	got, _, err = walk(&pb.TraverseRequest{Start: note(5), Steps: []*pb.Step{{Type: "like", Direction: pb.Direction_IN}, {Type: "follow"}}})
	if err != nil || len(got) != 4+6 {
		t.Errorf("from a note: %v, %v", got, err)
	}
	for field, req := range map[string]*pb.TraverseRequest{
		"steps":              {Start: user(1)},
		"start.type":         {Start: &pb.Vertex{Type: "x", Id: 1}, Steps: []*pb.Step{{Type: "follow"}}},
		"start.id":           {Start: user(0), Steps: []*pb.Step{{Type: "follow"}}},
		"steps[1].type":      {Start: user(1), Steps: []*pb.Step{{Type: "like"}, {Type: "follow"}}},
		"steps[0].order":     {Start: user(1), Steps: []*pb.Step{{Type: "like", Order: 77}}},
		"steps[0].direction": {Start: user(1), Steps: []*pb.Step{{Type: "like", Direction: 77}}},
		"depth":              {Start: user(1), Steps: []*pb.Step{{Type: "follow"}}, Depth: 17},
		"consistency.token":  {Start: user(1), Steps: []*pb.Step{{Type: "follow"}}, Consistency: &pb.Consistency{Token: "x"}},
	} {
		_, _, err := walk(req)
		wantError(t, err, codes.InvalidArgument, "INVALID_FIELD", field)
	}
	ask := func(a, b *pb.EdgeList) error {
		_, err := r.graph.Intersect(ctx, &pb.IntersectRequest{A: a, B: b})
		return err
	}
	good := list(user(1), "follow", pb.Direction_OUT)
	for field, err := range map[string]error{
		"a.type":        ask(nil, good),
		"b.type":        ask(good, list(user(1), "like", pb.Direction_OUT)),
		"b.vertex.type": ask(good, list(note(1), "follow", pb.Direction_OUT)),
		"b.vertex.id":   ask(good, list(user(0), "follow", pb.Direction_OUT)),
		"a.direction":   ask(list(user(1), "follow", 9), good),
	} {
		wantError(t, err, codes.InvalidArgument, "INVALID_FIELD", field)
	}
	_, err = r.graph.IntersectMany(ctx, &pb.IntersectManyRequest{A: good, Type: "like", Direction: pb.Direction_IN, Vertices: []*pb.Vertex{note(1), user(1)}})
	wantError(t, err, codes.InvalidArgument, "INVALID_FIELD", "vertices[1].type")
}
