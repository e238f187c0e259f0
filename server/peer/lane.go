package peer

import (
	"context"
	"errors"
	"io"
	"path"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// Bounds of a lane.
const (
	// laneErrand is the size of the largest call that goes by a lane: larger ones would
	// hold up the others.
	laneErrand = 64 << 10
	// laneMessage is how many bytes of calls or answers a message gathers.
	laneMessage = 256 << 10
)

// lane is the connection to a node as a client of Calls uses it. Small calls go
// together on one stream: what is called while a message is formed goes in it.
type lane struct {
	*grpc.ClientConn
	calls peerv1.LaneClient

	ctx  context.Context // ends with close
	stop context.CancelFunc
	wake chan struct{} // of capacity 1
	done sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	runs      bool
	number    uint64 // of the newest errand
	waiting   []*errand
	cancelled []uint64
	sent      map[uint64]*errand
	on        *laneStream // nil: it is opened with the next message
}

// laneStream is one stream of a lane.
type laneStream struct {
	grpc.BidiStreamingClient[peerv1.CarryRequest, peerv1.CarryResponse]
	closing bool // the node wants to end it; guarded by lane.mu
}

// errand is a call on its way.
type errand struct {
	wire *peerv1.Errand
	on   *laneStream // nil: it was not sent; guarded by lane.mu
	// answer and err are set before done is closed.
	answer []byte
	err    error
	done   chan struct{}
}

var _ grpc.ClientConnInterface = (*lane)(nil)

func newLane(conn *grpc.ClientConn) *lane {
	l := &lane{ClientConn: conn, calls: peerv1.NewLaneClient(conn), wake: make(chan struct{}, 1), sent: map[uint64]*errand{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

func (l *lane) close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	err := l.ClientConn.Close()
	l.done.Wait()
	return err
}

// Invoke implements grpc.ClientConnInterface. Of the options it heeds grpc.Peer: the
// address is set if the call was sent.
func (l *lane) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	request, err := proto.Marshal(in.(proto.Message))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if len(request) > laneErrand {
		return l.ClientConn.Invoke(ctx, method, in, out, opts...)
	}
	e := &errand{wire: &peerv1.Errand{Method: path.Base(method), Request: request}, done: make(chan struct{})}
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		if left <= 0 {
			return status.FromContextError(context.DeadlineExceeded).Err()
		}
		e.wire.Timeout = uint64(left.Microseconds()) + 1
	}
	if err := l.push(e); err != nil {
		return err
	}
	select {
	case <-e.done:
		err = e.err
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
		l.giveUp(e)
	}
	l.tellPeer(e, opts)
	if err == nil {
		if err = proto.Unmarshal(e.answer, out.(proto.Message)); err != nil {
			err = status.Error(codes.Internal, err.Error())
		}
	}
	return err
}

// tellPeer tells a caller that asks for the peer whether the errand was sent.
func (l *lane) tellPeer(e *errand, opts []grpc.CallOption) {
	l.mu.Lock()
	on := e.on
	l.mu.Unlock()
	if on == nil {
		return
	}
	for _, o := range opts {
		if want, ok := o.(grpc.PeerCallOption); ok {
			want.PeerAddr.Addr = laneAddr(l.Target())
		}
	}
}

// laneAddr is where a lane leads.
type laneAddr string

func (laneAddr) Network() string  { return "tcp" }
func (a laneAddr) String() string { return string(a) }

func (l *lane) push(e *errand) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return status.Error(codes.Canceled, "the client is closed")
	}
	if !l.runs {
		l.runs = true
		l.done.Go(l.run)
	}
	l.number++
	e.wire.Number = l.number
	l.waiting = append(l.waiting, e)
	l.poke()
	return nil
}

func (l *lane) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// giveUp forgets an errand that nobody waits for.
func (l *lane) giveUp(e *errand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.on != nil {
		if _, ok := l.sent[e.wire.Number]; ok {
			delete(l.sent, e.wire.Number)
			l.cancelled = append(l.cancelled, e.wire.Number)
			l.poke()
		}
		return
	}
	for i, w := range l.waiting {
		if w == e {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return
		}
	}
}

