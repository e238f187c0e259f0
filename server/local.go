package server

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// local is a connection to the services of this process that has no socket. The HTTP
// door calls through it, and so meets the interceptors that every other call meets.
type local struct {
	calls   *calls
	unary   map[string]localMethod
	streams map[string]localStream
	// open is held for reading by each call, and for writing for ever once the
	// server has stopped: no call begins then, and none is under way.
	open sync.RWMutex
}

type localMethod struct {
	impl   any
	handle func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error)
}

type localStream struct {
	impl   any
	handle grpc.StreamHandler
	info   *grpc.StreamServerInfo
}

func newLocal(c *calls) *local {
	return &local{calls: c, unary: map[string]localMethod{}, streams: map[string]localStream{}}
}

// RegisterService makes a service reachable. It makes local a grpc.ServiceRegistrar.
func (l *local) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		l.unary["/"+desc.ServiceName+"/"+m.MethodName] = localMethod{impl, m.Handler}
	}
	for _, s := range desc.Streams {
		name := "/" + desc.ServiceName + "/" + s.StreamName
		l.streams[name] = localStream{impl, s.Handler, &grpc.StreamServerInfo{
			FullMethod: name, IsClientStream: s.ClientStreams, IsServerStream: s.ServerStreams,
		}}
	}
}

// registrars passes services on to several: all doors have the same ones.
type registrars []grpc.ServiceRegistrar

func (rs registrars) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, r := range rs {
		r.RegisterService(desc, impl)
	}
}

// begin admits a call; end is called when it has ended.
func (l *local) begin(ctx context.Context, method string) (end func(), err error) {
	// It fails where somebody waits to write: the server stops.
	if !l.open.TryRLock() {
		return nil, l.calls.status(ctx, method, errStopping)
	}
	return l.open.RUnlock, nil
}

// close lets no call begin any more and returns when none is under way.
func (l *local) close() { l.open.Lock() }

// Invoke is of grpc.ClientConnInterface.
func (l *local) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	m, ok := l.unary[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	end, err := l.begin(ctx, method)
	if err != nil {
		return err
	}
	defer end()
	answer, err := m.handle(m.impl, ctx, func(req any) error { give(req, args); return nil }, l.calls.unary)
	if err != nil {
		return err
	}
	give(reply, answer)
	return nil
}

// give makes to what from is. Both share what lies below the first level: a message
// that was sent is not changed by its sender.
func give(to, from any) {
	dst := to.(proto.Message).ProtoReflect()
	from.(proto.Message).ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		dst.Set(f, v)
		return true
	})
}

// NewStream is of grpc.ClientConnInterface. There are streams from the server only:
// one request, many answers.
func (l *local) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	s, ok := l.streams[method]
	if !ok || s.info.IsClientStream {
		return nil, status.Errorf(codes.Unimplemented, "no stream from the server: %s", method)
	}
	return &localCall{local: l, localStream: s, ctx: ctx, answers: make(chan any), begun: make(chan struct{}), ended: make(chan struct{})}, nil
}

// localCall is the client's end of a stream.
type localCall struct {
	local *local
	localStream
	ctx     context.Context
	request any
	answers chan any // each is taken before the next is made
	begin   sync.Once
	begun   chan struct{} // closed at the first answer or header
	ended   chan struct{} // closed at the end; err is set then
	err     error
}

// SendMsg takes the request.
func (c *localCall) SendMsg(m any) error {
	c.request = m
	return nil
}

// CloseSend begins the call.
func (c *localCall) CloseSend() error {
	end, err := c.local.begin(c.ctx, c.info.FullMethod)
	if err != nil {
		c.err = err
		close(c.ended)
		return nil // told by Header and RecvMsg, as every error of a stream
	}
	c.local.calls.waiters.Go(func() {
		defer end()
		c.err = c.local.calls.stream(c.impl, &localServer{call: c}, c.info, c.handle)
		close(c.ended)
	})
	return nil
}

// Header returns when there is a first answer: until then an error can be told as that
// of the whole call.
func (c *localCall) Header() (metadata.MD, error) {
	select {
	case <-c.begun:
		return nil, nil
	case <-c.ended:
		return nil, c.err
	}
}

func (c *localCall) RecvMsg(m any) error {
	select {
	case answer := <-c.answers:
		give(m, answer)
		return nil
	case <-c.ended:
		if c.err != nil {
			return c.err
		}
		return io.EOF
	}
}

func (c *localCall) Trailer() metadata.MD     { return nil }
func (c *localCall) Context() context.Context { return c.ctx }

// localServer is the service's end.
type localServer struct {
	call *localCall
	read bool
}

func (s *localServer) Context() context.Context { return s.call.ctx }

func (s *localServer) RecvMsg(m any) error {
	if s.read {
		return io.EOF
	}
	s.read = true
	give(m, s.call.request)
	return nil
}

func (s *localServer) SendMsg(m any) error {
	s.start()
	select {
	case s.call.answers <- m:
		return nil
	case <-s.call.ctx.Done():
		return s.call.ctx.Err()
	}
}

func (s *localServer) start() { s.call.begin.Do(func() { close(s.call.begun) }) }

func (s *localServer) SetHeader(metadata.MD) error { return nil }

func (s *localServer) SendHeader(metadata.MD) error {
	s.start()
	return nil
}

func (s *localServer) SetTrailer(metadata.MD) {}
