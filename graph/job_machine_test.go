package graph

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"testing"

	"github.com/lianadb/liana/edgelist"
)

// lots are shards whose vertices are deleted, hidden and restored.
type lots struct {
	*shards
	states map[Vertex]VertexState // what was asked for last
	// open are edges of which the model does not say whether they are there: they were
	// added to or from a vertex while it was being deleted.
	open map[modelKey]bool
}

// withFriends is the default schema with a symmetric edge type.
func withFriends() *Schema {
	doc := defaultDoc()
	doc.Version = 2
	doc.Edges = append(doc.Edges, edgeDoc{Name: "friend", ID: 5, From: "user", To: "user", Symmetric: true})
	s, err := newSchema(doc)
	if err != nil {
		panic(err)
	}
	return s
}

const friend EdgeType = 5

func newLots(t *testing.T, founding int) *lots {
	s := &lots{shards: newShards(t, founding), states: map[Vertex]VertexState{}, open: map[modelKey]bool{}}
	for _, m := range s.machines {
		s.apply(m, true, encodeInit(77, withFriends(), founding))
	}
	return s
}

// list returns what the list l of a model should be.
func (s *lots) list(seen model, l ListKey) []edgelist.Edge {
	if l.Type != friend {
		return seen.list(l)
	}
	both := model{} // an edge of friends is in the OUT lists of both
	for k, e := range seen {
		if k.t == friend {
			both[k] = e
			both[modelKey{friend, k.dst, k.src}] = e
		}
	}
	return both.list(l)
}

func (s *lots) owner(v Vertex) *Machine {
	s.t.Helper()
	for _, id := range s.ids() {
		if m := s.machines[id]; m.owns(SlotOf(v)) {
			return m
		}
	}
	s.t.Fatalf("nobody owns %v", v)
	return nil
}

// ask marks a vertex.
func (s *lots) ask(op VertexOp, v Vertex, cut bool) markResult {
	s.t.Helper()
	res := s.apply(s.owner(v), cut, markCommand{op, v}.encode())[0].(markResult)
	if res.refused == nil {
		s.states[v] = res.job.State
		if res.job.State == VertexDeleting {
			for k := range s.model {
				if k.touches(v) {
					delete(s.model, k)
				}
			}
		}
	}
	return res
}

func (k modelKey) ends() (src, dst Vertex) {
	def, _ := withFriends().EdgeTypeByID(k.t)
	return Vertex{def.From, k.src}, Vertex{def.To, k.dst}
}

func (k modelKey) touches(v Vertex) bool {
	src, dst := k.ends()
	return src == v || dst == v
}

// put applies a mutation, and has the model follow what the shard answers.
func (s *lots) put(mu Mutation, cut bool) Outcome {
	s.t.Helper()
	def, _ := withFriends().EdgeTypeByID(mu.Type)
	k := modelKey{mu.Type, mu.Src, mu.Dst}
	src, dst := k.ends()
	m := s.owner(def.fact(mu.Src).Vertex)
	got := s.apply(m, cut, mutateCommand(mu))[0].(*mutateResult).outcomes[0]
	_, there := s.model[k]
	unsure := s.open[k] || s.states[src] == VertexDeleting || s.states[dst] == VertexDeleting
	marked := s.states[src] != VertexPlain || s.states[dst] != VertexPlain
	switch {
	case got == refusedDeleting || got == refusedHidden:
		if mu.Op != OpAdd || !marked {
			s.t.Fatalf("%+v is refused, %v and %v", mu, s.states[src], s.states[dst])
		}
		return got
	case unsure:
		if got == Changed {
			s.open[k] = true
		}
		return got
	case mu.Op == OpUpdate && got == Missing && there:
		if is, err := m.isHidden(fact{def, mu.Src, mu.Dst}); !is || err != nil {
			s.t.Fatalf("%+v: there is no such edge, %v", mu, err)
		}
		return got
	}
	if want := s.model.apply(mu); got != want {
		s.t.Fatalf("%+v (there: %v; source %v, destination %v): %v, want %v", mu, there, s.states[src], s.states[dst], got, want)
	}
	return got
}

