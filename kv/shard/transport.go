package shard

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	transportPool    = 3
	transportTimeout = 5 * time.Second
	// appendBytes bounds what one message carries; a larger entry goes alone.
	appendBytes = 4 << 20
	// retryFirst and retryLast are the pauses between attempts to send entries.
	retryFirst = 10 * time.Millisecond
	retryLast  = 200 * time.Millisecond
	// ticketScale makes Raft wait for an answer to a ticket for transportTimeout times
	// its size over this, over a minute: a disk may be slow to take the state in.
	ticketScale = 4
)

// peerTransport is Raft's network transport, with what Raft lacks for it: bounds in
// bytes, patience with peers that are away, and a second way in for its own replica.
type peerTransport struct {
	*raft.NetworkTransport
	streams *streams
	pacer   *pacer
	raft    atomic.Pointer[raft.Raft] // set once it runs
	// heartbeat is Raft's way to take one, beside all else that comes in.
	heartbeat atomic.Pointer[func(raft.RPC)]
	heard     atomic.Uint64 // the newest term in answers to heartbeats
	fresh     *freshness    // of its own replica
	stands    func(term uint64) standing

	mu sync.Mutex
	// lacking says of each peer whether it lacks what it was told, or does not answer.
	lacking map[raft.ServerAddress]*atomic.Bool

	rpcs chan raft.RPC
	stop chan struct{}
	once sync.Once
	done sync.WaitGroup
}

func newPeerTransport(s *streams, pace *pacer, config *raft.NetworkTransportConfig) *peerTransport {
	config.Stream = s
	p := &peerTransport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(config), streams: s, pacer: pace,
		lacking: make(map[raft.ServerAddress]*atomic.Bool),
		rpcs:    make(chan raft.RPC), stop: make(chan struct{}),
	}
	p.TimeoutScale, pace.stop = ticketScale, p.stop
	p.done.Go(func() {
		for {
			select {
			case rpc := <-p.NetworkTransport.Consumer():
				p.hand(rpc)
			case <-p.stop:
				return
			}
		}
	})
	return p
}

func (p *peerTransport) hand(rpc raft.RPC) {
	if rpc.Reader != nil {
		rpc.Reader = &watchedReader{rpc.Reader, func() { p.streams.cut(func(c *stream) bool { return c.to == "" }) }}
	}
	select {
	case p.rpcs <- rpc:
	case <-p.stop:
	}
}

// watchedReader reads a ticket that comes in. Raft waits for it without a bound, and
// a sender that has vanished would leave the replica deaf.
type watchedReader struct {
	io.Reader
	stalled func()
}

func (r *watchedReader) Read(b []byte) (int, error) {
	defer time.AfterFunc(stallTime, r.stalled).Stop()
	return r.Reader.Read(b)
}

// Consumer implements raft.Transport.
func (p *peerTransport) Consumer() <-chan raft.RPC { return p.rpcs }

// breakOff ends all that is on its way, for good.
func (p *peerTransport) breakOff() {
	p.once.Do(func() { close(p.stop) })
	_ = p.streams.Close()
}

// Close implements raft.WithClose. It waits for those that serve connections.
func (p *peerTransport) Close() error {
	p.breakOff()
	p.done.Wait()
	err := p.NetworkTransport.Close() // closes the streams
	p.NetworkTransport.CloseStreams()
	p.streams.using.Wait()
	return err
}

// elect makes a replica that is alone in its group stand for election at once: nobody
// else can, so there is no heartbeat to wait for.
func (p *peerTransport) elect() { p.done.Go(p.standNow) }

// standNow makes this replica stand for election, as a transfer of leadership does.
func (p *peerTransport) standNow() {
	self := []byte(p.streams.replica)
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self}
	p.hand(raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: header}, RespChan: make(chan raft.RPCResponse, 1)})
}

// AppendEntries implements raft.Transport. Raft waits longer from failure to failure,
// up to 10 s, and does not notice that the peer is back: a second failure then would
// stop writes. So failures to send entries are kept from it as long as it would go on
// to send them. Heartbeats take another way and tell it.
func (p *peerTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if isHeartbeat(args) {
		return p.beat(to, args, resp)
	}
	boundAppend(args)
	for pause := retryFirst; ; pause = min(2*pause, retryLast) {
		*resp = raft.AppendEntriesResponse{}
		err := p.NetworkTransport.AppendEntries(id, to, args, resp)
		if err == nil || !p.sends(args.Term, id) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-p.stop:
			return err
		}
	}
}

