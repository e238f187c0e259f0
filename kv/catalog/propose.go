package catalog

import (
	"fmt"
	"slices"
)

// This file decides what each edit makes of the map, or why it is refused. It is part
// of the replicated state: a change of what it decides is switched by a logged version
// (RULES B7), or replicas of the catalog come to differ.

func (c Found) seen(*working) uint64 { return 0 }

func (c Found) propose(w *working) (change, error) {
	switch {
	case w.m.Version == 0 && c.Map.Version != 1:
		return change{}, fmt.Errorf("%w: the first map has version %d, not 1", ErrRefused, c.Map.Version)
	case w.m.Version == 0:
		return change{founding: c.Map}, nil
	case c.Map.ClusterID != w.m.ClusterID:
		return change{}, fmt.Errorf("%w: cluster %s was founded here already, cluster %s is not founded beside it",
			ErrRefused, w.m.ClusterID, c.Map.ClusterID)
	}
	return change{}, nil
}

func (c RegisterNode) seen(w *working) uint64 { return nodeChanged(w, c.ID) }
func (c SetNodeState) seen(w *working) uint64 { return nodeChanged(w, c.ID) }

func nodeChanged(w *working, id string) uint64 {
	if n := w.m.Node(id); n != nil {
		return n.Changed
	}
	return 0
}

