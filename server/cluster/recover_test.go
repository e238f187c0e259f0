package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/shard"
)

// wreck tells what some nodes of a cluster have; ends gives the last entry of each copy.
func wreck(m *catalog.Map, left []string, ends func(shard uint32, node string) (term, last uint64)) []Survivor {
	var out []Survivor
	for _, node := range left {
		s := Survivor{ClusterID: m.ClusterID, Node: node, Map: m.Encode()}
		for _, sh := range append([]catalog.Shard{m.Catalog}, m.Shards...) {
			if sh.On(node) < 0 {
				continue
			}
			r := shard.Remain{Shard: sh.ID, Replica: catalog.ReplicaID(node, uint64(sh.ID))}
			r.Term, r.Last = ends(sh.ID, node)
			for _, c := range sh.Replicas {
				r.Members = append(r.Members, shard.Member{Replica: catalog.ReplicaID(c.Node, uint64(sh.ID)), Node: c.Node, Voter: true})
			}
			s.Shards = append(s.Shards, r)
		}
		out = append(out, s)
	}
	return out
}

// The newest copy of each shard without a majority stays; shards with one are left alone.
func TestTheNewestCopyIsKept(t *testing.T) {
	m := someMap(t, 5) // shard i on i, i+1, i+2; the catalog on 0, 1, 2
	same := func(uint32, string) (uint64, uint64) { return 8, 60 }
	r, err := PlanRecovery(wreck(m, []string{"n02", "n04"}, same))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(r.Lost) != "[n00 n01 n03]" {
		t.Errorf("lost %v", r.Lost)
	}
	got := map[uint32]string{}
	for _, s := range r.Shards {
		got[s.ID] = s.Node
	}
	// Shard 2 has two of three left, the others one.
	if want := (map[uint32]string{0: "n02", 1: "n02", 3: "n04", 4: "n04", catalogShard: "n02"}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("recovered %v, want %v", got, want)
	}
	// Two of five are left: the one of the later term has the newer log, be it shorter.
	r, err = PlanRecovery(wreck(mapOf(t, 5, 5), []string{"n02", "n03"}, func(id uint32, node string) (uint64, uint64) {
		switch {
		case node == "n03":
			return 9, 10
		case id == 1:
			return 9, 11
		}
		return 8, 1000
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Shards {
		if want := map[bool]string{false: "n03", true: "n02"}[s.ID == 1]; s.Node != want || len(s.Others) != 1 || s.Lost != 3 {
			t.Errorf("shard %d: %+v", s.ID, s)
		}
	}
}

// The edits make a sound map of a catalog that is left: copies where they are, and the
// lost nodes on their way out.
func TestTheCatalogIsBroughtToWhatIsLeft(t *testing.T) {
	m := someMap(t, 3)
	survivors := wreck(m, []string{"n01"}, func(uint32, string) (uint64, uint64) { return 3, 9 })
	r, err := PlanRecovery(survivors)
	if err != nil {
		t.Fatal(err)
	}
	cmds, err := r.CatalogCommands()
	if err != nil {
		t.Fatal(err)
	}
	machine := machineOf(t, m)
	for i, res := range machine.apply(cmds) {
		if res.Err != nil {
			t.Errorf("edit %d, %+v: %v", i, r.Edits[i], res.Err)
		}
	}
	after := machine.Board().Map()
	for _, s := range append([]catalog.Shard{after.Catalog}, after.Shards...) {
		if len(s.Replicas) != 1 || s.Replicas[0].Node != "n01" || s.Replicas[0].ID != catalog.ReplicaID("n01", uint64(s.ID)) {
			t.Errorf("shard %d: %+v", s.ID, s.Replicas)
		}
	}
	if got := fmt.Sprintf("%+v", upkeep(after)); got != "[{ID:n00 State:removed} {ID:n02 State:removed}]" {
		t.Errorf("upkeep %s", got)
	}
}

func TestWhatCannotBeRecoveredIsRefused(t *testing.T) {
	m := someMap(t, 5)
	same := func(uint32, string) (uint64, uint64) { return 3, 9 }
	other := someMap(t, 5)
	other.ClusterID = "other"
	removed := someMap(t, 3)
	for i := range removed.Shards {
		removed.Shards[i].Replicas = removed.Shards[i].Replicas[:1]
		removed.Shards[i].Replicas[0].Node = "n00"
	}
	removed.Catalog.Replicas = []catalog.Replica{{Node: "n00"}}
	removed.Nodes[2].State = catalog.Removed
	for want, survivors := range map[string][]Survivor{
		"every shard has a majority":      wreck(m, []string{"n00", "n01", "n02", "n03"}, same),
		"none has a copy of the catalog":  wreck(m, []string{"n03", "n04"}, same),
		"none has a copy of shard 3":      wreck(m, []string{"n01", "n02"}, same),
		"is there twice":                  wreck(m, []string{"n02", "n02"}, same),
		"of cluster other":                append(wreck(m, []string{"n02"}, same), wreck(other, []string{"n03"}, same)...),
		"knows the map":                   {},
		"not one of the cluster's any mo": wreck(removed, []string{"n00", "n02"}, same),
		"the map of node n02":             {{ClusterID: "c", Node: "n02", Map: []byte("?")}},
	} {
		_, err := PlanRecovery(survivors)
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, ErrNotSurvivors) && !errors.Is(err, ErrMajorityLives) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// machine is a catalog without Raft.
type machine struct {
	*catalog.Machine
	t *testing.T
}

func machineOf(t *testing.T, m *catalog.Map) machine {
	t.Helper()
	store := kv.NewMem(nil)
	t.Cleanup(func() { _ = store.Close() })
	c, err := catalog.NewMachine(store)
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := catalog.Command(0, catalog.Found{Map: m})
	if err != nil {
		t.Fatal(err)
	}
	out := machine{c, t}
	out.apply([][]byte{cmd})
	return out
}

func (m machine) apply(cmds [][]byte) (out []catalog.Result) {
	m.t.Helper()
	results, err := m.Apply(shard.Entry{Index: 1, Commands: cmds})
	if err != nil {
		m.t.Fatal(err)
	}
	m.Publish(1)
	for _, r := range results {
		out = append(out, r.(catalog.Result))
	}
	return out
}
