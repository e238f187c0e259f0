package catalog

import (
	"errors"
	"fmt"
	"strings"
)

// Validate returns what is wrong with a map, nil for a sound one. An unfounded map,
// all zero, is sound.
func (m *Map) Validate() error {
	if m.Version == 0 {
		return m.validateUnfounded()
	}
	if err := m.validateHead(); err != nil {
		return err
	}
	for i := range m.Nodes {
		if err := m.Nodes[i].validate(m.Version); err != nil {
			return err
		}
		if i > 0 && m.Nodes[i-1].ID >= m.Nodes[i].ID {
			return fmt.Errorf("nodes %q and %q are not in ascending order", m.Nodes[i-1].ID, m.Nodes[i].ID)
		}
	}
	if m.Catalog.ID != CatalogShard || m.Catalog.First != 1 || m.Catalog.Last != 0 {
		return fmt.Errorf("the catalog's group is shard %d with slots %d to %d", m.Catalog.ID, m.Catalog.First, m.Catalog.Last)
	}
	if err := m.validateCopies(&m.Catalog); err != nil {
		return err
	}
	return m.validateShards()
}

func (m *Map) validateUnfounded() error {
	if m.ClusterID != "" || m.Timeline != 0 || len(m.PageKey) != 0 || m.Level != 0 || m.SettingsVersion != 0 || m.Replication != 0 ||
		len(m.Schema) != 0 || len(m.Nodes) != 0 || len(m.Shards) != 0 ||
		m.Catalog.ID != 0 || m.Catalog.Changed != 0 || m.Catalog.Replicas != nil || m.Catalog.Moving != nil {
		return errors.New("a map of version 0 has content")
	}
	return nil
}

func (m *Map) validateHead() error {
	switch {
	case m.ClusterID == "" || len(m.ClusterID) > MaxClusterID:
		return fmt.Errorf("cluster id of %d bytes, may be 1 to %d", len(m.ClusterID), MaxClusterID)
	case len(m.PageKey) > MaxPageKey:
		return fmt.Errorf("page key of %d bytes, may be %d at most", len(m.PageKey), MaxPageKey)
	case len(m.Schema) > MaxSchema:
		return fmt.Errorf("schema of %d bytes, may be %d at most", len(m.Schema), MaxSchema)
	case len(m.Nodes) > MaxNodes:
		return fmt.Errorf("%d nodes, may be %d at most, removed ones included", len(m.Nodes), MaxNodes)
	case m.Level < FirstLevel || m.Level > m.LowestLevel():
		return fmt.Errorf("level %d, and the lowest of the nodes is %d", m.Level, m.LowestLevel())
	case m.SettingsVersion == 0 || m.SettingsVersion > m.Version:
		return fmt.Errorf("settings of version %d in a map of version %d", m.SettingsVersion, m.Version)
	}
	return validateReplication(m.Replication)
}

func validateReplication(n int) error {
	if n < 1 || n > MaxReplication {
		return fmt.Errorf("replication is %d, may be 1 to %d", n, MaxReplication)
	}
	return nil
}

func (n *Node) validate(version uint64) error {
	switch {
	case !validNodeID(n.ID):
		return fmt.Errorf("node id %q: 1 to %d letters, digits, '.', '_' and '-'", n.ID, MaxNodeID)
	case len(n.PeerAddr) > MaxAddress || len(n.GRPCAddr) > MaxAddress:
		return fmt.Errorf("node %s: address of %d bytes, may be %d at most", n.ID, max(len(n.PeerAddr), len(n.GRPCAddr)), MaxAddress)
	case len(n.Zone) > MaxZone:
		return fmt.Errorf("node %s: zone of %d bytes, may be %d at most", n.ID, len(n.Zone), MaxZone)
	case !n.Gateway && !n.Storage:
		return fmt.Errorf("node %s is neither a gateway nor a storage node", n.ID)
	case n.State < Active || n.State > Leaving:
		return fmt.Errorf("node %s is in %v", n.ID, n.State)
	case n.Level < FirstLevel || n.Level > MaxLevel:
		return fmt.Errorf("node %s is of level %d", n.ID, n.Level)
	case n.Changed == 0 || n.Changed > version:
		return fmt.Errorf("node %s is of version %d in a map of version %d", n.ID, n.Changed, version)
	}
	return nil
}

