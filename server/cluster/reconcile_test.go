package cluster

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

func voter(node string) member { return member{replica: node + "-1", node: node, voter: true} }

func TestNextChange(t *testing.T) {
	all := func(string) bool { return true }
	without := func(dead ...string) func(string) bool {
		return func(n string) bool { return !slices.Contains(dead, n) }
	}
	behind := member{replica: "c-1", node: "c", lag: promoteLag + 1}
	failed := func(m member) member {
		m.failed = true
		return m
	}
	caughtUp := member{replica: "c-1", node: "c", lag: promoteLag}
	for _, c := range []struct {
		name    string
		leader  string
		members []member
		want    []string
		alive   func(string) bool
		kind    changeKind
		node    string
	}{
		{"as wanted", "a", []member{voter("a")}, []string{"a"}, all, nothing, ""},
		{"no leader", "", []member{voter("a")}, []string{"a", "b"}, all, nothing, ""},
		{"grow", "a", []member{voter("a")}, []string{"a", "b"}, all, addTo, "b"},
		{"catching up", "a", []member{voter("a"), behind}, []string{"a", "c"}, all, wait, "c"},
		{"caught up", "a", []member{voter("a"), caughtUp}, []string{"a", "c"}, all, promote, "c"},
		{"a wanted node is away", "a", []member{voter("a")}, []string{"a", "b"}, without("b"), wait, ""},
		{"another is not held up by it", "a", []member{voter("a")}, []string{"a", "b", "c"}, without("b"), addTo, "c"},
		{"move: the new one first", "a", []member{voter("a"), voter("b"), voter("c")}, []string{"b", "c", "d"}, all, addTo, "d"},
		{"move: the old one then", "b", []member{voter("a"), voter("b"), voter("c"), voter("d")}, []string{"b", "c", "d"}, all, removeOf, "a"},
		{"the leader hands over first", "a", []member{voter("a"), voter("b"), voter("c"), voter("d")}, []string{"b", "c", "d"}, all, handOver, "b"},
		{"to one that answers", "a", []member{voter("a"), voter("b"), voter("c"), voter("d")}, []string{"b", "c", "d"}, without("b"), handOver, "c"},
		{"the dead first", "a", []member{voter("a"), voter("b"), voter("c"), voter("d")}, []string{"c", "d"}, without("b"), removeOf, "b"},
		{"not at the price of the quorum", "b", []member{voter("a"), voter("b"), voter("c")}, []string{"b", "c"}, without("c"), stuck, "a"},
		{"a learner that has stopped is not promoted", "a", []member{voter("a"), failed(caughtUp)}, []string{"a", "c"}, all, wait, "c"},
		{"to one that has not stopped", "a", []member{voter("a"), failed(voter("b")), voter("c"), voter("d")}, []string{"b", "c", "d"}, all, handOver, "c"},
		{"those that have stopped first", "a", []member{voter("a"), voter("b"), failed(voter("c")), voter("d")}, []string{"a", "d"}, all, removeOf, "c"},
		{"not at the price of the quorum of those that have not stopped", "b", []member{voter("a"), voter("b"), failed(voter("c"))}, []string{"b", "c"}, all, stuck, "a"},
		{"a learner goes at once", "a", []member{voter("a"), behind}, []string{"a"}, all, removeOf, "c"},
		{"a learner beside a voter", "a", []member{voter("a"), voter("c"), {replica: "c-0", node: "c", lag: 9}}, []string{"a", "c"}, all, removeOf, "c"},
	} {
		got := next(seenShard{id: 7, leader: c.leader, members: c.members}, c.want, c.alive)
		if got.kind != c.kind || got.node != c.node || got.shard != 7 {
			t.Errorf("%s: %+v, want kind %d on %q", c.name, got, c.kind, c.node)
		}
	}
}

// From any members to any wanted nodes, with nodes that come and go: the changes end
// where they should, never leave a group without a quorum of nodes that answer, and
// never have more than one learner in the making.
func TestChangesArriveAndKeepTheQuorum(t *testing.T) {
	for seed := range int64(300) {
		rng := rand.New(rand.NewSource(seed))
		nodes := []string{"a", "b", "c", "d", "e", "f"}
		pick := func() []string {
			rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
			return slices.Clone(nodes[:3])
		}
		s := seenShard{id: 1}
		for _, n := range pick() {
			s.members = append(s.members, voter(n))
		}
		s.leader = s.members[0].node
		want := pick()
		dead := map[string]bool{}
		alive := func(n string) bool { return !dead[n] }
		for step := 0; ; step++ {
			if step > 200 {
				t.Fatalf("seed %d: %v does not become %v: %+v", seed, s.members, want, next(s, want, alive))
			}
			if step < 20 && rng.Intn(4) == 0 {
				clear(dead)
				n := nodes[rng.Intn(len(nodes))]
				dead[n] = n != s.leader
			} else if step >= 20 {
				clear(dead)
			}
			c := next(s, want, alive)
			if c.kind == nothing {
				break
			}
			s.apply(t, c, alive, seed)
		}
		got := []string{}
		for _, m := range s.members {
			got = append(got, m.node)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

// apply does to the model what a change does to a group.
func (s *seenShard) apply(t *testing.T, c change, alive func(string) bool, seed int64) {
	t.Helper()
	at := slices.IndexFunc(s.members, func(m member) bool { return m.replica == c.replica })
	switch c.kind {
	case addTo:
		for _, m := range s.members {
			if !m.voter && alive(m.node) {
				t.Fatalf("seed %d: a second learner: %+v", seed, s.members)
			}
		}
		s.members = append(s.members, member{replica: fmt.Sprintf("%s-%d", c.node, len(s.members)), node: c.node, lag: 3000})
	case wait:
		for i := range s.members {
			if alive(s.members[i].node) {
				s.members[i].lag /= 2
			}
		}
	case promote:
		s.members[at].voter = true
	case handOver:
		s.leader = c.node
	case removeOf:
		if s.members[at].voter && !s.quorumWithout(c.replica, alive) {
			t.Fatalf("seed %d: removing %s leaves no quorum: %+v", seed, c.replica, s.members)
		}
		s.members = slices.Delete(s.members, at, at+1)
	}
}
