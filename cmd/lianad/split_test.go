package main

import (
	"context"
	"math/rand"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// split splits a shard through any node, as often as the call is broken off.
func (f *fleet) split(shard, at uint32) *pb.SplitShardResponse {
	f.t.Helper()
	var last *pb.SplitShardResponse
	var err error
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		for _, p := range f.places {
			p.mu.Lock()
			d, up := p.d, p.up
			p.mu.Unlock()
			if !up {
				continue
			}
			if last, err = d.split(shard, at); err == nil {
				return last
			}
		}
	}
	f.t.Fatalf("shard %d is not split: %v", shard, err)
	return nil
}

func (d *daemon) split(shard, at uint32) (*pb.SplitShardResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	stream, err := d.cluster.SplitShard(ctx, &pb.SplitShardRequest{Shard: shard, At: at})
	if err != nil {
		return nil, err
	}
	for {
		answer, err := stream.Recv()
		if err != nil || answer.GetDone() {
			return answer, err
		}
	}
}

// Shards are split while ledgers are written, and the leader of one is killed in the
// middle of it: nothing that was acknowledged is missing or there twice, both ends of all
// edges agree, and replicas are alike.
func TestShardsAreSplitUnderLoad(t *testing.T) {
	f := newTrio(t)
	rng := rand.New(rand.NewSource(time.Now().UnixNano()))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	ledgers := make([]*ledger, 6)
	for i := range ledgers {
		ledgers[i] = &ledger{id: uint64(i)}
		r := rand.New(rand.NewSource(rng.Int63()))
		wg.Go(func() { ledgers[i].run(t, f, r, stop) })
	}
	time.Sleep(time.Second)
	f.split(0, 0)
	before := f.overview()
	victim := f.leads(before, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.split(1, 1500)
	}()
	time.Sleep(time.Duration(rng.Intn(600)) * time.Millisecond)
	f.places[victim].kill()
	time.Sleep(2 * time.Second)
	f.restart(victim)
	<-done
	f.split(1, 1500)                              // was done
	f.split(uint32(len(before.GetShards())-1), 0) // a child
	time.Sleep(time.Second)
	close(stop)
	wg.Wait()
	f.settled()
	if n := len(f.overview().GetShards()); n != len(before.GetShards())+2 {
		t.Errorf("%d shards, and the catalog, after two more splits of %d", n, len(before.GetShards()))
	}
	verifyLedgers(f, ledgers)
	f.converged()
	for i := range f.places { // and all of it is found again
		f.places[i].kill()
		f.restart(i)
		f.settled()
	}
	verifyLedgers(f, ledgers)
	f.converged()
}

// kill ends the node at once, and waits for its end.
func (p *place) kill() {
	d := p.down()
	d.signal(syscall.SIGKILL)
	d.wait()
}

// leads returns the place of the node that leads a shard.
func (f *fleet) leads(a *pb.GetClusterResponse, shard uint32) int {
	f.t.Helper()
	for _, s := range a.GetShards() {
		for i := range f.places {
			if s.GetId() == shard && !s.GetCatalog() && f.id(i) == s.GetLeader() {
				return i
			}
		}
	}
	f.t.Fatalf("shard %d has no leader", shard)
	return 0
}
