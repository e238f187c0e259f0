package catalog

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

func set(nodes ...string) map[string]bool {
	s := map[string]bool{}
	for _, n := range nodes {
		s[n] = true
	}
	return s
}

// cluster is a map of n nodes n0000, n0001, … with shards of three copies, or fewer.
func cluster(t *testing.T, n, shards, replication int) *Map {
	t.Helper()
	return newSimulation(t, makeNodes(n, oneZone), shards, replication).w.published()
}

func (p Plan) reasons() map[Reason]int {
	n := map[Reason]int{}
	for _, s := range p.Steps {
		n[s.Reason]++
	}
	return n
}

func TestASmallClusterKeepsAnOddNumberOfCopies(t *testing.T) {
	for nodes, want := range map[int][]int{1: {1, 1, 1, 1}, 2: {1, 2, 1, 1}, 3: {1, 2, 3, 3}, 4: {1, 2, 3, 3}, 5: {1, 2, 3, 5}} {
		for i, replication := range []int{1, 2, 3, 5} {
			m := cluster(t, nodes, 8, replication)
			for _, s := range append(m.Shards, m.Catalog) {
				if len(s.Replicas) != want[i] {
					t.Errorf("%d nodes, replication %d: %d copies, want %d", nodes, replication, len(s.Replicas), want[i])
				}
			}
		}
	}
}

// The cluster of a newcomer grows from one node to three.
func TestCopiesAreMadeOnceThereIsRoom(t *testing.T) {
	s := newSimulation(t, makeNodes(1, oneZone), 4, 3)
	more := makeNodes(3, oneZone)
	s.add(more[1])
	s.settle()
	if n := s.moves[ForCopies]; n != 0 {
		t.Errorf("a second node: %d copies are made; two voters need both nodes", n)
	}
	s.add(more[2])
	if n := s.settle(); n != 10 && s.moves[ForCopies] != 10 {
		t.Errorf("a third node: %d moves, %v", n, s.moves)
	}
	for _, sh := range append(s.w.m.Shards, s.w.m.Catalog) {
		if len(sh.Replicas) != 3 {
			t.Errorf("shard %d has %d copies", sh.ID, len(sh.Replicas))
		}
	}
}

// A node that fails is no reason to keep fewer copies.
func TestACopyThatHasNoOtherPlaceStays(t *testing.T) {
	m := cluster(t, 3, 8, 3)
	plan := MakePlan(m, Situation{Dead: set("n0001")})
	if len(plan.Steps) != 0 || len(plan.Stuck) != 9 || !strings.Contains(plan.Stuck[0].Why, "Add a storage node") {
		t.Errorf("%+v", plan)
	}
}

func TestAwayIsNotDead(t *testing.T) {
	m := cluster(t, 5, 64, 3)
	if plan := MakePlan(m, Situation{Away: set("n0001")}); len(plan.Steps) != 0 || len(plan.Stuck) != 0 {
		t.Errorf("%+v", plan)
	}
	// Nothing goes to it, and shards with a copy there are not moved for balance.
	skewed := scatter(rand.New(rand.NewSource(5)), makeNodes(8, oneZone), 100, 3)
	for _, away := range []string{"n0000", "n0003", "n0007"} {
		all, some := Rebalance(skewed, Situation{}), Rebalance(skewed, Situation{Away: set(away)})
		for _, s := range some.Steps {
			if s.To == away || s.From == away || skewed.Shard(s.Shard).On(away) >= 0 {
				t.Errorf("%+v", s)
			}
		}
		if len(copiesOn(skewed, away)) < 5 || len(all.Steps) == 0 || len(some.Steps) == 0 {
			t.Error("nothing was tried")
		}
	}
}

// zoned is a map of four nodes in zone a, one in b and one in c, with shards of three
// copies, all of them in a.
func zoned(t *testing.T) *Map {
	t.Helper()
	nodes := makeNodes(6, func(i int) string { return "aaaabc"[i : i+1] })
	m := scatter(rand.New(rand.NewSource(7)), nodes[:4], 30, 3)
	m.Nodes = nodes
	return m
}

func TestZonesWaitForNodesThatDoNotAnswer(t *testing.T) {
	m := zoned(t)
	if n := MakePlan(m, Situation{}).reasons()[ForZones]; n != 2*31 {
		t.Errorf("%d moves to spread two copies of 31 shards over zones", n)
	}
	if n := MakePlan(m, Situation{Away: set("n0004")}).reasons()[ForZones]; n != 31 {
		t.Errorf("%d moves to spread one copy of 31 shards over zones", n)
	}
	steps := MakePlan(m, Situation{Away: set("n0001")}).Steps
	if len(steps) == 0 {
		t.Error("nothing was tried")
	}
	for _, s := range steps {
		if m.Shard(s.Shard).On("n0001") >= 0 {
			t.Errorf("a shard with a copy on a node that does not answer moves: %+v", s)
		}
	}
}

