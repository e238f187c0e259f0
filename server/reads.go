package server

import (
	"context"
	"fmt"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// Where the fields of the domain's arguments lie in a request.
var (
	readPaths = paths{"token", "consistency.token"}
	// onePaths is for a request for one edge.
	onePaths = paths{"token", "consistency.token", "src_ids[0]", "src.id", "dst_ids[0]", "dst.id"}
)

func (s *graphService) HasEdge(ctx context.Context, req *pb.HasEdgeRequest) (*pb.HasEdgeResponse, error) {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return nil, err
	}
	def, src, dst, err := names{g.Schema()}.ends("", req.GetType(), req.GetSrc(), req.GetDst())
	if err != nil {
		return nil, err
	}
	var exists [1]bool
	token, err := g.HasEdges(ctx, opts, def.ID, []uint64{src}, []uint64{dst}, exists[:])
	if err != nil {
		return nil, onePaths.rename(err)
	}
	return &pb.HasEdgeResponse{Exists: exists[0], Token: token}, nil
}

func (s *graphService) HasEdges(ctx context.Context, req *pb.HasEdgesRequest) (*pb.HasEdgesResponse, error) {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return nil, err
	}
	def, err := names{g.Schema()}.edgeType("type", req.GetType())
	if err != nil {
		return nil, err
	}
	srcs, dsts := req.GetSrcIds(), req.GetDstIds()
	if len(dsts) == 0 || len(dsts) > graph.MaxBatch {
		return nil, batchSize("dst_ids", len(dsts))
	}
	if len(srcs) != 1 && len(srcs) != len(dsts) {
		return nil, invalid("src_ids", "1, or as many as dst_ids", "%d ids", len(srcs))
	}
	exists := make([]bool, len(dsts))
	token, err := g.HasEdges(ctx, opts, def.ID, srcs, dsts, exists)
	if err != nil {
		return nil, readPaths.rename(err)
	}
	return &pb.HasEdgesResponse{Exists: exists, Token: token}, nil
}

func (s *graphService) GetEdge(ctx context.Context, req *pb.GetEdgeRequest) (*pb.GetEdgeResponse, error) {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return nil, err
	}
	def, src, dst, err := names{g.Schema()}.ends("", req.GetType(), req.GetSrc(), req.GetDst())
	if err != nil {
		return nil, err
	}
	e, token, err := g.GetEdge(ctx, opts, def.ID, src, dst)
	if err != nil {
		return nil, onePaths.rename(err)
	}
	props, err := graph.DecodeProps(e.Props)
	if err != nil {
		return nil, err
	}
	return &pb.GetEdgeResponse{
		Edge: &pb.Edge{
			Src: req.GetSrc(), Type: req.GetType(), Dst: req.GetDst(), Time: e.Time, Properties: props,
		},
		Token: token,
	}, nil
}

func (s *graphService) CountEdges(ctx context.Context, req *pb.CountEdgesRequest) (*pb.CountEdgesResponse, error) {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return nil, err
	}
	list, _, err := decodeList(names{g.Schema()}, req)
	if err != nil {
		return nil, err
	}
	var counts [1]uint64
	token, err := g.CountEdges(ctx, opts, []graph.ListKey{list}, decodeWindow(req.GetWindow()), counts[:])
	if err != nil {
		return nil, readPaths.rename(err)
	}
	return &pb.CountEdgesResponse{Count: counts[0], Token: token}, nil
}

// listRequest is a request that names one list.
type listRequest interface {
	GetVertex() *pb.Vertex
	GetType() string
	GetDirection() pb.Direction
}

func decodeList(n names, req listRequest) (graph.ListKey, *graph.EdgeTypeDef, error) {
	def, err := n.edgeType("type", req.GetType())
	if err != nil {
		return graph.ListKey{}, nil, err
	}
	dir, err := decodeDirection("direction", req.GetDirection())
	if err != nil {
		return graph.ListKey{}, nil, err
	}
	v, err := n.vertex("vertex", req.GetVertex())
	if err != nil {
		return graph.ListKey{}, nil, err
	}
	list, err := n.list("vertex", v, def, dir)
	return list, def, err
}

func (s *graphService) CountEdgesBatch(ctx context.Context, req *pb.CountEdgesBatchRequest) (*pb.CountEdgesBatchResponse, error) {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return nil, err
	}
	lists, err := decodeLists(names{g.Schema()}, req.GetVertices(), req.GetLists())
	if err != nil {
		return nil, err
	}
	counts := make([]uint64, len(lists))
	token, err := g.CountEdges(ctx, opts, lists, decodeWindow(req.GetWindow()), counts)
	if err != nil {
		return nil, readPaths.rename(err)
	}
	return &pb.CountEdgesBatchResponse{Counts: counts, Token: token}, nil
}

