package cache

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A window answers the same whether it is searched through or by the set of its peers.
func TestWindowAnswersTheSameBySet(t *testing.T) {
	for _, peers := range [][]uint64{nil, {0}, {7}, {0, 1, math.MaxUint64 - 1, 1 << 63, 1<<53 + 1}} {
		w := &Window{Total: uint64(len(peers))}
		for i, p := range peers {
			w.Edges = append(w.Edges, Edge{Time: int64(i), Peer: p})
		}
		for i := uint64(8); len(peers) > 1 && i < 1000; i++ {
			w.Edges, w.Total = append(w.Edges, Edge{Time: int64(i), Peer: i << (i % 50)}), w.Total+1
		}
		asked := []uint64{0, 1, 2, 7, 1 << 53, 1<<53 + 1, 1 << 63, 1<<63 + 1, math.MaxUint64, math.MaxUint64 - 1, 9 << 9, 9 << 10}
		ask := func() (found []bool) {
			for _, p := range asked {
				f, known := w.has(p)
				if !known {
					t.Errorf("%d edges, complete, and it cannot tell of %d", len(w.Edges), p)
				}
				found = append(found, f)
			}
			return found
		}
		first := ask()
		if w.peers.Load() == nil {
			t.Fatal("no set after many lookups")
		}
		for i, f := range ask() {
			if f != first[i] {
				t.Errorf("%d edges, peer %d: %v by the set, %v by searching", len(w.Edges), asked[i], f, first[i])
			}
		}
		w.Total++
		if _, known := w.has(3); known {
			t.Error("a window that is not complete knows that a peer is missing")
		}
	}
}

func TestKeyIndexFindsPlaces(t *testing.T) {
	var x keyIndex
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 300, 7} {
		x.clear(n)
		var wants []Want
		places := map[Key]int{}
		for range n {
			l := List{Vertex: Vertex{Type: uint16(r.IntN(2)), ID: r.Uint64N(4)}, Edge: uint16(r.IntN(2)), In: r.IntN(2) == 0}
			k := []Key{RowKey(Slot(r.IntN(2)), l.Vertex), WindowKey(1, l), ChunkKey(1, l, r.Uint64N(3)*ChunkPeers)}[r.IntN(3)]
			place, known := x.place(wants, &k)
			if was, there := places[k]; known != there || known && place != was || !known && place != len(wants) {
				t.Fatalf("%v: place %d, %v; %d of them, known %v", k, place, known, len(wants), there)
			}
			if !known {
				places[k] = place
				wants = append(wants, Want{Key: k})
			}
		}
	}
}

// listed is a source with a window and chunks of one list, which counts what is asked.
type listed struct {
	edges  int
	chunks bool
	asked  map[Kind]int
}

func (l *listed) Load(_ context.Context, wants []Want, got []Entry) error {
	for i := range wants {
		l.asked[wants[i].Key.Kind]++
		got[i].At = wants[i].Min
		switch {
		case wants[i].Key.Kind == KindWindow:
			w := &Window{Total: uint64(l.edges)}
			for p := range min(l.edges, WindowEdges) {
				w.Edges = append(w.Edges, Edge{Time: 1, Peer: uint64(2 * p)})
			}
			w.Floor = w.Edges[0]
			got[i].Window = w
		case l.chunks:
			got[i].Chunk = &Chunk{Bits: make([]byte, ChunkBytes)}
		}
	}
	return nil
}

func (l *listed) Read(_ context.Context, _ Options, qs []Query, _ []Answer) (Token, error) {
	l.asked[0] += len(qs)
	return Token{}, nil
}

func (l *listed) Poll(_ context.Context, slots []Slot, tell func(Slot, Position)) error {
	for _, s := range slots {
		tell(s, Position{1, 1})
	}
	return nil
}

// Of long lists of dense ids the chunk is asked first, and of those without a chunk it
// is asked for rarely.
func TestLongListsAreAskedByTheirChunks(t *testing.T) {
	for name, c := range map[string]struct {
		edges  int
		chunks bool
		want   map[Kind]int
	}{
		"short":          {longWindow - 1, true, map[Kind]int{KindWindow: 1000}},
		"long":           {longWindow, true, map[Kind]int{KindWindow: 1, KindChunk: 999}},
		"longer":         {WindowEdges + 1, true, map[Kind]int{KindWindow: 1, KindChunk: 1000}},
		"long and thin":  {longWindow, false, map[Kind]int{KindWindow: 1000, KindChunk: 1000 / longRetry}},
		"more than kept": {WindowEdges + 1, false, map[Kind]int{KindWindow: 1000, KindChunk: 1000, 0: 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &listed{edges: c.edges, chunks: c.chunks, asked: map[Kind]int{}}
			polls := NewPolls(time.Hour)
			r := NewReader(l, l, polls)
			polls.tell(0, time.Now(), Position{1, 1})
			for range 1000 {
				q := Query{Kind: HasEdge, Peer: 5, Dense: true}
				if _, err := r.Read(t.Context(), Options{}, []Query{q}, make([]Answer, 1)); err != nil {
					t.Fatal(err)
				}
			}
			for _, k := range []Kind{0, KindWindow, KindChunk} {
				if got := l.asked[k]; got < c.want[k] || got > c.want[k]+c.want[k]/50+1 {
					t.Errorf("kind %d: asked %d times, want %d", k, got, c.want[k])
				}
			}
		})
	}
}

// Where only some touches are counted, hot keys are found all the same.
func TestSampledTouchesFindHotKeys(t *testing.T) {
	top, now := NewTopK(100, 400), time.Now()
	top.now = func() time.Time { return now }
	for i := range uint64(20_000) {
		top.Touch(RowKey(1, Vertex{1, 1}))
		top.Touch(RowKey(1, Vertex{2, i % 500}))
	}
	if !top.IsHot(RowKey(1, Vertex{1, 1})) || top.IsHot(RowKey(1, Vertex{2, 7})) {
		t.Error("a key with 20,000 touches should be hot, those with 40 not")
	}
	if n := top.Top(1)[0].Touches; n < 15_000 || n > 25_000 {
		t.Errorf("%d touches of 20,000", n)
	}
}
