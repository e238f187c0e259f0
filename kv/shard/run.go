package shard

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// drainPart is the part of StoreTimeout that a closing shard waits for entries on their
	// way, and a failed one for Raft to answer its futures. For all of it, it waits for
	// Raft's goroutines: only a store that hangs makes it pass.
	drainPart = 2
	// appendMax is how many log entries Raft stores, sends and applies at once. An entry
	// may hold many commands, and Raft reads them all where a message holds less.
	appendMax = 64
	// commitTimeout is how long a follower of an idle leader may wait for the news that
	// an entry is committed; Raft waits once to twice as long.
	commitTimeout = 25 * time.Millisecond
)

// instance is one run of Raft for a replica. It is replaced where an install has made
// void what Raft has in mind of the log.
type instance struct {
	raft      *raft.Raft
	guard     *guard
	streams   *streams       // nil where there can be no peers
	transport *peerTransport // nil too
	ending    sync.Once
}

// start runs Raft for the first time, and everything around it.
func (s *Shard) start(row replicaRow) error {
	cfg := s.node.cfg
	s.proposer = &proposer{
		shard: s.id, limits: cfg.Limits, queue: s.queue, fsm: s.fsm, clock: cfg.Clock, clocks: s.clocks,
		raft: s.raft, notify: make(chan bool, 16), looks: make(chan look),
		opened: make(chan openedTerm), finished: make(chan *flight), stop: make(chan struct{}),
	}
	s.lines = newLines(cfg.Clock, 2*s.heartbeat(), func(ctx context.Context, replica string) (c net.Conn, err error) {
		return s.instance.Load().streams.dial(ctx, replica, forQuestions)
	})
	if err := s.run(row); err != nil {
		return err
	}
	go s.supervise()
	return nil
}

