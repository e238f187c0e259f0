package shard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Heartbeats of all groups between two nodes share one connection and few messages: a
// node with many idle groups would do little else than send them one by one. A message
// and its answer are
//
//	length [4] | mark uvarint | heartbeat …   shard uvarint | term uvarint | replica that is meant | leader |
//	                                          open [1] | applied uvarint | committed uvarint
//	length [4] | mark uvarint | answer …      0, term uvarint, last entry uvarint, success [1], behind [1]; or 1, why not
//
// with answers in the order of the heartbeats and texts behind their length (uvarint).
//
// They carry what followers of idle groups would else have to be told, and to ask, one by
// one. A mark is the answering node's clock; the next message brings it back, so what
// that tells of a leader is newer than the mark. A follower that has not heard that all up to
// committed is so says that it is behind.
const (
	maxBeats     = 1 << 12 // in one message
	maxBeatBytes = 1 << 20
)

// beat is a heartbeat of one group on its way.
type beat struct {
	shard    uint32
	term     uint64
	replica  string // that is meant
	leader   string
	stands   func(term uint64) standing // asked when the message is formed
	standing standing
	answered chan beatAnswer // of capacity 1
}

// standing is how far a leader is.
type standing struct {
	open      bool // it leads the term, and has opened it
	applied   uint64
	committed uint64
}

type beatAnswer struct {
	term, last uint64
	success    bool
	behind     bool // it does not know all to be committed that is
	err        error
}

// beats are a node's ways to send heartbeats, one for each other node.
type beats struct {
	node *Node
	ctx  context.Context // ends with close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	to     map[string]*beatLine
	served int // connections
}

func newBeats(n *Node) *beats {
	b := &beats{node: n, to: make(map[string]*beatLine)}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// send hands a heartbeat over; its answer comes in any case.
func (b *beats) send(one *beat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		one.answered <- beatAnswer{err: ErrStopped}
		return
	}
	to := NodeOf(one.replica)
	line := b.to[to]
	if line == nil {
		line = &beatLine{beats: b, to: to, wake: make(chan struct{}, 1)}
		b.to[to] = line
		b.wg.Go(line.run)
	}
	line.add(one)
}

func (b *beats) close() {
	b.mu.Lock()
	b.stop()
	b.mu.Unlock()
	b.wg.Wait()
}

// beatLine sends the heartbeats to one node.
type beatLine struct {
	*beats
	to   string
	wake chan struct{}

	mu      sync.Mutex
	waiting []*beat

	// Of the goroutine run:
	conn net.Conn
	mark uint64 // of the newest answer on conn; 0: none
}

func (l *beatLine) add(one *beat) {
	l.mu.Lock()
	l.waiting = append(l.waiting, one)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *beatLine) take() []*beat {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), maxBeats)
	taken := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	if len(l.waiting) > 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return taken
}

// run sends what has gathered. Groups beat each tenth of the heartbeat timeout, and
// more than that is how long the first waits for others: about two come in the least time
// after which a follower stands for election. Raft wakes a goroutine for each heartbeat, so twice
// the time would cost an idle node a fifth less; but then a machine that is short of
// processors loses its leaders.
func (l *beatLine) run() {
	gather := l.node.cfg.PeerHeartbeat / 4
	for l.ctx.Err() == nil {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			continue
		}
		select {
		case <-time.After(gather):
		case <-l.ctx.Done():
		}
		l.tell(l.take())
	}
	l.drop()
	for _, one := range l.waiting { // nobody adds any more
		one.answered <- beatAnswer{err: ErrStopped}
	}
}

func (l *beatLine) tell(sent []*beat) {
	answers, err := l.exchange(sent)
	if err != nil {
		l.drop()
		err = fmt.Errorf("heartbeat to node %s: %w", l.to, err)
	}
	for i, one := range sent {
		if err != nil {
			one.answered <- beatAnswer{err: err}
		} else {
			one.answered <- answers[i]
		}
	}
}

func (l *beatLine) exchange(sent []*beat) ([]beatAnswer, error) {
	ctx, cancel := context.WithTimeout(l.ctx, transportTimeout)
	defer cancel()
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	conn := l.conn
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	for _, one := range sent {
		one.standing = one.stands(one.term) // it comes after the mark
	}
	if err := writeFrame(conn, encodeBeats(l.mark, sent)); err != nil {
		return nil, err
	}
	b, err := readFrame(conn)
	if err != nil {
		return nil, err
	}
	mark, answers, err := decodeBeatAnswers(b, len(sent))
	l.mark = mark
	return answers, err
}

func (l *beatLine) connect(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	conn, err := l.node.cfg.Dial(ctx, l.to)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	if err := greet(conn, deadline, hello{forHeartbeats, l.node.cfg.ClusterID, 0, l.to}); err != nil {
		return errors.Join(err, conn.Close())
	}
	l.conn = conn
	return nil
}

func (l *beatLine) drop() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn, l.mark = nil, 0
	}
}

