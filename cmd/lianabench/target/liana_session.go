package target

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lianadb/liana/cmd/lianabench/workload"
	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// The schema's names: the default schema has them.
const (
	userType = "user"
	noteType = "note"
	likeType = "like"
)

type lianaSession struct {
	graph       lianav1.GraphClient
	api         string
	wait        lianav1.Wait
	consistency *lianav1.Consistency
	mutations   []*lianav1.Mutation // reused
	source      []uint64            // reused: the one source of HasEdges

	stream   lianav1.Graph_StreamMutationsClient // opened by the first batch
	cancel   context.CancelFunc
	sequence uint64
}

func newLianaSession(graph lianav1.GraphClient, o LianaOptions) *lianaSession {
	s := &lianaSession{graph: graph, api: o.API, wait: lianav1.Wait_BOTH, source: make([]uint64, 1)}
	if o.Forward {
		s.wait = lianav1.Wait_FORWARD
	}
	if o.Linearizable {
		s.consistency = &lianav1.Consistency{Level: lianav1.ReadLevel_LINEARIZABLE}
	}
	return s
}

// Close ends the stream, where one is open, and waits for the server's end of it.
func (s *lianaSession) Close() error {
	if s.stream == nil {
		return nil
	}
	defer s.cancel()
	if err := s.stream.CloseSend(); err != nil {
		return err
	}
	if _, err := s.stream.Recv(); err == nil {
		return errors.New("liana: an answer more than there were batches")
	}
	return nil
}

func userVertex(id uint64) *lianav1.Vertex { return &lianav1.Vertex{Type: userType, Id: id} }
func noteVertex(id uint64) *lianav1.Vertex { return &lianav1.Vertex{Type: noteType, Id: id} }

func protoEdge(e workload.Edge) *lianav1.Edge {
	return &lianav1.Edge{Src: userVertex(e.Src), Type: likeType, Dst: noteVertex(e.Dst), Time: e.Time}
}

func (s *lianaSession) AddEdge(ctx context.Context, e workload.Edge) (bool, error) {
	r, err := s.graph.AddEdge(ctx, &lianav1.AddEdgeRequest{Edge: protoEdge(e), Wait: s.wait})
	return r.GetChanged(), err
}

func (s *lianaSession) DeleteEdge(ctx context.Context, e workload.Edge) (bool, error) {
	r, err := s.graph.DeleteEdge(ctx, &lianav1.DeleteEdgeRequest{Src: userVertex(e.Src), Type: likeType, Dst: noteVertex(e.Dst), Wait: s.wait})
	return r.GetChanged(), err
}

func (s *lianaSession) UpdateEdge(ctx context.Context, e workload.Edge) (bool, error) {
	r, err := s.graph.UpdateEdge(ctx, &lianav1.UpdateEdgeRequest{Edge: protoEdge(e), Wait: s.wait})
	if status.Code(err) == codes.NotFound {
		return false, nil
	}
	return r.GetChanged(), err
}

func (s *lianaSession) AddEdges(ctx context.Context, edges []workload.Edge) (int, error) {
	for len(s.mutations) < len(edges) {
		s.mutations = append(s.mutations, &lianav1.Mutation{Op: lianav1.MutationOp_ADD, Type: likeType})
	}
	batch := s.mutations[:len(edges)]
	for i, e := range edges {
		batch[i].SrcId, batch[i].DstId, batch[i].Time = e.Src, e.Dst, e.Time
	}
	if s.api == APIStream {
		return s.sendBatch(ctx, batch)
	}
	r, err := s.graph.MutateEdges(ctx, &lianav1.MutateEdgesRequest{Mutations: batch, Wait: s.wait})
	if err != nil {
		return 0, err
	}
	return countChanged(r.GetOutcomes(), r.GetErrors(), len(batch))
}