// run sends what waits, until the lane is closed.
func (l *lane) run() {
	for l.ctx.Err() == nil {
		select {
		case <-l.wake:
			gather(func() int {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.waiting)
			})
			l.send()
		case <-l.ctx.Done():
		}
	}
	l.fail(nil, status.Error(codes.Canceled, "the client is closed"))
}

// gather yields the processor as long as more comes to be sent.
func gather(length func() int) {
	for last := 0; ; {
		n := length()
		if n == last {
			return
		}
		last = n
		runtime.Gosched()
	}
}

// send forms messages of what waits and sends them.
func (l *lane) send() {
	for {
		on, err := l.stream()
		if err != nil {
			l.fail(nil, err)
			return
		}
		m := l.take(on)
		if m == nil {
			return
		}
		if err := on.Send(m); err != nil {
			return // receive learns why, and fails what was sent
		}
	}
}

// stream returns the stream to send on. Nothing is opened where nothing waits.
func (l *lane) stream() (*laneStream, error) {
	l.mu.Lock()
	on, idle := l.on, len(l.waiting) == 0
	if on != nil && on.closing {
		_ = on.CloseSend() // its error is that of Recv
		l.on, on = nil, nil
	}
	l.mu.Unlock()
	if on != nil || idle {
		return on, nil
	}
	s, err := l.calls.Carry(l.ctx)
	if err != nil {
		return nil, err
	}
	on = &laneStream{BidiStreamingClient: s}
	l.mu.Lock()
	l.on = on
	l.mu.Unlock()
	l.done.Go(func() { l.receive(on) })
	return on, nil
}

// take returns a message of what waits, nil where nothing does.
func (l *lane) take(on *laneStream) *peerv1.CarryRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on == nil || on != l.on {
		if len(l.waiting) > 0 {
			l.poke() // it broke meanwhile: by another
		}
		return nil
	}
	if len(l.waiting) == 0 && len(l.cancelled) == 0 {
		return nil
	}
	m := &peerv1.CarryRequest{Cancelled: l.cancelled}
	l.cancelled = nil
	n, size := 0, 0
	for n < len(l.waiting) && size < laneMessage {
		e := l.waiting[n]
		e.on = on
		l.sent[e.wire.Number] = e
		m.Errands = append(m.Errands, e.wire)
		size += len(e.wire.Request)
		n++
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return m
}

// receive takes the answers of a stream, until it ends.
func (l *lane) receive(on *laneStream) {
	for {
		m, err := on.Recv()
		if err != nil {
			l.ended(on, err)
			return
		}
		l.answered(m)
		if m.GetClosing() {
			l.mu.Lock()
			on.closing = true
			l.poke() // only one goroutine may send and close
			l.mu.Unlock()
		}
	}
}

func (l *lane) answered(m *peerv1.CarryResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range m.GetAnswers() {
		e := l.sent[a.GetNumber()]
		if e == nil {
			continue // given up
		}
		delete(l.sent, a.GetNumber())
		e.answer = a.GetResponse()
		if len(a.GetStatus()) > 0 {
			var s spb.Status
			if err := proto.Unmarshal(a.GetStatus(), &s); err != nil {
				e.err = status.Error(codes.Internal, err.Error())
			} else {
				e.err = status.ErrorProto(&s)
			}
		}
		close(e.done)
	}
}

func (l *lane) ended(on *laneStream, err error) {
	l.mu.Lock()
	if l.on == on {
		l.on = nil
		l.poke() // for what waits
	}
	l.mu.Unlock()
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Unavailable, "the stream has ended")
	}
	l.fail(on, err)
}

// fail ends what was sent on a stream; nil: what waits.
func (l *lane) fail(on *laneStream, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := func(e *errand) {
		e.err = err
		close(e.done)
	}
	if on == nil {
		for _, e := range l.waiting {
			end(e)
		}
		l.waiting = nil
		return
	}
	for number, e := range l.sent { // any order: each is another caller's
		if e.on == on {
			delete(l.sent, number)
			end(e)
		}
	}
}
