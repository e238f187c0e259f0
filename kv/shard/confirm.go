package shard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pauseTick is how often the process looks whether it runs.
	pauseTick = 10 * time.Millisecond
	// pauseLong is the pause that makes a leader's confirmation doubtful.
	pauseLong = 50 * time.Millisecond
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

// verify is one round. It does not wait for the commit index: what this leader
// acknowledged is applied here already, and what earlier leaders did was
// applied before the term was open.
func (s *Shard) verify() error {
	if err := s.fault.get(); err != nil {
		return fmt.Errorf("%w: %w", ErrFault, err)
	}
	term := s.proposer.openTerm.Load()
	if term == 0 {
		return ErrNotLeader
	}
	if err := confirmError(s.raft.VerifyLeader().Error()); err != nil {
		return err
	}
	// Raft may have lost and won again meanwhile, in a term not open yet.
	if s.raft.CurrentTerm() != term {
		return ErrNotLeader
	}
	// Raft counts heartbeat answers that were sent before the round began. If
	// this process stood still they may be old, so ask the log instead.
	if s.node.pauses.recent(s.node.cfg.Heartbeat) {
		return s.Tick(context.Background())
	}
	return nil
}

// pauses notices that the process stood still (SIGSTOP, a paused machine whose
// monotonic clock goes on, a starved scheduler).
type pauses struct {
	mu   sync.Mutex
	last time.Time // when run last ran
	end  time.Time // when the last long pause was noticed
}

func (p *pauses) run(stop <-chan struct{}) {
	t := time.NewTicker(pauseTick)
	defer t.Stop()
	for {
		p.look(time.Now())
		select {
		case <-t.C:
		case <-stop:
			return
		}
	}
}

func (p *pauses) look(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() && now.Sub(p.last) > pauseLong {
		p.end = now
	}
	p.last = now
}

// recent reports whether a long pause lies within the last span. A ticker that
// is late at this moment is a pause too: the process may have just woken.
func (p *pauses) recent(span time.Duration) bool {
	p.look(time.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.end.IsZero() && p.last.Sub(p.end) <= span
}
