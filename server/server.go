package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pb "github.com/lianadb/liana/proto/liana/v1"
	"github.com/lianadb/liana/server/resp"
)

// Server listens and answers. It starts without a domain: health says
// NOT_SERVING and calls get UNAVAILABLE until Attach gives it one, so that who
// watches sees a starting server and not a dead one.
type Server struct {
	cfg    Config
	log    *slog.Logger
	calls  *calls
	health *health.Server
	grpc   *grpc.Server
	local  *local // the services, for the HTTP door
	http   *http.Server

	grpcListener, httpListener net.Listener
	resp                       *resp.Server

	ready  chan struct{} // closed when the server is ready for the first time
	failed chan error
	owned  sync.WaitGroup // the serving goroutines and the watch of readiness
}

// Listen binds the addresses of cfg and begins to answer. Nothing is bound when
// it fails.
func Listen(cfg Config, log *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	grpcListener, err := listen("grpc_addr", cfg.GRPCAddr)
	if err != nil {
		return nil, err
	}
	httpListener, err := listen("http_addr", cfg.HTTPAddr)
	if err != nil {
		return nil, errors.Join(err, grpcListener.Close())
	}
	reg := newRegistry()
	s := &Server{
		cfg: cfg, log: log, calls: newCalls(cfg, log, newCallMetrics(reg)), health: health.NewServer(),
		grpcListener: grpcListener, httpListener: httpListener,
		ready: make(chan struct{}), failed: make(chan error, 3),
	}
	s.local = newLocal(s.calls)
	door, err := s.newDoor()
	if err != nil {
		return nil, errors.Join(err, grpcListener.Close(), httpListener.Close())
	}
	if s.resp, err = s.listenRESP(s.calls.metrics); err != nil {
		return nil, errors.Join(err, grpcListener.Close(), httpListener.Close())
	}
	reg.MustRegister(nodeMetrics{s})
	s.grpc = s.newGRPC()
	s.http = s.newHTTP(reg, door)
	s.serve()
	return s, nil
}

func listen(field, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, bindError(field, err)
	}
	return l, nil
}

func bindError(field string, err error) error {
	return fmt.Errorf("%s: %w; stop what listens there, or choose another address", field, err)
}

func (s *Server) newGRPC() *grpc.Server {
	l := s.cfg.Limits
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(l.MaxMessageBytes),
		grpc.MaxConcurrentStreams(l.MaxConnectionCalls),
		grpc.InitialWindowSize(callWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.MaxHeaderListSize(16<<10),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.UnaryInterceptor(s.calls.unary),
		grpc.StreamInterceptor(s.calls.stream),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	s.register(registrars{g, s.local})
	healthpb.RegisterHealthServer(g, s.health)
	reflection.Register(g)
	for name, info := range g.GetServiceInfo() {
		for _, m := range info.Methods {
			s.calls.metrics.add("/" + name + "/" + m.Name)
		}
	}
	s.setHealth(false)
	return g
}

// register adds the services to r.
func (s *Server) register(r grpc.ServiceRegistrar) {
	pb.RegisterGraphServer(r, &graphService{calls: s.calls})
	pb.RegisterCountersServer(r, &counterService{calls: s.calls})
	pb.RegisterChangesServer(r, &changeService{calls: s.calls})
	pb.RegisterAdminServer(r, &adminService{calls: s.calls, scans: make(chan struct{}, maxScans)})
	pb.RegisterClusterServer(r, &clusterService{calls: s.calls})
	pb.RegisterCacheServer(r, &cacheService{calls: s.calls})
}

func (s *Server) serve() {
	s.owned.Go(func() {
		if err := s.grpc.Serve(s.grpcListener); err != nil {
			s.failed <- fmt.Errorf("grpc: %w", err)
		}
	})
	s.owned.Go(func() {
		if err := s.http.Serve(s.httpListener); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("http: %w", err)
		}
	})
	s.owned.Go(func() {
		if err := s.resp.Serve(); err != nil {
			s.failed <- err
		}
	})
	s.owned.Go(s.watchReadiness)
}

