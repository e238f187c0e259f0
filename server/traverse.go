package server

import (
	"google.golang.org/grpc"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// reachedVertices bounds the vertices of one message of a traversal: with the longest
// names it stays well under 4 MiB.
const reachedVertices = 2000

func (s *graphService) Traverse(req *pb.TraverseRequest, stream grpc.ServerStreamingServer[pb.TraverseResponse]) error {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return err
	}
	n := names{g.Schema()}
	q, err := n.traversal(req)
	if err != nil {
		return err
	}
	end, err := g.Traverse(stream.Context(), opts, q, func(rs []graph.Reached) error {
		for len(rs) > 0 {
			k := min(len(rs), reachedVertices)
			if err := stream.Send(&pb.TraverseResponse{Vertices: n.reached(rs[:k])}); err != nil {
				return err
			}
			rs = rs[k:]
		}
		return nil
	})
	if err != nil {
		return readPaths.rename(err)
	}
	return stream.Send(&pb.TraverseResponse{End: encodeTraverseEnd(end)})
}

func (n names) traversal(req *pb.TraverseRequest) (graph.TraverseQuery, error) {
	q := graph.TraverseQuery{Depth: int(req.GetDepth()), Limit: int(req.GetLimit()), MaxEdges: int(req.GetMaxEdges())}
	var err error
	if q.Start, err = n.vertex("start", req.GetStart()); err != nil {
		return q, err
	}
	if k := len(req.GetSteps()); k > graph.MaxDepth {
		return q, invalid("steps", "1 to 16", "%d steps", k)
	}
	for i, st := range req.GetSteps() {
		step := graph.Step{Window: decodeWindow(st.GetWindow()), Limit: int(st.GetLimit())}
		def, err := n.edgeType(index("steps", i)+".type", st.GetType())
		if err != nil {
			return q, err
		}
		step.Type = def.ID
		if step.Dir, err = decodeDirection(index("steps", i)+".direction", st.GetDirection()); err != nil {
			return q, err
		}
		if step.Order, err = decodeOrder(st.GetOrder()); err != nil {
			return q, below(index("steps", i), err)
		}
		q.Steps = append(q.Steps, step)
	}
	return q, nil
}

func (n names) reached(rs []graph.Reached) []*pb.ReachedVertex {
	out := make([]*pb.ReachedVertex, len(rs))
	messages, ends := make([]pb.ReachedVertex, len(rs)), make([]pb.Vertex, 2*len(rs))
	for i, r := range rs {
		x, from := &ends[2*i], &ends[2*i+1]
		x.Type, x.Id = n.VertexTypeName(r.Vertex.Type), r.Vertex.ID
		from.Type, from.Id = n.VertexTypeName(r.From.Type), r.From.ID
		m := &messages[i]
		m.Vertex, m.Depth, m.From = x, uint32(r.Depth), from
		out[i] = m
	}
	return out
}

func encodeTraverseEnd(e graph.TraverseEnd) *pb.TraverseEnd {
	out := &pb.TraverseEnd{Limit: int32(e.Query.Limit), MaxEdges: int32(e.Query.MaxEdges), EdgesRead: uint64(e.Edges), Token: e.Token}
	for _, st := range e.Query.Steps {
		out.StepLimits = append(out.StepLimits, int32(st.Limit))
	}
	by := map[graph.CutBy]pb.TraverseCut_Limit{
		graph.CutByStep: pb.TraverseCut_STEP_LIMIT, graph.CutByLimit: pb.TraverseCut_VERTICES, graph.CutByMaxEdges: pb.TraverseCut_MAX_EDGES,
	}
	for _, c := range e.Cuts {
		out.Cuts = append(out.Cuts, &pb.TraverseCut{Limit: by[c.By], Depth: uint32(c.Depth), Vertices: uint32(c.Vertices)})
	}
	return out
}
