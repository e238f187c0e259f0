package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// stopAll ends all nodes at once.
func (f *fleet) stopAll() {
	f.t.Helper()
	for _, p := range f.places {
		p.down().signal(syscall.SIGTERM)
	}
	for _, p := range f.places {
		p.daemon().wait()
	}
}

// startAll starts all nodes, with arguments that depend on the node, and waits until
// they are ready: none is before a majority is up.
func (f *fleet) startAll(args func(i int) []string) {
	f.t.Helper()
	started := make([]*process, len(f.places))
	for i, p := range f.places {
		started[i] = launchWith(f.t, f.board.env(p.name), startArgs(p.dir, args(i)...)...)
	}
	for i, p := range f.places {
		p.mu.Lock()
		p.d, p.up = started[i].daemon(), true
		p.peer = p.d.ready["peer"]
		f.board.know(p.name, p.peer)
		p.mu.Unlock()
	}
}

// freeAddrs are addresses that nobody listens at.
func freeAddrs(t *testing.T, n int) (out []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out
}

// CASES 45: all nodes come back under other addresses; the list of the new ones is all
// that they know of each other. Then one moves again, without any list.
func TestAllAddressesChange(t *testing.T) {
	f := newTrio(t)
	for i := range uint64(30) {
		f.node(0).add(i+1, i%3+1)
	}
	before := f.overview()
	f.stopAll()
	addrs := freeAddrs(t, 3)
	f.startAll(func(i int) []string { return []string{"--peer-addr", addrs[i], "--join", strings.Join(addrs, ",")} })
	a := f.await("a leader of everything, and the new addresses", func(a *pb.GetClusterResponse) bool {
		for _, p := range f.places {
			if nodeAt(a, p.peer) == nil {
				return false
			}
		}
		return atRest(a)
	})
	if len(a.GetNodes()) != 3 || a.GetClusterId() != before.GetClusterId() {
		t.Errorf("%v", a.GetNodes())
	}
	d := f.places[1].down()
	d.signal(syscall.SIGTERM)
	d.wait()
	f.places[1].start("--peer-addr", "127.0.0.1:0")
	f.await("one more new address", func(a *pb.GetClusterResponse) bool { return nodeAt(a, f.places[1].peer) != nil && atRest(a) })
	for i := range f.places {
		f.node(i).add(uint64(100+i), 1)
		if got := f.node(i).countIn(1); got != uint64(11+i) {
			t.Errorf("node %d: %d likes", i, got)
		}
	}
}

// CASES 44: flags of the founding that are left over, on nodes with data, without, and on
// one whose data was lost, found no other cluster.
func TestFlagsLeftOverFoundNoOtherCluster(t *testing.T) {
	f := newTrio(t)
	f.node(0).add(1, 1)
	id := f.overview().GetClusterId()
	all := strings.Join([]string{f.places[0].peer, f.places[1].peer, f.places[2].peer}, ",")
	f.stopAll()

	// Cut off from the others, with all flags: it serves nothing, and founds nothing.
	flags := func(i int) []string {
		return []string{"--peer-addr", f.places[i].peer, "--replication", "3", "--join", all}
	}
	alone := launch(t, startArgs(f.places[0].dir, flags(0)...)...)
	select {
	case line := <-alone.lines:
		t.Errorf("alone: %q", line)
	case <-time.After(3 * time.Second):
	}
	alone.signal(syscall.SIGKILL)
	alone.wait()
	f.startAll(flags)
	f.settled()
	if got := f.overview().GetClusterId(); got != id {
		t.Errorf("cluster %s, was %s", got, id)
	}
	if got := f.node(2).countIn(1); got != 1 {
		t.Errorf("%d likes", got)
	}

	// A fourth with the same flags joins.
	fourth := f.add("--replication", "3", "--join", all)
	if got := fourth.daemon().overviewOf(t).GetClusterId(); got != id {
		t.Errorf("the fourth is of cluster %s", got)
	}
	// The founder without its data, too, under a new id.
	f.places[0].destroy()
	f.places[0].start(flags(0)...)
	if got := f.node(0).overviewOf(t).GetClusterId(); got != id {
		t.Errorf("the wiped founder is of cluster %s", got)
	}
	f.await("it has a new id", func(a *pb.GetClusterResponse) bool { return len(a.GetNodes()) == 5 }) // the three, the fourth, and it
	if got := f.node(0).countIn(1); got != 1 {
		t.Errorf("the wiped founder sees %d likes", got)
	}

	// And where nobody answers, none is made.
	dir := filepath.Join(t.TempDir(), "data")
	lost := launch(t, startArgs(dir, "--replication", "3", "--join", "127.0.0.1:1,127.0.0.1:2")...)
	select {
	case line := <-lost.lines:
		t.Errorf("without anybody to join: %q", line)
	case <-time.After(2 * time.Second):
	}
	lost.signal(syscall.SIGKILL)
	lost.wait()
	if _, err := os.Stat(filepath.Join(dir, "LIANA")); err == nil {
		t.Error("it has made itself an identity")
	}
}

