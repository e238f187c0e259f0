package catalog

import (
	"fmt"
	"slices"
)

// Plan is what to do about the copies of a cluster, worked out from a map and what is
// known about its nodes. It is made anew whenever one of these changes: moves under
// way count as made, so a plan made in the middle of another is the rest of it.
type Plan struct {
	// Cancel are the shards whose move under way cannot end well: its target is dead,
	// draining or gone.
	Cancel []uint32
	// Steps are the moves to make, the most urgent first. A shard that occurs twice
	// takes its steps one after the other.
	Steps []Step
	// Stuck are the shards that no step can help.
	Stuck []Stuck
}

// Step is one move to make: From and To as in Move.
type Step struct {
	Shard    uint32
	From, To string
	Reason   Reason
}

// Stuck says why a shard cannot be helped and what people can do.
type Stuck struct {
	Shard uint32
	Why   string
}

// Reason says why a copy moves. Smaller is more urgent.
type Reason int

// The reasons of steps.
const (
	ForDead    Reason = iota + 1 // its node is dead
	ForCopies                    // the shard has too few copies
	ForDrain                     // its node is to be emptied
	ForFewer                     // the shard has too many copies
	ForZones                     // one zone has too many of the shard's copies
	ForBalance                   // its node has too many copies, or another too few
)

func (r Reason) String() string {
	return [...]string{"?", "replace the copy of a dead node", "more copies", "drain", "fewer copies", "spread over zones",
		"balance"}[max(0, min(int(r), int(ForBalance)))]
}

// MakePlan returns what is to be done about m: copies on dead nodes replaced, missing
// ones made, draining nodes emptied, copies spread over zones, and nodes balanced. It
// depends on its arguments alone.
func MakePlan(m *Map, sit Situation) Plan {
	l := newLayout(m, sit)
	l.repair()
	l.level()
	return l.plan
}

// Drain returns the steps that empty a node, whatever its state.
func Drain(m *Map, node string, sit Situation) Plan {
	return planLeaving(m, node, sit, ForDrain)
}

// Replace returns the steps that make the copies of a dead node elsewhere.
func Replace(m *Map, node string, sit Situation) Plan {
	return planLeaving(m, node, sit.with(node), ForDead)
}

// with is the situation in which one more node is dead.
func (s Situation) with(dead string) Situation {
	all := map[string]bool{dead: true}
	for node := range s.Dead {
		all[node] = s.Dead[node]
	}
	s.Dead = all
	return s
}

func planLeaving(m *Map, node string, sit Situation, why Reason) Plan {
	leaving := *m
	leaving.Nodes = slices.Clone(m.Nodes)
	if n := leaving.Node(node); n != nil && n.State == Active {
		n.State = Draining
	}
	l := newLayout(&leaving, sit)
	l.empty(why, func(p *place) bool { return p.node.ID == node })
	return l.plan
}

// Rebalance returns the steps that bring every node within its share of copies, and
// nothing else: what MakePlan does last.
func Rebalance(m *Map, sit Situation) Plan {
	l := newLayout(m, sit)
	l.level()
	return l.plan
}

func (l *layout) repair() {
	l.empty(ForDead, func(p *place) bool { return l.sit.Dead[p.node.ID] || !p.node.Storage || p.node.State == Removed })
	for _, k := range l.urgent {
		l.grow(k)
	}
	l.empty(ForDrain, func(p *place) bool { return p.node.Drains() })
	for _, k := range l.urgent {
		for p := &l.spreads[k]; len(p.at) > l.wanted; {
			l.step(k, l.superfluous(k), -1, ForFewer)
		}
	}
	for _, k := range l.urgent {
		l.spreadOut(k)
	}
}

// grow makes the copies that a shard lacks.
func (l *layout) grow(k int) {
	for p := &l.spreads[k]; len(p.at) < l.copies(len(p.at)); {
		to := l.pick(k, -1, false)
		if to < 0 {
			l.noRoom(k)
			return
		}
		l.step(k, -1, to, ForCopies)
	}
}

// empty moves all copies away from the places that must be left.
func (l *layout) empty(why Reason, leaves func(p *place) bool) {
	leaving := make([]bool, len(l.places))
	for i := range l.places {
		leaving[i] = leaves(&l.places[i])
	}
	for _, k := range l.urgent {
		for _, from := range slices.Clone(l.spreads[k].at) {
			if leaving[from] && !l.leave(k, from, why) {
				break
			}
		}
	}
}

// leave moves one copy of a shard away, or only gives it up where there are enough,
// and reports whether it could.
func (l *layout) leave(k, from int, why Reason) bool {
	to := -1
	if n := len(l.spreads[k].at); n <= l.copies(n) {
		if to = l.pick(k, from, false); to < 0 {
			l.noRoom(k)
			return false
		}
	}
	l.step(k, from, to, why)
	return true
}

func (l *layout) noRoom(k int) {
	s := l.spreads[k].shard
	l.plan.Stuck = append(l.plan.Stuck, Stuck{Shard: s.ID, Why: fmt.Sprintf(
		"%s: no node can take a copy: %d active storage nodes are known and answer or did lately, and each one that answers has a copy. "+
			"Add a storage node, or lower the replication", shardName(s.ID), l.homes)})
}

func shardName(id uint32) string {
	if id == CatalogShard {
		return "the catalog"
	}
	return fmt.Sprintf("shard %d", id)
}

// superfluous returns the copy of a shard that is given up first: on a node that does
// not answer, in the zone with most copies, on the fullest node, not the leader.
func (l *layout) superfluous(k int) int {
	p := &l.spreads[k]
	rank := func(i int) [4]int {
		c := &l.places[i]
		r := [4]int{0, l.inZone(p, c.zone, -1), len(c.held) - c.lo, 0}
		if !c.open {
			r[0] = 1
		}
		if !l.leads(p, i) {
			r[3] = 1
		}
		return r
	}
	return slices.MaxFunc(p.at, func(a, b int) int {
		ra, rb := rank(a), rank(b)
		return slices.Compare(ra[:], rb[:])
	})
}

// spreadOut moves copies of a shard out of zones that have too many of them. (Copies on
// places that are no home count as one zone: where they could not leave, nothing can.)
func (l *layout) spreadOut(k int) {
	p := &l.spreads[k]
	for p.whole {
		from := -1
		for _, i := range p.at {
			if l.inZone(p, l.places[i].zone, -1) > l.most && (from < 0 || l.better(p, i, from)) {
				from = i
			}
		}
		if from < 0 {
			return
		}
		to := l.pick(k, from, true)
		if to < 0 {
			return
		}
		l.step(k, from, to, ForZones)
	}
}

// better reports whether the copy of p at place a is moved rather than that at b.
func (l *layout) better(p *spread, a, b int) bool {
	if la, lb := l.leads(p, a), l.leads(p, b); la != lb {
		return lb
	}
	return len(l.places[a].held)-l.places[a].lo > len(l.places[b].held)-l.places[b].lo
}
