package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

var hasRequest = &pb.HasEdgeRequest{Src: user(1), Type: "like", Dst: note(1)}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

func TestAPanicEndsTheCallAndNothingElse(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	r.fake.hook(func(f *fake) { f.onRead = func(context.Context) error { panic("planted") } })
	_, err := r.graph.HasEdge(ctx, hasRequest)
	wantError(t, err, codes.Internal, "INTERNAL", "")
	if strings.Contains(err.Error(), "planted") || !strings.Contains(err.Error(), "reference") {
		t.Errorf("the client reads %q", err)
	}
	r.fake.hook(func(f *fake) {
		f.onRead = nil
		f.onCheck = func(context.Context, func(graph.CheckProgress)) (graph.CheckReport, error) { panic("planted") }
	})
	check, err := r.admin.Check(ctx, &pb.CheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = check.Recv()
	wantError(t, err, codes.Internal, "INTERNAL", "")
	r.fake.hook(func(f *fake) { f.onCheck = nil })
	if _, err = r.graph.HasEdge(ctx, hasRequest); err != nil {
		t.Errorf("after the panics: %v", err)
	}
	if check, err = r.admin.Check(ctx, &pb.CheckRequest{}); err == nil {
		_, err = check.Recv()
	}
	if err != nil {
		t.Errorf("a check after the panics: %v", err)
	}
}

func TestAnUnknownErrorTellsAClientNothing(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	r.fake.hook(func(f *fake) { f.onRead = func(context.Context) error { return errPlanted } })
	_, err := r.graph.HasEdge(ctx, hasRequest)
	wantError(t, err, codes.Internal, "INTERNAL", "")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the client reads %q", err)
	}
}

