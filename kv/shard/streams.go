package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// HelloMagic are the first bytes of a connection between replicas, by which a port
// tells it from others. The rest of the hello is
//
//	uvarint version | cluster id | shard [4] | replica that is meant
//	(texts with their length before them, as one byte)
//
// and the answer one byte, 0 for yes, or a text that says why not (RULES A8).
const HelloMagic = "\xf3LianaRaft"

const (
	helloVersion = 1
	helloTime    = 5 * time.Second // for both sides
	maxHelloText = 255
)

// errForeignHello: the connection is for another cluster or another replica.
var errForeignHello = errors.New("refused the stream")

// streams are the incoming connections of one replica, and its way to others. It
// implements raft.StreamLayer; addresses are replica ids.
type streams struct {
	node    *Node
	shard   uint32
	replica string

	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once

	mu   sync.Mutex
	open map[*stream]struct{} // both ways; nil once closed
}

// stream is a connection that its streams know: Raft leaves those it has accepted open.
type stream struct {
	net.Conn
	of *streams
}

// Close implements net.Conn.
func (c *stream) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// know wraps a connection; one that comes too late is closed.
func (s *streams) know(conn net.Conn) net.Conn {
	c := &stream{conn, s}
	s.mu.Lock()
	late := s.open == nil
	if !late {
		s.open[c] = struct{}{}
	}
	s.mu.Unlock()
	if late {
		_ = conn.Close()
	}
	return c
}

// cut closes all connections, both ways, for good.
func (s *streams) cut() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range open { // any order
		_ = c.Conn.Close()
	}
}

func newStreams(n *Node, shard uint32, replica string) *streams {
	return &streams{node: n, shard: shard, replica: replica, incoming: make(chan net.Conn), closed: make(chan struct{}), open: map[*stream]struct{}{}}
}

// replicaAddr is a replica id as a net.Addr.
type replicaAddr string

func (replicaAddr) Network() string  { return "liana" }
func (a replicaAddr) String() string { return string(a) }

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.incoming:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *streams) Close() error {
	s.once.Do(func() { close(s.closed) })
	s.cut()
	return nil
}

// Addr implements net.Listener.
func (s *streams) Addr() net.Addr { return replicaAddr(s.replica) }

// Dial implements raft.StreamLayer.
func (s *streams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := s.node.cfg.Dial(ctx, NodeOf(string(to)))
	if err != nil {
		return nil, fmt.Errorf("shard %d: replica %s: %w", s.shard, to, err)
	}
	deadline, _ := ctx.Deadline()
	if err := greet(conn, deadline, hello{s.node.cfg.ClusterID, s.shard, string(to)}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("shard %d: replica %s: %w", s.shard, to, err)
	}
	return s.know(conn), nil
}

// hello says for whom a connection is.
type hello struct {
	cluster string
	shard   uint32
	replica string
}

func (h hello) encode() []byte {
	b := append([]byte(HelloMagic), helloVersion, byte(len(h.cluster)))
	b = binary.BigEndian.AppendUint32(append(b, h.cluster...), h.shard)
	return append(append(b, byte(len(h.replica))), h.replica...)
}

// readHello reads what encode wrote.
func readHello(r io.Reader) (h hello, err error) {
	head := make([]byte, len(HelloMagic)+1)
	if _, err := io.ReadFull(r, head); err != nil {
		return h, err
	}
	if !bytes.HasPrefix(head, []byte(HelloMagic)) || head[len(HelloMagic)] != helloVersion {
		return h, fmt.Errorf("%w: not a hello of version %d", errForeignHello, helloVersion)
	}
	if h.cluster, err = readText(r); err != nil {
		return h, err
	}
	var id [4]byte
	if _, err := io.ReadFull(r, id[:]); err != nil {
		return h, err
	}
	h.shard = binary.BigEndian.Uint32(id[:])
	h.replica, err = readText(r)
	return h, err
}

// readText reads a text behind its length.
func readText(r io.Reader) (string, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return "", err
	}
	b := make([]byte, n[0])
	_, err := io.ReadFull(r, b)
	return string(b), err
}

