package shard

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// RULES 10 and beyond: a deposed leader that does not know it yet confirms nothing,
// though a replica without a vote answers it and its lease has not run out.
func TestRuleA7_ADeposedLeaderIsNotConfirmedByALearner(t *testing.T) {
	f := newFleet(t, 4, func(c *NodeConfig) { c.PeerHeartbeat = 3 * time.Second })
	for _, r := range f.rigs {
		f.open(r)
	}
	f.rigs[0].startShard(1)
	f.must(f.rigs[0].shards[1].Ready(ctx(t)))
	for _, r := range f.rigs[1:3] {
		f.join(r)
	}
	learner, err := f.rigs[3].node.NewReplica(1)
	f.must(err)
	f.startJoined(f.rigs[3])
	old := f.leader()
	f.must(old.AddLearner(ctx(t), learner))
	f.add("a")
	f.agree()

	for _, voter := range []int{2, 3} { // n1 and n4 on one side, n2 and n3 on the other
		for _, lost := range []int{1, 4} {
			f.setCut(true, lost, voter)
			f.setCut(true, voter, lost)
		}
	}
	next := f.rigs[1].shards[1]
	next.stand()
	f.must(next.Ready(ctx(t)))
	if v, err := next.Propose(ctx(t), []byte("a")); err != nil || v != int64(2) {
		t.Fatal(v, err)
	}
	if old.raft().State() != raft.Leader {
		t.Fatal("the old leader has noticed: the schedule is not met")
	}
	if err := old.Confirm(ctx(t)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("the old leader is confirmed: %v; it shows a = %d", err, f.rigs[0].machines[1].get("a"))
	}
	if err := next.Confirm(ctx(t)); err != nil {
		t.Errorf("the new leader is not: %v", err)
	}
}

// RULES 9 with several voters: an idle leader confirms at once.
func TestRuleA7_9_AnIdleLeaderOfSeveralConfirms(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	f.close(f.rigs[0])
	l := f.leader()
	f.must(l.raft().Barrier(time.Second).Error())
	st := l.Status()
	if st.Commit <= st.Applied {
		t.Fatalf("commit %d, applied %d: the schedule is not met", st.Commit, st.Applied)
	}
	f.must(l.Confirm(ctx(t)))
}

// RULES 36: the clock of one voter is wrong, and it leads. Log time is that of the
// others, when the term opens and after.
func TestRuleE1_36_AWrongClockOfTheLeaderMovesNothing(t *testing.T) {
	clocks := map[string]*handClock{}
	f := newFleet(t, 3, func(c *NodeConfig) {
		h := newHandClock()
		clocks[c.NodeID] = h
		c.Clock = h.read
	})
	f.form()
	f.add("a")
	f.agree()
	right, _ := clocks["n2"].read()
	clocks["n1"].set(time.Hour)
	old := f.leader()
	if old.node.ID() != "n1" {
		t.Fatalf("%s leads", old.node.ID())
	}
	pass := func(d time.Duration) {
		for _, h := range clocks {
			h.pass(d)
		}
		right = right.Add(d)
	}
	check := func(when string) {
		t.Helper()
		f.add("a")
		if got := f.leader().Status().Now - right.UnixMicro(); got < -5_000_000 || got > 5_000_000 {
			t.Errorf("%s: log time is %v off", when, time.Duration(got)*time.Microsecond)
		}
	}
	for range 5 { // more looks than it takes to believe a clock
		pass(61 * time.Second)
		f.add("a")
		time.Sleep(20 * time.Millisecond) // a look takes its time
	}
	check("in the term")
	f.lead("hand it over", func(l *Shard) error {
		if l.node.ID() == "n2" {
			return nil
		}
		return l.TransferLeadership(ctx(t), f.rigs[1].shards[1].replica)
	})
	eventually(t, "n2 leads", func() bool { return f.leader().node.ID() == "n2" })
	check("under another leader")
	f.lead("hand it back", func(l *Shard) error {
		if l.node.ID() == "n1" {
			return nil
		}
		return l.TransferLeadership(ctx(t), f.rigs[0].shards[1].replica)
	})
	eventually(t, "n1 leads", func() bool { return f.leader().node.ID() == "n1" })
	check("in a term that it opened")
}

