package graph

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
)

// at returns the n-th id, from 1, whose vertex of a type lies in slots first to last.
func at(t VertexType, first, last Slot, n int) uint64 {
	for id := uint64(1); ; id++ {
		if s := SlotOf(Vertex{t, id}); s >= first && s <= last {
			if n--; n == 0 {
				return id
			}
		}
	}
}

// Of two shards of the founding, 0 has the first of these and 1 the other two. A split of
// 1 in its middle gives the upper to a child, one of 0 in its middle the lower.
const (
	quarter = Slot(NumSlots / 4)
	half    = 2 * quarter
	upper   = 3 * quarter
)

func (s *shards) edgeType(name string) EdgeType {
	s.t.Helper()
	def, ok := DefaultSchema().EdgeType(name)
	if !ok {
		s.t.Fatalf("no edge type %q", name)
	}
	return def.ID
}

// like makes a mutation of an edge from a user to a note.
func (s *shards) like(op Op, src, dst uint64) Mutation {
	return Mutation{Op: op, Type: s.edgeType("like"), Src: src, Dst: dst, Time: 1000}
}

// split splits a shard.
func (s *shards) split(id, child uint32, at Slot) {
	s.t.Helper()
	res := s.apply(s.machines[id], false, split{child, at}.encode())
	if why := res[0].(splitResult).refused; why != "" {
		s.t.Fatalf("shard %d is not split: %s", id, why)
	}
}

// claims tells shards the newest owners.
func (s *shards) claims(ids ...uint32) {
	s.t.Helper()
	for _, id := range ids {
		s.apply(s.machines[id], true, encodeClaims(s.owners()))
	}
}

// send delivers what a shard owes another, until nothing is left, and fails where the
// other refuses it.
func (s *shards) send(from, to uint32) {
	s.t.Helper()
	for d := s.next(from, to, 100); d != nil; d = s.next(from, to, 100) {
		if res := s.deliver(to, d, false); res.refused != "" {
			s.t.Fatalf("shard %d refuses what shard %d sends: %s", to, from, res.refused)
		}
	}
}

// has reports whether the inverse of an edge is there, at whoever owns it.
func (s *shards) has(m Mutation) bool {
	s.t.Helper()
	def, _ := DefaultSchema().EdgeTypeByID(m.Type)
	l := def.inverse(m.Dst)
	list, err := s.view(l).list(l)
	must(s.t, err)
	_, ok, err := list.Get(m.Src)
	must(s.t, err)
	return ok
}

// RULES 34: a split comes when thousands of operations were applied and none was cut. The
// child begins with all of them: lists small and large, counters, answers to request ids.
func TestRule34_ASplitTakesWhatWasNotCut(t *testing.T) {
	s := newShards(t, 1)
	hot := at(2, upper, NumSlots-1, 1)
	for i := range 3000 { // far into the form of a tree
		s.mutate(s.like(OpAdd, uint64(i+1), hot), false)
	}
	for i := range 200 {
		s.mutate(s.like(OpAdd, at(1, upper, NumSlots-1, 1), uint64(i+1)), false)
		s.mutate(s.like(OpDelete, uint64(i+1), hot), false)
	}
	counted := Increment{Counter: CounterRef{Vertex: Vertex{2, hot}, Metric: views}, Delta: 7}
	once := increments{requestID: "once", items: []Increment{counted}, ordinals: []uint32{0}}
	s.apply(s.machines[0], false, once.encode())
	s.split(0, 1, half)
	if !s.machines[1].owns(SlotOf(Vertex{2, hot})) {
		t.Fatal("the child does not have the slot")
	}
	if got := s.value(counted.Counter); got != 7 {
		t.Errorf("the counter is %d at the child, 7 were added", got)
	}
	s.settle()
	s.check()
}

