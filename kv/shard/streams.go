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
//	version [1] | purpose [1] | cluster id | shard [4] | replica that is meant
//	(texts with their length before them, as one byte)
//
// and the answer a text in the same form: empty for yes, or why not (RULES A8).
const HelloMagic = "\xf3LianaRaft"

const (
	helloVersion = 1
	helloTime    = 5 * time.Second // for both sides
	maxHelloText = 255
	// maxGreetings bounds the connections of a node that have not said what they want,
	// maxAccepted those that a replica has taken: some ten from each other replica.
	maxGreetings = 128
	maxAccepted  = 256
)

// purpose is what a connection is for.
type purpose byte

const (
	forRaft      purpose = 1
	forQuestions purpose = 2
	forState     purpose = 3
	// forHeartbeats is meant for a node, whose id stands where the replica's does else;
	// the shard is 0.
	forHeartbeats purpose = 4
)

// errForeignHello: the connection is not for whoever got it.
var errForeignHello = errors.New("refused the stream")

// streams are the connections of one replica, both ways. It implements
// raft.StreamLayer; addresses are replica ids.
type streams struct {
	node    *Node
	shard   uint32
	replica string

	incoming chan net.Conn
	ctx      context.Context // ends with Close
	stop     context.CancelFunc

	mu       sync.Mutex
	open     map[*stream]struct{} // nil once closed
	accepted int
	using    sync.WaitGroup // of those accepted
}

func newStreams(n *Node, shard uint32, replica string) *streams {
	s := &streams{
		node: n, shard: shard, replica: replica,
		incoming: make(chan net.Conn), open: make(map[*stream]struct{}),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// stream is a connection that its streams know: Raft leaves open what it has pooled.
type stream struct {
	net.Conn
	of   *streams
	to   string // the replica dialed, "" where the other side did
	once sync.Once
	err  error
}

// Close implements net.Conn.
func (c *stream) Close() error {
	c.once.Do(func() {
		c.err = c.Conn.Close()
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		delete(c.of.open, c)
		if c.to == "" {
			c.of.accepted--
			c.of.using.Done()
		}
	})
	return c.err
}

// know takes a connection under control; one that cannot be is closed.
func (s *streams) know(conn net.Conn, to string) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open == nil:
		return nil, errors.Join(net.ErrClosed, conn.Close())
	case to == "" && s.accepted >= maxAccepted:
		return nil, errors.Join(fmt.Errorf("%w: too many streams", errForeignHello), conn.Close())
	}
	c := &stream{Conn: conn, of: s, to: to}
	s.open[c] = struct{}{}
	if to == "" {
		s.accepted++
		s.using.Add(1)
	}
	return c, nil
}

// cut breaks the connections that which names. Their users notice, and close them.
func (s *streams) cut(which func(*stream) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open { // any order
		if which(c) {
			_ = c.Conn.Close()
		}
	}
}

// Close implements net.Listener: it breaks all connections, for good.
func (s *streams) Close() error {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open { // any order
		_ = c.Conn.Close()
	}
	s.open = nil
	return nil
}

// replicaAddr is a replica id as a net.Addr.
type replicaAddr string

func (replicaAddr) Network() string  { return "liana" }
func (a replicaAddr) String() string { return string(a) }

// Addr implements net.Listener.
func (s *streams) Addr() net.Addr { return replicaAddr(s.replica) }

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.incoming:
		return c, nil
	case <-s.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Dial implements raft.StreamLayer.
func (s *streams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	return s.dial(ctx, string(to), forRaft)
}

// dial opens a connection to a replica. ctx has a deadline.
func (s *streams) dial(ctx context.Context, to string, p purpose) (net.Conn, error) {
	conn, err := s.node.cfg.Dial(ctx, NodeOf(to))
	if err != nil {
		return nil, fmt.Errorf("shard %d: replica %s: %w", s.shard, to, err)
	}
	c, err := s.know(conn, to)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := greet(c, deadline, hello{p, s.node.cfg.ClusterID, s.shard, to}); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("shard %d: replica %s: %w", s.shard, to, err)
	}
	return c, nil
}

