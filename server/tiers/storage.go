package tiers

import (
	"context"
	"fmt"
	"slices"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/graph"
)

// Storage is the cluster as caches stand on it.
type Storage struct {
	router *graph.Router
	graph  *graph.Graph // of this node
}

var _ cache.Storage = (*Storage)(nil)

// NewStorage returns the cluster that a router reaches.
func NewStorage(router *graph.Router, g *graph.Graph) *Storage { return &Storage{router, g} }

// Poll implements cache.Leaders.
func (s *Storage) Poll(ctx context.Context, slots []cache.Slot, tell func(cache.Slot, cache.Position)) error {
	ask := make([]graph.Slot, len(slots))
	for i, slot := range slots {
		ask[i] = graph.Slot(slot)
	}
	return s.router.LastChanges(ctx, ask, func(slot graph.Slot, timeline, pos uint64) {
		tell(cache.Slot(slot), cache.Position{Timeline: timeline, Number: pos})
	})
}

// Load implements cache.Source. Of a large call only the first entries are loaded.
func (s *Storage) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	wants = wants[:min(len(wants), graph.MaxExcerpts)]
	ask, found := make([]graph.ExcerptWant, len(wants)), make([]graph.Excerpt, len(wants))
	for i := range wants {
		ask[i] = excerptOf(&wants[i])
	}
	if err := s.router.Excerpts(ctx, ask, found); err != nil {
		return err
	}
	for i := range wants {
		if found[i].Timeline != 0 {
			got[i] = entryOf(wants[i].Key.Kind, &found[i])
		}
	}
	return nil
}

func excerptOf(w *cache.Want) graph.ExcerptWant {
	ask := graph.ExcerptWant{List: graphList(w.Key.List()), Min: w.Min.Number}
	switch w.Key.Kind {
	case cache.KindRow:
		ask.Kind = graph.ExcerptCounts
	case cache.KindWindow:
		ask.Kind, ask.Edges = graph.ExcerptNewest, cache.WindowEdges
	case cache.KindChunk:
		ask.Kind, ask.First, ask.Span, ask.Least = graph.ExcerptPeers, w.Key.Chunk*cache.ChunkPeers, cache.ChunkPeers, cache.ChunkLeast
	}
	return ask
}

func entryOf(kind cache.Kind, x *graph.Excerpt) cache.Entry {
	e := cache.Entry{At: cache.Position{Timeline: x.Timeline, Number: x.Position}}
	switch kind {
	case cache.KindRow:
		e.Row = rowOf(x)
	case cache.KindWindow:
		e.Window = windowOf(x)
	case cache.KindChunk:
		e.Chunk = &cache.Chunk{Bits: x.Bits}
	}
	return e
}

// maxFields bounds a row where the schema has high numbers; what lies past it is asked of
// storage.
const maxFields = 3 * 256

func rowOf(x *graph.Excerpt) *cache.Row {
	r := &cache.Row{}
	set := func(i int, f cache.Field) {
		if i >= maxFields {
			return
		}
		for len(r.Fields) <= i {
			r.Fields = append(r.Fields, cache.Unknown)
		}
		r.Fields[i] = f
	}
	for _, m := range x.Metrics {
		f := cache.Absent
		switch {
		case m.ExpireAt != 0: // that it goes is told by no change
			f = cache.Unknown
		case m.Exists:
			f = cache.FieldOf(m.Value)
		}
		set(cache.MetricField(uint16(m.Counter.Metric)), f)
	}
	for _, c := range x.Counts {
		set(cache.CountField(listOf(c.List)), cache.FieldOf(int64(c.Count)))
	}
	return r
}

func windowOf(x *graph.Excerpt) *cache.Window {
	w := &cache.Window{Edges: make([]cache.Edge, len(x.Edges)), Total: x.Total, Props: x.Props}
	for i, e := range x.Edges {
		w.Edges[len(x.Edges)-1-i] = cache.Edge{Time: e.Time, Peer: e.Peer}
	}
	if !w.Complete() {
		w.Floor = w.Edges[0]
	}
	return w
}

// Read implements cache.Storage: the queries that are alike are one call.
func (s *Storage) Read(ctx context.Context, opt cache.Options, qs []cache.Query, as []cache.Answer) (cache.Token, error) {
	r := read{s: s, qs: qs, as: as, out: opt.Token, ro: graph.ReadOptions{Token: textOf(&opt.Token)}}
	r.out.Seen, r.out.Pending = slices.Clone(opt.Token.Seen), slices.Clone(opt.Token.Pending)
	if opt.Linearizable {
		r.ro.Level = graph.Linearizable
	}
	done := make([]bool, len(qs))
	for i := range qs {
		if done[i] {
			continue
		}
		var same []int
		for j := i; j < len(qs); j++ {
			if !done[j] && alike(&qs[i], &qs[j]) {
				same, done[j] = append(same, j), true
			}
		}
		token, err := r.some(ctx, same)
		if err != nil {
			return cache.Token{}, err
		}
		seen, err := graph.ParseToken(token)
		if err != nil {
			return cache.Token{}, fmt.Errorf("token of an answer: %w", err)
		}
		if seen != nil {
			answered(&r.out, seen)
		}
	}
	return r.out, nil
}

