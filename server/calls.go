package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// calls is what every call passes through: admission, deadline, the guard
// against panics, metrics, the log of slow calls, and the turning of errors into
// statuses. The services embed it to reach the domain.
type calls struct {
	limits  Limits
	slow    time.Duration
	log     *slog.Logger
	metrics *callMetrics
	table   table
	// attached is what the calls are about; nil while the server starts.
	attached atomic.Pointer[Attachment]

	inFlight atomic.Int64
	streams  atomic.Int64
	bytes    atomic.Int64 // of the requests being handled

	// stopping ends when the server begins to stop: streams end then, calls are
	// answered.
	stopping context.Context
	stop     context.CancelFunc
	// waiters are goroutines that wait for a client's next message, or for a client to
	// take one. They end with their stream, a little after its handler.
	waiters sync.WaitGroup

	slowLog, faultLog throttle
}

func newCalls(cfg Config, log *slog.Logger, m *callMetrics) *calls {
	ctx, cancel := context.WithCancel(context.Background())
	return &calls{
		limits: cfg.Limits, slow: cfg.SlowCall, log: log, metrics: m, table: rules(), stopping: ctx, stop: cancel,
	}
}

// domain is the backend; the interceptors let no call through before there is one.
func (c *calls) domain() Backend { return c.attached.Load().Backend }

// ours reports whether a method is Liana's own: health and reflection answer
// always.
func ours(method string) bool { return strings.HasPrefix(method, "/liana.") }

// enter admits a call, counting it in n, which must not pass limit.
func (c *calls) enter(method string, n *atomic.Int64, limit int) error {
	if !ours(method) {
		return nil
	}
	if c.attached.Load() == nil {
		return errNotReady
	}
	if n.Load() > int64(limit) {
		return fmt.Errorf("%w (allowed: %d)", errTooManyCalls, limit)
	}
	return nil
}

func (c *calls) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	start := time.Now()
	c.inFlight.Add(1)
	size, tooMuch := c.hold(req)
	defer func() {
		c.inFlight.Add(-1)
		c.bytes.Add(-size)
		err = c.leave(ctx, info.FullMethod, start, c.caught(info.FullMethod, recover(), err))
		c.logSlow(ctx, info.FullMethod, start, err)
	}()
	if err := c.enter(info.FullMethod, &c.inFlight, c.limits.MaxCalls); err != nil {
		return nil, err
	}
	if tooMuch != nil && ours(info.FullMethod) {
		return nil, tooMuch
	}
	if deadline, ok := ctx.Deadline(); !ok || deadline.Sub(start) > c.limits.MaxCallTime {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.limits.MaxCallTime)
		defer cancel()
	}
	return handle(ctx, req)
}

// hold counts the bytes of a request, which the caller takes off again, error or
// not. What is refused has been read and decoded: the bound is on what waits for
// disks and other nodes, and keeps its bytes meanwhile.
func (c *calls) hold(req any) (size int64, err error) {
	if m, ok := req.(proto.Message); ok {
		size = int64(proto.Size(m))
	}
	if c.bytes.Add(size) > int64(c.limits.MaxCallBytes) {
		err = fmt.Errorf("%w (allowed: %d bytes of requests)", errTooManyCalls, c.limits.MaxCallBytes)
	}
	return size, err
}

func (c *calls) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ss.Context())
	c.streams.Add(1)
	defer func() {
		cancel(nil)
		c.streams.Add(-1)
		err = c.leave(ctx, info.FullMethod, start, c.caught(info.FullMethod, recover(), err))
	}()
	if err := c.enter(info.FullMethod, &c.streams, c.limits.MaxStreams); err != nil {
		return err
	}
	if info.IsClientStream {
		// What is being handled when the server stops is answered: only the wait for
		// the client's next message ends.
		return handle(srv, &clientStream{ServerStream: ss, calls: c})
	}
	defer context.AfterFunc(c.stopping, func() { cancel(errStopping) })()
	err = handle(srv, &serverStream{ServerStream: ss, ctx: ctx, calls: c})
	if err != nil && context.Cause(ctx) == errStopping && !errors.Is(err, errStopping) {
		return errStopping
	}
	return err
}