func TestTheCopyThatDoesNotAnswerIsGivenUpFirst(t *testing.T) {
	m := *cluster(t, 5, 64, 5)
	m.Replication = 4
	for _, away := range []string{"n0000", "n0001", "n0002", "n0003", "n0004"} {
		sit := Situation{Away: set(away)}
		plan := MakePlan(&m, sit)
		steps := plan.Steps
		if n := len(Startable(&m, plan, sit, Limits{PerNode: 1})); n != len(steps) {
			t.Errorf("%d of %d begin: to give up a copy costs no node anything", n, len(steps))
		}
		for _, s := range steps {
			if s.Reason != ForFewer || s.From != away {
				t.Errorf("%s is away: %+v", away, s)
			}
		}
		if len(steps) != 65 {
			t.Errorf("%d steps", len(steps))
		}
	}
}

func TestALostQuorumIsSaidAndLeftAlone(t *testing.T) {
	m := cluster(t, 9, 60, 3)
	sit := Situation{Dead: set("n0001", "n0002"), Away: set()}
	lost := map[uint32]bool{}
	for _, s := range m.Shards {
		if s.On("n0001") >= 0 && s.On("n0002") >= 0 {
			lost[s.ID] = true
		}
	}
	plan := MakePlan(m, sit)
	if len(lost) == 0 || len(plan.Stuck) != len(lost) || len(plan.Steps) == 0 {
		t.Fatalf("%d lost, %d stuck, %d steps", len(lost), len(plan.Stuck), len(plan.Steps))
	}
	for _, s := range plan.Stuck {
		if !lost[s.Shard] || !strings.Contains(s.Why, "1 of its 3 copies") || !strings.Contains(s.Why, "n0001, n0002") ||
			!strings.Contains(s.Why, "1 of them back") {
			t.Errorf("%+v", s)
		}
	}
	for _, s := range plan.Steps {
		if lost[s.Shard] {
			t.Errorf("%+v", s)
		}
	}
}

// Shards that have fewer answering copies come first.
func TestTheMostEndangeredShardsComeFirst(t *testing.T) {
	s := newSimulation(t, makeNodes(20, oneZone), 200, 5)
	sit := Situation{Dead: set("n0003", "n0007")}
	steps := MakePlan(&s.w.m, sit).Steps
	last := 0
	for i, step := range steps {
		if step.Reason != ForDead {
			steps = steps[:i]
			break
		}
	}
	for _, step := range steps {
		live := answering(s.w.shard(step.Shard), sit)
		if live < last {
			t.Fatalf("a shard with %d copies comes after one with %d", live, last)
		}
		last = live
	}
	if last != 4 || answering(s.w.shard(steps[0].Shard), sit) != 3 {
		t.Error("no difference was tried")
	}
}

func TestAMoveToALostNodeIsCancelled(t *testing.T) {
	for name, lose := range map[string]func(s *simulation, node string){
		"dead":     func(s *simulation, node string) { s.sit.Dead[node] = true },
		"draining": func(s *simulation, node string) { s.edit(SetNodeState{ID: node, State: Draining}) },
	} {
		s := newSimulation(t, makeNodes(5, oneZone), 16, 3)
		sh := s.w.m.Shards[3]
		to := slices.IndexFunc(s.w.m.Nodes, func(n Node) bool { return sh.On(n.ID) < 0 })
		s.begin(Step{Shard: 3, From: sh.Replicas[1].Node, To: s.w.m.Nodes[to].ID, Reason: ForBalance})
		if plan := MakePlan(&s.w.m, s.sit); len(plan.Cancel) != 0 {
			t.Errorf("%s: %+v", name, plan.Cancel)
		}
		lose(s, s.w.m.Nodes[to].ID)
		plan := MakePlan(&s.w.m, s.sit)
		if !slices.Equal(plan.Cancel, []uint32{3}) || slices.ContainsFunc(plan.Steps, func(st Step) bool { return st.Shard == 3 }) {
			t.Errorf("%s: %+v", name, plan)
		}
		s.settle()
	}
}