// CASES 46: a state of a newer program may hold rows of a kind that this one does not
// know, and then it is not taken. All that this program writes it knows.
func TestCase46_RowsOfUnknownKindsAreRefused(t *testing.T) {
	s := newShards(t, 2)
	hot := at(2, half, NumSlots-1, 1)
	for i := range 1500 {
		s.mutate(s.like(OpAdd, uint64(i+1), hot), i%100 == 0)
	}
	for i, c := range []CounterRef{{Vertex: Vertex{2, at(2, 0, half-1, 1)}, Metric: views}, {Key: "page"}, {Key: "\xff\x10"}} {
		for _, m := range s.machines {
			in := Increment{Counter: c, Delta: 1, ExpireAt: 1 << 50}
			s.apply(m, true, (&increments{requestID: "r", items: []Increment{in}, ordinals: []uint32{uint32(i)}}).encode())
		}
	}
	s.mutate(s.like(OpAdd, at(1, 0, half-1, 1), at(2, half, NumSlots-1, 2)), true)
	s.send(0, 1)
	s.mutate(s.like(OpAdd, at(1, 0, half-1, 2), at(2, half, NumSlots-1, 2)), true)
	for _, kind := range []EdgeType{2, 4} { // for a backfill
		s.apply(s.machines[1], true, mutateCommand(Mutation{Op: OpAdd, Type: kind, Src: at(1, half, NumSlots-1, 1), Dst: hot, Time: 1}))
	}
	s.apply(s.machines[1], true, encodeInit(77, withFavorites(t), 2), markCommand{VertexHide, Vertex{2, hot}}.encode())
	s.apply(s.machines[0], true, RecoverCommand())
	s.split(1, 2, upper)
	s.claims(0)
	m, families := s.machines[0], map[byte]bool{}
	it, err := s.store.NewIter(kv.Span{})
	must(t, err)
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if err := m.Reads(it.Key()); err != nil {
			t.Fatal(err)
		}
		if k := it.Key(); k[0] == 0xff {
			families[k[6]] = true
		}
	}
	must(t, it.Error())
	for _, f := range localFamilies {
		if !families[f] {
			t.Errorf("no row of family %c: the test is wrong", f)
		}
	}
	for _, key := range [][]byte{
		nil, {1, 2}, appendLocal(nil, 0, 'Z'), appendLocal(nil, 0, 0)[:6],
		append(appendVertex(nil, Vertex{2, 7}), 0x30), appendVertex(nil, Vertex{2, 7}), append(appendVertex(nil, Vertex{2, 7}), familyList),
		{0x10, 0, 0, 1, 9}, {0, 1, 0xff, 0xfc, 9}, {0, 1, 0xff, 0xfd, 9}, {0xff, 0xf1, 0, 0, 0, 0, 'm'},
	} {
		if err := m.Reads(key); !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("key %x: %v", key, err)
		}
	}
}

const views Metric = 1 // of notes

// value reads a counter at whoever owns it.
func (s *shards) value(c CounterRef) int64 {
	s.t.Helper()
	v, err := s.view(ListKey{Vertex: c.Vertex}).counter(&c)
	must(s.t, err)
	return v.Value
}

// RULES 37: a request is applied, its answer lost, the shard split, and the retry goes to
// the child: it is answered as the first time, and not counted again.
func TestRule37_ARetryAtTheChildIsNotCountedAgain(t *testing.T) {
	s := newShards(t, 1)
	stays, moves := at(2, 0, half-1, 1), at(2, half, NumSlots-1, 1)
	type request struct {
		of    CounterRef
		cmd   []byte
		first counter.Result
	}
	var requests []request
	for i, note := range []uint64{stays, moves} {
		r := request{of: CounterRef{Vertex: Vertex{2, note}, Metric: views}}
		r.cmd = (&increments{requestID: "lost", items: []Increment{{Counter: r.of, Delta: 5}}, ordinals: []uint32{uint32(i)}}).encode()
		r.first = s.apply(s.machines[0], false, r.cmd)[0].(*incrementResult).items[0]
		requests = append(requests, r)
	}
	s.split(0, 1, half)
	for id, r := range requests {
		again := s.apply(s.machines[uint32(id)], true, r.cmd)[0].(*incrementResult).items[0]
		if !again.Repeated || again.Value != r.first.Value {
			t.Errorf("shard %d answers the retry with %+v, the first was %+v", id, again, r.first)
		}
		if got := s.value(r.of); got != 5 {
			t.Errorf("shard %d counts %d, want 5", id, got)
		}
	}
}

// What answers such a retry is the table that lies under the child's slots, and nothing
// else: without its rows, the test above would see the request counted twice.
func TestRule37_TheTableUnderTheChildsSlotsAnswers(t *testing.T) {
	s := newShards(t, 1)
	note := at(2, half, NumSlots-1, 1)
	of := CounterRef{Vertex: Vertex{2, note}, Metric: views}
	cmd := (&increments{requestID: "lost", items: []Increment{{Counter: of, Delta: 5}}, ordinals: []uint32{0}}).encode()
	s.apply(s.machines[0], false, cmd)
	s.split(0, 1, half)
	s.restart(1)
	prefix := counterConfig(s.machines[1].own).Prefix(nil, uint16(SlotOf(of.Vertex)))
	b := s.store.NewBatch()
	must(t, b.DeleteRange(kv.PrefixSpan(prefix)))
	must(t, b.Commit(kv.Sync))
	s.machines[1].Close()
	s.open(1) // over what is left
	if again := s.apply(s.machines[1], true, cmd)[0].(*incrementResult).items[0]; again.Repeated {
		t.Errorf("answered from elsewhere: %+v", again)
	}
	if got := s.value(of); got != 10 {
		t.Errorf("the child counts %d, want 10", got)
	}
}

