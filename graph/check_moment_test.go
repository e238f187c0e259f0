package graph

import (
	"context"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/lianadb/liana/kv"
)

// follower is a node of replicas that do not lead: they are put together from machines
// that stand wherever a test left them.
func follower(t *testing.T, machines ...*Machine) *Graph {
	t.Helper()
	g := &Graph{cfg: Config{Shards: len(machines)}}
	for i, m := range machines {
		g.members[i].Store(&member{machine: m})
	}
	return g
}

func checkOf(t *testing.T, g *Graph) CheckReport {
	t.Helper()
	r, err := g.Check(context.Background(), nil)
	must(t, err)
	return r
}

// On a node that follows, the replicas of two shards stand at entries of different
// times. Neither what is on its way, nor what a replica that lags does not know of yet, is
// a fault; what is wrong while all has arrived is one.
func TestCheckOfReplicasAtDifferentEntries(t *testing.T) {
	sender, behind, receiver := newTestMachine(t, 0, 2), newTestMachine(t, 0, 2), newTestMachine(t, 1, 2)
	for _, m := range []*Machine{sender, behind, receiver} {
		defer m.Close()
	}
	src, dst := neighbours()
	add := mutateCommand(Mutation{Op: OpAdd, Type: 1, Src: src, Dst: dst, Time: 5})
	sender.mustApply(t, 1, add)
	if r := checkOf(t, follower(t, sender, receiver)); r.Faults != 0 || r.Skipped != 1 {
		t.Errorf("an inverse on its way: %d faults, %d passed over: %q", r.Faults, r.Skipped, r.Findings)
	}
	d := delivery{from: 0, version: 1, rows: outboxTo(t, sender, 1)}
	receiver.mustApply(t, 2, d.encode())
	if r := checkOf(t, follower(t, sender, receiver)); r.Faults != 0 || r.Skipped != 0 {
		t.Errorf("all arrived: %d faults, %d passed over: %q", r.Faults, r.Skipped, r.Findings)
	}
	if r := checkOf(t, follower(t, behind, receiver)); r.Faults != 0 || r.Skipped != 1 {
		t.Errorf("a sender that lags: %d faults, %d passed over: %q", r.Faults, r.Skipped, r.Findings)
	}
	// The receiver that forgets an inverse, and says that it has all.
	b := receiver.cfg.Store.NewBatch()
	must(t, b.Delete(appendHeadKey(nil, ListKey{Vertex: Vertex{2, dst}, Type: 1, Dir: In})))
	must(t, b.Commit(kv.NoSync))
	must(t, b.Close())
	must(t, receiver.publishView())
	if r := checkOf(t, follower(t, sender, receiver)); r.Faults == 0 {
		t.Error("a lost inverse was not found")
	}
}

// A digest changes with everything that is said, and with nothing else.
func TestDigestTellsContentApart(t *testing.T) {
	m := newTestMachine(t, 0, 1)
	defer m.Close()
	seen := map[uint64]string{}
	look := func(what string) {
		t.Helper()
		d, err := follower(t, m).Digest(context.Background(), 0)
		must(t, err)
		if old, ok := seen[d.Hash]; ok {
			t.Errorf("after %s the digest is the one after %s", what, old)
		}
		seen[d.Hash] = what
	}
	edge := func(op Op, time int64, props []byte) []byte {
		return mutateCommand(Mutation{Op: op, Type: 1, Src: 1, Dst: 2, Time: time, Props: props})
	}
	props, err := EncodeProps(map[string]string{"k": "v"})
	must(t, err)
	look("the schema")
	m.mustApply(t, 1, edge(OpAdd, 5, nil))
	look("an edge")
	m.mustApply(t, 2, edge(OpUpdate, 6, nil))
	look("another time")
	m.mustApply(t, 3, edge(OpUpdate, 6, props))
	look("properties")
	m.mustApply(t, 4, edge(OpDelete, 0, nil))
	look("a deletion")
	m.mustApply(t, 5, (&increments{requestID: "a", ordinals: []uint32{0}, items: []Increment{{Counter: CounterRef{Key: "k"}, Delta: 1}}}).encode())
	look("a counter and its request id")
	m.mustApply(t, 6, (&increments{requestID: "b", ordinals: []uint32{0}, items: []Increment{{Counter: CounterRef{Key: "k"}, Delta: 0}}}).encode())
	look("another request id")
}

// What differs in one word only: the lists have the same version, and no other row tells.
func TestDigestTellsEdgesApart(t *testing.T) {
	props, err := EncodeProps(map[string]string{"k": "v"})
	must(t, err)
	seen := map[uint64]bool{}
	for _, mu := range []Mutation{
		{Dst: 2, Time: 5}, {Dst: 2, Time: 6}, {Dst: 3, Time: 5}, {Dst: 2, Time: 5, Props: props},
	} {
		mu.Op, mu.Type, mu.Src = OpAdd, 1, 1
		m := newTestMachine(t, 0, 1)
		m.mustApply(t, 1, mutateCommand(mu))
		v, err := m.acquire()
		must(t, err)
		d := &digester{v: v, hash: xxhash.New()}
		must(t, d.list(context.Background(), ListKey{Vertex: Vertex{1, 1}, Type: 1, Dir: Out}))
		seen[d.hash.Sum64()] = true
		v.release()
		m.Close()
	}
	if len(seen) != 4 {
		t.Errorf("%d digests of four lists", len(seen))
	}
}

// The pages of a list, and that it is a tree, are no content.
func TestDigestLeavesTheFormOut(t *testing.T) {
	plain, tree := newTestMachine(t, 0, 1), newTestMachine(t, 0, 1)
	defer plain.Close()
	defer tree.Close()
	tree.cfg.Lists.SplitEntries, tree.cfg.Lists.Branch, tree.cfg.Lists.MaxDeltas = 6, 4, 3
	var digests []Digest
	for _, m := range []*Machine{plain, tree} {
		for i := range int64(200) {
			m.mustApply(t, i+1, mutateCommand(Mutation{Op: OpAdd, Type: 1, Src: uint64(i + 1), Dst: 2, Time: i}))
		}
		d, err := follower(t, m).Digest(context.Background(), 0)
		must(t, err)
		digests = append(digests, d)
	}
	in := ListKey{Vertex: Vertex{2, 2}, Type: 1, Dir: In}
	v, err := tree.acquire()
	must(t, err)
	defer v.release()
	if marked, err := v.isTree(in); err != nil || !marked {
		t.Fatalf("the list is no tree: %v", err)
	}
	if digests[0] != digests[1] {
		t.Errorf("digests %x of a list and %x of the same as a tree", digests[0].Hash, digests[1].Hash)
	}
}
