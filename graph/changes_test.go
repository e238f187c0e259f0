package graph

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv/shard"
)

// logReader is what somebody who reads the change log alone makes of it.
type logReader struct {
	lists    map[ListKey]map[uint64]edgelist.Edge
	counters map[CounterRef]int64
	through  map[uint32]uint64
}

// follow reads all shards to their ends, in steps of random size.
func (f *logReader) follow(t *testing.T, w *world, rng *rand.Rand) {
	t.Helper()
	for id := range uint32(w.g.cfg.Shards) {
		for {
			bounds, err := w.g.ChangeBounds(id)
			must(t, err)
			last := f.through[id]
			f.through[id], err = w.g.ReadChanges(context.Background(), id, f.through[id], 1+rng.Intn(50), func(c *Change) {
				if c.Position <= last || c.Position > bounds.Last {
					t.Fatalf("shard %d: change %d after %d, the log ends at %d", id, c.Position, last, bounds.Last)
				}
				if got := w.g.shardOf(c.Slot()); got != id {
					t.Fatalf("shard %d tells of a slot of shard %d", id, got)
				}
				last = c.Position
				f.take(t, c)
			})
			must(t, err)
			if f.through[id] == bounds.Last {
				break
			}
		}
	}
}

func (f *logReader) take(t *testing.T, c *Change) {
	t.Helper()
	if c.Kind == CounterChanged {
		if c.Gone {
			delete(f.counters, c.Counter)
		} else {
			f.counters[c.Counter] = c.Value
		}
		return
	}
	list := f.lists[c.List]
	if list == nil {
		list = map[uint64]edgelist.Edge{}
		f.lists[c.List] = list
	}
	old, there := list[c.Edge.Peer]
	if there == (c.Kind == EdgeAdded) || there && c.Kind == EdgeDeleted && old.Time != c.Edge.Time ||
		there && c.Kind == EdgeUpdated && old.Time != c.OldTime {
		t.Fatalf("%+v told of a list with %+v (%v)", *c, old, there)
	}
	e := c.Edge
	e.Props = slices.Clone(e.Props)
	if c.Kind == EdgeDeleted {
		delete(list, e.Peer)
	} else {
		list[e.Peer] = e
	}
}

// compare looks whether the logReader knows what the graph has.
func (f *logReader) compare(t *testing.T, w *world) {
	t.Helper()
	ends := uint64(0)
	for l, list := range f.lists {
		want := w.list(ListQuery{List: l, Order: IDAscending, Window: AllTime(), PageSize: MaxPageSize})
		got := make([]edgelist.Edge, 0, len(list))
		for _, e := range list {
			got = append(got, e)
		}
		slices.SortFunc(got, func(a, b edgelist.Edge) int { return compareUint(a.Peer, b.Peer) })
		if !sameEdges(got, want) {
			t.Fatalf("list %v: followed %v, want %v", l, got, want)
		}
		ends += uint64(len(got))
	}
	if there := w.check().Edges; ends != there {
		t.Errorf("%d ends of edges followed, there are %d", ends, there)
	}
	for c, v := range f.counters {
		values, _, err := w.g.GetCounters(context.Background(), ReadOptions{}, []CounterRef{c})
		must(t, err)
		if !values[0].Exists || values[0].Value != v {
			t.Errorf("counter %+v: followed %d, is %+v", c, v, values[0])
		}
	}
}

// Who reads the change log from its beginning ends with the state: all lists in both
// directions, all counters, derived ones too.
func TestTheChangeLogTellsTheState(t *testing.T) {
	for seed := range int64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewSource(seed))
			w := newWorld(t, true, func(c *Config) { c.Shards = 1 + 2*int(seed) })
			types := []EdgeType{w.edgeType("like"), w.edgeType("published")}
			f := &logReader{map[ListKey]map[uint64]edgelist.Edge{}, map[CounterRef]int64{}, map[uint32]uint64{}}
			ctx := context.Background()
			for step := range 60 {
				batch := make([]Mutation, 1+rng.Intn(30))
				for i := range batch {
					batch[i] = randomMutation(rng, types)
				}
				w.mutate(batch...)
				key := CounterRef{Key: fmt.Sprintf("k%d", rng.Intn(5))}
				switch rng.Intn(3) {
				case 0:
					_, _, err := w.g.IncrBy(ctx, []Increment{{Counter: key, Delta: 3}, {Counter: key, Delta: -1}}, "")
					must(t, err)
				case 1:
					_, err := w.g.SetCounter(ctx, key, int64(step), 0)
					must(t, err)
				default:
					_, _, err := w.g.DeleteCounter(ctx, key)
					must(t, err)
				}
				if step%20 == 19 {
					w.check() // waits until derived counters have come
					f.follow(t, w, rng)
					f.compare(t, w)
					w.reopen()
				}
			}
		})
	}
}

