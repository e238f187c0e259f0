package shard

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lianadb/liana/kv/pebblekv"
)

// sickTime stands for StoreTimeout, 10 s, in these tests: a leader gives way within
// three of it. On a machine that is busy with other tests it may take calmTime longer.
const (
	sickTime = time.Second
	calmTime = 12 * time.Second
)

// sickFleet is three nodes with shard 1 on all, led by the first, whose log and state
// can be made to fail; the first has shard 2 alone.
func sickFleet(t *testing.T) (f *fleet, log, state *faulty) {
	log = &faulty{prefix: []byte{logEntries}}
	state = &faulty{prefix: []byte{1, 0, 0, 0, 1}}
	f = newFleet(t, 3, func(c *NodeConfig) {
		c.Limits.StoreTimeout, c.PeerHeartbeat = sickTime, 300*time.Millisecond
		if c.NodeID == "n1" {
			log.Store, state.Store = c.Log, c.State
			c.Log, c.State = log, state
		}
	}).form()
	f.rigs[0].startShard(2)
	if err := f.rigs[0].shards[2].Ready(ctx(t)); err != nil {
		t.Fatal(err)
	}
	f.first()
	f.write("a")
	return f, log, state
}

// write adds through whoever leads until one is acknowledged.
func (f *fleet) write(name string) {
	f.t.Helper()
	eventuallyIn(f.t, 20*time.Second, "a write", func() bool {
		c, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := f.leader().Propose(c, []byte(name))
		return err == nil
	})
}

// another waits until another than the first leads and serves.
func (f *fleet) another() {
	f.t.Helper()
	begun := time.Now()
	eventuallyIn(f.t, 3*sickTime+calmTime, "another leader", func() bool { return f.leader() != f.rigs[0].shards[1] })
	f.write("b")
	f.t.Logf("another leads after %v of %v", time.Since(begun), 3*sickTime)
}

// first makes the first node lead shard 1.
func (f *fleet) first() {
	f.t.Helper()
	first := f.rigs[0].shards[1]
	f.lead("hand it to the first", func(l *Shard) error {
		if l == first {
			return nil
		}
		return l.TransferLeadership(ctx(f.t), first.replica)
	})
	eventually(f.t, "the first to lead", func() bool { return f.leader() == first })
}

// load proposes to the first node as clients do, each waiting for its answer no longer
// than a while.
func load(f *fleet) (end func()) {
	c, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c.Err() == nil {
			one, stop := context.WithTimeout(c, 200*time.Millisecond)
			if _, err := f.rigs[0].shards[1].Propose(one, []byte("load")); err != nil {
				time.Sleep(time.Millisecond)
			}
			stop()
		}
	}()
	return func() { cancel(); <-done }
}

func TestALeaderOnASlowDiskGivesWay(t *testing.T) {
	f, log, _ := sickFleet(t)
	end := load(f)
	defer end()
	log.set(func(l *faulty) { l.setTime = sickTime / 5 }) // 2 s of 10 s
	f.another()
	st := f.rigs[0].shards[1].Status()
	if st.Fault != nil || st.GaveWay > 1 {
		t.Errorf("fault %v, gave way %d times, sick: %q", st.Fault, st.GaveWay, st.Sick)
	}
	eventually(t, "the node to say so", func() bool { f.write("c"); return strings.Contains(f.rigs[0].node.Sick(), "slow") })
	log.set(func(l *faulty) { l.setTime = 0 })
	eventually(t, "the disk to be well", func() bool { f.write("c"); return f.rigs[0].node.Sick() == "" })
	end()
	f.agree()
}

// Where all disks are slow one has to do: the leadership does not go round.
func TestSlowDisksEverywhereDoNotTossTheLeadership(t *testing.T) {
	f := newFleet(t, 3, func(c *NodeConfig) {
		c.Limits.StoreTimeout, c.PeerHeartbeat = sickTime/2, 300*time.Millisecond
		c.Log = &faulty{Store: c.Log, prefix: []byte{logEntries}, setTime: sickTime / 16}
	}).form()
	end := load(f)
	for until := time.Now().Add(5 * sickTime); time.Now().Before(until); {
		f.write("a")
	}
	end()
	handovers := uint64(0)
	for _, r := range f.rigs {
		handovers += r.shards[1].Status().GaveWay
	}
	if handovers == 0 || handovers > 3 {
		t.Errorf("handed over %d times", handovers)
	}
	f.agree()
}

// What hangs is the state, behind the log: heartbeats and the log go on.
func TestALeaderWhoseStateHangsGivesWay(t *testing.T) {
	f, _, state := sickFleet(t)
	end := load(f)
	defer end()
	release := make(chan struct{})
	state.set(func(s *faulty) { s.setWait = release })
	f.another()
	st := f.rigs[0].shards[1].Status()
	if st.Fault != nil || !strings.Contains(st.Sick, "applying") {
		t.Errorf("fault %v, sick: %q", st.Fault, st.Sick)
	}
	state.set(func(s *faulty) { s.setWait = nil })
	close(release)
	end()
	f.agree()
	eventually(t, "the disk to be well", func() bool { return f.rigs[0].node.Sick() == "" })
}

