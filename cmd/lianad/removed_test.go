package main

import (
	"os"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// leaders are the leaders of all shards, and of the catalog.
func leaders(a *pb.GetClusterResponse) map[uint32]string {
	out := map[uint32]string{}
	for _, s := range a.GetShards() {
		if s.GetLeader() != "" {
			out[s.GetId()] = s.GetLeader()
		}
	}
	return out
}

// CASES 22: a node is cut off, removed and joined to the network again. It learns that it
// is out, and ends; no shard changes its leader for it. With an empty directory it comes
// back as another node.
func TestCase22_ANodeRemovedWhileItWasCutOffUpsetsNothing(t *testing.T) {
	watched := 10 * time.Second
	if os.Getenv("LIANA_LONG") != "" {
		watched = time.Minute
	}
	f := newFleet(t, 4)
	for i := range uint64(40) {
		f.node(0).add(i+1, i%4+1)
	}
	out := 3
	lost, d := f.id(out), f.places[out].down() // it is asked no more
	f.isolate(out)
	f.await("the others lead all shards", func(a *pb.GetClusterResponse) bool {
		for _, leader := range leaders(a) {
			if leader == lost {
				return false
			}
		}
		return len(leaders(a)) == len(a.GetShards())
	})
	if _, err := f.node(0).cluster.RemoveNode(testCtx(t), &pb.RemoveNodeRequest{Node: lost}); err != nil {
		t.Fatal(err)
	}
	removed := func(a *pb.GetClusterResponse) bool {
		for _, n := range a.GetNodes() {
			if n.GetId() == lost {
				return n.GetState() == "removed"
			}
		}
		return false
	}
	f.await("it is removed", func(a *pb.GetClusterResponse) bool { return removed(a) && without(a, lost) && atRest(a) })
	time.Sleep(2 * time.Second) // leaderships are spread over the nodes that are left
	before, changes := leaders(f.overview()), 0
	f.board.heal()
	for end := time.Now().Add(watched); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for id, leader := range leaders(f.overview()) {
			if before[id] != leader {
				t.Logf("shard %d: %s, %s before", id, leader, before[id])
				before[id] = leader
				changes++
			}
		}
	}
	if changes > 1 {
		t.Errorf("%d changes of leaders within %v, at most one is right", changes, watched)
	}
	d.wantEnd(exitFailed, "does not come back under its id")
	// It does not come back by itself.
	launchWith(t, f.board.env("3"), startArgs(f.places[out].dir, "--peer-addr", f.places[out].peer)...).
		wantEnd(exitFailed, "does not come back under its id")
	if err := os.RemoveAll(f.places[out].dir); err != nil {
		t.Fatal(err)
	}
	f.join()
	f.await("another node takes part", func(a *pb.GetClusterResponse) bool { return len(leaders(a)) == len(a.GetShards()) && atRest(a) })
	for n := range uint64(4) {
		if got := f.node(4).countIn(n + 1); got != 10 {
			t.Errorf("note %d has %d likes, want 10", n+1, got)
		}
	}
	f.places = append(f.places[:out], f.places[out+1:]...)
	f.converged()
}