func TestDrainAndReplaceConcernOneNode(t *testing.T) {
	m := cluster(t, 10, 128, 3)
	held := len(copiesOn(m, "n0004"))
	drain, replace := Drain(m, "n0004", Situation{}), Replace(m, "n0004", Situation{})
	for _, plan := range []Plan{drain, replace} {
		if len(plan.Steps) != held {
			t.Errorf("%d steps for %d copies", len(plan.Steps), held)
		}
		for _, s := range plan.Steps {
			if s.From != "n0004" || s.To == "" || s.To == "n0004" {
				t.Errorf("%+v", s)
			}
		}
	}
	if drain.Steps[0].Reason != ForDrain || replace.Steps[0].Reason != ForDead || m.Node("n0004").State != Active {
		t.Error("reasons, or the map was changed")
	}
	if Drain(m, "nobody", Situation{}).Steps != nil {
		t.Error("steps for nobody")
	}
}

// Draining a node that does not answer is how its copies are made elsewhere at once,
// before the delay after which it counts as dead.
func TestANodeThatDoesNotAnswerCanBeDrained(t *testing.T) {
	s := newSimulation(t, makeNodes(5, oneZone), 32, 3)
	s.sit.Away["n0002"] = true
	s.lead()
	if err := CheckDrain(&s.w.m, "n0002", s.sit); err != nil {
		t.Error(err)
	}
	held := len(copiesOn(&s.w.m, "n0002"))
	s.edit(SetNodeState{ID: "n0002", State: Draining})
	if n := s.settle(); n < held || len(copiesOn(&s.w.m, "n0002")) != 0 {
		t.Errorf("%d moves of %d copies, %d are left", n, held, len(copiesOn(&s.w.m, "n0002")))
	}
	s.edit(SetNodeState{ID: "n0002", State: Removed})
}

func TestADrainedCopyTooManyIsJustGivenUp(t *testing.T) {
	m := *cluster(t, 10, 128, 5)
	m.Replication = 3
	for _, s := range Drain(&m, "n0004", Situation{}).Steps {
		if s.To != "" {
			t.Errorf("%+v", s)
		}
	}
}

func TestStepsBeginWithinTheLimits(t *testing.T) {
	m := cluster(t, 10, 100, 3)
	sit := Situation{Leaders: PreferredLeaders(m, Situation{})}
	plan := Drain(m, "n0004", sit)
	for _, s := range plan.Steps { // it leads what it is to lose
		sit.Leaders[s.Shard] = "n0004"
	}
	for _, limits := range []Limits{{PerNode: 1}, {PerNode: 3}, {PerNode: 3, Total: 2}, {}} {
		begin := Startable(m, plan, sit, limits)
		load := map[string]int{}
		for _, s := range begin {
			load[s.To]++
			load[sit.Leaders[s.Shard]]++
		}
		for node, n := range load {
			if limits.PerNode > 0 && n > limits.PerNode {
				t.Errorf("%+v: %d moves on %s", limits, n, node)
			}
		}
		want := len(plan.Steps)
		if limits.PerNode > 0 {
			want = limits.PerNode
		}
		if limits.Total > 0 {
			want = min(want, limits.Total)
		}
		if len(begin) != want {
			t.Errorf("%+v: %d begin, want %d", limits, len(begin), want)
		}
	}
	// Moves under way count.
	w := newWorking(*m)
	for _, s := range Startable(m, plan, sit, Limits{PerNode: 1}) {
		if _, err := w.apply(AnyVersion, BeginMove{Shard: s.Shard, From: s.From, To: s.To}); err != nil {
			t.Fatal(err)
		}
	}
	if more := Startable(&w.m, plan, sit, Limits{PerNode: 1}); len(more) != 0 {
		t.Errorf("%+v", more)
	}
	if more := Startable(&w.m, plan, sit, Limits{Total: 1}); len(more) != 0 {
		t.Errorf("%+v", more)
	}
	if more := Startable(&w.m, plan, sit, Limits{}); len(more) != len(plan.Steps)-1 {
		t.Errorf("%d begin beside the one under way, %d steps", len(more), len(plan.Steps))
	}
	// The plan is older than the news that two nodes do not answer.
	for _, s := range Startable(m, plan, Situation{Away: set("n0001", "n0002")}, Limits{}) {
		if sh := m.Shard(s.Shard); sh.On("n0001") >= 0 && sh.On("n0002") >= 0 || s.To == "n0001" || s.To == "n0002" {
			t.Errorf("%+v begins", s)
		}
	}
}

