package shard

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// oneEntry makes logs keep one entry only, so that truncation shows.
func oneEntry(c *NodeConfig) { c.Limits.KeepEntries, c.Limits.KeepBytes = 1, 1<<30 }

// RULES 1: after a truncation the log holds no configuration; a restart takes
// it from the applied row.
func TestRule1_AGroupLeadsAgainAfterItsConfigurationLeftTheLog(t *testing.T) {
	r := memRig(t, oneEntry).start(1)
	for range 10 {
		r.add(1, "a")
	}
	if err := r.node.Truncate(true); err != nil {
		t.Fatal(err)
	}
	if first, _ := r.shards[1].log.bounds(); first < 5 {
		t.Fatalf("log begins at %d: nothing was deleted", first)
	}
	r.close()
	r.start(1)
	if got := r.add(1, "a"); got != 11 {
		t.Errorf("a = %d, want 11", got)
	}
}

// RULES 5: barriers and no-ops move Raft's indexes but never reach the state
// machine. Deleting the log by Raft's count leaves a gap behind the state, and
// the next start ends the process.
func TestRuleA3_5_BarriersDoNotCarryTruncationPastTheState(t *testing.T) {
	r := memRig(t, oneEntry).start(1)
	for range 10 {
		r.add(1, "a")
		if err := r.shards[1].raft().Barrier(time.Second).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if err := r.shards[1].raft().Barrier(time.Second).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.node.Truncate(true); err != nil {
		t.Fatal(err)
	}
	st := r.shards[1].Status()
	if st.FirstLog > st.Durable+1 || st.FirstLog < 2 {
		t.Fatalf("log begins at %d, state durable to %d", st.FirstLog, st.Durable)
	}
	r.crash(powerLoss)
	r.start(1)
	if got := r.add(1, "a"); got != 11 {
		t.Errorf("a = %d, want 11", got)
	}
}

// RULES 6: the applied row as the store shows it may be lost with the power.
func TestRuleA3_6_TruncationStopsAtWhatIsDurable(t *testing.T) {
	r := memRig(t, oneEntry).start(1)
	for range 10 {
		r.add(1, "a")
	}
	if err := r.state.Flush(); err != nil {
		t.Fatal(err)
	}
	durable := r.shards[1].Status().Durable
	for range 10 {
		r.add(1, "a")
	}
	if err := r.node.Truncate(false); err != nil {
		t.Fatal(err)
	}
	if st := r.shards[1].Status(); st.FirstLog != durable+1 || st.Durable != durable || st.Cut <= durable {
		t.Fatalf("log begins at %d, durable %d (was %d), cut %d", st.FirstLog, st.Durable, durable, st.Cut)
	}
	r.crash(powerLoss)
	r.start(1)
	if got := r.add(1, "a"); got != 21 {
		t.Errorf("a = %d after loss of power, want 21", got)
	}
}

func TestRuleA3_ALogOverItsBoundForcesAFlush(t *testing.T) {
	r := memRig(t, func(c *NodeConfig) { oneEntry(c); c.Limits.LogBytes = 1 << 20 }).start(1)
	big := "a " + strings.Repeat("x", 100<<10)
	for range 30 {
		r.add(1, big)
	}
	eventually(t, "the log is short again", func() bool { return r.shards[1].Status().LogBytes < 1<<20 })
	if got := r.add(1, big); got != 31 {
		t.Errorf("%d, want 31", got)
	}
}

// RULES 9: after an election the commit index stands on Raft's no-op, which is
// never applied. A read must not wait for it.
func TestRuleA7_9_AnIdleLeaderConfirmsAtOnce(t *testing.T) {
	r := memRig(t, nil).start(1)
	r.close()
	r.start(1)
	s := r.shards[1]
	if err := s.raft().Barrier(time.Second).Error(); err != nil {
		t.Fatal(err)
	}
	before := s.Status()
	if before.Commit <= before.Applied {
		t.Fatalf("commit %d, applied %d: the schedule is not met", before.Commit, before.Applied)
	}
	if err := s.Confirm(ctx(t)); err != nil {
		t.Fatal(err)
	}
}

func TestRuleA7_ConcurrentConfirmsShareRoundsBegunAfterThem(t *testing.T) {
	var c confirmer
	var mu sync.Mutex
	begun := 0
	gate := make(chan struct{})
	verify := func() error {
		mu.Lock()
		begun++
		mu.Unlock()
		<-gate
		return nil
	}
	rounds := func() int { mu.Lock(); defer mu.Unlock(); return begun }
	first, _ := c.join(verify)
	eventually(t, "the first round has begun", func() bool { return rounds() == 1 })
	second, _ := c.join(verify)
	third, _ := c.join(verify)
	if second == first || second != third {
		t.Fatal("later calls must share a round that is not begun yet")
	}
	close(gate)
	<-third.done
	c.wg.Wait()
	if rounds() != 2 {
		t.Errorf("%d rounds, want 2", rounds())
	}
}

// RULES 13: one bad block in the log of group 2 stops group 2 alone, at each
// start.
func TestRuleA9_13_ABadLogStopsItsOwnShardOnly(t *testing.T) {
	r := memRig(t, nil).start(2)
	for range 5 {
		r.add(1, "a")
		r.add(2, "a")
	}
	l := r.shards[2].log
	at := r.shards[2].Status().Applied
	r.close()
	b := r.log.NewBatch()
	if err := errors.Join(b.Set(l.key(at), []byte("ruin")), b.Commit(kv.Sync), b.Close()); err != nil {
		t.Fatal(err)
	}
	r.open()
	_, err := r.node.StartShard(ShardConfig{ID: 2, Machine: newSums(t, r.state, 2)})
	if !errors.Is(err, kv.ErrCorruption) || !strings.Contains(err.Error(), "shard 2") {
		t.Fatalf("start of shard 2: %v", err)
	}
	r.startShard(1)
	if err := r.shards[1].Ready(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if got := r.add(1, "a"); got != 6 {
		t.Errorf("shard 1: %d, want 6", got)
	}
}

// RULES 13, at start: Raft panics where it cannot read what lies behind the state.
func TestRuleA9_13_ABadEntryBehindTheStateIsAnErrorOfTheStart(t *testing.T) {
	r := memRig(t, nil).start(1)
	if err := r.state.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		r.add(1, "a")
	}
	l, at := r.shards[1].log, r.shards[1].Status().Applied
	r.crash(powerLoss)
	b := r.log.NewBatch()
	if err := errors.Join(b.Set(l.key(at-2), []byte("ruin")), b.Commit(kv.Sync), b.Close()); err != nil {
		t.Fatal(err)
	}
	r.open()
	if _, err := r.node.StartShard(ShardConfig{ID: 1, Machine: newSums(t, r.state, 1)}); err == nil || !strings.Contains(err.Error(), "unknown version") {
		t.Fatalf("start: %v", err)
	}
}

// faultRig is a node with two shards whose log store fails for shard 2 on demand.
func faultRig(t *testing.T, cfg func(*NodeConfig)) (*rig, *faulty, chan error) {
	t.Helper()
	log := &faulty{Store: kv.NewMem(nil), prefix: logPrefix(2, 0)[:5]}
	faults := make(chan error, 4)
	r := newRig(t, kv.NewMem(nil), log, func(c *NodeConfig) {
		c.OnFault = func(shard uint32, err error) {
			if shard == 2 {
				faults <- err
			}
		}
		if cfg != nil {
			cfg(c)
		}
	})
	return r.start(2), log, faults
}

func TestRuleA9_AFailingAppendStopsItsShardWithTheOutcomeUnknown(t *testing.T) {
	r, log, faults := faultRig(t, nil)
	r.add(2, "a")
	disk := errors.New("disk on fire")
	log.set(func(f *faulty) { f.setErr = disk })
	if _, err := r.shards[2].Propose(ctx(t), []byte("a")); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, disk) {
		t.Errorf("the command on its way: %v", err)
	}
	if err := <-faults; !errors.Is(err, disk) {
		t.Errorf("OnFault: %v", err)
	}
	if _, err := r.shards[2].Propose(ctx(t), []byte("a")); !errors.Is(err, ErrFault) || !errors.Is(err, disk) {
		t.Errorf("the next command: %v", err)
	}
	if err := r.shards[2].Confirm(ctx(t)); !errors.Is(err, ErrFault) {
		t.Errorf("Confirm: %v", err)
	}
	if got := r.add(1, "a"); got != 1 {
		t.Errorf("shard 1: %d", got)
	}
	if err := r.shards[2].Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if got := r.machines[2].leads; len(got) != 2 || got[1] {
		t.Errorf("Lead was called with %v", got)
	}
	log.set(func(f *faulty) { f.setErr = nil })
	r.startShard(2) // a restart of the shard heals it
	if err := r.shards[2].Ready(ctx(t)); err != nil {
		t.Fatal(err)
	}
	r.add(2, "a")
}

