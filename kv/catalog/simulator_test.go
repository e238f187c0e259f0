package catalog

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"
)

// simulation is a cluster without data: its map is edited by the commands that a
// cluster would propose, moves take some rounds, and after every round what must
// never be otherwise is checked.
type simulation struct {
	t      testing.TB
	w      *working
	sit    Situation
	limits Limits
	rng    *rand.Rand

	since  map[uint32]int // round in which a move began
	rounds int
	moves  map[Reason]int
	peak   int // most moves at once on one node
	number uint64
	reason map[uint32]Reason
	slow   time.Duration // longest plan
}

// moveRounds is how many rounds a move takes.
const moveRounds = 2

func newSimulation(t testing.TB, nodes []Node, shards, replication int) *simulation {
	t.Helper()
	spread, own, err := Place(nodes, shards, replication)
	if err != nil {
		t.Fatal(err)
	}
	m, err := FirstMap(Map{
		ClusterID: "simulated", Replication: replication, Nodes: nodes, Shards: spread, Catalog: Shard{Replicas: own},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{
		t: t, w: newWorking(*m), limits: Limits{PerNode: 2}, rng: rand.New(rand.NewSource(1)),
		sit:   Situation{Away: map[string]bool{}, Dead: map[string]bool{}, Leaders: map[uint32]string{}},
		since: map[uint32]int{}, moves: map[Reason]int{}, reason: map[uint32]Reason{},
	}
	s.lead()
	return s
}

func makeNodes(n int, zone func(i int) string) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{ID: fmt.Sprintf("n%04d", i), Storage: true, State: Active, Zone: zone(i), Level: 2, Changed: 1}
	}
	return nodes
}

func oneZone(int) string { return "" }

func zonesOf(n int) func(int) string { return func(i int) string { return fmt.Sprint("z", i%n) } }

func (s *simulation) edit(e Edit) {
	s.t.Helper()
	if _, err := s.w.apply(AnyVersion, e); err != nil {
		s.t.Fatalf("round %d: %T %+v: %v", s.rounds, e, e, err)
	}
}

func (s *simulation) add(nodes ...Node) {
	for _, n := range nodes {
		s.edit(RegisterNode{ID: n.ID, Storage: true, Zone: n.Zone, Level: 2})
	}
}

// lead gives every shard the leader it should have, as far as the present one is gone
// or another is preferred.
func (s *simulation) lead() (changed int) {
	for id, node := range PreferredLeaders(&s.w.m, s.sit) {
		if old, had := s.sit.Leaders[id]; had && old != node {
			changed++
		}
		s.sit.Leaders[id] = node
	}
	return changed
}

// settle runs rounds until the planner has nothing to do, and returns the moves.
func (s *simulation) settle() int {
	s.t.Helper()
	clear(s.moves)
	s.rounds = 0
	for {
		s.finish()
		began := time.Now()
		plan := MakePlan(&s.w.m, s.sit)
		s.slow = max(s.slow, time.Since(began))
		for _, id := range plan.Cancel {
			delete(s.since, id)
			s.edit(CancelMove{Shard: id})
		}
		if len(plan.Steps) == 0 && len(s.since) == 0 {
			break
		}
		begin := Startable(&s.w.m, plan, s.sit, s.limits)
		for _, step := range begin {
			s.begin(step)
		}
		if len(s.since) == 0 {
			s.t.Fatalf("round %d: %d steps are planned and none can begin, first %+v", s.rounds, len(plan.Steps), plan.Steps[0])
		}
		s.check()
		if s.rounds++; s.rounds > 100_000 {
			s.t.Fatal("the plan never ends")
		}
	}
	total := 0
	for _, n := range s.moves {
		total += n
	}
	return total
}

func (s *simulation) begin(step Step) {
	s.moves[step.Reason]++
	s.reason[step.Shard] = step.Reason
	s.since[step.Shard] = s.rounds
	s.edit(BeginMove{Shard: step.Shard, From: step.From, To: step.To})
	if step.To != "" {
		s.number++
		s.edit(NameReplica{Shard: step.Shard, Node: step.To, ID: ReplicaID(step.To, s.number)})
	}
}

