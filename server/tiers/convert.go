package tiers

import (
	"slices"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/graph"
)

// slotOf is the slot of a vertex.
func slotOf(v graph.Vertex) cache.Slot { return cache.Slot(graph.SlotOf(v)) }

func vertexOf(v graph.Vertex) cache.Vertex { return cache.Vertex{Type: uint16(v.Type), ID: v.ID} }

func graphVertex(v cache.Vertex) graph.Vertex {
	return graph.Vertex{Type: graph.VertexType(v.Type), ID: v.ID}
}

func listOf(l graph.ListKey) cache.List {
	return cache.List{Vertex: vertexOf(l.Vertex), Edge: uint16(l.Type), In: l.Dir == graph.In}
}

func graphList(l cache.List) graph.ListKey {
	key := graph.ListKey{Vertex: graphVertex(l.Vertex), Type: graph.EdgeType(l.Edge)}
	if l.In {
		key.Dir = graph.In
	}
	return key
}

// tokenOf adds what tokens say to one. ok is false for what is no token, or for tokens of
// several timelines: storage says what is wrong with them.
func tokenOf(texts ...string) (t cache.Token, ok bool) {
	for _, text := range texts {
		g, err := graph.ParseToken(text)
		if err != nil || g != nil && t.Timeline != 0 && t.Timeline != g.Timeline {
			return t, false
		}
		if g != nil {
			t.Timeline = g.Timeline
			add(&t, g)
		}
	}
	return t, true
}

// add adds what a token of the same timeline says.
func add(t *cache.Token, g *graph.Token) {
	t.Others = t.Others || g.Others
	for _, s := range g.Seen {
		t.See(cache.Slot(s.Slot), cache.Position{Timeline: g.Timeline, Number: s.Pos})
	}
	for _, p := range g.Pending {
		if len(t.Pending) == cache.MaxTokenSlots {
			t.Others = true
			return
		}
		t.Pending = append(t.Pending, cache.Pending{Src: p.Src, Number: p.Pos, Dst: cache.Slot(p.Dst)})
	}
}

// answered is add for the token of an answer: where it shows a slot, what was pending
// there has come.
func answered(t *cache.Token, g *graph.Token) {
	for _, s := range g.Seen {
		t.Pending = slices.DeleteFunc(t.Pending, func(p cache.Pending) bool { return p.Dst == cache.Slot(s.Slot) })
	}
	t.Timeline = g.Timeline
	add(t, g)
}

// textOf is the text of a token; none for one that has seen nothing.
func textOf(t *cache.Token) string {
	if t.Timeline == 0 {
		return ""
	}
	g := graph.Token{Timeline: t.Timeline, Others: t.Others, Seen: make([]graph.SlotPosition, len(t.Seen))}
	for i, s := range t.Seen {
		g.Seen[i] = graph.SlotPosition{Slot: graph.Slot(s.Slot), Pos: s.Number}
	}
	for _, p := range t.Pending {
		g.Pending = append(g.Pending, graph.PendingInverse{Src: p.Src, Pos: p.Number, Dst: graph.Slot(p.Dst)})
	}
	return g.Encode()
}
