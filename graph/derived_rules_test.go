package graph

import (
	"testing"
)

// derivedPair is two shards, an author in the first and a note in the second.
func derivedPair(t *testing.T) (s *shards, author, note uint64, ref CounterRef) {
	author, note = apart()
	return newShards(t, 2), author, note, CounterRef{Vertex: Vertex{1, author}, Metric: 1}
}

// RULES 26a: one group holds like, publish, like. The sum that is sent for the publication
// is of the likes before it, and the second like adds its own.
func TestRule26a_LikePublishLikeInOneGroup(t *testing.T) {
	s, author, note, ref := derivedPair(t)
	liker := at(1, half, NumSlots-1, 1)
	publish := Mutation{Op: OpAdd, Type: 4, Src: author, Dst: note, Time: 1}
	s.apply(s.machines[0], true, mutateCommand(publish))
	// The publication comes by its stream, in the entry of the likes.
	s.apply(s.machines[1], true, mutateCommand(s.like(OpAdd, liker, note)), s.next(0, 1, 9).encode(),
		mutateCommand(s.like(OpAdd, at(1, half, NumSlots-1, 2), note)))
	s.settle()
	if got := s.value(ref); got != 2 {
		t.Errorf("likes_received is %d, want 2", got)
	}
}

// RULES 26b: likes lie in the store as operands of a list that was never read, and others
// in the group itself; the publication sums all of them.
func TestRule26b_ASumSeesWhatWasAddedUnread(t *testing.T) {
	s, author, note, ref := derivedPair(t)
	m := s.machines[1]
	for i := range 10 {
		s.apply(m, true, mutateCommand(s.like(OpAdd, at(1, half, NumSlots-1, i+1), note)))
		m.cache.forget() // so that the next one is blind again
	}
	for i := range 5 {
		s.apply(m, false, mutateCommand(s.like(OpAdd, at(1, half, NumSlots-1, i+11), note)))
	}
	if o := m.lists[ListKey{Vertex{2, note}, 1, In}]; o == nil || o.w != nil {
		t.Fatal("the list has been read: the test is of no use")
	}
	s.apply(s.machines[0], true, mutateCommand(Mutation{Op: OpAdd, Type: 4, Src: author, Dst: note, Time: 1}))
	s.apply(m, true, s.next(0, 1, 9).encode())
	s.settle()
	if got := s.value(ref); got != 15 {
		t.Errorf("likes_received is %d, want 15", got)
	}
}

// RULES 26c: no client's increment, caps or assignment comes between a derived metric and
// its deltas, neither at the door nor in the log; they may come in any order.
func TestRule26c_DerivedMetricsTakeNothingFromClients(t *testing.T) {
	s, author, note, ref := derivedPair(t)
	s.mutate(s.like(OpAdd, at(1, half, NumSlots-1, 1), note), true)
	s.mutate(Mutation{Op: OpAdd, Type: 4, Src: author, Dst: note, Time: 1}, true)
	s.settle()
	incr := increments{items: []Increment{{Counter: ref, Delta: 5, HasMax: true, Max: 100, ExpireAt: 1 << 60}}, ordinals: []uint32{0}}
	res := s.apply(s.machines[0], true, incr.encode(), encodeSetCounter(&ref, 77, 0), encodeRemoveCounter(&ref))
	if res[0].(*incrementResult).items[0].Outcome != 0 || res[1].(setResult).outcome != 0 || !res[2].(removeResult).refused {
		t.Errorf("a shard has taken %+v", res)
	}
	if got := s.value(ref); got != 1 {
		t.Errorf("likes_received is %d, want 1", got)
	}
	// A transfer: the loss may come before the gain.
	other := at(1, 0, half-1, 2)
	s.mutate(Mutation{Op: OpDelete, Type: 4, Src: author, Dst: note}, true)
	s.mutate(Mutation{Op: OpAdd, Type: 4, Src: other, Dst: note, Time: 1}, true)
	s.mutate(s.like(OpDelete, at(1, half, NumSlots-1, 1), note), true)
	s.settle()
	for _, u := range []uint64{author, other} {
		c := CounterRef{Vertex: Vertex{1, u}, Metric: 1}
		v, err := s.view(ListKey{Vertex: c.Vertex}).counter(&c)
		must(t, err)
		if v.Exists {
			t.Errorf("the counter of user %d is there, at %d", u, v.Value)
		}
	}
	s.check()
}