// RULES 16, B3: one receiver is dead while sender and receiver are split. It holds up its
// own records and nobody else's; those of a child wait for their predecessors at it only.
func TestRule16_ADeadReceiverHoldsUpItsOwnRecordsOnly(t *testing.T) {
	s := newShards(t, 2) // 0: to half, 1: from half; 1 is going to be dead
	src := at(1, 0, quarter-1, 1)
	moved := at(1, quarter, half-1, 1)
	dead, heir := at(2, half, upper-1, 1), at(2, upper, NumSlots-1, 1)
	s.mutate(s.like(OpAdd, src, dead), true)
	s.mutate(s.like(OpAdd, src, heir), true)
	s.mutate(s.like(OpAdd, moved, dead), true)
	s.mutate(s.like(OpAdd, moved, heir), true)
	s.split(1, 2, upper)
	s.claims(0)
	s.split(0, 3, quarter)
	s.mutate(s.like(OpDelete, moved, heir), true) // by shard 3 now
	s.mutate(s.like(OpDelete, moved, dead), true)
	s.claims(3)
	// Nothing is delivered to 1. The heir gets what it is owed, in order.
	d := s.next(3, 2, 100)
	if d == nil {
		t.Fatal("shard 3 owes shard 2 nothing")
	}
	if res := s.deliver(2, d, false); res.refused == "" {
		t.Error("shard 2 takes what shard 3 sends before what shard 0 owes it")
	}
	s.send(0, 2)
	if !s.has(s.like(OpAdd, src, heir)) || !s.has(s.like(OpAdd, moved, heir)) {
		t.Error("the heir lacks what shard 0 owed it")
	}
	s.send(3, 2)
	if s.has(s.like(OpAdd, moved, heir)) {
		t.Error("the heir has an edge that was deleted")
	}
	if s.has(s.like(OpAdd, src, dead)) {
		t.Error("the dead receiver has been sent something: the test is wrong")
	}
	s.settle() // it is back
	s.check()
}

// RULES 16: the sender is split while its receiver lacks records, and then the receiver
// is: what the sender's child hands on to the receiver's child still waits for the records
// of its predecessor. An ADD that its DELETE overtook would stay for ever.
func TestRule16_AChildsRecordsWaitForTheirPredecessorsAtAnHeir(t *testing.T) {
	s := newShards(t, 2)
	x, n := at(1, quarter, half-1, 1), at(2, upper, NumSlots-1, 1)
	edge := s.like(OpAdd, x, n)
	s.mutate(edge, true)   // shard 0 owes shard 1 the ADD
	s.split(0, 2, quarter) // x goes to shard 2
	gone := edge
	gone.Op = OpDelete
	s.mutate(gone, true) // shard 2 owes shard 1 the DELETE
	s.split(1, 3, upper) // n goes to shard 3
	s.claims(0, 2)       // both hand on what they owe
	for _, again := range []bool{false, true} {
		if again {
			s.restart(2) // the predecessor is part of the state
		}
		d := s.next(2, 3, 100)
		if d == nil {
			t.Fatal("shard 2 owes shard 3 nothing")
		}
		if res := s.deliver(3, d, false); res.refused == "" {
			t.Fatal("the DELETE is applied before the ADD")
		}
	}
	s.send(0, 3)
	if !s.has(edge) {
		t.Error("the ADD is not applied")
	}
	s.send(2, 3)
	if s.has(edge) {
		t.Error("the DELETE is not applied")
	}
	s.settle()
	s.check()
}

