package cluster

import (
	"time"

	"github.com/lianadb/liana/kv/catalog"
)

// moveLimits bound what the cluster copies beside its work.
func moveLimits() catalog.Limits { return catalog.Limits{PerNode: 2, Total: 16} }

// situation is what the leader of the catalog knows of the nodes beside the map.
func (l *leader) situation(mp *catalog.Map, seen map[uint32]seenShard, now time.Time) catalog.Situation {
	sit := catalog.Situation{Away: map[string]bool{}, Dead: map[string]bool{}, Leaders: map[uint32]string{}}
	for i := range mp.Nodes {
		n := &mp.Nodes[i]
		silent := l.silent(n.ID, now)
		sit.Away[n.ID] = silent > aliveWithin
		sit.Dead[n.ID] = silent > l.m.cfg.DeadAfter
	}
	if lost := missed(mp, sit); len(lost) > maxDead(mp, l.m.cfg.MaxDead) {
		for _, id := range lost {
			delete(sit.Dead, id)
		}
	}
	for id, s := range seen {
		sit.Leaders[id] = s.leader
	}
	return sit
}

// silent is how long a node has not been heard of.
func (l *leader) silent(node string, now time.Time) time.Duration {
	last := l.heard[node]
	if last.IsZero() {
		last = l.begun
	}
	return now.Sub(last)
}

// missed returns the dead nodes that copies are wanted of: not those that somebody gave
// up or drains, nor those that were replaced already.
func missed(mp *catalog.Map, sit catalog.Situation) []string {
	var out []string
	for i := range mp.Nodes {
		n := &mp.Nodes[i]
		if sit.Dead[n.ID] && n.State == catalog.Active && holds(mp, n.ID) {
			out = append(out, n.ID)
		}
	}
	return out
}

// maxDead is how many nodes may be taken for dead at once. If more are silent, they are
// likely well, and it is this part of the cluster that is cut off: to copy all that they
// hold would fill what is left of it.
func maxDead(mp *catalog.Map, configured int) int {
	if configured > 0 {
		return configured
	}
	storage := 0
	for i := range mp.Nodes {
		if n := &mp.Nodes[i]; n.Storage && n.State != catalog.Removed {
			storage++
		}
	}
	return max(1, storage/4)
}

// holds reports whether a node has a copy, or is about to.
func holds(mp *catalog.Map, node string) bool {
	on := func(s *catalog.Shard) bool { return s.On(node) >= 0 || s.Moving != nil && s.Moving.To == node }
	for i := range mp.Shards {
		if on(&mp.Shards[i]) {
			return true
		}
	}
	return on(&mp.Catalog)
}

// upkeep returns the edits that the map alone calls for: the level that all nodes have
// reached, and the end of nodes that were given up and hold nothing any more.
func upkeep(mp *catalog.Map) []catalog.Edit {
	var edits []catalog.Edit
	if lowest := mp.LowestLevel(); lowest > mp.Level {
		edits = append(edits, catalog.RaiseLevel{Level: lowest})
	}
	for i := range mp.Nodes {
		if n := &mp.Nodes[i]; n.State == catalog.Leaving && !holds(mp, n.ID) {
			edits = append(edits, catalog.SetNodeState{ID: n.ID, State: catalog.Removed})
		}
	}
	return edits
}

// planned returns the edits that the state of the cluster calls for now: what the map
// itself calls for, moves given up, and moves to begin.
func planned(mp *catalog.Map, sit catalog.Situation) []catalog.Edit {
	plan := catalog.MakePlan(mp, sit)
	edits := upkeep(mp)
	for _, id := range plan.Cancel {
		edits = append(edits, catalog.CancelMove{Shard: id})
	}
	for _, s := range catalog.Startable(mp, plan, sit, moveLimits()) {
		edits = append(edits, catalog.BeginMove{Shard: s.Shard, From: s.From, To: s.To})
	}
	return edits
}
