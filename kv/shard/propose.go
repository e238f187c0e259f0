package shard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// reopenAfter is how long a leader waits before it tries again to open its
// term, where Raft refused the entry though the replica still leads.
const reopenAfter = 20 * time.Millisecond

// worthAnother is how many commands are worth an entry while one is on its way to other
// replicas. There an entry costs, in messages, syncs and wake-ups, as much as dozens of commands.
const worthAnother = 64

// proposer owns the way from the queue into the log. One goroutine (run)
// follows leadership, gathers, stamps and hands entries to Raft; a short-lived
// goroutine for each entry on its way waits for Raft's answer.
type proposer struct {
	shard  uint32
	limits Limits
	raft   func() *raft.Raft // the one that runs
	queue  *queue
	fsm    *fsm
	clock  Clock

	clocks func() (int64, error) // a look at the clocks of the voters

	notify   chan bool       // leadership, from Raft
	looks    chan look       // answers to looks at the clocks
	opened   chan openedTerm // answers to the entry that opens a term
	finished chan *flight    // an entry was answered
	stop     chan struct{}

	// Of the goroutine run:
	attempt uint64       // counts gains and losses of leadership
	leading bool         // Raft says so
	term    *leaderClock // of the term that is being opened, or open
	open    bool         // the term's first entry is applied
	number  uint64       // the open term
	flying  int          // entries on their way
	storing []*flight    // of these, the ones not in the log yet, oldest first
	retry   *time.Timer  // set while a refused opening waits
	scratch []*Proposal

	stored   atomic.Int64  // entries that came into the log and run has not seen
	openTerm atomic.Uint64 // the open term, 0 if none: for readers

	inflight inflight
	awaiting sync.WaitGroup
	futures  atomic.Int64 // of Raft, being waited for

	sent, gathered atomic.Uint64 // entries, and commands in them
}

// openedTerm is the answer to the entry that opens a term.
type openedTerm struct {
	attempt uint64
	term    uint64
	now     int64
	err     error
}

// flight is a log entry on its way, with the proposals in it.
type flight struct{ proposals []*Proposal }

// inflight are the entries on their way. Whoever removes one answers it.
type inflight struct {
	mu  sync.Mutex
	set map[*flight]struct{}
}

func (f *inflight) add(e *flight) {
	f.mu.Lock()
	if f.set == nil {
		f.set = make(map[*flight]struct{})
	}
	f.set[e] = struct{}{}
	f.mu.Unlock()
}

func (f *inflight) remove(e *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.set[e]
	delete(f.set, e)
	return ok
}

func (f *inflight) removeAll() []*flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*flight
	for e := range f.set {
		all = append(all, e)
	}
	clear(f.set)
	return all
}

func (p *proposer) run() {
	p.retry = time.NewTimer(time.Hour)
	p.retry.Stop()
	defer p.retry.Stop()
	for {
		select {
		case leading := <-p.notify:
			if leading {
				p.win()
			} else {
				p.lose()
			}
		case l := <-p.looks:
			p.looked(l)
		case o := <-p.opened:
			p.opening(o)
		case <-p.retry.C:
			if p.leading && !p.open {
				p.win()
			}
		case <-p.queue.wake:
		case f := <-p.finished:
			p.flying--
			p.storing = slices.DeleteFunc(p.storing, func(s *flight) bool { return s == f })
		case <-p.stop:
			p.lose()
			return
		}
		if n := int(p.stored.Swap(0)); n > 0 {
			p.storing = slices.Delete(p.storing, 0, min(n, len(p.storing)))
		}
		p.dispatch()
	}
}

// logged is called after n commands came into the log, by Raft's main
// goroutine. It may count an entry of another term; then the next entry is
// sent a little early.
func (p *proposer) logged(n int) {
	p.stored.Add(int64(n))
	p.queue.poke()
}

// win begins to open the term this replica has won: with a look at the clocks.
func (p *proposer) win() {
	p.attempt++
	p.leading, p.open, p.term = true, false, nil
	p.look()
}

// look asks the voters for their clocks.
func (p *proposer) look() {
	l := look{attempt: p.attempt}
	p.awaiting.Go(func() {
		l.offset, l.err = p.clocks()
		select {
		case p.looks <- l:
		case <-p.stop:
		}
	})
}

// looked opens the term, or corrects the clock of one that is open. Without a majority
// of clocks the first waits, as it has to for the majority itself.
func (p *proposer) looked(l look) {
	switch {
	case l.attempt != p.attempt || !p.leading:
	case l.err != nil && p.term == nil:
		p.retry.Reset(reopenAfter)
	case l.err != nil: // the next look is in a minute
	case p.term != nil:
		p.term.anchor(l.offset)
	default:
		p.openUp(l.offset)
	}
}

