package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// Limits bounds the moves that are under way at once. Zero means no bound.
type Limits struct {
	// PerNode bounds the moves that one node takes part in: as the one that gains a
	// copy, or leads the shard and so sends it. To lose a copy costs nothing, so a dead
	// or draining node does not hold up its own replacement. 2 keeps one copying while
	// another is being promoted.
	PerNode int
	// Total bounds those of the cluster.
	Total int
}

// Startable returns the steps of a plan that may begin now: one a shard, within the
// limits, and none that would leave a shard without a quorum of answering copies at
// any moment, while it has one copy more or after.
func Startable(m *Map, plan Plan, sit Situation, limits Limits) []Step {
	shards := make(map[uint32]*Shard, len(m.Shards)+1)
	shards[CatalogShard] = &m.Catalog
	for i := range m.Shards {
		shards[m.Shards[i].ID] = &m.Shards[i]
	}
	total, load := 0, make(map[string]int)
	take := func(s *Shard, to string) {
		total++
		for _, node := range parties(s, to, sit) {
			load[node]++
		}
	}
	for _, s := range shards { // any order: sums
		if s.Moving != nil {
			take(s, s.Moving.To)
		}
	}
	var begin []Step
	begun := make(map[uint32]bool)
	for _, step := range plan.Steps {
		s := shards[step.Shard]
		if s == nil || s.Moving != nil || begun[s.ID] || !keepsQuorum(s, step, sit) {
			continue
		}
		full := limits.Total > 0 && total >= limits.Total
		for _, node := range parties(s, step.To, sit) {
			full = full || limits.PerNode > 0 && load[node] >= limits.PerNode
		}
		// A step that must wait keeps its shard: a later one was planned on top of it.
		begun[s.ID] = true
		if !full {
			take(s, step.To)
			begin = append(begin, step)
		}
	}
	return begin
}

// parties are the nodes that a move to a node costs something: that one, and the leader
// who sends the copy. Where the leader is not known, the first copy stands for it. A move
// that only gives up a copy costs nothing.
func parties(s *Shard, to string, sit Situation) []string {
	if to == "" {
		return nil
	}
	leader, known := sit.Leaders[s.ID]
	if !known && len(s.Replicas) > 0 {
		leader = s.Replicas[0].Node
	}
	return []string{to, leader} // never the same: to has no copy yet
}

// keepsQuorum reports whether a shard has a quorum throughout a move: now, with the
// new copy beside the old ones, and without the one that goes.
func keepsQuorum(s *Shard, step Step, sit Situation) bool {
	n, live := len(s.Replicas), answering(s, sit)
	if live < quorum(n) {
		return false
	}
	if step.To != "" {
		if !sit.answers(step.To) {
			return false
		}
		n, live = n+1, live+1 // a quorum again: it grows by one at most
	}
	if step.From != "" {
		n--
		if sit.answers(step.From) {
			live--
		}
	}
	return n > 0 && live >= quorum(n)
}

func answering(s *Shard, sit Situation) int {
	n := 0
	for _, r := range s.Replicas {
		if sit.answers(r.Node) {
			n++
		}
	}
	return n
}

// CheckDrain returns nil where a node can be emptied, else an error (ErrRefused,
// ErrUnknown or ErrRemoved) that says why not and what to do. Draining never costs a
// shard copies: who wants fewer says so first.
func CheckDrain(m *Map, node string, sit Situation) error {
	n := m.Node(node)
	switch {
	case n == nil:
		return fmt.Errorf("%w: node %q: `liana cluster status` lists the nodes", ErrUnknown, node)
	case n.State == Removed:
		return fmt.Errorf("%w: %s: there is nothing to drain", ErrRemoved, node)
	}
	if err := checkRoom(m, node, sit, "drained"); err != nil {
		return err
	}
	return checkQuorums(m, node, sit, false)
}

