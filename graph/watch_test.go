package graph

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/lianadb/liana/edgelist"
)

// replay puts what a watch tells into a copy. It is strict: nothing may come twice, or out
// of order.
type replay struct {
	t testing.TB

	mu       sync.Mutex
	edges    model
	counters map[CounterRef]int64
	last     map[Slot]uint64
	token    string
	told     int
	beats    int
}

func newReplay(t testing.TB) *replay {
	return &replay{t: t, edges: model{}, counters: map[CounterRef]int64{}, last: map[Slot]uint64{}}
}

func (f *replay) take(w Watched) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range w.Changes {
		if err := f.put(&w.Changes[i]); err != nil {
			f.t.Error(err)
			return err
		}
	}
	if len(w.Changes) == 0 {
		f.beats++
	}
	f.told += len(w.Changes)
	f.token = w.Token
	return nil
}

func (f *replay) put(c *Change) error {
	slot := c.Slot()
	if last := f.last[slot]; c.Position < last || c.Position == last && c.Kind != CounterChanged {
		return fmt.Errorf("slot %d: position %d after %d", slot, c.Position, last)
	}
	f.last[slot] = c.Position
	if c.Kind == CounterChanged {
		f.counters[c.Counter] = c.Value
		if c.Gone {
			delete(f.counters, c.Counter)
		}
		return nil
	}
	k := modelKey{c.List.Type, c.List.Vertex.ID, c.Edge.Peer}
	old, there := f.edges[k]
	if there == (c.Kind == EdgeAdded) || there && c.Kind == EdgeDeleted && old.Time != c.Edge.Time || c.Kind == EdgeUpdated && old.Time != c.OldTime {
		return fmt.Errorf("%+v is told of %+v (%v)", *c, old, there)
	}
	if c.Kind == EdgeDeleted {
		delete(f.edges, k)
	} else {
		f.edges[k] = edgelist.Edge{Time: c.Edge.Time, Props: append([]byte(nil), c.Edge.Props...)}
	}
	return nil
}

func (f *replay) size() (edges, told int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.edges), f.told
}

// same reports whether the copy is the model.
func (f *replay) same(m model) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.edges) != len(m) {
		return false
	}
	for k, e := range m {
		if got, ok := f.edges[k]; !ok || got.Time != e.Time || string(got.Props) != string(e.Props) {
			return false
		}
	}
	return true
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

type watcher interface {
	Watch(ctx context.Context, q WatchQuery, tell func(Watched) error) error
}

// follow watches with one of several watchers, is cut at random and goes on with the token,
// until stop.
func (f *replay) follow(ctx context.Context, rng *rand.Rand, q WatchQuery, from ...watcher) {
	for n := 0; ctx.Err() == nil; n++ {
		short, cancel := context.WithTimeout(ctx, time.Duration(1+rng.Intn(100))*time.Millisecond)
		f.mu.Lock()
		q.Token = f.token
		f.mu.Unlock()
		err := from[n%len(from)].Watch(short, q, f.take)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !again(err, toReadHere) {
			f.t.Errorf("watch: %v", err)
			return
		}
	}
}

// A watch replayed into an empty model gives the state, from either node, over any number of
// resumptions; so does one that began with the oldest changes later.
func TestAWatchTellsTheState(t *testing.T) {
	wd := newWander(t, 0, 31)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	f := newReplay(t)
	wg.Go(func() {
		f.follow(ctx, rand.New(rand.NewSource(1)), WatchQuery{Start: WatchOldest}, wd.routers[0], wd.routers[1])
	})
	views, _ := wd.nodes[0].g.Schema().Metric(wd.vertex("note", 1).Type, "views")
	want := map[CounterRef]int64{}
	for step := range 60 {
		ms := make([]Mutation, 1+wd.rng.Intn(40))
		for i := range ms {
			ms[i] = randomMutation(wd.rng, []EdgeType{wd.like, wd.follow})
			wd.model.apply(ms[i])
		}
		_, _, err := wd.routers[step%2].Mutate(ctx, ms, WaitForward)
		must(t, err)
		c := CounterRef{Vertex: wd.vertex("note", 1+uint64(wd.rng.Intn(9))), Metric: views.ID}
		_, _, err = wd.routers[step%2].IncrBy(ctx, []Increment{{Counter: c, Delta: 3}}, "")
		must(t, err)
		want[c] += 3
	}
	late := newReplay(t)
	wg.Go(func() {
		late.follow(ctx, rand.New(rand.NewSource(2)), WatchQuery{Start: WatchOldest}, wd.routers[1], wd.routers[0])
	})
	for _, f := range []*replay{f, late} {
		eventually(t, "the copy is the model", func() bool { return f.same(wd.model) })
		eventually(t, "the counters are", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			for c, v := range want {
				if f.counters[c] != v {
					return false
				}
			}
			return true
		})
	}
}

// Splits, also of what was split off, and watches that come to them late with old tokens.
func TestWatchesGoOnOverSplits(t *testing.T) {
	for seed := range int64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { watchOverSplits(t, seed) })
	}
}

