package shard

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// Class says whether a proposal may be refused for want of space.
type Class uint8

const (
	// Client proposals are refused with ErrBusy when the queue is full.
	Client Class = iota
	// System proposals keep the shards going (deliveries, trims, job steps).
	// They are never refused for space: their number is bounded by their makers.
	System
)

// Proposal is a command on its way. It is made by ProposeAsync.
type Proposal struct {
	queue *queue
	cmd   []byte // nil for a tick: an entry without a command
	class Class
	taken bool // in an entry, or answered; guarded by queue.mu

	done   chan struct{}
	result any // result and err are set before done is closed
	err    error
}

// Done is closed when the proposal has its answer.
func (p *Proposal) Done() <-chan struct{} { return p.done }

// Result returns the machine's answer, or an error as Propose does. It is
// valid after Done is closed.
func (p *Proposal) Result() (any, error) { return p.result, p.err }

// Wait returns the answer, or the end of ctx. A command that is not in a log
// entry by then is withdrawn: the error is ctx's, and nothing was proposed.
// Otherwise it is ErrOutcomeUnknown (wrapping ctx's).
func (p *Proposal) Wait(ctx context.Context) (any, error) {
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
	}
	if p.queue.withdraw(p, ctx.Err()) {
		return nil, p.err
	}
	select {
	case <-p.done: // answered meanwhile
		return p.result, p.err
	default:
		return nil, fmt.Errorf("shard %d: %w: %w", p.queue.shard, ErrOutcomeUnknown, ctx.Err())
	}
}

func (p *Proposal) answer(result any, err error) {
	p.result, p.err = result, err
	close(p.done)
}

// queue holds the proposals that are not in a log entry yet. It is closed,
// with the reason, whenever the shard does not lead.
type queue struct {
	shard    uint32
	commands int           // most slots taken by proposals when a Client's is accepted
	bytes    int           // most bytes taken by them
	wake     chan struct{} // of capacity 1: something was pushed

	mu     sync.Mutex
	closed error
	items  []*Proposal
	// slots and size count proposals from push to answer: waiting ones and
	// those in entries on their way.
	slots, size int
	waiting     int
	refused     uint64
}

func newQueue(shard uint32, commands, bytes int) *queue {
	return &queue{
		shard: shard, commands: commands, bytes: bytes,
		wake: make(chan struct{}, 1), closed: ErrNotLeader,
	}
}

// push queues a command, or says why it cannot be proposed.
func (q *queue) push(cmd []byte, class Class) (*Proposal, error) {
	p := &Proposal{queue: q, cmd: cmd, class: class, done: make(chan struct{})}
	q.mu.Lock()
	err := q.closed
	if err == nil && class == Client && q.slots > 0 &&
		(q.slots >= q.commands || q.size+len(cmd) > q.bytes) {
		q.refused++
		err = ErrBusy
	}
	if err != nil {
		q.mu.Unlock()
		return nil, fmt.Errorf("shard %d: %w", q.shard, err)
	}
	q.items = append(q.items, p)
	q.waiting++
	q.slots++
	q.size += len(cmd)
	q.mu.Unlock()
	q.poke()
	return p, nil
}

// poke makes the proposer look.
func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take removes the first proposals, at most count and bytes of them but at
// least one if any waits, and appends them to dst.
func (q *queue) take(dst []*Proposal, count, bytes int) []*Proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, p := range q.items {
		if !p.taken { // otherwise withdrawn
			if len(dst) > 0 && (len(dst) >= count || bytes < len(p.cmd)) {
				break
			}
			bytes -= len(p.cmd)
			p.taken = true
			q.waiting--
			dst = append(dst, p)
		}
		q.items[n] = nil
		n++
	}
	if n == len(q.items) {
		q.items = q.items[:0] // its space serves again
	} else {
		q.items = q.items[n:]
	}
	return dst
}

// withdraw answers a proposal that is still waiting with err.
func (q *queue) withdraw(p *Proposal, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.taken {
		return false
	}
	p.taken = true
	q.waiting--
	q.slots--
	q.size -= len(p.cmd)
	p.answer(nil, fmt.Errorf("shard %d: withdrawn before it was proposed: %w", q.shard, err))
	return true
}

// release frees the slots of proposals that were taken and are answered now.
func (q *queue) release(ps []*Proposal) {
	size := 0
	for _, p := range ps {
		size += len(p.cmd)
	}
	q.mu.Lock()
	q.slots -= len(ps)
	q.size -= size
	q.mu.Unlock()
}

// open lets proposals in, unless the queue was closed for good.
func (q *queue) open() {
	q.mu.Lock()
	if q.closed == ErrNotLeader {
		q.closed = nil
	}
	q.mu.Unlock()
}

// close refuses proposals from now on, and those that wait, with reason. Any
// reason but ErrNotLeader is for good.
func (q *queue) close(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil || q.closed == ErrNotLeader {
		q.closed = reason
	}
	for _, p := range q.items {
		if !p.taken {
			p.taken = true
			q.slots--
			q.size -= len(p.cmd)
			p.answer(nil, fmt.Errorf("shard %d: %w", q.shard, q.closed))
		}
	}
	q.items, q.waiting = nil, 0
}

// empty reports whether every proposal has its answer.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slots == 0
}

// length is how many proposals wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// settle yields the processor as long as the queue grows, up to count. Callers
// that were just answered come back before an entry is formed without most of
// them: with 64 callers that about doubles the size of an entry. It never
// sleeps, so a lone caller pays one yield.
func (q *queue) settle(count int) {
	for last := 0; ; {
		n := q.length()
		if n == last || n >= count {
			return
		}
		last = n
		runtime.Gosched()
	}
}
