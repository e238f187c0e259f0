package cluster

import (
	"context"
	"fmt"
	"testing"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/server/peer"
)

// summer is an auditor that knows parts of derived counters, each look the next.
type summer struct {
	peer.Auditor
	looks []graph.DerivedParts
	asked int
}

func (s *summer) SumDerived(context.Context, uint32, uint64) ([]uint64, error) {
	return []uint64{1}, nil
}

func (s *summer) FindDerived(context.Context, uint32, uint64, []uint32) (*graph.DerivedParts, error) {
	out := &s.looks[min(s.asked, len(s.looks)-1)]
	s.asked++
	return out, nil
}

// A derived counter is a fault where it and its sum stand still and nothing is on its way.
func TestDerivedCountersAreJudgedWhenAllHasArrived(t *testing.T) {
	author := graph.Vertex{Type: 1, ID: 9}
	says := func(sum, value int64, given, received, other uint64) graph.DerivedParts {
		return graph.DerivedParts{
			Parts: []graph.DerivedPart{{Owner: author, Metric: 1, Sum: sum, Value: value}},
			Given: map[uint32]uint64{uint32(other): given}, Received: map[uint32]uint64{uint32(other): received},
		}
	}
	for name, c := range map[string]struct {
		notes, author   []graph.DerivedParts
		faults, skipped uint64
	}{
		"wrong":      {[]graph.DerivedParts{says(5, 0, 8, 0, 2)}, []graph.DerivedParts{says(0, 4, 0, 8, 1)}, 1, 0},
		"right":      {[]graph.DerivedParts{says(5, 0, 8, 0, 2)}, []graph.DerivedParts{says(1, 6, 0, 8, 1)}, 0, 0},
		"on its way": {[]graph.DerivedParts{says(5, 0, 8, 0, 2)}, []graph.DerivedParts{says(0, 4, 0, 7, 1), says(0, 4, 0, 7, 1), says(0, 5, 0, 8, 1)}, 0, 0},
		"never come": {[]graph.DerivedParts{says(5, 0, 8, 0, 2)}, []graph.DerivedParts{says(0, 4, 0, 7, 1)}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := map[string]*summer{"a": {looks: c.notes}, "b": {looks: c.author}}
			k := &clusterCheck{
				mp: &catalog.Map{Level: catalog.ThisLevel}, elsewhere: 1, told: map[derivedName]bool{}, leads: map[uint32]string{},
				nodes: map[uint32][]string{1: {"a"}, 2: {"b"}}, at: func(node string) (peer.Auditor, error) { return nodes[node], nil },
			}
			if err := k.derived(context.Background()); err != nil {
				t.Fatal(err)
			}
			if k.report.Faults != c.faults || k.report.Skipped != c.skipped {
				t.Errorf("%d faults, %d passed over: %s", k.report.Faults, k.report.Skipped, fmt.Sprint(k.report.Findings))
			}
		})
	}
}
