package shard

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// The one replica that is left of three goes on with all that it had, takes others in
// again, and a second recovery changes nothing.
func TestAReplicaGoesOnAloneFromALostMajority(t *testing.T) {
	for name, change := range map[string]func(*NodeConfig){"whole log": nil, "log that was cut": oneEntry} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, change).form()
			for range 20 {
				f.add("a")
			}
			f.agree()
			for _, r := range f.rigs {
				f.close(r)
			}
			left := f.rigs[1]
			f.open(left)
			remains, err := left.node.Remains()
			f.must(err)
			if len(remains) != 1 || len(remains[0].Members) != 3 || remains[0].Last == 0 || NodeOf(remains[0].Replica) != "n2" {
				t.Fatalf("%+v", remains)
			}
			if MajorityOf(remains[0].Members, []string{"n2"}) || !MajorityOf(remains[0].Members, []string{"n2", "n3"}) {
				t.Errorf("majorities of %+v", remains[0].Members)
			}
			done, err := left.node.Recover(1, [][]byte{[]byte("first")})
			f.must(err)
			if !done {
				t.Error("nothing was done")
			}
			if done, err := left.node.Recover(1, [][]byte{[]byte("second")}); err != nil || done {
				t.Errorf("once more: %v, %v", done, err)
			}
			f.rigs[0], f.rigs[2] = memRigIn(f, "n4"), memRigIn(f, "n5")
			left.startShard(1)
			if got := f.add("a"); got != 21 {
				t.Errorf("a is %d, want 21", got)
			}
			if got := f.add("first"); got != 2 {
				t.Errorf("the command of the recovery was applied %d times", got-1)
			}
			if got := f.add("second"); got != 1 {
				t.Error("the command of the second recovery was applied")
			}
			for _, r := range []*rig{f.rigs[0], f.rigs[2]} {
				f.open(r)
				f.join(r)
			}
			f.add("a")
			f.agree()
		})
	}
}

// memRigIn makes a rig of another node for a fleet.
func memRigIn(f *fleet, id string) *rig {
	other := newFleet(f.t, 1, nil).rigs[0]
	cfg := other.cfg
	other.cfg = func(c *NodeConfig) {
		cfg(c)
		c.NodeID = id
		c.Dial = f.rigs[1].config().Dial
	}
	return other
}

// Entries that were never committed count as much as those that were: nobody can tell.
func TestRemainsTellOfTheEndOfTheLog(t *testing.T) {
	f := newFleet(t, 3, nil).form()
	f.add("a")
	f.agree()
	at := slices.IndexFunc(f.rigs, func(r *rig) bool { return r.shards[1] == f.leader() })
	leader := f.rigs[at]
	for i, r := range f.rigs {
		if i != at {
			f.close(r)
		}
	}
	_, before := leader.shards[1].log.bounds()
	_, err := leader.shards[1].ProposeAsync([]byte("lonely"), Client)
	f.must(err)
	eventually(t, "it is in the log", func() bool {
		_, last := leader.shards[1].log.bounds()
		return last > before
	})
	f.close(leader)
	f.open(leader)
	remains, err := leader.node.Remains()
	f.must(err)
	if remains[0].Last <= remains[0].Applied.Index {
		t.Errorf("%+v", remains[0])
	}
	_, err = leader.node.Recover(1, nil)
	f.must(err)
	f.rigs = []*rig{leader}
	leader.startShard(1)
	f.add("a")
	m := leader.machines[1]
	m.mu.Lock()
	defer m.mu.Unlock()
	if got := maps.Clone(m.published); got["lonely"] != 1 || got["a"] != 2 {
		t.Errorf("%v", got)
	}
}

func TestARunningReplicaIsNotRecovered(t *testing.T) {
	r := memRig(t, nil).start(1)
	if _, err := r.node.Recover(1, nil); err == nil || !strings.Contains(err.Error(), "runs") {
		t.Errorf("%v", err)
	}
	if _, err := r.node.Remains(); err == nil {
		t.Error("remains of a shard that runs")
	}
}
