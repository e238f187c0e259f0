package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

func TestThreeNodesAnswerForEachOther(t *testing.T) {
	f := newTrio(t)
	for i := range uint64(60) {
		f.node(int(i%3)).add(i+1, i%7+1)
	}
	for i := range f.places {
		for note := range uint64(7) {
			if got, want := f.node(i).countIn(note+1), uint64((60-note+6)/7); got != want {
				t.Errorf("node %d counts %d likes of note %d, want %d", i, got, note+1, want)
			}
		}
		srcs, dsts := make([]uint64, 60), make([]uint64, 60)
		for j := range srcs {
			srcs[j], dsts[j] = uint64(j)+1, uint64(j)%7+1
		}
		resp, err := f.node(i).graph.HasEdges(testCtx(t), &pb.HasEdgesRequest{Type: "like", SrcIds: srcs, DstIds: dsts,
			Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}})
		if err != nil {
			t.Fatal(err)
		}
		for j, ok := range resp.GetExists() {
			if !ok {
				t.Errorf("node %d does not see edge %d", i, j)
			}
		}
	}
}

// The shards of a node that is killed accept writes again soon.
func TestShardsFailOver(t *testing.T) {
	f := newTrio(t)
	at := f.leaderOfMost()
	f.node(at).add(1, 1)
	f.node(at).signal(syscall.SIGKILL)
	begun := time.Now()
	other := f.node((at + 1) % 3)
	for i := range uint64(40) { // over all shards
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		for {
			_, err := other.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(100+i, i+1)})
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("no write came through within 10 s: %v", err)
			}
		}
		cancel()
	}
	t.Logf("all shards took writes %v after the kill", time.Since(begun))
	f.restart(at)
	f.settled()
	if got := f.node(at).countIn(1); got != 2 {
		t.Errorf("note 1 has %d likes, want 2", got)
	}
}

// Whatever happens to the nodes, callers see each edge and each counter as if there
// were one copy of it.
func TestOperationsAreLinearizableUnderFaults(t *testing.T) {
	length := 40 * time.Second
	if os.Getenv("LIANA_LONG") != "" {
		length = 10 * time.Minute
	}
	seed := time.Now().UnixNano()
	if text := os.Getenv("LIANA_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LIANA_SEED=%d", seed)
	rng := rand.New(rand.NewSource(seed))
	f := newFleet(t, 4)
	h, stop := &history{}, make(chan struct{})
	var wg sync.WaitGroup
	for c := range 8 {
		r := rand.New(rand.NewSource(rng.Int63()))
		wg.Go(func() { h.run(f, c, r, stop) })
	}
	var ledgers []*ledger
	for c := range uint64(2) {
		l, r := &ledger{id: c}, rand.New(rand.NewSource(rng.Int63()))
		ledgers = append(ledgers, l)
		wg.Go(func() { l.run(t, f, r, stop) })
	}
	f.torment(rng, time.Now().Add(length))
	close(stop)
	wg.Wait()
	f.settled()
	h.verify(t, 500)
	verifyLedgers(f, ledgers)
	f.converged()
}
