package cache

import "context"

// Reader answers queries from entries where they can tell, and from storage
// where not.
type Reader struct {
	storage Storage
	source  Source
	polls   *Polls
	stats   Stats
}

// NewReader returns a Reader over storage. source is the uppermost tier.
func NewReader(storage Storage, source Source, polls *Polls) *Reader {
	return &Reader{storage: storage, source: source, polls: polls}
}

// Stats returns the counters of this reader.
func (r *Reader) Stats() *Stats { return &r.stats }

// Read answers queries. The token it returns is opt's with what was seen.
func (r *Reader) Read(ctx context.Context, opt Options, qs []Query, as []Answer) (Token, error) {
	if opt.Linearizable {
		r.stats.Linearizable.Add(uint64(len(qs)))
		return r.storage.Read(ctx, opt, qs, as)
	}
	b := batch{r: r, opt: &opt, qs: qs, as: as, done: make([]bool, len(qs))}
	b.token = opt.Token
	b.token.Seen = append([]SlotPosition(nil), opt.Token.Seen...)
	for _, key := range [...]func(*Query) (Key, bool){firstKey, chunkKey} {
		if err := b.round(ctx, key); err != nil {
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
	done  []bool
	token Token
}

// firstKey names the entry that may answer a query.
func firstKey(q *Query) (Key, bool) {
	switch q.Kind {
	case HasEdge:
		// The fact is in the OUT list. The IN list only follows it, so its
		// copy proves nothing about the edge (CACHE.md R5).
		return WindowKey(q.Slot, q.List), !q.List.In
	case CountEdges:
		if q.Page.isAllTime() {
			return RowKey(q.Slot, q.List.Vertex), true
		}
		return WindowKey(q.Slot, q.List), true
	case ListPage:
		return WindowKey(q.Slot, q.List), true
	case ReadMetric:
		return RowKey(q.Slot, q.List.Vertex), true
	}
	return Key{}, false
}

// chunkKey names the chunk that may answer a query that its window could not.
func chunkKey(q *Query) (Key, bool) {
	return ChunkKey(q.Slot, q.List, q.Peer), q.Kind == HasEdge && q.Dense && !q.List.In
}

// round loads the entries that keyOf names and answers from them.
func (b *batch) round(ctx context.Context, keyOf func(*Query) (Key, bool)) error {
	var wants []Want
	places := map[Key]int{}
	which := make([]int, len(b.qs)) // of the wants, plus 1
	for i := range b.qs {
		if b.done[i] {
			continue
		}
		key, ok := keyOf(&b.qs[i])
		if !ok {
			continue
		}
		min, ok := b.r.need(&b.opt.Token, key.Slot)
		if !ok {
			b.r.stats.Unpolled.Add(1)
			continue
		}
		place, known := places[key]
		if !known {
			place = len(wants)
			places[key] = place
			wants = append(wants, Want{Key: key, Min: min})
		}
		which[i] = place + 1
	}
	if len(wants) == 0 {
		return nil
	}
	got := make([]Entry, len(wants))
	if err := b.r.source.Load(ctx, wants, got); err != nil {
		return err
	}
	for i := range b.qs {
		if which[i] > 0 {
			b.answer(i, &wants[which[i]-1], &got[which[i]-1])
		}
	}
	return nil
}

func (b *batch) answer(i int, want *Want, e *Entry) {
	if e.IsNone() || !e.At.Covers(want.Min) {
		return
	}
	if e.answer(&b.qs[i], &b.as[i]) {
		b.done[i] = true
		b.token.See(b.qs[i].Slot, e.At)
		b.r.stats.Answered.Add(1)
		return
	}
	b.r.stats.Untold.Add(1)
}

// need is CACHE.md R1: the position that an answer about slot must be at.
func (r *Reader) need(t *Token, slot Slot) (Position, bool) {
	at, ok := r.polls.need(slot)
	if !ok || t.Timeline != 0 && t.Timeline != at.Timeline {
		return Position{}, false
	}
	seen, ok := t.need(slot)
	at.Number = max(at.Number, seen)
	return at, ok
}

// rest puts to storage what is not answered yet.
func (b *batch) rest(ctx context.Context) (Token, error) {
	var qs []Query
	var places []int
	for i, done := range b.done {
		if !done {
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
