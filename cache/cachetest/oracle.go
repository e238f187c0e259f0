package cachetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/lianadb/liana/cache"
)

// answer answers a query from a list or a value.
func answer(q *cache.Query, edges []cache.Edge, value cache.Field) cache.Answer {
	var a cache.Answer
	in := func(e cache.Edge) bool {
		return e.Time >= q.Page.Since && (e.Time < q.Page.Until || q.Page.Until == 1<<63-1)
	}
	switch q.Kind {
	case cache.HasEdge:
		a.Found = slices.ContainsFunc(edges, func(e cache.Edge) bool { return e.Peer == q.Peer })
	case cache.CountEdges:
		for _, e := range edges {
			if in(e) {
				a.Count++
			}
		}
	case cache.ListPage:
		skip := q.Page.Skip
		for i := len(edges) - 1; i >= 0; i-- {
			e := edges[i]
			if !in(e) || q.Page.From != nil && e.Compare(*q.Page.From) >= 0 {
				continue
			}
			if skip > 0 {
				skip--
				continue
			}
			if len(a.Edges) == q.Page.Limit {
				a.More = true
				break
			}
			a.Edges = append(a.Edges, e)
		}
	case cache.ReadMetric:
		if value > cache.Absent {
			a.Found, a.Value = true, int64(value)
		}
	}
	return a
}

// same reports whether two answers are equal.
func same(a, b *cache.Answer) bool {
	return a.Found == b.Found && a.Count == b.Count && a.Value == b.Value && a.More == b.More && slices.Equal(a.Edges, b.Edges)
}

// Asked is a query as it was asked: alone, at a time, under a token.
type Asked struct {
	Query cache.Query
	Token cache.Token
	At    time.Time
	Bound time.Duration
}

// Check compares an answer with the history. It must be the state at a position
// that covers the token and was not over already when the bound began; and the
// token returned must not tell of a later state than the one that was answered.
func (m *Model) Check(k *Asked, a *cache.Answer, t *cache.Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := &k.Query
	states := m.states(q)
	told, fits := false, false
	number := numberOf(t, q.Slot)
	for i := range states {
		expect := answer(q, states[i].edges, states[i].value)
		if !same(a, &expect) {
			continue
		}
		told = true
		if m.fresh(k, states, i) && covers(states, i, k.Token.Timeline, numberOf(&k.Token, q.Slot)) &&
			covers(states, i, t.Timeline, number) {
			fits = true
		}
	}
	switch {
	case !told:
		return fmt.Errorf("%v: answer %+v: no such state ever was", describe(q), *a)
	case !fits:
		return fmt.Errorf("%v under token %+v: answer %+v with token %+v is of an older state", describe(q), k.Token, *a, *t)
	}
	return nil
}

func describe(q *cache.Query) string {
	return fmt.Sprintf("query %d of %v, peer %d, metric %d, page %+v", q.Kind, q.List, q.Peer, q.Metric, q.Page)
}

func numberOf(t *cache.Token, s cache.Slot) uint64 {
	for _, p := range t.Seen {
		if p.Slot == s {
			return p.Number
		}
	}
	return 0
}

// states returns the history of what a query is about, beginning with nothing.
func (m *Model) states(q *cache.Query) []version {
	first := version{value: cache.Absent}
	if q.Kind == cache.ReadMetric {
		return append([]version{first}, m.values[metric{q.List.Vertex, q.Metric}]...)
	}
	return append([]version{first}, m.history[q.List]...)
}

// fresh reports whether state i was still in force when the bound began.
func (m *Model) fresh(k *Asked, states []version, i int) bool {
	return i+1 == len(states) || !states[i+1].since.Before(k.At.Add(-k.Bound))
}

// covers reports whether state i is the one at a position, or later than it.
func covers(states []version, i int, timeline, number uint64) bool {
	if number == 0 || timeline == 0 || i+1 == len(states) {
		return true
	}
	next := states[i+1].at
	return next.Timeline != timeline || next.Number > number
}
