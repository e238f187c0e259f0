package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// ShardConfig is what one shard needs.
type ShardConfig struct {
	ID uint32
	// Machine has loaded its state from the node's state store as it stands;
	// the entries behind the applied row follow by Apply.
	Machine Machine
	// Join: this replica founds no group. Node.NewReplica has made its rows; it waits
	// empty for a leader to add it.
	Join bool
}

// Shard is this node's replica of one Raft group.
type Shard struct {
	id      uint32
	replica string
	node    *Node
	logger  *slog.Logger

	instance atomic.Pointer[instance]
	log      *logStore
	fsm      *fsm
	queue    *queue
	proposer *proposer
	confirm  confirmer
	fault    *fault

	caughtUp  atomic.Bool
	confirmed atomic.Int64 // when the newest round began that confirmed it, as pulse.now

	lines *lines
	pins  pins

	durable   atomic.Pointer[knownDurable]
	works     works
	givingWay atomic.Bool
	gaveWay   atomic.Int64 // when it was last handed over for the disk
	handovers atomic.Uint64

	stale    chan uint64   // Raft is to begin anew, behind this entry
	closing  chan struct{} // closed by Close
	closer   sync.Once
	done     chan struct{} // closed when everything has stopped, or is left behind
	closeErr error         // set before done is closed
	ended    chan struct{} // closed when everything has stopped
	leaver   sync.Once
}

// StartShard starts this node's replica of shard cfg.ID and returns before it
// leads (see Ready). The first start founds a group with this replica as its
// one voter. A log that lacks entries is ErrLogLost; stored bytes that cannot
// be right are kv.ErrCorruption. Neither touches the node's other shards. Where a replica
// runs, or has not ended, it is ErrRuns.
func (n *Node) StartShard(cfg ShardConfig) (*Shard, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("shard %d: %w", cfg.ID, ErrStopped)
	}
	if n.shards[cfg.ID] != nil {
		return nil, fmt.Errorf("shard %d: start: %w", cfg.ID, ErrRuns)
	}
	s := &Shard{
		id: cfg.ID, node: n, fault: newFault(),
		queue: newQueue(cfg.ID, n.cfg.Limits.QueueCommands, n.cfg.Limits.QueueBytes),
		stale: make(chan uint64, 1), closing: make(chan struct{}),
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	if err := s.open(cfg); err != nil {
		if s.log != nil {
			n.logBytes.Add(-s.log.bytes())
		}
		return nil, err
	}
	n.shards[cfg.ID] = s
	return s, nil
}

func (s *Shard) open(cfg ShardConfig) error {
	row, err := s.node.replica(s.id, cfg.Join)
	if err != nil {
		return err
	}
	s.replica = replicaID(s.node.stamp.nodeID, row.number)
	s.logger = s.node.cfg.Logger.With("shard", s.id)
	if s.fsm, err = newFSM(s.id, s.node.cfg.State, cfg.Machine, s.fault); err != nil {
		return err
	}
	s.log, err = openLogStore(s.node.cfg.Log, s.id, row.number, &s.node.logBytes, s.node.logGrown)
	if err != nil {
		return err
	}
	s.fsm.installed, s.fsm.replica = s.installed, s.replica
	s.fsm.begin = func() { s.node.disk.begin(&s.works.apply) }
	s.fsm.end = func() { s.node.disk.end(&s.works.apply) }
	if _, _, err := s.log.discardStale(s.fsm.installedAt); err != nil {
		return err
	}
	if err := checkLog(s.id, s.log, row.form, s.fsm.applied, s.fsm.installedAt); err != nil {
		return err
	}
	return s.start(row)
}

