package cluster

import (
	"context"
	"strings"
	"testing"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/server/peer"
)

// script is an auditor that answers as a test says, each time the next.
type script struct {
	peer.Auditor
	digests []graph.Digest
	looks   []graph.SeenEnds
	asked   int
}

func (s *script) next(n int) int {
	i := min(s.asked, n-1)
	s.asked++
	return i
}

func (s *script) Digest(context.Context, uint32) (graph.Digest, error) {
	return s.digests[s.next(len(s.digests))], nil
}

func (s *script) LookAtEnds(context.Context, uint32, uint64, []graph.EdgeEnd) (*graph.SeenEnds, error) {
	return &s.looks[s.next(len(s.looks))], nil
}

func scripted(nodes map[string]*script, shards map[uint32][]string) *clusterCheck {
	return &clusterCheck{nodes: shards, leads: map[uint32]string{}, at: func(node string) (peer.Auditor, error) { return nodes[node], nil }}
}

func said2(pairs ...uint64) *script {
	s := &script{}
	for i := 0; i < len(pairs); i += 2 {
		s.digests = append(s.digests, graph.Digest{Applied: pairs[i], Hash: pairs[i+1]})
	}
	return s
}

// Replicas are compared where both were seen at the same entry, and one that says
// something else is believed the second time.
func TestReplicasAreComparedAtTheSameEntry(t *testing.T) {
	for name, c := range map[string]struct {
		a, b            *script
		faults, skipped uint64
	}{
		"equal at once":                {said2(5, 1), said2(5, 1), 0, 0},
		"one is behind":                {said2(5, 1), said2(3, 9, 4, 8, 5, 1), 0, 0},
		"both go on":                   {said2(5, 1, 6, 2, 7, 3), said2(3, 7, 5, 1), 0, 0},
		"different":                    {said2(5, 1), said2(5, 2), 1, 0},
		"different while it is sent":   {said2(5, 1), said2(5, 2, 5, 1), 0, 0},
		"different at two entries":     {said2(5, 1, 6, 3), said2(5, 2, 6, 4), 1, 0},
		"never seen at the same entry": {said2(5, 1), said2(4, 2), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := scripted(map[string]*script{"a": c.a, "b": c.b}, map[uint32][]string{3: {"a", "b"}})
			if err := k.replicas(context.Background()); err != nil {
				t.Fatal(err)
			}
			if k.report.Faults != c.faults || k.report.Skipped != c.skipped {
				t.Errorf("%d faults, %d passed over: %q", k.report.Faults, k.report.Skipped, k.report.Findings)
			}
		})
	}
}

// look is what a shard with one end says: the end, the position of its slot, and how
// far its streams have come.
func look(content, slot, given, received uint64, other uint32) graph.SeenEnds {
	return graph.SeenEnds{
		Ends:  []graph.SeenEnd{{Content: content, Before: slot, After: slot}},
		Given: map[uint32]uint64{other: given}, Received: map[uint32]uint64{other: received},
	}
}

// An edge whose ends differ is a fault where both stand still and nothing is on its way.
func TestEndsAreJudgedWhenAllHasArrived(t *testing.T) {
	away := look(0, 0, 0, 0, 1)
	away.Ends[0].Away = true
	for name, c := range map[string]struct {
		src, dst        []graph.SeenEnds
		faults, skipped uint64
		says            string
	}{
		"lost":               {[]graph.SeenEnds{look(7, 5, 5, 0, 2)}, []graph.SeenEnds{look(0, 9, 0, 5, 1)}, 1, 0, "only the source's"},
		"left over":          {[]graph.SeenEnds{look(0, 5, 5, 0, 2)}, []graph.SeenEnds{look(7, 9, 0, 5, 1)}, 1, 0, "only the other"},
		"another time":       {[]graph.SeenEnds{look(7, 5, 5, 0, 2)}, []graph.SeenEnds{look(8, 9, 0, 5, 1)}, 1, 0, "in time or properties"},
		"on its way":         {[]graph.SeenEnds{look(7, 5, 5, 0, 2)}, []graph.SeenEnds{look(0, 9, 0, 4, 1), look(0, 9, 0, 4, 1), look(7, 10, 0, 5, 1)}, 0, 0, ""},
		"a sender that lags": {[]graph.SeenEnds{look(0, 4, 4, 0, 2), look(0, 4, 4, 0, 2), look(7, 5, 5, 0, 2)}, []graph.SeenEnds{look(7, 9, 0, 5, 1)}, 0, 0, ""},
		"never delivered":    {[]graph.SeenEnds{look(7, 5, 5, 0, 2)}, []graph.SeenEnds{look(0, 9, 0, 4, 1)}, 0, 1, ""},
		"always changing":    {changing(), []graph.SeenEnds{look(0, 9, 0, 100, 1)}, 0, 1, ""},
		"moved away":         {[]graph.SeenEnds{away}, []graph.SeenEnds{look(0, 9, 0, 4, 1)}, 0, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := scripted(map[string]*script{"a": {looks: c.src}, "b": {looks: c.dst}}, map[uint32][]string{1: {"a"}, 2: {"b"}})
			name := graph.EdgeName{Type: 1, Src: 3, Dst: 4}
			err := k.settle(context.Background(), []doubtfulEdge{{
				ends: [2]graph.EdgeEnd{{EdgeName: name, AtSource: true}, {EdgeName: name}}, shards: [2]uint32{1, 2},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if k.report.Faults != c.faults || k.report.Skipped != c.skipped || !strings.Contains(strings.Join(k.report.Findings, "\n"), c.says) {
				t.Errorf("%d faults, %d passed over: %q", k.report.Faults, k.report.Skipped, k.report.Findings)
			}
		})
	}
}

func changing() (out []graph.SeenEnds) {
	for i := range uint64(endsTries + 2) {
		out = append(out, look(7, i, i, 0, 2))
	}
	return out
}