// A reader may go on within a log entry: who was told of a part of it is not told again.
func TestTheChangeLogIsReadFromAnywhere(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards = 1 })
	ctx := context.Background()
	_, _, err := w.g.IncrBy(ctx, []Increment{{Counter: CounterRef{Key: "a"}, Delta: 1}, {Counter: CounterRef{Key: "b"}, Delta: 1}, {Counter: CounterRef{Key: "c"}, Delta: 1}}, "")
	must(t, err)
	w.add(w.edgeType("like"), 1, 2, 3)
	var all []uint64
	end, err := w.g.ReadChanges(ctx, 0, 0, 100, func(c *Change) { all = append(all, c.Position) })
	must(t, err)
	if len(all) != 5 {
		t.Fatalf("changes at %d, want 5", all)
	}
	for past := uint64(0); past <= end; past++ {
		var got []uint64
		_, err := w.g.ReadChanges(ctx, 0, past, 100, func(c *Change) { got = append(got, c.Position) })
		must(t, err)
		want := slices.DeleteFunc(slices.Clone(all), func(p uint64) bool { return p <= past })
		if !slices.Equal(got, want) {
			t.Errorf("past %d: %d, want %d", past, got, want)
		}
	}
}

// A counter that expires is told as such: no change tells that its time has come.
func TestTheChangeLogTellsOfExpiries(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards = 1 })
	ctx := context.Background()
	a, b := CounterRef{Key: "a"}, CounterRef{Key: "b"}
	far := w.g.now() + 3_600_000_000
	_, _, err := w.g.IncrBy(ctx, []Increment{{Counter: a, Delta: 1, ExpireAt: far}, {Counter: b, Delta: 1}}, "")
	must(t, err)
	_, _, err = w.g.IncrBy(ctx, []Increment{{Counter: a, Delta: 1}}, "") // keeps its expiry
	must(t, err)
	_, err = w.g.SetCounter(ctx, a, 9, 0) // has none any more
	must(t, err)
	_, _, err = w.g.DeleteCounter(ctx, b)
	must(t, err)
	var got []string
	_, err = w.g.ReadChanges(ctx, 0, 0, 100, func(c *Change) {
		got = append(got, fmt.Sprintf("%s=%d expires:%v gone:%v", c.Counter.Key, c.Value, c.Expires, c.Gone))
	})
	must(t, err)
	want := []string{"a=1 expires:true gone:false", "b=1 expires:false gone:false", "a=2 expires:true gone:false", "a=9 expires:false gone:false", "b=0 expires:false gone:true"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestATrimmedChangeLogSaysSo(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards, c.Retain = 1, 10 })
	for total := 0; total < retainSlack+1000; total += 1000 {
		var batch []Increment
		for j := range 1000 {
			batch = append(batch, Increment{Counter: CounterRef{Key: fmt.Sprint(j)}, Delta: 1})
		}
		_, _, err := w.g.IncrBy(context.Background(), batch, "")
		must(t, err)
	}
	bounds, err := w.g.ChangeBounds(0)
	must(t, err)
	if bounds.Floor == 0 || bounds.Last < bounds.Floor+10 {
		t.Fatalf("bounds %+v", bounds)
	}
	if _, err := w.g.ReadChanges(context.Background(), 0, bounds.Floor-1, 10, func(*Change) {}); !errors.Is(err, ErrTrimmed) {
		t.Errorf("changes before the floor: %v", err)
	}
	n := 0
	through, err := w.g.ReadChanges(context.Background(), 0, bounds.Floor, 1<<30, func(c *Change) {
		n++
		if c.Position <= bounds.Floor {
			t.Errorf("change %d lies below the floor", c.Position)
		}
	})
	must(t, err)
	if through != bounds.Last || n == 0 {
		t.Errorf("%d changes, through %d, want %d", n, through, bounds.Last)
	}
	if again, err := w.g.ReadChanges(context.Background(), 0, through, 10, func(*Change) { t.Error("told") }); err != nil || again != through {
		t.Errorf("at the end: %d, %v", again, err)
	}
}

// The number of a shard comes from another node, or from a caller: no number is too large
// to be answered.
func TestAShardOfAnyNumberIsRefused(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards = 1 })
	ctx := t.Context()
	for _, id := range []uint32{1, MaxShards - 1, MaxShards, 1<<32 - 1} {
		_, changes := w.g.ReadChanges(ctx, id, 0, 1, func(*Change) {})
		_, bounds := w.g.ChangeBounds(id)
		_, digest := w.g.Digest(ctx, id)
		_, sums := w.g.SumEnds(ctx, id, 1)
		_, ends := w.g.LookAtEnds(ctx, id, 1, nil)
		_, point := w.g.SplitPoint(id)
		for call, err := range map[string]error{"changes": changes, "bounds": bounds, "digest": digest, "sums": sums, "ends": ends, "split point": point} {
			if !errors.Is(err, shard.ErrNotLeader) {
				t.Errorf("%s of shard %d: %v", call, id, err)
			}
		}
	}
}
