package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/pebblekv"
)

// halves is a sums whose shard can be split: the first command "split" gives birth to
// shard theChild, which begins with all values of its parent.
type halves struct {
	*sums
	due   Due
	child bool // is to be cut
}

const theChild = 2

func (m *halves) Apply(e Entry) ([]any, error) {
	before := m.values["split"]
	results, err := m.sums.Apply(e)
	m.due = Due{}
	if err == nil && before == 0 && m.values["split"] > 0 {
		m.due, m.child = Due{Split: true, Child: theChild}, true
	}
	return results, err
}

func (m *halves) AfterEntry() Due { return m.due }

func (m *halves) Cut(b kv.Batch) error {
	if err := m.sums.Cut(b); err != nil || !m.child {
		return err
	}
	m.child = false
	prefix := (&sums{shard: theChild}).prefix()
	for name, v := range m.values {
		if err := b.Set(append(slices.Clone(prefix), name...), binary.BigEndian.AppendUint64(nil, uint64(v))); err != nil {
			return err
		}
	}
	return nil
}

func (m *halves) WasSplit() bool { return m.values["split"] > 0 }

func (m *halves) Replaces(in kv.Parts) (kv.Parts, error) { return in, nil }

// nursery is a fleet on disks that lose power, whose shard 1 is split.
type nursery struct {
	*fleet
	disks []*nurseryDisk
	rng   *rand.Rand
}

// nurseryDisk is the disk of a node.
type nurseryDisk struct {
	state, log *pebblekv.CrashFS
	open       [2]*pebblekv.Store
	node       atomic.Pointer[Node]
}

// newNursery makes a fleet of three, some of which are members of the shard.
func newNursery(t *testing.T, seed uint64, members int, change ...func(*NodeConfig)) *nursery {
	n := &nursery{fleet: newFleet(t, 3, func(c *NodeConfig) {
		for _, f := range change {
			f(c)
		}
	}), rng: rand.New(rand.NewPCG(seed, 0))}
	for _, r := range n.rigs {
		d := &nurseryDisk{state: pebblekv.NewCrashFS(), log: pebblekv.NewCrashFS()}
		n.disks = append(n.disks, d)
		n.mount(r, d)
	}
	t.Cleanup(func() {
		for i := range n.rigs {
			n.unmount(i)
		}
	})
	t.Cleanup(n.tell)
	n.open(n.rigs[0])
	n.start(n.rigs[0], false)
	for _, r := range n.rigs[1:members] {
		n.joinParent(r)
	}
	return n
}

func (n *nursery) joinParent(r *rig) {
	n.t.Helper()
	n.open(r)
	id, err := r.node.NewReplica(1)
	n.must(err)
	n.start(r, true)
	n.addVoter(id)
}

// tell says where all replicas stand if the test has failed.
func (n *nursery) tell() {
	if !n.t.Failed() {
		return
	}
	for _, r := range n.rigs {
		for id, s := range r.shards {
			n.t.Logf("%s: shard %d: %+v, members %v", s.replica, id, s.Status(), s.Members())
		}
	}
}

func (n *nursery) mount(r *rig, d *nurseryDisk) {
	n.t.Helper()
	var err error
	d.open[0], err = pebblekv.Open("state", pebblekv.Options{FS: d.state.FS(), MemTableBytes: 64 << 10, OnFlush: func() {
		if node := d.node.Load(); node != nil {
			node.StateFlushed()
		}
	}})
	n.must(err)
	d.open[1], err = pebblekv.Open("log", pebblekv.Options{FS: d.log.FS(), Profile: pebblekv.Log, MemTableBytes: 64 << 10})
	n.must(err)
	r.state, r.log = d.open[0], d.open[1]
}

// unmount stops a node and closes its disk.
func (n *nursery) unmount(i int) {
	n.t.Helper()
	if n.rigs[i].node != nil {
		n.close(n.rigs[i])
	}
	n.disks[i].node.Store(nil)
	n.must(errors.Join(n.disks[i].open[0].Close(), n.disks[i].open[1].Close()))
}

