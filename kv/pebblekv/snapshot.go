package pebblekv

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lianadb/liana/kv"
)

// snapshot may be read by many goroutines. Its iterators may outlive it.
type snapshot struct {
	s    *Store
	at   time.Time
	mu   sync.RWMutex // held by readers, so that Close waits for them
	snap *pebble.Snapshot
}

// enter holds the snapshot and its store until leave.
func (n *snapshot) enter() error {
	if err := n.s.gate.enter(); err != nil {
		return err
	}
	n.mu.RLock()
	if n.snap == nil {
		n.leave()
		return kv.ErrClosed
	}
	return nil
}

func (n *snapshot) leave() {
	n.mu.RUnlock()
	n.s.gate.leave()
}

func (n *snapshot) Get(dst, key []byte) ([]byte, error) {
	if err := n.enter(); err != nil {
		return dst, err
	}
	defer n.leave()
	return n.s.get(n.snap, dst, key)
}

func (n *snapshot) NewIter(span kv.Span) (kv.Iterator, error) {
	if err := n.enter(); err != nil {
		return nil, err
	}
	defer n.leave()
	return n.s.newIter(n.snap, span)
}

func (n *snapshot) Close() error {
	if err := n.s.gate.enter(); err != nil {
		return nil // the store closes it
	}
	defer n.s.gate.leave()
	n.s.snapMu.Lock()
	delete(n.s.snaps, n)
	n.s.snapMu.Unlock()
	return n.end()
}

// end closes the snapshot once.
func (n *snapshot) end() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.snap == nil {
		return kv.ErrClosed
	}
	snap := n.snap
	n.snap = nil
	return snap.Close()
}
