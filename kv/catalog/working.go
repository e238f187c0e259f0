package catalog

import (
	"fmt"
	"slices"
)

// working is the map that commands are applied to, with what was changed since the
// last cut. Its slices are its own; what lies in a Node or Shard is replaced, never
// changed, since published maps share it.
type working struct {
	m  Map
	at map[uint32]int // place in m.Shards of each shard

	head, schema bool // to be cut
	nodes        map[string]bool
	shards       map[uint32]bool
}

// change is what an edit makes of a map: new values of the things it edits.
type change struct {
	founding *Map
	settings *settings
	node     *Node
	shards   []Shard
	level    uint32 // 0: as it was
}

type settings struct {
	replication int
	schema      []byte
}

func newWorking(m Map) *working {
	m.Nodes, m.Shards = slices.Clone(m.Nodes), slices.Clone(m.Shards)
	w := &working{m: m, nodes: make(map[string]bool), shards: make(map[uint32]bool)}
	w.index()
	return w
}

func (w *working) index() {
	w.at = make(map[uint32]int, len(w.m.Shards))
	for i := range w.m.Shards {
		w.at[w.m.Shards[i].ID] = i
	}
}

// shard returns a shard, or nil.
func (w *working) shard(id uint32) *Shard {
	if id == CatalogShard && w.m.Version > 0 {
		return &w.m.Catalog
	}
	i, ok := w.at[id]
	if !ok {
		return nil
	}
	return &w.m.Shards[i]
}

// apply makes one edit. An error is a refusal, and w is as it was.
func (w *working) apply(expected uint64, edit Edit) (changed bool, err error) {
	if _, founding := edit.(Found); w.m.Version == 0 && !founding {
		return false, ErrUnfounded
	}
	c, err := edit.propose(w)
	if err == nil && w.has(c) {
		return false, nil // made before: the answer was lost, or two had the same thought
	}
	if seen := edit.seen(w); seen > expected {
		return false, fmt.Errorf("%w: it is of version %d, the editor has seen %d", ErrStale, seen, expected)
	}
	if err != nil {
		return false, err
	}
	w.make(c)
	return true, nil
}

// has reports whether w is already what c makes of it.
func (w *working) has(c change) bool {
	if c.founding != nil {
		return false
	}
	if s := c.settings; s != nil && (s.replication != w.m.Replication || string(s.schema) != string(w.m.Schema)) {
		return false
	}
	if c.level > w.m.Level {
		return false
	}
	if c.node != nil {
		old := w.m.Node(c.node.ID)
		if old == nil {
			return false
		}
		same := *old
		same.Changed = c.node.Changed
		if same != *c.node {
			return false
		}
	}
	return !slices.ContainsFunc(c.shards, func(s Shard) bool {
		old := w.shard(s.ID)
		return old == nil || !sameShard(old, &s)
	})
}

// sameShard compares all but Changed.
func sameShard(a, b *Shard) bool {
	return a.ID == b.ID && a.First == b.First && a.Last == b.Last && slices.Equal(a.Replicas, b.Replicas) &&
		(a.Moving == nil) == (b.Moving == nil) && (a.Moving == nil || *a.Moving == *b.Moving) &&
		(a.Splitting == nil) == (b.Splitting == nil) && (a.Splitting == nil || *a.Splitting == *b.Splitting) && a.Gen == b.Gen
}

// make puts the new values in, as a new version.
func (w *working) make(c change) {
	w.head = true
	if c.founding != nil {
		*w = *newWorking(*c.founding)
		w.all()
		return
	}
	w.m.Version++
	if c.settings != nil {
		w.m.SettingsVersion = w.m.Version
		w.m.Replication, w.m.Schema = c.settings.replication, c.settings.schema
		w.schema = true
	}
	w.m.Level = max(w.m.Level, c.level)
	if c.node != nil {
		c.node.Changed = w.m.Version
		w.m.Nodes = putNode(w.m.Nodes, *c.node)
		w.nodes[c.node.ID] = true
	}
	for _, s := range c.shards {
		s.Changed = w.m.Version
		w.putShard(s)
	}
}

func (w *working) putShard(s Shard) {
	w.shards[s.ID] = true
	if old := w.shard(s.ID); old != nil {
		*old = s
		return
	}
	i, _ := slices.BinarySearchFunc(w.m.Shards, s.First, func(o Shard, first uint16) int { return int(o.First) - int(first) })
	w.m.Shards = slices.Insert(w.m.Shards, i, s)
	w.index()
}

// all marks everything to be cut.
func (w *working) all() {
	w.head, w.schema = true, true
	for _, n := range w.m.Nodes {
		w.nodes[n.ID] = true
	}
	w.shards[CatalogShard] = true
	for _, s := range w.m.Shards {
		w.shards[s.ID] = true
	}
}

// published returns the map as it is now, for readers.
func (w *working) published() *Map {
	m := w.m
	m.Nodes, m.Shards = slices.Clone(m.Nodes), slices.Clone(m.Shards)
	return &m
}
