package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// fakeServer is a small honest model of the API over maps, with switches for faults.
// Only user -like-> note and user -follow-> user exist.
type fakeServer struct {
	lianav1.UnimplementedGraphServer
	lianav1.UnimplementedCountersServer
	lianav1.UnimplementedAdminServer
	lianav1.UnimplementedClusterServer
	lianav1.UnimplementedCacheServer

	mu       sync.Mutex
	edges    map[edgeKey]*lianav1.Edge
	counters map[string]*lianav1.Counter
	writes   uint64 // the token
	received int    // mutations that came in
	pageCap  int    // edges in a page at most, as if cut by bytes
	cluster  string
	check    []*lianav1.CheckResponse
	// wholeCluster is what the last check asked for.
	wholeCluster bool
	last         map[string]any        // the newest request of some calls
	changes      lianav1.ChangesServer // nil: not served

	// Refusals of a batch do not name the row.
	anonymous bool
	// Streams answer a refused batch by failed outcomes instead of ending.
	softRefusal bool
	// Called for each streamed batch; an error ends the stream before it is applied.
	onBatch func(n int) error
	// Called for each mutation; a non-zero outcome is answered instead of applying it.
	onMutation func(*lianav1.Mutation) (lianav1.Outcome, *lianav1.MutationError)
	batches    int
}

type edgeKey struct {
	kind     string
	src, dst uint64
}

var fakeEnds = map[string][2]string{"like": {"user", "note"}, "follow": {"user", "user"}}

func startFake(t *testing.T) (*fakeServer, string) {
	t.Helper()
	f := &fakeServer{edges: map[edgeKey]*lianav1.Edge{}, counters: map[string]*lianav1.Counter{},
		pageCap: maxPageSize, cluster: "c1", last: map[string]any{}}
	return f, f.serve(t)
}

func (f *fakeServer) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	lianav1.RegisterGraphServer(server, f)
	lianav1.RegisterCountersServer(server, f)
	lianav1.RegisterAdminServer(server, f)
	if f.changes != nil {
		lianav1.RegisterChangesServer(server, f.changes)
	}
	lianav1.RegisterClusterServer(server, f)
	lianav1.RegisterCacheServer(server, f)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return listener.Addr().String()
}

// refuse is an INVALID_ARGUMENT in the form of the real server.
func refuse(reason, field, limit, message string) error {
	st, err := status.New(codes.InvalidArgument, message).WithDetails(&errdetails.ErrorInfo{
		Reason: reason, Domain: errorDomain, Metadata: map[string]string{"field": field, "limit": limit}})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// counts returns how many edges there are and how many mutations came in.
func (f *fakeServer) counts() (edges, received int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.edges), f.received
}

// size returns how many edges there are.
func (f *fakeServer) size() int {
	edges, _ := f.counts()
	return edges
}

// fault sets what happens to each batch from now on.
func (f *fakeServer) fault(onBatch func(n int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onBatch, f.batches = onBatch, 0
}

// calm takes the fault away and counts what comes in from now on.
func (f *fakeServer) calm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onBatch, f.received = nil, 0
}

func (f *fakeServer) token() string { return fmt.Sprintf("t%d", f.writes) }

func checkEnds(src *lianav1.Vertex, kind string, dst *lianav1.Vertex) error {
	ends, known := fakeEnds[kind]
	if !known {
		return refuse("UNKNOWN_TYPE", "edge.type", "", fmt.Sprintf("unknown edge type %q", kind))
	}
	if src.GetType() != ends[0] || dst.GetType() != ends[1] {
		return refuse("WRONG_ENDS", "edge.src.type", "", fmt.Sprintf("%s goes from %s to %s", kind, ends[0], ends[1]))
	}
	return nil
}

func (f *fakeServer) put(kind string, src, dst uint64, at int64, properties map[string]string) bool {
	f.writes++
	key := edgeKey{kind, src, dst}
	if f.edges[key] != nil {
		return false
	}
	if at == 0 {
		at = time.Now().UnixMicro()
	}
	ends := fakeEnds[kind]
	f.edges[key] = &lianav1.Edge{Src: &lianav1.Vertex{Type: ends[0], Id: src}, Type: kind,
		Dst: &lianav1.Vertex{Type: ends[1], Id: dst}, Time: at, Properties: properties}
	return true
}