// step makes a step of a job of a machine, or tries to end it.
func (s *lots) stepJob(m *Machine, n int, edges uint64, cut bool) {
	s.t.Helper()
	v, err := m.acquire()
	must(s.t, err)
	defer v.release()
	if len(v.jobs) == 0 {
		return
	}
	j := v.jobs[n%len(v.jobs)]
	if !j.through {
		s.apply(m, cut, stepCommand{j.vertex, j.job, j.at, edges}.encode())
		return
	}
	if !s.allCame(m, j.vertex) {
		return
	}
	cmds := [][]byte{endCommand{j.vertex, j.job}.encode()}
	for k, acked := range s.acked {
		if k[0] == m.cfg.ID {
			cmds = append([][]byte{trim{to: k[1], pos: acked}.encode()}, cmds...)
		}
	}
	s.apply(m, cut, cmds...)
	if m.marks.state(j.vertex) == VertexPlain {
		s.states[j.vertex] = VertexPlain
	} else {
		s.states[j.vertex] = m.marks.state(j.vertex)
	}
}

// allCame reports whether a machine has applied all that others have for a vertex of it.
func (s *lots) allCame(m *Machine, v Vertex) bool {
	for id, other := range s.machines {
		if id == m.cfg.ID {
			continue
		}
		res := s.apply(other, false, encodeGiven(SlotOf(v)))[0].(deliverResult)
		if res.owners.of(SlotOf(v)).Shard != m.cfg.ID || res.cursor > m.stream(id).cursor {
			return false
		}
	}
	return true
}

// finish has all jobs end.
func (s *lots) finish() {
	s.t.Helper()
	for round := 0; ; round++ {
		s.settle()
		left := 0
		for _, id := range s.ids() {
			m := s.machines[id]
			for n := range m.marks.jobs {
				s.stepJob(m, n, 3, true)
			}
			left += m.marks.jobs
		}
		if left == 0 {
			break
		}
		if round > 500 {
			s.t.Fatalf("%d jobs do not end", left)
		}
	}
	s.settle()
}

// seen are the edges of the model that are to be seen.
func (s *lots) seen() model {
	out := model{}
	for k, e := range s.model {
		src, dst := k.ends()
		if !s.states[src].hides() && !s.states[dst].hides() {
			out[k] = e
		}
	}
	return out
}

// prove compares all lists and derived counters with the model, after all jobs have ended.
func (s *lots) prove() {
	s.t.Helper()
	s.finish()
	for k := range s.open { // the shards know
		def, _ := withFriends().EdgeTypeByID(k.t)
		l := def.fact(k.src)
		delete(s.model, k)
		for _, l := range []ListKey{l, l.with(hidden)} {
			list, err := s.view(l).list(l)
			must(s.t, err)
			if e, ok, err := list.Get(k.dst); ok && err == nil {
				if l.Dir == hidden {
					e.Props = slices.Clone(e.Props[1:])
				}
				s.model[k] = edgelist.Edge{Time: e.Time, Props: e.Props}
			}
		}
	}
	clear(s.open)
	for _, id := range s.ids() {
		s.restart(id)
	}
	r, err := CheckStore(context.Background(), s.store, 4, nil)
	must(s.t, err)
	if r.Faults > 0 || r.Skipped > 0 || r.Edges != 2*uint64(len(s.model)) {
		s.t.Fatalf("check: %+v, the model has %d edges", r, len(s.model))
	}
	seen := s.seen()
	for _, et := range []EdgeType{1, 2, 3, 4, friend} {
		def, _ := withFriends().EdgeTypeByID(et)
		for id := uint64(1); id <= 30; id++ {
			for _, l := range []ListKey{def.fact(id), def.inverse(id)} {
				list, err := s.view(l).list(l)
				must(s.t, err)
				var got []edgelist.Edge
				for it := list.Iter(edgelist.Query{Order: edgelist.ByTime}); it.Next(); {
					got = append(got, it.Edge())
				}
				if want := s.list(seen, l); !sameEdges(got, want) {
					s.t.Errorf("list %v: %+v, want %+v", l, got, want)
				}
			}
		}
	}
	for user := uint64(1); user <= 30; user++ {
		if got, want := s.value(CounterRef{Vertex: Vertex{1, user}, Metric: 1}), seen.received(user, 1); got != want {
			s.t.Errorf("likes_received of user %d: %d, the sum is %d", user, got, want)
		}
	}
}

// Vertices are deleted, hidden and restored at random, over and over, while edges come and
// go, shards are split and start again, and deliveries are delayed, repeated and out of
// order between streams. In the end each edge is to be seen where neither end is hidden,
// as it was, at both ends, and sums are right.
func TestJobsAtRandomAgreeWithTheModel(t *testing.T) {
	seeds := int64(150)
	if raceEnabled {
		seeds = 20
	}
	if os.Getenv("LIANA_LONG") != "" {
		seeds = 3000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { jobsAtRandom(t, seed) })
	}
}

