package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors of maps that come from elsewhere. They are wrapped; test with errors.Is.
var (
	// ErrForeign: the map is of another cluster, or of data that was restored since.
	ErrForeign = errors.New("map of another cluster")
	// ErrGap: the delta begins after the map that it is to be added to. Ask for what
	// changed since the version of that map.
	ErrGap = errors.New("map lacks what lies before the delta")
)

// Formats of documents: 2 has feature levels. Format 1 is read, and not written any more.
const (
	formatVersion = 2
	formatLevels  = 2
)

// Delta is what changed in a map since one of its versions. A whole map is what
// changed since version 0. It is what followers of the catalog are sent: a cluster of
// 1,000 nodes would otherwise send a whole map a thousand times for each edit.
type Delta struct {
	// Base is the version since which these parts changed.
	Base uint64
	// Part has the head of the map and, of the rest, what changed: Schema only where
	// SettingsVersion > Base, Catalog only where its Changed > Base (else zero), and
	// the nodes and shards whose Changed > Base. None ever vanishes from a map.
	Part Map
}

// Since returns what changed in m since version base. It shares memory with m.
func (m *Map) Since(base uint64) Delta {
	d := Delta{Base: base, Part: *m}
	if base == 0 {
		return d
	}
	if m.SettingsVersion <= base {
		d.Part.Schema = nil
	}
	if m.Catalog.Changed <= base {
		d.Part.Catalog = Shard{}
	}
	d.Part.Nodes, d.Part.Shards = nil, nil
	for _, n := range m.Nodes {
		if n.Changed > base {
			d.Part.Nodes = append(d.Part.Nodes, n)
		}
	}
	for _, s := range m.Shards {
		if s.Changed > base {
			d.Part.Shards = append(d.Part.Shards, s)
		}
	}
	return d
}

// Advance returns the map that m becomes with d: m itself where that is not older,
// else a new map, validated. m may be nil.
func (m *Map) Advance(d Delta) (*Map, error) {
	if m == nil {
		m = &Map{}
	}
	switch {
	case m.Version != 0 && (m.ClusterID != d.Part.ClusterID || m.Timeline != d.Part.Timeline):
		return nil, fmt.Errorf("%w: %q, timeline %016x; this one is of %q, timeline %016x",
			ErrForeign, d.Part.ClusterID, d.Part.Timeline, m.ClusterID, m.Timeline)
	case d.Part.Version <= m.Version:
		return m, nil
	case d.Base > m.Version:
		return nil, fmt.Errorf("%w: it is of version %d, the delta begins after %d", ErrGap, m.Version, d.Base)
	}
	next := d.Part
	if d.Base > 0 {
		if next.SettingsVersion <= d.Base {
			next.Schema = m.Schema
		}
		if next.Catalog.Changed == 0 {
			next.Catalog = m.Catalog
		}
		next.Nodes = mergeNodes(m.Nodes, d.Part.Nodes)
		next.Shards = mergeShards(m.Shards, d.Part.Shards)
	}
	if err := next.Validate(); err != nil {
		return nil, fmt.Errorf("catalog: delta from %d to %d: %w", d.Base, d.Part.Version, err)
	}
	return &next, nil
}

func mergeNodes(old, changed []Node) []Node {
	nodes := slices.Clone(old)
	for _, n := range changed {
		nodes = putNode(nodes, n)
	}
	return nodes
}

// putNode sets or inserts a node.
func putNode(nodes []Node, n Node) []Node {
	i, found := findNode(nodes, n.ID)
	if found {
		nodes[i] = n
		return nodes
	}
	return slices.Insert(nodes, i, n)
}

// mergeShards replaces shards by number: a split changes where the parent ends and
// adds a shard.
func mergeShards(old, changed []Shard) []Shard {
	gone := make(map[uint32]bool, len(changed))
	for _, s := range changed {
		gone[s.ID] = true
	}
	shards := slices.Clone(changed)
	for _, s := range old {
		if !gone[s.ID] {
			shards = append(shards, s)
		}
	}
	slices.SortFunc(shards, func(a, b Shard) int { return int(a.First) - int(b.First) })
	return shards
}