// replica returns the row of this node's replica of a shard. A replica whose
// founding was cut off is replaced by a new one, under a new number: nothing
// it may have written is taken for the new one's. With join, none is founded.
func (n *Node) replica(shard uint32, join bool) (replicaRow, error) {
	key := stateRowKey(stateReplica, shard)
	b, err := n.cfg.State.Get(nil, key)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return replicaRow{}, fmt.Errorf("shard %d: replica row: %w", shard, err)
	}
	if err == nil {
		row, err := decodeReplicaRow(b)
		if err != nil {
			return row, fmt.Errorf("shard %d: %w", shard, err)
		}
		if row.form != replicaFounding {
			return row, nil
		}
	}
	if join {
		return replicaRow{}, fmt.Errorf("shard %d: %w", shard, ErrNoReplica)
	}
	row := replicaRow{form: replicaFounding, number: randomNumber()}
	if err := clearLogs(n.cfg.Log, shard); err != nil {
		return row, err
	}
	if err := setSync(n.cfg.State, key, row.encode()); err != nil {
		return row, fmt.Errorf("shard %d: replica row: %w", shard, err)
	}
	return row, nil
}

// checkLog makes sure that the log holds what the state proves was in it. A
// replica that lost entries must not vote or lead: it may have acknowledged
// what it lost.
func checkLog(id uint32, log *logStore, form replicaForm, at position, installed installedRow) error {
	first, last := log.bounds()
	switch {
	case form == replicaFounding, form == replicaJoined && last == 0 && at.index == 0,
		last == 0 && at.index == installed.index && at.index > 0: // nothing came after the install
		return nil
	case last == 0 || last < at.index || first > at.index+1:
		return fmt.Errorf("shard %d: %w: it holds entries %d to %d, the state has applied %d: "+
			"bring the log back, or remove this replica and let it be rebuilt", id, ErrLogLost, first, last, at.index)
	case at.index < first:
		return nil
	}
	var entry raft.Log
	if err := log.GetLog(at.index, &entry); err != nil {
		return err
	}
	if entry.Term != at.term {
		return fmt.Errorf("shard %d: %w: entry %d is of term %d, the state applied it in term %d",
			id, ErrLogLost, at.index, entry.Term, at.term)
	}
	return nil
}

// installed brings the log in line with a snapshot that was installed. Where Raft goes
// on with the end of the log it knew, it has to begin anew.
func (s *Shard) installed(r installedRow) error {
	discarded, last, err := s.log.discardStale(r)
	if err == nil && discarded && last >= r.index {
		s.instance.Load().guard.retire()
		s.stale <- r.index // of capacity 1, and Raft installs one snapshot
	}
	return err
}

// Close stops the replica. Entries on their way are waited for; what could not
// be answered is ErrOutcomeUnknown. It returns when all goroutines have ended; an error
// says that a store call hangs and was left behind. Until that call has returned, the
// replica is neither started anew nor destroyed: it could change what is the next one's.
func (s *Shard) Close() error {
	s.closer.Do(func() { close(s.closing) })
	<-s.done
	if s.closeErr == nil {
		s.leaver.Do(s.leave)
	} else {
		s.leaver.Do(func() {
			go func() {
				<-s.ended
				s.leave()
			}()
		})
	}
	return s.closeErr
}

// leave takes the replica off its node.
func (s *Shard) leave() {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	delete(s.node.shards, s.id)
	s.node.logBytes.Add(-s.log.bytes())
}

// Fail stops the replica for damage to its state that its owner has found.
func (s *Shard) Fail(err error) { s.fault.set(fmt.Errorf("shard %d: %w", s.id, err)) }

// Ready returns nil once this replica leads with its term open.
func (s *Shard) Ready(ctx context.Context) error {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for s.proposer.openTerm.Load() == 0 {
		select {
		case <-t.C:
		case <-s.fault.ch:
			return fmt.Errorf("shard %d: %w: %w", s.id, ErrFault, s.fault.err)
		case <-s.done:
			return fmt.Errorf("shard %d: %w", s.id, ErrStopped)
		case <-ctx.Done():
			return fmt.Errorf("shard %d: not leading: %w", s.id, ctx.Err())
		}
	}
	return nil
}
