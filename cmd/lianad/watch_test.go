package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// copied is a copy of likes that follows changes: src and dst to the time.
type copied struct {
	mu    sync.Mutex
	edges map[string]int64
	token string
}

func (c *copied) put(kind, edge string, at int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.edges[edge]
	switch kind {
	case "EDGE_ADDED":
		if there {
			return fmt.Errorf("%s is added twice", edge)
		}
		c.edges[edge] = at
	case "EDGE_DELETED":
		if !there {
			return fmt.Errorf("%s is deleted twice", edge)
		}
		delete(c.edges, edge)
	}
	return nil
}

func (c *copied) same(want map[string]int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.edges) == fmt.Sprint(want)
}

// watch follows changes through one node after the other, until ctx ends.
func (c *copied) watch(ctx context.Context, f *fleet) error {
	for i := 0; ctx.Err() == nil; i++ {
		p := f.places[i%3]
		p.mu.Lock()
		d, up := p.d, p.up
		p.mu.Unlock()
		if !up {
			continue
		}
		c.mu.Lock()
		req := &pb.WatchRequest{ResumeToken: c.token, Start: pb.WatchStart_OLDEST, EdgeTypes: []string{"like"}, HeartbeatMs: 200}
		c.mu.Unlock()
		short, cancel := context.WithTimeout(ctx, time.Second)
		stream, err := d.changes.Watch(short, req)
		if err == nil {
			err = c.drain(stream)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// drain takes changes until the stream ends, which it may in any way.
func (c *copied) drain(stream grpc.ServerStreamingClient[pb.WatchResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		for _, x := range m.Changes {
			if err := c.put(x.Kind.String(), edgeText(x.Edge.Src.Id, x.Edge.Dst.Id), x.Edge.Time); err != nil {
				return err
			}
		}
		if m.ResumeToken == "" {
			return errors.New("a part of a batch: the test is to be strict, and its batches small")
		}
		c.mu.Lock()
		c.token = m.ResumeToken
		c.mu.Unlock()
	}
}

func edgeText(src, dst uint64) string { return fmt.Sprintf("user:%d note:%d", src, dst) }

// replay reads streams from their beginning: those of the founding, and what was split off
// once its parent's says so.
func replay(ctx context.Context, r *redis.Client, shards int) (*copied, error) {
	c := &copied{edges: map[string]int64{}}
	var todo []string
	for i := range shards {
		todo = append(todo, strconv.Itoa(i))
	}
	for len(todo) > 0 {
		entries, err := r.XRange(ctx, "liana:changes:"+todo[0], "-", "+").Result()
		if err != nil {
			return nil, err
		}
		todo = todo[1:]
		for _, e := range entries {
			text := func(name string) string { s, _ := e.Values[name].(string); return s }
			switch kind := text("kind"); {
			case kind == "SLOTS_MOVED":
				todo = append(todo, text("shard"))
			case text("type") == "like":
				at, _ := strconv.ParseInt(text("time"), 10, 64)
				if err := c.put(kind, text("src")+" "+text("dst"), at); err != nil {
					return nil, fmt.Errorf("%s: %w", e.ID, err)
				}
			case kind == "GAP":
				return nil, errors.New("a gap")
			}
		}
	}
	return c, nil
}

// A watch that goes from node to node, and the streams in Redis, tell exactly what was
// written, once each, over a leader's death and splits.
func TestWatchAndStreamsTellTheState(t *testing.T) {
	server := startRedis(t)
	file := writeFile(t, "sink.yaml", "sink:\n  redis:\n    addrs: "+server.addr+"\n")
	f := newTrio(t, "--config", file)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	c := &copied{edges: map[string]int64{}}
	wg.Go(func() {
		if err := c.watch(ctx, f); err != nil {
			t.Error(err)
		}
	})
	rng := rand.New(rand.NewSource(1))
	want := map[string]int64{}
	write := func(n int) {
		for range n {
			src, dst := uint64(1+rng.Intn(50)), uint64(1+rng.Intn(20))
			m := &pb.Mutation{Op: pb.MutationOp_ADD, Type: "like", SrcId: src, DstId: dst, Time: int64(1 + rng.Intn(1000))}
			if _, there := want[edgeText(src, dst)]; there {
				m.Op, m.Time = pb.MutationOp_DELETE, 0
				delete(want, edgeText(src, dst))
			} else {
				want[edgeText(src, dst)] = m.Time
			}
			f.mutate(t, rng, m)
		}
	}
	write(100)
	victim := f.leaderOfMost()
	f.places[victim].kill()
	write(50)
	f.restart(victim)
	f.settled()
	shards := len(f.overview().GetShards()) - 1 // the catalog is none
	f.split(0, 0)
	write(50)
	f.split(0, 0)
	write(50)
	deadline := time.Now().Add(60 * time.Second)
	for !c.same(want) {
		if time.Now().After(deadline) {
			t.Fatalf("the watch has %d edges, want %d", len(c.edges), len(want))
		}
		time.Sleep(20 * time.Millisecond)
	}
	client := server.client()
	defer client.Close()
	for {
		r, err := replay(ctx, client, shards)
		if err != nil {
			t.Fatal(err)
		}
		if r.same(want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the streams have %d edges, want %d", len(r.edges), len(want))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// mutate writes until one node has acknowledged it. Repeating it is harmless.
func (f *fleet) mutate(t *testing.T, rng *rand.Rand, m *pb.Mutation) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; {
		p := f.places[rng.Intn(len(f.places))]
		p.mu.Lock()
		d, up := p.d, p.up
		p.mu.Unlock()
		if up {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			res, err := d.graph.MutateEdges(ctx, &pb.MutateEdgesRequest{Mutations: []*pb.Mutation{m}})
			cancel()
			if err == nil && len(res.GetErrors()) == 0 {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal("nobody takes a write")
		}
	}
}
