package shard

import (
	"time"

	"github.com/hashicorp/raft"
)

// Status is a shard's state at one moment, for health and metrics. The
// positions are read one after the other, so under load they need not agree.
type Status struct {
	Shard   uint32
	Replica string // replica id: node id and random number
	Leader  string // replica id of the known leader, "" if unknown
	// Age is how old the state here can be, 0 where this replica leads.
	Age time.Duration

	Leading bool // this replica leads and its term is open
	// CaughtUp: it has had all that was acknowledged at some moment since its start.
	CaughtUp bool
	Term     uint64

	Durable, Cut, Applied, Commit uint64
	FirstLog, LastLog             uint64
	LogBytes                      int64 // estimate
	Now                           int64 // log time at Cut, µs since 1970

	Waiting  int    // proposals not in an entry yet
	Slots    int    // proposals not answered yet
	Refused  uint64 // proposals refused with ErrBusy
	Entries  uint64 // entries proposed by this replica
	Commands uint64 // commands in them
	Replayed uint64 // entries applied since the start, of any leader
	Rounds   uint64 // rounds of Confirm
	Installs uint64 // snapshots of other replicas installed since the start

	// Sick says what is wrong with the disk under this replica, "" where nothing is known
	// to be; GaveWay counts the leaderships handed over because of it.
	Sick    string
	GaveWay uint64

	Fault error // why the shard stopped on this node, nil while it runs
}

// ID returns the shard's number.
func (s *Shard) ID() uint32 { return s.id }

// Fault returns why the shard stopped on this node, nil while it runs.
func (s *Shard) Fault() error { return s.fault.get() }

// Served reports whether this replica leads and its term is open, or knows of another
// that leads.
func (s *Shard) Served() bool {
	_, leader := s.raft().LeaderWithID()
	return leader != "" && (string(leader) != s.replica || s.proposer.openTerm.Load() != 0)
}

// CaughtUp reports whether this replica has had, since it was started, all that was
// acknowledged at some moment since then: before, what it lacks is not known.
func (s *Shard) CaughtUp() bool {
	if !s.caughtUp.Load() && (s.proposer.openTerm.Load() != 0 || s.fsm.fresh.since.Load() != nil) {
		s.caughtUp.Store(true)
	}
	return s.caughtUp.Load()
}

// Status returns the shard's state.
func (s *Shard) Status() Status {
	st := Status{
		Shard: s.id, Replica: s.replica,
		Leading:  s.proposer.openTerm.Load() != 0,
		CaughtUp: s.CaughtUp(),
		Term:     s.raft().CurrentTerm(),
		Commit:   s.raft().CommitIndex(),
		LogBytes: s.log.bytes(),
		Entries:  s.proposer.sent.Load(),
		Commands: s.proposer.gathered.Load(),
		Replayed: s.fsm.entries.Load(),
		Rounds:   s.confirm.rounds.Load(),
		Installs: s.fsm.installs.Load(),
		Sick:     s.node.Sick(),
		GaveWay:  s.handovers.Load(),
		Fault:    s.fault.get(),
	}
	var leader raft.ServerID
	_, leader = s.raft().LeaderWithID()
	st.Leader = string(leader)
	_, st.Age = s.Leader()
	cut := s.fsm.cut.Load()
	st.Durable, st.Cut, st.Now = s.durableIndex(), cut.index, cut.now
	st.Applied = s.fsm.reached.Load()
	st.FirstLog, st.LastLog = s.log.bounds()
	s.queue.mu.Lock()
	st.Waiting, st.Slots, st.Refused = s.queue.waiting, s.queue.slots, s.queue.refused
	s.queue.mu.Unlock()
	return st
}

// knownDurable is how far the state was durable after so many flushes.
type knownDurable struct{ flushes, index uint64 }

// durableIndex reads how far the state is durable, once after each flush.
func (s *Shard) durableIndex() uint64 {
	flushes := s.node.flushes.Load()
	if known := s.durable.Load(); known != nil && known.flushes == flushes {
		return known.index
	}
	p, err := readPosition(s.node.cfg.State.GetDurable, s.id)
	if err == nil { // a store that fails here fails its next write too
		s.durable.Store(&knownDurable{flushes, p.index})
	}
	return p.index
}

func (l *logStore) bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size.end - l.size.begin
}