// run makes an instance and starts it.
func (s *Shard) run(row replicaRow) (err error) {
	cfg := s.node.cfg
	i := &instance{guard: newGuard(s)}
	log := guardedLog{logStore: s.log, guard: i.guard, whole: s.wholeLog, logged: func(commands int) {
		s.proposer.logged(commands)
		if i.transport != nil {
			i.transport.pacer.ring()
		}
	}}
	stable := guardedStable{bolt: s.node.bolt, prefix: s.replica + "/", guard: i.guard}
	snaps := &snapshots{fsm: s.fsm, pins: &s.pins, behind: s.behindItsTerm}
	alone := s.alone(row)
	conf := raftConfig(s.replica, s.heartbeat(), s.proposer.notify)
	conf.Logger = raftLogger(s.logger, i.guard.ended)
	transport := s.openTransport(i)

	defer func() { // Raft panics where it cannot read its log or save its term
		if p := recover(); p != nil {
			err = fmt.Errorf("shard %d: start: %v", s.id, p)
		}
		if err != nil && i.transport != nil {
			_ = i.transport.Close()
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
	if err := raiseTerm(stable, s.fsm.cut.Load().term); err != nil {
		return fmt.Errorf("shard %d: term: %w", s.id, err)
	}
	if i.raft, err = raft.NewRaft(conf, s.fsm, log, stable, snaps, transport); err != nil {
		return fmt.Errorf("shard %d: start: %w", s.id, err)
	}
	// Nothing comes in before the instance can be found, and that is after this.
	i.guard.started.Store(true)
	s.instance.Store(i)
	if i.transport != nil {
		i.transport.raft.Store(i.raft)
		if alone {
			i.transport.elect()
		}
	}
	return nil
}

// raft returns the Raft that runs.
func (s *Shard) raft() *raft.Raft { return s.instance.Load().raft }

// openTransport makes the way of a replica to the others.
func (s *Shard) openTransport(i *instance) raft.Transport {
	if s.node.cfg.Dial == nil {
		_, t := raft.NewInmemTransport(raft.ServerAddress(s.replica))
		return t
	}
	i.streams = newStreams(s.node, s.id, s.replica)
	pace := &pacer{rest: maxRest, last: func() uint64 { _, last := s.log.bounds(); return last }}
	i.transport = newPeerTransport(i.streams, pace, &raft.NetworkTransportConfig{
		MaxPool: transportPool, Timeout: transportTimeout, Logger: raftLogger(s.logger, i.guard.ended),
	})
	t := i.transport
	t.fresh = &s.fsm.fresh
	t.stands = func(term uint64) standing {
		r := t.raft.Load()
		if r == nil {
			return standing{}
		}
		return standing{s.proposer.openTerm.Load() == term, s.fsm.reached.Load(), r.CommitIndex()}
	}
	return i.transport
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
	conf.CommitTimeout = min(commitTimeout, heartbeat/2)
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

// shutdown ends the instance and returns when its goroutines have ended.
func (i *instance) shutdown() {
	i.guard.free()
	i.ending.Do(func() { // Raft lets only the first caller wait
		ended := i.raft.Shutdown()
		if i.transport != nil {
			i.transport.breakOff() // Raft waits for answers otherwise
		}
		_ = ended.Error()
	})
}

// supervise owns the shard's goroutines: it starts the proposer and, when the
// shard is closed or fails, stops everything in order.
func (s *Shard) supervise() {
	defer close(s.done)
	var wg sync.WaitGroup
	wg.Go(s.proposer.run)
	reason := s.serve()
	s.queue.close(reason)
	s.confirm.close(reason)
	if s.fault.get() == nil {
		s.drain()
		s.handOver()
	}
	if err := s.fault.get(); err != nil {
		s.logger.Error("shard failed on this node", "err", err)
		if t := s.instance.Load().transport; t != nil {
			t.breakOff() // or its heartbeats keep the others from electing (RULES A9)
		}
		s.proposer.abandon(err)
		s.node.cfg.OnFault(s.id, err)
	}
	s.instance.Load().guard.free()
	s.drain() // Raft answers its futures while it still runs

	go func() {
		defer close(s.ended)
		s.instance.Load().shutdown()
		close(s.proposer.stop)
		s.lines.close()
		wg.Wait()
		s.proposer.awaiting.Wait()
		s.confirm.wg.Wait()
	}()
	select {
	case <-s.ended:
	case <-time.After(s.patience()):
		s.closeErr = fmt.Errorf("shard %d: a store call has not returned for %v; left behind", s.id, s.patience())
	}
	s.proposer.abandon(reason)
}

// serve lets the replica work until it is closed or fails, and returns why it ends.
func (s *Shard) serve() error {
	for {
		select {
		case <-s.closing:
			return ErrStopped
		case <-s.fault.ch:
			return fmt.Errorf("%w: %w", ErrFault, s.fault.err)
		case index := <-s.stale:
			if err := s.restart(index); err != nil {
				s.fault.set(err)
			}
		}
	}
}

// restart replaces Raft by one that reads the log anew (RULES A4).
func (s *Shard) restart(index uint64) error {
	old := s.instance.Load()
	// Until it has told the sender that the snapshot is installed, or it would come again.
	for end := time.Now().Add(time.Second); old.raft.AppliedIndex() < index && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		old.shutdown()
	}()
	select {
	case <-ended:
	case <-time.After(s.patience()):
		return fmt.Errorf("shard %d: after an install: Raft has not ended within %v", s.id, s.patience())
	}
	s.logger.Info("the log ended on another branch than the snapshot; Raft begins anew", "index", index)
	return s.run(replicaRow{form: replicaJoined})
}

// handOver gives the leadership to another voter, so that none has to find out by
// silence that this one is gone.
func (s *Shard) handOver() {
	if others, _ := s.voters(); len(others) == 0 || s.proposer.openTerm.Load() == 0 {
		return
	}
	if err := s.raft().LeadershipTransfer().Error(); err != nil { // no longer than a heartbeat or two
		s.logger.Info("the leadership was not handed over", "err", err)
	}
}

// patience is how long the shard waits for its stores.
func (s *Shard) patience() time.Duration { return s.node.cfg.Limits.StoreTimeout }

// drain waits until nothing is on its way, no longer than a part of the patience.
func (s *Shard) drain() {
	for end := time.Now().Add(s.patience() / drainPart); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s.queue.empty() && s.proposer.futures.Load() == 0 && !s.confirm.running() {
			return
		}
	}
}