func validNodeID(id string) bool {
	return id != "" && len(id) <= MaxNodeID && strings.Trim(id,
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// validateShards checks that every slot has one shard.
func (m *Map) validateShards() error {
	next, seen := 0, make(map[uint32]bool, len(m.Shards))
	for i := range m.Shards {
		s := &m.Shards[i]
		switch {
		case s.ID == CatalogShard:
			return fmt.Errorf("shard %d is the catalog's own and may have no slots", s.ID)
		case seen[s.ID]:
			return fmt.Errorf("shard %d is there twice", s.ID)
		case s.First > s.Last || s.Last >= NumSlots:
			return fmt.Errorf("shard %d has slots %d to %d of %d", s.ID, s.First, s.Last, NumSlots)
		case int(s.First) != next:
			return fmt.Errorf("shard %d begins at slot %d, and the one before it ends at %d", s.ID, s.First, next-1)
		}
		if v := s.Splitting; v != nil && (v.At <= s.First || v.At > s.Last || v.New >= NumSlots || s.Moving != nil) {
			return fmt.Errorf("shard %d is to be split at %d into %d", s.ID, v.At, v.New)
		}
		if err := m.validateCopies(s); err != nil {
			return err
		}
		seen[s.ID], next = true, int(s.Last)+1
	}
	if next != NumSlots {
		return fmt.Errorf("slots from %d on have no shard", next)
	}
	return nil
}

func (m *Map) validateCopies(s *Shard) error {
	if s.Changed == 0 || s.Changed > m.Version {
		return fmt.Errorf("shard %d is of version %d in a map of version %d", s.ID, s.Changed, m.Version)
	}
	if err := m.validateReplicas(s.ID, s.Replicas); err != nil {
		return err
	}
	if s.Moving == nil {
		return nil
	}
	return m.validateMove(s)
}

func (m *Map) validateReplicas(shard uint32, replicas []Replica) error {
	if len(replicas) == 0 || len(replicas) > MaxReplication {
		return fmt.Errorf("shard %d has %d copies, may have 1 to %d", shard, len(replicas), MaxReplication)
	}
	for i, r := range replicas {
		if err := m.validateHolder(shard, r.Node, r.ID); err != nil {
			return err
		}
		for _, other := range replicas[:i] {
			if other.Node == r.Node {
				return fmt.Errorf("shard %d has two copies on node %s", shard, r.Node)
			}
		}
	}
	return nil
}

// validateHolder checks that a node may hold a copy of a shard, under this replica id.
func (m *Map) validateHolder(shard uint32, node, id string) error {
	n := m.Node(node)
	switch {
	case n == nil:
		return fmt.Errorf("shard %d has a copy on node %q, which is not in the map", shard, node)
	case !n.Storage:
		return fmt.Errorf("shard %d has a copy on node %s, which is no storage node", shard, node)
	case n.State == Removed:
		return fmt.Errorf("shard %d has a copy on node %s, which was removed", shard, node)
	case id == "":
		return nil
	}
	if _, ok := replicaNumber(node, id); !ok {
		return fmt.Errorf("shard %d has replica %q on node %s: not an id of a replica there", shard, id, node)
	}
	return nil
}

func (m *Map) validateMove(s *Shard) error {
	v := s.Moving
	switch {
	case v.From == "" && v.To == "":
		return fmt.Errorf("shard %d has a move from nowhere to nowhere", s.ID)
	case v.From != "" && s.On(v.From) < 0:
		return fmt.Errorf("shard %d moves from node %q, where it has no copy", s.ID, v.From)
	case v.From == "" && len(s.Replicas) == MaxReplication:
		return fmt.Errorf("shard %d has %d copies and may not gain one", s.ID, MaxReplication)
	case v.To == "" && len(s.Replicas) == 1:
		return fmt.Errorf("shard %d may not lose its only copy", s.ID)
	case v.To == "" && v.ID != "":
		return fmt.Errorf("shard %d loses a copy, and names %q as the new one", s.ID, v.ID)
	case v.To == "":
		return nil
	case s.On(v.To) >= 0:
		return fmt.Errorf("shard %d moves to node %s, where it has a copy already", s.ID, v.To)
	}
	return m.validateHolder(s.ID, v.To, v.ID)
}
