package tiers

import (
	"context"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
)

// Reader answers reads from caches where they can tell. What is not cached, writes
// among it, and whatever is wrong with a request, is the router's.
type Reader struct {
	*graph.Router
	graph *graph.Graph
	cache *cache.Reader
}

// NewReader returns a Reader over a router. The cache's storage is that router as well.
func NewReader(router *graph.Router, g *graph.Graph, c *cache.Reader) *Reader {
	return &Reader{router, g, c}
}

// options are what a read asks of caches. ok is false where they have no say.
func options(ro graph.ReadOptions, page string) (opt cache.Options, ok bool) {
	if ro.Level > graph.AtLeastAsFresh {
		return opt, false
	}
	opt.Token, ok = tokenOf(ro.Token, page)
	return opt, ok
}

func validID(id uint64) bool { return id >= graph.MinID && id <= graph.MaxID }

// HasEdges is graph.Router.HasEdges.
func (r *Reader) HasEdges(ctx context.Context, ro graph.ReadOptions, t graph.EdgeType, srcs, dsts []uint64, exists []bool) (string, error) {
	opt, ok := options(ro, "")
	qs := r.pairs(t, srcs, dsts)
	if !ok || qs == nil {
		return r.Router.HasEdges(ctx, ro, t, srcs, dsts, exists)
	}
	as := make([]cache.Answer, len(qs))
	token, err := r.cache.Read(ctx, opt, qs, as)
	if err != nil {
		return "", err
	}
	for i := range as {
		exists[i] = as[i].Found
	}
	return textOf(&token), nil
}

// pairs are the queries for pairs of vertices; nil where they make no sense.
func (r *Reader) pairs(t graph.EdgeType, srcs, dsts []uint64) []cache.Query {
	s := r.graph.Schema()
	def, ok := s.EdgeTypeByID(t)
	if !ok || len(dsts) == 0 || len(dsts) > graph.MaxBatch || len(srcs) != 1 && len(srcs) != len(dsts) {
		return nil
	}
	dense := s.Dense(def.To)
	qs := make([]cache.Query, len(dsts))
	for i, dst := range dsts {
		src := srcs[0]
		if len(srcs) > 1 {
			src = srcs[i]
		}
		if !validID(src) || !validID(dst) {
			return nil
		}
		l, peer := def.Fact(src, dst)
		qs[i] = cache.Query{Kind: cache.HasEdge, Slot: slotOf(l.Vertex), List: listOf(l), Peer: peer, Dense: dense}
	}
	return qs
}

// CountEdges is graph.Router.CountEdges.
func (r *Reader) CountEdges(ctx context.Context, ro graph.ReadOptions, lists []graph.ListKey, w graph.Window, counts []uint64) (string, error) {
	opt, ok := options(ro, "")
	if !ok || len(lists) == 0 || len(lists) > graph.MaxBatch || w.Since > w.Until {
		return r.Router.CountEdges(ctx, ro, lists, w, counts)
	}
	s := r.graph.Schema()
	qs, as := make([]cache.Query, len(lists)), make([]cache.Answer, len(lists))
	for i, l := range lists {
		l, err := s.Resolve(l)
		if err != nil {
			return r.Router.CountEdges(ctx, ro, lists, w, counts)
		}
		qs[i] = cache.Query{Kind: cache.CountEdges, Slot: slotOf(l.Vertex), List: listOf(l), Page: cache.PageQuery{Since: w.Since, Until: w.Until}}
	}
	token, err := r.cache.Read(ctx, opt, qs, as)
	if err != nil {
		return "", err
	}
	for i := range as {
		counts[i] = as[i].Count
	}
	return textOf(&token), nil
}

// ListEdges is graph.Router.ListEdges.
func (r *Reader) ListEdges(ctx context.Context, ro graph.ReadOptions, q graph.ListQuery) (graph.ListPage, error) {
	asked := q
	from, err := r.graph.PageStart(&q)
	if err != nil || q.Order != graph.NewestFirst || q.Window.Since == q.Window.Until {
		return r.Router.ListEdges(ctx, ro, asked)
	}
	first := ""
	if from != nil {
		first = from.Token
	}
	opt, ok := options(ro, first)
	if !ok {
		return r.Router.ListEdges(ctx, ro, asked)
	}
	query := cache.Query{Kind: cache.ListPage, Slot: slotOf(q.List.Vertex), List: listOf(q.List), Page: cache.PageQuery{
		Skip: q.Skip, Limit: q.PageSize, Since: q.Window.Since, Until: q.Window.Until,
	}}
	if from != nil {
		query.Page.From = &cache.Edge{Time: from.Time, Peer: from.ID}
	}
	as := make([]cache.Answer, 1)
	token, err := r.cache.Read(ctx, opt, []cache.Query{query}, as)
	if err != nil {
		return graph.ListPage{}, err
	}
	return r.page(&q, &as[0], textOf(&token), first), nil
}

// page is an answer as a page. first is the token of the first page, none on that one.
func (r *Reader) page(q *graph.ListQuery, a *cache.Answer, token, first string) graph.ListPage {
	page := graph.ListPage{Edges: make([]edgelist.Edge, len(a.Edges)), Token: token}
	for i, e := range a.Edges {
		page.Edges[i] = edgelist.Edge{Peer: e.Peer, Time: e.Time}
		if a.Props != nil {
			page.Edges[i].Props = a.Props[i]
		}
	}
	if a.More {
		if first == "" {
			first = token
		}
		last := page.Edges[len(page.Edges)-1]
		page.Next = r.graph.PageToken(q, graph.PageCursor{Time: last.Time, ID: last.Peer, Token: first})
	}
	return page
}

// GetCounters is graph.Router.GetCounters. Calls that name keys are the router's.
func (r *Reader) GetCounters(ctx context.Context, ro graph.ReadOptions, refs []graph.CounterRef) ([]graph.CounterValue, string, error) {
	opt, ok := options(ro, "")
	qs := r.metrics(refs)
	if !ok || qs == nil {
		return r.Router.GetCounters(ctx, ro, refs)
	}
	as := make([]cache.Answer, len(qs))
	token, err := r.cache.Read(ctx, opt, qs, as)
	if err != nil {
		return nil, "", err
	}
	values := make([]graph.CounterValue, len(refs))
	for i, a := range as {
		values[i] = graph.CounterValue{Counter: refs[i], Value: a.Value, Exists: a.Found, ExpireAt: a.ExpireAt}
	}
	return values, textOf(&token), nil
}

// metrics are the queries for metrics; nil where a ref is none.
func (r *Reader) metrics(refs []graph.CounterRef) []cache.Query {
	s := r.graph.Schema()
	if len(refs) == 0 || len(refs) > graph.MaxBatch {
		return nil
	}
	qs := make([]cache.Query, len(refs))
	for i := range refs {
		c := &refs[i]
		if _, ok := s.MetricByID(c.Vertex.Type, c.Metric); !ok || c.Key != "" || !validID(c.Vertex.ID) {
			return nil
		}
		qs[i] = cache.Query{
			Kind: cache.ReadMetric, Slot: slotOf(c.Vertex), List: cache.List{Vertex: vertexOf(c.Vertex)}, Metric: uint16(c.Metric),
		}
	}
	return qs
}