func TestNoStepThatCostsTheQuorumBegins(t *testing.T) {
	three := &Shard{ID: 1, Replicas: []Replica{{Node: "a"}, {Node: "b"}, {Node: "c"}}}
	two := &Shard{ID: 1, Replicas: []Replica{{Node: "a"}, {Node: "b"}}}
	for i, c := range []struct {
		shard *Shard
		step  Step
		away  []string
		want  bool
	}{
		{three, Step{From: "a", To: "d"}, nil, true},
		{three, Step{From: "a", To: "d"}, []string{"a"}, true},
		{three, Step{From: "a", To: "d"}, []string{"b"}, true},
		{three, Step{From: "a", To: "d"}, []string{"d"}, false},
		{three, Step{From: "a", To: "d"}, []string{"a", "b"}, false},
		{three, Step{From: "a"}, nil, true},
		{three, Step{From: "a"}, []string{"a"}, true},
		{three, Step{From: "a"}, []string{"b"}, false},
		{three, Step{To: "d"}, []string{"b"}, true},
		{two, Step{From: "a"}, nil, true},
		{two, Step{From: "a"}, []string{"a"}, false}, // there is no quorum to remove it with
		{two, Step{To: "d"}, []string{"a"}, false},
		{two, Step{From: "a", To: "d"}, nil, true},
	} {
		if got := keepsQuorum(c.shard, c.step, Situation{Away: set(c.away...)}); got != c.want {
			t.Errorf("%d: %+v", i, c)
		}
	}
}

func TestDrainIsRefusedWhereItCannotEnd(t *testing.T) {
	three, four := cluster(t, 3, 8, 3), cluster(t, 4, 8, 3)
	removed := *four
	removed.Nodes = slices.Clone(four.Nodes)
	removed.Nodes[0].State = Removed
	for i, c := range []struct {
		m    *Map
		node string
		sit  Situation
		is   error
		want []string
	}{
		{m: four, node: "n0001"},
		{m: four, node: "n0001", sit: Situation{Away: set("n0002")}},
		{four, "nobody", Situation{}, ErrUnknown, []string{"liana cluster status"}},
		{&removed, "n0000", Situation{}, ErrRemoved, nil},
		{three, "n0001", Situation{}, ErrRefused, []string{"3 copies", "2 other active storage nodes", "Add a storage node first", "replication to 1"}},
		{four, "n0001", Situation{Dead: set("n0002")}, ErrRefused, []string{"2 other active"}},
		{four, "n0001", Situation{Away: set("n0002", "n0003")}, ErrRefused, []string{"needs 2 to elect", "n0002, n0003", "back"}},
	} {
		mustRefuse(t, i, CheckDrain(c.m, c.node, c.sit), c.is, c.want)
	}
}

func mustRefuse(t *testing.T, i int, err, is error, words []string) {
	t.Helper()
	if is == nil && err != nil || is != nil && !errors.Is(err, is) {
		t.Errorf("%d: %v, want %v", i, err, is)
		return
	}
	for _, w := range words {
		if !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("%d: %v: want %q", i, err, w)
		}
	}
}

func TestRemovalIsRefusedWhereItCostsAQuorum(t *testing.T) {
	three, four := cluster(t, 3, 8, 3), cluster(t, 4, 8, 3)
	one := cluster(t, 2, 8, 1)
	empty := *four
	empty.Nodes = append(slices.Clone(four.Nodes), Node{ID: "x", Storage: true, State: Active, Level: 2, Changed: 1})
	for i, c := range []struct {
		m    *Map
		node string
		sit  Situation
		is   error
		want []string
	}{
		{m: &empty, node: "x"},
		{m: &empty, node: "x", sit: Situation{Dead: set("n0001", "n0002")}},
		{m: four, node: "n0001", sit: Situation{Dead: set("n0001")}},
		{four, "nobody", Situation{}, ErrUnknown, nil},
		{four, "n0001", Situation{}, ErrRefused, []string{"Drain it first: `liana cluster drain n0001`", "and"}},
		{three, "n0001", Situation{Away: set("n0001")}, ErrRefused, []string{"Add a storage node first"}},
		{four, "n0001", Situation{Dead: set("n0001"), Away: set("n0002")}, ErrRefused, []string{"needs 2 to elect", "n0001, n0002", "1 of them back"}},
		{one, "n0001", Situation{Dead: set("n0001")}, ErrRefused, []string{"0 of its 1 copies", "Bring it back", "backup"}},
	} {
		mustRefuse(t, i, CheckRemoval(c.m, c.node, c.sit), c.is, c.want)
	}
}

