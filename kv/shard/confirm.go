package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// confirmer runs the rounds in which a leader asks its voters whether it still
// leads. A round serves all calls that arrived before it began.
type confirmer struct {
	mu     sync.Mutex
	wg     sync.WaitGroup
	closed error  // why no round begins any more
	busy   bool   // the goroutine of the rounds runs
	next   *round // gathers calls for the round that is not begun yet
	rounds atomic.Uint64
}

type round struct {
	done chan struct{}
	err  error // set before done is closed
}

// Confirm returns nil when this replica led, with its own term open, at some
// moment after the call: every write acknowledged before the call is then
// applied and visible here. It costs a round trip to a majority, shared by
// concurrent calls. Errors: ErrNotLeader, ErrStopped, ErrFault, or ctx's.
func (s *Shard) Confirm(ctx context.Context) error {
	called := s.node.pulse.now()
	r, err := s.confirm.join(s.verify)
	if err == nil {
		select {
		case <-r.done:
			err = r.err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("shard %d: confirm: %w", s.id, err)
	}
	for old := s.confirmed.Load(); old < called && !s.confirmed.CompareAndSwap(old, called); {
		old = s.confirmed.Load()
	}
	return nil
}

func (c *confirmer) join(verify func() error) (*round, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return nil, c.closed
	}
	if c.next == nil {
		c.next = &round{done: make(chan struct{})}
	}
	if !c.busy {
		c.busy = true
		c.wg.Go(func() { c.run(verify) })
	}
	return c.next, nil
}

func (c *confirmer) run(verify func() error) {
	for {
		c.mu.Lock()
		r := c.next
		c.next = nil
		c.busy = r != nil
		c.mu.Unlock()
		if r == nil {
			return
		}
		r.err = verify()
		c.rounds.Add(1)
		close(r.done)
	}
}

func (c *confirmer) close(reason error) {
	c.mu.Lock()
	c.closed = reason
	c.mu.Unlock()
}

func (c *confirmer) running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy
}

// verify is one round: a majority of the voters says, asked now, that it has voted in
// no later term. So no other leader can have been elected before, and nothing can have
// been acknowledged that this replica does not know. It does not wait for the commit
// index: what this leader acknowledged is applied here already, and what earlier
// leaders did was applied before the term was open.
//
// Raft's VerifyLeader will not do: it counts answers to heartbeats that were sent, and
// answered, before it began, and those of replicas that do not vote.
func (s *Shard) verify() error {
	if err := s.fault.get(); err != nil {
		return fmt.Errorf("%w: %w", ErrFault, err)
	}
	term := s.proposer.openTerm.Load()
	if term == 0 {
		return ErrNotLeader
	}
	if err := s.majority(term); err != nil {
		return err
	}
	// This replica is of the majority too.
	if s.raft().CurrentTerm() != term {
		return ErrNotLeader
	}
	return nil
}

// majority asks the other voters until enough of them stand at term or before.
func (s *Shard) majority(term uint64) error {
	others, need := s.voters()
	answers := s.lines.ask(others)
	failed := errors.New("too few voters")
	for left := len(others); need > 0; left-- {
		if left < need {
			return fmt.Errorf("%w: no majority answers: %w", ErrNotLeader, failed)
		}
		switch a := <-answers; { // each line answers within its patience
		case a.err != nil:
			failed = a.err
		case a.term > term:
			return ErrNotLeader
		default:
			need--
		}
	}
	return nil
}

// voters returns the other voters of the newest configuration, and how many of them
// make a majority together with this replica.
func (s *Shard) voters() (others []string, need int) {
	votes := 0
	for _, m := range s.Members() {
		switch {
		case !m.Voter:
		case m.Replica == s.replica:
			votes++
		default:
			others = append(others, m.Replica)
		}
	}
	return others, (len(others)+votes)/2 + 1 - votes
}
