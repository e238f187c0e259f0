package cluster

import (
	"testing"
	"time"

	"github.com/lianadb/liana/kv/catalog"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// A member is taken for lost when its node answers without it for long, and not while the
// node is silent, tells of it, or has only just begun not to. A learner that its node does
// not have would be waited for without end.
func TestAMemberThatItsNodeDoesNotHaveIsLost(t *testing.T) {
	tells := func(shards ...uint32) *peerv1.GetReplicasResponse {
		r := &peerv1.GetReplicasResponse{}
		for _, id := range shards {
			r.Replicas = append(r.Replicas, &peerv1.Replica{Shard: id})
		}
		return r
	}
	begun := time.Now()
	learner := voter("c")
	learner.voter = false
	another := &peerv1.GetReplicasResponse{Replicas: []*peerv1.Replica{{Shard: 7, Replica: "c-9"}}}
	for _, c := range []struct {
		name        string
		early, late *peerv1.GetReplicasResponse
		gone        bool
	}{
		{"it is there", tells(7), tells(7), false},
		{"it failed to start", tells(1, 7), tells(7), false},
		{"the node is silent", tells(1), nil, false},
		{"it came late", tells(1), tells(1, 7), false},
		{"it never came", tells(1), tells(1), true},
		{"it has vanished just now", tells(1, 7), tells(1), false},
		{"the node has another one", another, another, true},
	} {
		for _, third := range []member{voter("c"), learner} {
			s := seenShard{id: 7, leader: "a", members: []member{voter("a"), voter("b"), third}}
			l := newLeader(nil)
			reports := map[string]*peerv1.GetReplicasResponse{"a": tells(7), "b": tells(7), "c": c.early}
			if _, gone := l.lost(s, reports, nil, begun); gone {
				t.Errorf("%s: lost at first sight", c.name)
			}
			reports["c"] = c.late
			if m, gone := l.lost(s, reports, nil, begun.Add(goneAfter+time.Second)); gone != c.gone || gone && m.node != "c" {
				t.Errorf("%s, voter %v: %v, %v", c.name, third.voter, m, gone)
			}
		}
	}
}

// Replicas of a shard that is being split off are looked for where its parent's are, and
// the claims of a map are those of its shards.
func TestAMapTellsOfSplits(t *testing.T) {
	mp := &catalog.Map{Version: 5, Shards: []catalog.Shard{
		{ID: 0, Last: 99, Replicas: []catalog.Replica{{Node: "a"}, {Node: "b"}}, Splitting: &catalog.Split{At: 50, New: 2}},
		{ID: 1, First: 100, Last: 4095, Gen: 3, Replicas: []catalog.Replica{{Node: "c"}}},
	}}
	board := catalog.NewBoard(mp)
	m := &Member{cfg: Config{Board: board}}
	if got := m.ReplicasOf(2); len(got) != 2 || got[0] != "a" {
		t.Errorf("replicas of the child: %v", got)
	}
	if got := m.ReplicasOf(9); got != nil {
		t.Errorf("replicas of no shard: %v", got)
	}
	claims := Claims(mp)
	if len(claims) != 2 || claims[1].Shard != 1 || claims[1].Gen != 3 || claims[1].First != 100 || claims[1].Last != 4095 {
		t.Errorf("claims %+v", claims)
	}
}