func watchOverSplits(t *testing.T, seed int64) {
	w := newWorld(t, true, func(c *Config) { c.Shards = 1 + int(seed) })
	r := w.router()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	rng := rand.New(rand.NewSource(seed))
	live, late := newReplay(t), newReplay(t)
	wg.Go(func() { live.follow(ctx, rand.New(rand.NewSource(seed)), WatchQuery{Start: WatchOldest}, r) })
	types := []EdgeType{w.edgeType("like"), w.edgeType("follow")}
	m := model{}
	write := func(n int) {
		for range n {
			ms := make([]Mutation, 1+rng.Intn(30))
			for i := range ms {
				ms[i] = randomMutation(rng, types)
				m.apply(ms[i])
			}
			_, _, err := r.Mutate(ctx, ms, WaitForward)
			must(t, err)
		}
	}
	// The late one has a token of before all splits.
	half, stop := context.WithCancel(ctx)
	must1 := func(err error) {
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	must1(r.Watch(half, WatchQuery{}, func(x Watched) error { stop(); return late.take(x) }))
	for child := uint32(w.cfg.Shards); child < uint32(w.cfg.Shards)+6; child++ {
		write(10)
		w.halve(rng, child)
		write(5)
	}
	wg.Go(func() { late.follow(ctx, rand.New(rand.NewSource(seed+9)), WatchQuery{}, r) })
	for _, f := range []*replay{live, late} {
		eventually(t, "the copy is the model", func() bool { return f.same(m) })
	}
}

func TestAWatchHeedsItsFilter(t *testing.T) {
	wd := newWander(t, 400, 32)
	one := wd.vertex("user", 2)
	note := wd.vertex("note", 1).Type
	for name, c := range map[string]struct {
		f    ChangeFilter
		want func(k modelKey) bool
	}{
		"type":   {ChangeFilter{EdgeTypes: []EdgeType{wd.like}}, func(k modelKey) bool { return k.t == wd.like }},
		"vertex": {ChangeFilter{Vertex: &one}, func(k modelKey) bool { return k.src == 2 || k.dst == 2 && k.t == wd.follow }},
		"ends":   {ChangeFilter{VertexTypes: []VertexType{note}}, func(k modelKey) bool { return k.t == wd.like }},
		"nobody": {ChangeFilter{Kinds: []ChangeKind{CounterChanged}}, func(modelKey) bool { return false }},
	} {
		want := model{}
		for k, e := range wd.model {
			if c.want(k) {
				want[k] = e
			}
		}
		f := newReplay(t)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			q := WatchQuery{Start: WatchOldest, Filter: c.f, Heartbeat: 100 * time.Millisecond}
			if err := wd.routers[0].Watch(ctx, q, f.take); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		})
		eventually(t, name, func() bool { return f.same(want) })
		eventually(t, "a heartbeat", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.beats > 1 })
		cancel()
		wg.Wait()
	}
}

func TestAWatchOfTrimmedChangesSaysSo(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards = 1; c.Retain = 10 })
	follow := w.edgeType("follow")
	token := ""
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := w.g.Watch(ctx, WatchQuery{}, func(x Watched) error { token = x.Token; return errors.New("enough") })
	if err == nil || token == "" {
		t.Fatal(err)
	}
	var ms []Mutation
	for k := range uint64(retainSlack) {
		ms = append(ms, Mutation{Op: OpAdd, Type: follow, Src: 1, Dst: 2 + k, Time: int64(k + 1)})
	}
	w.addAll(ms)
	eventually(t, "trimmed", func() bool {
		b, err := w.g.ChangeBounds(0)
		must(t, err)
		return b.Floor > 0
	})
	b, err := w.g.ChangeBounds(0)
	must(t, err)
	err = w.g.Watch(ctx, WatchQuery{Token: token}, func(Watched) error { return nil })
	var trimmed *TrimmedError
	if !errors.As(err, &trimmed) || !errors.Is(err, ErrTrimmed) || trimmed.Oldest != b.Floor {
		t.Errorf("%v, the log begins past %d", err, b.Floor)
	}
	// Another timeline, and what is no token.
	other := watchToken{Timeline: 1, Places: []watchPlace{{0, NumSlots - 1, 0}}}
	if err := w.g.Watch(ctx, WatchQuery{Token: other.encode()}, nil); !errors.Is(err, ErrOldTimeline) {
		t.Error(err)
	}
	var bad *InvalidError
	if err := w.g.Watch(ctx, WatchQuery{Token: token[1:]}, nil); !errors.As(err, &bad) || bad.Field != "resume_token" {
		t.Error(err)
	}
}

// A watch that stops taking what it is told holds up no other, and no write; and it finds
// all of it when it goes on.
func TestAWatchThatStallsHoldsUpNobody(t *testing.T) {
	w := newWorld(t, true, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	go1 := make(chan struct{})
	stalled, healthy := newReplay(t), newReplay(t)
	wg.Go(func() {
		_ = w.g.Watch(ctx, WatchQuery{Start: WatchOldest}, func(x Watched) error {
			if len(x.Changes) > 0 {
				<-go1
			}
			return stalled.take(x)
		})
	})
	wg.Go(func() { _ = w.g.Watch(ctx, WatchQuery{Start: WatchOldest}, healthy.take) })
	like := w.edgeType("like")
	m := model{}
	for i := range 20 {
		ms := make([]Mutation, 1000)
		for j := range ms {
			ms[j] = Mutation{Op: OpAdd, Type: like, Src: uint64(1 + i*1000 + j), Dst: uint64(1 + j%7), Time: int64(1 + i)}
			m.apply(ms[j])
		}
		w.mutate(ms...)
	}
	eventually(t, "the healthy one has all", func() bool { return healthy.same(m) })
	if n, _ := stalled.size(); n > 0 {
		t.Errorf("the stalled one took %d", n)
	}
	close(go1)
	eventually(t, "so has the other, later", func() bool { return stalled.same(m) })
}

func FuzzWatchToken(f *testing.F) {
	t := watchToken{Timeline: 3, Places: []watchPlace{{0, 7, 5}, {8, NumSlots - 1, 1 << 40}}}
	f.Add(t.encode())
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseWatchToken(text)
		if err != nil || got == nil {
			return
		}
		again, err := parseWatchToken(got.encode())
		if err != nil || fmt.Sprint(*again) != fmt.Sprint(*got) {
			t.Fatalf("%q: %+v, %+v, %v", text, got, again, err)
		}
	})
}
