package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/lianadb/liana/kv/catalog"
)

// remarks says, on the node that leads the catalog, what operators should know about the
// cluster: nodes that are silent and what becomes of them, and shards that cannot be
// helped.
func (l *leader) remarks(mp *catalog.Map, sit catalog.Situation, now time.Time) []string {
	var out []string
	var late []string // silent for too long, and not taken for dead
	for i := range mp.Nodes {
		n := &mp.Nodes[i]
		silent := l.silent(n.ID, now).Round(time.Second)
		switch {
		case n.State == catalog.Removed || !sit.Away[n.ID] || !holds(mp, n.ID):
		case n.Drains():
			out = append(out, fmt.Sprintf("node %s does not answer: its copies are being made elsewhere, as it is %s", n.ID, n.State))
		case sit.Dead[n.ID]:
			out = append(out, fmt.Sprintf("node %s is taken for dead: its copies are being made elsewhere", n.ID))
		case silent > l.m.cfg.DeadAfter:
			late = append(late, n.ID)
		default:
			out = append(out, fmt.Sprintf("node %s has not answered for %v: after %v its copies are made elsewhere",
				n.ID, silent, l.m.cfg.DeadAfter))
		}
	}
	if len(late) > 0 {
		out = append(out, fmt.Sprintf("%d nodes do not answer, more than are replaced at once (cluster.max_dead: %d), so none is: bring them "+
			"back, or give up those that are lost with `liana cluster remove-node`: %s", len(late), maxDead(mp, l.m.cfg.MaxDead), late[0]+andMore(late[1:])))
	}
	for _, s := range catalog.MakePlan(mp, sit).Stuck {
		out = append(out, s.Why)
	}
	return out
}

func andMore(ids []string) string {
	const most = 5
	text := ""
	for _, id := range ids[:min(most, len(ids))] {
		text += ", " + id
	}
	if more := len(ids) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// tell keeps the remarks for who asks, and logs those that are new.
func (l *leader) tell(remarks []string) {
	l.mu.Lock()
	old := l.told
	l.told = remarks
	l.mu.Unlock()
	for _, r := range remarks {
		if !slices.Contains(old, r) {
			l.m.cfg.Log.Debug("cluster", "remark", r)
		}
	}
}

func (l *leader) remarked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}
