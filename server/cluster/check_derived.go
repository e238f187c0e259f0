package cluster

import (
	"context"
	"maps"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/server/peer"
)

// derivedName names a derived counter.
type derivedName struct {
	owner  graph.Vertex
	metric graph.Metric
}

// derivedLook is one look at derived counters that seem to differ: what is summed in all
// shards, and the value.
type derivedLook struct {
	counters map[derivedName]graph.DerivedPart
	shards   map[uint32]*graph.DerivedParts
}

// derived compares derived counters with sums over all shards, where no node has all.
func (c *clusterCheck) derived(ctx context.Context) error {
	if c.elsewhere == 0 || c.mp.Level < catalog.VertexLevel {
		return nil
	}
	var sums []uint64
	for _, id := range c.shards() {
		part, err := ask(c, id, func(a peer.Auditor) ([]uint64, error) { return a.SumDerived(ctx, id, c.seed) })
		if err != nil {
			return err
		}
		if sums == nil {
			sums = make([]uint64, len(part))
		}
		for i := range min(len(part), len(sums)) {
			sums[i] += part[i]
		}
	}
	suspects := graph.SuspectSums(sums)
	if len(suspects) == 0 {
		return nil
	}
	return c.settleDerived(ctx, suspects)
}

// settleDerived looks at counters until each agrees with its sum, or is proven to differ:
// neither it nor the sum changed over two looks, and what was on its way between shards at
// the first has arrived at the second.
func (c *clusterCheck) settleDerived(ctx context.Context, suspects []uint32) error {
	last, err := c.lookAtDerived(ctx, suspects)
	for try := 0; err == nil && len(last.counters) > 0; try++ {
		if try == derivedTries {
			c.report.Skipped += uint64(len(last.counters))
			return nil
		}
		sleep(ctx, endsPause)
		var now *derivedLook
		if now, err = c.lookAtDerived(ctx, suspects); err != nil {
			return err
		}
		arrived := now.arrived(last)
		maps.DeleteFunc(now.counters, func(name derivedName, p graph.DerivedPart) bool {
			proven := arrived && last.counters[name] == p
			if proven {
				c.told[name] = true
				c.fault("vertex %v, metric %d: derived counter is %d, the sum over all shards %d", name.owner, name.metric, p.Value, p.Sum)
			}
			return proven
		})
		last = now
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// arrived reports whether what was on its way between shards at an earlier look is not
// any more.
func (l *derivedLook) arrived(then *derivedLook) bool {
	for from, a := range l.shards {
		for to, b := range l.shards {
			if then.shards[from] == nil || then.shards[to] == nil || b.Received[from] < then.shards[from].Given[to] ||
				a.Given[to] < then.shards[to].Received[from] {
				return false
			}
		}
	}
	return true
}

// lookAtDerived returns the suspected counters that differ from their sums.
func (c *clusterCheck) lookAtDerived(ctx context.Context, suspects []uint32) (*derivedLook, error) {
	out := &derivedLook{counters: map[derivedName]graph.DerivedPart{}, shards: map[uint32]*graph.DerivedParts{}}
	for _, id := range c.shards() {
		parts, err := ask(c, id, func(a peer.Auditor) (*graph.DerivedParts, error) { return a.FindDerived(ctx, id, c.seed, suspects) })
		if err != nil {
			return nil, err
		}
		out.shards[id] = parts
		for _, p := range parts.Parts {
			name := derivedName{p.Owner, p.Metric}
			all := out.counters[name]
			all.Owner, all.Metric, all.Sum, all.Value = p.Owner, p.Metric, all.Sum+p.Sum, all.Value+p.Value
			out.counters[name] = all
		}
	}
	maps.DeleteFunc(out.counters, func(name derivedName, p graph.DerivedPart) bool { return p.Sum == p.Value || c.told[name] })
	return out, nil
}
