package shard

import (
	"sync/atomic"
	"time"
)

// pulse notices that the process stood still: it was stopped, or had no processor. A
// leader that wakes from that may have been followed by another, and does not know it
// before its Raft has looked: what it has may be as old as the pause was long.
type pulse struct {
	begun time.Time
	limit time.Duration // a longer pause counts
	beat  atomic.Int64  // the last, since begun
	woke  atomic.Int64  // end of the last pause, since begun; 0: there was none
}

func newPulse(limit time.Duration) *pulse { return &pulse{begun: time.Now(), limit: limit} }

func (p *pulse) now() int64 { return int64(time.Since(p.begun)) }

// at returns the time of a mark that now gave; none for 0 and for what lies ahead.
func (p *pulse) at(mark uint64) time.Time {
	if mark == 0 || mark > uint64(p.now()) {
		return time.Time{}
	}
	return p.begun.Add(time.Duration(mark))
}

// run beats until stop is closed.
func (p *pulse) run(stop <-chan struct{}) {
	t := time.NewTicker(p.limit / 5)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.look()
			p.beat.Store(p.now()) // after the pause is noted
		case <-stop:
			return
		}
	}
}

// look returns when the last pause ended. The first to look after a pause may be a
// reader: it notes it.
func (p *pulse) look() int64 {
	if now := p.now(); now-p.beat.Load() > int64(p.limit) {
		p.woke.Store(now)
	}
	return p.woke.Load()
}

// StoodStill reports whether the process stood still since this replica last confirmed
// that it leads. What it has may then be older than it knows. It is cheap enough for
// every read.
func (s *Shard) StoodStill() bool { return s.confirmed.Load() < s.node.pulse.look() }