// Attach gives the server what it serves. It is called once.
func (s *Server) Attach(a Attachment) { s.calls.attached.Store(&a) }

// GRPCAddr and HTTPAddr are the addresses that were bound.
func (s *Server) GRPCAddr() string { return s.grpcListener.Addr().String() }

// HTTPAddr is where the HTTP port is.
func (s *Server) HTTPAddr() string { return s.httpListener.Addr().String() }

// RESPAddr is where the Redis-protocol port is.
func (s *Server) RESPAddr() string { return s.resp.Addr() }

// Ready is closed when every shard serves for the first time.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Failed tells of a port that can no longer be served.
func (s *Server) Failed() <-chan error { return s.failed }

// Readiness is nil when every shard serves.
func (s *Server) Readiness() error {
	if s.calls.stopping.Err() != nil {
		return errStopping
	}
	a := s.calls.attached.Load()
	if a == nil {
		return errNotReady
	}
	return a.Backend.Ready()
}

// streamWorkers are goroutines that serve calls one after the other, with stacks
// that have grown already. With more calls at once, gRPC starts others.
const streamWorkers = 128

// Windows of flow control for what clients send, per call and per connection. Named, they
// stay as they are: else gRPC measures each connection with a ping for nearly every message.
const (
	callWindow = 1 << 20
	connWindow = 2 << 20
)

// Times between two looks at the shards: until they serve, and from then on. Each look
// is at all of them, and of an idle node with many that would be a good part of the work.
const (
	readyInterval  = 50 * time.Millisecond
	healthInterval = 250 * time.Millisecond
)

// watchReadiness keeps the health service in step with the shards.
func (s *Server) watchReadiness() {
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	serving, first := false, true
	for {
		select {
		case <-s.calls.stopping.Done():
			return
		case <-tick.C:
		}
		err := s.Readiness()
		if (err == nil) == serving {
			continue
		}
		serving = err == nil
		s.setHealth(serving)
		switch {
		case serving && first:
			first = false
			tick.Reset(healthInterval)
			close(s.ready)
		case serving:
			s.log.Info("ready again")
		default:
			s.log.Warn("not ready", "reason", firstLine(err.Error()))
		}
	}
}

func (s *Server) setHealth(serving bool) {
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		st = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range []string{
		"", pb.Graph_ServiceDesc.ServiceName, pb.Counters_ServiceDesc.ServiceName, pb.Changes_ServiceDesc.ServiceName, pb.Admin_ServiceDesc.ServiceName,
	} {
		s.health.SetServingStatus(name, st)
	}
}

// Stop ends the server: health turns to NOT_SERVING, streams end with
// UNAVAILABLE, calls in flight are answered. When ctx ends before they are, their
// contexts are cancelled and the error says so. It is called once, and returns
// when no call is running any more.
func (s *Server) Stop(ctx context.Context) error {
	s.health.Shutdown()
	s.calls.stop()
	graceful := make(chan struct{})
	go func() {
		var doors sync.WaitGroup
		doors.Go(s.grpc.GracefulStop)
		doors.Go(s.local.close)
		doors.Wait()
		close(graceful)
	}()
	redis := make(chan error, 1)
	go func() { redis <- s.resp.Stop(ctx) }()
	var err error
	select {
	case <-graceful:
	case <-ctx.Done():
		err = fmt.Errorf("stopped with %d calls and %d streams unanswered", s.calls.inFlight.Load(), s.calls.streams.Load())
		s.grpc.Stop()
		_ = s.http.Close() // ends the contexts of what came in there
		<-graceful
	}
	err = errors.Join(err, <-redis)
	s.stopHTTP(ctx)
	s.calls.waiters.Wait()
	s.owned.Wait()
	return err
}

// httpGrace is what a scrape under way gets; a profile of half a minute is cut.
const httpGrace = 500 * time.Millisecond

func (s *Server) stopHTTP(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, httpGrace)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}
