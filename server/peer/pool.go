package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/lianadb/liana/graph"
)

// Pool holds one client for each other node. Addresses may change: a client whose
// node has another address now is made anew.
type Pool struct {
	dialer  dialer
	address func(node string) string // "" where it is not known

	mu      sync.Mutex
	closed  bool
	clients map[string]pooled
}

type pooled struct {
	addr   string
	client *Client
}

// NewPool returns an empty pool. address gives a node's peer address as it is known
// now; config may be nil: no TLS.
func NewPool(address func(node string) string, wire Wire, config *tls.Config) *Pool {
	return &Pool{dialer: dialer{wire, config}, address: address, clients: map[string]pooled{}}
}

// Client returns the client of a node. It connects when it is used.
func (p *Pool) Client(node string) (*Client, error) {
	addr := p.address(node)
	if addr == "" {
		return nil, fmt.Errorf("node %s: address unknown: %w", node, graph.ErrUnreachable)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("node %s: %w", node, graph.ErrUnreachable)
	}
	old, ok := p.clients[node]
	if ok && old.addr == addr {
		return old.client, nil
	}
	c, err := p.dialer.client(node, addr, meant(node)...)
	if err != nil {
		return nil, err
	}
	if ok {
		_ = old.client.conn.close()
	}
	p.clients[node] = pooled{addr, c}
	return c, nil
}

// Service is Client as a graph.Router wants it.
func (p *Pool) Service(node string) (graph.Service, error) {
	c, err := p.Client(node)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Dial connects to the peer port of a node, for a Raft stream.
func (p *Pool) Dial(ctx context.Context, node string) (net.Conn, error) {
	addr := p.address(node)
	if addr == "" {
		return nil, fmt.Errorf("node %s: address unknown", node)
	}
	return p.dialer.dial(ctx, addr)
}

// Close closes all connections.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, c := range p.clients { // any order: each is closed for itself
		errs = append(errs, c.client.conn.close())
	}
	clear(p.clients)
	return errors.Join(errs...)
}

// DialClient returns a client of the peer port at an address, before its node is
// known. The caller closes it.
func DialClient(addr string, wire Wire, config *tls.Config) (*Client, error) {
	return dialer{wire, config}.client(addr, addr)
}

// Close closes the client's connection.
func (c *Client) Close() error { return c.conn.close() }

func (d dialer) client(node, addr string, more ...grpc.DialOption) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, append(more,
		// TLS, where there is any, lies below: see dialer.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(d.dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(callWindow), grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * time.Second, Timeout: 2 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	)...)
	if err != nil {
		return nil, fmt.Errorf("node %s at %s: %w", node, addr, err)
	}
	return newClient(node, conn), nil
}
