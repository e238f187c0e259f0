package graph

import (
	"context"
	"fmt"
	"testing"

	"github.com/lianadb/liana/kv"
)

// sumsOfAll adds up what all shards of a graph say.
func sumsOfAll(t *testing.T, g *Graph, seed uint64) []uint64 {
	t.Helper()
	sums := make([]uint64, checkBuckets)
	for id := range g.cfg.Shards {
		part, err := g.SumDerived(context.Background(), uint32(id), seed)
		must(t, err)
		for i := range sums {
			sums[i] += part[i]
		}
	}
	return sums
}

// What the shards know of derived counters adds up to nothing; of one that is wrong it
// does not, and that one is found.
func TestDerivedSumsOfAllShardsAddUp(t *testing.T) {
	d := damagedStore(t)
	d.w.open()
	settleAll(t, d.w)
	if bad := SuspectSums(sumsOfAll(t, d.w.g, 7)); len(bad) > 0 {
		t.Fatalf("sums %v are not 0", bad)
	}
	d.w.close()
	key := d.counterKey()
	row, err := d.twin.Get(nil, key)
	must(t, err)
	d.write(func(b kv.Batch) { must(t, b.Set(key, row)) })
	d.w.open()
	bad := SuspectSums(sumsOfAll(t, d.w.g, 7))
	if len(bad) != 1 {
		t.Fatalf("sums %v are not 0, want one", bad)
	}
	var all DerivedPart
	for id := range d.w.g.cfg.Shards {
		found, err := d.w.g.FindDerived(context.Background(), uint32(id), 7, bad)
		must(t, err)
		for _, p := range found.Parts {
			all.Owner, all.Metric, all.Sum, all.Value = p.Owner, p.Metric, all.Sum+p.Sum, all.Value+p.Value
		}
	}
	if got := fmt.Sprint(all); got != "{1:900 1 101 102}" {
		t.Errorf("found %s", got)
	}
}