// Encode returns the bytes of a whole map.
func (m *Map) Encode() []byte { return m.Since(0).Encode() }

// DecodeMap reads what Map.Encode wrote, and validates it. Anything else is an error
// marked kv.ErrCorruption.
func DecodeMap(b []byte) (*Map, error) {
	d, err := DecodeDelta(b)
	if err != nil {
		return nil, err
	}
	if d.Base != 0 {
		return nil, corruptf("map of %d bytes: what changed since version %d only", len(b), d.Base)
	}
	if err := d.Part.Validate(); err != nil {
		return nil, corrupt(err)
	}
	return &d.Part, nil
}

// Encode returns the bytes of d; doc.go draws them.
func (d Delta) Encode() []byte {
	p, e := &d.Part, newEncoder(formatVersion)
	e.uvarint(d.Base)
	e.head(p)
	if p.SettingsVersion > d.Base {
		e.bytes(p.Schema)
	}
	e.uvarint(uint64(len(p.Nodes)))
	for i := range p.Nodes {
		e.node(&p.Nodes[i])
	}
	shards := len(p.Shards)
	if p.Catalog.Changed > d.Base {
		shards++
	}
	e.uvarint(uint64(shards))
	if p.Catalog.Changed > d.Base {
		e.shard(&p.Catalog)
	}
	for i := range p.Shards {
		e.shard(&p.Shards[i])
	}
	return e.b
}

// head writes all of a map that is no list, but the schema.
func (e *encoder) head(m *Map) {
	e.uvarint(m.Version)
	e.string(m.ClusterID)
	e.uint64(m.Timeline)
	e.uvarint(uint64(m.Level))
	e.uvarint(m.SettingsVersion)
	e.uvarint(uint64(m.Replication))
	e.bytes(m.PageKey)
}

func (d *decoder) head() Map {
	m := Map{Version: d.uvarint(maxVersion), ClusterID: d.string(MaxClusterID), Timeline: d.uint64()}
	m.Level = d.level()
	m.SettingsVersion = d.uvarint(maxVersion)
	m.Replication = int(d.uvarint(MaxReplication))
	m.PageKey = d.bytes(MaxPageKey)
	return m
}

// DecodeDelta reads what Delta.Encode wrote. Anything else is an error marked
// kv.ErrCorruption. That its parts fit together is known once Advance has taken it.
func DecodeDelta(b []byte) (Delta, error) {
	d := newDecoder(b)
	if d.bad {
		return Delta{}, corruptf("map of %d bytes: unknown format", len(b))
	}
	out := Delta{Base: d.uvarint(maxVersion)}
	out.Part = d.head()
	if out.Part.SettingsVersion > out.Base {
		out.Part.Schema = d.bytes(MaxSchema)
	}
	d.nodes(&out)
	d.shards(&out)
	return out, d.end("map", len(b))
}

// nodes reads the nodes of a delta, strictly ascending and changed since its base.
func (d *decoder) nodes(out *Delta) {
	for n := d.uvarint(MaxNodes); n > 0 && !d.bad; n-- {
		node := d.node()
		if k := len(out.Part.Nodes); node.Changed <= out.Base || k > 0 && strings.Compare(out.Part.Nodes[k-1].ID, node.ID) >= 0 {
			d.bad = true
		}
		out.Part.Nodes = append(out.Part.Nodes, node)
	}
}

// shards reads the shards of a delta: first perhaps the catalog's own group, then by
// their slots.
func (d *decoder) shards(out *Delta) {
	for n := d.uvarint(NumSlots + 1); n > 0 && !d.bad; n-- {
		s := d.shard()
		k := len(out.Part.Shards)
		switch {
		case s.Changed <= out.Base:
			d.bad = true
		case s.ID == CatalogShard && k == 0 && out.Part.Catalog.Changed == 0:
			out.Part.Catalog = s
		case s.ID == CatalogShard, k > 0 && out.Part.Shards[k-1].First >= s.First:
			d.bad = true
		default:
			out.Part.Shards = append(out.Part.Shards, s)
		}
	}
}
