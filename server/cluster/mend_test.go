package cluster

import (
	"strings"
	"testing"
	"time"

	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// reports of nodes by what has stopped on them: of shard 7 the replica NODE-1.
func stoppedOn(damaged bool, nodes ...string) map[string]*peerv1.GetReplicasResponse {
	out := map[string]*peerv1.GetReplicasResponse{"well": {Replicas: []*peerv1.Replica{{Shard: 7, Replica: "well-1"}, {Shard: 8, Fault: "the disk is sick"}}}}
	for _, n := range nodes {
		out[n] = &peerv1.GetReplicasResponse{Replicas: []*peerv1.Replica{
			{Shard: 7, Replica: n + "-1", Failed: true, Damaged: damaged, Fault: "because"}, {Shard: 8, Replica: n + "-1"},
		}}
	}
	return out
}

// A damaged replica is given up at once, one that has stopped for another reason after
// the delay of dead nodes, and none where too many are in trouble.
func TestReplicasThatHaveStoppedAreGivenUp(t *testing.T) {
	const after = time.Minute
	for _, c := range []struct {
		name       string
		damaged    bool
		nodes      []string
		dead, most int
		first      int // given up at first sight
		later      int // after the delay
		says       string
	}{
		{"a damaged one", true, []string{"b"}, 0, 1, 1, 1, "is damaged, another is made in its place: because"},
		{"a failed one", false, []string{"b"}, 0, 1, 0, 1, "has failed, after 1m0s another is made in its place: because"},
		{"two nodes, one may be", true, []string{"b", "c"}, 0, 1, 0, 0, "failed on 2 nodes"},
		{"two nodes, two may be", true, []string{"b", "c"}, 0, 2, 2, 2, "is damaged"},
		{"a node is dead already", true, []string{"b"}, 1, 1, 0, 0, "it stays so"},
		{"dead nodes alone", true, nil, 3, 1, 0, 0, ""},
	} {
		m := newMending()
		reports := stoppedOn(c.damaged, c.nodes...)
		begun := time.Now()
		due, remarks := m.look(reports, c.dead, c.most, after, begun)
		if n := count(due); n != c.first || !strings.Contains(strings.Join(remarks, "\n"), c.says) || (len(remarks) == 0) != (c.says == "") {
			t.Errorf("%s: %d are given up: %q", c.name, n, remarks)
		}
		if due, _ = m.look(reports, c.dead, c.most, after, begun.Add(after)); count(due) != c.later {
			t.Errorf("%s: later %d are given up", c.name, count(due))
		}
	}
}

// One that is given up stays so until it is gone, and what is made in its place and stops
// again waits for the delay: a disk that damages all that it is given would have the
// cluster copy without end.
func TestWhatStopsAgainIsNotMadeAnewAtOnce(t *testing.T) {
	const after = time.Minute
	m, now := newMending(), time.Now()
	reports := stoppedOn(true, "b")
	for range 3 {
		if due, _ := m.look(reports, 0, 1, after, now); !due["b-1"] {
			t.Fatal("not given up until it is gone")
		}
		now = now.Add(time.Second)
	}
	reports["b"].Replicas[0].Replica = "b-2"
	if due, remarks := m.look(reports, 0, 1, after, now); due["b-2"] || !strings.Contains(remarks[0], "after 57s") {
		t.Errorf("given up at once again: %q", remarks)
	}
	if due, _ := m.look(reports, 0, 1, after, now.Add(after)); !due["b-2"] {
		t.Error("not given up after the delay")
	}
}

// A restart of the node mends what had only failed, and begins the delay anew.
func TestADelayBeginsWithEachFailure(t *testing.T) {
	const after = time.Minute
	m, now := newMending(), time.Now()
	m.look(stoppedOn(false, "b"), 0, 1, after, now)
	m.look(stoppedOn(false), 0, 1, after, now.Add(30*time.Second))
	if due, _ := m.look(stoppedOn(false, "b"), 0, 1, after, now.Add(after)); count(due) != 0 {
		t.Error("the time before the restart counts")
	}
}

func count(due map[string]bool) (n int) {
	for _, d := range due {
		if d {
			n++
		}
	}
	return n
}