// RULES 40, F2: replica 3 of the parent has not applied the split when the child's state
// comes, or its own of before the split when the child is there. Neither takes rows of
// the other, and what goes away is what is left of the old span.
func TestRule40_AStateThatAnotherReplicaHereWouldLoseIsRefused(t *testing.T) {
	s := newShards(t, 1)
	s.mutate(s.like(OpAdd, at(1, 0, half-1, 1), at(2, half, NumSlots-1, 1)), true)
	old := s.machines[0].Parts()
	s.split(0, 1, half)
	parent, child := s.machines[0], s.machines[1]
	whole := Claim{First: 0, Last: NumSlots - 1, Shard: 0}
	of := func(m *Machine, others ...Claim) *Machine {
		m.cfg.Others = func(uint32) []Claim { return others }
		return m
	}
	if got, err := of(child, whole).Replaces(child.Parts()); err == nil {
		t.Errorf("the child's state replaces %v, which the parent has not given away", got)
	}
	if got, err := of(parent, *child.own).Replaces(old); err == nil {
		t.Errorf("the parent's state of before the split replaces %v, which are the child's", got)
	}
	got, err := of(parent, *child.own).Replaces(parent.Parts())
	must(t, err)
	if first, end, _ := slotsOf(got.Data); first != 0 || end != int(half) {
		t.Errorf("the parent's state replaces slots %d to %d", first, end)
	}
	// A parent that is behind gives way with all it had, but for what the child has here.
	behind := openTestMachine(t, newShards(t, 1).store, 0, 1)
	defer behind.Close()
	for _, with := range []struct {
		others []Claim
		end    int
	}{{nil, NumSlots}, {[]Claim{*child.own}, int(half)}} {
		got, err = of(behind, with.others...).Replaces(parent.Parts())
		must(t, err)
		if first, end, _ := slotsOf(got.Data); first != 0 || end != with.end {
			t.Errorf("beside %v a replica that is behind gives way in slots %d to %d, want %d", with.others, first, end-1, with.end-1)
		}
	}
}

// RULES 41, F3: a token of the parent is satisfied at the child by its birth up to the
// split, and what the parent has done since says nothing about the child's slots.
func TestRule41_ATokenOfTheParentIsGoodAtTheChild(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	like := w.edgeType("like")
	low, high := at(1, 0, half-1, 1), at(1, half, NumSlots-1, 1)
	add := func(src, dst uint64) string {
		t.Helper()
		for {
			_, token, err := w.g.Mutate(ctx, []Mutation{{Op: OpAdd, Type: like, Src: src, Dst: dst, Time: 1}}, WaitForward)
			if err == nil {
				return token
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	note := at(2, 0, half-1, 1)
	before := add(high, note)
	must(t, w.g.Split(ctx, 0, 1, half))
	w.ready()
	for i := range 500 { // positions that the child never reaches
		add(low, at(2, 0, half-1, i+2))
	}
	after := add(low, at(2, 0, half-1, 600))
	for name, token := range map[string]string{"before": before, "after": after} {
		var has [1]bool
		_, err := w.router().HasEdges(ctx, ReadOptions{Level: AtLeastAsFresh, Token: token}, like, []uint64{high}, []uint64{note}, has[:])
		if err != nil || !has[0] {
			t.Errorf("with the token of %s the split: %v, %v", name, has[0], err)
		}
	}
	// Whoever asks the parent for a slot that it gave away is told where it is.
	r := &reading{g: w.g, level: MinimizeLatency}
	defer r.close()
	if v, err := r.of(ctx, 0, SlotOf(Vertex{1, high})); err != nil || v.own.owns(SlotOf(Vertex{1, high})) {
		t.Errorf("the parent's view: %v, or it owns the slot still", err)
	}
}

// A write that waits for its inverse while the receiver is split looks where its records
// are now, and does not take for an acknowledgement what the old receiver says later.
func TestRule16_WhoWaitsIsReroutedAtASplit(t *testing.T) {
	s := newShards(t, 2)
	snd := &sender{o: s.machines[0].outbox, to: 1, wake: make(chan struct{}, 1), given: 5, scanTo: 5}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	waits := make(chan error, 1)
	go func() { waits <- snd.await(ctx, 5, 1) }()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		snd.mu.Lock()
		waiting = len(snd.waiters)
		snd.mu.Unlock()
	}
	snd.renew(&stream{peer: 1, last: 5, reach: 5}, 2)
	if err := <-waits; !errors.Is(err, errRerouted) {
		t.Errorf("who waited: %v, want rerouted", err)
	}
	if err := snd.await(ctx, 5, 1); !errors.Is(err, errRerouted) {
		t.Errorf("who comes later and knows the old routes: %v, want rerouted", err)
	}
	go func() { waits <- snd.await(ctx, 5, 2) }()
	go func() { waits <- snd.await(ctx, 6, 1) }() // given after the split: nothing moved
	snd.ack(6)
	for range 2 {
		if err := <-waits; err != nil {
			t.Errorf("who knows the new routes: %v", err)
		}
	}
}
