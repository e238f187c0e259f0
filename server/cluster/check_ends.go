package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/server/peer"
)

// doubtfulEdge is an edge whose ends seem to differ: that at the source, and the other.
type doubtfulEdge struct {
	ends   [2]graph.EdgeEnd
	shards [2]uint32
}

// ends compares the ends of edges that no node has both of.
func (c *clusterCheck) ends(ctx context.Context) error {
	if c.elsewhere == 0 {
		return nil
	}
	var sums []uint64
	for _, id := range c.shards() {
		part, err := ask(c, id, func(a peer.Auditor) ([]uint64, error) { return a.SumEnds(ctx, id, c.seed) })
		if err != nil {
			return err
		}
		if sums == nil {
			sums = make([]uint64, len(part))
		}
		if len(part) != len(sums) {
			return fmt.Errorf("shard %d: %d sums, another has %d: the nodes run different versions", id, len(part), len(sums))
		}
		for i := range part {
			sums[i] += part[i]
		}
	}
	suspects := graph.SuspectSums(sums)
	if len(suspects) == 0 {
		return nil
	}
	doubts, err := c.doubts(ctx, suspects)
	if err != nil {
		return err
	}
	return c.settle(ctx, doubts)
}

// ask asks the leader of a shard, or another node with a replica of it.
func ask[T any](c *clusterCheck, id uint32, call func(peer.Auditor) (T, error)) (out T, err error) {
	nodes := slices.Clone(c.nodes[id])
	if i := slices.Index(nodes, c.leads[id]); i > 0 {
		nodes[0], nodes[i] = nodes[i], nodes[0]
	}
	for _, node := range nodes {
		var a peer.Auditor
		if a, err = c.at(node); err == nil {
			if out, err = call(a); err == nil {
				return out, nil
			}
		}
	}
	return out, fmt.Errorf("shard %d: %w", id, err)
}

// doubts are the edges of the suspected sums whose ends differ.
func (c *clusterCheck) doubts(ctx context.Context, suspects []uint32) ([]doubtfulEdge, error) {
	seen := map[graph.EdgeName]*[2]uint64{}
	var order []graph.EdgeName
	for _, id := range c.shards() {
		ends, err := ask(c, id, func(a peer.Auditor) ([]graph.EdgeEnd, error) { return a.FindEnds(ctx, id, c.seed, suspects) })
		if err != nil {
			return nil, err
		}
		if len(ends) == graph.MaxFoundEnds {
			c.report.Skipped++ // there may be more
		}
		for _, e := range ends {
			both := seen[e.EdgeName]
			if both == nil {
				both = new([2]uint64)
				seen[e.EdgeName] = both
				order = append(order, e.EdgeName)
			}
			both[side(e.AtSource)] = e.Content
		}
	}
	var out []doubtfulEdge
	for _, name := range order {
		if both := seen[name]; both[0] == both[1] {
			continue
		}
		d := doubtfulEdge{ends: [2]graph.EdgeEnd{{EdgeName: name, AtSource: true}, {EdgeName: name}}}
		for i := range d.ends {
			v, err := d.ends[i].Vertex(c.m.replicas.shards.Schema())
			if err != nil {
				return nil, err
			}
			d.shards[i] = c.shardOf(graph.SlotOf(v))
		}
		out = append(out, d)
	}
	return out, nil
}

func side(atSource bool) int {
	if atSource {
		return 0
	}
	return 1
}

func (c *clusterCheck) shardOf(slot graph.Slot) uint32 {
	for i := range c.mp.Shards {
		if s := &c.mp.Shards[i]; uint16(slot) >= uint16(s.First) && uint16(slot) <= uint16(s.Last) {
			return s.ID
		}
	}
	return catalogShard
}

// edgeLook is what a look has seen of the ends of an edge.
type edgeLook [2]graph.SeenEnd

// endsLook is one look at doubtful edges.
type endsLook struct {
	edges  []edgeLook
	shards map[uint32]*graph.SeenEnds
}

// settle looks at edges until each agrees, or is proven to be a fault: see graph.Passed.
func (c *clusterCheck) settle(ctx context.Context, doubts []doubtfulEdge) error {
	last, err := c.look(ctx, doubts)
	for try := 0; err == nil && len(doubts) > 0; try++ {
		if try == endsTries {
			c.report.Skipped += uint64(len(doubts))
			return nil
		}
		var now *endsLook
		if now, err = c.look(ctx, doubts); err != nil {
			return err
		}
		kept := doubts[:0]
		rest := &endsLook{shards: now.shards}
		for i, d := range doubts {
			switch e := now.edges[i]; {
			case e[0].Away || e[1].Away:
				c.report.Skipped++
			case e[0].Content == e[1].Content:
			case d.proven(last, now, i):
				c.fault("edge type %d, %d -> %d: its ends in shards %d and %d %s", d.ends[0].Type, d.ends[0].Src, d.ends[0].Dst,
					d.shards[0], d.shards[1], difference(e))
			default:
				kept, rest.edges = append(kept, d), append(rest.edges, e)
			}
		}
		doubts, last = kept, rest
		sleep(ctx, endsPause)
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}

func difference(e edgeLook) string {
	switch {
	case e[0].Content == 0:
		return "differ: only the other end is there"
	case e[1].Content == 0:
		return "differ: only the source's is there"
	}
	return "differ in time or properties"
}

// look looks at both ends of edges, with one call a shard.
func (c *clusterCheck) look(ctx context.Context, doubts []doubtfulEdge) (*endsLook, error) {
	asked := map[uint32][]graph.EdgeEnd{}
	at := make([][2]int, len(doubts))
	for i := range doubts {
		for j, id := range doubts[i].shards {
			at[i][j] = len(asked[id])
			asked[id] = append(asked[id], doubts[i].ends[j])
		}
	}
	out := &endsLook{edges: make([]edgeLook, len(doubts)), shards: map[uint32]*graph.SeenEnds{}}
	for id, ends := range asked { // any order: the rule of graph.Passed asks for none
		seen, err := ask(c, id, func(a peer.Auditor) (*graph.SeenEnds, error) { return a.LookAtEnds(ctx, id, c.seed, ends) })
		if err != nil {
			return nil, err
		}
		out.shards[id] = seen
	}
	for i := range doubts {
		for j, id := range doubts[i].shards {
			out.edges[i][j] = out.shards[id].Ends[at[i][j]]
		}
	}
	return out, nil
}

// proven reports whether edge i, which was seen to differ twice, is a fault: neither end
// changed, and what was on its way has arrived.
func (d *doubtfulEdge) proven(then, now *endsLook, i int) bool {
	for j := range d.ends {
		if then.edges[i][j].Before != now.edges[i][j].After {
			return false
		}
	}
	a, b := d.shards[0], d.shards[1]
	return graph.Passed(a, b, then.shards[a], then.shards[b], now.shards[a], now.shards[b]) &&
		graph.Passed(b, a, then.shards[b], then.shards[a], now.shards[b], now.shards[a])
}