// start starts a node's replica of the parent.
func (n *nursery) start(r *rig, join bool) {
	n.t.Helper()
	n.disks[slices.Index(n.rigs, r)].node.Store(r.node)
	m := &halves{sums: newSums(n.t, r.state, 1)}
	s, err := r.node.StartShard(ShardConfig{ID: 1, Machine: m, Join: join})
	n.must(err)
	r.shards[1], r.machines[1] = s, m.sums
}

// losePower takes the power of nodes at once, with any part of what was not synced
// surviving, and starts them again. A node hears and says nothing behind the moment that
// its disk is left in.
func (n *nursery) losePower(nodes ...int) {
	n.t.Helper()
	for _, i := range nodes {
		n.isolate(true, i+1)
	}
	for _, i := range nodes {
		n.close(n.rigs[i])
		d := n.disks[i]
		keep := n.rng.IntN(3) * 50
		next := &nurseryDisk{state: d.state.PowerLoss(n.rng.Uint64(), keep), log: d.log.PowerLoss(n.rng.Uint64(), keep)}
		n.unmount(i)
		n.disks[i] = next
		n.mount(n.rigs[i], next)
	}
	for _, i := range nodes {
		n.isolate(false, i+1)
	}
	for _, i := range nodes {
		n.open(n.rigs[i])
		n.start(n.rigs[i], true)
	}
}

// born starts the replicas of the child that are there, and returns how many run.
func (n *nursery) born() (running int) {
	n.t.Helper()
	for _, r := range n.rigs {
		if r.node == nil {
			continue
		}
		if r.shards[theChild] == nil && slices.Contains(r.replicas(), theChild) {
			m := newSums(n.t, r.state, theChild)
			s, err := r.node.StartShard(ShardConfig{ID: theChild, Machine: m, Join: true})
			n.must(err)
			r.shards[theChild], r.machines[theChild] = s, m
		}
		if r.shards[theChild] != nil {
			running++
		}
	}
	return running
}

// ask proposes a command to whoever leads a shard until it is answered, and returns how
// often its outcome was unknown before.
func (n *nursery) ask(shard uint32, name string) (unknown int64) {
	n.t.Helper()
	eventuallyIn(n.t, 30*time.Second, name+" is answered", func() bool {
		n.born()
		for _, r := range n.rigs {
			s := r.shards[shard]
			if s == nil {
				continue
			}
			c, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := s.Propose(c, []byte(name))
			cancel()
			switch {
			case err == nil:
				return true
			case errors.Is(err, ErrOutcomeUnknown):
				unknown++
			}
		}
		return false
	})
	return unknown
}

// values are those of a shard, once all replicas show the same.
func (n *nursery) values(shard uint32) (values map[string]int64) {
	n.t.Helper()
	eventuallyIn(n.t, 30*time.Second, "replicas that agree", func() bool {
		n.born()
		values = nil
		for _, r := range n.rigs {
			m := r.machines[shard]
			if m == nil {
				return false
			}
			m.mu.Lock()
			got := maps.Clone(m.published)
			m.mu.Unlock()
			if values == nil {
				values = got
			}
			if !maps.Equal(values, got) {
				return false
			}
		}
		return true
	})
	return values
}

// victims are one node or all.
func (n *nursery) victims() []int {
	if n.rng.IntN(2) == 0 {
		return []int{0, 1, 2}
	}
	return []int{n.rng.IntN(3)}
}

// Power is lost on one node or on all, while a shard is split and again while its child
// works. The child comes on each node, once, with what its parent had applied at the split;
// nothing that either has acknowledged is missing, and replicas agree (RULES D2, F2). Where
// the batch of the birth is lost, the parent applies its entry again, and the child finds
// the log and the vote that it had.
func TestRuleF2_ABirthSurvivesLossOfPower(t *testing.T) {
	rounds := 6
	if os.Getenv("LIANA_LONG") == "1" {
		rounds = 100
	}
	seed := rand.Uint64()
	for round := range uint64(rounds) { // each ends its nodes before the next
		t.Run(fmt.Sprint(seed+round), func(t *testing.T) { bear(t, seed+round) })
	}
}

