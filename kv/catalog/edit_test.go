package catalog

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// try is a row of a table of edits: the edit, and the words of its refusal; "" where
// it is taken, "=" where it changes nothing.
type try struct {
	edit Edit
	want string
	is   error
}

func runEdits(t *testing.T, m *Map, tries []try) *working {
	t.Helper()
	w := newWorking(*m)
	for i, c := range tries {
		before := w.published().Encode()
		changed, err := w.apply(AnyVersion, c.edit)
		switch {
		case c.want == "" && c.is == nil && (err != nil || !changed):
			t.Errorf("%d: %T %+v: changed %v, %v", i, c.edit, c.edit, changed, err)
		case c.want == "=" && (err != nil || changed):
			t.Errorf("%d: %T %+v: changed %v, %v; want nothing changed", i, c.edit, c.edit, changed, err)
		case c.is != nil && (!errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%d: %T %+v: %v; want %v, %q", i, c.edit, c.edit, err, c.is, c.want)
		}
		if after := w.published().Encode(); !changed && !slices.Equal(before, after) {
			t.Errorf("%d: %T: the map changed", i, c.edit)
		}
		if err := w.published().Validate(); err != nil {
			t.Errorf("%d: %T: %v", i, c.edit, err)
		}
	}
	return w
}

func TestNodesAreRegisteredDrainedAndRemoved(t *testing.T) {
	w := runEdits(t, sample(), []try{
		{edit: RegisterNode{ID: "f", Incarnation: 6, PeerAddr: "f:1", Storage: true, Zone: "x", Level: 2}},
		{edit: RegisterNode{ID: "f", Incarnation: 6, PeerAddr: "f:1", Storage: true, Zone: "x", Level: 2}, want: "="},
		{edit: RegisterNode{ID: "f", PeerAddr: "f:2", Storage: true, Zone: "x", Level: 2}}, // the address changed
		{edit: RegisterNode{ID: "f", Incarnation: 7, Storage: true, Level: 2}, want: "its data was wiped", is: ErrWiped},
		{edit: RegisterNode{ID: "f", Incarnation: 6, Level: 2}, want: "neither a gateway", is: ErrRefused},
		{edit: RegisterNode{ID: "b", PeerAddr: "b:2", Storage: true, Level: 2}}, // a draining node keeps draining
		{edit: RegisterNode{ID: "a", Gateway: true, Level: 2}, want: "holds copies of 4 shards", is: ErrRefused},
		{edit: RegisterNode{ID: "e", Storage: true, Level: 2}, want: "empty data directory", is: ErrRemoved},
		{edit: RegisterNode{ID: "f", Storage: true, Level: 1}, want: "start it with the newer program", is: ErrRefused},
		{edit: RegisterNode{ID: "e e", Storage: true, Level: 2}, want: "letters, digits", is: ErrRefused},
		{edit: SetNodeState{ID: "zz", State: Draining}, is: ErrUnknown},
		{edit: SetNodeState{ID: "a", State: Removed}, want: "drain it with", is: ErrRefused},
		{edit: SetNodeState{ID: "d", State: Removed}, want: "holds copies of 1 shards", is: ErrRefused}, // a move goes there
		{edit: SetNodeState{ID: "e", State: Active}, is: ErrRemoved},
		{edit: SetNodeState{ID: "a", State: Leaving}},
		{edit: RegisterNode{ID: "a", PeerAddr: "a:9", Storage: true, Level: 2}}, // and stays so where it comes back
		{edit: SetNodeState{ID: "a", State: Removed}, want: "drain it with", is: ErrRefused},
		{edit: BeginMove{Shard: 0, From: "b", To: "a"}, is: ErrRefused},
		{edit: SetNodeState{ID: "a", State: Active}},
		{edit: SetNodeState{ID: "a"}, want: "node state 0", is: ErrRefused},
		{edit: SetNodeState{ID: "a", State: Draining}},
		{edit: SetNodeState{ID: "a", State: Draining}, want: "="},
		{edit: SetNodeState{ID: "a", State: Active}},
		{edit: SetNodeState{ID: "f", State: Removed}},
		{edit: RegisterNode{ID: "f", Storage: true, Level: 2}, is: ErrRemoved},
	})
	if n := w.m.Node("f"); n.PeerAddr != "f:2" || n.Incarnation != 6 || n.State != Removed {
		t.Errorf("%+v", n)
	}
	if n := w.m.Node("b"); n.State != Draining || n.PeerAddr != "b:2" {
		t.Errorf("%+v", n)
	}
}

func TestTheLevelFollowsTheLowestAndNeverFalls(t *testing.T) {
	w := runEdits(t, sample(), []try{
		{edit: RaiseLevel{Level: 3}, want: "a node is of level 2", is: ErrRefused},
		{edit: RaiseLevel{Level: 2}, want: "="},
		{edit: RegisterNode{ID: "a", Storage: true, Level: 3}},
		{edit: RaiseLevel{Level: 3}, want: "a node is of level 2", is: ErrRefused}, // c
		{edit: RegisterNode{ID: "c", Storage: true, Level: 5}},
		{edit: RegisterNode{ID: "a", Storage: true, Level: 2}}, // gone back: the level was not reached yet
		{edit: RegisterNode{ID: "a", Storage: true, Level: 4}},
		{edit: RaiseLevel{Level: 3}}, // d has 3; the removed e, with 1, does not count
		{edit: RaiseLevel{Level: 1}, want: "="},
		{edit: RegisterNode{ID: "a", Storage: true, Level: 2}, want: "at level 3", is: ErrRefused},
		{edit: RegisterNode{ID: "new", Storage: true, Level: 2}, want: "newer program", is: ErrRefused},
		{edit: RegisterNode{ID: "new", Storage: true, Level: 3}},
	})
	if w.m.Level != 3 {
		t.Errorf("level %d", w.m.Level)
	}
}

// All nodes come back with new addresses, two of them with each other's.
func TestChangedAddressesHeal(t *testing.T) {
	w := runEdits(t, sample(), []try{
		{edit: RegisterNode{ID: "b", PeerAddr: "10.0.0.1:7403", Storage: true, Level: 2}},
		{edit: RegisterNode{ID: "a", PeerAddr: "10.0.0.2:7403", Storage: true, Level: 2}},
		{edit: RegisterNode{ID: "c", PeerAddr: "10.0.1.3:7403", Storage: true, Level: 2}},
	})
	if w.m.Node("a").PeerAddr != "10.0.0.2:7403" || w.m.Node("b").PeerAddr != "10.0.0.1:7403" || w.m.Node("c").PeerAddr != "10.0.1.3:7403" {
		t.Errorf("%+v", w.m.Nodes)
	}
}

func TestTheMapTakesSoManyNodesOnly(t *testing.T) {
	m := sample()
	for i := range MaxNodes - len(m.Nodes) {
		n := m.Nodes[4]
		n.ID = "n" + ReplicaID("", uint64(i))
		m.Nodes = putNode(m.Nodes, n)
	}
	runEdits(t, m, []try{
		{edit: RegisterNode{ID: "one-more", Storage: true, Level: 2}, is: ErrRefused, want: "takes no more"},
		{edit: RegisterNode{ID: "a", Storage: true, Level: 2}},
	})
}

func TestCopiesMoveOneAtATime(t *testing.T) {
	w := runEdits(t, sample(), []try{
		{edit: BeginMove{Shard: 0, From: "b", To: "d"}},
		{edit: BeginMove{Shard: 0, From: "b", To: "d"}, want: "="},
		{edit: BeginMove{Shard: 0, From: "c", To: "d"}, want: "finish or cancel", is: ErrRefused},
		{edit: SetReplicas{Shard: 0, Replicas: []Replica{{Node: "a"}}}, want: "finish or cancel", is: ErrRefused},
		{edit: SplitShard{Shard: 0, At: 5, New: 50}, want: "finish or cancel", is: ErrRefused},
		{edit: FinishMove{Shard: 0}, want: "no id yet", is: ErrRefused},
		{edit: NameReplica{Shard: 0, Node: "d", ID: ReplicaID("d", 77)}},
		{edit: NameReplica{Shard: 0, Node: "d", ID: ReplicaID("d", 77)}, want: "="},
		{edit: NameReplica{Shard: 0, Node: "d", ID: ReplicaID("d", 78)}, want: "already", is: ErrRefused},
		{edit: NameReplica{Shard: 0, Node: "e", ID: ReplicaID("e", 78)}, is: ErrUnknown},
		{edit: BeginMove{Shard: 0, From: "b", To: "d"}, want: "="}, // its copy was named meanwhile
		{edit: FinishMove{Shard: 0}},
		{edit: FinishMove{Shard: 0}, want: "does not move", is: ErrRefused},
		{edit: CancelMove{Shard: 0}, want: "="},
		{edit: BeginMove{Shard: 0, From: "b", To: "a"}, is: ErrRefused, want: "where it has no copy"},
		{edit: BeginMove{Shard: 0, From: "a", To: "b"}, is: ErrRefused, want: "which is draining"},
		{edit: BeginMove{Shard: 0, From: "a", To: "e"}, is: ErrRefused, want: "which is removed"},
		{edit: BeginMove{Shard: 0, From: "a", To: "c"}, is: ErrRefused, want: "has a copy already"},
		{edit: BeginMove{Shard: 0}, is: ErrRefused, want: "nowhere"},
		{edit: BeginMove{Shard: 5, From: "a", To: "c"}, is: ErrUnknown},
		{edit: BeginMove{Shard: 0, From: "a"}},
		{edit: CancelMove{Shard: 0}},
		{edit: BeginMove{Shard: 0, From: "a"}},
		{edit: FinishMove{Shard: 0}},
		{edit: BeginMove{Shard: 0, To: "a"}},
		{edit: NameReplica{Shard: 0, Node: "a", ID: ReplicaID("a", 79)}},
		{edit: FinishMove{Shard: 0}},
		{edit: FinishMove{Shard: 1}}, // the one of the sample
		{edit: BeginMove{Shard: CatalogShard, From: "b", To: "d"}},
		{edit: NameReplica{Shard: CatalogShard, Node: "c", ID: ReplicaID("c", 80)}},
		{edit: SetReplicas{Shard: 9, Replicas: []Replica{{Node: "c"}}}},
		{edit: SetReplicas{Shard: 9, Replicas: []Replica{{Node: "c"}, {Node: "c"}}}, is: ErrRefused, want: "two copies"},
		{edit: SetReplicas{Shard: 9}, is: ErrRefused, want: "0 copies"},
	})
	mustEqual(t, w.shard(0).Replicas, []Replica{{"d", ReplicaID("d", 77)}, {"c", ReplicaID("c", 12)}, {"a", ReplicaID("a", 79)}})
	mustEqual(t, w.shard(1).Replicas[1], Replica{"d", ReplicaID("d", 23)})
	mustEqual(t, *w.m.Catalog.Moving, Move{From: "b", To: "d"})
}

func TestShardsSplitAndSettingsChange(t *testing.T) {
	w := runEdits(t, sample(), []try{
		{edit: SplitShard{Shard: 9, At: 1500, New: 100}},
		{edit: SplitShard{Shard: 9, At: 1500, New: 100}, want: "="},
		{edit: SplitShard{Shard: 9, At: 1500, New: 101}, is: ErrRefused, want: "both parts need one"},
		{edit: SplitShard{Shard: 9, At: 1024, New: 101}, is: ErrRefused, want: "both parts need one"},
		{edit: SplitShard{Shard: 9, At: 1499, New: 100}, is: ErrRefused, want: "there is a shard 100"},
		{edit: SplitShard{Shard: CatalogShard, At: 1, New: 101}, is: ErrRefused, want: "no slots"},
		{edit: SplitShard{Shard: 9, At: 1100, New: CatalogShard}, is: ErrRefused, want: "no slots"},
		{edit: SplitShard{Shard: 77, At: 1, New: 101}, is: ErrUnknown},
		{edit: SetSchema{Text: []byte("more")}},
		{edit: SetSchema{Text: []byte("more")}, want: "="},
		{edit: SetReplication{Copies: 5}},
		{edit: SetReplication{}, is: ErrRefused, want: "replication is 0"},
		{edit: Found{Map: firstOf(sample())}, want: "="},
	})
	child := w.m.ShardOf(1500)
	mustEqual(t, *child, Shard{ID: 100, First: 1500, Last: 2047, Replicas: []Replica{{Node: "a"}, {Node: "b"}, {Node: "c"}}, Gen: 1, Changed: 901})
	if w.m.ShardOf(1499).ID != 9 || w.m.Replication != 5 || string(w.m.Schema) != "more" || w.m.SettingsVersion != 903 {
		t.Errorf("%+v", w.m)
	}
}

// A left-over founding makes no second cluster.
func TestAnotherClusterIsNotFoundedOverTheFirst(t *testing.T) {
	other := firstOf(sample())
	other.ClusterID = "another"
	runEdits(t, sample(), []try{{edit: Found{Map: other}, is: ErrRefused, want: "founded here already"}})
	w := newWorking(Map{})
	if _, err := w.apply(AnyVersion, SetReplication{Copies: 1}); !errors.Is(err, ErrUnfounded) {
		t.Error(err)
	}
	if _, err := w.apply(AnyVersion, Found{Map: sample()}); !errors.Is(err, ErrRefused) {
		t.Errorf("a first map of version %d: %v", sample().Version, err)
	}
}

func TestEditsOfWhatWasChangedMeanwhileAreStale(t *testing.T) {
	for _, c := range []struct {
		edit  Edit
		since uint64
	}{
		{BeginMove{Shard: 9, From: "a", To: "d"}, 890},
		{FinishMove{Shard: 1}, 899},
		{SetNodeState{ID: "a", State: Draining}, 5},
		{RegisterNode{ID: "a", Storage: true, PeerAddr: "new", Level: 2}, 5},
		{SetSchema{Text: []byte("x")}, 7},
		{SetReplication{Copies: 1}, 7},
		{SplitShard{Shard: 9, At: 1500, New: 100}, 890},
		{NameReplica{Shard: 9, Node: "a", ID: ReplicaID("a", 1)}, 890},
		{SetReplicas{Shard: 9, Replicas: []Replica{{Node: "a"}}}, 890},
		{CancelMove{Shard: 1}, 899},
	} {
		w := newWorking(*sample())
		if _, err := w.apply(c.since-1, c.edit); !errors.Is(err, ErrStale) || w.m.Version != 900 {
			t.Errorf("%T, seen %d: %v", c.edit, c.since-1, err)
		}
		if changed, err := w.apply(c.since, c.edit); err != nil || !changed || w.m.Version != 901 {
			t.Errorf("%T, seen %d: %v", c.edit, c.since, err)
		}
		// The answer was lost, and the editor tries again with what it had seen.
		if _, finish := c.edit.(FinishMove); !finish {
			if changed, err := w.apply(c.since, c.edit); err != nil || changed {
				t.Errorf("%T again: %v", c.edit, err)
			}
		}
	}
}
