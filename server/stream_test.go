package server

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

func sendBatch(t *testing.T, s pb.Graph_StreamMutationsClient, sequence uint64, edges ...*pb.Edge) {
	t.Helper()
	req := &pb.StreamMutationsRequest{Sequence: sequence}
	for _, e := range edges {
		req.Mutations = append(req.Mutations, &pb.Mutation{
			Op: pb.MutationOp_ADD, Type: e.Type, SrcId: e.Src.GetId(), DstId: e.Dst.GetId(), Time: e.Time,
		})
	}
	if err := s.Send(req); err != nil {
		t.Fatal(err)
	}
}

func TestAStreamIsAppliedAndAnsweredInOrder(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	var last atomic.Uint64
	var running atomic.Int32
	r.fake.hook(func(f *fake) {
		f.onMutate = func(_ context.Context, ms []graph.Mutation) ([]graph.MutationResult, error) {
			if running.Add(1) != 1 {
				t.Error("two batches of a stream run at once")
			}
			if before := last.Swap(ms[0].Dst); ms[0].Dst != before+1 {
				t.Errorf("batch %d after %d", ms[0].Dst, before)
			}
			running.Add(-1)
			return []graph.MutationResult{{Outcome: graph.Changed, Changed: true}}, nil
		}
	})
	stream, err := r.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const n = 2000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(n) {
			sendBatch(t, stream, 100+i, like(1, i+1))
		}
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
	})
	for i := range uint64(n) {
		resp, err := stream.Recv()
		if err != nil || resp.Sequence != 100+i || resp.Outcomes[0] != pb.Outcome_CHANGED {
			t.Fatalf("answer %d: %v, %v", i, resp, err)
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("end: %v", err)
	}
	wg.Wait()
}

// A client that does not stop sending is held back by flow control: the server
// has one batch in work, one read and what fits the window.
func TestAStreamHoldsItsClientBack(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	release, started := make(chan struct{}), make(chan struct{}, 1000)
	r.fake.hook(func(f *fake) {
		f.onMutate = func(_ context.Context, ms []graph.Mutation) ([]graph.MutationResult, error) {
			started <- struct{}{}
			<-release
			return make([]graph.MutationResult, len(ms)), nil
		}
	})
	stream, err := r.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	edges := make([]*pb.Edge, 1000)
	for i := range edges {
		edges[i] = like(1, uint64(i+1))
	}
	var sent atomic.Int32
	var wg sync.WaitGroup
	const n = 200
	wg.Go(func() {
		for i := range uint64(n) {
			sendBatch(t, stream, i, edges...)
			sent.Add(1)
		}
	})
	<-started
	time.Sleep(200 * time.Millisecond)
	if got := sent.Load(); got >= n/2 {
		t.Errorf("%d batches were taken while the first was in work", got)
	}
	close(release)
	for range n {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

func TestABatchThatIsRefusedEndsItsStream(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	stream, err := r.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sendBatch(t, stream, 1, like(1, 1))
	sendBatch(t, stream, 2, like(1, 2), like(1, 0))
	sendBatch(t, stream, 3, like(1, 3))
	if resp, err := stream.Recv(); err != nil || resp.Sequence != 1 {
		t.Fatalf("first: %v, %v", resp, err)
	}
	_, err = stream.Recv()
	info := wantError(t, err, codes.InvalidArgument, "INVALID_FIELD", "mutations[1].dst_id")
	if info.Metadata["sequence"] != "2" {
		t.Errorf("metadata %v", info.Metadata)
	}
	if len(r.fake.edges) != 1 {
		t.Errorf("%d edges: what follows a refused batch must not overtake it", len(r.fake.edges))
	}
}

// CASES 37: idle streams, long ones and writes in flight, then a stop.
func TestAStopAnswersCallsAndEndsStreams(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	release, inside := make(chan struct{}), make(chan struct{}, 100)
	r.fake.hook(func(f *fake) {
		f.onMutate = func(_ context.Context, ms []graph.Mutation) ([]graph.MutationResult, error) {
			inside <- struct{}{}
			<-release
			return []graph.MutationResult{{Outcome: graph.Changed, Changed: true}}, nil
		}
		f.onCheck = func(ctx context.Context, _ func(graph.CheckProgress)) (graph.CheckReport, error) {
			inside <- struct{}{}
			<-ctx.Done()
			return graph.CheckReport{}, ctx.Err()
		}
	})
	var wg sync.WaitGroup
	for i := range uint64(20) { // writes in flight
		wg.Go(func() {
			if resp, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(i+1, 1)}); err != nil || !resp.Changed {
				t.Errorf("a write in flight: %v, %v", resp, err)
			}
		})
	}
	busy, err := r.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sendBatch(t, busy, 1, like(1, 1))
	sendBatch(t, busy, 2, like(1, 2)) // read ahead, not begun
	check, err := r.admin.Check(ctx, &pb.CheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var idle []pb.Graph_StreamMutationsClient
	for range 50 {
		s, err := r.graph.StreamMutations(ctx)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, s)
	}
	watch, err := healthpb.NewHealthClient(r.conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := watch.Recv(); err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health: %v, %v", h, err)
	}
	reflect, err := reflectionpb.NewServerReflectionClient(r.conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 22 {
		<-inside
	}
	waitFor(t, "all streams", func() bool { return r.calls.streams.Load() == 54 })

	stopped := make(chan error, 1)
	began := time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
		defer cancel()
		stopped <- r.Stop(ctx)
	}()
	if h, err := watch.Recv(); err != nil || h.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health while stopping: %v, %v", h, err)
	}
	for _, s := range idle {
		_, err := s.Recv()
		wantError(t, err, codes.Unavailable, "STOPPING", "")
	}
	_, err = check.Recv()
	wantError(t, err, codes.Unavailable, "STOPPING", "")
	_, err = reflect.Recv()
	wantError(t, err, codes.Unavailable, "STOPPING", "")
	_, err = watch.Recv()
	wantError(t, err, codes.Unavailable, "STOPPING", "")
	select {
	case err := <-stopped:
		t.Fatalf("stopped with writes in flight: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if resp, err := busy.Recv(); err != nil || resp.Sequence != 1 {
		t.Errorf("the batch in flight: %v, %v", resp, err)
	}
	_, err = busy.Recv()
	wantError(t, err, codes.Unavailable, "STOPPING", "")
	wg.Wait()
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("took %v", took)
	}
	if _, err := r.graph.HasEdge(ctx, hasRequest); status.Code(err) != codes.Unavailable {
		t.Errorf("after the stop: %v", err)
	}
}

func TestAStopEndsWithItsContext(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	r.fake.hook(func(f *fake) {
		f.onRead = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.graph.HasEdge(ctx, hasRequest); err == nil {
			t.Error("answered")
		}
	})
	waitFor(t, "the call", func() bool { return r.calls.inFlight.Load() == 1 })
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.Stop(short); err == nil {
		t.Error("a stop with an unanswered call says nothing")
	}
	wg.Wait()
}