func greet(conn net.Conn, deadline time.Time, h hello) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write(h.encode()); err != nil {
		return err
	}
	why, err := readText(conn)
	if err != nil {
		return err
	}
	if why != "" {
		return fmt.Errorf("%w: %s", errForeignHello, why)
	}
	return conn.SetDeadline(time.Time{})
}

// Accept takes over a connection that another node has made: it begins with
// HelloMagic. It returns when the replica it is for has it, or it is closed.
func (n *Node) Accept(conn net.Conn) {
	if err := n.welcome(conn); err != nil {
		n.cfg.Logger.Debug("stream refused", "from", conn.RemoteAddr(), "err", err)
		_ = conn.Close()
	}
}

func (n *Node) welcome(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	h, err := readHello(conn)
	if err != nil {
		return err
	}
	s, why := n.meant(h)
	if _, err := conn.Write(append([]byte{byte(len(why))}, why...)); err != nil {
		return err
	}
	if why != "" {
		return fmt.Errorf("%w: %s", errForeignHello, why)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	select {
	case s.incoming <- s.know(conn):
		return nil
	case <-s.closed:
		return ErrStopped
	}
}

// meant returns the replica that a hello is for, or why there is none.
func (n *Node) meant(h hello) (*streams, string) {
	if h.cluster != n.cfg.ClusterID {
		return nil, "this node belongs to another cluster"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.shards[h.shard]
	switch {
	case s == nil || s.streams == nil:
		return nil, fmt.Sprintf("no replica of shard %d runs on this node", h.shard)
	case s.replica != h.replica:
		return nil, "another replica of the shard runs on this node"
	case s.fault.get() != nil:
		return nil, "the replica has failed"
	}
	return s.streams, ""
}

const (
	transportPool    = 3
	transportTimeout = 10 * time.Second
)

// peerTransport is Raft's network transport, with a second way in for its own replica.
type peerTransport struct {
	*raft.NetworkTransport
	rpcs chan raft.RPC
	stop chan struct{}
	once sync.Once
	done sync.WaitGroup
}

func newPeerTransport(t *raft.NetworkTransport) *peerTransport {
	p := &peerTransport{NetworkTransport: t, rpcs: make(chan raft.RPC), stop: make(chan struct{})}
	p.done.Go(func() {
		for {
			select {
			case rpc := <-t.Consumer():
				p.hand(rpc)
			case <-p.stop:
				return
			}
		}
	})
	return p
}

func (p *peerTransport) hand(rpc raft.RPC) {
	select {
	case p.rpcs <- rpc:
	case <-p.stop:
	}
}

// Consumer implements raft.Transport.
func (p *peerTransport) Consumer() <-chan raft.RPC { return p.rpcs }

// Close implements raft.WithClose.
func (p *peerTransport) Close() error {
	p.once.Do(func() { close(p.stop) })
	p.done.Wait()
	return p.NetworkTransport.Close()
}

// elect makes a replica that is alone in its group stand for election at once: nobody
// else can, so there is no heartbeat to wait for.
func (p *peerTransport) elect(conf *raft.Config) {
	header := raft.RPCHeader{ProtocolVersion: conf.ProtocolVersion, ID: []byte(conf.LocalID), Addr: []byte(conf.LocalID)}
	answer := make(chan raft.RPCResponse, 1)
	p.done.Go(func() {
		p.hand(raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: header}, RespChan: answer})
	})
}

// openTransport makes the way of a replica to the others.
func (s *Shard) openTransport() raft.Transport {
	if s.node.cfg.Dial == nil {
		_, t := raft.NewInmemTransport(raft.ServerAddress(s.replica))
		return t
	}
	s.streams = newStreams(s.node, s.id, s.replica)
	s.peers = newPeerTransport(raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s.streams, MaxPool: transportPool, Timeout: transportTimeout, Logger: raftLogger(s.logger),
	}))
	return s.peers
}
