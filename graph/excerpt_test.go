package graph

import (
	"context"
	"errors"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/lianadb/liana/edgelist"
)

func (w *world) excerpt(want ExcerptWant) Excerpt {
	w.t.Helper()
	got := make([]Excerpt, 1)
	must(w.t, w.g.Excerpts(context.Background(), []ExcerptWant{want}, got))
	return got[0]
}

// Excerpts of random lists say what reads of these lists say.
func TestExcerptsSayWhatReadsSay(t *testing.T) {
	w := newWorld(t, true, func(c *Config) {
		c.Lists = edgelist.Options{SplitEntries: 32, MaxPageBytes: 4960, MaxDeltas: 4, Branch: 4}
	})
	rng := rand.New(rand.NewSource(1))
	like := w.edgeType("like")
	const user, base = 7, 40000
	for i := range 1500 {
		w.add(like, user, base+uint64(rng.Intn(3000)), int64(1+i/2))
	}
	for range 300 {
		w.delete(like, user, base+uint64(rng.Intn(3000)))
	}
	l := ListKey{Vertex: Vertex{1, user}, Type: like}
	want := w.list(ListQuery{List: l, PageSize: MaxPageSize, Window: AllTime()})

	e := w.excerpt(ExcerptWant{Kind: ExcerptNewest, List: l, Edges: 500})
	if e.Total != uint64(len(want)) || e.Props || e.Timeline != 77 || !slices.EqualFunc(e.Edges, want[:500], func(a, b edgelist.Edge) bool {
		return a.Peer == b.Peer && a.Time == b.Time
	}) {
		t.Errorf("the newest edges: %d of %d, want 500 of %d", len(e.Edges), e.Total, len(want))
	}
	for _, first := range []uint64{0, 32768, base - base%8, 65536} {
		e = w.excerpt(ExcerptWant{Kind: ExcerptPeers, List: l, First: first, Span: MaxExcerptSpan, Least: 1})
		n := 0
		for _, edge := range want {
			if edge.Peer >= first && edge.Peer < first+MaxExcerptSpan {
				n++
				if i := edge.Peer - first; e.Bits[i/8]&(0x80>>(i%8)) == 0 {
					t.Fatalf("peers from %d on: %d is missing", first, edge.Peer)
				}
			}
		}
		if ones(e.Bits) != n || (n == 0) != (e.Timeline == 0) {
			t.Errorf("peers from %d on: %d, want %d", first, ones(e.Bits), n)
		}
	}
	if e := w.excerpt(ExcerptWant{Kind: ExcerptPeers, List: l, First: 32768, Span: MaxExcerptSpan, Least: uint64(len(want)) + 1}); e.Timeline != 0 {
		t.Error("a range with few peers was told")
	}
}

func ones(b []byte) (n int) {
	for _, x := range b {
		for ; x != 0; x &= x - 1 {
			n++
		}
	}
	return n
}

func TestAnExcerptOfCountsHasAllMetricsAndLists(t *testing.T) {
	w := newWorld(t, true, nil)
	note := Vertex{2, 5}
	views, replies := CounterRef{Vertex: note, Metric: 1}, CounterRef{Vertex: note, Metric: 2}
	ctx := context.Background()
	_, err := w.g.SetCounter(ctx, views, -3, 0)
	must(t, err)
	later := time.Now().Add(time.Hour).UnixMicro()
	_, err = w.g.SetCounter(ctx, replies, 8, later)
	must(t, err)
	w.add(w.edgeType("like"), 1, note.ID, 10)
	w.add(w.edgeType("like"), 2, note.ID, 10)
	w.add(w.edgeType("published"), 3, note.ID, 10)
	e := w.excerpt(ExcerptWant{Kind: ExcerptCounts, List: ListKey{Vertex: note}})
	if want := []CounterValue{
		{Counter: views, Value: -3, Exists: true}, {Counter: replies, Value: 8, Exists: true, ExpireAt: later}, {Counter: CounterRef{Vertex: note, Metric: 3}},
	}; !slices.Equal(e.Metrics, want) {
		t.Errorf("metrics %+v, want %+v", e.Metrics, want)
	}
	lengths := map[string]uint64{}
	for _, c := range e.Counts {
		def, _ := w.g.Schema().EdgeTypeByID(c.List.Type)
		lengths[def.Name+" "+c.List.Dir.String()] = c.Count
	}
	if len(lengths) != 3 || lengths["like in"] != 2 || lengths["published in"] != 1 || lengths["favorite in"] != 0 {
		t.Errorf("lengths of lists: %v", lengths)
	}
}

// An excerpt is at its position at least, also where its shard's view was taken for one
// before.
func TestAnExcerptWaitsForItsPosition(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards, c.FreshWait = 1, 10*time.Millisecond })
	w.add(w.edgeType("like"), 1, 2, 3)
	now := w.g.lastOf(SlotOf(Vertex{1, 1}))
	l := ListKey{Vertex: Vertex{1, 1}, Type: w.edgeType("like")}
	wants := []ExcerptWant{{Kind: ExcerptNewest, List: l, Edges: 1}, {Kind: ExcerptNewest, List: l, Edges: 1, Min: now + 100}}
	err := w.g.Excerpts(context.Background(), wants, make([]Excerpt, 2))
	if !errors.Is(err, ErrTooFresh) {
		t.Errorf("error %v, want %v", err, ErrTooFresh)
	}
}

