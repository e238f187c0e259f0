package graph

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lianadb/liana/kv/shard"
)

// routerOf is the router of a world alone.
func (w *world) router() *Router {
	self := w.node.ID()
	return NewRouter(RouterConfig{
		Local: w.g, Self: self, Patience: 20 * time.Second,
		Replicas: func(uint32) []string { return []string{self} },
		Service: func(node string) (Service, error) {
			return nil, fmt.Errorf("node %s: %w", node, ErrUnreachable)
		},
	})
}

// halve splits a random shard of those that this node leads.
func (w *world) halve(rng *rand.Rand, child uint32) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		o := *w.g.owners.Load()
		c := o[rng.Intn(len(o))]
		if c.First == c.Last {
			continue
		}
		at := c.First + 1 + Slot(rng.Intn(int(c.Last-c.First)))
		err := w.g.Split(ctx, c.Shard, child, at)
		if errors.Is(err, shard.ErrNotLeader) { // a child that has no leader yet
			time.Sleep(2 * time.Millisecond)
			continue
		}
		must(w.t, err)
		return
	}
}

// settled waits until nothing is on its way between the shards.
func (w *world) settled() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	w.ready()
	for range 2 { // deliveries give rise to others once
		for _, a := range w.g.replicas() {
			for _, b := range w.g.replicas() {
				must(w.t, w.g.settle(ctx, a.machine.cfg.ID, b.machine.cfg.ID))
			}
		}
	}
}

// Shards are split while writers add, change and delete edges of their own vertices:
// every answer is the model's, both ends are equal afterwards, derived counters are the
// sums, and a restart finds it all. A BOTH write waits through splits of its receiver.
func TestSplitsUnderLoadAnswerLikeTheModel(t *testing.T) {
	for seed := range int64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { splitUnderLoad(t, seed) })
	}
}

func splitUnderLoad(t *testing.T, seed int64) {
	w := newWorld(t, seed%2 == 0, func(c *Config) { c.Shards = 1 + int(seed) })
	r := w.router()
	types := []EdgeType{w.edgeType("like"), w.edgeType("published"), w.edgeType("follow")}
	const writers, splits = 4, 10
	models := make([]model, writers)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range writers {
		models[i] = model{}
		wg.Go(func() {
			rng := rand.New(rand.NewSource(seed*100 + int64(i)))
			for step := 0; ; step++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := splitStep(r, rng, models[i], i, types, step); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewSource(seed))
	for child := uint32(w.cfg.Shards); child < uint32(w.cfg.Shards+splits); child++ {
		w.halve(rng, child)
		time.Sleep(time.Duration(rng.Intn(40)) * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	close(stop)
	wg.Wait()
	for range 2 {
		w.settled()
		w.check()
		compareSplit(t, w, models)
		if n := len(w.g.replicas()); n != w.cfg.Shards+splits {
			t.Errorf("%d shards", n)
		}
		ids := []uint32{}
		for _, mb := range w.g.replicas() {
			ids = append(ids, mb.machine.cfg.ID)
		}
		slices.Sort(ids)
		w.cfg.Replicas = ids
		w.reopen()
	}
}

// splitStep makes a batch of writes of one writer, and reads some of it.
func splitStep(r *Router, rng *rand.Rand, m model, writer int, types []EdgeType, step int) error {
	ms := make([]Mutation, 1+rng.Intn(10))
	want := make([]Outcome, len(ms))
	for i := range ms {
		ms[i] = randomMutation(rng, types)
		ms[i].Src += uint64(writer) * 1000
		want[i] = m.apply(ms[i])
	}
	res, token, err := r.Mutate(context.Background(), ms, WaitBoth)
	if err != nil {
		return fmt.Errorf("step %d: %w", step, err)
	}
	for i := range res {
		if res[i].Outcome != want[i] || res[i].Err != nil {
			return fmt.Errorf("step %d, %+v: %+v, want %v", step, ms[i], res[i], want[i])
		}
	}
	// Both ends, under the token of the write.
	for i := range ms {
		_, there := m[modelKey{ms[i].Type, ms[i].Src, ms[i].Dst}]
		def, _ := r.cfg.Local.Schema().EdgeTypeByID(ms[i].Type)
		var has [1]bool
		if _, err := r.HasEdges(context.Background(), ReadOptions{Level: ReadLevel(rng.Intn(3)), Token: token}, ms[i].Type, []uint64{ms[i].Src}, []uint64{ms[i].Dst}, has[:]); err != nil {
			return fmt.Errorf("step %d: has: %w", step, err)
		}
		if has[0] != there {
			return fmt.Errorf("step %d, %+v: has is %v", step, ms[i], has[0])
		}
		page, err := r.ListEdges(context.Background(), ReadOptions{Level: AtLeastAsFresh, Token: token}, ListQuery{List: def.inverse(ms[i].Dst), Window: AllTime()})
		if err != nil {
			return fmt.Errorf("step %d: list: %w", step, err)
		}
		found := false
		for _, e := range page.Edges {
			found = found || e.Peer == ms[i].Src
		}
		if found != there {
			return fmt.Errorf("step %d, %+v: the inverse is there: %v, want %v", step, ms[i], found, there)
		}
	}
	return nil
}

// compareSplit compares the edges of all writers with what is stored.
func compareSplit(t *testing.T, w *world, models []model) {
	t.Helper()
	want := model{}
	for _, m := range models {
		for k, e := range m {
			want[k] = e
		}
	}
	n := 0
	must(t, w.g.Export(context.Background(), 0, func(edges []ExportedEdge) error {
		for _, e := range edges {
			n++
			if got, ok := want[modelKey{e.Type, e.Src, e.Dst}]; !ok || got.Time != e.Time {
				t.Errorf("edge %+v, the model has %+v, %v", e, got, ok)
			}
		}
		return nil
	}))
	if n != len(want) || n == 0 {
		t.Errorf("%d edges, the model has %d", n, len(want))
	}
}