// P5: heartbeats come long before a replica has caught up. It does not pass for fresh.
func TestAReplicaThatLagsKnowsIt(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	f.add("a")
	f.agree()
	r := f.rigs[2]
	s := r.shards[1]
	age := func() time.Duration { _, age := s.Leader(); return age }
	eventually(t, "a fresh follower", func() bool { return age() < 400*time.Millisecond })

	block := make(chan struct{})
	s.fsm.mu.Lock() // the machine is not at work
	r.machines[1].block = block
	s.fsm.mu.Unlock()
	f.add("a")
	time.Sleep(700 * time.Millisecond)
	if heard := time.Since(s.raft().LastContact()); heard > 300*time.Millisecond {
		t.Skipf("no heartbeat for %v: a busy machine", heard)
	}
	if got := age(); got < 500*time.Millisecond {
		t.Errorf("it lacks an entry for 0.7 s and says its state is %v old", got)
	}
	close(block)
	eventually(t, "a fresh follower again", func() bool { return age() < 400*time.Millisecond })
	if got := r.machines[1].get("a"); got != 2 {
		t.Errorf("a = %d", got)
	}
	if node, age := f.leader().Leader(); node != f.leader().node.ID() || age != 0 {
		t.Errorf("the leader is %q and %v old", node, age)
	}
}

// longTail leaves entries in the log of a leader that nobody else has.
func longTail(t *testing.T, f *fleet, l *Shard, n int) {
	t.Helper()
	before := l.Status().LastLog
	for i := range n {
		e := logEntry{kind: kindCommands, term: l.raft().CurrentTerm(), wall: 1, commands: [][]byte{fmt.Appendf(nil, "lost%d", i)}}
		l.raft().Apply(e.encode(), 0)
	}
	eventually(t, "a tail", func() bool { return l.Status().LastLog >= before+uint64(n) })
}

// RULES 3: the snapshot stands below the end of a divergent log. One install is enough,
// without a restart of the process. RULES 2: what the log held is not served after.
func TestRuleA4_2_3_ADivergentTailPastTheSnapshotIsDiscarded(t *testing.T) {
	f := newFleet(t, 4, func(c *NodeConfig) { oneEntry(c); c.PeerHeartbeat = 500 * time.Millisecond })
	for _, r := range f.rigs {
		f.open(r)
	}
	f.rigs[0].startShard(1)
	f.must(f.rigs[0].shards[1].Ready(ctx(t)))
	f.join(f.rigs[1])
	f.join(f.rigs[2])
	learner, err := f.rigs[3].node.NewReplica(1)
	f.must(err)
	f.startJoined(f.rigs[3])
	f.must(f.leader().AddLearner(ctx(t), learner))
	f.add("a")
	f.agree()

	old := f.leader()
	if old.node.ID() != "n1" {
		t.Fatalf("%s leads", old.node.ID())
	}
	for _, voter := range []int{2, 3} { // n1 keeps the learner
		for _, lost := range []int{1, 4} {
			f.setCut(true, lost, voter)
			f.setCut(true, voter, lost)
		}
	}
	longTail(t, f, old, 400)
	eventually(t, "the learner has some of it", func() bool { return f.rigs[3].shards[1].Status().LastLog > 100 })
	eventually(t, "another leader", func() bool { return f.leader().node.ID() != "n1" })
	for range 40 {
		f.add("b")
	}
	for _, r := range f.rigs[1:3] {
		f.must(r.node.Truncate(true))
	}
	// A leader that is new does not know where the others are, and begins at its end.
	second := f.leader()
	for f.leader() == second {
		_ = second.TransferLeadership(ctx(t), "")
	}
	f.add("b")
	f.must(f.leader().node.Truncate(true))
	time.Sleep(2 * retryLast) // what the one before tried to send is given up
	first := []*instance{f.rigs[0].shards[1].instance.Load(), f.rigs[3].shards[1].instance.Load()}
	st := f.leader().Status()
	if tail := old.Status(); st.FirstLog <= tail.Applied+1 || st.LastLog >= tail.LastLog {
		t.Fatalf("the leader's log is %d to %d, the tail ends at %d: the schedule is not met", st.FirstLog, st.LastLog, tail.LastLog)
	}
	for node := range f.rigs {
		f.isolate(false, node+1)
	}
	f.add("c")
	f.agree()
	for i, r := range []*rig{f.rigs[0], f.rigs[3]} {
		s := r.shards[1]
		eventually(t, r.node.ID()+": Raft begins anew", func() bool { return s.instance.Load() != first[i] })
		if got := s.Status().Installs; got < 1 || got > 2 {
			t.Errorf("%s: %d installs", r.node.ID(), got)
		}
		f.must(s.Fault())
	}
	// The one with the tail leads again, and the others lack nothing.
	f.lead("hand it back", func(l *Shard) error {
		if l == old {
			return nil
		}
		return l.TransferLeadership(ctx(t), old.replica)
	})
	f.add("c")
	f.agree()
	for name, v := range f.rigs[3].machines[1].published {
		if len(name) > 4 && name[:4] == "lost" {
			t.Fatalf("%s = %d was never committed", name, v)
		}
	}
	f.close(f.rigs[0])
	f.open(f.rigs[0])
	f.startJoined(f.rigs[0])
	f.add("c")
	f.agree()
}

