package target

import (
	"context"
	"errors"
	"io"
	"net"
	"sort"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// fakeGraph is the Graph service over a map: what a session needs to be tested.
type fakeGraph struct {
	lianav1.UnimplementedGraphServer
	mu    sync.Mutex
	likes map[[2]uint64]int64
}

// serveFake serves a fakeGraph until the test ends and returns its address.
func serveFake(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	lianav1.RegisterGraphServer(g, &fakeGraph{likes: map[[2]uint64]int64{}})
	done := make(chan struct{})
	go func() {
		_ = g.Serve(l)
		close(done)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
	return l.Addr().String()
}

func (f *fakeGraph) apply(op lianav1.MutationOp, src, dst uint64, at int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := [2]uint64{src, dst}
	_, there := f.likes[key]
	switch {
	case op == lianav1.MutationOp_ADD && !there, op == lianav1.MutationOp_UPDATE && there:
		f.likes[key] = at
		return true
	case op == lianav1.MutationOp_DELETE && there:
		delete(f.likes, key)
		return true
	}
	return false
}

// kinds refuses an edge that is not a like between a user and a note.
func kinds(src *lianav1.Vertex, kind string, dst *lianav1.Vertex) error {
	if src.GetType() != "user" || kind != "like" || dst.GetType() != "note" {
		return status.Error(codes.InvalidArgument, "not a like")
	}
	return nil
}

func (f *fakeGraph) AddEdge(_ context.Context, r *lianav1.AddEdgeRequest) (*lianav1.AddEdgeResponse, error) {
	e := r.GetEdge()
	changed := f.apply(lianav1.MutationOp_ADD, e.GetSrc().GetId(), e.GetDst().GetId(), e.GetTime())
	return &lianav1.AddEdgeResponse{Changed: changed}, kinds(e.GetSrc(), e.GetType(), e.GetDst())
}

func (f *fakeGraph) DeleteEdge(_ context.Context, r *lianav1.DeleteEdgeRequest) (*lianav1.DeleteEdgeResponse, error) {
	changed := f.apply(lianav1.MutationOp_DELETE, r.GetSrc().GetId(), r.GetDst().GetId(), 0)
	return &lianav1.DeleteEdgeResponse{Changed: changed}, kinds(r.GetSrc(), r.GetType(), r.GetDst())
}

func (f *fakeGraph) UpdateEdge(_ context.Context, r *lianav1.UpdateEdgeRequest) (*lianav1.UpdateEdgeResponse, error) {
	e := r.GetEdge()
	if !f.apply(lianav1.MutationOp_UPDATE, e.GetSrc().GetId(), e.GetDst().GetId(), e.GetTime()) {
		return nil, status.Error(codes.NotFound, "no such edge")
	}
	return &lianav1.UpdateEdgeResponse{Changed: true}, nil
}

func (f *fakeGraph) outcomes(ms []*lianav1.Mutation) []lianav1.Outcome {
	var out []lianav1.Outcome
	for _, m := range ms {
		o := lianav1.Outcome_UNCHANGED
		if f.apply(m.GetOp(), m.GetSrcId(), m.GetDstId(), m.GetTime()) {
			o = lianav1.Outcome_CHANGED
		}
		out = append(out, o)
	}
	return out
}

func (f *fakeGraph) MutateEdges(_ context.Context, r *lianav1.MutateEdgesRequest) (*lianav1.MutateEdgesResponse, error) {
	return &lianav1.MutateEdgesResponse{Outcomes: f.outcomes(r.GetMutations())}, nil
}

func (f *fakeGraph) StreamMutations(s lianav1.Graph_StreamMutationsServer) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer := &lianav1.StreamMutationsResponse{Sequence: r.GetSequence(), Outcomes: f.outcomes(r.GetMutations())}
		if err := s.Send(answer); err != nil {
			return err
		}
	}
}

func (f *fakeGraph) HasEdges(_ context.Context, r *lianav1.HasEdgesRequest) (*lianav1.HasEdgesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &lianav1.HasEdgesResponse{}
	for _, dst := range r.GetDstIds() {
		_, there := f.likes[[2]uint64{r.GetSrcIds()[0], dst}]
		out.Exists = append(out.Exists, there)
	}
	return out, nil
}

// list returns the edges of a list, newest first.
func (f *fakeGraph) list(v *lianav1.Vertex, d lianav1.Direction) []*lianav1.Edge {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*lianav1.Edge
	for key, at := range f.likes {
		in := d == lianav1.Direction_IN && v.GetType() == "note" && key[1] == v.GetId()
		if in || d == lianav1.Direction_OUT && v.GetType() == "user" && key[0] == v.GetId() {
			out = append(out, &lianav1.Edge{Src: userVertex(key[0]), Type: "like", Dst: noteVertex(key[1]), Time: at})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Time > out[j].Time })
	return out
}

func (f *fakeGraph) CountEdges(_ context.Context, r *lianav1.CountEdgesRequest) (*lianav1.CountEdgesResponse, error) {
	out := &lianav1.CountEdgesResponse{}
	for _, e := range f.list(r.GetVertex(), r.GetDirection()) {
		if e.GetTime() >= r.GetWindow().GetSince() && e.GetTime() < r.GetWindow().GetUntil() {
			out.Count++
		}
	}
	return out, nil
}

func (f *fakeGraph) CountEdgesBatch(_ context.Context, r *lianav1.CountEdgesBatchRequest) (*lianav1.CountEdgesBatchResponse, error) {
	out := &lianav1.CountEdgesBatchResponse{}
	for _, v := range r.GetVertices() {
		out.Counts = append(out.Counts, uint64(len(f.list(v, r.GetLists()[0].GetDirection()))))
	}
	return out, nil
}

func (f *fakeGraph) ListEdges(_ context.Context, r *lianav1.ListEdgesRequest) (*lianav1.ListEdgesResponse, error) {
	edges := f.list(r.GetVertex(), r.GetDirection())
	edges = edges[min(int(r.GetSkip()), len(edges)):]
	return &lianav1.ListEdgesResponse{Edges: edges[:min(int(r.GetPageSize()), len(edges))]}, nil
}
