package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// mirror answers HasEdges with what it was asked, so that answers that went to another
// caller show.
type mirror struct{ echo }

func (*mirror) HasEdges(_ context.Context, _ graph.ReadOptions, _ graph.EdgeType, srcs, _ []uint64, exists []bool) (string, error) {
	if srcs[0]%7 == 0 {
		return "", fmt.Errorf("%w: %d", graph.ErrNoEdge, srcs[0])
	}
	exists[0] = srcs[0]%2 == 0
	return fmt.Sprint(srcs[0]), nil
}

func TestCallersOfALaneGetTheirOwnAnswers(t *testing.T) {
	_, c := serve(t, &mirror{}, nil)
	ctx := testCtx(t)
	var wg sync.WaitGroup
	for caller := range uint64(32) {
		wg.Go(func() {
			for i := range uint64(50) {
				src := caller<<32 | i
				exists := make([]bool, 1)
				token, err := c.HasEdges(ctx, graph.ReadOptions{}, 1, []uint64{src}, []uint64{1}, exists)
				switch {
				case src%7 == 0 && errors.Is(err, graph.ErrNoEdge):
				case src%7 == 0 || err != nil || token != fmt.Sprint(src) || exists[0] != (src%2 == 0):
					t.Errorf("asked of %d: %v, %s, %v", src, exists[0], token, err)
				}
			}
		})
	}
	wg.Wait()
}

// What one lane carries at once is not bounded by what waits on it: a write may wait for a
// delivery that comes behind it.
func TestCallsOverALaneDoNotWaitForEachOther(t *testing.T) {
	const calls = 500
	e := &gate{arrived: make(chan struct{}, calls), open: make(chan struct{})}
	_, c := serve(t, e, nil)
	ctx := testCtx(t)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			if _, err := c.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0); err != nil {
				t.Error(err)
			}
		})
	}
	for range calls {
		select {
		case <-e.arrived:
		case <-ctx.Done():
			t.Fatal("not all calls arrived while the first were at work")
		}
	}
	close(e.open)
	wg.Wait()
}

// gate holds SetCounter until it is opened.
type gate struct {
	echo
	arrived, open chan struct{}
}

func (g *gate) SetCounter(context.Context, graph.CounterRef, int64, int64) (string, error) {
	g.arrived <- struct{}{}
	<-g.open
	return "", nil
}

// A call that is too large for a lane is made by itself.
func TestALargeCallIsAnswered(t *testing.T) {
	e := &echo{}
	_, c := serve(t, e, nil)
	ms := make([]graph.Mutation, 1000)
	for i := range ms {
		ms[i] = graph.Mutation{Op: graph.OpAdd, Type: 1, Src: 1, Dst: uint64(i + 1), Props: make([]byte, 200)}
	}
	res, token, err := c.Mutate(testCtx(t), ms, graph.WaitBoth)
	if err != nil || len(res) != len(ms) || token != "token" {
		t.Errorf("%d results, %q, %v", len(res), token, err)
	}
}

// Who gives up a call ends it at the node as well.
func TestACallThatIsGivenUpEndsAtTheNode(t *testing.T) {
	w := &waits{ended: make(chan error, 1), began: make(chan struct{}, 1)}
	_, c := serve(t, w, nil)
	ctx, cancel := context.WithCancel(testCtx(t))
	done := make(chan error, 1)
	go func() {
		_, err := c.HasEdges(ctx, graph.ReadOptions{}, 1, []uint64{1}, []uint64{1}, make([]bool, 1))
		done <- err
	}()
	<-w.began
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller: %v", err)
	}
	if err := <-w.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the node: %v", err)
	}
}

// A deadline goes with the call.
func TestADeadlineGoesWithACall(t *testing.T) {
	w := &waits{ended: make(chan error, 1), began: make(chan struct{}, 1)}
	_, c := serve(t, w, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, _ = c.HasEdges(ctx, graph.ReadOptions{}, 1, []uint64{1}, []uint64{1}, make([]bool, 1))
	if err := <-w.ended; err == nil {
		t.Error("the call did not end")
	}
	if !w.bounded {
		t.Error("the node knew of no deadline")
	}
}

// waits holds HasEdges until its context ends.
type waits struct {
	echo
	began   chan struct{}
	ended   chan error
	bounded bool
}

func (w *waits) HasEdges(ctx context.Context, _ graph.ReadOptions, _ graph.EdgeType, _, _ []uint64, _ []bool) (string, error) {
	_, w.bounded = ctx.Deadline()
	w.began <- struct{}{}
	<-ctx.Done()
	w.ended <- ctx.Err()
	return "", ctx.Err()
}

// A port that stops answers what is under way, and refuses what comes so that it can be
// made elsewhere: an orderly stop leaves no write unknown.
func TestAPortThatStopsLeavesNoWriteUnknown(t *testing.T) {
	e := &echo{block: make(chan struct{}), arrived: make(chan struct{}, 1)}
	p, c := serve(t, e, nil)
	ctx := testCtx(t)
	set := func() error {
		_, err := c.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0)
		return err
	}
	under := make(chan error, 1)
	go func() { under <- set() }()
	<-e.arrived
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.Stop()
	}()
	<-p.stop
	for range 20 {
		if err := set(); !errors.Is(err, graph.ErrUnreachable) || errors.Is(err, shard.ErrOutcomeUnknown) {
			t.Fatalf("a write to a port that stops: %v", err)
		}
	}
	begun := time.Now()
	close(e.block)
	if err := <-under; err != nil {
		t.Errorf("the write that was under way: %v", err)
	}
	<-stopped
	if took := time.Since(begun); took >= stopWait {
		t.Errorf("the stop took %v after the last call: it was forced", took)
	}
}

// What is no call of ours is refused, and ends nothing else.
func TestALaneRefusesWhatItDoesNotKnow(t *testing.T) {
	_, c := serve(t, &echo{}, nil)
	ctx := testCtx(t)
	var out peerv1.DeliverResponse
	err := c.conn.Invoke(ctx, "/peer.v1.Calls/Launch", &peerv1.DeliverRequest{}, &out)
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("an unknown call: %v", err)
	}
	e := &errand{wire: &peerv1.Errand{Method: "Deliver", Request: []byte{0xff}}, done: make(chan struct{})}
	if err := c.conn.push(e); err != nil {
		t.Fatal(err)
	}
	if <-e.done; e.err == nil {
		t.Error("bytes that are no request were answered")
	}
	if _, err := c.Deliver(ctx, 1, []byte("d")); err != nil {
		t.Errorf("the call after it: %v", err)
	}
}
