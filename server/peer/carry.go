package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lianadb/liana/graph"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// carrier serves the lanes of other nodes: each errand is a call of the service Calls.
type carrier struct {
	peerv1.UnimplementedLaneServer
	calls peerv1.CallsServer
	stop  <-chan struct{} // the port is about to stop
}

// method is one of Calls, as generated code calls it.
type method = func(srv any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor) (any, error)

// Carry implements peerv1.LaneServer. Every errand has a goroutine of its own, as every
// call of gRPC has. Their number is not bounded here: a delivery that waited for the end of
// writes, which wait for deliveries, could wait for ever. Gateways bound it.
func (c *carrier) Carry(stream grpc.BidiStreamingServer[peerv1.CarryRequest, peerv1.CarryResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	t := &tour{carrier: c, ctx: ctx, methods: map[string]method{}, under: map[uint64]context.CancelFunc{}, wake: make(chan struct{}, 1)}
	for _, m := range peerv1.Calls_ServiceDesc.Methods {
		t.methods[m.MethodName] = m.Handler
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		t.send(stream)
	}()
	err := t.read(stream)
	if err != nil {
		cancel() // nobody waits for the answers
	}
	t.errands.Wait()
	t.finish()
	<-sent
	cancel()
	return err
}

// tour is one stream of a lane.
type tour struct {
	*carrier
	ctx     context.Context
	methods map[string]method
	errands sync.WaitGroup

	wake     chan struct{} // of capacity 1
	mu       sync.Mutex
	under    map[uint64]context.CancelFunc // of errands under way
	answers  []*peerv1.ErrandAnswer
	finished bool // no answer is to come
}

func (t *tour) read(stream grpc.BidiStreamingServer[peerv1.CarryRequest, peerv1.CarryResponse]) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range m.GetErrands() {
			ctx := t.begin(e)
			t.errands.Go(func() { t.answer(t.run(ctx, e)) })
		}
		t.cancel(m.GetCancelled())
	}
}

// begin returns the context of an errand.
func (t *tour) begin(e *peerv1.Errand) context.Context {
	var ctx context.Context
	var cancel context.CancelFunc
	if e.GetTimeout() > 0 {
		ctx, cancel = context.WithTimeout(t.ctx, time.Duration(min(e.GetTimeout(), uint64(time.Hour/time.Microsecond)))*time.Microsecond)
	} else {
		ctx, cancel = context.WithCancel(t.ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.under[e.GetNumber()] = cancel
	return ctx
}

func (t *tour) cancel(numbers []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range numbers {
		if cancel := t.under[n]; cancel != nil {
			cancel()
		}
	}
}

func (t *tour) run(ctx context.Context, e *peerv1.Errand) *peerv1.ErrandAnswer {
	a := &peerv1.ErrandAnswer{Number: e.GetNumber()}
	out, err := t.call(ctx, e)
	if err == nil {
		a.Response, err = proto.Marshal(out.(proto.Message))
	}
	if err != nil {
		a.Response, a.Status = nil, encodeStatus(err)
	}
	return a
}

func encodeStatus(err error) []byte {
	b, bad := proto.Marshal(status.Convert(err).Proto())
	if bad != nil || len(b) == 0 { // text that is not UTF-8
		b, _ = proto.Marshal(status.New(codes.Internal, "the error cannot be told").Proto())
	}
	return b
}

func (t *tour) call(ctx context.Context, e *peerv1.Errand) (any, error) {
	select {
	case <-t.stop:
		return nil, StatusOf(fmt.Errorf("%w: it is stopping", graph.ErrUnreachable))
	default:
	}
	m := t.methods[e.GetMethod()]
	if m == nil {
		return nil, status.Errorf(codes.Unimplemented, "no call %q", e.GetMethod())
	}
	return m(t.calls, ctx, func(in any) error { return proto.Unmarshal(e.GetRequest(), in.(proto.Message)) }, nil)
}

func (t *tour) answer(a *peerv1.ErrandAnswer) {
	t.mu.Lock()
	if cancel := t.under[a.GetNumber()]; cancel != nil {
		cancel()
		delete(t.under, a.GetNumber())
	}
	t.answers = append(t.answers, a)
	t.mu.Unlock()
	t.poke()
}

func (t *tour) finish() {
	t.mu.Lock()
	t.finished = true
	t.mu.Unlock()
	t.poke()
}

func (t *tour) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// send sends answers as they come, those that come while a message is formed in it.
func (t *tour) send(stream grpc.BidiStreamingServer[peerv1.CarryRequest, peerv1.CarryResponse]) {
	stop := t.stop
	for {
		var closing bool
		select {
		case <-t.wake:
			gather(t.length)
		case <-stop:
			stop, closing = nil, true // told once
		}
		for {
			m, last := t.take()
			m.Closing, closing = closing, false
			if len(m.Answers) > 0 || m.Closing {
				if stream.Send(m) != nil { // read hears of it too
					stop = nil
				}
				continue
			}
			if last {
				return
			}
			break
		}
	}
}

func (t *tour) length() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.answers)
}

// take returns a message of answers. last: there are and will be none.
func (t *tour) take() (m *peerv1.CarryResponse, last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, size := 0, 0
	for n < len(t.answers) && size < laneMessage {
		size += len(t.answers[n].Response)
		n++
	}
	m = &peerv1.CarryResponse{Answers: t.answers[:n:n]}
	t.answers = t.answers[n:]
	return m, t.finished && n == 0
}
