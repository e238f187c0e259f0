package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lianadb/liana/graph"
)

// UnknownOutcome is how the error of a write begins of which nobody knows whether it took
// effect. No client repeats a command by itself because of it (RULES B5).
const UnknownOutcome = "UNKNOWNOUTCOME"

// Host is what the port needs of the process.
type Host struct {
	// Backend returns what is served; nil while the node starts.
	Backend func() Backend
	// Explain returns an error as the client sees it: a prefix in capitals, and a text. One
	// of a write with an unknown outcome begins with UnknownOutcome.
	Explain func(error) string
	// Observe is told of each batch of commands.
	Observe func(took time.Duration, commands int)
	// Version is that of the program.
	Version func() string
	Log     *slog.Logger
}

// Server is the port.
type Server struct {
	cfg      Config
	host     Host
	listener net.Listener
	since    time.Time
	catalog  *catalog
	buffers  budget
	batches  sync.Pool
	ids      atomic.Uint64
	figures  figures

	ctx      context.Context // of the calls; ends when a stop runs out of time
	cancel   context.CancelFunc
	stopping atomic.Bool

	mu    sync.Mutex
	conns map[*conn]struct{}
	owned sync.WaitGroup // the accepting goroutine and the connections
}

var errStopping = errors.New("the server is stopping")

// Listen binds addr. Nobody is answered before Serve.
func Listen(addr string, cfg Config, host Host) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, host: host, listener: l, since: time.Now(), catalog: newCatalog(),
		buffers: budget{limit: int64(cfg.MaxBufferBytes)}, conns: map[*conn]struct{}{},
	}
	s.figures.ends = map[string]uint64{}
	s.batches.New = func() any { return new(batch) }
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Addr is where the port is bound.
func (s *Server) Addr() string { return s.listener.Addr().String() }

func (s *Server) port() int {
	if a, ok := s.listener.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// Serve accepts connections until Stop. It returns nil then.
func (s *Server) Serve() error {
	s.owned.Add(1)
	defer s.owned.Done()
	for pause := time.Millisecond; ; {
		n, err := s.listener.Accept()
		switch {
		case err == nil:
			pause = time.Millisecond
			s.accept(n)
			continue
		case s.stopping.Load():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("resp: %w", err)
		}
		// Too many open files, or the like: it passes.
		s.host.Log.Warn("cannot accept a connection", "port", "resp", "error", err)
		time.Sleep(pause)
		pause = min(2*pause, time.Second)
	}
}

func (s *Server) accept(n net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() || len(s.conns) >= s.cfg.MaxConnections {
		s.figures.refused.Add(1)
		_ = n.SetWriteDeadline(time.Now().Add(promptly))
		_, _ = n.Write([]byte("-ERR max number of clients reached\r\n"))
		_ = n.Close()
		return
	}
	c := s.newConn(n)
	s.conns[c] = struct{}{}
	s.figures.accepted.Add(1)
	s.owned.Go(c.serve)
}

// ended takes a connection off the list.
func (s *Server) ended(c *conn, err error) {
	why := ending(err)
	s.mu.Lock()
	delete(s.conns, c)
	if why != "" {
		s.figures.ends[why]++
	}
	s.mu.Unlock()
	switch why {
	case "attack":
		s.host.Log.Warn("connection closed: it is not a Redis client but a browser or the like", "port", "resp",
			"peer", c.net.RemoteAddr(), "error", err)
	case "", "network":
	default:
		s.host.Log.Info("connection closed", "port", "resp", "peer", c.net.RemoteAddr(), "error", err)
	}
}

// lastWords is how long calls that were cut off may take to tell so: a client that only sees
// its connection end repeats what it sent.
const lastWords = 250 * time.Millisecond

// Stop ends the port: no connection is accepted any more, commands that are being executed
// are answered, and what is left when ctx ends is cut off. It is called once.
func (s *Server) Stop(ctx context.Context) error {
	s.stopping.Store(true)
	_ = s.listener.Close()
	s.each(func(c *conn) { _ = c.net.SetReadDeadline(time.Now()) })
	done := make(chan struct{})
	go func() {
		s.owned.Wait()
		close(done)
	}()
	select {
	case <-done:
		s.cancel()
		return nil
	case <-ctx.Done():
	}
	s.cancel()
	select {
	case <-done:
	case <-time.After(lastWords):
	}
	left := 0
	s.each(func(c *conn) {
		left++
		_ = c.net.Close()
	})
	<-done
	return fmt.Errorf("resp: %d connections cut off", left)
}

func (s *Server) each(f func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns { // any order
		f(c)
	}
}

// maxListed bounds the answer to CLIENT LIST.
const maxListed = 1000

func (s *Server) list() string {
	var b strings.Builder
	n := 0
	s.each(func(c *conn) {
		if n++; n <= maxListed {
			b.WriteString(c.describe())
		}
	})
	return b.String()
}

func (s *Server) takeBatch(schema *graph.Schema) *batch {
	b := s.batches.Get().(*batch)
	b.schema = schema
	return b
}

func (s *Server) giveBatch(b *batch) {
	if b.large() {
		return
	}
	b.reset()
	s.batches.Put(b)
}