func (s *simulation) finish() {
	var done []uint32
	for id, round := range s.since {
		if s.rounds-round >= moveRounds {
			done = append(done, id)
		}
	}
	slices.Sort(done)
	for _, id := range done {
		gone := s.w.shard(id).Moving.From
		s.edit(FinishMove{Shard: id})
		delete(s.since, id)
		if s.sit.Leaders[id] == gone && gone != "" {
			delete(s.sit.Leaders, id) // Raft elects another
			s.sit.Leaders[id] = s.w.shard(id).Replicas[0].Node
		}
	}
}

// check is what holds at every moment.
func (s *simulation) check() {
	s.t.Helper()
	m := &s.w.m
	if s.rounds%8 == 0 { // it takes as long as a plan
		if err := m.Validate(); err != nil {
			s.t.Fatalf("round %d: %v", s.rounds, err)
		}
	}
	busy := map[string]int{}
	count := func(sh *Shard) {
		voters, live := 0, 0
		for _, r := range sh.Replicas {
			voters++
			if s.sit.answers(r.Node) {
				live++
			}
		}
		if v := sh.Moving; v != nil {
			if v.To != "" {
				busy[v.To]++
			}
			// With the new copy beside the old ones, and without the old one.
			with, liveWith := voters, live
			if v.To != "" {
				with, liveWith = with+1, liveWith+1
			}
			if liveWith*2 <= with {
				s.t.Fatalf("round %d: shard %d has no quorum with the new copy: %d of %d", s.rounds, sh.ID, liveWith, with)
			}
			if v.From != "" {
				voters, live = with-1, liveWith
				if s.sit.answers(v.From) {
					live--
				}
			}
		}
		if live*2 <= voters {
			s.t.Fatalf("round %d: shard %d has no quorum: %d of %d", s.rounds, sh.ID, live, voters)
		}
	}
	count(&m.Catalog)
	for i := range m.Shards {
		count(&m.Shards[i])
	}
	for node, n := range busy {
		s.peak = max(s.peak, n)
		if s.limits.PerNode > 0 && n > s.limits.PerNode {
			s.t.Fatalf("round %d: node %s takes part in %d moves", s.rounds, node, n)
		}
	}
}

// counts returns the copies of shards on each active node that is not dead.
func (s *simulation) counts() map[string]int { return copyCounts(&s.w.m, s.sit) }

func copyCounts(m *Map, sit Situation) map[string]int {
	c := map[string]int{}
	for _, n := range m.Nodes {
		if n.State == Active && n.Storage && !sit.Dead[n.ID] {
			c[n.ID] = 0
		}
	}
	for _, sh := range m.Shards {
		for _, r := range sh.Replicas {
			if _, ok := c[r.Node]; ok {
				c[r.Node]++
			}
		}
	}
	return c
}

// figures are the extremes of counts, the mean, and the furthest distance from it.
type figures struct {
	least, most int
	mean        float64
	off         float64 // as a share of the mean
}

func figuresOf(counts map[string]int) figures {
	f := figures{least: 1 << 30}
	sum := 0
	for _, n := range counts {
		f.least, f.most = min(f.least, n), max(f.most, n)
		sum += n
	}
	f.mean = float64(sum) / float64(len(counts))
	f.off = max(float64(f.most)-f.mean, f.mean-float64(f.least)) / f.mean
	return f
}

func (f figures) String() string {
	return fmt.Sprintf("%d to %d, mean %.2f, at most %.1f %% off", f.least, f.most, f.mean, 100*f.off)
}

// balanced reports whether counts are within 5 % of the mean, or the whole numbers
// around it where 5 % is less than one.
func (f figures) balanced() bool {
	low := min(float64(int(f.mean)), 0.95*f.mean)
	high := max(float64(int(f.mean)), 1.05*f.mean)
	if f.mean != float64(int(f.mean)) {
		high = max(float64(int(f.mean)+1), 1.05*f.mean)
	}
	return float64(f.least) >= low-1e-9 && float64(f.most) <= high+1e-9
}

func (s *simulation) leaders() figures {
	c := map[string]int{}
	for node := range s.counts() {
		c[node] = 0
	}
	for _, sh := range s.w.m.Shards {
		c[s.sit.Leaders[sh.ID]]++
	}
	return figuresOf(c)
}

// needed is the least number of moves that can do it: every copy of a node in gone must
// move, and from the present counts every node must come within lo to hi.
func needed(counts map[string]int, leaving int, lo, hi int) int {
	above, missing := leaving, 0
	for _, n := range counts {
		above += max(0, n-hi)
		missing += max(0, lo-n)
	}
	return max(above, missing)
}

