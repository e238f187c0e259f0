package catalog

import (
	"sync"
)

// Board shows the newest map that a node knows. On a node with a replica of the
// catalog it is the Machine's; on others whoever follows the catalog posts to it. All
// methods may be called concurrently; the maps are shared, not to be changed.
type Board struct {
	mu    sync.Mutex
	m     *Map          // never nil
	newer chan struct{} // closed and replaced at each new map
}

// NewBoard returns a board that shows m; nil stands for an unfounded map.
func NewBoard(m *Map) *Board {
	if m == nil {
		m = &Map{}
	}
	return &Board{m: m, newer: make(chan struct{})}
}

// Map returns the newest map, never nil: a node that knows none has one of version 0.
func (b *Board) Map() *Map {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.m
}

// Newer returns a channel that is closed once the board shows a map newer than
// version; it may be closed already.
func (b *Board) Newer(version uint64) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m.Version > version {
		done := make(chan struct{})
		close(done)
		return done
	}
	return b.newer
}

// Post adds what a node was sent. A delta that is not newer changes nothing;
// ErrForeign, ErrGap and maps that do not validate are errors, and change nothing
// either.
func (b *Board) Post(d Delta) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next, err := b.m.Advance(d)
	if err != nil {
		return err
	}
	b.set(next)
	return nil
}

// show replaces the map, unless it is not newer.
func (b *Board) show(m *Map) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(m)
}

func (b *Board) set(m *Map) {
	if m.Version <= b.m.Version {
		return
	}
	b.m = m
	close(b.newer)
	b.newer = make(chan struct{})
}