// CASES 22: a replica removed while it was away upsets no election when it is back.
func TestCase22_ARemovedReplicaThatComesBackUpsetsNothing(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	f.add("a")
	f.isolate(true, 3)
	gone := f.rigs[2].shards[1]
	f.lead("remove it", func(l *Shard) error { return l.RemoveReplica(ctx(t), gone.replica) })
	l := f.leader()
	term := l.Status().Term
	f.isolate(false, 3)
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		f.add("a")
	}
	if now := f.leader(); now != l || now.Status().Term != term {
		t.Errorf("term %d became %d", term, now.Status().Term)
	}
	if _, err := gone.Propose(ctx(t), []byte("a")); !errors.Is(err, ErrNotLeader) {
		t.Errorf("the removed replica answers %v", err)
	}
	if err := gone.Confirm(ctx(t)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("the removed replica confirms: %v", err)
	}
	if _, age := gone.Leader(); age < 500*time.Millisecond {
		t.Errorf("the removed replica says its state is %v old", age)
	}
}

func TestMembershipChangesThatWouldCostTheMajorityAreRefused(t *testing.T) {
	f := newFleet(t, 3, func(c *NodeConfig) { c.PeerHeartbeat = 300 * time.Millisecond })
	f.open(f.rigs[0])
	f.rigs[0].startShard(1)
	f.open(f.rigs[1])
	f.open(f.rigs[2])
	f.must(f.rigs[0].shards[1].Ready(ctx(t)))
	l := f.leader()
	away, err := f.rigs[2].node.NewReplica(1)
	f.must(err)
	f.must(l.AddLearner(ctx(t), away)) // and it is not there
	if err := l.Promote(ctx(t), away); !errors.Is(err, ErrLagging) {
		t.Errorf("promote one that is not there: %v", err)
	}
	if err := l.Promote(ctx(t), "n9-0000000000000001"); err == nil {
		t.Error("promote a stranger: done")
	}
	f.must(l.RemoveReplica(ctx(t), away))
	if err := l.RemoveReplica(ctx(t), l.replica); !errors.Is(err, ErrNoQuorum) {
		t.Errorf("remove the last: %v", err)
	}
	f.join(f.rigs[1])
	if err := f.leader().TransferLeadership(ctx(t), away); err == nil {
		t.Error("hand the leadership to a stranger: done")
	}
	f.startJoined(f.rigs[2])
	f.addVoter(away)
	f.close(f.rigs[2])
	// With one of three away, none of the others may go.
	l = f.leader()
	other := f.rigs[0].shards[1]
	if other == l {
		other = f.rigs[1].shards[1]
	}
	if err := l.RemoveReplica(ctx(t), other.replica); !errors.Is(err, ErrNoQuorum) {
		t.Errorf("remove one of two that are left: %v", err)
	}
	f.must(l.RemoveReplica(ctx(t), away))
	if got := len(f.leader().Members()); got != 2 {
		t.Errorf("%d members", got)
	}
}

// A replica that stops hands the leadership over: nobody waits for its silence.
func TestAStoppingLeaderHandsOver(t *testing.T) {
	f := newFleet(t, 3, func(c *NodeConfig) { c.PeerHeartbeat = 5 * time.Second })
	f.open(f.rigs[0])
	f.rigs[0].startShard(1)
	f.must(f.rigs[0].shards[1].Ready(ctx(t)))
	for _, r := range f.rigs[1:] {
		f.open(r)
		f.join(r)
	}
	f.add("a")
	f.agree()
	begun := time.Now()
	f.close(f.rigs[0])
	if got := f.add("a"); got != 2 {
		t.Errorf("a = %d", got)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("the next leader answered after %v; an election by silence takes 5 to 10 s", took)
	}
}

// A follower that comes back is sent entries at once. Raft would wait longer after each
// attempt while it was away, and writes would stop if the other follower went.
func TestAFollowerThatComesBackIsServedAtOnce(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	f.add("a")
	f.isolate(true, 3)
	for range 27 { // 2.7 s: by then Raft would wait for 2.5 s more
		f.add("a")
		time.Sleep(100 * time.Millisecond)
	}
	f.isolate(false, 3)
	begun := time.Now()
	f.agree()
	if took := time.Since(begun); took > 1500*time.Millisecond {
		t.Errorf("it has caught up after %v", took)
	}
}

// viewCounter counts the iterators of snapshots.
type viewCounter struct {
	kv.Store
	iterators chan struct{}
}

func (c viewCounter) NewSnapshot() (kv.Snapshot, error) {
	s, err := c.Store.NewSnapshot()
	return countedView{s, c.iterators}, err
}

type countedView struct {
	kv.Snapshot
	iterators chan struct{}
}

