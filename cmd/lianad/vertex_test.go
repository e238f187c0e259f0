package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// fans has users 1 to n like a note, and another one.
func (d *daemon) fans(n int, note uint64) {
	d.t.Helper()
	for from := 1; from <= n; from += 2500 {
		var ms []*pb.Mutation
		for u := from; u < min(from+2500, n+1); u++ {
			for _, dst := range []uint64{note, note + 1} {
				ms = append(ms, &pb.Mutation{Op: pb.MutationOp_ADD, Type: "like", SrcId: uint64(u), DstId: dst})
			}
		}
		resp, err := d.graph.MutateEdges(testCtx(d.t), &pb.MutateEdgesRequest{Mutations: ms})
		if err != nil || len(resp.Errors) > 0 {
			d.t.Fatal(err, resp.GetErrors())
		}
	}
}

// job tells the state of a note, waiting for who leads it.
func (d *daemon) job(note uint64) *pb.VertexJob {
	d.t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		j, err := d.graph.GetVertexJob(testCtx(d.t), &pb.GetVertexJobRequest{Vertex: &pb.Vertex{Type: "note", Id: note}})
		if err == nil {
			return j
		}
		if time.Since(begun) > 30*time.Second {
			d.t.Fatal(err)
		}
	}
}

// oneLike fails unless each of users 1 to n likes exactly one note.
func (d *daemon) oneLike(n int) {
	d.t.Helper()
	for from := 1; from <= n; from += 5000 {
		req := &pb.CountEdgesBatchRequest{
			Lists:       []*pb.ListKind{{Type: "like", Direction: pb.Direction_OUT}},
			Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE},
		}
		for u := from; u < min(from+5000, n+1); u++ {
			req.Vertices = append(req.Vertices, &pb.Vertex{Type: "user", Id: uint64(u)})
		}
		resp, err := d.graph.CountEdgesBatch(testCtx(d.t), req)
		if err != nil {
			d.t.Fatal(err)
		}
		for i, c := range resp.Counts {
			if c != 1 {
				d.t.Fatalf("user %d has %d likes, want 1", from+i, c)
			}
		}
	}
}

// CASES 14: a note with very many likes is deleted, and the process killed twice while the
// job is at work. It goes on by itself, and each liker has one like less.
func TestCase14_ADeletionGoesOnAfterKills(t *testing.T) {
	fans := 20_000
	if os.Getenv("LIANA_LONG") != "" {
		fans = 1_000_000
	}
	const note = 7
	dir := filepath.Join(t.TempDir(), "data")
	d := startDaemon(t, dir)
	d.fans(fans, note)
	begun, err := d.graph.DeleteVertex(testCtx(t), &pb.DeleteVertexRequest{Vertex: &pb.Vertex{Type: "note", Id: note}})
	if err != nil || begun.State != pb.VertexState_VERTEX_DELETING || begun.Total != uint64(fans) {
		t.Fatal(begun, err)
	}
	least := uint64(0)
	for kill := range 2 {
		for j := d.job(note); j.State == pb.VertexState_VERTEX_DELETING && j.Done <= least+1000; j = d.job(note) {
			time.Sleep(5 * time.Millisecond)
		}
		j := d.job(note)
		if j.State != pb.VertexState_VERTEX_DELETING {
			t.Logf("the job had ended before kill %d", kill+1)
		}
		least = j.Done
		d.signal(syscall.SIGKILL)
		d.wait()
		d = startDaemon(t, dir)
		if j := d.job(note); j.State == pb.VertexState_VERTEX_DELETING && j.Done < least/2 {
			t.Errorf("%d edges were passed before the kill, %d after it", least, j.Done)
		}
	}
	ended(t, d, note)
	if n := d.countIn(note); n != 0 {
		t.Errorf("%d likes are left", n)
	}
	d.oneLike(fans)
	d.check()
	d.add(1, note) // a fresh note
	if n := d.countIn(note); n != 1 {
		t.Errorf("%d likes of the note made anew", n)
	}
}

func ended(t *testing.T, d *daemon, note uint64) {
	t.Helper()
	for begun := time.Now(); d.job(note).State != pb.VertexState_VERTEX_PLAIN; time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > 10*time.Minute {
			t.Fatalf("the job does not end: %v", d.job(note))
		}
	}
}

// A note is hidden on three nodes while the one that leads it is killed, and comes back
// whole: its likes, and those it brings its author.
func TestHiddenEdgesSurviveTheLossOfALeader(t *testing.T) {
	const note, fans = 7, 3000
	f := newTrio(t)
	f.settled()
	d := f.node(0)
	d.fans(fans, note)
	author := &pb.Vertex{Type: "user", Id: 99_999}
	if _, err := d.graph.AddEdge(testCtx(t), &pb.AddEdgeRequest{Edge: &pb.Edge{Src: author, Type: "published", Dst: &pb.Vertex{Type: "note", Id: note}}}); err != nil {
		t.Fatal(err)
	}
	v := &pb.Vertex{Type: "note", Id: note}
	if _, err := d.graph.HideVertex(testCtx(t), &pb.HideVertexRequest{Vertex: v}); err != nil {
		t.Fatal(err)
	}
	lost := f.leaderOfMost()
	f.node(lost).signal(syscall.SIGKILL)
	d = f.node((lost + 1) % 3)
	become := func(want pb.VertexState) {
		t.Helper()
		for begun := time.Now(); d.job(note).State != want; time.Sleep(20 * time.Millisecond) {
			if time.Since(begun) > time.Minute {
				t.Fatalf("%v, want %v", d.job(note), want)
			}
		}
	}
	likes := func(want int64) {
		t.Helper()
		if n := d.countIn(note); n != uint64(want) {
			t.Errorf("%d likes, want %d", n, want)
		}
		var got int64
		for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
			resp, err := d.counters.Get(testCtx(t), &pb.GetCounterRequest{Counter: &pb.CounterRef{Vertex: author, Metric: "likes_received"}})
			if err != nil {
				t.Fatal(err)
			}
			if got = resp.Counters[0].Value; got == want {
				return
			}
		}
		t.Errorf("the author has received %d likes, want %d", got, want)
	}
	become(pb.VertexState_VERTEX_HIDDEN)
	likes(0)
	f.restart(lost)
	if _, err := d.graph.RestoreVertex(testCtx(t), &pb.RestoreVertexRequest{Vertex: v}); err != nil {
		t.Fatal(err)
	}
	become(pb.VertexState_VERTEX_PLAIN)
	for begun := time.Now(); d.countIn(note) != fans && time.Since(begun) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
	}
	likes(fans)
	f.settled()
	d.check()
}