// A shard that stores nothing does not notice that the disk hangs, and its first write
// would. It gives way when another shard of the node has found out.
func TestIdleLeadersGiveWayWhenTheDiskHangs(t *testing.T) {
	f, log, _ := sickFleet(t)
	release := make(chan struct{})
	log.set(func(l *faulty) { l.prefix, l.setWait = logPrefix(2, 0)[:5], release })
	p, err := f.rigs[0].shards[2].ProposeAsync([]byte("a"), Client)
	if err != nil {
		t.Fatal(err)
	}
	f.another()
	if _, err := p.Wait(ctx(t)); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("what hangs is answered with %v", err)
	}
	if st := f.rigs[0].shards[1].Status(); st.Fault != nil {
		t.Errorf("fault %v, gave way %d times", st.Fault, st.GaveWay)
	}
	if fault := f.rigs[0].shards[2].Fault(); fault == nil || !strings.Contains(fault.Error(), "takes longer") {
		t.Errorf("the shard that hangs: %v", fault)
	}
	log.set(func(l *faulty) { l.setWait = nil })
	close(release)
}

// A disk that refuses stops the shards that meet it, and others lead.
func TestRuleA9_ALeaderWhoseDiskFailsGivesWay(t *testing.T) {
	for name, fail := range map[string]func(log, state *faulty, err error){
		"log": func(log, _ *faulty, err error) {
			log.set(func(l *faulty) { l.prefix, l.setErr = logPrefix(1, 0)[:5], err })
		},
		"state": func(_, state *faulty, err error) { state.set(func(s *faulty) { s.setErr = err }) },
	} {
		t.Run(name, func(t *testing.T) {
			f, log, state := sickFleet(t)
			eio := errors.New("input/output error")
			fail(log, state, eio)
			c, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if _, err := f.rigs[0].shards[1].Propose(c, []byte("a")); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("%v", err)
			}
			f.another()
			if fault := f.rigs[0].shards[1].Fault(); !errors.Is(fault, eio) {
				t.Errorf("fault %v", fault)
			}
			if got := f.rigs[0].add(2, "a"); got != 1 { // the other shard of the node goes on
				t.Errorf("shard 2: %d", got)
			}
		})
	}
}

func TestRuleA9_AVoteThatHangsFailsTheShard(t *testing.T) {
	s := &Shard{id: 7, fault: newFault(), node: &Node{disk: newDisk(20 * time.Millisecond)}}
	g := newGuard(s)
	release := make(chan struct{})
	go func() { _ = g.call(&s.works.stable, "storing a vote", func() error { <-release; return nil }) }()
	<-s.fault.ch
	if err := s.fault.get(); !strings.Contains(err.Error(), "shard 7: storing a vote takes longer than 20ms") {
		t.Error(err)
	}
	if why, stalled := s.node.disk.look([]*Shard{s}); !stalled || !strings.Contains(why, "of shard 7") {
		t.Errorf("%q, %v", why, stalled)
	}
	close(release)
	eventually(t, "the call to end", func() bool { why, _ := s.node.disk.look([]*Shard{s}); return why == "" })
}

// A full disk under the state: flushes fail and are tried again, memtables fill, and in
// the end commits wait. Nothing tells Raft, whose log has room.
func TestALeaderWhoseStateHasNoRoomGivesWay(t *testing.T) {
	var full atomic.Bool
	store, err := pebblekv.Open(filepath.Join(t.TempDir(), "state"), pebblekv.Options{
		MemTableBytes: 64 << 10,
		FS: pebblekv.HookedFS(func(path string) error {
			if full.Load() && strings.HasSuffix(path, ".sst") {
				return syscall.ENOSPC
			}
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	f := newFleet(t, 3, func(c *NodeConfig) { c.Limits.StoreTimeout, c.PeerHeartbeat = sickTime, 300*time.Millisecond })
	f.rigs[0].state = store
	f.form()
	f.first()
	f.write("a")
	full.Store(true)
	w := startWriters(f, 20_000)
	defer w.end()
	first := f.rigs[0].shards[1]
	eventuallyIn(t, time.Minute, "the disk to be sick", func() bool { return strings.Contains(first.Status().Sick, "applying") })
	f.another()
	if fault, failed := first.Fault(), store.Stats().BackgroundErrors; fault != nil || failed == 0 {
		t.Errorf("fault %v, %d failed flushes", fault, failed)
	}
	w.await(w.done.Load() + 1000)
	full.Store(false)
	eventually(t, "the disk to be well", func() bool { return f.rigs[0].node.Sick() == "" })
	w.end()
	f.agree()
}
