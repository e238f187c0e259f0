package cluster

import (
	"cmp"
	"slices"
)

// The catalog says on which nodes the replicas of a shard are wanted, the
// configuration of its Raft group says where they are (RULES F4). Reconciling is to
// compare the two and to make the one next change; it begins from what is seen, so it
// goes on after any crash of any node, and making a change twice does no harm.

// member is a member of a shard's group, as its leader tells.
type member struct {
	replica, node string
	voter         bool
	lag           uint64 // entries that the leader has and it has not
	failed        bool   // it has stopped on its node
}

// seenShard is a shard as its leader shows it.
type seenShard struct {
	id      uint32
	leader  string // node; "": none is known
	term    uint64
	members []member
}

// change is what to do next about a shard.
type change struct {
	kind    changeKind
	shard   uint32
	node    string // whose replica it is about
	replica string
}

type changeKind uint8

const (
	nothing  changeKind = iota
	wait                // a replica is catching up
	addTo               // make a replica on node, and add it as a learner
	promote             // make the learner a voter
	handOver            // give the leadership to replica
	removeOf            // remove the replica from the group
	stuck               // a change is wanted, and would cost the quorum
)

// promoteLag is how many entries a learner may be behind when it becomes a voter.
const promoteLag = 1000

// next returns the one next change of a shard towards the nodes where replicas are
// wanted. alive tells of each node whether it answers.
func next(s seenShard, want []string, alive func(node string) bool) change {
	if s.leader == "" {
		return change{kind: nothing, shard: s.id}
	}
	if c, ok := s.addMissing(want, alive); ok {
		return c
	}
	return s.removeSurplus(want, alive)
}

// addMissing brings a wanted node without a voter one step on: the one that has a
// learner already before any other.
func (s seenShard) addMissing(want []string, alive func(string) bool) (change, bool) {
	missing, waiting := "", false
	for _, node := range want {
		m, ok := s.on(node)
		switch {
		case ok && m.voter:
		case !alive(node):
			waiting = true // its turn comes when it is back, or it is replaced
		case ok && m.lag <= promoteLag && !m.failed:
			return change{kind: promote, shard: s.id, node: node, replica: m.replica}, true
		case ok:
			return change{kind: wait, shard: s.id, node: node, replica: m.replica}, true
		case missing == "":
			missing = node
		}
	}
	if missing != "" {
		return change{kind: addTo, shard: s.id, node: missing}, true
	}
	return change{kind: wait, shard: s.id}, waiting
}

// removeSurplus takes a member off a node where none is wanted: those first whose
// nodes do not answer, the leader last.
func (s seenShard) removeSurplus(want []string, alive func(string) bool) change {
	var surplus []member
	for _, m := range s.members {
		if !slices.Contains(want, m.node) || s.outdated(m) {
			surplus = append(surplus, m)
		}
	}
	if len(surplus) == 0 {
		return change{kind: nothing, shard: s.id}
	}
	slices.SortStableFunc(surplus, func(a, b member) int {
		return cmp.Compare(s.reluctance(a, alive), s.reluctance(b, alive))
	})
	m := surplus[0]
	if m.node == s.leader {
		for _, to := range s.members {
			if to.voter && to.node != s.leader && slices.Contains(want, to.node) && alive(to.node) && !to.failed {
				return change{kind: handOver, shard: s.id, node: to.node, replica: to.replica}
			}
		}
		return change{kind: stuck, shard: s.id, node: m.node, replica: m.replica}
	}
	if m.voter && !s.quorumWithout(m.replica, alive) {
		return change{kind: stuck, shard: s.id, node: m.node, replica: m.replica}
	}
	return change{kind: removeOf, shard: s.id, node: m.node, replica: m.replica}
}

func (s seenShard) reluctance(m member, alive func(string) bool) int {
	switch {
	case !m.voter:
		return 0
	case !alive(m.node) || m.failed:
		return 1
	case m.node != s.leader:
		return 2
	}
	return 3
}

// on returns the member of a node: the voter where it has an outdated learner too.
func (s seenShard) on(node string) (found member, ok bool) {
	for _, m := range s.members {
		if m.node == node && (!ok || m.voter) {
			found, ok = m, true
		}
	}
	return found, ok
}

// outdated reports whether m is a learner beside a voter on its node.
func (s seenShard) outdated(m member) bool {
	v, _ := s.on(m.node)
	return v.replica != m.replica
}

// quorumWithout reports whether the voters that answer are a majority of the group
// without one of them.
func (s seenShard) quorumWithout(replica string, alive func(string) bool) bool {
	voters, answer := 0, 0
	for _, m := range s.members {
		if !m.voter || m.replica == replica {
			continue
		}
		voters++
		if alive(m.node) && !m.failed {
			answer++
		}
	}
	return voters > 0 && answer > voters/2
}
