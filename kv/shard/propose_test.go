package shard

import (
	"context"
	"errors"
	"testing"
	"time"
)

// blocked starts a shard whose machine holds at the next entry, and fills its
// way: one command is being applied, nothing else is on its way.
func blocked(t *testing.T, cfg func(*NodeConfig)) (*Shard, func()) {
	t.Helper()
	r := memRig(t, func(c *NodeConfig) {
		c.Limits.Flying = 1
		if cfg != nil {
			cfg(c)
		}
	}).start(1)
	gate := make(chan struct{})
	s := r.shards[1]
	s.fsm.mu.Lock()
	r.machines[1].block = gate
	s.fsm.mu.Unlock()
	if _, err := s.ProposeAsync([]byte("first"), Client); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first command is on its way", func() bool { return s.Status().Waiting == 0 })
	open := func() {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
	t.Cleanup(open)
	return s, open
}

func TestAContextThatEndsInTheQueueWithdrawsTheCommand(t *testing.T) {
	s, open := blocked(t, nil)
	c, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := s.Propose(c, []byte("second"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("error %v, want the context's alone", err)
	}
	open()
	if v, err := s.Propose(ctx(t), []byte("second")); err != nil || v.(int64) != 1 {
		t.Fatalf("%v, %v: the withdrawn command was applied", v, err)
	}
}

func TestAContextThatEndsOnTheWayLeavesTheOutcomeUnknown(t *testing.T) {
	s, open := blocked(t, func(c *NodeConfig) { c.Limits.Flying = 2 })
	c, cancel := context.WithCancel(context.Background())
	p, err := s.ProposeAsync([]byte("second"), Client)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second command is on its way", func() bool { return s.Status().Waiting == 0 })
	cancel()
	if _, err := p.Wait(c); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want ErrOutcomeUnknown and the context's", err)
	}
	open()
	if v, err := p.Wait(ctx(t)); err != nil || v.(int64) != 1 {
		t.Fatalf("%v, %v: the answer is lost", v, err)
	}
}

func TestAFullQueueRefusesClientsAndTakesTheSystem(t *testing.T) {
	s, open := blocked(t, func(c *NodeConfig) { c.Limits.QueueCommands = 3 })
	for range 2 { // the first is one of the three
		if _, err := s.ProposeAsync([]byte("a"), Client); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ProposeAsync([]byte("a"), Client); !errors.Is(err, ErrBusy) {
		t.Fatalf("fourth command: %v, want ErrBusy", err)
	}
	p, err := s.ProposeAsync([]byte("a"), System)
	if err != nil {
		t.Fatalf("a system command was refused: %v", err)
	}
	open()
	if v, err := p.Wait(ctx(t)); err != nil || v.(int64) != 3 {
		t.Fatalf("%v, %v", v, err)
	}
	eventually(t, "all slots are free", s.queue.empty)
	if st := s.Status(); st.Refused != 1 {
		t.Errorf("%d refused, want 1", st.Refused)
	}
}

func TestTheQueueIsBoundedInBytesButTakesOneCommandOfAnySize(t *testing.T) {
	q := newQueue(1, 100, 10)
	q.open()
	if _, err := q.push(make([]byte, 50), Client); err != nil {
		t.Fatal(err)
	}
	if _, err := q.push([]byte("a"), Client); !errors.Is(err, ErrBusy) {
		t.Fatalf("over the bound: %v", err)
	}
	q.close(ErrNotLeader)
	q.open()
	for range 2 {
		if _, err := q.push(make([]byte, 5), Client); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGatheringKeepsTheOrderAndTheBounds(t *testing.T) {
	q := newQueue(1, 100, 1000)
	q.open()
	var all []*Proposal
	for _, size := range []int{1, 2, 30, 4, 5, 6, 7} {
		p, err := q.push(make([]byte, size), Client)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if !q.withdraw(all[4], context.Canceled) || q.withdraw(all[4], context.Canceled) {
		t.Fatal("a waiting command is withdrawn once")
	}
	for _, want := range [][]*Proposal{all[:2], all[2:3], {all[3], all[5]}, all[6:], nil} {
		got := q.take(nil, 2, 12)
		if len(got) != len(want) {
			t.Fatalf("took %d, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("wrong command at %d", i)
			}
		}
		q.release(got)
	}
	if !q.empty() || q.size != 0 || q.waiting != 0 {
		t.Fatalf("slots %d, size %d, waiting %d at the end", q.slots, q.size, q.waiting)
	}
}

func TestCommandsOutOfBoundsAreRefused(t *testing.T) {
	s, open := blocked(t, nil)
	defer open()
	for _, size := range []int{0, MaxCommand + 1} {
		if _, err := s.ProposeAsync(make([]byte, size), Client); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestOneCallerKeepsManyCommandsInFlightInOrder(t *testing.T) {
	r := memRig(t, nil).start(1)
	var ps []*Proposal
	for range 5000 {
		p, err := r.shards[1].ProposeAsync([]byte("a"), Client)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	for i, p := range ps {
		if v, err := p.Wait(ctx(t)); err != nil || v.(int64) != int64(i+1) {
			t.Fatalf("command %d: %v, %v", i, v, err)
		}
	}
}

// Leadership is injected: a one-voter group never loses it by itself.
func TestLossOfLeadershipRefusesWhatWaitsAndLeadsAlternate(t *testing.T) {
	s, open := blocked(t, nil)
	p, err := s.ProposeAsync([]byte("waiting"), Client)
	if err != nil {
		t.Fatal(err)
	}
	open()
	if _, err := p.Wait(ctx(t)); err != nil {
		t.Fatal(err)
	}
	m := s.fsm.machine.(*sums)
	leads := func() []bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return append([]bool(nil), m.leads...)
	}
	s.proposer.notify <- false
	eventually(t, "leading ends", func() bool { return len(leads()) == 2 })
	if _, err := s.Propose(ctx(t), []byte("a")); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Propose: %v", err)
	}
	if err := s.Confirm(ctx(t)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Confirm: %v", err)
	}
	s.proposer.notify <- true
	if err := s.Ready(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Propose(ctx(t), []byte("a")); err != nil {
		t.Error(err)
	}
	if got := leads(); len(got) != 3 || !got[0] || got[1] || !got[2] {
		t.Errorf("Lead was called with %v", got)
	}
}

func TestATickMovesLogTimeWithoutCommands(t *testing.T) {
	h := newHandClock()
	r := memRig(t, func(c *NodeConfig) { c.Clock = h.read }).start(1)
	before := r.shards[1].Status().Now
	h.pass(3 * time.Second)
	if err := r.shards[1].Tick(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if got := r.shards[1].Status().Now - before; got != 3_000_000 {
		t.Errorf("log time moved %d µs", got)
	}
}