func (c RegisterNode) propose(w *working) (change, error) {
	n := Node{
		ID: c.ID, Incarnation: c.Incarnation, PeerAddr: c.PeerAddr, GRPCAddr: c.GRPCAddr,
		Gateway: c.Gateway, Storage: c.Storage, Zone: c.Zone, State: Active, Level: c.Level, Changed: w.m.Version,
	}
	if err := n.validate(w.m.Version); err != nil {
		return change{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if c.Level < w.m.Level {
		return change{}, fmt.Errorf("%w: node %s reads what programs of level %d write, and this cluster is at level %d: "+
			"start it with the newer program", ErrRefused, c.ID, c.Level, w.m.Level)
	}
	old := w.m.Node(c.ID)
	if old == nil {
		if len(w.m.Nodes) >= MaxNodes {
			return change{}, fmt.Errorf("%w: the map has %d nodes, removed ones included, and takes no more", ErrRefused, MaxNodes)
		}
		return change{node: &n}, nil
	}
	switch {
	case old.State == Removed:
		return change{}, fmt.Errorf("%w: node %s does not come back under its id: start it with an empty data directory, "+
			"and it joins under a new one", ErrRemoved, c.ID)
	case old.Incarnation != 0 && c.Incarnation != 0 && old.Incarnation != c.Incarnation:
		return change{}, fmt.Errorf("%w: node %s was known with data %016x and comes with %016x: its data was wiped, or another "+
			"node has its id. Start it under a new id, and remove the old one with `liana cluster remove-node %s`",
			ErrWiped, c.ID, old.Incarnation, c.Incarnation, c.ID)
	case old.Storage && !c.Storage && w.holds(c.ID) > 0:
		return change{}, fmt.Errorf("%w: node %s holds copies of %d shards and cannot stop to be a storage node: "+
			"drain it first with `liana cluster drain %s`", ErrRefused, c.ID, w.holds(c.ID), c.ID)
	}
	n.State = old.State
	if n.Incarnation == 0 {
		n.Incarnation = old.Incarnation
	}
	return change{node: &n}, nil
}

// holds counts the shards that have a copy on a node, or are about to.
func (w *working) holds(node string) int {
	count := 0
	for _, s := range append([]Shard{w.m.Catalog}, w.m.Shards...) {
		if s.On(node) >= 0 || s.Moving != nil && s.Moving.To == node {
			count++
		}
	}
	return count
}

func (c SetNodeState) propose(w *working) (change, error) {
	old := w.m.Node(c.ID)
	if old == nil {
		return change{}, fmt.Errorf("%w: node %q", ErrUnknown, c.ID)
	}
	n := *old
	n.State = c.State
	switch {
	case n.State == old.State:
		return change{node: &n}, nil
	case old.State == Removed:
		return change{}, fmt.Errorf("%w: node %s, and cannot be %v again", ErrRemoved, c.ID, c.State)
	case n.validate(w.m.Version) != nil:
		return change{}, fmt.Errorf("%w: %w", ErrRefused, n.validate(w.m.Version))
	case c.State == Removed && w.holds(c.ID) > 0:
		return change{}, fmt.Errorf("%w: node %s still holds copies of %d shards: drain it with `liana cluster drain %s` and wait "+
			"until it is empty", ErrRefused, c.ID, w.holds(c.ID), c.ID)
	}
	return change{node: &n}, nil
}

func (c SetReplicas) seen(w *working) uint64 { return shardChanged(w, c.Shard) }
func (c NameReplica) seen(w *working) uint64 { return shardChanged(w, c.Shard) }
func (c BeginMove) seen(w *working) uint64   { return shardChanged(w, c.Shard) }
func (c FinishMove) seen(w *working) uint64  { return shardChanged(w, c.Shard) }
func (c CancelMove) seen(w *working) uint64  { return shardChanged(w, c.Shard) }
func (c SplitShard) seen(w *working) uint64  { return shardChanged(w, c.Shard) }
func (c BeginSplit) seen(w *working) uint64  { return shardChanged(w, c.Shard) }

func shardChanged(w *working, id uint32) uint64 {
	if s := w.shard(id); s != nil {
		return s.Changed
	}
	return 0
}

// copyOf returns a shard to be changed; its Replicas may be, too.
func (w *working) copyOf(id uint32) (Shard, error) {
	s := w.shard(id)
	if s == nil {
		return Shard{}, fmt.Errorf("%w: shard %d", ErrUnknown, id)
	}
	out := *s
	out.Replicas = slices.Clone(s.Replicas)
	return out, nil
}

// to is the change of one shard, if the map takes it.
func (w *working) to(s Shard) (change, error) {
	s.Changed = w.m.Version
	if err := w.m.validateCopies(&s); err != nil {
		return change{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return change{shards: []Shard{s}}, nil
}

func (c SetReplicas) propose(w *working) (change, error) {
	s, err := w.copyOf(c.Shard)
	if err != nil {
		return change{}, err
	}
	if s.Moving != nil {
		return change{}, moves(&s)
	}
	s.Replicas = c.Replicas
	return w.to(s)
}

func moves(s *Shard) error {
	return fmt.Errorf("%w: shard %d moves from %q to %q: finish or cancel that first", ErrRefused, s.ID, s.Moving.From, s.Moving.To)
}

func (c NameReplica) propose(w *working) (change, error) {
	s, err := w.copyOf(c.Shard)
	if err != nil {
		return change{}, err
	}
	name := func(old string) error {
		if old != "" && old != c.ID {
			return fmt.Errorf("%w: the copy of shard %d on node %s is %s already, not %q", ErrRefused, c.Shard, c.Node, old, c.ID)
		}
		return nil
	}
	switch i := s.On(c.Node); {
	case i >= 0:
		err = name(s.Replicas[i].ID)
		s.Replicas[i].ID = c.ID
	case s.Moving != nil && s.Moving.To == c.Node:
		err = name(s.Moving.ID)
		s.Moving = &Move{From: s.Moving.From, To: s.Moving.To, ID: c.ID}
	default:
		err = fmt.Errorf("%w: a copy of shard %d on node %q", ErrUnknown, c.Shard, c.Node)
	}
	if err != nil {
		return change{}, err
	}
	return w.to(s)
}

func (c BeginMove) propose(w *working) (change, error) {
	s, err := w.copyOf(c.Shard)
	if err != nil {
		return change{}, err
	}
	if s.Moving != nil {
		if s.Moving.From != c.From || s.Moving.To != c.To {
			return change{}, moves(&s)
		}
		return change{shards: []Shard{s}}, nil // under way already
	}
	if s.Splitting != nil {
		return change{}, fmt.Errorf("%w: shard %d is being split into %d: it moves when that is done", ErrRefused, s.ID, s.Splitting.New)
	}
	s.Moving = &Move{From: c.From, To: c.To}
	if n := w.m.Node(c.To); n != nil && n.State != Active {
		return change{}, fmt.Errorf("%w: shard %d cannot move to node %s, which is %v", ErrRefused, c.Shard, c.To, n.State)
	}
	return w.to(s)
}

func (c FinishMove) propose(w *working) (change, error) {
	s, err := w.copyOf(c.Shard)
	if err != nil {
		return change{}, err
	}
	v := s.Moving
	switch {
	case v == nil:
		return change{}, fmt.Errorf("%w: shard %d does not move", ErrRefused, c.Shard)
	case v.To != "" && v.ID == "":
		return change{}, fmt.Errorf("%w: the copy of shard %d on node %s has no id yet", ErrRefused, c.Shard, v.To)
	}
	arrived := Replica{Node: v.To, ID: v.ID}
	switch i := s.On(v.From); {
	case v.From == "":
		s.Replicas = append(s.Replicas, arrived)
	case v.To == "":
		s.Replicas = slices.Delete(s.Replicas, i, i+1)
	default:
		s.Replicas[i] = arrived
	}
	s.Moving = nil
	return w.to(s)
}

func (c CancelMove) propose(w *working) (change, error) {
	s, err := w.copyOf(c.Shard)
	if err != nil {
		return change{}, err
	}
	s.Moving = nil
	return w.to(s)
}

func (c SetSchema) seen(w *working) uint64      { return w.m.SettingsVersion }
func (c SetReplication) seen(w *working) uint64 { return w.m.SettingsVersion }

func (c SetSchema) propose(w *working) (change, error) {
	return change{settings: &settings{replication: w.m.Replication, schema: c.Text}}, nil
}

func (c SetReplication) propose(w *working) (change, error) {
	if err := validateReplication(c.Copies); err != nil {
		return change{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return change{settings: &settings{replication: c.Copies, schema: w.m.Schema}}, nil
}

func (c RaiseLevel) seen(*working) uint64 { return 0 }

func (c RaiseLevel) propose(w *working) (change, error) {
	if lowest := w.m.LowestLevel(); c.Level > lowest {
		return change{}, fmt.Errorf("%w: the cluster cannot go to level %d: a node is of level %d", ErrRefused, c.Level, lowest)
	}
	return change{level: max(c.Level, w.m.Level)}, nil
}

func (c BeginSplit) propose(w *working) (change, error) {
	s, err := w.copyOf(c.Shard)
	if err != nil {
		return change{}, err
	}
	want := Split{At: c.At, New: c.New}
	if s.Splitting != nil {
		if *s.Splitting == want {
			return change{shards: []Shard{s}}, nil // under way already
		}
		return change{}, fmt.Errorf("%w: shard %d is being split at %d into %d already", ErrRefused, c.Shard, s.Splitting.At, s.Splitting.New)
	}
	if w.splitInto(c.Shard, want) {
		return change{}, nil // done already
	}
	if err := w.splittable(&s, want); err != nil {
		return change{}, err
	}
	s.Splitting = &want
	return w.to(s)
}

// splitInto reports whether a shard was split so.
func (w *working) splitInto(id uint32, v Split) bool {
	s, child := w.shard(id), w.shard(v.New)
	return child != nil && child.First == v.At && int(s.Last) == int(v.At)-1
}

// splittable says why a shard cannot be split so.
func (w *working) splittable(s *Shard, v Split) error {
	switch {
	case s.Moving != nil:
		return moves(s)
	case s.ID == CatalogShard || v.New == CatalogShard:
		return fmt.Errorf("%w: the catalog's own group has no slots", ErrRefused)
	case w.shard(v.New) != nil || v.New >= NumSlots:
		return fmt.Errorf("%w: there is a shard %d already, or it is past %d", ErrRefused, v.New, NumSlots-1)
	case v.At <= s.First || v.At > s.Last:
		return fmt.Errorf("%w: shard %d has slots %d to %d and cannot be split at %d: both parts need one",
			ErrRefused, s.ID, s.First, s.Last, v.At)
	}
	for i := range w.m.Shards {
		if o := w.m.Shards[i].Splitting; o != nil && o.New == v.New && w.m.Shards[i].ID != s.ID {
			return fmt.Errorf("%w: shard %d is to become %d", ErrRefused, w.m.Shards[i].ID, v.New)
		}
	}
	return nil
}

func (c SplitShard) propose(w *working) (change, error) {
	s, err := w.copyOf(c.Shard)
	if err != nil {
		return change{}, err
	}
	v := Split{At: c.At, New: c.New}
	if w.splitInto(c.Shard, v) {
		return change{}, nil // split already
	}
	if s.Splitting != nil && *s.Splitting != v {
		return change{}, fmt.Errorf("%w: shard %d is being split at %d into %d", ErrRefused, c.Shard, s.Splitting.At, s.Splitting.New)
	}
	if err := w.splittable(&s, v); err != nil {
		return change{}, err
	}
	child := Shard{ID: c.New, First: c.At, Last: s.Last, Gen: s.Gen + 1}
	for _, r := range s.Replicas {
		child.Replicas = append(child.Replicas, Replica{Node: r.Node})
	}
	s.Last, s.Gen, s.Splitting = c.At-1, s.Gen+1, nil
	return change{shards: []Shard{s, child}}, nil
}
