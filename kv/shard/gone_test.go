package shard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// patient makes Raft's own timeouts longer than any test waits.
func patient(c *NodeConfig) { c.PeerHeartbeat = time.Minute }

// beaten waits until the leader's heartbeats have reached all others.
func (f *fleet) beaten(leader *Shard) {
	f.t.Helper()
	for _, r := range f.rigs {
		if r.node == leader.node {
			continue
		}
		here, there := net.Pipe()
		f.must(r.node.beats.serve(there))
		from := leader.node.ID()
		line := &beatLine{beats: leader.node.beats, to: r.node.ID(), wake: make(chan struct{}, 1), conn: link{here, f, from, r.node.ID()}}
		f.mu.Lock()
		f.links = append(f.links, link{here, f, from, r.node.ID()})
		f.mu.Unlock()
		one := &beat{
			shard: 1, term: leader.raft().CurrentTerm(), replica: r.shards[1].replica, leader: leader.replica,
			stands: leader.instance.Load().transport.stands, answered: make(chan beatAnswer, 1),
		}
		line.tell([]*beat{one})
		if a := <-one.answered; a.err != nil || !a.success {
			f.t.Fatalf("a heartbeat to %s: %+v", r.node.ID(), a)
		}
	}
}

// The end of a leader's process is noticed by the end of its connections and by its port,
// long before a heartbeat timeout has passed.
func TestTheNextLeaderIsElectedAtOnceWhenANodeIsGone(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			f := newFleet(t, nodes, patient).form()
			if got := f.add("a"); got != 1 {
				t.Fatal(got)
			}
			f.agree()
			old := f.leader()
			f.beaten(old)
			dead := f.rigs[0]
			if dead.shards[1] != old {
				t.Fatal("another leads than who founded the group")
			}
			f.kill(dead)
			node, shard, machine := dead.node, dead.shards[1], dead.machines[1]
			dead.shards[1] = nil
			if got := f.add("a"); got != 2 {
				t.Errorf("a = %d after the leader's end, want 2", got)
			}
			dead.node, dead.shards[1], dead.machines[1] = node, shard, machine
		})
	}
}

// A leader that lives and only cannot be reached by one follower is left alone: the
// others still hear it, and the term does not rise.
func TestALeaderThatOthersHearIsNotDeposed(t *testing.T) {
	refusing := func(c *NodeConfig) {
		dial, from := c.Dial, c.NodeID
		c.Dial = func(ctx context.Context, to string) (net.Conn, error) {
			conn, err := dial(ctx, to)
			if err != nil && from == "n3" && to == "n1" {
				err = errors.Join(err, syscall.ECONNREFUSED)
			}
			return conn, err
		}
	}
	f := newFleet(t, 3, func(c *NodeConfig) { patient(c); refusing(c) }).form()
	f.add("a")
	leader, cutOff := f.leader(), f.rigs[2] // whose turn is the first
	f.beaten(leader)
	term := leader.raft().CurrentTerm()
	f.setCut(true, 3, 1)
	s := cutOff.shards[1]
	cutOff.node.beats.missed("n1")
	eventually(t, "a follower that has forgotten the leader", func() bool {
		_, id := s.raft().LeaderWithID()
		return id == ""
	})
	others, need := s.voters()
	voter := slices.DeleteFunc(others, func(r string) bool { return NodeOf(r) == "n1" })
	for range 3 {
		if s.instance.Load().transport.canvass(cutOff.node.beats, term+1, s.lastPosition(), voter, need) {
			t.Error("another would vote for it while it hears the leader")
		}
	}
	time.Sleep(5 * canvassAgain)
	for _, r := range f.rigs {
		if got := r.shards[1].raft().CurrentTerm(); got != term {
			t.Errorf("%s: term %d, was %d", r.node.ID(), got, term)
		}
	}
	if leader.raft().State() != raft.Leader {
		t.Error("the leader was deposed")
	}
}
