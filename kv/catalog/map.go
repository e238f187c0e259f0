package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NumSlots is the number of hash slots that the shards of a map cover.
const NumSlots = 4096

// CatalogShard is the shard number of the catalog's own group.
const CatalogShard = 0xFFFFFFFF

// Limits of a map. They are part of the format: a decoder refuses more.
const (
	// MaxNodes bounds the nodes, removed ones included: these are kept so that they
	// cannot come back. It is four times the largest cluster that the planner was
	// measured with.
	MaxNodes = 4096
	// MaxReplication bounds the copies of a shard. More than seven voters slow every
	// write and make no cluster safer.
	MaxReplication = 7
	// MaxSchema bounds the text of the schema, in bytes: half of what fits a log entry
	// beside other commands.
	MaxSchema = 512 << 10
	// MaxNodeID, MaxAddress and MaxZone bound texts of a node, in bytes.
	MaxNodeID, MaxAddress, MaxZone = 64, 255, 64
	// MaxClusterID and MaxPageKey bound those of a map, in bytes.
	MaxClusterID, MaxPageKey = 64, 64
)

// Map says what a cluster consists of. A map that others can see is never changed:
// an edit makes a new one.
type Map struct {
	// Version counts the edits that changed the map. 0: the cluster is not founded, and
	// everything else is zero.
	Version   uint64
	ClusterID string
	Timeline  uint64 // of the data; a restore draws a new one
	PageKey   []byte // signs page tokens; a secret

	// SettingsVersion is the version that changed Replication or Schema last.
	SettingsVersion uint64
	Replication     int    // copies wanted of each shard, 1 to MaxReplication
	Schema          []byte // text; what it means is the caller's affair

	// Level is the feature level of the cluster: no log has an entry, and no message a
	// part, that a node of this level cannot read. It is never lowered.
	Level uint32

	Nodes   []Node  // ascending by ID
	Catalog Shard   // the catalog's own group, without slots
	Shards  []Shard // ascending by First; they cover all slots
}

// Node is a process with a data directory.
type Node struct {
	ID string
	// Incarnation was drawn when the node's stores were made. Another one under the
	// same ID is a node whose data was wiped. 0: not known.
	Incarnation uint64
	PeerAddr    string // of the peer port
	GRPCAddr    string // for clients
	Gateway     bool
	Storage     bool
	State       NodeState
	Zone        string // rack, room or data centre; "" where nobody said
	Level       uint32 // the highest feature level that the node can read
	Changed     uint64 // version of the map that changed the node last
}

// NodeState says what is wanted of a node. Whether it is up is no part of a map.
type NodeState byte

// The states of a node. They are stored.
const (
	Active   NodeState = 1
	Draining NodeState = 2 // its copies of shards are to be moved elsewhere
	Removed  NodeState = 3 // for good: its id never comes back
	Leaving  NodeState = 4 // draining, and to be removed once it holds nothing
)

func (s NodeState) String() string {
	switch s {
	case Active:
		return "active"
	case Draining:
		return "draining"
	case Removed:
		return "removed"
	case Leaving:
		return "leaving"
	}
	return "node state " + strconv.Itoa(int(s))
}

// Drains reports whether the node's copies are to be moved elsewhere.
func (n *Node) Drains() bool { return n.State == Draining || n.State == Leaving }

// LowestLevel is the lowest level of the nodes that are not removed: what the cluster's
// can be raised to.
func (m *Map) LowestLevel() uint32 {
	lowest := uint32(MaxLevel)
	for i := range m.Nodes {
		if n := &m.Nodes[i]; n.State != Removed {
			lowest = min(lowest, n.Level)
		}
	}
	return lowest
}

// Shard is a Raft group over the slots First to Last.
type Shard struct {
	ID          uint32
	First, Last uint16
	// Replicas are where copies are wanted, once Moving has ended. The first one founds
	// the group and is the first choice for its leader.
	Replicas []Replica
	Moving   *Move
	// Splitting: the slots from At on are to become shard New. They are still this one's.
	Splitting *Split
	// Gen counts the splits that led to these slots. Of two maps that disagree about the
	// owner of a slot the one with the higher generation is the newer.
	Gen     uint32
	Changed uint64 // version of the map that changed the shard last
}

