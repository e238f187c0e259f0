package shard

import (
	"sync"
	"sync/atomic"
	"time"
)

// freshness is how old the state of a replica that follows can be. That it hears of
// its leader says nothing about it: heartbeats go past the log, and come while the
// replica is still busy with what it missed. So it asks the leader now and then how
// far that has applied, and is as fresh as the newest question whose answer it has
// reached.
type freshness struct {
	since atomic.Pointer[time.Time] // the state holds all that was acknowledged before

	mu      sync.Mutex
	applied uint64
	marks   []freshMark // not reached yet, oldest first
}

type freshMark struct {
	applied uint64
	asked   time.Time
}

// maxFreshMarks bounds the marks of a replica that lags; it reaches the oldest first.
const maxFreshMarks = 64

// told takes an answer of the leader.
func (f *freshness) told(a answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.marks) < maxFreshMarks {
		f.marks = append(f.marks, freshMark{a.applied, a.asked})
	}
	f.look()
}

// reached takes how far the state has come.
func (f *freshness) reached(applied uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = applied
	f.look()
}

func (f *freshness) look() {
	n := 0
	for n < len(f.marks) && f.marks[n].applied <= f.applied {
		n++
	}
	if n > 0 {
		asked := f.marks[n-1].asked // a copy: the marks move up
		f.since.Store(&asked)
		f.marks = append(f.marks[:0], f.marks[n:]...)
	}
}

// age returns how old the state can be.
func (f *freshness) age() time.Duration {
	if t := f.since.Load(); t != nil {
		return time.Since(*t)
	}
	return 1<<63 - 1
}

// keepFresh asks the leader, as long as the lines last.
func (s *Shard) keepFresh() {
	t := time.NewTicker(s.heartbeat())
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-s.lines.ctx.Done():
			return
		}
		_, leader := s.raft().LeaderWithID()
		if leader == "" || string(leader) == s.replica {
			continue
		}
		if a := <-s.lines.ask([]string{string(leader)}); a.err == nil && a.open != 0 {
			s.fsm.fresh.told(a)
		}
	}
}
