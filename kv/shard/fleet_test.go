package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
)

// fleet is some nodes that reach each other, with one shard.
type fleet struct {
	t    testing.TB
	rigs []*rig

	mu  sync.Mutex
	cut map[[2]string]bool // links that carry nothing, from → to
	up  map[string]*Node

	links []link

	slow atomic.Int64 // ns that a block of a transfer takes on its way
}

func newFleet(t testing.TB, n int, change func(*NodeConfig)) *fleet {
	t.Helper()
	f := &fleet{t: t, cut: map[[2]string]bool{}, up: map[string]*Node{}}
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		f.rigs = append(f.rigs, memRig(t, func(c *NodeConfig) {
			c.NodeID, c.ClusterID = id, "one"
			c.PeerHeartbeat = 100 * time.Millisecond
			c.Dial = func(_ context.Context, to string) (net.Conn, error) { return f.dial(id, to) }
			if change != nil {
				change(c)
			}
		}))
	}
	return f
}

// link is a connection that ends when its link is cut.
type link struct {
	net.Conn
	f    *fleet
	from string
	to   string
}

func (l link) Write(b []byte) (int, error) {
	if l.f.isCut(l.from, l.to) {
		_ = l.Close()
		return 0, errors.New("link is cut")
	}
	if len(b) >= blockBytes {
		time.Sleep(time.Duration(l.f.slow.Load()))
	}
	return l.Conn.Write(b)
}

func (f *fleet) isCut(from, to string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut[[2]string{from, to}]
}

func (f *fleet) setCut(cut bool, from, to int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut[[2]string{fmt.Sprintf("n%d", from), fmt.Sprintf("n%d", to)}] = cut
}

// isolate cuts a node off from all others, or joins it again.
func (f *fleet) isolate(cut bool, node int) {
	for other := range f.rigs {
		f.setCut(cut, node, other+1)
		f.setCut(cut, other+1, node)
	}
}

func (f *fleet) dial(from, to string) (net.Conn, error) {
	if f.isCut(from, to) {
		return nil, errors.New("link is cut")
	}
	f.mu.Lock()
	n := f.up[to]
	f.mu.Unlock()
	if n == nil {
		return nil, fmt.Errorf("node is down: %w", syscall.ECONNREFUSED)
	}
	a, b := net.Pipe()
	here, there := link{a, f, from, to}, link{b, f, to, from}
	f.mu.Lock()
	f.links = append(f.links, here, there)
	f.mu.Unlock()
	go n.Accept(there)
	return here, nil
}

// kill ends what a node has open and lets it answer no call any more, as the end of its
// process does.
func (f *fleet) kill(r *rig) {
	id := r.node.ID()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.up, id)
	for other := range f.up {
		f.cut[[2]string{id, other}] = true
	}
	for _, l := range f.links {
		if l.from == id || l.to == id {
			_ = l.Close()
		}
	}
}

// open opens the node of r without shards, close closes it.
func (f *fleet) open(r *rig) {
	f.t.Helper()
	r.open()
	f.mu.Lock()
	f.up[r.node.ID()] = r.node
	f.mu.Unlock()
}

func (f *fleet) close(r *rig) {
	f.t.Helper()
	f.mu.Lock()
	delete(f.up, r.node.ID())
	f.mu.Unlock()
	r.close()
}

// form founds the shard on the first node and adds the others as voters.
func (f *fleet) form() *fleet {
	f.t.Helper()
	f.open(f.rigs[0])
	f.rigs[0].startShard(1)
	for _, r := range f.rigs[1:] {
		f.open(r)
		f.join(r)
	}
	return f
}

func (f *fleet) join(r *rig) {
	f.t.Helper()
	id, err := r.node.NewReplica(1)
	f.must(err)
	f.startJoined(r)
	f.addVoter(id)
}

// addVoter adds a replica that waits for it, and makes it a voter once it has caught up.
func (f *fleet) addVoter(id string) {
	f.t.Helper()
	f.lead("add a learner", func(l *Shard) error { return l.AddLearner(ctx(f.t), id) })
	f.lead("promote it", func(l *Shard) error { return l.Promote(ctx(f.t), id) })
}