func TestCallsPastTheLimitAreRefused(t *testing.T) {
	r, ctx := newRig(t, func(c *Config) { c.Limits.MaxCalls = 2 }), testCtx(t)
	release := make(chan struct{})
	r.fake.hook(func(f *fake) { f.onRead = func(context.Context) error { <-release; return nil } })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := r.graph.HasEdge(ctx, hasRequest); err != nil {
				t.Errorf("a call within the limit: %v", err)
			}
		})
	}
	waitFor(t, "two calls", func() bool { return r.calls.inFlight.Load() == 2 })
	_, err := r.graph.HasEdge(ctx, hasRequest)
	if info := wantError(t, err, codes.ResourceExhausted, "TOO_MANY_CALLS", ""); info.Metadata["retryable"] != "true" {
		t.Errorf("metadata %v", info.Metadata)
	}
	// Health answers all the same.
	if _, err := healthpb.NewHealthClient(r.conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	close(release)
	wg.Wait()
	if _, err := r.graph.HasEdge(ctx, hasRequest); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestStreamsPastTheLimitAreRefused(t *testing.T) {
	r, ctx := newRig(t, func(c *Config) { c.Limits.MaxStreams = 1 }), testCtx(t)
	first, err := r.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sendBatch(t, first, 1, like(1, 1))
	if _, err := first.Recv(); err != nil {
		t.Fatal(err)
	}
	second, err := r.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = second.Recv()
	wantError(t, err, codes.ResourceExhausted, "TOO_MANY_CALLS", "")
	if err := first.CloseSend(); err != nil {
		t.Fatal(err)
	}
}

func TestChecksPastTheLimitAreRefused(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	release := make(chan struct{})
	r.fake.hook(func(f *fake) {
		f.onCheck = func(_ context.Context, progress func(graph.CheckProgress)) (graph.CheckReport, error) {
			progress(graph.CheckProgress{})
			<-release
			return graph.CheckReport{}, nil
		}
	})
	for i := range maxScans + 1 {
		check, err := r.admin.Check(ctx, &pb.CheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = check.Recv(); i < maxScans && err != nil {
			t.Fatal(err)
		} else if i == maxScans {
			wantError(t, err, codes.ResourceExhausted, "TOO_MANY_SCANS", "")
		}
	}
	close(release)
}

func TestEveryCallHasADeadline(t *testing.T) {
	r, ctx := newRig(t, func(c *Config) { c.Limits.MaxCallTime = 30 * time.Millisecond }), testCtx(t)
	r.fake.hook(func(f *fake) {
		f.onRead = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		f.onMutate = func(ctx context.Context, _ []graph.Mutation) ([]graph.MutationResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	_, err := r.graph.HasEdge(context.Background(), hasRequest)
	wantError(t, err, codes.DeadlineExceeded, "DEADLINE", "")
	_, err = r.graph.HasEdge(ctx, hasRequest) // asks for 20 s
	wantError(t, err, codes.DeadlineExceeded, "DEADLINE", "")
	stream, err := r.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sendBatch(t, stream, 7, like(1, 1))
	_, err = stream.Recv()
	if info := wantError(t, err, codes.DeadlineExceeded, "DEADLINE", ""); info.Metadata["sequence"] != "7" {
		t.Errorf("metadata %v", info.Metadata)
	}
}

func TestAnEdgeWithoutItsInverseSaysWhatIsDurable(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	r.fake.hook(func(f *fake) {
		f.onMutate = func(context.Context, []graph.Mutation) ([]graph.MutationResult, error) {
			err := fmt.Errorf("shard 2: %w: %w", graph.ErrInverseLate, context.DeadlineExceeded)
			return []graph.MutationResult{{Outcome: graph.InversePending, Changed: true, Err: err}}, nil
		}
	})
	_, err := r.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(1, 1)})
	info := wantError(t, err, codes.Aborted, "INVERSE_PENDING", "")
	if info.Metadata["changed"] != "true" || info.Metadata["token"] != "token-hook" {
		t.Errorf("metadata %v", info.Metadata)
	}
	resp, err := r.graph.MutateEdges(ctx, &pb.MutateEdgesRequest{Mutations: []*pb.Mutation{{Op: pb.MutationOp_ADD, Type: "like", SrcId: 1, DstId: 2}}})
	if err != nil || resp.Outcomes[0] != pb.Outcome_INVERSE_PENDING || resp.Errors[0].Reason != "INVERSE_PENDING" {
		t.Errorf("batch: %v, %v", resp, err)
	}
}

func TestAStartingServerIsAliveAndNotServing(t *testing.T) {
	s, err := Listen(testConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	conn, ctx := dial(t, s), testCtx(t)
	defer stop(t, s)
	health := healthpb.NewHealthClient(conn)
	serving := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		h, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return h.Status
	}
	if got := serving(""); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health %v", got)
	}
	_, err = pb.NewGraphClient(conn).HasEdge(ctx, hasRequest)
	wantError(t, err, codes.Unavailable, "NOT_READY", "")
	if code, _ := get(t, s, "/healthz"); code != 200 {
		t.Errorf("/healthz %d", code)
	}
	if code, body := get(t, s, "/readyz"); code != 503 || !strings.Contains(body, "starting") {
		t.Errorf("/readyz %d %s", code, body)
	}

	f := newFake()
	f.notReady = errors.New("shard 2 has no leader")
	s.Attach(Attachment{Backend: f})
	if code, body := get(t, s, "/readyz"); code != 503 || !strings.Contains(body, "shard 2 has no leader") || !strings.Contains(body, `"fault":"planted"`) {
		t.Errorf("/readyz %d %s", code, body)
	}
	select {
	case <-s.Ready():
		t.Error("ready without a leader")
	case <-time.After(3 * readyInterval):
	}
	f.hook(func(f *fake) { f.notReady = nil })
	<-s.Ready()
	for _, service := range []string{"", "liana.v1.Graph", "liana.v1.Counters", "liana.v1.Admin"} {
		if got := serving(service); got != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v", service, got)
		}
	}
	f.hook(func(f *fake) { f.notReady = errors.New("shard 1 has no leader") })
	waitFor(t, "NOT_SERVING", func() bool { return serving("liana.v1.Graph") == healthpb.HealthCheckResponse_NOT_SERVING })
	if code, _ := get(t, s, "/healthz"); code != 200 {
		t.Errorf("/healthz %d", code)
	}
}

func TestABusyPortIsNamedAndNothingStaysBound(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	cfg := testConfig()
	cfg.HTTPAddr = busy.Addr().String()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.GRPCAddr = free.Addr().String()
	free.Close()
	if _, err := Listen(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "http_addr") {
		t.Fatalf("error %v", err)
	}
	again, err := net.Listen("tcp", cfg.GRPCAddr)
	if err != nil {
		t.Fatalf("the other port stayed bound: %v", err)
	}
	again.Close()
}

func TestAnOversizedMessageIsRefusedWhole(t *testing.T) {
	r, ctx := newRig(t, func(c *Config) { c.Limits.MaxMessageBytes = minMessageBytes }), testCtx(t)
	ms := make([]*pb.Mutation, 5000)
	for i := range ms {
		ms[i] = &pb.Mutation{Op: pb.MutationOp_ADD, Type: "like", SrcId: 1, DstId: uint64(i + 1)}
	}
	_, err := r.graph.MutateEdges(ctx, &pb.MutateEdgesRequest{Mutations: ms})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("error %v", err)
	}
	if _, err := r.graph.MutateEdges(ctx, &pb.MutateEdgesRequest{Mutations: ms[:1000]}); err != nil {
		t.Errorf("a message under the limit: %v", err)
	}
	if len(r.fake.edges) != 1000 {
		t.Errorf("%d edges", len(r.fake.edges))
	}
}

func TestTheLogOfFaultsIsThrottled(t *testing.T) {
	var th throttle
	allowed := 0
	for range 1000 {
		if _, ok := th.allow(); ok {
			allowed++
		}
	}
	if allowed < linesPerSecond || allowed > 2*linesPerSecond { // the clock may strike in between
		t.Errorf("%d lines", allowed)
	}
	th.second = 0
	if skipped, ok := th.allow(); !ok || skipped != 1000-allowed {
		t.Errorf("skipped %d, want %d", skipped, 1000-allowed)
	}
}