func (s *simulation) report(what string, moves, least int) {
	s.t.Helper()
	transfers := s.lead()
	f, l := figuresOf(s.counts()), s.leaders()
	s.t.Logf("%-34s %5d moves (at least %5d), %3d rounds, copies %v; leaders %v, %d handed over", what, moves, least, s.rounds, f, l, transfers)
}

// The simulator: 1,000 nodes, 4,096 shards of three copies.
func TestAThousandNodesStayBalancedWithFewMoves(t *testing.T) {
	const nodes, shards, replication = 1000, 4096, 3
	all := makeNodes(nodes+100, oneZone)
	s := newSimulation(t, all[:nodes], shards, replication)
	s.report("founded", 0, 0)
	s.mustBeBalanced(0, 0)

	before := s.counts()
	s.add(all[nodes:]...)
	for _, n := range all[nodes:] {
		before[n.ID] = 0
	}
	s.mustSettle("100 nodes added", before, 0)

	before, leaving := s.counts(), 0
	for _, n := range all[200:250] {
		leaving += before[n.ID]
		delete(before, n.ID)
		s.edit(SetNodeState{ID: n.ID, State: Draining})
	}
	s.mustSettle("50 nodes drained", before, leaving)
	for _, n := range all[200:250] {
		s.edit(SetNodeState{ID: n.ID, State: Removed})
	}

	before, leaving = s.counts(), 0
	for _, n := range s.disjoint(12) {
		leaving += before[n]
		delete(before, n)
		s.sit.Dead[n] = true
	}
	s.mustSettle("12 nodes dead", before, leaving)
	if s.peak != s.limits.PerNode {
		t.Errorf("a node took part in %d moves at most, the limit was %d: was it tried?", s.peak, s.limits.PerNode)
	}
	t.Logf("longest plan: %v", s.slow)
}

// disjoint chooses nodes of which no shard has two copies.
func (s *simulation) disjoint(n int) []string {
	var chosen []string
	used := map[uint32]bool{}
	for _, i := range s.rng.Perm(len(s.w.m.Nodes)) {
		node := s.w.m.Nodes[i]
		held := copiesOn(&s.w.m, node.ID)
		if node.State != Active || slices.ContainsFunc(held, func(sh *Shard) bool { return used[sh.ID] }) {
			continue
		}
		for _, sh := range held {
			used[sh.ID] = true
		}
		if chosen = append(chosen, node.ID); len(chosen) == n {
			break
		}
	}
	return chosen
}

// mustSettle settles and holds the number of moves against the least possible.
func (s *simulation) mustSettle(what string, before map[string]int, leaving int) {
	s.t.Helper()
	lo, hi := band(len(s.w.m.Shards)*s.w.m.Replication, len(before))
	least := needed(before, leaving, lo, hi)
	moves := s.settle()
	s.report(what, moves, least)
	s.mustBeBalanced(moves, least)
}

func (s *simulation) mustBeBalanced(moves, least int) {
	s.t.Helper()
	if float64(moves) > 1.02*float64(least)+2 { // the catalog's own copies are not counted
		s.t.Errorf("%d moves, %d are enough", moves, least)
	}
	if f := figuresOf(s.counts()); !f.balanced() {
		s.t.Errorf("copies a node: %v", f)
	}
	if l := s.leaders(); !l.balanced() {
		s.t.Errorf("leaders a node: %v", l)
	}
}

// Where a node has more copies than twenty, five per cent is more than one of them.
func TestAHundredNodesStayWithinFivePercent(t *testing.T) {
	all := makeNodes(120, oneZone)
	s := newSimulation(t, all[:100], 4096, 3)
	s.limits.PerNode = 8
	s.mustBeBalanced(0, 0)
	before := s.counts()
	s.add(all[100:]...)
	for _, n := range all[100:] {
		before[n.ID] = 0
	}
	s.mustSettle("20 nodes added to 100", before, 0)
	before, leaving := s.counts(), 0
	for _, n := range all[:30] {
		leaving += before[n.ID]
		delete(before, n.ID)
		s.edit(SetNodeState{ID: n.ID, State: Draining})
	}
	s.mustSettle("30 nodes drained", before, leaving)
	for _, f := range []figures{figuresOf(s.counts()), s.leaders()} {
		if f.off > 0.05 {
			t.Errorf("%v", f)
		}
	}
}