func (d *daemon) overviewOf(t *testing.T) *pb.GetClusterResponse {
	t.Helper()
	a, err := d.cluster.GetCluster(testCtx(t), &pb.GetClusterRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// RULES 11, A8: a node whose data was wiped, under its old address, gives nobody a
// majority that was not there.
func TestAWipedNodeGivesNoMajority(t *testing.T) {
	f := newTrio(t)
	for i := range uint64(30) {
		f.node(0).add(i+1, i%3+1)
	}
	lost := f.id(2)
	f.places[2].destroy()
	// It joins as a new node while there is a majority, and waits.
	f.places[2].start("--peer-addr", f.places[2].peer, "--join", f.places[0].peer)
	// Then another goes: one of the three that vote is left, beside the wiped one.
	gone := f.places[1].down()
	gone.signal(syscall.SIGSTOP)
	time.Sleep(2 * time.Second) // leases end
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := f.node(0).graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(1000, 1)})
		cancel()
		if err == nil {
			t.Fatal("a write was acknowledged by one of three voters")
		}
	}
	gone.signal(syscall.SIGCONT)
	f.places[1].up = true
	if _, err := f.node(0).cluster.RemoveNode(testCtx(t), &pb.RemoveNodeRequest{Node: lost}); err != nil {
		t.Error(err)
	}
	f.settled()
	if got := f.node(2).countIn(2); got != 10 {
		t.Errorf("note 2 has %d likes, want 10", got)
	}
}

// The moves to a new node go on where the node that made them is killed.
func TestMovesGoOnAfterTheirLeaderIsKilled(t *testing.T) {
	f := newTrio(t)
	for i := range uint64(60) {
		f.node(0).add(i+1, i%3+1)
	}
	f.join()
	moving := func(a *pb.GetClusterResponse) bool {
		for _, s := range a.GetShards() {
			if s.GetMovingTo() != "" {
				return true
			}
		}
		return false
	}
	a := f.await("a move", moving)
	leader := ""
	for _, s := range a.GetShards() {
		if s.GetCatalog() {
			leader = s.GetLeader()
		}
	}
	for i, p := range f.places {
		if n := nodeAt(a, p.peer); n != nil && n.GetId() == leader {
			p.down().signal(syscall.SIGKILL)
			p.daemon().wait()
			time.Sleep(time.Second)
			f.restart(i)
		}
	}
	f.await("even, and at rest", func(a *pb.GetClusterResponse) bool {
		for _, n := range a.GetNodes() {
			if n.GetReplicas() != 3 {
				return false
			}
		}
		return atRest(a)
	})
	f.node(3).check()
	if got := f.node(3).countIn(1); got != 20 {
		t.Errorf("note 1 has %d likes, want 20", got)
	}
}