// CheckRemoval returns nil where a node may be given up: it holds nothing, or it does
// not answer and every shard has its quorum without it, and another node for its copy.
// Else it returns an error as CheckDrain does. Nodes that answer are drained first:
// they can hand over what they hold.
func CheckRemoval(m *Map, node string, sit Situation) error {
	n := m.Node(node)
	switch {
	case n == nil:
		return fmt.Errorf("%w: node %q: `liana cluster status` lists the nodes", ErrUnknown, node)
	case n.State == Removed:
		return fmt.Errorf("%w: %s was removed before", ErrRemoved, node)
	}
	held := copiesOn(m, node)
	if len(held) == 0 {
		return nil
	}
	if sit.answers(node) {
		return fmt.Errorf("%w: node %s answers and holds copies of %s. Drain it first: `liana cluster drain %s`, wait until "+
			"`liana cluster status` shows no copies on it, then `liana cluster remove-node %s`", ErrRefused, node, namesOf(held), node, node)
	}
	if err := checkQuorums(m, node, sit, true); err != nil {
		return err
	}
	return checkRoom(m, node, sit, "removed")
}

// copiesOn returns the shards that have a copy on a node, or are about to.
func copiesOn(m *Map, node string) []*Shard {
	var held []*Shard
	for i := range m.Shards {
		if s := &m.Shards[i]; s.On(node) >= 0 || s.Moving != nil && s.Moving.To == node {
			held = append(held, s)
		}
	}
	if s := &m.Catalog; s.On(node) >= 0 || s.Moving != nil && s.Moving.To == node {
		held = append(held, s)
	}
	return held
}

// checkRoom refuses what would leave too few nodes for the copies that shards have.
func checkRoom(m *Map, node string, sit Situation, what string) error {
	homes := 0
	for _, n := range m.Nodes {
		if n.ID != node && n.Storage && n.State == Active && !sit.Dead[n.ID] {
			homes++
		}
	}
	copies := 0
	for _, s := range copiesOn(m, node) {
		copies = max(copies, min(len(s.Replicas), m.Replication))
	}
	if homes >= copies {
		return nil
	}
	return fmt.Errorf("%w: node %s cannot be %s: its shards have %d copies, each on a node of its own, and %d other active storage "+
		"nodes would be left. Add a storage node first, or lower the replication to %d",
		ErrRefused, node, what, copies, homes, max(1, homes-(homes+1)%2))
}

// checkQuorums refuses what needs a quorum that a shard on the node has not, or, where
// the node is given up, would not have without it.
func checkQuorums(m *Map, node string, sit Situation, givenUp bool) error {
	var lost []*Shard
	for _, s := range copiesOn(m, node) {
		live := answering(s, sit)
		if givenUp && s.On(node) >= 0 && sit.answers(node) {
			live--
		}
		if live < quorum(len(s.Replicas)) {
			lost = append(lost, s)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	what := "drained"
	if givenUp {
		what = "removed"
	}
	return fmt.Errorf("%w: node %s cannot be %s: %s", ErrRefused, node, what, lostQuorum(lost[0], sit)+others(len(lost)-1))
}

func others(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (and so for %d more)", n)
}

// lostQuorum says that a shard has lost its quorum and how it comes back.
func lostQuorum(s *Shard, sit Situation) string {
	var away []string
	for _, r := range s.Replicas {
		if !sit.answers(r.Node) {
			away = append(away, r.Node)
		}
	}
	slices.Sort(away)
	n, live := len(s.Replicas), answering(s, sit)
	back := "it"
	if need := quorum(n) - live; len(away) > 1 {
		back = fmt.Sprintf("%d of them", need)
	}
	return fmt.Sprintf("%s has %d of its %d copies on nodes that answer and needs %d to elect a leader, so nothing can move. "+
		"Nodes that do not answer: %s. Bring %s back with the data directory as it was (the address may change); the shard then "+
		"goes on by itself. Where the data directories are lost for good, the shard's data must come from a backup",
		shardName(s.ID), live, n, quorum(n), strings.Join(away, ", "), back)
}

// namesOf names a few shards.
func namesOf(shards []*Shard) string {
	const most = 3
	var names []string
	for _, s := range shards[:min(most, len(shards))] {
		names = append(names, shardName(s.ID))
	}
	text := strings.Join(names, ", ")
	if more := len(shards) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