// zoneCounts returns the greatest number of copies of one shard in one zone, and the
// copies in each zone.
func (s *simulation) zoneCounts() (most int, zones map[string]int) {
	zones = map[string]int{}
	for _, sh := range s.w.m.Shards {
		here := map[string]int{}
		for _, r := range sh.Replicas {
			z := s.w.m.Node(r.Node).Zone
			zones[z]++
			here[z]++
			most = max(most, here[z])
		}
	}
	return most, zones
}

func TestZonesHoldOneCopyOfEachShard(t *testing.T) {
	for _, c := range []struct {
		name string
		zone func(i int) string
	}{
		{"3 zones", zonesOf(3)},
		{"5 zones", zonesOf(5)},
		{"3 zones of 50, 30 and 20 %", func(i int) string { return string("aaaaabbbcc"[i%10]) }},
		{"4 zones of 60, 20, 10 and 10 %", func(i int) string { return string("aaaaaabbcd"[i%10]) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := makeNodes(1100, c.zone)
			s := newSimulation(t, all[:1000], 4096, 3)
			check := func(what string, moves int) {
				t.Helper()
				s.report(what, moves, 0)
				if most, zones := s.zoneCounts(); most > 1 {
					t.Errorf("%s: a zone has %d copies of a shard; zones: %v", what, most, zones)
				}
				s.mustBeBalancedInZones()
				homes, most := homesAndRoom(s)
				s.mustShareFairly(0, homes, most)
			}
			check("founded", 0)
			s.add(all[1000:]...)
			check("100 nodes added", s.settle())
			for _, n := range all[300:350] {
				s.edit(SetNodeState{ID: n.ID, State: Draining})
			}
			check("50 nodes drained", s.settle())
		})
	}
}

// byZone returns the copies on each node of each zone.
func (s *simulation) byZone() map[string]map[string]int {
	zones := map[string]map[string]int{}
	for node, n := range s.counts() {
		z := s.w.m.Node(node).Zone
		if zones[z] == nil {
			zones[z] = map[string]int{}
		}
		zones[z][node] = n
	}
	return zones
}

// mustBeBalancedInZones holds the nodes of each zone against the mean of their zone.
func (s *simulation) mustBeBalancedInZones() {
	s.t.Helper()
	for z, counts := range s.byZone() {
		if f := figuresOf(counts); !f.balanced() {
			s.t.Errorf("zone %s: %v", z, f)
		}
	}
	if l := s.leaders(); float64(l.most) > l.mean+1.0001 {
		s.t.Errorf("leaders: %v", l)
	}
}

func TestALostZoneIsReplacedAndTakenBack(t *testing.T) {
	all := makeNodes(30, zonesOf(3))
	s := newSimulation(t, all, 512, 3)
	s.limits.PerNode = 16
	for _, n := range all {
		if n.Zone == "z1" {
			s.sit.Dead[n.ID] = true
		}
	}
	moves := s.settle()
	s.report("a zone of three is lost", moves, 512)
	if moves < 512 || moves > 520 {
		t.Errorf("%d moves; each of 512 shards, and perhaps the catalog, lost a copy", moves)
	}
	if most, _ := s.zoneCounts(); most != 2 {
		t.Errorf("a zone has %d copies of a shard; three in two zones are two and one", most)
	}
	clear(s.sit.Dead)
	moves = s.settle()
	s.report("it is back", moves, 512)
	if most, _ := s.zoneCounts(); most != 1 || moves > 520 {
		t.Errorf("a zone has %d copies of a shard, after %d moves", most, moves)
	}
	s.mustBeBalancedInZones()
}

func TestReplicationIsRaisedAndLowered(t *testing.T) {
	s := newSimulation(t, makeNodes(50, zonesOf(5)), 256, 3)
	for _, c := range []struct{ copies, moves int }{{5, 2 * 257}, {1, 4 * 257}, {3, 2 * 257}} {
		s.edit(SetReplication{Copies: c.copies})
		moves := s.settle()
		s.report(fmt.Sprint(c.copies, " copies"), moves, c.moves)
		if moves > c.moves+c.moves/20 {
			t.Errorf("%d copies: %d moves, expected about %d", c.copies, moves, c.moves)
		}
		for _, sh := range append(s.w.m.Shards, s.w.m.Catalog) {
			if len(sh.Replicas) != c.copies {
				t.Fatalf("shard %d has %d copies", sh.ID, len(sh.Replicas))
			}
		}
		s.mustBeBalancedInZones()
	}
}
