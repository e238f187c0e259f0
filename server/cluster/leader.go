package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// Times of the node that leads the catalog.
const (
	roundEvery  = 500 * time.Millisecond
	roundPause  = 50 * time.Millisecond // at least, between rounds
	foundEvery  = 10 * time.Millisecond // while the cluster is not founded
	reportTime  = time.Second           // for a node to tell of its replicas
	aliveWithin = 3 * time.Second       // since the last report of a node
	changeTime  = 30 * time.Second
)

// leader does, on the node that leads the catalog, what the map wants.
type leader struct {
	m     *Member
	found *catalog.Map // the first map of a cluster to be founded

	leading bool
	begun   time.Time            // of leading
	heard   map[string]time.Time // last report of each node
	missed  map[string]time.Time // members that their nodes have not told of since
	mending mending

	mu   sync.Mutex
	busy map[uint32]bool // shards whose change is under way
	told []string        // what operators should know, as of the last round
	work sync.WaitGroup
	next chan struct{} // of capacity 1: a change has ended, and another may be due
}

func newLeader(m *Member) *leader {
	return &leader{m: m, heard: map[string]time.Time{}, missed: map[string]time.Time{}, mending: newMending(), busy: map[uint32]bool{}, next: make(chan struct{}, 1)}
}

func (l *leader) run(ctx context.Context) {
	defer l.work.Wait()
	for ctx.Err() == nil {
		if l.leads() {
			l.round(ctx)
		}
		if l.m.Map().Version == 0 {
			sleep(ctx, foundEvery)
		} else {
			l.pause(ctx)
		}
	}
}

// pause waits for the next round: a change that has ended calls for it early.
func (l *leader) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(roundEvery):
	case <-l.next:
		sleep(ctx, roundPause)
	}
}

// leads reports whether this node leads the catalog, and notes since when.
func (l *leader) leads() bool {
	leading := l.m.replicas.catalog.leads()
	if !leading {
		l.tell(nil)
	}
	if leading && !l.leading {
		l.begun = time.Now()
		clear(l.heard)
		clear(l.missed)
		l.mending = newMending()
	}
	l.leading = leading
	return leading
}

// round looks at the cluster and makes what changes are due.
func (l *leader) round(ctx context.Context) {
	mp := l.m.replicas.catalog.board().Map()
	if mp.Version == 0 {
		l.foundCluster(ctx)
		return
	}
	reports := l.m.ask(ctx, mp)
	now := time.Now()
	for node := range reports {
		l.heard[node] = now
	}
	alive := func(node string) bool { return now.Sub(l.heard[node]) < aliveWithin }
	seen := observe(reports)
	sit := l.situation(mp, seen, now)
	due, stopped := l.mending.look(reports, len(missed(mp, sit)), maxDead(mp, l.m.cfg.MaxDead), l.m.cfg.DeadAfter, now)
	l.tell(append(l.remarks(mp, sit, now), stopped...))
	if now.Sub(l.begun) > aliveWithin { // all that are up have been heard of
		l.plan(ctx, mp, sit)
		l.spread(ctx, mp, reports, seen, sit)
	}
	for _, s := range append([]catalog.Shard{mp.Catalog}, mp.Shards...) {
		view, ok := seen[s.ID]
		if !ok {
			continue
		}
		if s.Splitting != nil {
			l.splitOn(ctx, &s, seen)
		}
		c := next(view, wanted(&s), alive)
		if m, ok := l.lost(view, reports, due, now); ok && view.quorumWithout(m.replica, alive) {
			c = change{kind: removeOf, shard: s.ID, node: m.node, replica: m.replica}
		} else if c.kind == addTo && failedOn(reports[c.node], s.ID) {
			c.kind = wait // until it is destroyed
		}
		l.step(ctx, mp, &s, view, c)
	}
	l.clean(ctx, mp, reports, seen)
}

// goneAfter is how long a node has to tell of its replicas without one before that is
// taken to be lost.
const goneAfter = 10 * time.Second