// hello says for whom a connection is.
type hello struct {
	purpose purpose
	cluster string
	shard   uint32
	replica string
}

func (h hello) encode() []byte {
	b := append([]byte(HelloMagic), helloVersion, byte(h.purpose), byte(len(h.cluster)))
	b = binary.BigEndian.AppendUint32(append(b, h.cluster...), h.shard)
	return append(append(b, byte(len(h.replica))), h.replica...)
}

// readHello reads what encode wrote.
func readHello(r io.Reader) (h hello, err error) {
	head := make([]byte, len(HelloMagic)+2)
	if _, err := io.ReadFull(r, head); err != nil {
		return h, err
	}
	version := head[len(HelloMagic)]
	if !bytes.HasPrefix(head, []byte(HelloMagic)) || version != helloVersion {
		return h, fmt.Errorf("%w: not a hello of version %d", errForeignHello, helloVersion)
	}
	h.purpose = purpose(head[len(HelloMagic)+1])
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

// greet says the hello on a new connection, and hears the answer.
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

// greetings are the connections of a node whose hello is awaited.
type greetings struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func (g *greetings) begin(conn net.Conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrStopped
	}
	if len(g.open) >= maxGreetings {
		return fmt.Errorf("%w: too many connections", errForeignHello)
	}
	if g.open == nil {
		g.open = make(map[net.Conn]struct{})
	}
	g.open[conn] = struct{}{}
	return nil
}

func (g *greetings) end(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, conn)
}

func (g *greetings) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for conn := range g.open {
		_ = conn.Close()
	}
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
	if err := n.greetings.begin(conn); err != nil {
		return err
	}
	defer n.greetings.end(conn)
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	h, err := readHello(conn)
	if err != nil {
		return err
	}
	if h.purpose == forHeartbeats {
		return n.welcomeBeats(h, conn)
	}
	s, i, why := n.meant(h)
	if why != "" {
		return turnAway(conn, why)
	}
	c, err := i.streams.know(conn, "")
	if err != nil {
		return err
	}
	if _, err = c.Write([]byte{0}); err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	switch h.purpose {
	case forQuestions:
		go s.answer(i.raft, c) // ends with c
		return nil
	case forState:
		go s.receive(i.raft, c) // ends with c
		return nil
	}
	select {
	case i.streams.incoming <- c:
		return nil
	case <-i.streams.ctx.Done():
		return errors.Join(ErrStopped, c.Close())
	}
}

// turnAway says why a connection is not taken.
func turnAway(conn net.Conn, why string) error {
	why = why[:min(len(why), maxHelloText)]
	_, err := conn.Write(append([]byte{byte(len(why))}, why...))
	return errors.Join(fmt.Errorf("%w: %s", errForeignHello, why), err)
}

// welcomeBeats takes a connection for heartbeats.
func (n *Node) welcomeBeats(h hello, conn net.Conn) error {
	switch {
	case h.cluster != n.cfg.ClusterID:
		return turnAway(conn, foreignCluster)
	case h.replica != n.ID():
		return turnAway(conn, "another node has this address")
	case n.cfg.Dial == nil:
		return turnAway(conn, "this node takes no streams")
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	return n.beats.serve(conn)
}

// foreignCluster is said to nodes that took this one for another's.
const foreignCluster = "this node belongs to another cluster"

// meant returns the replica that a hello is for, or why there is none.
func (n *Node) meant(h hello) (*Shard, *instance, string) {
	if h.cluster != n.cfg.ClusterID {
		return nil, nil, foreignCluster
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.shards[h.shard]
	if s == nil {
		return nil, nil, fmt.Sprintf("no replica of shard %d runs on this node", h.shard)
	}
	i := s.instance.Load()
	switch {
	case i.streams == nil:
		return nil, nil, "this node takes no streams"
	case s.replica != h.replica:
		return nil, nil, "another replica of the shard runs on this node"
	case s.fault.get() != nil:
		return nil, nil, "the replica has failed"
	case h.purpose < forRaft || h.purpose > forState:
		return nil, nil, "a purpose that this version of the program does not know"
	}
	return s, i, ""
}