// sendBatch sends a batch on the caller's stream and waits for its answer. The
// batches under way are those of the other callers.
func (s *lianaSession) sendBatch(ctx context.Context, batch []*lianav1.Mutation) (int, error) {
	if s.stream == nil {
		// The stream lives longer than the call that opens it.
		streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stream, err := s.graph.StreamMutations(streamCtx)
		if err != nil {
			cancel()
			return 0, err
		}
		s.stream, s.cancel = stream, cancel
	}
	// A call that is given up takes the stream with it.
	defer context.AfterFunc(ctx, s.cancel)()
	s.sequence++
	if err := s.stream.Send(&lianav1.StreamMutationsRequest{Sequence: s.sequence, Mutations: batch, Wait: s.wait}); err != nil {
		return 0, err
	}
	r, err := s.stream.Recv()
	if err != nil {
		return 0, err
	}
	if r.GetSequence() != s.sequence {
		return 0, fmt.Errorf("liana: answer to batch %d, sent was %d", r.GetSequence(), s.sequence)
	}
	return countChanged(r.GetOutcomes(), r.GetErrors(), len(batch))
}

// countChanged counts the new edges of a batch. An edge that is not durable in
// both directions, as asked, is an error.
func countChanged(outcomes []lianav1.Outcome, errs []*lianav1.MutationError, want int) (int, error) {
	if len(outcomes) != want {
		return 0, fmt.Errorf("liana: %d outcomes for %d mutations", len(outcomes), want)
	}
	changed, bad := 0, 0
	for _, o := range outcomes {
		switch o {
		case lianav1.Outcome_CHANGED:
			changed++
		case lianav1.Outcome_UNCHANGED:
		default:
			bad++
		}
	}
	if bad == 0 {
		return changed, nil
	}
	reason := "no reason given"
	if len(errs) > 0 {
		reason = errs[0].GetReason() + ": " + errs[0].GetMessage()
	}
	return changed, fmt.Errorf("liana: %d of %d mutations failed: %s", bad, want, reason)
}

func (s *lianaSession) HasEdges(ctx context.Context, src uint64, dsts []uint64, exists []bool) error {
	s.source[0] = src
	r, err := s.graph.HasEdges(ctx, &lianav1.HasEdgesRequest{Type: likeType, SrcIds: s.source, DstIds: dsts, Consistency: s.consistency})
	if err != nil {
		return err
	}
	if len(r.GetExists()) != len(dsts) {
		return fmt.Errorf("liana: %d answers to %d questions", len(r.GetExists()), len(dsts))
	}
	copy(exists, r.GetExists())
	return nil
}

func (s *lianaSession) CountEdges(ctx context.Context, in bool, ids []uint64, counts []uint64) error {
	vertices := make([]*lianav1.Vertex, len(ids))
	for i, id := range ids {
		vertices[i] = vertexOf(List{Vertex: id, In: in})
	}
	r, err := s.graph.CountEdgesBatch(ctx, &lianav1.CountEdgesBatchRequest{
		Vertices: vertices, Lists: []*lianav1.ListKind{{Type: likeType, Direction: direction(in)}}, Consistency: s.consistency,
	})
	if err != nil {
		return err
	}
	if len(r.GetCounts()) != len(ids) {
		return fmt.Errorf("liana: %d counts of %d vertices", len(r.GetCounts()), len(ids))
	}
	copy(counts, r.GetCounts())
	return nil
}

func vertexOf(l List) *lianav1.Vertex {
	if l.In {
		return noteVertex(l.Vertex)
	}
	return userVertex(l.Vertex)
}

func direction(in bool) lianav1.Direction {
	if in {
		return lianav1.Direction_IN
	}
	return lianav1.Direction_OUT
}

func (s *lianaSession) ListNewest(ctx context.Context, l List, skip, limit int, page []Peer) ([]Peer, error) {
	r, err := s.graph.ListEdges(ctx, &lianav1.ListEdgesRequest{
		Vertex: vertexOf(l), Type: likeType, Direction: direction(l.In), Order: lianav1.Order_NEWEST_FIRST,
		PageSize: int32(limit), Skip: uint64(skip), Consistency: s.consistency,
	})
	if err != nil {
		return page, err
	}
	for _, e := range r.GetEdges() {
		far := e.GetDst()
		if l.In {
			far = e.GetSrc()
		}
		page = append(page, Peer{ID: far.GetId(), Time: e.GetTime()})
	}
	return page, nil
}

func (s *lianaSession) CountWindow(ctx context.Context, l List, since, until int64) (uint64, error) {
	r, err := s.graph.CountEdges(ctx, &lianav1.CountEdgesRequest{
		Vertex: vertexOf(l), Type: likeType, Direction: direction(l.In),
		Window: &lianav1.Window{Since: &since, Until: &until}, Consistency: s.consistency,
	})
	return r.GetCount(), err
}