func bear(t *testing.T, seed uint64) {
	n := newNursery(t, seed, 3)
	before, unsure := int64(n.rng.IntN(20)), int64(0)
	for range before {
		unsure += n.ask(1, "a")
	}
	split := make(chan struct{})
	leader := n.leader()
	go func() { // its outcome does not matter: it is asked for again
		defer close(split)
		c, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = leader.Propose(c, []byte("split"))
	}()
	time.Sleep(time.Duration(n.rng.IntN(5000)) * time.Microsecond)
	n.losePower(n.victims()...)
	<-split
	n.ask(1, "split")
	sure, lost := int64(0), int64(0)
	for range 2 {
		for range 1 + n.rng.IntN(20) {
			lost += n.ask(theChild, "b")
			sure++
		}
		n.losePower(n.victims()...)
	}
	lost += n.ask(theChild, "b")
	sure++
	n.ask(1, "c")
	parent, child := n.values(1), n.values(theChild)
	if got := child["b"]; got < sure || got > sure+lost {
		t.Errorf("the child has b = %d, %d were acknowledged and %d are unknown", got, sure, lost)
	}
	if got := child["a"]; got < before || got > before+unsure || got != parent["a"] {
		t.Errorf("the child has a = %d, its parent %d; %d were acknowledged and %d are unknown", got, parent["a"], before, unsure)
	}
	if child["split"] != 1 || child["c"] != 0 || parent["b"] != 0 || parent["c"] == 0 {
		t.Errorf("the child has %v, its parent %v", child, parent)
	}
	ids := map[string]bool{}
	for _, m := range n.rigs[0].shards[theChild].Members() {
		ids[m.Replica] = m.Voter
	}
	for _, r := range n.rigs {
		if s := r.shards[theChild]; !ids[s.replica] {
			t.Errorf("replica %s of the child is no voter of %v", s.replica, ids)
		}
	}
}

// A replica joins a shard that was split, whose log holds all since the founding. It is
// sent the state: the log would write to the child's slots, and give birth to a replica of
// the child that is no member of it, over one that may be on the node already. So also
// after the leader was started again, and from another leader.
func TestAReplicaThatJoinsAfterASplitIsSentTheState(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		n := newNursery(t, 1, 2)
		for range 5 {
			n.ask(1, "a")
		}
		n.ask(1, "split")
		n.ask(theChild, "b")
		if restarted {
			n.losePower(0, 1)
		}
		n.ask(1, "a")
		if first, _ := n.leader().log.bounds(); first != 1 {
			t.Fatalf("the log begins at %d: the test is wrong", first)
		}
		r := n.rigs[2]
		n.joinParent(r)
		n.ask(1, "a")
		if got := n.values(1)["a"]; got < 7 {
			t.Errorf("a = %d, want 7 or more", got)
		}
		if got := r.shards[1].Status().Installs; got != 1 {
			t.Errorf("the replica that joins has installed %d states", got)
		}
		if got := r.replicas(); !slices.Equal(got, []uint32{1}) {
			t.Errorf("its node has replicas of %v", got)
		}
		n.losePower(2) // and goes on from there
		n.ask(1, "a")
		n.values(1)
	}
}