// Replica is one copy of a shard.
type Replica struct {
	Node string
	ID   string // "<node id>-<16 hexadecimal digits>" (RULES A8); "" until made
}

// Move is a change of one copy of a shard that is under way: To joins without a vote,
// catches up and is promoted; then From is removed. From is empty where the shard
// gains a copy, To where it loses one.
type Move struct {
	From, To string // node ids
	ID       string // replica id of the copy on To; "" until made
}

// Split is what a shard is to be split into.
type Split struct {
	At  uint16
	New uint32
}

// NextShard returns the least number that no shard has, or is to have.
func (m *Map) NextShard() uint32 {
	next := uint32(0)
	for i := range m.Shards {
		s := &m.Shards[i]
		next = max(next, s.ID+1)
		if s.Splitting != nil {
			next = max(next, s.Splitting.New+1)
		}
	}
	return next
}

// FirstMap returns m as the map of a cluster that is being founded: of version 1, with
// all lists in order. Of m.Catalog only the copies count.
func FirstMap(m Map) (*Map, error) {
	m.Version, m.SettingsVersion = 1, 1
	m.Level = m.LowestLevel()
	m.Catalog = Shard{ID: CatalogShard, First: 1, Replicas: m.Catalog.Replicas, Changed: 1}
	m.Nodes, m.Shards = slices.Clone(m.Nodes), slices.Clone(m.Shards)
	for i := range m.Nodes {
		m.Nodes[i].Changed = 1
	}
	for i := range m.Shards {
		m.Shards[i].Changed = 1
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(m.Shards, func(a, b Shard) int { return int(a.First) - int(b.First) })
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("catalog: first map: %w", err)
	}
	return &m, nil
}

// Node returns the node with an id, or nil. It belongs to the map.
func (m *Map) Node(id string) *Node {
	i, ok := findNode(m.Nodes, id)
	if !ok {
		return nil
	}
	return &m.Nodes[i]
}

func findNode(nodes []Node, id string) (int, bool) {
	return slices.BinarySearchFunc(nodes, id, func(n Node, id string) int { return strings.Compare(n.ID, id) })
}

// Shard returns the shard with a number, or nil; for CatalogShard the catalog's own
// group. It belongs to the map. It looks at one shard after the other: who asks
// often keeps an index, and routes by ShardOf.
func (m *Map) Shard(id uint32) *Shard {
	if id == CatalogShard {
		return &m.Catalog
	}
	i := slices.IndexFunc(m.Shards, func(s Shard) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &m.Shards[i]
}

// ShardOf returns the shard that owns a slot; nil in a map that is not founded. It
// belongs to the map.
func (m *Map) ShardOf(slot uint16) *Shard {
	i, found := slices.BinarySearchFunc(m.Shards, slot, func(s Shard, slot uint16) int { return int(s.First) - int(slot) })
	if !found {
		i--
	}
	if i < 0 || slot > m.Shards[i].Last {
		return nil
	}
	return &m.Shards[i]
}

// On returns the place in s.Replicas of the copy on a node, or -1.
func (s *Shard) On(node string) int {
	return slices.IndexFunc(s.Replicas, func(r Replica) bool { return r.Node == node })
}

// SlotRange returns the slots of shard i of n of a cluster that is being founded.
func SlotRange(i, n int) (first, last uint16) {
	return uint16((i*NumSlots + n - 1) / n), uint16(((i+1)*NumSlots+n-1)/n - 1)
}

// ReplicaID is the id of the copy of a shard with a number, on a node.
func ReplicaID(node string, number uint64) string { return fmt.Sprintf("%s-%016x", node, number) }

// replicaNumber is the number in a replica's id on node.
func replicaNumber(node, id string) (uint64, bool) {
	digits, ok := strings.CutPrefix(id, node+"-")
	if !ok || len(digits) != 16 || strings.ToLower(digits) != digits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	return n, err == nil
}
