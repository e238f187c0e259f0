package server

import (
	"context"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// setRequest is a request for a page of two lists combined.
type setRequest interface {
	GetA() *pb.EdgeList
	GetB() *pb.EdgeList
	GetPageSize() int32
	GetPageToken() string
	GetMaxEdges() int32
	GetConsistency() *pb.Consistency
}

// combine answers a setRequest. kind is the type of the members.
func (s *graphService) combine(ctx context.Context, op graph.SetOp, req setRequest) (page graph.SetPage, kind string, err error) {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return page, "", err
	}
	n := names{g.Schema()}
	q := graph.SetQuery{Op: op, PageSize: int(req.GetPageSize()), PageToken: req.GetPageToken(), MaxEdges: int(req.GetMaxEdges())}
	if q.A, kind, err = n.side("a", req.GetA()); err != nil {
		return page, "", err
	}
	if q.B, _, err = n.side("b", req.GetB()); err != nil {
		return page, "", err
	}
	page, err = g.Combine(ctx, opts, q)
	return page, kind, readPaths.rename(err)
}

// side is an edge list as one side of a set query, and the type of its members.
func (n names) side(field string, l *pb.EdgeList) (graph.SetSide, string, error) {
	list, def, err := decodeList(n, l)
	if err != nil {
		return graph.SetSide{}, "", below(field, err)
	}
	return graph.SetSide{List: list, Window: decodeWindow(l.GetWindow())}, n.memberType(def, list.Dir), nil
}

// memberType is the type of the vertices at the other ends of lists.
func (n names) memberType(def *graph.EdgeTypeDef, dir graph.Direction) string {
	if dir == graph.In {
		return n.VertexTypeName(def.From)
	}
	return n.VertexTypeName(def.To)
}

func encodeMembers(ms []graph.SetMember) []*pb.SetMember {
	out := make([]*pb.SetMember, len(ms))
	messages, times := make([]pb.SetMember, len(ms)), make([]int64, 0, 2*len(ms))
	for i, x := range ms {
		m := &messages[i]
		m.Id = x.ID
		if x.InA {
			times = append(times, x.TimeA)
			m.ATime = &times[len(times)-1]
		}
		if x.InB {
			times = append(times, x.TimeB)
			m.BTime = &times[len(times)-1]
		}
		out[i] = m
	}
	return out
}

func (s *graphService) Intersect(ctx context.Context, req *pb.IntersectRequest) (*pb.IntersectResponse, error) {
	page, kind, err := s.combine(ctx, graph.Intersect, req)
	if err != nil {
		return nil, err
	}
	by := pb.SetSide_A
	if page.ByB {
		by = pb.SetSide_B
	}
	return &pb.IntersectResponse{
		Members: encodeMembers(page.Members), Type: kind, OrderedBy: by, NextPageToken: page.Next, Token: page.Token,
	}, nil
}

func (s *graphService) Difference(ctx context.Context, req *pb.DifferenceRequest) (*pb.DifferenceResponse, error) {
	page, kind, err := s.combine(ctx, graph.Difference, req)
	if err != nil {
		return nil, err
	}
	return &pb.DifferenceResponse{Members: encodeMembers(page.Members), Type: kind, NextPageToken: page.Next, Token: page.Token}, nil
}

func (s *graphService) Union(ctx context.Context, req *pb.UnionRequest) (*pb.UnionResponse, error) {
	page, kind, err := s.combine(ctx, graph.Union, req)
	if err != nil {
		return nil, err
	}
	return &pb.UnionResponse{Members: encodeMembers(page.Members), Type: kind, NextPageToken: page.Next, Token: page.Token}, nil
}

func (s *graphService) IntersectMany(ctx context.Context, req *pb.IntersectManyRequest) (*pb.IntersectManyResponse, error) {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return nil, err
	}
	n := names{g.Schema()}
	q, kind, err := n.many(req)
	if err != nil {
		return nil, err
	}
	results, token, err := g.IntersectMany(ctx, opts, q)
	if err != nil {
		return nil, paths{"token", "consistency.token", "b", "vertices"}.rename(err)
	}
	resp := &pb.IntersectManyResponse{Type: kind, Token: token}
	for _, r := range results {
		resp.Results = append(resp.Results, &pb.IntersectManyResult{Members: encodeMembers(r.Members), More: r.More})
	}
	return resp, nil
}

func (n names) many(req *pb.IntersectManyRequest) (q graph.ManyQuery, kind string, err error) {
	q = graph.ManyQuery{Window: decodeWindow(req.GetWindow()), Limit: int(req.GetLimit()), MaxEdges: int(req.GetMaxEdges())}
	if q.A, kind, err = n.side("a", req.GetA()); err != nil {
		return q, "", err
	}
	if k := len(req.GetVertices()); k == 0 || k > graph.MaxManyLists {
		return q, "", invalid("vertices", "1 to 1000", "%d vertices", k)
	}
	q.Lists, err = decodeLists(n, req.GetVertices(), []*pb.ListKind{{Type: req.GetType(), Direction: req.GetDirection()}})
	return q, kind, paths{"lists[0].type", "type", "lists[0].direction", "direction"}.rename(err)
}
