package main

import (
	"context"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// journal is what writers know of their edges and of a counter across kills.
type journal struct {
	mu      sync.Mutex
	state   map[[2]uint64]bool // last acknowledged: is the edge there
	unsure  map[[2]uint64]bool // an operation after that was not answered
	counted int64              // acknowledged increments without an id
	tried   int64
	withID  int64 // increments with an id, each repeated until acknowledged
}

// write adds and deletes edges of its own until the server is gone.
func (j *journal) write(d *daemon, writer uint64, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		k := [2]uint64{writer*1000 + uint64(rng.Intn(300)) + 1, uint64(rng.Intn(50)) + 1}
		add := rng.Intn(4) > 0
		j.mu.Lock()
		j.unsure[k] = true
		j.tried++
		j.mu.Unlock()
		var err error
		e := like(k[0], k[1])
		if add {
			_, err = d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e})
		} else {
			_, err = d.graph.DeleteEdge(ctx, &pb.DeleteEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst})
		}
		if err != nil {
			return
		}
		j.mu.Lock()
		j.state[k] = add
		delete(j.unsure, k)
		j.mu.Unlock()
		if _, err := d.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: &pb.CounterRef{Key: "n"}, Delta: 1}}); err != nil {
			return
		}
		j.mu.Lock()
		j.counted++
		j.mu.Unlock()
	}
}

// verify compares a server that has come back with the journal.
func (j *journal) verify(d *daemon) {
	d.t.Helper()
	var srcs, dsts []uint64
	var want []bool
	for k, there := range j.state {
		if !j.unsure[k] {
			srcs, dsts, want = append(srcs, k[0]), append(dsts, k[1]), append(want, there)
		}
	}
	for len(srcs) > 0 {
		n := min(len(srcs), 5_000)
		resp, err := d.graph.HasEdges(testCtx(d.t), &pb.HasEdgesRequest{Type: "like", SrcIds: srcs[:n], DstIds: dsts[:n]})
		if err != nil {
			d.t.Fatal(err)
		}
		for i, got := range resp.Exists {
			if got != want[i] {
				d.t.Fatalf("edge %d -> %d: there %v, acknowledged was %v", srcs[i], dsts[i], got, want[i])
			}
		}
		srcs, dsts, want = srcs[n:], dsts[n:], want[n:]
	}
	if n := d.counter("n"); n < j.counted || n > j.tried {
		d.t.Fatalf("counter %d, acknowledged %d, tried %d", n, j.counted, j.tried)
	}
	if n := d.counter("once"); n != j.withID {
		d.t.Fatalf("counter with request ids %d, want %d", n, j.withID)
	}
}

func (d *daemon) counter(key string) int64 {
	d.t.Helper()
	resp, err := d.counters.Get(testCtx(d.t), &pb.GetCounterRequest{Counter: &pb.CounterRef{Key: key}})
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.Counters[0].Value
}

// check runs the audit and fails on any fault.
func (d *daemon) check() {
	d.t.Helper()
	stream, err := d.admin.Check(testCtx(d.t), &pb.CheckRequest{})
	if err != nil {
		d.t.Fatal(err)
	}
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return
		}
		if err != nil {
			d.t.Fatal(err)
		}
		if r.Faults > 0 {
			d.t.Fatalf("%d faults: %q", r.Faults, r.Findings)
		}
	}
}

// Writes run while the process is killed at random moments. What was acknowledged is
// there after each restart, increments with a request id count once however often
// they are repeated across restarts, and the audit is clean.
func TestKillsLoseNothingThatWasAcknowledged(t *testing.T) {
	kills := 10
	if os.Getenv("LIANA_LONG") != "" {
		kills = 200
	}
	dir := filepath.Join(t.TempDir(), "data")
	rng := rand.New(rand.NewSource(time.Now().UnixNano()))
	j := &journal{state: map[[2]uint64]bool{}, unsure: map[[2]uint64]bool{}}
	for kill := range kills {
		d := startDaemon(t, dir)
		j.verify(d)
		j.repeatOnce(d, kill)
		if kill%5 == 4 {
			d.check()
		}
		var wg sync.WaitGroup
		for writer := range uint64(8) {
			r := rand.New(rand.NewSource(rng.Int63()))
			wg.Go(func() { j.write(d, writer+1, r) })
		}
		time.Sleep(time.Duration(20+rng.Intn(300)) * time.Millisecond)
		d.signal(syscall.SIGKILL)
		d.wait()
		wg.Wait()
	}
	d := startDaemon(t, dir)
	j.verify(d)
	d.check()
	t.Logf("%d kills, %d acknowledged increments, %d edges known", kills, j.counted, len(j.state))
}

// repeatOnce sends all ids of the last rounds again, and a new one.
func (j *journal) repeatOnce(d *daemon, round int) {
	d.t.Helper()
	for r := max(0, round-20); r <= round; r++ {
		id := "round-" + time.Duration(r).String()
		resp, err := d.counters.IncrBy(testCtx(d.t), &pb.IncrByRequest{
			Increment: &pb.Increment{Counter: &pb.CounterRef{Key: "once"}, Delta: 1}, RequestId: id,
		})
		if err != nil {
			d.t.Fatal(err)
		}
		if resp.Value != int64(r)+1 {
			d.t.Fatalf("id %s answered %d, want %d", id, resp.Value, r+1)
		}
	}
	j.withID = int64(round) + 1
}
