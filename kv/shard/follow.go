package shard

import (
	"sync"
	"sync/atomic"
	"time"
)

// freshness is how old the state of a replica that follows can be. That it hears of
// its leader says nothing about it: heartbeats go past the log, and come while the
// replica is still busy with what it missed. So they tell how far the leader has applied,
// and since when at least it has, and a replica is as fresh as the newest of these that it
// has reached.
type freshness struct {
	since atomic.Pointer[time.Time] // the state holds all that was acknowledged before

	mu      sync.Mutex
	applied uint64
	marks   []freshMark // not reached yet, oldest first
}

// freshMark says that all that was acknowledged before a time is in the state at an
// entry.
type freshMark struct {
	applied uint64
	before  time.Time
}

// maxFreshMarks bounds the marks of a replica that lags; it reaches the oldest first.
const maxFreshMarks = 64

// told takes what the leader says.
func (f *freshness) told(m freshMark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.marks) < maxFreshMarks {
		f.marks = append(f.marks, m)
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
		before := f.marks[n-1].before // a copy: the marks move up
		f.since.Store(&before)
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