func (f *fakeServer) AddEdge(_ context.Context, r *lianav1.AddEdgeRequest) (*lianav1.AddEdgeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last["add"] = r
	e := r.GetEdge()
	if err := checkEnds(e.GetSrc(), e.GetType(), e.GetDst()); err != nil {
		return nil, err
	}
	if e.Time > time.Now().Add(5*time.Minute).UnixMicro() {
		return nil, refuse("TIME_IN_FUTURE", "edge.time", "5m", "the time lies more than 5 minutes ahead")
	}
	changed := f.put(e.Type, e.Src.Id, e.Dst.Id, e.Time, e.Properties)
	return &lianav1.AddEdgeResponse{Changed: changed, Token: f.token()}, nil
}

func (f *fakeServer) UpdateEdge(_ context.Context, r *lianav1.UpdateEdgeRequest) (*lianav1.UpdateEdgeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := r.GetEdge()
	old := f.edges[edgeKey{e.GetType(), e.GetSrc().GetId(), e.GetDst().GetId()}]
	if old == nil {
		return nil, status.Error(codes.NotFound, "no such edge")
	}
	old.Time, old.Properties = e.Time, e.Properties
	f.writes++
	return &lianav1.UpdateEdgeResponse{Changed: true, Token: f.token()}, nil
}

func (f *fakeServer) DeleteEdge(_ context.Context, r *lianav1.DeleteEdgeRequest) (*lianav1.DeleteEdgeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last["delete"] = r
	key := edgeKey{r.GetType(), r.GetSrc().GetId(), r.GetDst().GetId()}
	_, there := f.edges[key]
	delete(f.edges, key)
	f.writes++
	return &lianav1.DeleteEdgeResponse{Changed: there, Token: f.token()}, nil
}

func (f *fakeServer) GetEdge(_ context.Context, r *lianav1.GetEdgeRequest) (*lianav1.GetEdgeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.edges[edgeKey{r.GetType(), r.GetSrc().GetId(), r.GetDst().GetId()}]
	if e == nil {
		return nil, status.Error(codes.NotFound, "no such edge")
	}
	return &lianav1.GetEdgeResponse{Edge: e, Token: f.token()}, nil
}

func (f *fakeServer) HasEdge(_ context.Context, r *lianav1.HasEdgeRequest) (*lianav1.HasEdgeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last["has"] = r
	if err := checkEnds(r.GetSrc(), r.GetType(), r.GetDst()); err != nil {
		return nil, err
	}
	e := f.edges[edgeKey{r.GetType(), r.GetSrc().GetId(), r.GetDst().GetId()}]
	return &lianav1.HasEdgeResponse{Exists: e != nil, Token: f.token()}, nil
}

func (f *fakeServer) HasEdges(_ context.Context, r *lianav1.HasEdgesRequest) (*lianav1.HasEdgesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &lianav1.HasEdgesResponse{Token: f.token()}
	for _, dst := range r.GetDstIds() {
		answer.Exists = append(answer.Exists, f.edges[edgeKey{r.GetType(), r.GetSrcIds()[0], dst}] != nil)
	}
	return answer, nil
}

// list returns the edges of a vertex in the window, oldest first.
func (f *fakeServer) list(v *lianav1.Vertex, kind string, d lianav1.Direction, w *lianav1.Window) []*lianav1.Edge {
	var out []*lianav1.Edge
	for key, e := range f.edges {
		end := e.Src
		if d == lianav1.Direction_IN {
			end = e.Dst
		}
		if key.kind != kind || end.Type != v.GetType() || end.Id != v.GetId() ||
			w != nil && w.Since != nil && e.Time < *w.Since || w != nil && w.Until != nil && e.Time >= *w.Until {
			continue
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *lianav1.Edge) int {
		if a.Time != b.Time {
			return int(a.Time - b.Time)
		}
		return int(a.Src.Id+a.Dst.Id) - int(b.Src.Id+b.Dst.Id)
	})
	return out
}

func (f *fakeServer) CountEdges(_ context.Context, r *lianav1.CountEdgesRequest) (*lianav1.CountEdgesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last["count"] = r
	n := len(f.list(r.GetVertex(), r.GetType(), r.GetDirection(), r.GetWindow()))
	return &lianav1.CountEdgesResponse{Count: uint64(n), Token: f.token()}, nil
}

