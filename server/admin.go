package server

import (
	"cmp"
	"context"
	"strconv"

	"google.golang.org/grpc"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// adminService is liana.v1.Admin.
type adminService struct {
	pb.UnimplementedAdminServer
	*calls
	// scans bounds the checks and exports that run at once: each reads all data.
	scans chan struct{}
}

// maxScans lets an export run beside a check, and no more.
const maxScans = 2

func (s *adminService) GetSchema(context.Context, *pb.GetSchemaRequest) (*pb.GetSchemaResponse, error) {
	schema := s.domain().Schema()
	return &pb.GetSchemaResponse{Yaml: schema.YAML(), Version: schema.Version}, nil
}

func (s *adminService) PutSchema(ctx context.Context, req *pb.PutSchemaRequest) (*pb.PutSchemaResponse, error) {
	next, err := graph.ParseSchema([]byte(req.GetYaml()))
	if err != nil {
		return nil, err
	}
	c := s.attached.Load().Cluster
	if c == nil {
		return nil, ErrNoCluster
	}
	now, changed, err := c.PutSchema(ctx, next)
	if err != nil {
		return nil, err
	}
	return &pb.PutSchemaResponse{Version: now.Version, Changed: changed}, nil
}

func (s *adminService) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	node := s.attached.Load().Node
	resp := &pb.GetStatusResponse{Version: node.Version, ClusterId: node.ClusterID, NodeId: node.NodeID}
	schema := s.domain().Schema()
	for _, st := range s.domain().Status() {
		resp.Shards = append(resp.Shards, &pb.ShardStatus{
			Id: st.ID, FirstSlot: uint32(st.FirstSlot), LastSlot: uint32(st.LastSlot), Leader: st.Leader,
			Applied: st.Applied, Position: st.Position, OutboxPending: st.OutboxPending, Fault: firstLine(st.Fault),
			Backfills: encodeBackfills(schema, st.Backfills),
		})
	}
	return resp, nil
}

func encodeBackfills(s *graph.Schema, all []graph.Backfill) (out []*pb.Backfill) {
	for _, b := range all {
		name := strconv.Itoa(int(b.Metric))
		if def, ok := s.MetricByID(b.Vertex, b.Metric); ok {
			name = def.Name
		}
		out = append(out, &pb.Backfill{VertexType: s.VertexTypeName(b.Vertex), Metric: name, Done: b.Done})
	}
	return out
}

func (s *adminService) beginScan() (end func(), err error) {
	select {
	case s.scans <- struct{}{}:
		return func() { <-s.scans }, nil
	default:
		return nil, errTooManyScans
	}
}

// maxFindings bounds the findings that a Check tells.
const maxFindings = 1000

func (s *adminService) Check(req *pb.CheckRequest, stream grpc.ServerStreamingServer[pb.CheckResponse]) error {
	check := s.domain().Check
	if req.GetCluster() {
		c := s.attached.Load().Cluster
		if c == nil {
			return ErrNoCluster
		}
		check = c.Check
	}
	end, err := s.beginScan()
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	report, err := check(ctx, func(p graph.CheckProgress) {
		if err := stream.Send(&pb.CheckResponse{Lists: p.Lists, Edges: p.Edges, ListsTotal: p.ListsTotal}); err != nil {
			cancel(err)
		}
	})
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	findings := report.Findings[:min(len(report.Findings), maxFindings)]
	for i := range findings {
		findings[i] = cut(findings[i], 1024)
	}
	return stream.Send(&pb.CheckResponse{
		Lists: report.Lists, Edges: report.Edges, ListsTotal: report.Lists,
		Counters: report.Counters, Skipped: report.Skipped,
		Findings: findings, Faults: report.Faults, Done: true,
	})
}

// exportEdges bounds the edges of one message of an export: with the longest
// names and the largest properties it stays under 4 MiB.
const exportEdges = 1000

func (s *adminService) ExportEdges(req *pb.ExportEdgesRequest, stream grpc.ServerStreamingServer[pb.ExportEdgesResponse]) error {
	g := s.domain()
	n := names{g.Schema()}
	var t graph.EdgeType
	if req.GetType() != "" {
		def, err := n.edgeType("type", req.GetType())
		if err != nil {
			return err
		}
		t = def.ID
	}
	end, err := s.beginScan()
	if err != nil {
		return err
	}
	defer end()
	return g.Export(stream.Context(), t, func(edges []graph.ExportedEdge) error {
		for len(edges) > 0 {
			k := min(len(edges), exportEdges)
			out, err := n.encodeExport(edges[:k])
			if err != nil {
				return err
			}
			if err := stream.Send(&pb.ExportEdgesResponse{Edges: out}); err != nil {
				return err
			}
			edges = edges[k:]
		}
		return nil
	})
}

func (n names) encodeExport(edges []graph.ExportedEdge) ([]*pb.Edge, error) {
	out := make([]*pb.Edge, len(edges))
	for i, e := range edges {
		def, ok := n.EdgeTypeByID(e.Type)
		if !ok {
			return nil, kv.Corruptionf("edge type %d is not in the schema", e.Type)
		}
		props, err := graph.DecodeProps(e.Props)
		if err != nil {
			return nil, err
		}
		out[i] = &pb.Edge{
			Src: &pb.Vertex{Type: n.VertexTypeName(def.From), Id: e.Src}, Type: def.Name,
			Dst: &pb.Vertex{Type: n.VertexTypeName(def.To), Id: e.Dst}, Time: e.Time, Properties: props,
		}
	}
	return out, nil
}
