package server

import (
	"context"
	"maps"
	"slices"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

func (s *graphService) DeleteVertex(ctx context.Context, req *pb.DeleteVertexRequest) (*pb.VertexJob, error) {
	return s.vertexJob(ctx, graph.VertexDelete, req.GetVertex())
}

func (s *graphService) HideVertex(ctx context.Context, req *pb.HideVertexRequest) (*pb.VertexJob, error) {
	return s.vertexJob(ctx, graph.VertexHide, req.GetVertex())
}

func (s *graphService) RestoreVertex(ctx context.Context, req *pb.RestoreVertexRequest) (*pb.VertexJob, error) {
	return s.vertexJob(ctx, graph.VertexRestore, req.GetVertex())
}

func (s *graphService) GetVertexJob(ctx context.Context, req *pb.GetVertexJobRequest) (*pb.VertexJob, error) {
	return s.vertexJob(ctx, graph.VertexLook, req.GetVertex())
}

func (s *graphService) vertexJob(ctx context.Context, op graph.VertexOp, v *pb.Vertex) (*pb.VertexJob, error) {
	g := s.domain()
	n := names{g.Schema()}
	x, err := n.vertex("vertex", v)
	if err != nil {
		return nil, err
	}
	job, err := g.VertexJob(ctx, op, x)
	if err != nil {
		return nil, err
	}
	return n.vertexJob(job), nil
}

func (s *graphService) ListJobs(ctx context.Context, _ *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	g := s.domain()
	all, err := g.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	n := names{g.Schema()}
	resp := &pb.ListJobsResponse{}
	left := map[graph.Backfill]float64{} // by name, the share of all slots that is not counted
	for _, shard := range all {
		for _, j := range shard.Vertices {
			resp.Vertices = append(resp.Vertices, n.vertexJob(j))
		}
		for _, b := range shard.Backfills {
			left[graph.Backfill{Vertex: b.Vertex, Metric: b.Metric}] += (1 - b.Done) * shard.Share
		}
	}
	order := slices.SortedFunc(maps.Keys(left), func(a, b graph.Backfill) int {
		return int(a.Vertex)<<16 + int(a.Metric) - int(b.Vertex)<<16 - int(b.Metric)
	})
	for _, b := range order {
		b.Done = 1 - left[graph.Backfill{Vertex: b.Vertex, Metric: b.Metric}]
		resp.Backfills = append(resp.Backfills, encodeBackfills(n.Schema, []graph.Backfill{b})...)
	}
	return resp, nil
}

func (n names) vertexJob(j graph.VertexJob) *pb.VertexJob {
	return &pb.VertexJob{
		Vertex: &pb.Vertex{Type: n.VertexTypeName(j.Vertex.Type), Id: j.Vertex.ID},
		State:  encodeVertexState(j.State), Began: j.Began, Total: j.Total, Done: j.Done,
	}
}

func encodeVertexState(s graph.VertexState) pb.VertexState {
	switch s {
	case graph.VertexPlain:
		return pb.VertexState_VERTEX_PLAIN
	case graph.VertexDeleting:
		return pb.VertexState_VERTEX_DELETING
	case graph.VertexHiding:
		return pb.VertexState_VERTEX_HIDING
	case graph.VertexHidden:
		return pb.VertexState_VERTEX_HIDDEN
	case graph.VertexRestoring:
		return pb.VertexState_VERTEX_RESTORING
	}
	return pb.VertexState_VERTEX_STATE_UNSPECIFIED
}
