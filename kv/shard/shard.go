package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

const (
	// drainTimeout is how long a closing shard waits for entries on their way,
	// and a failed one for Raft to answer its futures.
	drainTimeout = 5 * time.Second
	// shutdownTimeout is how long it waits for Raft's goroutines. Only a store
	// that hangs makes it pass.
	shutdownTimeout = 10 * time.Second
	// appendMax is how many log entries Raft stores, sends and applies at once.
	appendMax = 256
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

	raft     *raft.Raft
	log      *logStore
	fsm      *fsm
	queue    *queue
	proposer *proposer
	confirm  confirmer
	fault    *fault

	pins    pins
	streams *streams       // nil without peers, as are peers
	peers   *peerTransport // closed by Raft

	release  chan struct{} // closed when calls parked by the guard may end
	closing  chan struct{} // closed by Close
	closer   sync.Once
	done     chan struct{} // closed when everything has stopped
	closeErr error         // set before done is closed
}

// StartShard starts this node's replica of shard cfg.ID and returns before it
// leads (see Ready). The first start founds a group with this replica as its
// one voter. A log that lacks entries is ErrLogLost; stored bytes that cannot
// be right are kv.ErrCorruption. Neither touches the node's other shards.
func (n *Node) StartShard(cfg ShardConfig) (*Shard, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("shard %d: %w", cfg.ID, ErrStopped)
	}
	if n.shards[cfg.ID] != nil {
		return nil, fmt.Errorf("shard %d: already started", cfg.ID)
	}
	s := &Shard{
		id: cfg.ID, node: n, fault: newFault(),
		queue:   newQueue(cfg.ID, n.cfg.Limits.QueueCommands, n.cfg.Limits.QueueBytes),
		release: make(chan struct{}), closing: make(chan struct{}), done: make(chan struct{}),
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
	s.fsm.installed = s.installed
	if _, _, err := s.log.discardStale(s.fsm.installedAt); err != nil {
		return err
	}
	if err := s.checkLog(row.form, s.fsm.installedAt); err != nil {
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
func (s *Shard) checkLog(form replicaForm, installed installedRow) error {
	first, last := s.log.bounds()
	at := s.fsm.applied
	switch {
	case form == replicaFounding, form == replicaJoined && last == 0 && at.index == 0,
		last == 0 && at.index == installed.index && at.index > 0: // nothing came after the install
		return nil
	case last == 0 || last < at.index || first > at.index+1:
		return fmt.Errorf("shard %d: %w: it holds entries %d to %d, the state has applied %d: "+
			"bring the log back, or remove this replica and let it be rebuilt", s.id, ErrLogLost, first, last, at.index)
	case at.index < first:
		return nil
	}
	var entry raft.Log
	if err := s.log.GetLog(at.index, &entry); err != nil {
		return err
	}
	if entry.Term != at.term {
		return fmt.Errorf("shard %d: %w: entry %d is of term %d, the state applied it in term %d",
			s.id, ErrLogLost, at.index, entry.Term, at.term)
	}
	return nil
}

// installed brings the log in line with a snapshot that was installed.
func (s *Shard) installed(r installedRow) error {
	discarded, last, err := s.log.discardStale(r)
	if err == nil && discarded && last >= r.index {
		return errStaleRaft // Raft goes on with the end of the log it knew
	}
	return err
}

func (s *Shard) start(row replicaRow) (err error) {
	cfg := s.node.cfg
	g := &guard{fault: s.fault, release: s.release, hung: cfg.Limits.StoreTimeout}
	s.proposer = &proposer{
		shard: s.id, limits: cfg.Limits, queue: s.queue, fsm: s.fsm, clock: cfg.Clock,
		opened: make(chan openedTerm), finished: make(chan *flight), stop: make(chan struct{}),
	}
	log := guardedLog{logStore: s.log, guard: g, logged: s.proposer.logged}
	stable := guardedStable{bolt: s.node.bolt, prefix: s.replica + "/", shard: s.id, guard: g}
	snaps := &snapshots{
		shard: s.id, store: cfg.State, dir: filepath.Dir(cfg.StablePath), parts: s.fsm.machine.Parts,
		cut: func() position { return *s.fsm.cut.Load() }, pins: &s.pins,
	}
	alone := s.alone(row)
	transport := s.openTransport()
	notify := make(chan bool, 16)
	conf := raftConfig(s.replica, s.heartbeat(), notify)
	conf.Logger = raftLogger(s.logger)

	defer func() { // Raft panics where it cannot read its log or save its term
		if p := recover(); p != nil {
			err = fmt.Errorf("shard %d: start: %v", s.id, p)
		}
	}()
	if row.form == replicaFounding {
		self := raft.Server{ID: raft.ServerID(s.replica), Address: raft.ServerAddress(s.replica)}
		err := raft.BootstrapCluster(conf, log, stable, snaps, transport, raft.Configuration{Servers: []raft.Server{self}})
		if err != nil {
			return fmt.Errorf("shard %d: found the group: %w", s.id, err)
		}
		row.form = replicaFounded
		if err := setSync(cfg.State, stateRowKey(stateReplica, s.id), row.encode()); err != nil {
			return fmt.Errorf("shard %d: replica row: %w", s.id, err)
		}
	}
	if s.raft, err = raft.NewRaft(conf, s.fsm, log, stable, snaps, transport); err != nil {
		return fmt.Errorf("shard %d: start: %w", s.id, err)
	}
	g.started.Store(true)
	if alone && s.peers != nil {
		s.peers.elect(conf)
	}
	s.proposer.raft, s.proposer.notify = s.raft, notify
	go s.supervise()
	return nil
}

// heartbeat is that of groups on several nodes wherever there can be some: Raft does
// not take another lease while it runs.
func (s *Shard) heartbeat() time.Duration {
	if s.node.cfg.Dial == nil {
		return s.node.cfg.Heartbeat
	}
	return s.node.cfg.PeerHeartbeat
}

// alone reports whether this replica is the only member of its group.
func (s *Shard) alone(row replicaRow) bool {
	if row.form == replicaFounding {
		return true
	}
	c, err := decodeConfiguration(s.fsm.applied.configuration)
	return err == nil && len(c.Servers) == 1 && string(c.Servers[0].ID) == s.replica
}

func raftConfig(replica string, heartbeat time.Duration, notify chan<- bool) *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(replica)
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = heartbeat, heartbeat, heartbeat
	conf.CommitTimeout = heartbeat / 2
	conf.MaxAppendEntries = appendMax
	conf.ShutdownOnRemove = false
	conf.NotifyCh = notify
	// The state is the snapshot and truncation is ours: Raft takes no snapshot
	// by itself, restores none at the start and deletes no prefix of the log.
	conf.SnapshotThreshold, conf.TrailingLogs = math.MaxUint64, math.MaxUint64
	conf.SnapshotInterval = 24 * time.Hour
	conf.NoSnapshotRestoreOnStart = true
	return conf
}

// supervise owns the shard's goroutines: it starts the proposer and, when the
// shard is closed or fails, stops everything in order.
func (s *Shard) supervise() {
	defer close(s.done)
	var wg sync.WaitGroup
	wg.Go(s.proposer.run)
	reason := ErrStopped
	select {
	case <-s.closing:
	case <-s.fault.ch:
		reason = fmt.Errorf("%w: %w", ErrFault, s.fault.err)
	}
	s.queue.close(reason)
	s.confirm.close(reason)
	if s.fault.get() == nil {
		s.drain()
	}
	if err := s.fault.get(); err != nil {
		s.logger.Error("shard failed on this node", "err", err)
		if s.streams != nil {
			_ = s.streams.Close() // or its heartbeats keep the others from electing (RULES A9)
		}
		s.proposer.abandon(err)
		s.node.cfg.OnFault(s.id, err)
	}
	close(s.release)
	s.drain() // Raft answers its futures while it still runs

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.raft.Shutdown().Error()
		close(s.proposer.stop)
		wg.Wait()
		s.proposer.awaiting.Wait()
		s.confirm.wg.Wait()
	}()
	select {
	case <-stopped:
	case <-time.After(shutdownTimeout):
		s.closeErr = fmt.Errorf("shard %d: a store call has not returned for %v; left behind", s.id, shutdownTimeout)
	}
	s.proposer.abandon(reason)
}

// drain waits until nothing is on its way, no longer than drainTimeout.
func (s *Shard) drain() {
	for end := time.Now().Add(drainTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s.queue.empty() && s.proposer.futures.Load() == 0 && !s.confirm.running() {
			return
		}
	}
}

// Close stops the replica. Entries on their way are waited for; what could not
// be answered is ErrOutcomeUnknown. It returns when all goroutines have ended.
func (s *Shard) Close() error {
	s.closer.Do(func() { close(s.closing) })
	<-s.done
	s.node.mu.Lock()
	if s.node.shards[s.id] == s {
		delete(s.node.shards, s.id)
		s.node.logBytes.Add(-s.log.bytes())
	}
	s.node.mu.Unlock()
	return s.closeErr
}

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
