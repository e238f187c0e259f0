package graph

import (
	"context"
	"fmt"
	"slices"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// The two ends of an edge may lie in shards of which no node has replicas of both. For a
// check of a cluster its nodes answer for the shards that they have: sums over the
// ends of edges, which add up to nothing where all ends agree, then the ends of those
// edges whose sums do not, and last where these stand (see check_moment.go).

// EdgeName names an edge by its fact.
type EdgeName struct {
	Type     EdgeType
	Src, Dst uint64
	Hidden   bool // it is not to be seen, and lies in lists of its own
}

func (n EdgeName) internal() edgeName { return edgeName{n.Type, n.Src, n.Dst, n.Hidden} }

// EdgeEnd is one end of an edge. Content is a hash of all that the ends must agree on;
// 0: the edge is not there.
type EdgeEnd struct {
	EdgeName
	AtSource bool
	Content  uint64
}

// Vertex is the vertex at which the end lies.
func (e *EdgeEnd) Vertex(s *Schema) (Vertex, error) {
	_, l, err := e.list(s)
	return l.Vertex, err
}

// list is the list that has the end, which names the edge's other vertex.
func (e *EdgeEnd) list(s *Schema) (def *EdgeTypeDef, l ListKey, err error) {
	def, ok := s.EdgeTypeByID(e.Type)
	if !ok {
		return nil, l, fmt.Errorf("edge type %d is not in the schema", e.Type)
	}
	l = def.fact(e.Src)
	if e.Hidden {
		l.Dir = hidden
	}
	if e.AtSource {
		return def, l, nil
	}
	return def, def.otherEnd(l, e.Dst), nil
}

func (e *EdgeEnd) peer() uint64 {
	if e.AtSource {
		return e.Dst
	}
	return e.Src
}

// SeenEnd is an end as a look has found it. Before and After are positions of its
// slot's last change: the content is no older than Before, and no newer than After. Away: it
// does not lie in the shard that was asked.
type SeenEnd struct {
	Content       uint64
	Before, After uint64
	Away          bool
}

// SeenEnds answers for the ends that were asked for, in their order. Given and Received
// say how far the shard's streams to and from others have come.
type SeenEnds struct {
	Ends            []SeenEnd
	Given, Received map[uint32]uint64
}

// Passed reports whether what was on its way from a shard to another at a look has
// arrived at a later one, as these two see it.
func Passed(from, to uint32, fromThen, toThen, fromNow, toNow *SeenEnds) bool {
	return passed(
		map[uint32]streamEnds{from: {fromThen.Given, fromThen.Received}, to: {toThen.Given, toThen.Received}},
		map[uint32]streamEnds{from: {fromNow.Given, fromNow.Received}, to: {toNow.Given, toNow.Received}},
		from, to)
}

// MaxFoundEnds bounds the ends that FindEnds returns.
const MaxFoundEnds = 50_000

// SumEnds returns sums over the ends of all edges in the lists of this node's replica of
// a shard. Those of all shards, by the same seed, add up to 0 but for edges that differ.
func (g *Graph) SumEnds(ctx context.Context, id uint32, seed uint64) ([]uint64, error) {
	sums := newEndSums(seed)
	err := g.eachEnd(ctx, id, func(def *EdgeTypeDef, l ListKey, e *edgelist.Edge) error {
		sums.add(def, l, e)
		return nil
	})
	return sums.sums, err
}

// FindEnds returns the ends of edges in the lists of this node's replica of a shard
// whose sums are among the numbered ones: the first MaxFoundEnds.
func (g *Graph) FindEnds(ctx context.Context, id uint32, seed uint64, sums []uint32) ([]EdgeEnd, error) {
	wanted := make([]bool, checkBuckets)
	for _, n := range sums {
		wanted[n%checkBuckets] = true
	}
	var out []EdgeEnd
	err := g.eachEnd(ctx, id, func(def *EdgeTypeDef, l ListKey, e *edgelist.Edge) error {
		name, source := def.nameOf(l, e.Peer)
		h := name.hash(seed)
		if wanted[h%checkBuckets] && len(out) < MaxFoundEnds {
			out = append(out, EdgeEnd{EdgeName{name.kind, name.src, name.dst, name.hidden}, source, contentHash(h, e, name.hidden)})
		}
		return nil
	})
	return out, err
}

// eachEnd calls do with the edges of all lists of a replica.
func (g *Graph) eachEnd(ctx context.Context, id uint32, do func(*EdgeTypeDef, ListKey, *edgelist.Edge) error) error {
	v, err := g.viewOf(id)
	if err != nil {
		return err
	}
	defer v.release()
	if v.schema == nil {
		return nil
	}
	return v.scan(ctx, func(r *storedRow) error {
		if r.kind != familyList {
			return nil
		}
		def, ok := v.schema.EdgeTypeByID(r.list.Type)
		if !ok {
			return kv.Corruptionf("list %v of an unknown edge type", r.list)
		}
		list, err := edgelist.Open(&proofSource{key: r.list, read: v.snap})
		if err != nil {
			return fmt.Errorf("list %v: %w", r.list, err)
		}
		return each(ctx, list, func(e *edgelist.Edge) error { return do(def, r.list, e) })
	})
}

// LookAtEnds looks at ends in the lists of this node's replica of a shard.
func (g *Graph) LookAtEnds(ctx context.Context, id uint32, seed uint64, ends []EdgeEnd) (*SeenEnds, error) {
	mb, err := g.memberAt(id)
	if err != nil {
		return nil, err
	}
	out := &SeenEnds{Ends: make([]SeenEnd, len(ends))}
	schema, slots := g.Schema(), make([]Slot, len(ends))
	for i := range ends {
		v, err := ends[i].Vertex(schema)
		if err != nil {
			return nil, err
		}
		slots[i] = SlotOf(v)
	}
	highest := uint64(0)
	for i, slot := range slots {
		out.Ends[i].Before = mb.machine.last[slot].Load()
		highest = max(highest, out.Ends[i].Before)
	}
	// A change is told before the view that shows it is out.
	v, err := mb.machine.acquireAt(ctx, g.cfg.FreshWait, freshness{pos: highest})
	if err != nil {
		return nil, err
	}
	defer v.release()
	streams, err := v.streamEnds()
	if err != nil {
		return nil, err
	}
	out.Given, out.Received = streams.given, streams.received
	for i := range ends {
		if err := v.lookAt(&ends[i], slots[i], seed, &out.Ends[i]); err != nil {
			return nil, err
		}
		out.Ends[i].After = mb.machine.last[slots[i]].Load()
	}
	return out, nil
}

func (v *view) lookAt(e *EdgeEnd, slot Slot, seed uint64, seen *SeenEnd) error {
	if v.own == nil || v.schema == nil || slot < v.own.First || slot > v.own.Last {
		seen.Away = true
		return nil
	}
	_, l, err := e.list(v.schema)
	if err != nil {
		return err
	}
	list, err := edgelist.Open(&proofSource{key: l, read: v.snap})
	if err != nil {
		return fmt.Errorf("list %v: %w", l, err)
	}
	found, ok, err := list.Get(e.peer())
	if err != nil || !ok {
		return err
	}
	seen.Content = contentHash(e.internal().hash(seed), &found, e.Hidden)
	return nil
}

// SuspectSums returns the numbers of those sums of all shards together that are not 0.
func SuspectSums(sums []uint64) []uint32 {
	var out []uint32
	for i, s := range sums {
		if s != 0 {
			out = append(out, uint32(i))
		}
	}
	return slices.Clip(out)
}