// lost returns a member that is of no use any more: its node, which answers, does not have
// it, or it has stopped there and is due. It is removed from the group; another one is made
// then. A node does not have a replica of a child where it was sent the parent's state of
// after a split that it had not applied.
func (l *leader) lost(s seenShard, reports map[string]*peerv1.GetReplicasResponse, due map[string]bool, now time.Time) (member, bool) {
	for _, m := range s.members {
		if due[m.replica] {
			return m, true
		}
		if rep := reports[m.node]; rep == nil || has(rep, s.id, m.replica) {
			delete(l.missed, m.replica)
			continue
		}
		since, ok := l.missed[m.replica]
		if !ok {
			l.missed[m.replica] = now
		} else if now.Sub(since) > goneAfter {
			return m, true
		}
	}
	return member{}, false
}

// foundCluster puts the first map into the catalog.
func (l *leader) foundCluster(ctx context.Context) {
	if l.found == nil {
		return
	}
	cmd, err := catalog.Command(0, catalog.Found{Map: l.found})
	if err == nil {
		_, err = l.m.replicas.catalog.propose(ctx, cmd)
	}
	if err != nil {
		l.m.cfg.Log.Error("catalog: the cluster is not founded yet", "error", err)
	}
}

// observe puts the reports together: of each shard what its leader of the newest term
// says.
func observe(reports map[string]*peerv1.GetReplicasResponse) map[uint32]seenShard {
	out := map[uint32]seenShard{}
	for node, rep := range reports {
		for _, r := range rep.GetReplicas() {
			if old := out[r.GetShard()]; !r.GetLeader() || r.GetTerm() < old.term {
				continue
			}
			s := seenShard{id: r.GetShard(), leader: node, term: r.GetTerm()}
			for _, m := range r.GetMembers() {
				s.members = append(s.members, member{
					replica: m.GetReplica(), node: shard.NodeOf(m.GetReplica()), voter: m.GetVoter(),
					lag: lagOf(reports, r, m.GetReplica()), failed: stops(reports, s.id, m.GetReplica()),
				})
			}
			out[s.id] = s
		}
	}
	return out
}

// lagOf returns how many entries a replica has applied less than the leader; one that
// does not tell lacks all.
func lagOf(reports map[string]*peerv1.GetReplicasResponse, leader *peerv1.Replica, replica string) uint64 {
	for _, r := range reports[shard.NodeOf(replica)].GetReplicas() {
		if r.GetShard() == leader.GetShard() && r.GetReplica() == replica {
			return leader.GetApplied() - min(leader.GetApplied(), r.GetApplied())
		}
	}
	return leader.GetApplied() + promoteLag + 1
}

// step makes one change of a shard, or records that a move has been made. It goes on
// beside the rounds.
func (l *leader) step(ctx context.Context, mp *catalog.Map, s *catalog.Shard, view seenShard, c change) {
	switch {
	case c.kind == wait:
		return
	case c.kind == nothing:
		if s.Moving == nil || view.leader == "" {
			return
		}
		if s.Moving.To != "" {
			to, _ := view.on(s.Moving.To)
			c.node, c.replica = to.node, to.replica
		}
	case c.kind == stuck:
		l.m.cfg.Log.Warn("shard: a replica cannot be removed without losing the quorum", "shard", c.shard, "replica", c.replica)
		return
	}
	if !l.take(c.shard) {
		return
	}
	l.work.Go(func() {
		defer l.release(c.shard)
		ctx, cancel := context.WithTimeout(ctx, changeTime)
		defer cancel()
		if err := l.make(ctx, mp.Version, c, view.leader); err != nil && ctx.Err() == nil {
			l.m.cfg.Log.Warn("shard: a change of its members failed and is tried again", "shard", c.shard, "change", c.String(), "error", err)
		}
	})
}

func (l *leader) take(id uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[id] || len(l.busy) >= max(1, l.m.cfg.MovesAtOnce) {
		return false
	}
	l.busy[id] = true
	return true
}

func (l *leader) release(id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, id)
	select {
	case l.next <- struct{}{}:
	default:
	}
}

