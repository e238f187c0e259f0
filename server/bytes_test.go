package server

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// bigBatch is a request of about 40,000 bytes.
func bigBatch(src uint64) []*pb.Mutation {
	ms := make([]*pb.Mutation, 50)
	for i := range ms {
		ms[i] = &pb.Mutation{
			Op: pb.MutationOp_ADD, Type: "like", SrcId: src, DstId: uint64(i + 1),
			Properties: map[string]string{"k": strings.Repeat("v", 750)},
		}
	}
	return ms
}

// oneBigBatch lets the requests of one big batch in at once, and not of two. Those of
// source 1 wait for release.
func oneBigBatch(t *testing.T) (r *rig, release chan struct{}) {
	r = newRig(t, func(c *Config) {
		c.Limits.MaxMessageBytes, c.Limits.MaxCallBytes = minMessageBytes, minMessageBytes
		c.Limits.MaxCallTime = 5 * time.Second
	})
	release = make(chan struct{})
	r.fake.hook(func(f *fake) {
		f.onMutate = func(ctx context.Context, ms []graph.Mutation) ([]graph.MutationResult, error) {
			switch ms[0].Src {
			case 1:
				select {
				case <-release:
				case <-ctx.Done():
				}
			case 13:
				panic("planted")
			}
			return make([]graph.MutationResult, len(ms)), nil
		}
	})
	return r, release
}

func TestRequestBytesPastTheLimitAreRefused(t *testing.T) {
	r, release := oneBigBatch(t)
	ctx := testCtx(t)
	big := func(src uint64) error {
		_, err := r.graph.MutateEdges(ctx, &pb.MutateEdgesRequest{Mutations: bigBatch(src)})
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := big(1); err != nil {
			t.Errorf("a call within the limit: %v", err)
		}
	})
	waitFor(t, "the first call", func() bool { return r.calls.bytes.Load() > minMessageBytes/2 })
	info := wantError(t, big(2), codes.ResourceExhausted, "TOO_MANY_CALLS", "")
	if info.Metadata["retryable"] != "true" {
		t.Errorf("metadata %v", info.Metadata)
	}
	if _, err := r.graph.HasEdge(ctx, hasRequest); err != nil {
		t.Errorf("a small call: %v", err)
	}
	if _, err := healthpb.NewHealthClient(r.conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	stream, err := r.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.StreamMutationsRequest{Sequence: 7, Mutations: bigBatch(2)}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if info := wantError(t, err, codes.ResourceExhausted, "TOO_MANY_CALLS", ""); info.Metadata["sequence"] != "7" {
		t.Errorf("metadata %v", info.Metadata)
	}
	close(release)
	wg.Wait()
	if err := big(2); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	waitFor(t, "nothing in flight", func() bool { return r.calls.bytes.Load() == 0 })
}

func TestRequestBytesOfStreamsCount(t *testing.T) {
	r, release := oneBigBatch(t)
	ctx := testCtx(t)
	open := func(src uint64) pb.Graph_StreamMutationsClient {
		stream, err := r.graph.StreamMutations(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&pb.StreamMutationsRequest{Sequence: 1, Mutations: bigBatch(src)}); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	stream := open(1)
	waitFor(t, "the batch", func() bool { return r.calls.bytes.Load() > minMessageBytes/2 })
	_, err := r.graph.MutateEdges(ctx, &pb.MutateEdgesRequest{Mutations: bigBatch(2)})
	wantError(t, err, codes.ResourceExhausted, "TOO_MANY_CALLS", "")
	close(release)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "nothing in flight", func() bool { return r.calls.bytes.Load() == 0 })
	_, err = open(13).Recv()
	wantError(t, err, codes.Internal, "INTERNAL", "")
	waitFor(t, "nothing in flight after a panic", func() bool { return r.calls.bytes.Load() == 0 })
}

// unread opens an export that is larger than what a client's window takes, and reads
// one message of it.
func unread(t *testing.T, r *rig) pb.Admin_ExportEdgesClient {
	t.Helper()
	stream, err := r.admin.ExportEdges(testCtx(t), &pb.ExportEdgesRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func manyEdges(f *fake) {
	for i := range uint64(50_000) {
		f.mutate(graph.Mutation{Op: graph.OpAdd, Type: 1, Src: i + 1, Dst: 1, Time: 1 << 60})
	}
}

// TestAStreamThatIsNotReadEnds: clients that do not read would hold all the checks
// and exports that there may be.
func TestAStreamThatIsNotReadEnds(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.MaxCallTime = 200 * time.Millisecond })
	manyEdges(r.fake)
	first, second := unread(t, r), unread(t, r)
	waitFor(t, "a check that may begin", func() bool {
		check, err := r.admin.Check(testCtx(t), &pb.CheckRequest{})
		if err == nil {
			_, err = check.Recv()
		}
		return err == nil
	})
	for _, s := range []pb.Admin_ExportEdgesClient{first, second} {
		var err error
		for err == nil {
			_, err = s.Recv()
		}
		wantError(t, err, codes.DeadlineExceeded, "NOT_READ", "")
	}
}

func TestAStopDoesNotWaitForWhoDoesNotRead(t *testing.T) {
	r := newRig(t, nil)
	manyEdges(r.fake)
	stream := unread(t, r)
	began := time.Now()
	stopped := make(chan struct{})
	go func() {
		stop(t, r.Server)
		close(stopped)
	}()
	time.Sleep(300 * time.Millisecond)
	var err error
	for err == nil { // gRPC keeps the connection until its client has read the end
		_, err = stream.Recv()
	}
	wantError(t, err, codes.Unavailable, "STOPPING", "")
	<-stopped
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("took %v", took)
	}
}
