package catalog

import "fmt"

// Place lays out the shards of a cluster that is being founded over its nodes: shards
// 0 to shards-1, each with replication copies, and the catalog's own copies. Of the
// nodes the active storage nodes count. Where these are too few for the replication,
// shards get as many copies as there is an odd number of nodes. The first copy of each
// shard founds its group.
func Place(nodes []Node, shards, replication int) ([]Shard, []Replica, error) {
	if shards < 1 || shards > NumSlots {
		return nil, nil, fmt.Errorf("catalog: %d shards, may be 1 to %d", shards, NumSlots)
	}
	if err := validateReplication(replication); err != nil {
		return nil, nil, fmt.Errorf("catalog: %w", err)
	}
	m := &Map{Version: 1, Replication: replication, Nodes: nodes, Catalog: Shard{ID: CatalogShard, First: 1}}
	for i := range shards {
		s := Shard{ID: uint32(i)}
		s.First, s.Last = SlotRange(i, shards)
		m.Shards = append(m.Shards, s)
	}
	l := newLayout(m, Situation{})
	if l.homes == 0 {
		return nil, nil, fmt.Errorf("catalog: none of %d nodes is an active storage node", len(nodes))
	}
	l.repair()
	l.level()
	for k := range l.spreads {
		p := &l.spreads[k]
		for _, i := range p.at {
			p.shard.Replicas = append(p.shard.Replicas, Replica{Node: l.places[i].node.ID})
		}
	}
	first(m.Shards, PreferredLeaders(m, Situation{}))
	return m.Shards, m.Catalog.Replicas, nil
}
