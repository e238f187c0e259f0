package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// fill adds n likes with properties of nearly 1 KiB, in batches as large as a message may be.
func fill(t *testing.T, r *rig, src uint64, n int) {
	t.Helper()
	props := map[string]string{"p": strings.Repeat("x", 1000)}
	for from := 0; from < n; from += 3000 {
		req := new(pb.MutateEdgesRequest)
		for i := from; i < min(n, from+3000); i++ {
			req.Mutations = append(req.Mutations, &pb.Mutation{Op: pb.MutationOp_ADD, Type: "like", SrcId: src, DstId: uint64(i + 1), Time: int64(i + 1), Properties: props})
		}
		if _, err := r.graph.MutateEdges(testCtx(t), req); err != nil {
			t.Fatal(err)
		}
	}
}

// watched reads changes until there are n, and returns the last token.
func watched(t *testing.T, stream grpc.ServerStreamingClient[pb.WatchResponse], n int) (token string) {
	t.Helper()
	for n > 0 {
		m, err := stream.Recv()
		if err != nil {
			t.Fatalf("%d changes before the last: %v", n, err)
		}
		n -= len(m.Changes)
		if m.ResumeToken != "" {
			token = m.ResumeToken
		}
	}
	return token
}

// longCtx is testCtx for what takes its time on a busy machine.
func longCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// CASES 36: a client with gRPC's default limits takes every message of a watch, however
// large the batches were; the token comes with the last part of one.
func TestCase36WatchMessagesFitADefaultClient(t *testing.T) {
	r, ctx := serveBackend(t, openGraph(t), nil), longCtx(t)
	c := pb.NewChangesClient(r.conn)
	fill(t, r, 7, 6000)
	stream, err := c.Watch(ctx, &pb.WatchRequest{Start: pb.WatchStart_OLDEST})
	if err != nil {
		t.Fatal(err)
	}
	token := watched(t, stream, 6000)
	fill(t, r, 8, 10)
	again, err := c.Watch(ctx, &pb.WatchRequest{ResumeToken: token})
	if err != nil {
		t.Fatal(err)
	}
	var got []*pb.Change
	for len(got) < 10 {
		m, err := again.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Changes...)
	}
	for i, x := range got {
		if x.Edge.Src.Id != 8 || x.Kind != pb.ChangeKind_EDGE_ADDED || len(x.Edge.Properties["p"]) != 1000 || i > 0 && x.Position <= got[i-1].Position {
			t.Errorf("change %d behind the token: %v", i, x)
		}
	}
}

// CASES 37: idle watches do not hold up a stop; each ends with a place to go on from.
func TestCase37WatchesEndWithAResumePoint(t *testing.T) {
	r, ctx := serveBackend(t, openGraph(t), nil), testCtx(t)
	c := pb.NewChangesClient(r.conn)
	streams := make([]grpc.ServerStreamingClient[pb.WatchResponse], 100)
	for i := range streams {
		var err error
		if streams[i], err = c.Watch(ctx, &pb.WatchRequest{}); err != nil {
			t.Fatal(err)
		}
		if m, err := streams[i].Recv(); err != nil || m.ResumeToken == "" || len(m.Changes) > 0 {
			t.Fatalf("first message: %v, %v", m, err)
		}
	}
	begun := time.Now()
	stop(t, r.Server)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	for i, s := range streams {
		_, err := s.Recv()
		if info := wantError(t, err, codes.Unavailable, "STOPPING", ""); info.Metadata["resume_token"] == "" {
			t.Errorf("stream %d has no resume point", i)
		}
	}
}

// CASES 38: a watcher that stops reading is cut with a place to go on from; the others have
// everything meanwhile.
func TestCase38AStalledWatcherIsCut(t *testing.T) {
	r, ctx := serveBackend(t, openGraph(t), func(cfg *Config) { cfg.Limits.MaxCallTime = 5 * time.Second }), longCtx(t)
	stalled, err := pb.NewChangesClient(dial(t, r.Server)).Watch(ctx, &pb.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stalled.Recv(); err != nil {
		t.Fatal(err)
	}
	const changes = 1500
	c := pb.NewChangesClient(r.conn)
	var wg sync.WaitGroup
	for range 4 {
		s, err := c.Watch(ctx, &pb.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for n := 0; n < changes; {
				m, err := s.Recv()
				if err != nil {
					t.Errorf("a healthy watcher: %v", err)
					return
				}
				n += len(m.Changes)
			}
		})
	}
	fill(t, r, 7, changes)
	wg.Wait()
	for r.calls.streams.Load() > 4 {
		if ctx.Err() != nil {
			t.Fatal("the stalled watcher was not cut")
		}
		time.Sleep(10 * time.Millisecond)
	}
	n, token := 0, ""
	for {
		m, err := stalled.Recv()
		if err != nil {
			token = wantError(t, err, codes.Aborted, "SLOW_WATCHER", "").Metadata["resume_token"]
			break
		}
		n += len(m.Changes)
	}
	rest, err := c.Watch(ctx, &pb.WatchRequest{ResumeToken: token})
	if err != nil {
		t.Fatal(err)
	}
	if n >= changes {
		t.Fatalf("it took all %d changes", n)
	}
	watched(t, rest, changes-n)
}

func TestBadWatchesNameTheirField(t *testing.T) {
	r, ctx := newRig(t, nil), testCtx(t)
	c := pb.NewChangesClient(r.conn)
	for field, req := range map[string]*pb.WatchRequest{
		"heartbeat_ms":    {HeartbeatMs: 99},
		"start":           {Start: 9},
		"kinds[1]":        {Kinds: []pb.ChangeKind{pb.ChangeKind_EDGE_ADDED, 0}},
		"edge_types[0]":   {EdgeTypes: []string{"x"}},
		"vertex_types[0]": {VertexTypes: []string{"x"}},
		"vertex.id":       {Vertex: user(0)},
		"vertex.type":     {Vertex: &pb.Vertex{Type: "x", Id: 1}},
	} {
		s, err := c.Watch(ctx, req)
		if err == nil {
			_, err = s.Recv()
		}
		wantError(t, err, codes.InvalidArgument, "INVALID_FIELD", field)
	}
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.Watch(short, &pb.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || m.ResumeToken != "here" {
		t.Error(fmt.Sprint(m), err)
	}
}

// A key that is no text, as the Redis-protocol port takes it, must not end every watch.
func TestWatchSendsKeysThatAreNoText(t *testing.T) {
	for _, key := range []string{"\xff\x00", "plain", "\u00e9"} {
		ref := names{graph.DefaultSchema()}.encodeCounter(graph.CounterRef{Key: key})
		if _, err := proto.Marshal(ref); err != nil {
			t.Errorf("key %q: %v", key, err)
		}
		if utf8.ValidString(key) != (ref.Key == key) {
			t.Errorf("key %q became %q", key, ref.Key)
		}
	}
}
