package cache

import (
	"context"
	"slices"
	"sync"
)

// Reader answers queries from entries where they can tell, and from storage
// where not.
type Reader struct {
	storage Storage
	source  Source
	polls   *Polls
	long    longLists
	scratch sync.Pool // of *scratch
	stats   Stats
}

// NewReader returns a Reader over storage. source is the uppermost tier.
func NewReader(storage Storage, source Source, polls *Polls) *Reader {
	return &Reader{storage: storage, source: source, polls: polls, scratch: sync.Pool{New: func() any { return new(scratch) }}}
}

// Stats returns the counters of this reader.
func (r *Reader) Stats() *Stats { return &r.stats }

// Read answers queries. The token it returns is opt's with what was seen.
func (r *Reader) Read(ctx context.Context, opt Options, qs []Query, as []Answer) (Token, error) {
	if opt.Linearizable {
		r.stats.Linearizable.Add(uint64(len(qs)))
		return r.storage.Read(ctx, opt, qs, as)
	}
	b := batch{r: r, opt: &opt, qs: qs, as: as, scratch: r.scratch.Get().(*scratch)}
	defer r.scratch.Put(b.scratch)
	b.asked = append(b.asked[:0], make([]asked, len(qs))...)
	b.token = opt.Token
	b.token.Seen = append([]SlotPosition(nil), opt.Token.Seen...)
	b.need()
	for _, first := range [...]bool{true, false} {
		if err := b.round(ctx, first); err != nil {
			return Token{}, err
		}
	}
	return b.rest(ctx)
}

// batch is one call of Read under way.
type batch struct {
	r     *Reader
	opt   *Options
	qs    []Query
	as    []Answer
	token Token
	*scratch
}

// scratch is memory that no tier gets to see, so that it can be used again.
type scratch struct {
	asked []asked
	index keyIndex
}

// asked is how far a query has come.
type asked struct {
	min     Position // that its answer must be at
	hash    uint64   // HasEdge of dense ids: of the chunk's key
	want    int      // its place in the round's wants, -1: none
	chunk   bool     // the chunk is asked before the window
	storage bool     // no entry may answer it
	done    bool
}

// need finds out the position that each answer must be at (CACHE.md R1).
func (b *batch) need() {
	b.r.polls.needs(b.qs, b.asked)
	t, unpolled := &b.opt.Token, uint64(0)
	for i := range b.asked {
		a := &b.asked[i]
		seen, ok := t.need(b.qs[i].Slot)
		if a.storage = a.storage || !ok || t.Timeline != 0 && t.Timeline != a.min.Timeline; a.storage {
			unpolled++
		}
		a.min.Number = max(a.min.Number, seen)
	}
	b.r.stats.Unpolled.Add(unpolled)
}

// key names the entry that may answer a query in a round.
func (b *batch) key(i int, first bool) (Key, bool) {
	q := &b.qs[i]
	switch q.Kind {
	case HasEdge:
		// The fact is in the OUT list. The IN list only follows it, so its
		// copy proves nothing about the edge (CACHE.md R5).
		switch {
		case q.List.In || !first && !q.Dense:
			return Key{}, false
		case !q.Dense:
			return WindowKey(q.Slot, q.List), true
		}
		chunk := ChunkKey(q.Slot, q.List, q.Peer)
		if first {
			b.asked[i].hash = chunk.hash()
			b.asked[i].chunk = b.r.long.isLong(b.asked[i].hash)
		}
		if b.asked[i].chunk == first {
			return chunk, true
		}
		return WindowKey(q.Slot, q.List), true
	case CountEdges:
		if q.Page.isAllTime() {
			return RowKey(q.Slot, q.List.Vertex), first
		}
		return WindowKey(q.Slot, q.List), first
	case ListPage:
		return WindowKey(q.Slot, q.List), first
	case ReadMetric:
		return RowKey(q.Slot, q.List.Vertex), first
	}
	return Key{}, false
}

// round loads the entries that may answer what is not answered, and answers from them.
func (b *batch) round(ctx context.Context, first bool) error {
	wants := make([]Want, 0, min(len(b.qs), 4))
	b.index.clear(len(b.qs))
	for i := range b.qs {
		a := &b.asked[i]
		a.want = -1
		if a.done || a.storage {
			continue
		}
		key, ok := b.key(i, first)
		if !ok {
			continue
		}
		place, known := b.index.place(wants, &key)
		if !known {
			if len(wants) == cap(wants) { // not of one list: most have keys of their own
				wants = slices.Grow(wants, len(b.qs)-i)
			}
			wants = append(wants, Want{Key: key, Min: a.min})
		}
		a.want = place
	}
	if len(wants) == 0 {
		return nil
	}
	got := make([]Entry, len(wants))
	if err := b.r.source.Load(ctx, wants, got); err != nil {
		return err
	}
	var answered, untold uint64
	for i := range b.qs {
		if j := b.asked[i].want; j >= 0 {
			b.answer(i, &wants[j], &got[j], &answered, &untold)
		}
	}
	b.r.stats.Answered.Add(answered)
	b.r.stats.Untold.Add(untold)
	return nil
}

func (b *batch) answer(i int, want *Want, e *Entry, answered, untold *uint64) {
	q := &b.qs[i]
	if q.Kind == HasEdge && q.Dense {
		b.r.long.learn(want.Key.Kind, e, b.asked[i].hash)
	}
	switch {
	case e.IsNone() || !e.At.Covers(want.Min):
	case e.answer(q, &b.as[i]):
		b.asked[i].done = true
		b.token.See(q.Slot, e.At)
		*answered++
	default:
		*untold++
	}
}

// rest puts to storage what is not answered yet.
func (b *batch) rest(ctx context.Context) (Token, error) {
	var qs []Query
	var places []int
	for i := range b.asked {
		if !b.asked[i].done {
			qs, places = append(qs, b.qs[i]), append(places, i)
		}
	}
	if len(qs) == 0 {
		return b.token, nil
	}
	b.r.stats.Asked.Add(uint64(len(qs)))
	as := make([]Answer, len(qs))
	// The token of the request, not of what the entries showed: what they
	// showed of other slots does not bind these answers.
	t, err := b.r.storage.Read(ctx, *b.opt, qs, as)
	if err != nil {
		return Token{}, err
	}
	for j, i := range places {
		b.as[i] = as[j]
	}
	for _, s := range b.token.Seen {
		t.See(s.Slot, Position{b.token.Timeline, s.Number})
	}
	t.Others = t.Others || b.token.Others
	return t, nil
}

// answer answers a query if the entry can tell.
func (e *Entry) answer(q *Query, a *Answer) (known bool) {
	switch {
	case e.Chunk != nil && q.Kind == HasEdge:
		a.Found, known = e.Chunk.has(q.Peer), true
	case e.Window != nil && q.Kind == HasEdge:
		a.Found, known = e.Window.has(q.Peer)
	case e.Window != nil && q.Kind == CountEdges:
		a.Count, known = e.Window.count(q.Page.Since, q.Page.Until)
	case e.Window != nil && q.Kind == ListPage:
		a.Edges, a.More, known = e.Window.page(&q.Page)
	case e.Row != nil && q.Kind == CountEdges:
		f := e.Row.field(CountField(q.List))
		a.Count, known = uint64(max(f, 0)), f >= 0 || f == Absent
	case e.Row != nil && q.Kind == ReadMetric:
		f := e.Row.field(MetricField(q.Metric))
		if known = f != Unknown; known && f != Absent {
			a.Found, a.Value = true, int64(f)
		}
	}
	return known
}
