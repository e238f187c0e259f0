package shard

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// fault holds the first error that stopped a shard on this node.
type fault struct {
	once sync.Once
	ch   chan struct{} // closed when the shard has failed
	err  error         // set before ch is closed
}

func newFault() *fault { return &fault{ch: make(chan struct{})} }

func (f *fault) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.ch)
	})
}

// get returns the error that stopped the shard, nil while it runs.
func (f *fault) get() error {
	select {
	case <-f.ch:
		return f.err
	default:
		return nil
	}
}

// guard keeps errors of the stores away from Raft, which would end the process
// (a failed read, a term not saved) or go on with a wrong view of its log (a
// failed append). A call that fails marks the shard failed and never returns:
// it is parked until the shard shuts down, and then its goroutine, always one
// of Raft's own, ends by way of its deferred functions.
//
// While the shard starts, errors are returned: Raft has no goroutine yet, and
// StartShard hands the error (or Raft's panic) to its caller.
//
// A guard is of one run of Raft. One that is retired lets its Raft change nothing any
// more: the log has become another under it.
type guard struct {
	fault   *fault
	shard   uint32
	disk    *disk
	works   *works
	started atomic.Bool
	retired atomic.Bool

	once    sync.Once
	release chan struct{} // closed when parked calls may end
}

func newGuard(s *Shard) *guard {
	return &guard{fault: s.fault, shard: s.id, disk: s.node.disk, works: &s.works, release: make(chan struct{})}
}

// call does a call to a store that waits for the disk. One that takes longer than the
// patience with it fails the shard.
func (g *guard) call(w *work, what string, do func() error) error {
	timer := time.AfterFunc(g.disk.patience, func() {
		g.fault.set(fmt.Errorf("shard %d: %s takes longer than %v", g.shard, what, g.disk.patience))
	})
	defer timer.Stop()
	g.disk.begin(w)
	defer g.disk.end(w)
	return do()
}

// free lets parked calls end.
func (g *guard) free() { g.once.Do(func() { close(g.release) }) }

// ended reports whether this Raft is ended or retired.
func (g *guard) ended() bool {
	select {
	case <-g.release:
		return true
	default:
		return false
	}
}

// retire ends the calls of this Raft from now on.
func (g *guard) retire() {
	g.retired.Store(true)
	g.free()
}

// pass returns an error only where Raft may see it.
func (g *guard) pass(err error) error {
	if !g.started.Load() {
		return err
	}
	if !g.retired.Load() {
		if errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, raftboltdb.ErrKeyNotFound) {
			return err
		}
		if err != nil {
			g.fault.set(err)
		}
		if g.fault.get() == nil {
			return nil
		}
	}
	<-g.release
	runtime.Goexit()
	return nil
}

// enter is pass before a change.
func (g *guard) enter() {
	if g.retired.Load() {
		runtime.Goexit()
	}
}

// guardedLog is the raft.LogStore that Raft sees.
type guardedLog struct {
	*logStore
	*guard
	logged func(commands int) // called after that many commands were stored
	whole  func() bool        // the log may be sent from its first entry
}

// GetLog does not find the first entry where the log may not be sent from there: see
// Shard.wholeLog. Nothing else reads an entry that was applied long ago.
func (l guardedLog) GetLog(index uint64, log *raft.Log) error {
	if index == 1 && !l.whole() {
		return raft.ErrLogNotFound
	}
	err := l.logStore.GetLog(index, log)
	if err == nil {
		// Also where the shard has failed: the goroutines that send entries would leave
		// others behind if they were parked here.
		return nil
	}
	return l.pass(err)
}

func (l guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l guardedLog) StoreLogs(logs []*raft.Log) error {
	l.enter()
	begun := time.Now()
	err := l.call(&l.works.log, "storing log entries", func() error { return l.logStore.StoreLogs(logs) })
	if err == nil {
		l.disk.stored(time.Since(begun))
	}
	if err := l.pass(err); err != nil {
		return err
	}
	commands := 0
	for _, log := range logs {
		if log.Type == raft.LogCommand {
			commands++
		}
	}
	l.logged(commands)
	return nil
}

func (l guardedLog) DeleteRange(min, max uint64) error {
	l.enter()
	return l.pass(l.logStore.DeleteRange(min, max))
}

// guardedStable is the raft.StableStore that Raft sees: the replica's keys in
// the node's bolt file. A key not there is an error with the text "not found",
// which Raft compares.
type guardedStable struct {
	bolt   *raftboltdb.BoltStore
	prefix string
	*guard
}

var _ raft.StableStore = guardedStable{}

func (s guardedStable) key(k []byte) []byte { return append([]byte(s.prefix), k...) }

func (s guardedStable) wrap(k []byte, err error) error {
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		err = fmt.Errorf("shard %d: stable store: %s: %w", s.shard, k, err)
	}
	return s.pass(err)
}

func (s guardedStable) Set(k, v []byte) error {
	return s.wrap(k, s.call(&s.works.stable, "storing a vote", func() error { return s.bolt.Set(s.key(k), v) }))
}

func (s guardedStable) Get(k []byte) ([]byte, error) {
	v, err := s.bolt.Get(s.key(k))
	return v, s.wrap(k, err)
}

func (s guardedStable) SetUint64(k []byte, v uint64) error {
	return s.wrap(k, s.call(&s.works.stable, "storing a term", func() error { return s.bolt.SetUint64(s.key(k), v) }))
}

func (s guardedStable) GetUint64(k []byte) (uint64, error) {
	v, err := s.bolt.GetUint64(s.key(k))
	return v, s.wrap(k, err)
}
