package main

import (
	"context"
	"encoding/binary"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/datadir"
	"github.com/lianadb/liana/kv/pebblekv"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// checkAll has a node check the whole cluster.
func (d *daemon) checkAll(ctx context.Context) (*pb.CheckResponse, error) {
	stream, err := d.admin.Check(ctx, &pb.CheckRequest{Cluster: true})
	if err != nil {
		return nil, err
	}
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil || r.GetDone() {
			return r, err
		}
	}
}

// checked is the report of a check of the cluster that passed nothing over, which it
// waits for.
func (f *fleet) checked() *pb.CheckResponse {
	f.t.Helper()
	var r *pb.CheckResponse
	var err error
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		r, err = f.node(0).checkAll(ctx)
		cancel()
		if err == nil && r.GetSkipped() == 0 {
			return r
		}
	}
	f.t.Fatalf("no check came to its end: %v, %v", r, err)
	return nil
}

// converged fails the test unless all replicas of each shard say the same at the same
// entry of its log, each list is sound, and each edge has its inverse wherever it lies.
func (f *fleet) converged() {
	f.t.Helper()
	r := f.checked()
	if r.GetFaults() > 0 {
		f.t.Errorf("%d faults: %q", r.GetFaults(), r.GetFindings())
	}
	f.t.Logf("%d lists and %d ends of edges in all replicas: they agree", r.GetLists(), r.GetEdges())
}

// lose removes a list of a vertex from the data of a node while it is down: its
// replica, and no other, forgets.
func (p *place) lose(v graph.Vertex, dir graph.Direction) {
	t := p.f.t
	t.Helper()
	d := p.down()
	d.signal(syscall.SIGTERM)
	d.wait()
	dd, err := datadir.Open(p.dir, datadir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dd.Close()
	store, err := pebblekv.Open(dd.StatePath(), pebblekv.Options{Profile: pebblekv.State, Merger: graph.Merger()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	prefix := binary.BigEndian.AppendUint16(nil, uint16(graph.SlotOf(v)))
	prefix = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(prefix, uint16(v.Type)), v.ID)
	it, err := store.NewIter(kv.PrefixSpan(prefix))
	if err != nil {
		t.Fatal(err)
	}
	b, lost := store.NewBatch(), 0
	for ok := it.First(); ok; ok = it.Next() {
		if k := it.Key(); len(k) >= 16 && k[12] == 0x10 && k[15] == byte(dir) {
			lost++
			if err := b.Delete(k); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := it.Close(); err != nil || lost == 0 {
		t.Fatalf("vertex %v: %d rows are lost, %v", v, lost, err)
	}
	if err := b.Commit(kv.Sync); err != nil {
		t.Fatal(err)
	}
}

func expectFindings(t *testing.T, r *pb.CheckResponse, says ...string) {
	t.Helper()
	for _, s := range says {
		if !strings.Contains(strings.Join(r.GetFindings(), "\n"), s) {
			t.Errorf("%d faults, none says %q: %q", r.GetFaults(), s, r.GetFindings())
		}
	}
}

// What one replica has lost, the others have: a check of the cluster tells.
func TestACheckOfTheClusterComparesReplicas(t *testing.T) {
	f := newTrio(t)
	for i := range uint64(60) {
		f.node(0).add(i+1, i%7+1)
	}
	f.converged()
	f.places[1].lose(graph.Vertex{Type: 2, ID: 3}, graph.In)
	f.restart(1)
	f.settled()
	r := f.checked()
	expectFindings(t, r, "say different things", "peer 3: the other end lacks it", "IN edges of type 1")
}

// An edge whose ends lie on different nodes, none of which has both, is looked at too.
func TestACheckOfTheClusterComparesEndsOnDifferentNodes(t *testing.T) {
	f := newFleetOf(t, 3, 1)
	for i := range uint64(200) {
		f.node(0).add(i+1, i%11+1)
	}
	spread := func() bool {
		look := f.look()
		for _, n := range look.GetNodes() {
			if n.GetReplicas() == 0 {
				return false
			}
		}
		return atRest(look)
	}
	for end := time.Now().Add(60 * time.Second); !spread(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not spread: %v", f.look())
		}
	}
	f.converged()
	victim := f.holder(graph.Vertex{Type: 2, ID: 3})
	f.places[victim].lose(graph.Vertex{Type: 2, ID: 3}, graph.In)
	f.restart(victim)
	f.settled()
	r := f.checked()
	expectFindings(t, r, "-> 3: its ends in shards", "only the source's is there")
}

// holder is the node that leads the shard of a vertex.
func (f *fleet) holder(v graph.Vertex) int {
	f.t.Helper()
	look := f.overview()
	for _, s := range look.GetShards() {
		if slot := uint32(graph.SlotOf(v)); s.GetCatalog() || slot < s.GetFirstSlot() || slot > s.GetLastSlot() {
			continue
		}
		for i := range f.places {
			if f.id(i) == s.GetLeader() {
				return i
			}
		}
	}
	f.t.Fatalf("nobody leads the shard of %v", v)
	return 0
}
