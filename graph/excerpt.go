package graph

import (
	"context"
	"errors"
	"fmt"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
)

// ExcerptKind is what an excerpt holds.
type ExcerptKind uint8

// The kinds of excerpts.
const (
	ExcerptCounts ExcerptKind = iota + 1 // all metrics of a vertex, and the lengths of its lists
	ExcerptNewest                        // the newest edges of a list
	ExcerptPeers                         // which peers of a range a list has
)

// Limits of excerpts.
const (
	MaxExcerpts     = 1000    // of a call
	MaxExcerptEdges = 1000    // ExcerptNewest
	MaxExcerptSpan  = 1 << 15 // peers of ExcerptPeers
)

// ExcerptWant asks for a part of the state as it is at Min or later.
type ExcerptWant struct {
	Kind ExcerptKind
	List ListKey // ExcerptCounts: only the vertex
	Min  uint64  // a position of its shard
	// First is the first of Span peers, a multiple of 8; the excerpt is left out where
	// fewer than Least of them are there.
	First       uint64
	Span, Least uint64
	Edges       int // ExcerptNewest: how many
}

// Excerpt is a part of the state as one view of its shard showed it.
type Excerpt struct {
	Timeline uint64 // 0: left out
	Position uint64 // of the shard's last change in that view

	Metrics []CounterValue // ExcerptCounts
	Counts  []ListCount    // ExcerptCounts

	Total uint64          // ExcerptNewest: edges of the whole list
	Edges []edgelist.Edge // ExcerptNewest: newest first, without properties
	Props bool            // one of Edges has properties

	Bits []byte // ExcerptPeers: bit i from the highest of the first byte on is peer First + i
}

// ListCount is the length of a list.
type ListCount struct {
	List  ListKey
	Count uint64
}

// Excerpts fills got, one for each of wants.
func (g *Graph) Excerpts(ctx context.Context, wants []ExcerptWant, got []Excerpt) error {
	if err := checkExcerpts(wants); err != nil {
		return err
	}
	r := &reading{g: g, level: AtLeastAsFresh, out: Token{Timeline: g.cfg.Timeline}}
	defer r.close()
	for i := range wants {
		w := &wants[i]
		r.least = w.Min
		v, err := r.at(ctx, SlotOf(w.List.Vertex))
		if err != nil {
			return err
		}
		if err := v.excerpt(w, &got[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkExcerpts(wants []ExcerptWant) error {
	if len(wants) > MaxExcerpts {
		return invalid("wants", fmt.Sprintf("at most %d", MaxExcerpts), "%d", len(wants))
	}
	for i := range wants {
		if w := &wants[i]; w.Span > MaxExcerptSpan || w.Span%8 != 0 || w.First+w.Span < w.First && w.First+w.Span != 0 || w.Edges < 0 || w.Edges > MaxExcerptEdges {
			return invalid(fmt.Sprintf("wants[%d]", i), "what fits an excerpt", "%d peers from %d on, %d edges", w.Span, w.First, w.Edges)
		}
	}
	return nil
}

// excerpt fills e, or leaves it out.
func (v *view) excerpt(w *ExcerptWant, e *Excerpt) (err error) {
	*e = Excerpt{Timeline: v.timeline, Position: v.position}
	if w.Kind == ExcerptCounts {
		if e.Metrics, err = v.metrics(w.List.Vertex); err == nil {
			e.Counts, err = v.counts(w.List.Vertex)
		}
		return err
	}
	list, err := v.list(w.List)
	if err != nil {
		return err
	}
	switch w.Kind {
	case ExcerptNewest:
		err = e.newest(list, w.Edges)
	case ExcerptPeers:
		err = e.peers(list, w)
	default:
		return invalid("wants.kind", "a kind of excerpts", "%d", w.Kind)
	}
	return v.m.faultOf(err, w.List)
}

// metrics are all metrics of a vertex, at the view's log time.
func (v *view) metrics(x Vertex) ([]CounterValue, error) {
	defs := v.schema.Metrics(x.Type)
	if len(defs) == 0 {
		return nil, nil
	}
	ref := CounterRef{Vertex: x, Metric: defs[0].ID}
	var row counter.Row
	b, err := v.snap.Get(nil, ref.ref().Row)
	if err == nil {
		row, err = counter.ParseRow(b)
		err = v.m.faultOfCounter(err, &ref)
	}
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return nil, err
	}
	out := make([]CounterValue, len(defs))
	for i, d := range defs {
		ref.Metric = d.ID
		c := row.Get(ref.ref().Field, v.now)
		out[i] = CounterValue{Counter: ref, Value: c.Value, Exists: c.Exists, ExpireAt: c.ExpireAt}
	}
	return out, nil
}

// faultOfCounter marks the damage of a row that was read.
func (m *Machine) faultOfCounter(err error, c *CounterRef) error {
	if err == nil {
		return nil
	}
	return m.failed(fmt.Errorf("shard %d: %v: %w", m.cfg.ID, c.ref(), err))
}

// counts are the lengths of all lists of a vertex.
func (v *view) counts(x Vertex) (out []ListCount, err error) {
	add := func(l ListKey) error {
		list, err := v.list(l)
		if err == nil {
			out = append(out, ListCount{l, list.Count()})
		}
		return err
	}
	for _, d := range v.schema.EdgeTypes() {
		if d.From == x.Type {
			if err := add(ListKey{x, d.ID, Out}); err != nil {
				return nil, err
			}
		}
		if d.To == x.Type && !d.Symmetric {
			if err := add(ListKey{x, d.ID, In}); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (e *Excerpt) newest(l *edgelist.List, n int) error {
	e.Total = l.Count()
	e.Edges = make([]edgelist.Edge, 0, min(uint64(n), e.Total))
	it := l.Iter(edgelist.Query{Order: edgelist.ByTime, Descending: true})
	for len(e.Edges) < n && it.Next() {
		edge := it.Edge()
		e.Props = e.Props || len(edge.Props) > 0
		e.Edges = append(e.Edges, edgelist.Edge{Peer: edge.Peer, Time: edge.Time})
	}
	return it.Err()
}

func (e *Excerpt) peers(l *edgelist.List, w *ExcerptWant) error {
	if w.Span == 0 {
		*e = Excerpt{}
		return nil
	}
	last := w.First + w.Span - 1
	n, err := l.CountPeers(w.First, last)
	if err != nil {
		return err
	}
	if n < w.Least {
		*e = Excerpt{}
		return nil
	}
	e.Bits = make([]byte, w.Span/8)
	q := edgelist.Query{Order: edgelist.ByID}
	if w.First > 0 {
		q.From = &edgelist.Key{ID: w.First - 1}
	}
	it := l.Iter(q)
	for it.Next() && it.Edge().Peer <= last {
		i := it.Edge().Peer - w.First
		e.Bits[i/8] |= 0x80 >> (i % 8)
	}
	return it.Err()
}