// What LastChanges says covers what was acknowledged before it, and of a slot that did
// not change it goes on to say the same.
func TestLastChanges(t *testing.T) {
	tn := newTown(t)
	like := tn.nodes[0].edgeType("like")
	ctx := context.Background()
	for i := range uint64(50) {
		src := Vertex{1, i + 1}
		_, text, err := tn.routers[0].Mutate(ctx, []Mutation{{Op: OpAdd, Type: like, Src: src.ID, Dst: 9, Time: 1}}, WaitBoth)
		must(t, err)
		tok, err := ParseToken(text)
		must(t, err)
		for _, r := range tn.routers {
			got := tn.lastChanges(t, r, SlotOf(src), SlotOf(Vertex{2, 9}))
			for _, s := range tok.Seen {
				if got[s.Slot] < s.Pos {
					t.Fatalf("slot %d: last change %d, acknowledged %d", s.Slot, got[s.Slot], s.Pos)
				}
			}
		}
	}
	quiet := SlotOf(Vertex{1, 1})
	before := tn.lastChanges(t, tn.routers[1], quiet)[quiet]
	for i := range uint64(20) {
		src := i + 1000
		if SlotOf(Vertex{1, src}) != quiet {
			_, _, err := tn.routers[0].Mutate(ctx, []Mutation{{Op: OpAdd, Type: like, Src: src, Dst: src, Time: 1}}, WaitBoth)
			must(t, err)
		}
	}
	if after := tn.lastChanges(t, tn.routers[1], quiet)[quiet]; after != before {
		t.Errorf("a slot without changes went from %d to %d", before, after)
	}
}

func (tn *town) lastChanges(t *testing.T, r *Router, slots ...Slot) map[Slot]uint64 {
	t.Helper()
	type said struct {
		slot          Slot
		timeline, pos uint64
	}
	told := make(chan said, len(slots))
	must(t, r.LastChanges(context.Background(), slots, func(s Slot, timeline, pos uint64) { told <- said{s, timeline, pos} }))
	close(told)
	got := map[Slot]uint64{}
	for s := range told {
		if s.timeline != 77 {
			t.Errorf("timeline %d", s.timeline)
		}
		got[s.slot] = s.pos
	}
	return got
}

// A shard that does not answer holds up no other, and what a router believes of owners is
// put right.
func TestLastChangesOfAShardThatIsAway(t *testing.T) {
	tn := newTown(t)
	unreachable := func() error { return ErrUnreachable }
	tn.fail.Store(&unreachable)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	var slots []Slot
	for s := range Slot(NumSlots) {
		slots = append(slots, s)
	}
	told := make(chan Slot, NumSlots)
	if err := tn.routers[0].LastChanges(ctx, slots, func(s Slot, _, _ uint64) { told <- s }); err == nil {
		t.Error("no error")
	}
	if len(told) != NumSlots/2 {
		t.Errorf("%d slots told", len(told))
	}
}

// After the majority was lost, no slot is where it was before: what lies in caches may
// be of the state that was lost. Nor does the change log go on from there, however long it is.
func TestLastChangesAfterARecovery(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards, c.Retain = 1, 2*recoveryGap })
	w.add(w.edgeType("like"), 1, 2, 3)
	old := w.g.lastOf(SlotOf(Vertex{1, 1}))
	slots, at := []Slot{0, SlotOf(Vertex{1, 1}), NumSlots - 1}, make([]uint64, 3)
	w.recover(0)
	_, err := w.g.LastChanges(context.Background(), 0, slots, at)
	must(t, err)
	for i, pos := range at {
		if pos < recoveryGap {
			t.Errorf("slot %d is at %d", slots[i], pos)
		}
	}
	if _, err := w.g.ReadChanges(context.Background(), 0, old+7, 1, func(*Change) {}); !errors.Is(err, ErrTrimmed) {
		t.Errorf("changes past one that was lost: %v", err)
	}
}

// A node that does not own a slot (any more) says who does.
func TestLastChangesOfASplitShard(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards = 1 })
	must(t, w.g.Split(context.Background(), 0, 1, 2048))
	for end := time.Now().Add(20 * time.Second); !w.g.leads(1); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the child has no leader")
		}
	}
	at := make([]uint64, 1)
	_, err := w.g.LastChanges(context.Background(), 0, []Slot{3000}, at)
	var moved *MovedError
	if !errors.As(err, &moved) || len(moved.Claims) != 2 {
		t.Errorf("error %v, want claims", err)
	}
	_, err = w.g.LastChanges(context.Background(), 1, []Slot{3000}, at)
	must(t, err)
	b, err := w.g.ChangeBounds(1)
	must(t, err)
	if at[0] < b.Floor || b.Own.First != 2048 || len(w.g.Led()) != 2 {
		t.Errorf("the child stands at %d, its log begins past %d, it owns %+v; led %+v", at[0], b.Floor, b.Own, w.g.Led())
	}
}