func (c countedView) NewIter(s kv.Span) (kv.Iterator, error) {
	c.iterators <- struct{}{}
	return c.Snapshot.NewIter(s)
}

func TestTheStateIsNotCopiedForAReplicaThatIsAway(t *testing.T) {
	copies := make(chan struct{}, 1000)
	f := newFleet(t, 3, func(c *NodeConfig) { c.State = viewCounter{c.State, copies} }).form()
	f.add("a")
	f.agree()
	f.isolate(true, 3)
	i, to := f.leader().instance.Load(), f.rigs[2].shards[1].replica
	meta, out, err := snapshotsOf(f.leader().fsm).Open(snapshotID)
	f.must(err)
	done := make(chan error, 1)
	go func() {
		req := raft.InstallSnapshotRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3}, SnapshotVersion: meta.Version,
			Term: i.raft.CurrentTerm(), LastLogIndex: meta.Index, LastLogTerm: meta.Term,
			Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
		}
		done <- i.transport.InstallSnapshot(raft.ServerID(to), raft.ServerAddress(to), &req, new(raft.InstallSnapshotResponse), out)
	}()
	time.Sleep(300 * time.Millisecond)
	if n := len(copies); n != 0 {
		t.Errorf("copied %d times for nobody", n)
	}
	f.isolate(false, 3)
	if err := <-done; err != nil && !errors.Is(err, errTransfer) { // it has the state by its log
		t.Error(err)
	}
	if n := len(copies); n > 1 {
		t.Errorf("copied %d times", n)
	}
	f.must(out.Close())
}

// Connections that say nothing, or come in masses, are bounded and end with the node.
func TestConnectionsAreBounded(t *testing.T) {
	f := newFleet(t, 2, nil).form()
	f.add("a")
	r := f.rigs[1]
	var refused atomic.Int64
	for range maxGreetings + 20 {
		_, b := newPipe(t)
		go func() { r.node.Accept(b); refused.Add(1) }()
	}
	eventually(t, "those beyond the bound are refused", func() bool { return refused.Load() >= 20 })
	if n := refused.Load(); n > 20 {
		t.Errorf("%d of %d refused, before any greeting can have timed out", n, maxGreetings+20)
	}
	f.close(r) // and with it all of them, or goleak tells
}

func newPipe(t *testing.T) (a, b net.Conn) {
	t.Helper()
	x, y := net.Pipe()
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

// A learner is sent the state of a shard to which nothing is written any more: no entry
// follows, so its log is empty. It is up to date, is promoted, and counts as one that
// answers.
func TestALearnerWithAnEmptyLogIsPromoted(t *testing.T) {
	f := newFleet(t, 2, oneEntry)
	f.open(f.rigs[0])
	f.rigs[0].startShard(1)
	for range 20 {
		f.add("a")
	}
	r := f.rigs[1]
	f.open(r)
	id, err := r.node.NewReplica(1)
	f.must(err)
	f.startJoined(r)
	f.isolate(true, 2)
	l := f.leader()
	f.must(l.AddLearner(ctx(t), id))
	eventually(t, "all is applied", func() bool { _, last := l.log.bounds(); return l.fsm.reached.Load() == last })
	f.must(f.rigs[0].node.Truncate(true)) // but for the last entry
	f.isolate(false, 2)
	eventually(t, "the learner has the state", func() bool { return r.shards[1].Status().Installs == 1 })
	if first, _ := r.shards[1].log.bounds(); first != 0 {
		t.Fatalf("its log begins at %d: the test is wrong", first)
	}
	for _, m := range l.Progress(ctx(t)) {
		if m.Last != l.fsm.reached.Load() {
			t.Errorf("%s has entries up to %d of %d", m.Replica, m.Last, l.fsm.reached.Load())
		}
	}
	f.must(l.Promote(ctx(t), id))
	f.add("a")
	f.agree()
}

// A learner of a group of one, whose rows have the longest keys there are in practice, is
// sent them and promoted.
func TestALearnerOfOneVoterIsSentLargeKeys(t *testing.T) {
	f := newFleet(t, 2, oneEntry)
	f.open(f.rigs[0])
	f.rigs[0].startShard(1)
	l, long := f.leader(), strings.Repeat("k", 1992)
	for i := range 1000 {
		_, err := l.Propose(ctx(t), fmt.Appendf(nil, "%s%08d", long, i))
		f.must(err)
	}
	f.must(f.rigs[0].node.Truncate(true))
	r := f.rigs[1]
	f.open(r)
	begun := time.Now()
	f.join(r)
	f.agree()
	if got := r.shards[1].Status().Installs; got != 1 {
		t.Errorf("%d states installed", got)
	}
	t.Logf("promoted and equal after %v", time.Since(begun))
}