// isHeartbeat tells heartbeats as Raft does.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && args.LeaderCommitIndex == 0
}

// sends reports whether this replica still leads term and has the peer as a member.
func (p *peerTransport) sends(term uint64, id raft.ServerID) bool {
	r := p.raft.Load()
	if r == nil || r.State() != raft.Leader || r.CurrentTerm() != term {
		return false
	}
	for _, srv := range r.GetConfiguration().Configuration().Servers {
		if srv.ID == id {
			return true
		}
	}
	return false
}

// boundAppend cuts a message to appendBytes. Raft looks at what it has sent by the
// same request.
func boundAppend(args *raft.AppendEntriesRequest) {
	size := 0
	for i, e := range args.Entries {
		size += len(e.Data) + len(e.Extensions)
		if size > appendBytes && i > 0 {
			args.Entries = args.Entries[:i]
			return
		}
	}
}

// AppendEntriesPipeline implements raft.Transport.
func (p *peerTransport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	pipe, err := p.NetworkTransport.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	return &boundPipeline{AppendPipeline: pipe, heard: &p.heard, lacking: p.untold(to), pacer: p.pacer}, nil
}

// untold is set once a peer lacks what it was told.
func (p *peerTransport) untold(to raft.ServerAddress) *atomic.Bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lacking[to] == nil {
		p.lacking[to] = new(atomic.Bool)
	}
	return p.lacking[to]
}

// boundPipeline bounds messages, and keeps those back that tell nothing: Raft sends one
// whenever commitTimeout has passed without an entry, which in a node with many idle
// groups is most of what there is to do. A pipeline ends with the first message that
// fails, so what was told on it was heard; but a peer that was started again has
// forgotten it, and says so in its answers to heartbeats.
type boundPipeline struct {
	raft.AppendPipeline
	told    uint64         // index up to which the peer has entries and knows them committed
	heard   *atomic.Uint64 // the newest term that a peer has told of
	lacking *atomic.Bool   // the peer lacks what it was told, or does not answer heartbeats
	pacer   *pacer
}

// AppendEntries implements raft.AppendPipeline, for a caller that does not look at the
// future. Raft itself is the only one, and one goroutine of it.
func (b *boundPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	boundAppend(args)
	n := len(args.Entries)
	// Raft hears of a later term by the answers to these messages, not by heartbeats.
	due := func() bool { return b.heard.Load() > args.Term || b.lacking.Load() }
	if n == 0 && args.LeaderCommitIndex == b.told && !due() {
		b.pacer.pause(func() bool { // it has all that is in the log
			return args.PrevLogEntry == b.told && b.pacer.last() == b.told && !due()
		})
		if !due() {
			return nil, nil
		}
	}
	b.lacking.Store(false)
	last := args.PrevLogEntry
	if n > 0 {
		last = args.Entries[n-1].Index
	}
	b.told = min(args.LeaderCommitIndex, last)
	return b.AppendPipeline.AppendEntries(args, resp)
}

// InstallSnapshot implements raft.Transport. The state goes ahead on a stream of its
// own, once the peer has answered, and then Raft's message with the ticket to it.
func (p *peerTransport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	out, ok := data.(*outgoing)
	if !ok {
		return p.NetworkTransport.InstallSnapshot(id, to, args, resp, data)
	}
	out.pin.sentTo(string(id))
	conn, err := p.reach(string(to))
	if err != nil {
		return err
	}
	defer conn.Close()
	out.throttle = &p.streams.node.throttle
	t, err := out.send(conn, args.Term)
	if err != nil {
		return fmt.Errorf("send the state: %w", err)
	}
	b := t.encode()
	args.Size = int64(len(b))
	return p.NetworkTransport.InstallSnapshot(id, to, args, resp, bytes.NewReader(b))
}

// reach opens a stream for the state to a replica, and waits until it is there.
func (p *peerTransport) reach(to string) (net.Conn, error) {
	for end := time.Now().Add(stallTime); ; {
		ctx, cancel := context.WithTimeout(p.streams.ctx, transportTimeout)
		conn, err := p.streams.dial(ctx, to, forState)
		cancel()
		if err == nil || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-time.After(retryLast):
		case <-p.stop:
			return nil, err
		}
	}
}
