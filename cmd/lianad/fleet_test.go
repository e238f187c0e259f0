package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// fleet is a cluster of processes whose connections to each other go through a
// switchboard.
type fleet struct {
	t      *testing.T
	board  *switchboard
	places []*place
	more   []string // arguments of every node
}

// place is where a node runs, over its restarts.
type place struct {
	f    *fleet
	name string // on the switchboard
	dir  string
	peer string // peer address
	mu   sync.Mutex
	d    *daemon
	up   bool
}

// newFleet starts a cluster and waits until every shard has its three voters.
func newFleet(t *testing.T, nodes int, more ...string) *fleet {
	t.Helper()
	return newFleetOf(t, nodes, 3, more...)
}

// newFleetOf is newFleet with another number of voters.
func newFleetOf(t *testing.T, nodes, replication int, more ...string) *fleet {
	t.Helper()
	board, err := newSwitchboard()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(board.close)
	f := &fleet{t: t, board: board, more: more}
	f.add("--replication", fmt.Sprint(replication))
	for range nodes - 1 {
		f.join()
	}
	f.settled()
	return f
}

// newTrio is a cluster of three.
func newTrio(t *testing.T, more ...string) *fleet {
	t.Helper()
	return newFleet(t, 3, more...)
}

// add starts one more node.
func (f *fleet) add(more ...string) *place {
	f.t.Helper()
	p := &place{f: f, name: fmt.Sprint(len(f.places)), dir: filepath.Join(f.t.TempDir(), "data")}
	f.places = append(f.places, p)
	p.start(append(more, "--peer-addr", "127.0.0.1:0")...)
	return p
}

// join adds a node through the first that runs.
func (f *fleet) join() *place {
	f.t.Helper()
	for _, p := range f.places {
		if p.up {
			return f.add("--join", p.peer)
		}
	}
	f.t.Fatal("no node to join")
	return nil
}

// destroy kills a node and its data.
func (p *place) destroy() {
	p.f.t.Helper()
	d := p.down()
	d.signal(syscall.SIGKILL)
	d.wait()
	if err := os.RemoveAll(p.dir); err != nil {
		p.f.t.Fatal(err)
	}
}

func (p *place) start(more ...string) {
	p.f.t.Helper()
	d := launchWith(p.f.t, p.f.board.env(p.name), startArgs(p.dir, slices.Concat(p.f.more, more)...)...).daemon()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.d, p.up, p.peer = d, true, d.ready["peer"]
	p.f.board.know(p.name, p.peer)
}

// restart starts the node again on its data and under its address.
func (p *place) restart() {
	p.f.t.Helper()
	p.start("--peer-addr", p.peer)
}

func (p *place) daemon() *daemon {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.d
}

// down notes that the node is about to be ended.
func (p *place) down() *daemon {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up = false
	return p.d
}

func (f *fleet) node(i int) *daemon { return f.places[i].daemon() }
func (f *fleet) restart(i int)      { f.places[i].restart() }

// look is what the first node that answers tells of the cluster, or nil.
func (f *fleet) look() *pb.GetClusterResponse {
	for _, p := range f.places {
		p.mu.Lock()
		d, up := p.d, p.up
		p.mu.Unlock()
		if !up {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		resp, err := d.cluster.GetCluster(ctx, &pb.GetClusterRequest{})
		cancel()
		if err == nil {
			return resp
		}
	}
	return nil
}

func (f *fleet) overview() *pb.GetClusterResponse {
	f.t.Helper()
	resp := f.look()
	if resp == nil {
		f.t.Fatal("no node tells of the cluster")
	}
	return resp
}

// settled waits until every shard, and the catalog, has a leader and its voters, all
// of them well, and nothing moves.
func (f *fleet) settled() {
	f.t.Helper()
	var last *pb.GetClusterResponse
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if last = f.look(); atRest(last) {
			return
		}
	}
	f.dump()
	f.t.Fatalf("not at rest: %v", last)
}

// dump ends all nodes so that their logs tell where each goroutine stood.
func (f *fleet) dump() {
	for _, p := range f.places {
		p.mu.Lock()
		d, up := p.d, p.up
		p.up = false
		p.mu.Unlock()
		if up {
			d.signal(syscall.SIGQUIT)
			d.wait()
		}
	}
}

func atRest(a *pb.GetClusterResponse) bool {
	for _, s := range a.GetShards() {
		if s.GetLeader() == "" || s.GetMovingTo()+s.GetMovingFrom() != "" || s.GetSplittingAt() > 0 || len(s.GetReplicas()) != int(a.GetReplication()) {
			return false
		}
		for _, r := range s.GetReplicas() {
			if !r.GetVoter() || r.GetFault() != "" {
				return false
			}
		}
	}
	return len(a.GetShards()) > 1
}

// leaderOfMost is the node that leads most shards.
func (f *fleet) leaderOfMost() int {
	count := map[string]int{}
	for _, s := range f.overview().GetShards() {
		count[s.GetLeader()]++
	}
	best := 0
	for i := range f.places {
		if count[f.id(i)] > count[f.id(best)] {
			best = i
		}
	}
	return best
}

func (f *fleet) id(i int) string {
	for _, n := range f.overview().GetNodes() {
		if n.GetPeerAddr() == f.places[i].peer {
			return n.GetId()
		}
	}
	return ""
}

// cut cuts two nodes off from each other.
func (f *fleet) cut(i, j int) {
	f.cutOneWay(i, j)
	f.cutOneWay(j, i)
}

// cutOneWay has nothing of i arrive at j.
func (f *fleet) cutOneWay(i, j int) {
	f.board.set(f.places[i].name, f.places[j].name, wire{cut: true})
}

// isolate cuts a node off from all others.
func (f *fleet) isolate(i int) {
	for j := range f.places {
		if j != i {
			f.cut(i, j)
		}
	}
}

func (f *fleet) skew(i int, by time.Duration) {
	f.board.order(f.places[i].name, func(o *orders) { o.skew = by })
}

func (f *fleet) stall(i int, stalled bool) {
	f.board.order(f.places[i].name, func(o *orders) { o.stalled = stalled })
}
