package cache

import (
	"math"
	"slices"
	"sync/atomic"
)

// Window holds the newest edges of a list: exactly those at or above Floor.
type Window struct {
	Edges []Edge // oldest first
	Total uint64 // edges of the whole list
	Floor Edge   // the least edge that the window covers; no matter when Complete
	Props bool   // some edges had properties, which are not here

	lookups atomic.Uint32
	peers   atomic.Pointer[peerSet] // of Edges, once there were many lookups
}

// Complete reports whether the window holds the whole list.
func (w *Window) Complete() bool { return uint64(len(w.Edges)) == w.Total }

// PageQuery asks for a page of a list, newest edge first.
type PageQuery struct {
	From         *Edge // begin behind this edge, the last of the page before
	Skip         uint64
	Limit        int
	Since, Until int64 // only edges with Since <= time < Until
}

// AllTime asks for edges of any time.
func (q PageQuery) AllTime() PageQuery {
	q.Since, q.Until = math.MinInt64, math.MaxInt64
	return q
}

func (q *PageQuery) isAllTime() bool { return q.Since == math.MinInt64 && q.Until == math.MaxInt64 }

// lookupsBeforeSet is how many times a window is searched through before a set of its
// peers is made, which takes about as long.
const lookupsBeforeSet = 8

// has tells whether peer is in the list, or that the window cannot tell.
func (w *Window) has(peer uint64) (found, known bool) {
	if set := w.peers.Load(); set != nil {
		found = set.has(peer)
		return found, found || w.Complete()
	}
	if w.lookups.Add(1) == lookupsBeforeSet {
		w.peers.Store(newPeerSet(w.Edges))
	}
	for i := range w.Edges {
		if w.Edges[i].Peer == peer {
			return true, true
		}
	}
	return false, w.Complete()
}

// span returns the places of the edges with since <= time < until. The end of time
// is without bound: an edge may lie at it.
func (w *Window) span(since, until int64) (from, to int) {
	at := func(t int64) int {
		i, _ := slices.BinarySearchFunc(w.Edges, Edge{Time: t}, Edge.Compare)
		return i
	}
	from, to = at(since), len(w.Edges)
	if until != math.MaxInt64 {
		to = at(until)
	}
	return from, max(from, to)
}

// covers reports whether all edges of the list from since on are in the window.
func (w *Window) covers(since int64) bool {
	return w.Complete() || Edge{Time: since}.Compare(w.Floor) >= 0
}

// count counts the edges of a window of time.
func (w *Window) count(since, until int64) (n uint64, known bool) {
	if since == math.MinInt64 && until == math.MaxInt64 {
		return w.Total, true
	}
	from, to := w.span(since, until)
	return uint64(to - from), w.covers(since)
}

// page returns a page, and whether more edges of the query lie behind it. It is
// known only where the page lies wholly inside the window.
func (w *Window) page(q *PageQuery) (edges []Edge, more, known bool) {
	if w.Props || q.Limit <= 0 {
		return nil, false, false
	}
	from, to := w.span(q.Since, q.Until)
	if q.From != nil {
		i, _ := slices.BinarySearchFunc(w.Edges, *q.From, Edge.Compare)
		to = max(from, min(to, i))
	}
	left := uint64(to - from)
	if q.Skip >= left {
		return nil, false, w.covers(q.Since)
	}
	to -= int(q.Skip)
	n := min(q.Limit, to-from)
	for i := to - 1; i >= to-n; i-- {
		edges = append(edges, w.Edges[i])
	}
	if n < to-from {
		return edges, true, true
	}
	if w.covers(q.Since) {
		return edges, false, true
	}
	// The page ends where the window does, and more edges lie below it. Which
	// of these the query wants is known only if it wants all.
	return edges, true, n == q.Limit && q.Since == math.MinInt64
}