func jobsAtRandom(t *testing.T, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	s := newLots(t, 1+rng.Intn(3))
	s.small = seed%2 == 0
	for _, m := range s.machines {
		s.shrink(m)
	}
	type sent struct {
		to uint32
		d  *delivery
	}
	var old []sent
	pick := func() *Machine { ids := s.ids(); return s.machines[ids[rng.Intn(len(ids))]] }
	types := []EdgeType{1, 1, 2, 3, 4, friend}
	for range 400 {
		switch n := rng.Intn(24); {
		case n < 9:
			mu := randomMutation(rng, types)
			if mu.Type == friend {
				if mu.Src == mu.Dst {
					continue
				}
				mu.Src, mu.Dst = min(mu.Src, mu.Dst), max(mu.Src, mu.Dst)
			}
			s.put(mu, rng.Intn(2) == 0)
		case n < 15:
			from, to := pick().cfg.ID, pick().cfg.ID
			if d := s.next(from, to, 1+rng.Intn(3)); d != nil && from != to {
				s.deliver(to, d, rng.Intn(2) == 0)
				old = append(old, sent{to, d})
			}
		case n == 15 && len(old) > 0:
			o := old[rng.Intn(len(old))]
			s.deliver(o.to, o.d, false)
		case n < 20:
			s.stepJob(pick(), rng.Intn(3), uint64(1+rng.Intn(4)), rng.Intn(2) == 0)
		case n == 20:
			v := Vertex{1, uint64(1 + rng.Intn(6))}
			if rng.Intn(2) == 0 {
				v.Type = 2
			}
			op := VertexOp(2 + rng.Intn(2))
			if rng.Intn(4) == 0 {
				op = VertexDelete
			}
			s.ask(op, v, rng.Intn(2) == 0)
		case n == 21 && rng.Intn(3) == 0:
			s.restart(pick().cfg.ID)
		case n == 22 && rng.Intn(3) == 0 && len(s.machines) < 6:
			m := pick()
			if m.own.First < m.own.Last {
				at := max(m.own.First+1, min(m.own.Last, SlotOf(Vertex{VertexType(1 + rng.Intn(2)), uint64(1 + rng.Intn(6))})))
				s.apply(m, false, split{uint32(len(s.machines)), at}.encode())
			}
		case n == 23 && rng.Intn(20) == 0:
			s.prove()
		}
	}
	s.prove()
}

// apart returns a user in shard 0 of two and a note in shard 1.
func apart() (x, n uint64) { return at(1, 0, half-1, 1), at(2, half, NumSlots-1, 1) }

// count is the length of a list.
func (s *shards) count(l ListKey) uint64 {
	s.t.Helper()
	list, err := s.view(l).list(l)
	must(s.t, err)
	return list.Count()
}

// steps has the one job of a machine pass all lists.
func (s *lots) steps(id uint32) {
	s.t.Helper()
	m := s.machines[id]
	for range 100 {
		v, err := m.acquire()
		must(s.t, err)
		open := len(v.jobs) > 0 && !v.jobs[0].through
		v.release()
		if !open {
			return
		}
		s.stepJob(m, 0, 5, true)
	}
	s.t.Fatal("a job does not end")
}

// RULES 28, C1: an edge comes when its destination is marked and all its lists were
// passed. It is undone at both ends.
func TestRule28_AnEdgeThatComesBehindADeletion(t *testing.T) {
	s := newLots(t, 2)
	x, n := apart()
	s.put(s.like(OpAdd, x+1000, n), true)
	note := Vertex{2, n}
	s.settle()
	s.ask(VertexDelete, note, true)
	s.steps(1)
	add := s.like(OpAdd, x, n)
	if got := s.put(add, true); got != Changed {
		t.Fatalf("the shard of the source answers %v", got)
	}
	s.send(0, 1)
	if l := (ListKey{note, add.Type, In}); s.count(l) == 0 {
		t.Error("the inverse was dropped: its delete would find nothing")
	}
	s.finish()
	if s.states[note] != VertexPlain || len(s.machines[0].outboxRowsTo(t, 1)) > 0 {
		t.Errorf("the job has not ended: %v", s.states[note])
	}
	if s.count(ListKey{note, add.Type, In}) != 0 || s.count(ListKey{Vertex{1, x}, add.Type, Out}) != 0 {
		t.Error("the edge is there")
	}
	s.put(add, true) // a fresh vertex
	s.settle()
	if s.count(ListKey{note, add.Type, In}) != 1 {
		t.Error("the note cannot be liked again")
	}
	s.prove()
}