// make makes a change: nothing stands for a move that has been made.
func (l *leader) make(ctx context.Context, version uint64, c change, leads string) error {
	l.m.cfg.Log.Info("shard: changing its members", "shard", c.shard, "change", c.String())
	at := l.m.at(leads)
	switch c.kind {
	case nothing:
		if c.replica != "" {
			if err := l.m.Edit(ctx, version, catalog.NameReplica{Shard: c.shard, Node: c.node, ID: c.replica}); err != nil {
				return err
			}
		}
		return l.m.Edit(ctx, catalog.AnyVersion, catalog.FinishMove{Shard: c.shard})
	case addTo:
		replica, err := l.m.at(c.node).prepare(ctx, c.shard)
		if err != nil {
			return err
		}
		return at.change(ctx, c.shard, peerv1.ChangeMembersRequest_CHANGE_ADD_LEARNER, replica)
	case promote:
		return at.change(ctx, c.shard, peerv1.ChangeMembersRequest_CHANGE_PROMOTE, c.replica)
	case handOver:
		return at.change(ctx, c.shard, peerv1.ChangeMembersRequest_CHANGE_TRANSFER_LEADERSHIP, c.replica)
	case removeOf:
		return at.change(ctx, c.shard, peerv1.ChangeMembersRequest_CHANGE_REMOVE, c.replica)
	}
	return fmt.Errorf("change %d", c.kind)
}

func (c change) String() string {
	switch c.kind {
	case nothing:
		return "the move is done"
	case addTo:
		return "add a learner on " + c.node
	case promote:
		return "promote " + c.replica
	case handOver:
		return "hand the leadership to " + c.replica
	case removeOf:
		return "remove " + c.replica
	case stuck:
		return "stuck with " + c.replica
	}
	return "wait"
}

// clean destroys replicas that are no members of their groups and wanted nowhere, or have
// stopped.
func (l *leader) clean(ctx context.Context, mp *catalog.Map, reports map[string]*peerv1.GetReplicasResponse, seen map[uint32]seenShard) {
	for node, rep := range reports {
		for _, r := range rep.GetReplicas() {
			s, view := mp.Shard(r.GetShard()), seen[r.GetShard()]
			if s == nil || view.leader == "" || r.GetReplica() == "" || slices.Contains(wanted(s), node) && !r.GetFailed() ||
				slices.ContainsFunc(view.members, func(m member) bool { return m.replica == r.GetReplica() }) || !l.take(s.ID) {
				continue
			}
			id, replica := s.ID, r.GetReplica()
			l.work.Go(func() {
				defer l.release(id)
				ctx, cancel := context.WithTimeout(ctx, changeTime)
				defer cancel()
				if err := l.m.at(node).destroy(ctx, id, replica); err != nil && ctx.Err() == nil {
					l.m.cfg.Log.Warn("shard: a replica left over was not removed", "shard", id, "replica", replica, "error", err)
				}
			})
		}
	}
}

// plan begins the moves that the state of the cluster calls for.
func (l *leader) plan(ctx context.Context, mp *catalog.Map, sit catalog.Situation) {
	for _, e := range planned(mp, sit) {
		if err := l.m.Edit(ctx, mp.Version, e); err != nil {
			l.m.cfg.Log.Debug("catalog: a planned edit was refused", "edit", fmt.Sprintf("%T", e), "error", err)
		}
	}
}

// spread hands over the leadership of shards that are at rest, one a round, so that
// the nodes lead about as many each. One that has failed, or whose disk is sick, has
// just given way and is not asked to lead.
func (l *leader) spread(ctx context.Context, mp *catalog.Map, reports map[string]*peerv1.GetReplicasResponse, seen map[uint32]seenShard, sit catalog.Situation) {
	for id, node := range catalog.PreferredLeaders(mp, sit) {
		s, view := mp.Shard(id), seen[id]
		m, ok := view.on(node)
		if id == catalogShard || s.Moving != nil || !ok || !m.voter || view.leader == node ||
			faultOf(reports[node], id) != "" {
			continue
		}
		l.step(ctx, mp, s, view, change{kind: handOver, shard: id, node: node, replica: m.replica})
		return
	}
}