// lead lets whoever leads do something, until it is done.
func (f *fleet) lead(what string, do func(l *Shard) error) {
	f.t.Helper()
	eventually(f.t, what, func() bool {
		err := do(f.leader())
		if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, ErrLagging) {
			f.t.Fatal(err)
		}
		return err == nil
	})
}

func (f *fleet) startJoined(r *rig) {
	f.t.Helper()
	m := newSums(f.t, r.state, 1)
	s, err := r.node.StartShard(ShardConfig{ID: 1, Machine: m, Join: true})
	f.must(err)
	r.shards[1], r.machines[1] = s, m
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// leader waits for a replica that leads and can prove it.
func (f *fleet) leader() *Shard {
	f.t.Helper()
	var found *Shard
	eventually(f.t, "a leader", func() bool {
		for _, r := range f.rigs {
			if r.node == nil || r.shards[1] == nil || r.shards[1].proposer.openTerm.Load() == 0 {
				continue
			}
			c, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			err := r.shards[1].Confirm(c)
			cancel()
			if err == nil {
				found = r.shards[1]
				return true
			}
		}
		return false
	})
	return found
}

// add adds 1 to name through whoever leads, and returns its value.
func (f *fleet) add(name string) int64 {
	f.t.Helper()
	var v any
	eventually(f.t, "an answer", func() bool {
		var err error
		v, err = f.leader().Propose(ctx(f.t), []byte(name))
		if err != nil && !errors.Is(err, ErrNotLeader) {
			f.t.Fatal(err)
		}
		return err == nil
	})
	return v.(int64)
}

// agree waits until all replicas show the same.
func (f *fleet) agree() {
	f.t.Helper()
	eventually(f.t, "replicas that agree", func() bool {
		var want map[string]int64
		for _, r := range f.rigs {
			if r.node == nil || r.machines[1] == nil {
				continue
			}
			m := r.machines[1]
			m.mu.Lock()
			got := maps.Clone(m.published)
			m.mu.Unlock()
			if want == nil {
				want = got
			}
			if !maps.Equal(got, want) {
				return false
			}
		}
		return true
	})
}

func TestThreeReplicasFollowAndFailOver(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	for range 20 {
		f.add("a")
	}
	f.agree()
	if got := len(f.leader().Members()); got != 3 {
		t.Fatalf("%d members", got)
	}
	if node, _ := f.rigs[2].shards[1].Leader(); node != "n1" {
		t.Errorf("n3 is led by %q", node)
	}
	if _, err := f.rigs[1].shards[1].Propose(ctx(t), []byte("a")); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower takes proposals: %v", err)
	}
	f.isolate(true, 1)
	begun := time.Now()
	if got := f.add("a"); got != 21 {
		t.Errorf("after the failover a = %d", got)
	}
	t.Logf("failover took %v at a heartbeat of 100 ms", time.Since(begun))
	// The old leader comes back as a follower, with its replica of before.
	f.close(f.rigs[0])
	f.isolate(false, 1)
	f.open(f.rigs[0])
	f.startJoined(f.rigs[0])
	f.add("a")
	f.agree()
}

// RULES 13: a leader whose log hangs sends heartbeats for ever, unless its streams are
// closed. Another replica takes over.
func TestRuleA9_ALeaderWithAHangingLogGivesWay(t *testing.T) {
	hang := &faulty{prefix: []byte{logEntries}}
	f := newFleet(t, 3, func(c *NodeConfig) {
		c.Limits.StoreTimeout = time.Second
		if c.NodeID == "n1" {
			hang.Store = c.Log
			c.Log = hang
		}
	}).form()
	f.add("a")
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hang.set(func(h *faulty) { h.setWait = release })
	begun := time.Now()
	c, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := f.rigs[0].shards[1].Propose(c, []byte("a")); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("the hanging leader answers %v", err)
	}
	f.write("b")
	if l := f.leader().replica; l == f.rigs[0].shards[1].replica {
		t.Error("the hanging leader leads")
	}
	t.Logf("another leader answered after %v", time.Since(begun))
}

