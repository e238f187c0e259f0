package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/kv/catalog"
)

// someMap has n nodes of level 2 and three copies of each of n shards and the catalog.
func someMap(t *testing.T, n int) *catalog.Map { return mapOf(t, n, 3) }

// mapOf is the same with so many copies.
func mapOf(t *testing.T, n, replication int) *catalog.Map {
	t.Helper()
	m := catalog.Map{ClusterID: "c", Replication: replication}
	copies := func(i int) (out []catalog.Replica) {
		for k := range replication {
			out = append(out, catalog.Replica{Node: fmt.Sprintf("n%02d", (i+k)%n)})
		}
		return out
	}
	for i := range n {
		m.Nodes = append(m.Nodes, catalog.Node{ID: fmt.Sprintf("n%02d", i), Storage: true, State: catalog.Active, Level: 2})
		s := catalog.Shard{ID: uint32(i), Replicas: copies(i)}
		s.First, s.Last = catalog.SlotRange(i, n)
		m.Shards = append(m.Shards, s)
	}
	m.Catalog.Replicas = copies(0)
	first, err := catalog.FirstMap(m)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// leaderOver is a leader that has heard of all nodes just now, but of the silent ones an
// hour ago.
func leaderOver(m *catalog.Map, now time.Time, maxDead int, silent ...int) *leader {
	l := newLeader(&Member{cfg: Config{DeadAfter: 5 * time.Minute, MaxDead: maxDead}})
	l.begun = now.Add(-2 * time.Hour)
	for _, n := range m.Nodes {
		l.heard[n.ID] = now
	}
	for _, i := range silent {
		l.heard[m.Nodes[i].ID] = now.Add(-time.Hour)
	}
	return l
}

// A cut that takes many nodes away is not answered by copying all that they hold.
func TestManySilentNodesAreNotReplaced(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		nodes, most int
		silent      []int
		dead        int
	}{
		{3, 0, []int{1}, 1},
		{3, 0, []int{1, 2}, 0},
		{5, 0, []int{0, 1}, 0},
		{8, 0, []int{0, 1}, 2},
		{8, 0, []int{0, 1, 2}, 0},
		{8, 3, []int{0, 1, 2}, 3},
		{8, 1, []int{0, 1}, 0},
		{12, 0, []int{0, 1, 2, 3, 4, 5}, 0},
	} {
		m := someMap(t, c.nodes)
		l := leaderOver(m, now, c.most, c.silent...)
		sit := l.situation(m, nil, now)
		if countTrue(sit.Dead) != c.dead {
			t.Errorf("%+v: dead %v", c, sit.Dead)
		}
		if n := countTrue(sit.Away); n != len(c.silent) {
			t.Errorf("%+v: away %v", c, sit.Away)
		}
		told := strings.Join(l.remarks(m, sit, now), "\n")
		if c.dead == 0 != strings.Contains(told, "so none is") || c.dead > 0 != strings.Contains(told, "taken for dead") {
			t.Errorf("%+v: %s", c, told)
		}
	}
}

func countTrue(m map[string]bool) (n int) {
	for _, v := range m {
		if v {
			n++
		}
	}
	return n
}

// Nodes that were given up, or hold nothing any more, do not use up the bound.
func TestNodesGivenUpDoNotCountAsMissed(t *testing.T) {
	now, m := time.Now(), someMap(t, 8)
	m.Nodes[0].State, m.Nodes[1].State = catalog.Leaving, catalog.Draining
	m.Nodes = append(m.Nodes, catalog.Node{ID: "n99", Storage: true, State: catalog.Active, Level: 2, Changed: 1}) // holds nothing
	l := leaderOver(m, now, 0, 0, 1, 2, 3, 8)
	sit := l.situation(m, nil, now)
	for i, want := range []bool{true, true, true, true, false} {
		if sit.Dead[m.Nodes[i].ID] != want {
			t.Errorf("node %d: dead %v", i, sit.Dead[m.Nodes[i].ID])
		}
	}
	told := strings.Join(l.remarks(m, sit, now), "\n")
	for _, want := range []string{"node n00 does not answer: its copies are being made elsewhere, as it is leaving", "as it is draining", "node n02 is taken for dead"} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is missing in:\n%s", want, told)
		}
	}
}

// Before the delay is over the remark says when it is.
func TestASilentNodeIsToldOfBeforeItIsDead(t *testing.T) {
	now, m := time.Now(), someMap(t, 5)
	l := leaderOver(m, now, 0)
	l.heard["n01"] = now.Add(-40 * time.Second)
	sit := l.situation(m, nil, now)
	told := strings.Join(l.remarks(m, sit, now), "\n")
	if want := "node n01 has not answered for 40s: after 5m0s its copies are made elsewhere"; told != want {
		t.Errorf("%q", told)
	}
	if sit.Dead["n01"] || !sit.Away["n01"] {
		t.Errorf("%+v", sit)
	}
}

func TestUpkeep(t *testing.T) {
	m := someMap(t, 4)
	if got := upkeep(m); len(got) != 0 {
		t.Errorf("%v", got)
	}
	m.Level = 1
	m.Nodes[3].State = catalog.Leaving
	if got := fmt.Sprint(upkeep(m)); got != "[{2}]" {
		t.Errorf("a node that still holds copies: %v", got)
	}
	for i := range m.Shards {
		m.Shards[i].Replicas = m.Catalog.Replicas // n00, n01, n02
	}
	if got := fmt.Sprintf("%+v", upkeep(m)); got != "[{Level:2} {ID:n03 State:removed}]" {
		t.Errorf("%v", got)
	}
}

// What an older program cannot read is not proposed before all nodes can.
func TestEditsWaitForTheirLevel(t *testing.T) {
	m := someMap(t, 3)
	m.Level = catalog.SplitLevel - 1
	mb := &Member{cfg: Config{Board: catalog.NewBoard(m)}}
	err := mb.Edit(t.Context(), catalog.AnyVersion, catalog.SplitShard{Shard: 0, At: 5, New: 9})
	if err == nil || !strings.Contains(err.Error(), "every node has to run the newer program first") {
		t.Errorf("%v", err)
	}
}
