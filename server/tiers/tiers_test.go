package tiers

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open returns a graph of one shard in memory, and a router to it.
func open(t *testing.T) (*graph.Graph, *graph.Router) {
	t.Helper()
	state, log := kv.NewMem(graph.Merger()), kv.NewMem(nil)
	node, err := shard.OpenNode(shard.NodeConfig{
		State: state, Log: log, StablePath: filepath.Join(t.TempDir(), "raft.db"), Heartbeat: 20 * time.Millisecond,
	})
	must(t, err)
	g, err := graph.Open(graph.Config{Node: node, Store: state, Shards: 1, Timeline: 77, PageKey: make([]byte, 16)})
	must(t, err)
	t.Cleanup(func() {
		g.Close()
		_ = node.Close()
		_, _ = state.Close(), log.Close()
	})
	eventually(t, "the shard serves", func() bool { return g.Ready() == nil })
	return g, graph.NewRouter(graph.RouterConfig{Local: g, Self: node.ID(), Replicas: func(uint32) []string { return []string{node.ID()} }})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestTheLogTellsWhatCachesKeep(t *testing.T) {
	g, _ := open(t)
	ctx := context.Background()
	like, _ := g.Schema().EdgeType("like")
	edge := graph.Mutation{Op: graph.OpAdd, Type: like.ID, Src: 1, Dst: 2, Time: 10}
	moved := edge
	moved.Op, moved.Time, moved.Props = graph.OpUpdate, 20, []byte("p")
	gone := edge
	gone.Op = graph.OpDelete
	for _, m := range []graph.Mutation{edge, moved, gone} {
		_, _, err := g.Mutate(ctx, []graph.Mutation{m}, graph.WaitBoth)
		must(t, err)
	}
	views := graph.CounterRef{Vertex: graph.Vertex{Type: 2, ID: 2}, Metric: 1}
	_, err := g.SetCounter(ctx, views, 5, 0)
	must(t, err)
	_, err = g.SetCounter(ctx, views, 6, time.Now().Add(time.Hour).UnixMicro())
	must(t, err)
	_, _, err = g.DeleteCounter(ctx, views)
	must(t, err)
	_, err = g.SetCounter(ctx, graph.CounterRef{Key: "free"}, 5, 0) // is not cached
	must(t, err)

	l := NewLog(g)
	led := l.Led()
	if len(led) != 1 || led[0] != (cache.Shard{Timeline: 77, Last: cache.NumSlots - 1}) {
		t.Fatalf("led: %+v", led)
	}
	b, err := l.Bounds(0)
	must(t, err)
	var got []cache.Change
	through, err := l.Changes(ctx, 0, b.First-1, 1000, func(c *cache.Change) { got = append(got, *c) })
	must(t, err)
	if through != b.Last {
		t.Errorf("told through %d, the log ends at %d", through, b.Last)
	}
	user, note := cache.Vertex{Type: 1, ID: 1}, cache.Vertex{Type: 2, ID: 2}
	var want []cache.Change
	for _, c := range []cache.Change{
		{Kind: cache.EdgeAdded, Edge: cache.Edge{Time: 10}},
		{Kind: cache.EdgeMoved, Edge: cache.Edge{Time: 20}, Old: cache.Edge{Time: 10}, Props: true},
		{Kind: cache.EdgeRemoved, Edge: cache.Edge{Time: 20}},
	} {
		for _, list := range []cache.List{{Vertex: user, Edge: 1}, {Vertex: note, Edge: 1, In: true}} {
			c.List, c.Slot, c.Edge.Peer = list, slotOf(graphVertex(list.Vertex)), 3-list.Vertex.ID
			if c.Kind == cache.EdgeMoved {
				c.Old.Peer = c.Edge.Peer
			}
			want = append(want, c)
		}
	}
	metric := cache.Change{Slot: slotOf(views.Vertex), List: cache.List{Vertex: note}, Metric: 1}
	for _, c := range []cache.Change{{Kind: cache.MetricSet, Value: 5}, {Kind: cache.MetricSet, Value: cache.Unknown}, {Kind: cache.MetricGone}} {
		metric.Kind, metric.Value = c.Kind, c.Value
		want = append(want, metric)
	}
	for i := range got {
		if i > 0 && got[i].Number <= got[i-1].Number {
			t.Errorf("change %d after %d", got[i].Number, got[i-1].Number)
		}
	}
	for i := range got {
		got[i].Number, got[i].Prev = 0, 0
	}
	if !slices.Equal(got, want) {
		t.Errorf("told\n%+v\nwant\n%+v", got, want)
	}
}

// A feeder that read the log after a split, for the slots of before, would take what the
// child did for told.
func TestTheLogOfASplitShardIsToldAnew(t *testing.T) {
	g, _ := open(t)
	ctx := context.Background()
	l := NewLog(g)
	l.Led()
	must(t, g.Split(ctx, 0, 1, 2048))
	if b, err := l.Bounds(0); err == nil {
		t.Errorf("bounds of before the split: %+v", b)
	}
	if through, err := l.Changes(ctx, 0, 0, 10, func(*cache.Change) {}); err == nil {
		t.Errorf("changes of before the split, through %d", through)
	}
	eventually(t, "the child is led", func() bool { return len(l.Led()) == 2 })
	for id := range uint32(2) {
		b, err := l.Bounds(id)
		must(t, err)
		_, err = l.Changes(ctx, id, b.First-1, 10, func(*cache.Change) {})
		must(t, err)
	}
}

func TestARowKnowsWhatItMayKeep(t *testing.T) {
	g, router := open(t)
	ctx := context.Background()
	note := graph.Vertex{Type: 2, ID: 2}
	_, err := g.SetCounter(ctx, graph.CounterRef{Vertex: note, Metric: 1}, 5, 0)
	must(t, err)
	_, err = g.SetCounter(ctx, graph.CounterRef{Vertex: note, Metric: 2}, 6, time.Now().Add(time.Hour).UnixMicro())
	must(t, err)
	got := make([]cache.Entry, 1)
	must(t, NewStorage(router, g).Load(ctx, []cache.Want{{Key: cache.RowKey(slotOf(note), vertexOf(note))}}, got))
	r := got[0].Row
	if r == nil || got[0].At.Timeline != 77 || got[0].At.Number == 0 {
		t.Fatalf("%+v", got[0])
	}
	likes := cache.CountField(cache.List{Edge: 1, In: true})
	if r.Fields[cache.MetricField(1)] != 5 || r.Fields[cache.MetricField(2)] != cache.Unknown || r.Fields[cache.MetricField(3)] != cache.Absent || r.Fields[likes] != 0 {
		t.Errorf("fields %v", r.Fields)
	}
	high := rowOf(&graph.Excerpt{Counts: []graph.ListCount{{List: graph.ListKey{Type: 60000}, Count: 3}}})
	if len(high.Fields) > maxFields {
		t.Errorf("a row of %d fields", len(high.Fields))
	}
}

func TestTokensComeBackAsTheyWere(t *testing.T) {
	want := graph.Token{
		Timeline: 77, Others: true, Seen: []graph.SlotPosition{{Slot: 1, Pos: 5}, {Slot: 4095, Pos: 1 << 40}},
		Pending: []graph.PendingInverse{{Src: 4000, Pos: 9, Dst: 4}, {Src: 1, Pos: 8, Dst: 7}},
	}
	tok, ok := tokenOf(want.Encode(), "")
	if !ok || textOf(&tok) != want.Encode() {
		t.Errorf("%+v, %v", tok, ok)
	}
	// What was pending at a slot is not, once the slot was shown.
	answered(&tok, &graph.Token{Timeline: 77, Seen: []graph.SlotPosition{{Slot: 4, Pos: 3}}})
	if len(tok.Pending) != 1 || tok.Pending[0].Dst != 7 {
		t.Errorf("pending: %+v", tok.Pending)
	}
	other := graph.Token{Timeline: 78, Seen: want.Seen}
	for _, texts := range [][]string{{want.Encode(), other.Encode()}, {"no token"}} {
		if _, ok := tokenOf(texts...); ok {
			t.Errorf("%v were taken", texts)
		}
	}
}
