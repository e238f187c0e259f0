package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// swinger adds and deletes edges of its own, whose ends lie in different shards. After
// each call that fails it looks at what it was told, and tries again.
type swinger struct {
	id    uint64
	there map[uint64]bool // edges, by number, as they were acknowledged
	tries int             // calls that failed and were made again
}

const swingEdges = 8 // of each swinger

// edge goes from a user of shard 0 to a note of shard 1.
func (s *swinger) edge(n uint64) *pb.Edge {
	src := s.id*1000 + 1
	for shardOf(src) != 0 {
		src++
	}
	dst := n*1000 + 1
	for shardOfNote(dst) != 1 {
		dst++
	}
	return like(src, dst)
}

func (s *swinger) run(t *testing.T, f *fleet, rng *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		n := uint64(rng.Intn(swingEdges))
		e, add, failed := s.edge(n), !s.there[n], 0
		until(t, f, rng, func(ctx context.Context, d *daemon) error {
			changed, err := swing(ctx, d, e, add)
			switch {
			case err != nil:
				failed++
				if !retryable(err) {
					t.Errorf("not marked as retryable: %v", err)
				}
			case !changed && failed == 0:
				t.Errorf("edge %d of swinger %d: add %v changed nothing, as if somebody else had", n, s.id, add)
			}
			return err
		})
		s.there[n], s.tries = add, s.tries+failed
	}
}

func swing(ctx context.Context, d *daemon, e *pb.Edge, add bool) (changed bool, err error) {
	if add {
		r, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e})
		return r.GetChanged(), err
	}
	r, err := d.graph.DeleteEdge(ctx, &pb.DeleteEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst})
	return r.GetChanged(), err
}

// retryable reports whether an error says that an edge write may be made again: nothing
// was changed, or nobody knows, or the inverse is on its way (docs/api.md).
func retryable(err error) bool {
	reason, _ := reasonOf(err)
	return nothingChanged(err) || slices.Contains([]string{"OUTCOME_UNKNOWN", "INVERSE_PENDING", "CONNECTION_LOST"}, reason) ||
		reason == "" && slices.Contains([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}, status.Code(err))
}

// CASES 21: the leader of the shard of the other end is stopped again and again, in each
// way, while edges are added and deleted. Afterwards each edge has both of its ends or
// neither, as it was acknowledged last, and counts are those of the edges.
func TestCase21_BothEndsOrNeitherWhateverStops(t *testing.T) {
	stops := 20
	if os.Getenv("LIANA_LONG") != "" {
		stops = 200
	}
	f := newTrio(t)
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	swingers := make([]*swinger, 16)
	for i := range swingers {
		swingers[i] = &swinger{id: uint64(i), there: map[uint64]bool{}}
		r := rand.New(rand.NewSource(rng.Int63()))
		wg.Go(func() { swingers[i].run(t, f, r, stop) })
	}
	for n := range stops {
		f.stopLeader(1, n, rng)
	}
	close(stop)
	wg.Wait()
	f.settled()
	verifySwingers(f, swingers)
	f.converged()
}

// stopLeader stops the leader of a shard, and waits until the shard has one.
func (f *fleet) stopLeader(shard uint32, n int, rng *rand.Rand) {
	f.t.Helper()
	var at atomic.Pointer[pb.ClusterShard]
	look := f.await("a leader", func(a *pb.GetClusterResponse) bool {
		for _, s := range a.GetShards() {
			if s.GetId() == shard && !s.GetCatalog() && s.GetLeader() != "" {
				at.Store(s)
				return true
			}
		}
		return false
	})
	s, place := at.Load(), f.leads(look, shard)
	switch n % 5 {
	case 0:
		f.places[place].kill()
		some(rng, 100, 800)
		f.restart(place)
	case 1: // by surprise: it comes back and finds itself deposed
		f.pauseFor(place, rng, 600, 1500)
	default:
		to := s.GetReplicas()[rng.Intn(len(s.GetReplicas()))].GetReplica()
		_ = f.transfer(s, to) // refused where that is the leader
		some(rng, 50, 400)
	}
}

// verifySwingers reads both ends of all edges at all nodes.
func verifySwingers(f *fleet, swingers []*swinger) {
	f.t.Helper()
	exact := &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}
	in, tries := make([]uint64, swingEdges), 0
	for i := range f.places {
		clear(in)
		for _, s := range swingers {
			out := uint64(0)
			for n := range uint64(swingEdges) {
				e := s.edge(n)
				r, err := f.node(i).graph.HasEdge(testCtx(f.t), &pb.HasEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst, Consistency: exact})
				if err != nil || r.GetExists() != s.there[n] {
					f.t.Errorf("node %d: edge %d of swinger %d: %v, %v; acknowledged was %v", i, n, s.id, r.GetExists(), err, s.there[n])
				}
				if s.there[n] {
					in[n]++
					out++
				}
			}
			if got := f.count(i, s.edge(0).Src, pb.Direction_OUT); got != out {
				f.t.Errorf("node %d: swinger %d likes %d notes, acknowledged were %d", i, s.id, got, out)
			}
		}
		for n := range uint64(swingEdges) {
			if got := f.count(i, swingers[0].edge(n).Dst, pb.Direction_IN); got != in[n] {
				f.t.Errorf("node %d: note %d has %d likes, acknowledged were %d", i, n, got, in[n])
			}
		}
	}
	for _, s := range swingers {
		tries += s.tries
	}
	f.t.Logf("%d calls failed and were made again", tries)
	if tries == 0 {
		f.t.Error("no call was at work when a leader stopped")
	}
}

func (f *fleet) count(node int, v *pb.Vertex, dir pb.Direction) uint64 {
	f.t.Helper()
	r, err := f.node(node).graph.CountEdges(testCtx(f.t), &pb.CountEdgesRequest{
		Vertex: v, Type: "like", Direction: dir, Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE},
	})
	if err != nil {
		f.t.Fatal(fmt.Errorf("count of %v: %w", v, err))
	}
	return r.GetCount()
}