// alike reports whether two queries can be one call.
func alike(a, b *cache.Query) bool {
	switch {
	case a.Kind != b.Kind:
		return false
	case a.Kind == cache.HasEdge:
		return a.List.Edge == b.List.Edge
	case a.Kind == cache.CountEdges:
		return a.Page.Since == b.Page.Since && a.Page.Until == b.Page.Until
	}
	return a.Kind == cache.ReadMetric || a == b
}

// read is one Read under way.
type read struct {
	s   *Storage
	ro  graph.ReadOptions
	qs  []cache.Query
	as  []cache.Answer
	out cache.Token
}

// some answers the queries of which, which are alike.
func (r *read) some(ctx context.Context, which []int) (token string, err error) {
	switch q := &r.qs[which[0]]; q.Kind {
	case cache.HasEdge:
		return r.hasEdges(ctx, q, which)
	case cache.CountEdges:
		return r.countEdges(ctx, q, which)
	case cache.ReadMetric:
		return r.metrics(ctx, which)
	case cache.ListPage:
		return r.page(ctx, q, &r.as[which[0]])
	}
	return "", fmt.Errorf("a query of kind %d", r.qs[which[0]].Kind)
}

func (r *read) hasEdges(ctx context.Context, q *cache.Query, which []int) (string, error) {
	srcs, dsts, found := make([]uint64, len(which)), make([]uint64, len(which)), make([]bool, len(which))
	for j, i := range which {
		srcs[j], dsts[j] = r.qs[i].List.Vertex.ID, r.qs[i].Peer
	}
	token, err := r.s.router.HasEdges(ctx, r.ro, graph.EdgeType(q.List.Edge), srcs, dsts, found)
	for j, i := range which {
		r.as[i].Found = found[j]
	}
	return token, err
}

func (r *read) countEdges(ctx context.Context, q *cache.Query, which []int) (string, error) {
	lists, counts := make([]graph.ListKey, len(which)), make([]uint64, len(which))
	for j, i := range which {
		lists[j] = graphList(r.qs[i].List)
	}
	token, err := r.s.router.CountEdges(ctx, r.ro, lists, windowOfPage(&q.Page), counts)
	for j, i := range which {
		r.as[i].Count = counts[j]
	}
	return token, err
}

func (r *read) metrics(ctx context.Context, which []int) (string, error) {
	refs := make([]graph.CounterRef, len(which))
	for j, i := range which {
		refs[j] = graph.CounterRef{Vertex: graphVertex(r.qs[i].List.Vertex), Metric: graph.Metric(r.qs[i].Metric)}
	}
	values, token, err := r.s.router.GetCounters(ctx, r.ro, refs)
	if err != nil {
		return "", err
	}
	for j, i := range which {
		r.as[i].Value, r.as[i].Found, r.as[i].ExpireAt = values[j].Value, values[j].Exists, values[j].ExpireAt
	}
	return token, nil
}

func (r *read) page(ctx context.Context, q *cache.Query, a *cache.Answer) (string, error) {
	ask := graph.ListQuery{List: graphList(q.List), PageSize: q.Page.Limit, Skip: q.Page.Skip, Window: windowOfPage(&q.Page)}
	if from := q.Page.From; from != nil {
		ask.PageToken = r.s.graph.PageToken(&ask, graph.PageCursor{Time: from.Time, ID: from.Peer})
	}
	page, err := r.s.router.ListEdges(ctx, r.ro, ask)
	if err != nil {
		return "", err
	}
	a.More = page.Next != ""
	a.Edges, a.Props = make([]cache.Edge, len(page.Edges)), nil
	for i, e := range page.Edges {
		a.Edges[i] = cache.Edge{Time: e.Time, Peer: e.Peer}
		if len(e.Props) > 0 {
			if a.Props == nil {
				a.Props = make([][]byte, len(page.Edges))
			}
			a.Props[i] = e.Props
		}
	}
	return page.Token, nil
}

func windowOfPage(q *cache.PageQuery) graph.Window {
	return graph.Window{Since: q.Since, Until: q.Until}
}