// serverStream ends when its context does, and when its client does not read: what
// a check or an export holds meanwhile, others wait for.
type serverStream struct {
	grpc.ServerStream
	ctx   context.Context
	calls *calls
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) SendMsg(m any) error {
	done := make(chan error, 1)
	s.calls.waiters.Go(func() { done <- s.ServerStream.SendMsg(m) })
	limit := time.NewTimer(s.calls.limits.MaxCallTime)
	defer limit.Stop()
	ended := s.ctx.Done()
	for {
		select {
		case err := <-done:
			return err
		case <-ended:
			ended = nil
			limit.Reset(lastMessage)
		case <-limit.C:
			if s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
			return fmt.Errorf("%w (allowed: %v for a message)", errNotRead, s.calls.limits.MaxCallTime)
		}
	}
}

// lastMessage is how long a stream that ends waits for its client to take a message
// all the same, such as that of the health service that says so.
const lastMessage = 100 * time.Millisecond

// clientStream is a stream whose RecvMsg ends when the server stops.
type clientStream struct {
	grpc.ServerStream
	calls *calls
}

func (s *clientStream) RecvMsg(m any) error {
	done := make(chan error, 1)
	s.calls.waiters.Go(func() { done <- s.ServerStream.RecvMsg(m) })
	select {
	case err := <-done:
		return err
	case <-s.calls.stopping.Done():
		return errStopping
	}
}

// caught turns a panic into an error; the process goes on.
func (c *calls) caught(method string, panicked any, err error) error {
	if panicked == nil {
		return err
	}
	c.metrics.panics.Inc()
	c.log.Error("panic in a call", "method", method, "panic", panicked, "stack", string(debug.Stack()))
	return errPanic
}

// leave counts a call and makes the status of its error.
func (c *calls) leave(ctx context.Context, method string, start time.Time, err error) error {
	if err != nil {
		err = c.status(ctx, method, err)
	}
	c.metrics.observe(method, status.Code(err), time.Since(start))
	return err
}

func (c *calls) logSlow(ctx context.Context, method string, start time.Time, err error) {
	took := time.Since(start)
	if c.slow == 0 || took < c.slow || !ours(method) {
		return
	}
	if n, ok := c.slowLog.allow(); ok {
		c.log.Warn("slow call", "method", method, "took", took, "code", status.Code(err).String(),
			"peer", peerAddr(ctx), "not_logged", n)
	}
}

func (c *calls) status(ctx context.Context, method string, err error) error {
	if st, ok := status.FromError(err); ok { // of grpc's own services
		return st.Err()
	}
	v := c.table.judge(err)
	if ref := c.report(ctx, v, err, "method", method); ref != "" {
		v.message += " (reference " + ref + " in the server's log)"
	}
	return v.status()
}

// report logs an error that an operator should read of, and returns the
// reference under which it stands in the log.
func (c *calls) report(ctx context.Context, v verdict, err error, args ...any) string {
	if !v.serious() {
		return ""
	}
	n, ok := c.faultLog.allow()
	if !ok {
		return ""
	}
	ref := fmt.Sprintf("%08x", rand.Uint32())
	c.log.Error("call failed", append(args, "reason", v.reason, "error", err, "reference", ref, "peer", peerAddr(ctx), "not_logged", n)...)
	return ref
}

func peerAddr(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// throttle lets a kind of log line through ten times a second, so that a storm
// of failing calls does not become a storm of writes.
type throttle struct {
	mu      sync.Mutex
	second  int64
	used    int
	skipped int
}

const linesPerSecond = 10

// allow reports whether a line may be written, and how many were not since the
// last one.
func (t *throttle) allow() (skipped int, ok bool) {
	now := time.Now().Unix()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now != t.second {
		t.second, t.used = now, 0
	}
	if t.used >= linesPerSecond {
		t.skipped++
		return 0, false
	}
	t.used++
	skipped, t.skipped = t.skipped, 0
	return skipped, true
}
