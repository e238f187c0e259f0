package graph

import (
	"errors"
	"fmt"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// openReplicas opens the machines of the replicas that are here. aside is told how each
// went, and says what ends the opening.
func (g *Graph) openReplicas(aside func(id uint32, err error) error) error {
	ids := g.cfg.Replicas
	if ids == nil {
		for id := range g.cfg.Shards {
			ids = append(ids, uint32(id))
		}
	}
	for _, id := range ids {
		if err := aside(id, g.openMember(id, false)); err != nil {
			return err
		}
	}
	return nil
}

// openMember opens the machine of this node's replica of a shard.
func (g *Graph) openMember(id uint32, joins bool) error {
	if id >= MaxShards {
		return fmt.Errorf("graph: shard %d: numbers are below %d", id, MaxShards)
	}
	mb := &member{joins: joins}
	var err error
	mb.machine, err = openMachine(MachineConfig{
		ID: id, Founding: g.cfg.Shards, Store: g.cfg.Store, Lists: g.cfg.Lists, Retain: g.cfg.Retain,
		Learn: g.learn, Born: func(child uint32) { g.born(birth{child, mb.machine.leads.Load()}) }, Others: g.claimsHere, CounterRows: g.counterRows(),
		Damaged: func(err error) bool { return g.damaged(mb, err) },
	}, g.cache)
	if err != nil {
		return err
	}
	mb.machine.outbox.peers = g
	g.members[id].Store(mb)
	return nil
}

func (g *Graph) startGroup(mb *member, join bool) error {
	s, err := g.cfg.Node.StartShard(shard.ShardConfig{ID: mb.machine.cfg.ID, Machine: mb.machine, Join: join})
	if err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	mb.group.Store(s)
	return nil
}

// StartReplica starts this node's replica of a shard. One that joins waits empty for
// the leader to add it; one that does not is a replica from before, or founds the
// shard. It does nothing where the replica runs already.
func (g *Graph) StartReplica(id uint32, join bool) error {
	g.starting.Lock()
	defer g.starting.Unlock()
	if id >= MaxShards {
		return fmt.Errorf("graph: shard %d: numbers are below %d", id, MaxShards)
	}
	if g.members[id].Load() != nil {
		return nil
	}
	err := g.openMember(id, join)
	if err == nil {
		err = g.startGroup(g.members[id].Load(), join)
	}
	if err == nil {
		g.broken[id].Store(nil)
		return nil
	}
	return errors.Join(err, g.setAside(id, err))
}

// setAside takes a replica out of use whose stored data is damaged, and goes on without
// it: the others of the node serve. Any other error is returned.
func (g *Graph) setAside(id uint32, err error) error {
	if err == nil {
		return nil
	}
	if mb := g.members[id].Swap(nil); mb != nil {
		mb.machine.Close()
	}
	if !shard.Damaged(err) {
		return err
	}
	g.broken[id].Store(&err)
	g.cfg.Logger.Error("a replica is damaged and does not start", "shard", id, "error", err)
	return nil
}

// damaged stops a replica in whose stored data damage was found while it ran, if there are
// others to serve and to make it anew from. Where there are none, what is not damaged is
// served still.
func (g *Graph) damaged(mb *member, err error) (stopped bool) {
	s := mb.group.Load()
	if s == nil || !shard.Damaged(err) || len(s.Members()) < 2 {
		return false
	}
	s.Fail(err)
	return true
}

// Damaged tells that what the store holds of a span is damaged: the replicas that have
// something there stop, as they do where they find it themselves.
func (g *Graph) Damaged(span kv.Span, err error) {
	for _, mb := range g.replicas() {
		for _, own := range mb.machine.Parts().Spans() {
			if own.Overlaps(span) {
				_ = mb.machine.failed(fmt.Errorf("shard %d: %w", mb.machine.cfg.ID, err))
				break
			}
		}
	}
}

// stopReplica stops this node's replica of a shard; its data stays. Calls under way end with
// an error. g.starting is held.
func (g *Graph) stopReplica(id uint32) error {
	mb := g.members[id].Load()
	if mb == nil {
		return nil
	}
	err := mb.close()
	if err != nil { // a call of it hangs in the store
		g.broken[id].Store(&err)
	}
	g.members[id].Store(nil)
	mb.machine.Close()
	return err
}

// DestroyReplica removes this node's replica of a shard for good, whether or not it runs,
// if it is the one that is meant. shard.ErrRuns, or another error: it is to be tried again.
func (g *Graph) DestroyReplica(id uint32, replica string) error {
	g.starting.Lock()
	defer g.starting.Unlock()
	if id >= MaxShards {
		return nil
	}
	have, err := g.cfg.Node.ReplicaOf(id)
	if err != nil || have != replica {
		return err
	}
	if err := g.stopReplica(id); err != nil {
		return fmt.Errorf("shard %d: stop the replica %s: %w", id, replica, err)
	}
	if err := g.cfg.Node.DestroyReplica(id, g.partsOf(id)); err != nil {
		return err
	}
	g.cache.forget() // pages of it, under numbers of cuts that the next one counts anew
	g.broken[id].Store(nil)
	return nil
}

// partsOf names the state of a replica that does not run, as far as it can be read: what
// it says that it owns, or else what others say, without what other replicas here have.
func (g *Graph) partsOf(id uint32) kv.Parts {
	o, err := readOwners(g.cfg.Store, id)
	if err != nil {
		o = *g.owners.Load()
	}
	own := o.own(id)
	if own != nil {
		c := *own
		for _, other := range g.claimsHere(id) {
			switch {
			case other.First > c.Last || other.Last < c.First:
			case other.First > c.First: // its child
				c.Last = other.First - 1
			default:
				c.First = other.Last + 1
			}
		}
		if own = &c; c.First > c.Last {
			own = nil
		}
	}
	return partsOf(id, own)
}

// partsOf names the state of a shard that owns what it claims.
func partsOf(id uint32, own *Claim) kv.Parts {
	local := appendLocal(nil, id, 0)
	return kv.Parts{Data: dataSpan(own), Local: []kv.Span{kv.PrefixSpan(local[:len(local)-1])}}
}

// Words for what a replica does.
const (
	stateFailed     = "failed"
	stateStarting   = "starting"
	stateJoining    = "joining"     // it has not what the shard has yet, and never served
	stateCatchingUp = "catching up" // it was here at the start, and lacks what came since
	stateNoLeader   = "no leader"
	stateServing    = "serving"
)

// state says what the replica does, and why it does not serve.
func (mb *member) state() (string, error) {
	if err := mb.machine.fault.Load(); err != nil {
		return stateFailed, *err
	}
	s := mb.group.Load()
	if s == nil {
		return stateStarting, errors.New(stateStarting)
	}
	if err := s.Fault(); err != nil {
		return stateFailed, err
	}
	switch known := s.CaughtUp(); {
	case !known && mb.joins:
		// It does not count: where replicas come to all nodes, as when one is drained, none
		// would be ready. Calls go to those that have the data.
		return stateJoining, nil
	case !s.Served():
		return stateNoLeader, errors.New(stateNoLeader)
	case !known:
		return stateCatchingUp, errors.New(stateCatchingUp)
	}
	return stateServing, nil
}

// Ready returns nil when every replica of this node serves that was here at the start, or
// has served since: it leads, or knows who does and has what was acknowledged before.
func (g *Graph) Ready() error {
	if !g.ready.Load() {
		return errors.New("shards are starting")
	}
	for id := range g.broken {
		if err := g.broken[id].Load(); err != nil {
			return fmt.Errorf("shard %d: %w", id, *err)
		}
	}
	for _, mb := range g.replicas() {
		if _, err := mb.state(); err != nil {
			return fmt.Errorf("shard %d: %w", mb.machine.cfg.ID, err)
		}
	}
	return nil
}

// ShardStatus is the state of one shard.
type ShardStatus struct {
	ID                  uint32
	FirstSlot, LastSlot uint16
	// State is "serving", "catching up" (after a start), "joining" (it never served yet),
	// "no leader", "starting" or "failed".
	State             string
	Leader            bool
	Applied, Position uint64
	OutboxPending     uint64 // rows not acknowledged
	Fault             string // empty: well
	Backfills         []Backfill
	Raft              shard.Status
}

// Status returns the state of this node's replicas.
func (g *Graph) Status() []ShardStatus {
	var out []ShardStatus
	for id := range g.members {
		if mb := g.members[id].Load(); mb != nil {
			out = append(out, mb.status())
		} else if err := g.broken[id].Load(); err != nil {
			out = append(out, ShardStatus{ID: uint32(id), State: stateFailed, Fault: (*err).Error()})
		}
	}
	return out
}

func (mb *member) status() ShardStatus {
	st := ShardStatus{ID: mb.machine.cfg.ID}
	var err error
	if st.State, err = mb.state(); st.State == stateFailed {
		st.Fault = err.Error()
	}
	if s := mb.group.Load(); s != nil {
		st.Raft = s.Status()
		st.Leader, st.Applied = st.Raft.Leading, st.Raft.Applied
	}
	if v, err := mb.machine.acquire(); err == nil {
		st.Position = v.position
		st.Backfills = v.progress()
		if v.own != nil {
			st.FirstSlot, st.LastSlot = uint16(v.own.First), uint16(v.own.Last)
		}
		v.release()
	}
	st.OutboxPending = mb.machine.outbox.pending()
	return st
}

// markDamage marks pages that cannot be read as what they are.
func markDamage(err error) error {
	if errors.Is(err, edgelist.ErrCorrupt) && !errors.Is(err, kv.ErrCorruption) {
		return fmt.Errorf("%w: %w", kv.ErrCorruption, err)
	}
	return err
}