// A leader that has not applied a split which it has in its log is asked by a replica that
// was added behind the split. From the first entry of its log, or from the state that it
// has, that replica would apply the split too, and give birth to a replica of the child
// that is none of its members. It is sent nothing until the leader has applied all that
// its log held when it was elected, and the state then.
func TestALeaderThatHasNotAppliedASplitSendsNothingOfBefore(t *testing.T) {
	release, hang := make(chan struct{}), &faulty{prefix: []byte{1}}
	n := newNursery(t, 1, 2, func(c *NodeConfig) {
		if c.NodeID == "n2" {
			hang.Store, c.State = c.State, hang
		}
	})
	end := sync.OnceFunc(func() { close(release) })
	defer end()
	for range 5 {
		n.ask(1, "a")
	}
	first, second, r := n.rigs[0].shards[1], n.rigs[1].shards[1], n.rigs[2]
	n.open(r)
	id, err := r.node.NewReplica(1)
	n.must(err)
	n.start(r, true)
	n.isolate(true, 3)
	eventually(t, "the first leads, and the second has all", func() bool {
		if second.proposer.openTerm.Load() != 0 {
			_ = second.TransferLeadership(ctx(t), first.replica)
		}
		return first.proposer.openTerm.Load() != 0 && second.fsm.reached.Load() == first.fsm.reached.Load()
	})
	hang.set(func(f *faulty) { f.setWait = release })
	_, err = first.Propose(ctx(t), []byte("split"))
	n.must(err)
	n.must(first.AddLearner(ctx(t), id))
	n.must(first.TransferLeadership(ctx(t), second.replica))
	eventually(t, "the second is elected", func() bool { return second.raft().State() == raft.Leader })
	n.isolate(false, 3)
	for range 40 { // as long as nothing comes, though it is asked
		if _, last := r.shards[1].log.bounds(); last > 0 || r.shards[1].Status().Installs > 0 {
			t.Fatalf("the replica that joins was sent entries up to %d, and %d states", last, r.shards[1].Status().Installs)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if second.proposer.openTerm.Load() != 0 {
		t.Fatal("the second has applied the split: the test is wrong")
	}
	end()
	n.ask(1, "a")
	eventually(t, "the replica has the state", func() bool { return r.shards[1].Status().Installs == 1 })
	n.must(n.leader().Promote(ctx(t), id))
	n.ask(1, "a")
	n.values(1)
	if got := r.replicas(); !slices.Equal(got, []uint32{1}) {
		t.Errorf("its node has replicas of %v", got)
	}
}

// The child is led soon, where its parent is: nobody has to wait for the silence of a
// leader that never was.
func TestAChildIsLedSoonWhereItsParentIs(t *testing.T) {
	n := newNursery(t, 1, 3, func(c *NodeConfig) { c.PeerHeartbeat = 3 * time.Second })
	n.ask(1, "a")
	n.ask(1, "split")
	begun := time.Now()
	eventually(t, "the child is born", func() bool { return n.born() == 3 })
	at := slices.IndexFunc(n.rigs, func(r *rig) bool { return r.shards[1].Status().Leading })
	child := n.rigs[at].shards[theChild]
	child.Stand(ctx(t))
	n.must(child.Ready(ctx(t)))
	_, err := child.Propose(ctx(t), []byte("b"))
	n.must(err)
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("the child took a write after %v, less than an election timeout of %v is right", took, 3*time.Second)
	}
	child.Stand(ctx(t)) // of no use, and no harm
	if !child.Status().Leading {
		t.Error("it does not lead any more")
	}
}

// Who stands alone waits: a term that it cannot win helps nobody.
func TestAChildDoesNotStandWithoutTheOthers(t *testing.T) {
	n := newNursery(t, 1, 3, func(c *NodeConfig) { c.PeerHeartbeat = 3 * time.Second })
	n.ask(1, "split")
	r := n.rigs[slices.IndexFunc(n.rigs, func(r *rig) bool { return r.shards[1].Status().Leading })]
	m := newSums(t, r.state, theChild)
	s, err := r.node.StartShard(ShardConfig{ID: theChild, Machine: m, Join: true})
	n.must(err)
	r.shards[theChild], r.machines[theChild] = s, m
	before := s.Status().Term
	c, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	s.Stand(c)
	if after := s.Status().Term; after != before {
		t.Errorf("it stood in term %d, alone", after)
	}
	n.ask(theChild, "b")
}
