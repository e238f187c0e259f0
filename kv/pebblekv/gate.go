package pebblekv

import (
	"fmt"
	"sync/atomic"
	"time"
)

// shutBit in a gate's count says that nobody may enter any more.
const shutBit = 1 << 62

// gate counts the calls and iterators that use the engine, so that Close can
// wait for them: Pebble panics when it is used after its Close, and its iterators
// point into memory that Close frees.
type gate struct {
	n       atomic.Int64 // users, plus shutBit
	cause   atomic.Pointer[error]
	drained chan struct{} // cap 1; holds a token once shut and without users
}

func newGate() *gate { return &gate{drained: make(chan struct{}, 1)} }

// enter lets the caller use the engine until it calls leave, or returns why not.
func (g *gate) enter() error {
	if g.n.Add(1) >= shutBit {
		g.leave()
		return *g.cause.Load()
	}
	return nil
}

func (g *gate) leave() {
	if g.n.Add(-1) == shutBit {
		g.signal()
	}
}

func (g *gate) signal() {
	select {
	case g.drained <- struct{}{}:
	default:
	}
}

// err is nil while the gate is open.
func (g *gate) err() error {
	if g.n.Load() < shutBit {
		return nil
	}
	return *g.cause.Load()
}

// shut keeps further callers out; they get cause. The first cause stays.
func (g *gate) shut(cause error) {
	if !g.cause.CompareAndSwap(nil, &cause) {
		return
	}
	if g.n.Add(shutBit) == shutBit {
		g.signal()
	}
}

// wait returns once the shut gate has no users, or after timeout with an error.
func (g *gate) wait(timeout time.Duration) error {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-g.drained:
		g.signal() // for the next wait
		return nil
	case <-t.C:
		return fmt.Errorf("%d calls or iterators still open after %v", g.n.Load()-shutBit, timeout)
	}
}