func TestRuleA9_AnAppendThatHangsStopsItsShard(t *testing.T) {
	// The patience is the node's: on a busy machine the other shard must not run out of it.
	r, log, faults := faultRig(t, func(c *NodeConfig) { c.Limits.StoreTimeout = 5 * time.Second })
	wait := make(chan struct{})
	log.set(func(f *faulty) { f.setWait = wait })
	p, err := r.shards[2].ProposeAsync([]byte("a"), Client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx(t)); !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "takes longer") {
		t.Errorf("the command on its way: %v", err)
	}
	<-faults
	if got := r.add(1, "a"); got != 1 {
		t.Errorf("shard 1: %d", got)
	}
	close(wait)
	log.set(func(f *faulty) { f.setWait = nil })
}

// A read of the log fails under a running Raft, on one of its goroutines.
func TestRuleA9_AFailingReadEndsNoProcess(t *testing.T) {
	r, log, faults := faultRig(t, nil)
	disk := errors.New("disk on fire")
	log.set(func(f *faulty) { f.getErr = disk })
	l := r.shards[2].log
	l.mu.Lock()
	l.recent = recentLog{} // it is read from the store
	l.mu.Unlock()
	g := guardedLog{logStore: l, guard: r.shards[2].instance.Load().guard, whole: func() bool { return true }}
	ended := make(chan bool)
	go func() { // as a goroutine of Raft would
		defer close(ended)
		var out raft.Log
		err := g.GetLog(1, &out)
		t.Errorf("the call returned %v", err)
	}()
	<-ended
	if err := <-faults; !errors.Is(err, disk) {
		t.Errorf("OnFault: %v", err)
	}
}