// decodeLists is vertices x kinds, by vertex.
func decodeLists(n names, vertices []*pb.Vertex, kinds []*pb.ListKind) ([]graph.ListKey, error) {
	if len(kinds) == 0 || len(kinds) > graph.MaxBatch {
		return nil, batchSize("lists", len(kinds))
	}
	if len(vertices) == 0 || len(vertices)*len(kinds) > graph.MaxBatch {
		return nil, invalid("vertices", fmt.Sprintf("1 to %d vertices x lists", graph.MaxBatch),
			"%d vertices x %d lists", len(vertices), len(kinds))
	}
	defs := make([]*graph.EdgeTypeDef, len(kinds))
	dirs := make([]graph.Direction, len(kinds))
	for j, k := range kinds {
		var err error
		if defs[j], err = n.edgeType(index("lists", j)+".type", k.GetType()); err != nil {
			return nil, err
		}
		if dirs[j], err = decodeDirection(index("lists", j)+".direction", k.GetDirection()); err != nil {
			return nil, err
		}
	}
	lists := make([]graph.ListKey, 0, len(vertices)*len(kinds))
	for i, pv := range vertices {
		v, err := n.vertex("vertex", pv)
		if err == nil {
			err = checkID("vertex.id", v.ID) // the domain does not say which vertex it was
		}
		if err != nil {
			return nil, paths{"vertex", index("vertices", i)}.rename(err)
		}
		for j := range kinds {
			list, err := n.list("vertex", v, defs[j], dirs[j])
			if err != nil {
				return nil, paths{"vertex", index("vertices", i)}.rename(err)
			}
			lists = append(lists, list)
		}
	}
	return lists, nil
}

func (s *graphService) ListEdges(ctx context.Context, req *pb.ListEdgesRequest) (*pb.ListEdgesResponse, error) {
	g := s.domain()
	opts, err := decodeConsistency(req.GetConsistency())
	if err != nil {
		return nil, err
	}
	n := names{g.Schema()}
	list, def, err := decodeList(n, req)
	if err != nil {
		return nil, err
	}
	order, err := decodeOrder(req.GetOrder())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize(), n.edgeOverhead(def))
	if err != nil {
		return nil, err
	}
	page, err := g.ListEdges(ctx, opts, graph.ListQuery{
		List: list, Order: order, PageSize: size, PageToken: req.GetPageToken(),
		Skip: req.GetSkip(), Window: decodeWindow(req.GetWindow()),
	})
	if err != nil {
		return nil, readPaths.rename(err)
	}
	edges, err := n.encodePage(req.GetVertex(), def, list.Dir, page.Edges)
	if err != nil {
		return nil, err
	}
	return &pb.ListEdgesResponse{Edges: edges, NextPageToken: page.Next, Token: page.Token}, nil
}

// A page must pass a client with gRPC's default limit of 4 MiB. Properties take
// at most three times their stored size on the wire (each pair gets an entry
// and two fields around it), so 3 MiB are left to them.
const maxPageOverhead = 4<<20 - 3*graph.MaxPageBytes - 64<<10

// pageSize is the number of edges to ask for: fewer than the client wants where
// long names would make the page too large.
func pageSize(asked int32, overhead int) (int, error) {
	if asked == 0 {
		asked = graph.DefaultPageSize
	}
	if asked < 0 || asked > graph.MaxPageSize {
		return 0, invalid("page_size", fmt.Sprintf("0 to %d", graph.MaxPageSize), "%d", asked)
	}
	return min(int(asked), maxPageOverhead/overhead), nil
}

// edgeOverhead is the most bytes that an edge without properties takes on the wire.
func (n names) edgeOverhead(def *graph.EdgeTypeDef) int {
	// An edge has its own tag and length, those of five strings and messages (two
	// bytes each: all are under 128), three numbers of at most 1+10.
	return 4 + 5*2 + 3*11 + len(def.Name) + len(n.VertexTypeName(def.From)) + len(n.VertexTypeName(def.To))
}

// encodePage makes the messages of a page of owner's list. They share what all
// of them have.
func (n names) encodePage(owner *pb.Vertex, def *graph.EdgeTypeDef, dir graph.Direction, page []edgelist.Edge) ([]*pb.Edge, error) {
	peerType := n.VertexTypeName(def.To)
	if dir == graph.In {
		peerType = n.VertexTypeName(def.From)
	}
	edges := make([]*pb.Edge, len(page))
	messages := make([]pb.Edge, len(page))
	peers := make([]pb.Vertex, len(page))
	for i, e := range page {
		props, err := graph.DecodeProps(e.Props)
		if err != nil {
			return nil, err
		}
		peers[i].Type, peers[i].Id = peerType, e.Peer
		m := &messages[i]
		m.Src, m.Dst = owner, &peers[i]
		if dir == graph.In {
			m.Src, m.Dst = m.Dst, m.Src
		}
		m.Type, m.Time, m.Properties = def.Name, e.Time, props
		edges[i] = m
	}
	return edges, nil
}
