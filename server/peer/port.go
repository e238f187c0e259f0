package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// Limits of the port.
const (
	// maxMessage is the size of the largest message: a batch of 10,000 edges with 1 KiB
	// of properties each, and a delivery of 256 KiB, are well below it.
	maxMessage = 32 << 20
	// Windows of flow control, per call and per connection. Named, they stay as they are:
	// else gRPC measures the connection with a ping for nearly every message.
	callWindow = 1 << 20
	connWindow = 4 << 20
	// firstByteWait is how long a new connection may take to say what it is.
	firstByteWait = 5 * time.Second
	// maxUnknown bounds connections that have not said what they are.
	maxUnknown = 256
	// stopWait is how long a stop waits for calls of other nodes.
	stopWait = 2 * time.Second
)

// Port serves one address to the other nodes of the cluster.
type Port struct {
	listener net.Listener
	log      *slog.Logger
	streams  func(net.Conn)
	grpc     *grpc.Server
	calls    chan net.Conn // connections for grpc
	unknown  chan struct{} // a slot for each connection that is being looked at

	stop chan struct{}
	once sync.Once
	done sync.WaitGroup
}

// Services are what a port serves. Streams takes over connections of Raft, which
// have been read up to nothing.
type Services struct {
	NodeID  string // calls that name another are refused
	Local   Local
	Cluster peerv1.ClusterServer
	Copies  Copies // nil: none
	Streams func(net.Conn)
}

// Listen opens a port. config may be nil: no TLS. Nothing is answered before Serve.
func Listen(addr string, config *tls.Config, log *slog.Logger) (*Port, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("peer port: %w", err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return &Port{
		listener: l, log: log,
		calls: make(chan net.Conn), unknown: make(chan struct{}, maxUnknown), stop: make(chan struct{}),
	}, nil
}

// Addr returns the address that others dial.
func (p *Port) Addr() string { return p.listener.Addr().String() }

// Serve answers until Stop.
func (p *Port) Serve(s Services) {
	p.streams = s.Streams
	p.grpc = grpc.NewServer(append(asked(s.NodeID),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(callWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	)...)
	local := &calls{local: s.Local}
	peerv1.RegisterCallsServer(p.grpc, local)
	peerv1.RegisterLaneServer(p.grpc, &carrier{calls: local, stop: p.stop})
	peerv1.RegisterAuditServer(p.grpc, &audit{local: s.Local})
	peerv1.RegisterCacheServer(p.grpc, &cacheCalls{local: s.Local, copies: s.Copies})
	peerv1.RegisterClusterServer(p.grpc, s.Cluster)
	p.done.Go(func() {
		// It ends with its listener.
		_ = p.grpc.Serve(&callListener{p: p, closed: make(chan struct{})})
	})
	p.done.Go(p.accept)
}

func (p *Port) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			p.log.Warn("peer port: accept", "error", err)
			select {
			case <-time.After(50 * time.Millisecond): // out of file descriptors
				continue
			case <-p.stop:
				return
			}
		}
		select {
		case p.unknown <- struct{}{}:
			p.done.Go(func() { p.sort(conn) })
		default:
			_ = conn.Close()
		}
	}
}

// sort hands a new connection to those it is for.
func (p *Port) sort(conn net.Conn) {
	first := make([]byte, 1)
	_ = conn.SetReadDeadline(time.Now().Add(firstByteWait))
	_, err := io.ReadFull(conn, first)
	<-p.unknown
	if err != nil || conn.SetReadDeadline(time.Time{}) != nil {
		if !errors.Is(err, io.EOF) { // not somebody who looks whether the port is open
			p.log.Warn("peer port: a connection was refused", "from", conn.RemoteAddr().String(), "error", err)
		}
		_ = conn.Close()
		return
	}
	whole := &begunConn{Conn: conn, begun: first}
	if first[0] == shard.HelloMagic[0] {
		p.streams(whole)
		return
	}
	select {
	case p.calls <- whole:
	case <-p.stop:
		_ = conn.Close()
	}
}

// Stop ends the port. Calls under way get a moment to end.
func (p *Port) Stop() {
	p.once.Do(func() {
		close(p.stop)
		_ = p.listener.Close()
		if p.grpc != nil {
			t := time.AfterFunc(stopWait, p.grpc.Stop)
			p.grpc.GracefulStop()
			t.Stop()
		}
	})
	p.done.Wait()
}

// begunConn is a connection whose first bytes were read already.
type begunConn struct {
	net.Conn
	begun []byte
}

func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.begun) > 0 {
		n := copy(b, c.begun)
		c.begun = c.begun[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// callListener gives gRPC the connections that are for it, until gRPC closes it.
type callListener struct {
	p      *Port
	closed chan struct{}
	once   sync.Once
}

func (l *callListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.p.calls:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *callListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *callListener) Addr() net.Addr { return l.p.listener.Addr() }

// Wire connects to an address. nil is TCP.
type Wire func(ctx context.Context, addr string) (net.Conn, error)

// dialer opens connections to peer ports.
type dialer struct {
	wire Wire
	tls  *tls.Config
}

func (d dialer) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := d.connect(ctx, addr)
	if err != nil || d.tls == nil {
		return conn, err
	}
	config := d.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

func (d dialer) connect(ctx context.Context, addr string) (net.Conn, error) {
	if d.wire != nil {
		return d.wire(ctx, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}