func (f *fakeServer) ListEdges(_ context.Context, r *lianav1.ListEdgesRequest) (*lianav1.ListEdgesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last["list"] = r
	if r.GetPageSize() < 1 || r.GetPageSize() > maxPageSize {
		return nil, refuse("PAGE_SIZE", "page_size", "1 to 10000", "bad page size")
	}
	all := f.list(r.GetVertex(), r.GetType(), r.GetDirection(), r.GetWindow())
	if r.GetOrder() == lianav1.Order_ID_ASCENDING || r.GetOrder() == lianav1.Order_ID_DESCENDING {
		slices.SortFunc(all, func(a, b *lianav1.Edge) int { return int(a.Src.Id+a.Dst.Id) - int(b.Src.Id+b.Dst.Id) })
	}
	if r.GetOrder() == lianav1.Order_NEWEST_FIRST || r.GetOrder() == lianav1.Order_ID_DESCENDING {
		slices.Reverse(all)
	}
	from := int(r.GetSkip())
	if r.GetPageToken() != "" && r.GetSkip() > 0 {
		return nil, refuse("INVALID_FIELD", "skip", "not with page_token", "skip and page_token exclude each other")
	}
	if r.GetPageToken() != "" {
		var err error
		if from, err = strconv.Atoi(r.GetPageToken()); err != nil {
			return nil, refuse("BAD_PAGE_TOKEN", "page_token", "", "the page token is damaged")
		}
	}
	from = min(from, len(all))
	to := min(from+int(r.GetPageSize()), from+f.pageCap, len(all))
	answer := &lianav1.ListEdgesResponse{Edges: all[from:to], Token: f.token()}
	if to < len(all) {
		answer.NextPageToken = strconv.Itoa(to)
	}
	return answer, nil
}

// mutate checks a batch as a whole and applies it.
func (f *fakeServer) mutate(batch []*lianav1.Mutation) ([]lianav1.Outcome, []*lianav1.MutationError, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received += len(batch)
	for i, m := range batch {
		if m.Time > time.Now().Add(5*time.Minute).UnixMicro() {
			field := fmt.Sprintf("mutations[%d].time", i)
			if f.anonymous {
				field = ""
			}
			return nil, nil, refuse("INVALID_FIELD", field, "5m", field+": the time lies more than 5 minutes ahead")
		}
	}
	outcomes := make([]lianav1.Outcome, len(batch))
	var failures []*lianav1.MutationError
	for i, m := range batch {
		if f.onMutation != nil {
			outcome, failure := f.onMutation(m)
			if outcomes[i] = outcome; failure != nil {
				failure.Index = uint32(i)
				failures = append(failures, failure)
			}
		}
		if outcomes[i] != 0 {
			continue
		}
		outcomes[i] = lianav1.Outcome_UNCHANGED
		if f.put(m.Type, m.SrcId, m.DstId, m.Time, m.Properties) {
			outcomes[i] = lianav1.Outcome_CHANGED
		}
	}
	return outcomes, failures, nil
}

func (f *fakeServer) MutateEdges(_ context.Context, r *lianav1.MutateEdgesRequest) (*lianav1.MutateEdgesResponse, error) {
	outcomes, failures, err := f.mutate(r.GetMutations())
	if err != nil {
		return nil, err
	}
	return &lianav1.MutateEdgesResponse{Outcomes: outcomes, Errors: failures}, nil
}

func (f *fakeServer) StreamMutations(stream grpc.BidiStreamingServer[lianav1.StreamMutationsRequest, lianav1.StreamMutationsResponse]) error {
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.batches++
		n, onBatch := f.batches, f.onBatch
		f.mu.Unlock()
		if onBatch != nil {
			if err := onBatch(n); err != nil {
				return err
			}
		}
		outcomes, failures, err := f.mutate(r.GetMutations())
		if err != nil && f.softRefusal {
			outcomes = slices.Repeat([]lianav1.Outcome{lianav1.Outcome_FAILED}, len(r.GetMutations()))
		} else if err != nil {
			return err
		}
		if err := stream.Send(&lianav1.StreamMutationsResponse{Sequence: r.GetSequence(), Outcomes: outcomes, Errors: failures}); err != nil {
			return err
		}
	}
}