// outboxRowsTo are the rows past what the receiver has.
func (m *Machine) outboxRowsTo(t *testing.T, to uint32) [][]byte {
	t.Helper()
	v, err := m.acquire()
	must(t, err)
	defer v.release()
	rows, _, err := v.outboxRows(to, m.stream(to).last, 1<<62, deliveryBytes)
	must(t, err)
	return rows
}

// RULES 29, C1: while a note is deleted, its edges are deleted and added again by their
// source. Each record of the stream finds the inverse as it expects it.
func TestRule29_SourcesChangeEdgesDuringADeletion(t *testing.T) {
	s := newLots(t, 2)
	x, n := apart()
	note := Vertex{2, n}
	s.put(s.like(OpAdd, x, n), true)
	s.settle()
	s.ask(VertexDelete, note, true)
	for _, op := range []Op{OpDelete, OpAdd, OpDelete, OpAdd} {
		s.put(s.like(op, x, n), true)
	}
	s.steps(1)
	s.send(1, 0)
	s.put(s.like(OpAdd, x, n), true)
	s.finish()
	if s.count(ListKey{note, 1, In}) != 0 || s.count(ListKey{Vertex{1, x}, 1, Out}) != 0 {
		t.Error("the edge is there")
	}
	s.prove()
}

// RULES 30, C2: what is removed while it is hidden stays removed; an edge of two hidden
// ends is hidden until both are restored; one that comes behind the job is hidden.
func TestRule30_HiddenEdges(t *testing.T) {
	s := newLots(t, 2)
	x, n := apart()
	user, note := Vertex{1, x}, Vertex{2, n}
	edges := func(want uint64, when string) {
		t.Helper()
		s.finish()
		if out, in := s.count(ListKey{user, 1, Out}), s.count(ListKey{note, 1, In}); out != want || in != want {
			t.Errorf("%s: %d edges at the source, %d at the note, want %d", when, out, in, want)
		}
	}
	add := s.like(OpAdd, x, n)
	s.put(add, true)
	s.ask(VertexHide, note, true)
	edges(0, "the note is hidden")
	if got := s.put(add, true); got != Unchanged {
		t.Errorf("adding a hidden edge: %v", got)
	}
	if got := s.put(s.like(OpDelete, x, n), true); got != Changed {
		t.Errorf("deleting a hidden edge: %v", got)
	}
	s.ask(VertexRestore, note, true)
	edges(0, "it was removed while it was hidden")

	s.put(add, true)
	s.ask(VertexHide, user, true)
	s.ask(VertexHide, note, true)
	edges(0, "both are hidden")
	s.ask(VertexRestore, user, true)
	edges(0, "the note is hidden still")
	s.ask(VertexRestore, note, true)
	edges(1, "both are restored")

	s.put(s.like(OpDelete, x, n), true)
	s.ask(VertexHide, note, true)
	edges(0, "nothing is there")
	if got := s.put(add, true); got != Changed {
		t.Errorf("adding behind the job, at another shard: %v", got)
	}
	edges(0, "it came behind the job")
	s.ask(VertexRestore, note, true)
	edges(1, "it comes back")
	s.prove()
}

// RULES 31, C3: an ask that was sent for the vertex as it was comes late. The job does not
// end before it has come, so it cannot delete an edge of the vertex made anew.
func TestRule31_AnAskComesLate(t *testing.T) {
	s := newLots(t, 2)
	x, n := apart()
	note := Vertex{2, n}
	s.put(s.like(OpAdd, x, n), true)
	s.settle()
	s.ask(VertexDelete, note, true)
	s.steps(1)
	late := s.next(1, 0, 100)
	if late == nil {
		t.Fatal("nothing is asked")
	}
	s.put(s.like(OpDelete, x, n), true)
	s.send(0, 1)
	if got := s.count(ListKey{note, 1, In}); got != 0 {
		t.Fatalf("%d edges", got)
	}
	s.stepJob(s.machines[1], 0, 1, true)
	if s.machines[1].marks.state(note) != VertexDeleting {
		t.Fatal("the job has ended while an ask is on its way")
	}
	s.finish()
	s.put(s.like(OpAdd, x, n), true)
	s.deliver(0, late, false)
	s.prove()
	if got := s.count(ListKey{note, 1, In}); got != 1 {
		t.Errorf("%d edges of the note made anew, want 1", got)
	}
}

