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
	for _, n := range mp.Nodes {
		last := l.heard[n.ID]
		if last.IsZero() {
			last = l.begun
		}
		silent := now.Sub(last)
		sit.Away[n.ID] = silent > aliveWithin
		sit.Dead[n.ID] = silent > l.m.cfg.DeadAfter
	}
	for id, s := range seen {
		sit.Leaders[id] = s.leader
	}
	return sit
}

// planned returns the edits that the state of the cluster calls for now: moves given
// up, and moves to begin.
func planned(mp *catalog.Map, sit catalog.Situation) []catalog.Edit {
	plan := catalog.MakePlan(mp, sit)
	var edits []catalog.Edit
	for _, id := range plan.Cancel {
		edits = append(edits, catalog.CancelMove{Shard: id})
	}
	for _, s := range catalog.Startable(mp, plan, sit, moveLimits()) {
		edits = append(edits, catalog.BeginMove{Shard: s.Shard, From: s.From, To: s.To})
	}
	return edits
}