func TestLeadersAreSpreadWithFewHandovers(t *testing.T) {
	for seed := range int64(60) {
		rng := rand.New(rand.NewSource(seed))
		m := cluster(t, 3+rng.Intn(20), 1+rng.Intn(300), 3)
		sit := Situation{Leaders: map[uint32]string{}}
		now := map[string]int{}
		for _, s := range m.Shards {
			sit.Leaders[s.ID] = s.Replicas[rng.Intn(3)].Node
			now[sit.Leaders[s.ID]]++
		}
		sit.Leaders[1<<20] = "n0001" // of a shard that is not there
		chosen := PreferredLeaders(m, sit)
		lo, hi := band(len(m.Shards), len(m.Nodes))
		load, changed := map[string]int{}, 0
		for _, s := range m.Shards {
			if s.On(chosen[s.ID]) < 0 {
				t.Fatalf("seed %d: shard %d is to be led by %q", seed, s.ID, chosen[s.ID])
			}
			load[chosen[s.ID]]++
			if chosen[s.ID] != sit.Leaders[s.ID] {
				changed++
			}
		}
		above, missing := 0, 0
		for _, n := range m.Nodes {
			above, missing = above+max(0, now[n.ID]-hi), missing+max(0, lo-now[n.ID])
		}
		for _, n := range m.Nodes {
			if load[n.ID] > hi || load[n.ID] < lo {
				t.Errorf("seed %d: node %s leads %d, should %d to %d", seed, n.ID, load[n.ID], lo, hi)
			}
		}
		if least := max(above, missing); changed > 2*least {
			t.Errorf("seed %d: %d handovers, %d at least", seed, changed, least)
		}
	}
}

func TestLeadersAreWhereTheyCanStay(t *testing.T) {
	m := cluster(t, 6, 60, 3)
	draining := *m
	draining.Nodes = slices.Clone(m.Nodes)
	draining.Nodes[3].State = Draining
	draining.Shards = slices.Clone(m.Shards)
	leaving := draining.Shards[7].Replicas[0].Node
	draining.Shards[7].Moving = &Move{From: leaving}
	chosen := PreferredLeaders(&draining, Situation{Away: set("n0001"), Dead: set("n0002")})
	for id, node := range chosen {
		if node == "n0001" || node == "n0002" || node == "n0003" {
			t.Errorf("shard %d is to be led by %s", id, node)
		}
	}
	if chosen[7] == leaving {
		t.Errorf("shard 7 is to be led by the copy that goes")
	}
	gone := PreferredLeaders(m, Situation{Away: set("n0000", "n0001", "n0002")})
	for _, s := range m.Shards {
		_, has := gone[s.ID]
		if live := answering(&s, Situation{Away: set("n0000", "n0001", "n0002")}); has != (live > 0) {
			t.Errorf("shard %d has %d answering copies, and a leader: %v", s.ID, live, has)
		}
	}
	if len(PreferredLeaders(&Map{}, Situation{})) != 0 {
		t.Error("leaders of nothing")
	}
}

// The first copy of a shard founds its group and so leads it at first.
func TestFoundersAreSpread(t *testing.T) {
	for _, nodes := range []int{3, 7, 100} {
		m := cluster(t, nodes, 500, 3)
		load := map[string]int{}
		for _, s := range m.Shards {
			load[s.Replicas[0].Node]++
		}
		lo, hi := band(500, nodes)
		for _, n := range m.Nodes {
			if load[n.ID] < lo || load[n.ID] > hi {
				t.Errorf("node %s founds %d shards, should %d to %d", n.ID, load[n.ID], lo, hi)
			}
		}
	}
}

func TestPlaceRefusesNonsense(t *testing.T) {
	nodes := makeNodes(3, oneZone)
	for _, c := range []struct{ shards, replication int }{{0, 3}, {4097, 3}, {1, 0}, {1, 8}} {
		if _, _, err := Place(nodes, c.shards, c.replication); err == nil {
			t.Errorf("%+v", c)
		}
	}
	nodes[0].Storage, nodes[1].State, nodes[2].State = false, Draining, Removed
	if _, _, err := Place(nodes, 4, 3); err == nil {
		t.Error("placed on nothing")
	}
}

// The copies of a node's shards lie on many nodes, so that many help to replace it.
func TestCopiesAreScattered(t *testing.T) {
	m := cluster(t, 100, 4096, 3)
	for _, n := range m.Nodes {
		others := map[string]bool{}
		for _, s := range copiesOn(m, n.ID) {
			for _, r := range s.Replicas {
				others[r.Node] = true
			}
		}
		if len(others) < 80 {
			t.Errorf("node %s shares shards with %d nodes", n.ID, len(others))
		}
	}
}
