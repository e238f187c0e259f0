package server

import (
	"context"
	"strconv"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// graphService is liana.v1.Graph.
type graphService struct {
	pb.UnimplementedGraphServer
	*calls
}

// Where the fields of the domain's only mutation lie in a request.
var (
	edgePaths = paths{
		"mutations[0].src_id", "edge.src.id", "mutations[0].dst_id", "edge.dst.id", "mutations[0]", "edge",
		"properties", "edge.properties",
	}
	endPaths = paths{
		"mutations[0].src_id", "src.id", "mutations[0].dst_id", "dst.id", "mutations[0].type", "type",
	}
)

func (s *graphService) AddEdge(ctx context.Context, req *pb.AddEdgeRequest) (*pb.AddEdgeResponse, error) {
	changed, token, err := s.writeEdge(ctx, graph.OpAdd, req.GetEdge(), req.GetWait())
	if err != nil {
		return nil, err
	}
	return &pb.AddEdgeResponse{Changed: changed, Token: token}, nil
}

func (s *graphService) UpdateEdge(ctx context.Context, req *pb.UpdateEdgeRequest) (*pb.UpdateEdgeResponse, error) {
	changed, token, err := s.writeEdge(ctx, graph.OpUpdate, req.GetEdge(), req.GetWait())
	if err != nil {
		return nil, err
	}
	return &pb.UpdateEdgeResponse{Changed: changed, Token: token}, nil
}

func (s *graphService) writeEdge(ctx context.Context, op graph.Op, e *pb.Edge, wait pb.Wait) (bool, string, error) {
	g := s.domain()
	def, src, dst, err := names{g.Schema()}.ends("edge.", e.GetType(), e.GetSrc(), e.GetDst())
	if err != nil {
		return false, "", err
	}
	props, err := graph.EncodeProps(e.GetProperties())
	if err != nil {
		return false, "", edgePaths.rename(err)
	}
	m := graph.Mutation{Op: op, Type: def.ID, Src: src, Dst: dst, Time: e.GetTime(), Props: props}
	return s.mutateOne(ctx, g, m, wait, edgePaths)
}

func (s *graphService) DeleteEdge(ctx context.Context, req *pb.DeleteEdgeRequest) (*pb.DeleteEdgeResponse, error) {
	g := s.domain()
	def, src, dst, err := names{g.Schema()}.ends("", req.GetType(), req.GetSrc(), req.GetDst())
	if err != nil {
		return nil, err
	}
	m := graph.Mutation{Op: graph.OpDelete, Type: def.ID, Src: src, Dst: dst}
	changed, token, err := s.mutateOne(ctx, g, m, req.GetWait(), endPaths)
	if err != nil {
		return nil, err
	}
	return &pb.DeleteEdgeResponse{Changed: changed, Token: token}, nil
}

// mutateOne applies one mutation. An edge that is durable without its inverse
// is an error that carries what the answer would have said.
func (s *graphService) mutateOne(ctx context.Context, g Writer, m graph.Mutation, wait pb.Wait, p paths) (bool, string, error) {
	w, err := decodeWait(wait)
	if err != nil {
		return false, "", err
	}
	results, token, err := g.Mutate(ctx, []graph.Mutation{m}, w)
	if err != nil {
		return false, "", p.rename(err)
	}
	r := results[0]
	s.metrics.mutated([]pb.Outcome{encodeOutcome(r.Outcome)})
	switch {
	case r.Outcome == graph.Missing:
		return false, "", graph.ErrNoEdge
	case r.Outcome == graph.InversePending:
		return false, "", annotate(pending(r.Err), "changed", strconv.FormatBool(r.Changed), "token", token)
	case r.Err != nil:
		return false, "", p.rename(r.Err)
	}
	return r.Changed, token, nil
}

// pending is the error of an outcome that always has this reason.
func pending(err error) error {
	if err == nil {
		return graph.ErrInverseLate
	}
	return err
}

func (s *graphService) MutateEdges(ctx context.Context, req *pb.MutateEdgesRequest) (*pb.MutateEdgesResponse, error) {
	b, err := s.mutateBatch(ctx, req.GetMutations(), req.GetWait())
	if err != nil {
		return nil, err
	}
	return &pb.MutateEdgesResponse{Outcomes: b.outcomes, Errors: b.errors, Token: b.token}, nil
}

// answer is what became of a batch.
type answer struct {
	outcomes []pb.Outcome
	errors   []*pb.MutationError
	token    string
}

// mutateBatch applies a batch. An error refuses it as a whole.
func (s *graphService) mutateBatch(ctx context.Context, batch []*pb.Mutation, wait pb.Wait) (answer, error) {
	g := s.domain()
	w, err := decodeWait(wait)
	if err != nil {
		return answer{}, err
	}
	ms, err := decodeMutations(names{g.Schema()}, batch)
	if err != nil {
		return answer{}, err
	}
	results, token, err := g.Mutate(ctx, ms, w)
	if err != nil {
		return answer{}, err
	}
	a := answer{outcomes: make([]pb.Outcome, len(results)), token: token}
	for i, r := range results {
		a.outcomes[i] = encodeOutcome(r.Outcome)
		if r.Err == nil {
			continue
		}
		v := s.table.judge(r.Err)
		s.report(ctx, v, r.Err)
		a.errors = append(a.errors, &pb.MutationError{
			Index: uint32(i), Reason: v.reason, Message: v.message, Retryable: v.retry > 0,
		})
	}
	s.metrics.mutated(a.outcomes)
	return a, nil
}

func decodeMutations(n names, batch []*pb.Mutation) ([]graph.Mutation, error) {
	if len(batch) == 0 || len(batch) > graph.MaxBatch {
		return nil, batchSize("mutations", len(batch))
	}
	ms := make([]graph.Mutation, len(batch))
	for i, m := range batch {
		op, err := decodeOp("op", m.GetOp())
		if err != nil {
			return nil, below(index("mutations", i), err)
		}
		def, err := n.edgeType("type", m.GetType())
		if err != nil {
			return nil, below(index("mutations", i), err)
		}
		props, err := graph.EncodeProps(m.GetProperties())
		if err != nil {
			return nil, below(index("mutations", i), err)
		}
		ms[i] = graph.Mutation{Op: op, Type: def.ID, Src: m.GetSrcId(), Dst: m.GetDstId(), Time: m.GetTime(), Props: props}
	}
	return ms, nil
}
