package shard

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// cutPolicy says when what was applied is written to the state store. It is
// the one place for write-back: today a cut follows every batch Raft hands
// over, so that an answer is given only for what readers can see.
type cutPolicy struct {
	entries int // a cut is due once so many entries were applied since the last
}

func (c cutPolicy) due(pending int) bool { return pending >= c.entries }

var cutEveryBatch = cutPolicy{entries: 1}

// fsm stands between Raft and the machine. It implements raft.BatchingFSM and
// handles configurations itself: with batching, Raft would not hand them to a
// raft.ConfigurationStore.
type fsm struct {
	shard   uint32
	store   kv.Store
	machine Machine
	policy  cutPolicy
	fault   *fault
	replica string // id, of this node's
	// begin and end tell of calls that may wait for the disk.
	begin, end func()
	// installed is called after a snapshot was installed, with mu held.
	installed func(installedRow) error

	mu sync.Mutex // held while the machine is called
	// applied is the position of the working set. Invariant: durable ≤ cut ≤
	// applied, and equal to cut once a batch was handled under cutEveryBatch.
	applied position
	pending int // entries applied since the last cut
	leading bool
	births  []birth // since the last cut
	// installedAt is the installed row, zero once an entry behind it was cut.
	installedAt installedRow

	cut     atomic.Pointer[position]
	reached atomic.Uint64 // applied.index, for Status
	fresh   freshness
	entries atomic.Uint64 // entries applied since the start
	// installs counts the snapshots installed since the start, replacing those whose
	// last step has begun.
	installs, replacing atomic.Uint64
	arrivals            arrivals
	split               atomic.Bool // the shard was split
}

var _ raft.BatchingFSM = (*fsm)(nil)

// response is what Raft carries from ApplyBatch to the proposal's future.
type response struct {
	results []any
	term    uint64
	now     int64
	err     error
}

func newFSM(shard uint32, store kv.Store, m Machine, f *fault) (*fsm, error) {
	p, err := readPosition(store.Get, shard)
	if err != nil {
		return nil, err
	}
	installed, err := readInstalled(store, shard)
	if err != nil {
		return nil, err
	}
	s := &fsm{
		shard: shard, store: store, machine: m, policy: cutEveryBatch, fault: f,
		applied: p, installedAt: installed, begin: func() {}, end: func() {},
	}
	s.cut.Store(&p)
	s.reached.Store(p.index)
	s.fresh.reached(p.index)
	s.noteSplit()
	return s, nil
}

// ApplyBatch applies entries in order, cuts and publishes. Entries at or below
// applied were applied before a restart and are skipped. After a fault nothing
// is applied any more, and applied does not move: a restart begins there.
func (s *fsm) ApplyBatch(logs []*raft.Log) []any {
	s.begin()
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	responses := make([]any, len(logs))
	if err := s.applyAll(logs, responses); err != nil {
		s.fault.set(err)
		s.applied, s.pending = *s.cut.Load(), 0
		s.reached.Store(s.applied.index)
		for i := range responses {
			responses[i] = response{err: fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)}
		}
	}
	return responses
}

func (s *fsm) applyAll(logs []*raft.Log, responses []any) (err error) {
	if err := s.fault.get(); err != nil {
		return err
	}
	defer s.recoverBug(&err)
	for i, log := range logs {
		if log.Index <= s.applied.index {
			continue
		}
		responses[i], err = s.applyLog(log)
		if err != nil {
			return fmt.Errorf("shard %d: entry %d: %w", s.shard, log.Index, err)
		}
		s.pending++
		s.entries.Add(1)
		if err := s.due(); err != nil {
			return err
		}
	}
	if s.pending > 0 && s.policy.due(s.pending) {
		return s.cutNow()
	}
	return nil
}

// recoverBug turns a panic of the machine into a fault of this shard: the
// other shards of the process go on.
func (s *fsm) recoverBug(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("shard %d: bug in the state machine: %v\n%s", s.shard, p, debug.Stack())
	}
}