func TestLeadershipIsHandedOver(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	f.add("a")
	l := f.leader()
	to := f.rigs[2].shards[1].replica
	f.lead("hand it over", func(l *Shard) error {
		if l.replica == to {
			return nil
		}
		return l.TransferLeadership(ctx(t), to)
	})
	eventually(t, "the new leader", func() bool { return f.leader().replica == to })
	f.add("a")
	f.lead("remove the old", func(n *Shard) error { return n.RemoveReplica(ctx(t), l.replica) })
	if got := len(f.leader().Members()); got != 2 {
		t.Errorf("%d members after a removal", got)
	}
	f.add("a")
}

// Raft's transfer to a peer that is gone hangs at the second attempt, and refuses writes
// meanwhile: it is not begun.
func TestATransferToAPeerThatIsGoneDoesNotStopTheShard(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	f.add("a")
	at := slices.IndexFunc(f.rigs, func(r *rig) bool { return r.shards[1] != f.leader() })
	gone := f.rigs[at].shards[1].replica
	f.close(f.rigs[at])
	f.add("a") // what is sent to it again and again
	for range 4 {
		if err := f.leader().TransferLeadership(ctx(t), gone); err == nil {
			t.Error("handed over")
		}
		time.Sleep(600 * time.Millisecond)
	}
	c, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for {
		_, err := f.leader().Propose(c, []byte("a"))
		if err == nil {
			break
		}
		if c.Err() != nil {
			t.Fatalf("no write comes through: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A replica too far behind for the log is sent the state, and goes on from there; also
// one that joins a shard whose log does not reach back.
func TestReplicasFarBehindAreSentTheState(t *testing.T) {
	f := newFleet(t, 3, oneEntry).form()
	f.add("a")
	f.agree()
	f.isolate(true, 3)
	for range 200 {
		f.add("b")
	}
	for _, r := range f.rigs[:2] {
		f.must(r.node.Truncate(true))
	}
	if first := f.leader().Status().FirstLog; first < 100 {
		t.Fatalf("the log begins at %d", first)
	}
	f.isolate(false, 3)
	f.add("a")
	f.agree()
	r := f.rigs[2]
	if got := r.shards[1].Status().Installs; got != 1 {
		t.Errorf("n3 has installed %d snapshots", got)
	}
	f.add("a")
	f.agree()
	if row, err := readInstalled(r.state, 1); err != nil || row != (installedRow{}) {
		t.Errorf("the installed row is still there: %v, %v", row, err)
	}
	// Its log and state survive restarts, also one after its log was cut behind the
	// entry that the snapshot stood at.
	for range 2 {
		f.close(r)
		f.open(r)
		f.startJoined(r)
		f.add("a")
		f.agree()
		for range 20 {
			f.add("a")
		}
		f.agree()
		f.must(r.node.Truncate(true))
	}
}

// RULES 11: what was to join and lost its data founds no group of its own.
func TestRuleA8_AReplicaWithoutRowsDoesNotFoundAGroup(t *testing.T) {
	r := memRig(t, nil)
	r.open()
	_, err := r.node.StartShard(ShardConfig{ID: 1, Machine: newSums(t, r.state, 1), Join: true})
	if !errors.Is(err, ErrNoReplica) || len(r.replicas()) != 0 {
		t.Errorf("%v, replicas %v", err, r.replicas())
	}
}

// RULES 11, 12: a replica is known by its id, not by its address.
func TestRuleA8_StreamsForAnotherReplicaAreRefused(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	f.add("a")
	r := f.rigs[2]
	for name, h := range map[string]hello{
		"another cluster": {forRaft, "two", 1, r.shards[1].replica},
		"another replica": {forQuestions, "one", 1, "n3-0000000000000001"},
		"another purpose": {9, "one", 1, r.shards[1].replica},
		"another shard":   {forRaft, "one", 2, r.shards[1].replica},
	} {
		a, b := net.Pipe()
		go r.node.Accept(b)
		if err := greet(a, time.Now().Add(time.Second), h); !errors.Is(err, errForeignHello) {
			t.Errorf("%s: %v", name, err)
		}
		a.Close()
	}
	// The data of n3 is lost: what comes up under its name is another replica, which
	// gets no votes' worth of trust before it is added.
	old := r.shards[1].replica
	f.close(r)
	r.state, r.log, r.stable = kv.NewMem(nil), kv.NewMem(nil), t.TempDir()+"/raft.db"
	f.open(r)
	id, err := r.node.NewReplica(1)
	f.must(err)
	f.startJoined(r)
	if id == old {
		t.Fatal("the wiped replica has its old id")
	}
	f.add("a")
	time.Sleep(200 * time.Millisecond)
	if got := r.shards[1].Status().Applied; got != 0 {
		t.Errorf("the new replica has applied %d entries though nobody added it", got)
	}
	f.lead("remove the old", func(l *Shard) error { return l.RemoveReplica(ctx(t), old) })
	f.addVoter(id)
	f.agree()
}

func TestADestroyedReplicaLeavesNothing(t *testing.T) {
	f := newFleet(t, 2, nil).form()
	f.add("a")
	f.agree()
	r := f.rigs[1]
	s := r.shards[1]
	f.lead("remove it", func(l *Shard) error { return l.RemoveReplica(ctx(t), s.replica) })
	f.must(s.Close())
	f.must(r.node.DestroyReplica(1, r.machines[1].Parts()))
	if got := r.replicas(); len(got) != 0 {
		t.Errorf("replicas %v", got)
	}
	it, err := r.state.NewIter(kv.PrefixSpan(r.machines[1].prefix()))
	f.must(err)
	defer it.Close()
	if it.First() {
		t.Errorf("left over: %x", it.Key())
	}
	f.join(r)
	f.add("a")
	f.agree()
}

// Under partitions and restarts of single nodes nothing acknowledged is lost, and
// nothing is applied twice where it was certain.
func TestNothingAcknowledgedIsLostUnderPartitions(t *testing.T) {
	f := newFleet(t, 3, func(c *NodeConfig) { oneEntry(c) }).form()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var sure, unknown [4]atomic.Int64
	for w := range sure {
		wg.Go(func() {
			name := []byte(fmt.Sprintf("w%d", w))
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, r := range f.rigs {
					s := r.shards[1]
					if s.proposer.openTerm.Load() == 0 {
						continue
					}
					c, cancel := context.WithTimeout(context.Background(), time.Second)
					_, err := s.Propose(c, name)
					cancel()
					switch {
					case err == nil:
						sure[w].Add(1)
					case errors.Is(err, ErrOutcomeUnknown):
						unknown[w].Add(1)
					}
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for round := range 8 {
		node := round%3 + 1
		if round%2 == 0 {
			f.isolate(true, node)
		} else {
			f.setCut(true, node, node%3+1) // one way
		}
		time.Sleep(300 * time.Millisecond)
		for _, r := range f.rigs {
			f.must(r.node.Truncate(true))
		}
		f.isolate(false, node)
		time.Sleep(150 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	f.add("end")
	f.agree()
	for w := range sure {
		got, least := f.rigs[0].machines[1].get(fmt.Sprintf("w%d", w)), sure[w].Load()
		if got < least || got > least+unknown[w].Load() {
			t.Errorf("w%d: %d applied, %d acknowledged, %d unknown", w, got, least, unknown[w].Load())
		}
		t.Logf("w%d: %d applied, %d acknowledged, %d unknown", w, got, least, unknown[w].Load())
	}
}

// A follower that comes back while nothing is written learns what is committed: its
// leader does not take what it told the process before for told.
func TestARestartedFollowerOfAnIdleLeaderCatchesUp(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	f.add("a")
	f.agree()
	for range 5 {
		f.add("b")
	}
	f.agree()
	time.Sleep(300 * time.Millisecond) // all is told
	for _, r := range f.rigs {
		if r.shards[1] == f.leader() {
			continue
		}
		f.mu.Lock()
		delete(f.up, r.node.ID())
		f.mu.Unlock()
		r.crash(powerLoss) // its state is behind its log
		f.open(r)
		f.startJoined(r)
		f.agree()
	}
}