// openUp proposes the entry that opens the term. Until it is applied here, the state
// may lack acknowledged writes of earlier terms.
func (p *proposer) openUp(offset int64) {
	p.term = openClock(p.clock, offset)
	wall, _ := p.term.stamp()
	// The term it will be appended in is not known for sure; the fsm does not
	// ask for it in this kind.
	data := logEntry{kind: kindOpenTerm, wall: wall}.encode()
	attempt, future := p.attempt, p.raft().Apply(data, 0)
	p.await(future, func(r response, err error) {
		o := openedTerm{attempt: attempt, term: r.term, now: r.now, err: err}
		select {
		case p.opened <- o:
		case <-p.stop:
		}
	})
}

func (p *proposer) opening(o openedTerm) {
	if o.attempt != p.attempt || p.term == nil {
		return
	}
	if o.err != nil {
		p.retry.Reset(reopenAfter)
		return
	}
	p.term.raise(o.now)
	p.open, p.number = true, o.term
	p.fsm.lead(true)
	p.openTerm.Store(o.term)
	p.queue.open()
}

func (p *proposer) lose() {
	p.attempt++
	p.leading, p.term, p.open = false, nil, false
	p.openTerm.Store(0)
	p.queue.close(ErrNotLeader)
	p.fsm.lead(false)
}

// dispatch gathers what waits into an entry and sends it, unless an earlier
// one is still being stored or too many are on their way. So an entry holds
// what came while the last was synced, and is synced while that is applied.
func (p *proposer) dispatch() {
	for p.open && len(p.storing) == 0 && p.flying < p.limits.Flying {
		if p.flying > 0 && p.queue.length() < worthAnother && len(p.raft().GetConfiguration().Configuration().Servers) > 1 {
			return
		}
		p.queue.settle(p.limits.EntryCommands)
		p.scratch = p.queue.take(p.scratch[:0], p.limits.EntryCommands, p.limits.EntryBytes)
		if len(p.scratch) == 0 {
			return
		}
		p.send(p.scratch)
		clear(p.scratch)
	}
}

func (p *proposer) send(proposals []*Proposal) {
	e := logEntry{kind: kindTick, term: p.number}
	for _, c := range proposals {
		if c.cmd != nil {
			e.kind = kindCommands
			e.commands = append(e.commands, c.cmd)
		}
	}
	if p.term.due() {
		p.look()
	}
	e.wall, e.inTerm = p.term.stamp()
	f := &flight{proposals: append([]*Proposal(nil), proposals...)}
	p.inflight.add(f)
	p.flying++
	p.storing = append(p.storing, f)
	p.sent.Add(1)
	p.gathered.Add(uint64(len(e.commands)))
	future := p.raft().Apply(e.encode(), 0)
	p.await(future, func(r response, err error) {
		if p.inflight.remove(f) {
			p.answer(f, r.results, proposalError(err))
		}
		select {
		case p.finished <- f:
		case <-p.stop:
		}
	})
}

// await calls done, in a goroutine, with what Raft answers.
func (p *proposer) await(future raft.ApplyFuture, done func(r response, err error)) {
	p.futures.Add(1)
	p.awaiting.Go(func() {
		err := future.Error()
		r, _ := future.Response().(response)
		if err == nil {
			err = r.err
		}
		p.futures.Add(-1)
		done(r, err)
	})
}

// answer answers the proposals of an entry that is no longer on its way.
func (p *proposer) answer(f *flight, results []any, err error) {
	p.queue.release(f.proposals)
	if err != nil {
		err = fmt.Errorf("shard %d: %w", p.shard, err)
	}
	next := 0
	for _, c := range f.proposals {
		var result any
		if c.cmd != nil && err == nil {
			result = results[next]
			next++
		}
		c.answer(result, err)
	}
}

// abandon answers everything on its way with an unknown outcome.
func (p *proposer) abandon(reason error) {
	for _, f := range p.inflight.removeAll() {
		p.answer(f, nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, reason))
	}
}

// Propose replicates cmd (1 to MaxCommand bytes) and returns the machine's
// answer once it is applied here and visible to readers. Concurrent commands
// share log entries. The caller must not change cmd before Propose returns;
// where it returns before the answer (ErrOutcomeUnknown), never.
//
// When ctx ends first, the error tells what became of the command: see Wait.
func (s *Shard) Propose(ctx context.Context, cmd []byte) (any, error) {
	p, err := s.ProposeAsync(cmd, Client)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// ProposeAsync is Propose without the wait: it never blocks. Commands are
// applied in the order of the calls that proposed them, but one that fails
// does not stop those behind it. cmd must not be changed any more.
func (s *Shard) ProposeAsync(cmd []byte, class Class) (*Proposal, error) {
	if len(cmd) == 0 || len(cmd) > MaxCommand {
		return nil, fmt.Errorf("shard %d: %w: %d bytes, may be 1 to %d", s.id, ErrTooLarge, len(cmd), MaxCommand)
	}
	return s.queue.push(cmd, class)
}

// Tick replicates an entry without commands: the log time moves, so what is
// due at that time is done. It returns once the entry is applied here.
func (s *Shard) Tick(ctx context.Context) error {
	p, err := s.queue.push(nil, System)
	if err != nil {
		return err
	}
	_, err = p.Wait(ctx)
	return err
}