func TestAMachineThatFailsStopsItsShardOnly(t *testing.T) {
	for _, cmd := range []string{"corrupt", "panic"} {
		r, _, faults := faultRig(t, nil)
		r.add(2, "a")
		if _, err := r.shards[2].Propose(ctx(t), []byte(cmd)); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("%s: %v", cmd, err)
		}
		<-faults
		if err := r.shards[2].Fault(); err == nil {
			t.Errorf("%s: no fault", cmd)
		}
		r.add(1, "a")
		r.close()
		r.start(1)
		// The entry is in the log: shard 2 fails again, and says so.
		s, err := r.node.StartShard(ShardConfig{ID: 2, Machine: newSums(t, r.state, 2)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ready(ctx(t)); !errors.Is(err, ErrFault) {
			t.Errorf("%s: after restart: %v", cmd, err)
		}
		r.close()
	}
}

func TestRuleA8_StoresOfDifferentNodesAreRefused(t *testing.T) {
	a, b := memRig(t, nil).start(1), memRig(t, nil).start(1)
	a.add(1, "a")
	a.close()
	b.close()
	for name, c := range map[string]struct {
		change func(c *NodeConfig)
		says   string
	}{
		"foreign state":  {func(c *NodeConfig) { c.State = b.state }, "the state store is of node"},
		"foreign log":    {func(c *NodeConfig) { c.Log = b.log }, "the log store is of node"},
		"foreign bolt":   {func(c *NodeConfig) { c.StablePath = b.stable }, "the state store is of node"},
		"lost state":     {func(c *NodeConfig) { c.State = kv.NewMem(nil) }, "the state store carries no stamp"},
		"lost log":       {func(c *NodeConfig) { c.Log = kv.NewMem(nil) }, "the log store carries no stamp"},
		"lost bolt":      {func(c *NodeConfig) { c.StablePath += ".new" }, "the state store holds data"},
		"other identity": {func(c *NodeConfig) { c.NodeID = "n2" }, "configured as"},
	} {
		cfg := a.config()
		c.change(&cfg)
		n, err := OpenNode(cfg)
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if n != nil {
			n.Close()
		}
	}
	a.start(1)
	if got := a.add(1, "a"); got != 2 {
		t.Errorf("own stores: %d, want 2", got)
	}
}

func TestRuleA8_AFoundingCutOffAnywhereBeginsAnew(t *testing.T) {
	r := memRig(t, nil)
	for _, leave := range []string{"stamp of the state", "stamp of the log"} {
		key, store := stateStampKey(), r.state
		if leave == "stamp of the log" {
			key, store = logStampKey(), r.log
		}
		if err := setSync(store, key, stamp{nodeID: "half"}.encode()); err != nil {
			t.Fatal(err)
		}
	}
	r.start(1)
	r.add(1, "a")
	old := r.shards[1].Status().Replica
	r.close()
	// The group's founding was cut off before its row said so.
	row, err := r.state.Get(nil, stateRowKey(stateReplica, 1))
	if err != nil {
		t.Fatal(err)
	}
	row[1] = 1
	b := r.state.NewBatch()
	if err := errors.Join(b.Set(stateRowKey(stateReplica, 1), row),
		b.Delete(stateRowKey(stateApplied, 1)), b.Commit(kv.Sync), b.Close()); err != nil {
		t.Fatal(err)
	}
	r.start(1)
	if got := r.shards[1].Status().Replica; got == old || !strings.HasPrefix(got, "n1-") {
		t.Errorf("replica %s, was %s: a new one needs a new id", got, old)
	}
}

func TestRuleA4_ALogThatLostEntriesIsRefused(t *testing.T) {
	for name, ruin := range map[string]func(b kv.Batch, l *logStore, applied uint64) error{
		"all": func(b kv.Batch, l *logStore, _ uint64) error { return b.DeleteRange(kv.PrefixSpan(l.prefix)) },
		"the tail": func(b kv.Batch, l *logStore, a uint64) error {
			return b.DeleteRange(kv.Span{Lower: l.key(a), Upper: l.key(a + 9)})
		},
		"the term": func(b kv.Batch, l *logStore, a uint64) error {
			return b.Set(l.key(a), appendLog(nil, &raft.Log{Type: raft.LogCommand, Term: 99}))
		},
	} {
		r := memRig(t, nil).start(1)
		for range 5 {
			r.add(1, "a")
		}
		l, applied := r.shards[1].log, r.shards[1].Status().Applied
		r.close()
		b := r.log.NewBatch()
		if err := errors.Join(ruin(b, l, applied), b.Commit(kv.Sync), b.Close()); err != nil {
			t.Fatal(err)
		}
		r.open()
		if _, err := r.node.StartShard(ShardConfig{ID: 1, Machine: newSums(t, r.state, 1)}); !errors.Is(err, ErrLogLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheBoltFileIsLocked(t *testing.T) {
	r := memRig(t, nil)
	r.open()
	if _, err := OpenNode(r.config()); !errors.Is(err, kv.ErrLocked) {
		t.Errorf("second node on the file: %v", err)
	}
	r.close()
	cfg := r.config()
	cfg.StablePath = cfg.StablePath + "/no/such/dir"
	if _, err := OpenNode(cfg); err == nil || !errors.Is(err, os.ErrNotExist) && !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("bad path: %v", err)
	}
}
