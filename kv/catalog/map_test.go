package catalog

import (
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample is a small map with something in every field.
func sample() *Map {
	replica := func(node string, n uint64) Replica { return Replica{Node: node, ID: ReplicaID(node, n)} }
	return &Map{
		Version: 900, ClusterID: "00112233-4455-4677-8899-aabbccddeeff", Timeline: 0x0123456789abcdef,
		PageKey: []byte("0123456789abcdef0123456789abcdef"), SettingsVersion: 7, Replication: 3, Schema: []byte("vertices: [user]\n"),
		Level: 2,
		Nodes: []Node{
			{ID: "a", Incarnation: 0xfedcba9876543210, PeerAddr: "10.0.0.1:7403", GRPCAddr: "10.0.0.1:7400", Gateway: true, Storage: true, State: Active, Zone: "east", Level: 2, Changed: 5},
			{ID: "b", PeerAddr: "10.0.0.2:7403", GRPCAddr: "10.0.0.2:7400", Storage: true, State: Draining, Zone: "west", Level: 4, Changed: 900},
			{ID: "c", PeerAddr: "10.0.0.3:7403", Storage: true, State: Active, Level: 2, Changed: 300},
			{ID: "d", PeerAddr: "10.0.0.4:7403", Storage: true, State: Active, Level: 3, Changed: 2},
			{ID: "e", PeerAddr: "10.0.0.5:7403", Gateway: true, State: Removed, Level: 1, Changed: 800},
		},
		Catalog: Shard{ID: CatalogShard, First: 1, Replicas: []Replica{replica("a", 1), replica("b", 2), {Node: "c"}}, Changed: 6},
		Shards: []Shard{
			{ID: 0, First: 0, Last: 1023, Replicas: []Replica{replica("a", 10), replica("b", 11), replica("c", 12)}, Changed: 3},
			{ID: 9, First: 1024, Last: 2047, Replicas: []Replica{{Node: "a"}, {Node: "b"}, {Node: "c"}}, Changed: 890},
			{
				ID: 1, First: 2048, Last: 4095, Replicas: []Replica{replica("c", 20), replica("b", 21), replica("a", 22)},
				Moving: &Move{From: "b", To: "d", ID: ReplicaID("d", 23)}, Changed: 899,
			},
		},
	}
}

// firstOf is the map of a cluster founded as m is.
func firstOf(m *Map) *Map {
	first, err := FirstMap(*m)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return first
}

func mustEqual[T any](t *testing.T, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestASampleMapIsSound(t *testing.T) {
	for _, m := range []*Map{sample(), firstOf(sample()), {}} {
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestValidateFindsWhatIsWrong(t *testing.T) {
	for want, spoil := range map[string]func(m *Map){
		"version 0 has content":      func(m *Map) { m.Version = 0 },
		"cluster id of 0":            func(m *Map) { m.ClusterID = "" },
		"cluster id of 65":           func(m *Map) { m.ClusterID = strings.Repeat("x", 65) },
		"page key":                   func(m *Map) { m.PageKey = make([]byte, MaxPageKey+1) },
		"schema of":                  func(m *Map) { m.Schema = make([]byte, MaxSchema+1) },
		"replication is 0":           func(m *Map) { m.Replication = 0 },
		"replication is 8":           func(m *Map) { m.Replication = 8 },
		"settings of version 901":    func(m *Map) { m.SettingsVersion = 901 },
		"settings of version 0":      func(m *Map) { m.SettingsVersion = 0 },
		"4097 nodes":                 func(m *Map) { m.Nodes = make([]Node, MaxNodes+1) },
		"not in ascending order":     func(m *Map) { m.Nodes[1].ID = "a" },
		`node id "a b"`:              func(m *Map) { m.Nodes[0].ID = "a b" },
		`node id ""`:                 func(m *Map) { m.Nodes[0].ID = "" },
		"address of 256":             func(m *Map) { m.Nodes[0].GRPCAddr = strings.Repeat("x", 256) },
		"zone of 65":                 func(m *Map) { m.Nodes[0].Zone = strings.Repeat("x", 65) },
		"neither a gateway":          func(m *Map) { m.Nodes[4].Gateway = false },
		"node state 0":               func(m *Map) { m.Nodes[0].State = 0 },
		"node state 5":               func(m *Map) { m.Nodes[0].State = 5 },
		"level 3, and the lowest":    func(m *Map) { m.Level = 3 },
		"level 0, and the lowest":    func(m *Map) { m.Level = 0 },
		"node e is of level 0":       func(m *Map) { m.Nodes[4].Level = 0 },
		"node a is of version 901":   func(m *Map) { m.Nodes[0].Changed = 901 },
		"node a is of version 0":     func(m *Map) { m.Nodes[0].Changed = 0 },
		"the catalog's group":        func(m *Map) { m.Catalog.Last = 5 },
		"the catalog's own":          func(m *Map) { m.Shards[1].ID = CatalogShard },
		"shard 0 is there twice":     func(m *Map) { m.Shards[1].ID = 0 },
		"begins at slot 1023":        func(m *Map) { m.Shards[1].First = 1023 },
		"begins at slot 1025":        func(m *Map) { m.Shards[1].First = 1025 },
		"begins at slot 1,":          func(m *Map) { m.Shards[0].First = 1 },
		"slots 2048 to 4096":         func(m *Map) { m.Shards[2].Last = 4096 },
		"slots 1024 to 1023":         func(m *Map) { m.Shards[1].Last = 1023 },
		"slots from 4095 on":         func(m *Map) { m.Shards[2].Last = 4094 },
		"slots from 0 on":            func(m *Map) { m.Shards = nil },
		"shard 9 is of version 901":  func(m *Map) { m.Shards[1].Changed = 901 },
		"shard 9 is of version 0":    func(m *Map) { m.Shards[1].Changed = 0 },
		"shard 0 has 0 copies":       func(m *Map) { m.Shards[0].Replicas = nil },
		"shard 0 has 8 copies":       func(m *Map) { m.Shards[0].Replicas = make([]Replica, 8) },
		"two copies on node a":       func(m *Map) { m.Shards[0].Replicas[2] = m.Shards[0].Replicas[0] },
		`"x", which is not`:          func(m *Map) { m.Shards[0].Replicas[0].Node = "x" },
		"e, which is no storage":     func(m *Map) { m.Shards[0].Replicas[0] = Replica{Node: "e"} },
		"c, which was removed":       func(m *Map) { m.Nodes[2].State = Removed },
		"not an id of a replica":     func(m *Map) { m.Shards[0].Replicas[0].ID = "b-000000000000000a" },
		"not an id of a replica ":    func(m *Map) { m.Shards[0].Replicas[0].ID = "a-000000000000000A" },
		"from nowhere to nowhere":    func(m *Map) { m.Shards[2].Moving = &Move{} },
		`from node "d", where`:       func(m *Map) { m.Shards[2].Moving = &Move{From: "d", To: "b"} },
		"to node a, where it has":    func(m *Map) { m.Shards[2].Moving = &Move{From: "b", To: "a"} },
		"may not lose its only":      func(m *Map) { m.Shards[2].Replicas = m.Shards[2].Replicas[1:2]; m.Shards[2].Moving = &Move{From: "b"} },
		"and names \"b-00":           func(m *Map) { m.Shards[2].Moving = &Move{From: "b", ID: ReplicaID("b", 1)} },
		"copy on node e, which is":   func(m *Map) { m.Shards[2].Moving = &Move{To: "e"} },
		"on node \"x\", which is":    func(m *Map) { m.Shards[2].Moving = &Move{To: "x"} },
		"shard 4294967295 has 0 cop": func(m *Map) { m.Catalog.Replicas = nil },
	} {
		m := sample()
		spoil(m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestLookups(t *testing.T) {
	m := sample()
	for slot, want := range map[uint16]uint32{0: 0, 1023: 0, 1024: 9, 2047: 9, 2048: 1, 4095: 1} {
		if s := m.ShardOf(slot); s == nil || s.ID != want {
			t.Errorf("slot %d: %+v", slot, s)
		}
	}
	if m.ShardOf(4096) != nil || (&Map{}).ShardOf(0) != nil {
		t.Error("a slot that has no shard got one")
	}
	if m.Shard(9).First != 1024 || m.Shard(77) != nil || m.Shard(CatalogShard) != &m.Catalog {
		t.Error("Shard")
	}
	if m.Node("b").State != Draining || m.Node("bb") != nil || m.Node("") != nil {
		t.Error("Node")
	}
}

// Shards of a founded cluster have the slots that a data directory of that many
// shards gave them.
func TestSlotRangesCoverAllSlots(t *testing.T) {
	for n := 1; n <= NumSlots; n++ {
		next := 0
		for i := range n {
			first, last := SlotRange(i, n)
			if int(first) != next || last < first || int(first)*n/NumSlots != i || int(last)*n/NumSlots != i {
				t.Fatalf("shard %d of %d: %d to %d", i, n, first, last)
			}
			next = int(last) + 1
		}
		if next != NumSlots {
			t.Fatalf("%d shards end at %d", n, next)
		}
	}
}
