package shard

import (
	"sync"
	"time"
)

// maxRest is how long a goroutine that Raft has ended may be there still.
const maxRest = 2 * time.Second

// pacer lets the goroutines that send to followers rest where there is nothing to tell.
// Raft wakes each of them whenever commitTimeout has passed, up to forty times a second,
// to find that out: of many idle groups that was most of what a node did.
// While one rests it does not hear that Raft wants it to stop, for a rest at most.
type pacer struct {
	rest time.Duration // at most
	last func() uint64 // the last entry of the log
	stop <-chan struct{}

	mu   sync.Mutex
	rung chan struct{} // nil where nobody rests
}

// ring ends the rests: the log has grown, a later term was heard of, or a follower does
// not know what it was told.
func (p *pacer) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rung != nil {
		close(p.rung)
		p.rung = nil
	}
}

// bell returns what is closed by the next ring.
func (p *pacer) bell() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rung == nil {
		p.rung = make(chan struct{})
	}
	return p.rung
}

// pause returns at the next ring, or after a rest; at once unless idle.
func (p *pacer) pause(idle func() bool) {
	rung := p.bell() // before the look: what comes after it rings
	if !idle() {
		return
	}
	t := time.NewTimer(p.rest)
	defer t.Stop()
	select {
	case <-t.C:
	case <-rung:
	case <-p.stop:
	}
}