// serve begins to answer the heartbeats that come in on a connection, until it ends.
func (b *beats) serve(conn net.Conn) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ctx.Err() != nil:
		return ErrStopped
	case b.served >= maxAccepted:
		return fmt.Errorf("%w: too many connections for heartbeats", errForeignHello)
	}
	b.served++
	b.wg.Go(func() {
		if from := b.answerAll(conn); from != "" {
			b.missed(from)
		}
	})
	return nil
}

// answerAll answers until the connection ends, and returns the node at its other end.
func (b *beats) answerAll(conn net.Conn) (from string) {
	defer b.ended(conn)
	defer context.AfterFunc(b.ctx, func() { _ = conn.Close() })()
	for {
		got, err := b.answerOnce(conn)
		if err != nil {
			return from
		}
		if len(got) > 0 {
			from = NodeOf(got[0].leader)
		}
	}
}

func (b *beats) ended(conn net.Conn) {
	_ = conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.served--
}

func (b *beats) answerOnce(conn net.Conn) ([]*beat, error) {
	frame, err := readFrame(conn)
	if err != nil {
		return nil, err
	}
	mark, got, err := decodeBeats(frame)
	if err != nil {
		return nil, err
	}
	answers := b.node.takeBeats(b.node.pulse.at(mark), got)
	return got, writeFrame(conn, encodeBeatAnswers(uint64(b.node.pulse.now()), answers))
}

// takeBeats hands heartbeats to their replicas. marked is a time before their leaders
// stood as they say. A replica may have to save a term first, on a disk that hangs. The
// next message comes only when this one is answered, with the heartbeats of all groups, so a
// replica is waited for as long as they gather: both together are half of the time after
// which a follower stands for election.
func (n *Node) takeBeats(marked time.Time, got []*beat) []beatAnswer {
	for _, one := range got {
		_, i, why := n.meant(hello{forRaft, n.cfg.ClusterID, one.shard, one.replica})
		if why != "" {
			one.answered <- beatAnswer{err: errors.New(why)}
			continue
		}
		if t := i.transport; t.knows(one.term) {
			t.takeBeat(marked, one)
		} else {
			go t.takeBeat(marked, one)
		}
	}
	ctx, cancel := context.WithTimeout(n.beats.ctx, n.cfg.PeerHeartbeat/4)
	defer cancel()
	answers := make([]beatAnswer, len(got))
	for i, one := range got {
		select {
		case answers[i] = <-one.answered:
		case <-ctx.Done():
			select { // it may be there all the same
			case answers[i] = <-one.answered:
			default:
				answers[i] = beatAnswer{err: errors.New("the replica is busy")}
			}
		}
	}
	return answers
}

// beat sends a heartbeat of Raft.
func (p *peerTransport) beat(to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	one := &beat{
		shard: p.streams.shard, term: args.Term, replica: string(to), leader: p.streams.replica, stands: p.stands,
		answered: make(chan beatAnswer, 1),
	}
	if p.streams.ctx.Err() != nil { // a replica that failed is not kept leader (RULES A9)
		return ErrStopped
	}
	p.streams.node.beats.send(one)
	select {
	case a := <-one.answered:
		if a.term > args.Term {
			p.heard.Store(a.term)
			p.pacer.ring()
		}
		if a.behind || a.err != nil { // who is not there is found out by sending only
			p.untold(to).Store(true)
			p.pacer.ring()
		}
		*resp = raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: args.ProtocolVersion}, Term: a.term, LastLog: a.last, Success: a.success}
		return a.err
	case <-p.stop:
		return ErrStopped
	}
}

// SetHeartbeatHandler implements raft.Transport.
func (p *peerTransport) SetHeartbeatHandler(handle func(raft.RPC)) {
	p.heartbeat.Store(&handle)
	p.NetworkTransport.SetHeartbeatHandler(handle)
}

// knows reports whether the replica has saved a term, so that a heartbeat of it is
// taken without a disk.
func (p *peerTransport) knows(term uint64) bool {
	r := p.raft.Load()
	return r != nil && term <= r.CurrentTerm()
}

// takeBeat gives a heartbeat to this replica.
func (p *peerTransport) takeBeat(marked time.Time, one *beat) {
	handle := p.heartbeat.Load()
	if handle == nil || *handle == nil {
		one.answered <- beatAnswer{err: errors.New("the replica starts")}
		return
	}
	answer := make(chan raft.RPCResponse, 1)
	leader := []byte(one.leader)
	(*handle)(raft.RPC{RespChan: answer, Command: &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: leader, Addr: leader}, Term: one.term,
	}})
	select {
	case r := <-answer:
		a := beatAnswer{err: r.Error}
		if resp, ok := r.Response.(*raft.AppendEntriesResponse); ok {
			a.term, a.last, a.success = resp.Term, resp.LastLog, resp.Success
		}
		if a.success && a.term == one.term {
			if one.standing.open && !marked.IsZero() {
				p.fresh.told(freshMark{one.standing.applied, marked})
			}
			r := p.raft.Load()
			a.behind = r != nil && r.CommitIndex() < one.standing.committed
		}
		one.answered <- a
	case <-p.stop: // it is shut down, and does not answer
		one.answered <- beatAnswer{err: ErrStopped}
	}
}