// RULES 27, C4: the author of a note with 100 likes is deleted. Its derived counter follows
// the facts to 0, and is neither wiped nor negative.
func TestRule27_ADeletedAuthorsSum(t *testing.T) {
	s := newLots(t, 2)
	u, n := apart()
	author, ref := Vertex{1, u}, CounterRef{Vertex: Vertex{1, u}, Metric: 1}
	s.put(Mutation{Op: OpAdd, Type: 4, Src: u, Dst: n, Time: 1}, true)
	for i := uint64(1); i <= 100; i++ {
		s.put(s.like(OpAdd, 2000+i, n), true)
	}
	s.settle()
	if got := s.value(ref); got != 100 {
		t.Fatalf("%d likes", got)
	}
	s.ask(VertexDelete, author, true)
	if got := s.value(ref); got != 100 {
		t.Errorf("%d likes once the author is marked: the job has changed the counter itself", got)
	}
	s.finish()
	if got := s.value(ref); got != 0 {
		t.Errorf("%d likes of a deleted author", got)
	}
	s.put(Mutation{Op: OpAdd, Type: 4, Src: u, Dst: n, Time: 1}, true)
	s.settle()
	if got := s.value(ref); got != 100 {
		t.Errorf("%d likes of an author made anew", got)
	}
	s.prove()
}

// A deletion removes the counters that can be written. A vertex is refused other
// operations, and edges of its own, while it is being deleted.
func TestADeletionTakesCountersAndRefusesTheRest(t *testing.T) {
	s := newLots(t, 1)
	note := Vertex{2, 7}
	counted := increments{items: []Increment{{Counter: CounterRef{Vertex: note, Metric: 1}, Delta: 7}}, ordinals: []uint32{0}}
	m := s.machines[0]
	s.apply(m, true, counted.encode())
	s.ask(VertexDelete, note, true)
	s.apply(m, true, counted.encode())
	for _, op := range []VertexOp{VertexHide, VertexRestore} {
		if res := s.ask(op, note, true); res.refused == nil {
			t.Errorf("operation %d is not refused", op)
		}
	}
	if got := s.put(s.like(OpAdd, 1, 7), true); got != refusedDeleting {
		t.Errorf("an edge to it: %v", got)
	}
	s.ask(VertexDelete, Vertex{1, 3}, true)
	if got := s.put(s.like(OpAdd, 3, 9), true); got != refusedDeleting {
		t.Errorf("an edge from it: %v", got)
	}
	s.finish()
	if got := s.value(CounterRef{Vertex: note, Metric: 1}); got != 0 {
		t.Errorf("the counter is %d", got)
	}
	s.prove()
}

// RULES 30, C2: an edge is hidden for its destination while the job of its source, which
// has passed the hidden ones already, has not come to it. It stays hidden for the source.
func TestRule30_AnEdgeIsHiddenFromBothEndsAtOnce(t *testing.T) {
	s := newLots(t, 2)
	x, n := apart()
	first := at(2, 0, half-1, 1)
	for i := 2; n <= first; i++ { // behind it in the list
		n = at(2, half, NumSlots-1, i)
	}
	user, note := Vertex{1, x}, Vertex{2, n}
	s.put(s.like(OpAdd, x, first), true)
	s.put(s.like(OpAdd, x, n), true)
	s.settle()
	s.ask(VertexHide, user, true)
	s.stepJob(s.machines[0], 0, 1, true)
	s.ask(VertexHide, note, true)
	s.steps(1)
	s.send(1, 0)
	if got := s.count(ListKey{user, 1, hidden}); got != 2 {
		t.Fatalf("%d hidden edges: not the schedule that is meant", got)
	}
	s.finish()
	s.ask(VertexRestore, note, true)
	s.finish()
	if got := s.count(ListKey{user, 1, Out}); got != 0 {
		t.Errorf("%d edges of a hidden user are to be seen", got)
	}
	s.ask(VertexRestore, user, true)
	s.prove()
	if got := s.count(ListKey{user, 1, Out}); got != 2 {
		t.Errorf("%d edges came back, want 2", got)
	}
}

// C3: a step does nothing at another place than its own, nor for another job.
func TestStepsOfJobsAreMadeOnce(t *testing.T) {
	s := newLots(t, 1)
	for u := uint64(1); u <= 9; u++ {
		s.put(s.like(OpAdd, u, 7), true)
	}
	note, m := Vertex{2, 7}, s.machines[0]
	s.ask(VertexHide, note, true)
	mk := m.marks.of[note]
	step := stepCommand{note, mk.job, mk.at, 2}
	other := step
	other.job++
	for range 3 {
		s.apply(m, true, step.encode(), other.encode())
	}
	if got := m.marks.of[note]; got.done != 2 || got.at.peer != 2 {
		t.Errorf("after a step of two edges, made three times: %+v", got)
	}
	s.prove()
}
