package shard

import (
	"sync"
	"time"
)

// pinTime is how long the log is kept for a replica that was sent a snapshot and comes
// no further (RULES A3).
const pinTime = 60 * time.Second

// pins are what the log is kept for: snapshots on their way, and the replicas that
// got them until they have caught up. Otherwise a log that is cut while a snapshot
// travels makes the next snapshot necessary.
type pins struct {
	mu  sync.Mutex
	set map[*pin]struct{}
}

// pin keeps the log from an entry on.
type pin struct {
	of *pins

	// Guarded by of.mu:
	index   uint64
	replica string // "" until it is known who is sent the snapshot
	held    bool   // the snapshot is on its way
	moved   time.Time
}

// add keeps the log from index on.
func (p *pins) add(index uint64) *pin {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil {
		p.set = make(map[*pin]struct{})
	}
	n := &pin{of: p, index: index, held: true, moved: time.Now()}
	p.set[n] = struct{}{}
	return n
}

// sentTo names the replica. A pin of an earlier snapshot to it goes.
func (n *pin) sentTo(replica string) {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	for other := range n.of.set {
		if other.replica == replica {
			delete(n.of.set, other)
		}
	}
	n.replica = replica
}

func (n *pin) touch() {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	n.moved = time.Now()
}

// release says that the snapshot has arrived, or will not.
func (n *pin) release() {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	n.held, n.moved = false, time.Now()
	if n.replica == "" {
		delete(n.of.set, n) // nobody was sent it
	}
}

// clear keeps nothing any more: the log has grown too long.
func (p *pins) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.set)
}

// replicas returns those that the log is kept for.
func (p *pins) replicas() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for n := range p.set {
		if n.replica != "" {
			out = append(out, n.replica)
		}
	}
	return out
}

// follow moves the pin of a replica to the last entry it has. One that has caught up
// with the log, but for as many entries as are kept in any case, needs no pin.
func (p *pins) follow(replica string, last, end, kept uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.set {
		if n.replica != replica || n.held || last <= n.index {
			continue
		}
		n.index, n.moved = last, time.Now()
		if last+kept >= end {
			delete(p.set, n)
		}
	}
}

// limit returns the index up to which the log may be cut: durable, or less.
func (p *pins) limit(durable uint64, now time.Time) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.set {
		if !n.held && now.Sub(n.moved) > pinTime {
			delete(p.set, n)
			continue
		}
		// The entry itself stays: Raft names it, and its term, ahead of the next.
		durable = min(durable, max(n.index, 1)-1)
	}
	return durable
}
