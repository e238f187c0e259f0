package shard

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// A process that is killed says nothing, and its groups would be without a leader until
// a heartbeat timeout has passed. But its connections end, and its port refuses new ones: a
// node that sees both takes the other for gone, and the shards that it led elect at once.
//
// Being wrong must not cost a leader that lives: a replica forgets the leader and asks the
// other voters as Raft's own pre-vote does, and those that still hear the leader refuse.
// It raises the term only where a majority would vote for it.

// goneLooks are the pauses before each call to a node whose connection ended: a process
// that ends closes its connections and its port one after the other.
var goneLooks = [...]time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond}

const (
	// turnPart is the part of a heartbeat timeout that one voter lets another go first.
	turnPart = 5
	// canvassAgain is the pause before others are asked anew: they may notice later.
	canvassAgain = 20 * time.Millisecond
)

// missed looks after a node whose heartbeats ended with their connection.
func (b *beats) missed(node string) {
	if !b.refuses(node) {
		return
	}
	n := b.node
	n.mu.Lock()
	shards := n.list()
	n.mu.Unlock()
	for _, s := range shards {
		b.wg.Go(func() { s.succeed(b, node) }) // within a goroutine of wg
	}
}

// refuses reports whether nobody listens on a node's port.
func (b *beats) refuses(node string) bool {
	for _, pause := range goneLooks {
		if !b.rest(pause) {
			return false
		}
		ctx, cancel := context.WithTimeout(b.ctx, transportTimeout)
		conn, err := b.node.cfg.Dial(ctx, node)
		cancel()
		switch {
		case err == nil:
			_ = conn.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			return true
		}
	}
	return false
}

// rest reports whether a pause has passed before the end.
func (b *beats) rest(pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return b.ctx.Err() == nil
	case <-b.ctx.Done():
		return false
	}
}

// succeed lets this replica stand for election if it follows one on a node that is gone.
// The voters take turns, so that their votes are not split; who comes first differs
// by shard.
func (s *Shard) succeed(b *beats, node string) {
	i := s.instance.Load()
	_, leader := i.raft.LeaderWithID()
	if i.transport == nil || leader == "" || string(leader) == s.replica || NodeOf(string(leader)) != node {
		return
	}
	term := i.raft.CurrentTerm()
	others, need := s.voters()
	others = slices.DeleteFunc(others, func(r string) bool { return r == string(leader) })
	turn, ok := s.turn(others)
	if !ok {
		return
	}
	i.transport.forget(term)
	end := time.Now().Add(2 * s.heartbeat()) // Raft has elected by itself then
	wait := time.Duration(turn) * s.heartbeat() / turnPart
	for ; time.Now().Before(end) && b.rest(wait); wait = canvassAgain {
		if _, other := i.raft.LeaderWithID(); other != "" || i.raft.CurrentTerm() != term {
			return // it lives after all, or another stands
		}
		if i.transport.canvass(b, term+1, s.lastPosition(), others, need) {
			s.logger.Info("the leader's node is gone; standing for election", "node", node, "term", term+1)
			i.transport.standNow()
			return
		}
	}
}

// turn returns the place of this replica among the voters that are left; false where it
// is none.
func (s *Shard) turn(others []string) (int, bool) {
	left := append(slices.Clone(others), s.replica)
	slices.Sort(left)
	votes := slices.ContainsFunc(s.Members(), func(m Member) bool { return m.Voter && m.Replica == s.replica })
	return (slices.Index(left, s.replica) + int(s.id)) % len(left), votes
}

// lastPosition is the last entry of the log, or where the state stands that no log follows.
func (s *Shard) lastPosition() raft.Log {
	var last raft.Log
	if _, at := s.log.bounds(); at > 0 && s.log.GetLog(at, &last) == nil {
		return last
	}
	cut := s.fsm.cut.Load()
	return raft.Log{Index: cut.index, Term: cut.term}
}

// forget makes this replica forget who leads the term, by a message of no leader: it
// would refuse its vote to others until its own heartbeat timeout.
func (p *peerTransport) forget(term uint64) {
	answer := make(chan raft.RPCResponse, 1)
	p.hand(raft.RPC{RespChan: answer, Command: &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: term,
	}})
	select {
	case <-answer:
	case <-p.stop:
	}
}

// canvass asks others whether they would vote for this replica, and reports whether as
// many as are needed would.
func (p *peerTransport) canvass(b *beats, term uint64, last raft.Log, others []string, need int) bool {
	self := []byte(p.streams.replica)
	ask := &raft.RequestPreVoteRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self},
		Term:      term, LastLogIndex: last.Index, LastLogTerm: last.Term,
	}
	votes := make(chan bool, len(others))
	for _, to := range others {
		b.wg.Go(func() {
			var resp raft.RequestPreVoteResponse
			err := p.RequestPreVote(raft.ServerID(to), raft.ServerAddress(to), ask, &resp)
			votes <- err == nil && resp.Granted
		})
	}
	for range others {
		if <-votes {
			need--
		}
		if need <= 0 {
			return true
		}
	}
	return need <= 0
}