func (s *fsm) applyLog(log *raft.Log) (response, error) {
	next := s.applied
	next.index, next.term = log.Index, log.Term
	var results []any
	switch log.Type {
	case raft.LogConfiguration:
		if _, err := decodeConfiguration(log.Data); err != nil {
			return response{}, err
		}
		// A copy: what Raft hands over may be shared.
		next.configuration, next.configurationIndex = bytes.Clone(log.Data), log.Index
	case raft.LogCommand:
		e, err := decodeEntry(log.Data)
		if err != nil {
			return response{}, err
		}
		next.moveClocks(log.Term, e)
		results, err = s.machine.Apply(Entry{
			Index: log.Index, Term: log.Term, Now: next.now, Elapsed: next.elapsed, Commands: e.commands,
		})
		if err != nil {
			return response{}, err
		}
		if len(results) != len(e.commands) {
			return response{}, fmt.Errorf("bug in the state machine: %d results for %d commands", len(results), len(e.commands))
		}
	default:
		return response{}, kv.Corruptionf("entry of type %v", log.Type)
	}
	s.applied = next
	s.reached.Store(next.index)
	return response{results: results, term: log.Term, now: next.now}, nil
}

// moveClocks moves log time and dedupe clock to an entry. Both only grow. The
// dedupe clock takes no notice of an entry stamped in another term than it was
// appended in: its time in term was counted from another base.
func (p *position) moveClocks(term uint64, e logEntry) {
	p.now = max(p.now, e.wall)
	switch {
	case e.kind == kindOpenTerm:
		p.termBase = p.elapsed
	case e.term == term:
		p.elapsed = max(p.elapsed, min(p.termBase+e.inTerm, maxMicroseconds))
	}
}

// cutNow writes the working set and the applied row in one batch, unsynced,
// and publishes it.
func (s *fsm) cutNow() error {
	b := s.store.NewBatch()
	defer b.Close()
	if err := s.machine.Cut(b); err != nil {
		return fmt.Errorf("shard %d: cut at entry %d: %w", s.shard, s.applied.index, err)
	}
	if err := b.Set(stateRowKey(stateApplied, s.shard), s.applied.encode()); err != nil {
		return fmt.Errorf("shard %d: applied row %d: %w", s.shard, s.applied.index, err)
	}
	if s.installedAt != (installedRow{}) {
		// The log has been seen to follow the snapshot. From here on it answers for
		// itself, and is cut.
		if err := b.Delete(stateRowKey(stateInstalled, s.shard)); err != nil {
			return fmt.Errorf("shard %d: installed row: %w", s.shard, err)
		}
	}
	for _, c := range s.births {
		if err := s.bear(b, c); err != nil {
			return err
		}
	}
	if err := b.Commit(kv.NoSync); err != nil {
		return fmt.Errorf("shard %d: commit of entry %d: %w", s.shard, s.applied.index, err)
	}
	s.pending, s.installedAt, s.births = 0, installedRow{}, nil
	at := s.applied
	s.cut.Store(&at)
	s.noteSplit()
	s.machine.Publish(at.index)
	s.fresh.reached(at.index)
	return nil
}

// lead tells the machine, once each time, that this replica leads or not.
func (s *fsm) lead(leading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading == leading {
		return
	}
	s.leading = leading
	var err error
	func() {
		defer s.recoverBug(&err)
		s.machine.Lead(leading)
	}()
	if err != nil {
		s.fault.set(err)
	}
}

// Apply applies one entry. Raft calls ApplyBatch instead.
func (s *fsm) Apply(log *raft.Log) any { return s.ApplyBatch([]*raft.Log{log})[0] }

// givesWay is replaces as things are now.
func (s *fsm) givesWay(data kv.Span) (kv.Parts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaces(data)
}

// open fixes a view of the state, between entries, and keeps the log behind it.
func (s *fsm) open(p *pins) (*outgoing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &outgoing{of: s, pin: p.add(s.cut.Load().index), parts: s.machine.Parts(), replaced: s.replacing.Load()}
	var err error
	if o.view, err = s.store.NewSnapshot(); err == nil {
		o.position, err = readPosition(o.view.Get, s.shard)
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// Snapshot has nothing to capture: the state is stored already.
func (s *fsm) Snapshot() (raft.FSMSnapshot, error) { return nothingToPersist{}, nil }
