package graph

import (
	"context"
	"fmt"
	"slices"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv/shard"
)

// reading holds the views that one read needs: one a shard, each at least as
// fresh as the read asks.
type reading struct {
	g      *Graph
	level  ReadLevel
	tokens []*Token
	views  []*view // one a shard
	least  uint64  // a position that every view has to be at
	out    Token
}

// newReading prepares a read under ro, and under the token of an earlier page.
func (g *Graph) newReading(ro ReadOptions, page string) (*reading, error) {
	r := &reading{g: g, level: ro.Level, out: Token{Timeline: g.cfg.Timeline}}
	for _, text := range [...]string{ro.Token, page} {
		t, err := ParseToken(text)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		if t.Timeline != g.cfg.Timeline {
			return nil, ErrOldTimeline
		}
		r.tokens = append(r.tokens, t)
	}
	return r, nil
}

func (r *reading) close() {
	for _, v := range r.views {
		v.release()
	}
}

// at returns a view of the shard of slot that is fresh enough for it. Slots of one
// shard share a view; it is taken anew only where a later slot needs more.
func (r *reading) at(ctx context.Context, slot Slot) (*view, error) {
	for {
		id := r.g.shardOf(slot)
		v, err := r.of(ctx, id, slot)
		if err != nil {
			return nil, err
		}
		if v.own.owns(slot) {
			r.out.see(slot, r.g.lastChange(id, slot))
			return v, nil
		}
		// The shard has learnt that it is another's (RULES F1).
		r.g.learn(v.owners)
		if r.g.shardOf(slot) == id {
			return nil, v.disowned(slot, r.g.moved(id, fmt.Errorf("shard %d: slot %d: %w", id, slot, shard.ErrNotLeader)))
		}
	}
}

// of returns a view of shard id that is fresh enough for slot.
func (r *reading) of(ctx context.Context, id uint32, slot Slot) (*view, error) {
	mb, err := r.g.member(id)
	if err != nil {
		return nil, err
	}
	if s := mb.group.Load(); s != nil && s.Fault() != nil {
		return nil, fmt.Errorf("shard %d: %w: %w", id, shard.ErrFault, s.Fault())
	}
	if err := mb.machine.atHand(ctx, slot); err != nil {
		return nil, err
	}
	v := r.view(id)
	if v == nil {
		if err := r.admit(ctx, mb); err != nil {
			return nil, r.g.moved(id, err)
		}
	}
	fresh, others := r.needs(mb, slot)
	if others && r.level != Linearizable {
		if err := mb.confirm(ctx); err != nil {
			return nil, r.g.moved(id, err)
		}
		r.drop(id)
		v = nil
	}
	if v == nil || v.position < fresh.pos {
		r.drop(id)
		if v, err = mb.machine.acquireAt(ctx, r.g.cfg.FreshWait, fresh); err != nil {
			return nil, err
		}
		r.views = append(r.views, v)
	}
	return v, nil
}

// admit refuses a read that the replica must not answer now. It is asked before the view
// is taken, whoever has sent the read here: a router knows only that nobody else is left.
func (r *reading) admit(ctx context.Context, mb *member) error {
	id := mb.machine.cfg.ID
	switch {
	case r.level == Linearizable:
		return mb.confirm(ctx)
	case r.level != MinimizeLatency:
		return nil
	case r.g.leads(id):
		if s, err := mb.running(); err != nil || !s.StoodStill() {
			return err
		}
		return mb.confirm(ctx)
	case r.g.follows(id):
		return nil
	}
	return fmt.Errorf("shard %d: the replica is older than %v: %w", id, r.g.cfg.StaleReads, shard.ErrNotLeader)
}

// view returns the view of a shard that was taken, or nil.
func (r *reading) view(id uint32) *view {
	for _, v := range r.views {
		if v.m.cfg.ID == id {
			return v
		}
	}
	return nil
}

func (r *reading) drop(id uint32) {
	r.views = slices.DeleteFunc(r.views, func(v *view) bool {
		if v.m.cfg.ID == id {
			v.release()
			return true
		}
		return false
	})
}

func (mb *member) confirm(ctx context.Context) error {
	s, err := mb.running()
	if err != nil {
		return err
	}
	return s.Confirm(ctx)
}

// freshness is what a read needs of a shard: its own position, and how far
// deliveries of other shards have come.
type freshness struct {
	pos      uint64
	incoming []streamPosition
}

// needs gathers what the tokens say about slot. others is true where a token had
// no room for all slots it has seen.
func (r *reading) needs(mb *member, slot Slot) (f freshness, others bool) {
	f.pos = r.least
	for _, t := range r.tokens {
		pos := t.position(slot)
		f.pos = max(f.pos, pos)
		others = others || t.Others && pos == 0
		for _, p := range t.Pending {
			if p.Dst != slot {
				continue
			}
			if p.Src == mb.machine.cfg.ID {
				f.pos = max(f.pos, p.Pos)
				continue
			}
			f.incoming = append(f.incoming, streamPosition{p.Src, p.Pos})
		}
	}
	return f, others
}

// list opens a list in a view that is fresh enough for it.
func (r *reading) list(ctx context.Context, l ListKey) (*edgelist.List, error) {
	v, err := r.at(ctx, SlotOf(l.Vertex))
	if err != nil {
		return nil, err
	}
	return v.list(l)
}

// faultOf is Machine.faultOf of the shard that was read.
func (r *reading) faultOf(err error, l ListKey) error {
	for _, v := range r.views {
		if v.own.owns(SlotOf(l.Vertex)) {
			return v.m.faultOf(err, l)
		}
	}
	return err
}

// HasEdges tells for each destination whether its edge exists. srcs holds one
// source for all destinations, or one for each.
func (g *Graph) HasEdges(ctx context.Context, ro ReadOptions, t EdgeType, srcs, dsts []uint64, exists []bool) (string, error) {
	def, ok := g.Schema().EdgeTypeByID(t)
	if !ok {
		return "", invalid("type", "an edge type of the schema", "edge type %d", t)
	}
	if err := checkPairs(srcs, dsts); err != nil {
		return "", err
	}
	r, err := g.newReading(ro, "")
	if err != nil {
		return "", err
	}
	defer r.close()
	h := hasReader{r: r, def: def}
	for i, dst := range dsts {
		src := srcs[0]
		if len(srcs) > 1 {
			src = srcs[i]
		}
		if exists[i], err = h.has(ctx, src, dst); err != nil {
			return "", err
		}
	}
	return r.out.Encode(), nil
}

func checkPairs(srcs, dsts []uint64) error {
	if err := checkBatch("dst_ids", len(dsts)); err != nil {
		return err
	}
	if len(srcs) != 1 && len(srcs) != len(dsts) {
		return invalid("src_ids", "one id, or as many as dst_ids", "%d ids for %d destinations", len(srcs), len(dsts))
	}
	for i, id := range srcs {
		if id < MinID || id > MaxID {
			return checkID(fmt.Sprintf("src_ids[%d]", i), id)
		}
	}
	for i, id := range dsts {
		if id < MinID || id > MaxID {
			return checkID(fmt.Sprintf("dst_ids[%d]", i), id)
		}
	}
	return nil
}

// hasReader keeps the list of the last source open.
type hasReader struct {
	r    *reading
	def  *EdgeTypeDef
	src  uint64
	list *edgelist.List
}

func (h *hasReader) has(ctx context.Context, src, dst uint64) (bool, error) {
	if h.def.Symmetric && src > dst {
		src, dst = dst, src
	}
	if h.list == nil || h.src != src {
		var err error
		if h.list, err = h.r.list(ctx, h.def.fact(src)); err != nil {
			return false, err
		}
		h.src = src
	}
	ok, err := h.list.Has(dst)
	if err != nil {
		l := h.def.fact(src)
		return false, h.r.faultOf(err, l)
	}
	return ok, nil
}

// GetEdge returns an edge, or ErrNoEdge. Peer is the destination.
func (g *Graph) GetEdge(ctx context.Context, ro ReadOptions, t EdgeType, src, dst uint64) (edgelist.Edge, string, error) {
	def, ok := g.Schema().EdgeTypeByID(t)
	if !ok {
		return edgelist.Edge{}, "", invalid("type", "an edge type of the schema", "edge type %d", t)
	}
	if err := checkID("src.id", src); err != nil {
		return edgelist.Edge{}, "", err
	}
	if err := checkID("dst.id", dst); err != nil {
		return edgelist.Edge{}, "", err
	}
	r, err := g.newReading(ro, "")
	if err != nil {
		return edgelist.Edge{}, "", err
	}
	defer r.close()
	asked := dst
	if def.Symmetric && src > dst {
		src, dst = dst, src
	}
	l := def.fact(src)
	list, err := r.list(ctx, l)
	if err != nil {
		return edgelist.Edge{}, "", err
	}
	e, ok, err := list.Get(dst)
	if err != nil {
		return edgelist.Edge{}, "", r.faultOf(err, l)
	}
	if !ok {
		return edgelist.Edge{}, "", ErrNoEdge
	}
	e.Peer = asked
	return e, r.out.Encode(), nil
}

// CountEdges counts the edges of each list in a window of time.
func (g *Graph) CountEdges(ctx context.Context, ro ReadOptions, lists []ListKey, w Window, counts []uint64) (string, error) {
	if err := checkBatch("lists", len(lists)); err != nil {
		return "", err
	}
	if err := checkWindow(w); err != nil {
		return "", err
	}
	return g.eachList(ctx, ro, lists, func(i int, list *edgelist.List) (err error) {
		if w.IsAll() {
			counts[i] = list.Count()
			return nil
		}
		counts[i], err = list.CountWindow(w.Since, w.Until)
		return err
	})
}

// eachList has do read each of lists, and returns the token of what was seen.
func (g *Graph) eachList(ctx context.Context, ro ReadOptions, lists []ListKey, do func(i int, list *edgelist.List) error) (string, error) {
	r, err := g.newReading(ro, "")
	if err != nil {
		return "", err
	}
	defer r.close()
	s := g.Schema()
	for i, l := range lists {
		if l, err = resolveList(s, l); err != nil {
			return "", err
		}
		list, err := r.list(ctx, l)
		if err != nil {
			return "", err
		}
		if err := do(i, list); err != nil {
			return "", r.faultOf(err, l)
		}
	}
	return r.out.Encode(), nil
}

// ListEdges returns a page of a list. It ends at PageSize edges or
// MaxPageBytes, whichever comes first.
func (g *Graph) ListEdges(ctx context.Context, ro ReadOptions, q ListQuery) (ListPage, error) {
	from, err := g.PageStart(&q)
	if err != nil {
		return ListPage{}, err
	}
	first := ""
	if from != nil {
		first = from.Token
	}
	r, err := g.newReading(ro, first)
	if err != nil {
		return ListPage{}, err
	}
	defer r.close()
	list, err := r.list(ctx, q.List)
	if err != nil {
		return ListPage{}, err
	}
	page, more, err := readEdges(list, &q, from)
	if err != nil {
		return ListPage{}, r.faultOf(err, q.List)
	}
	page.Token = r.out.Encode()
	if more {
		if first == "" {
			first = page.Token
		}
		last := page.Edges[len(page.Edges)-1]
		page.Next = PageCursor{Time: last.Time, ID: last.Peer, Token: first}.encode(g.cfg.PageKey, &q)
	}
	return page, nil
}

func checkQuery(q *ListQuery) error {
	if q.PageSize < 0 || q.PageSize > MaxPageSize {
		return invalid("page_size", fmt.Sprintf("1 to %d, or 0 for %d", MaxPageSize, DefaultPageSize), "%d", q.PageSize)
	}
	if q.PageSize == 0 {
		q.PageSize = DefaultPageSize
	}
	if q.Skip > 0 && q.PageToken != "" {
		return invalid("skip", "0 with page_token", "%d", q.Skip)
	}
	return checkOrder(q.Order, q.Window)
}

// edgeBytes is what an edge takes in an answer, beside its properties.
const edgeBytes = 64

func readEdges(list *edgelist.List, q *ListQuery, from *PageCursor) (page ListPage, more bool, err error) {
	eq := edgelist.Query{
		Order: edgelist.ByTime, Descending: q.Order == NewestFirst || q.Order == IDDescending,
		Skip: q.Skip,
	}
	if q.Window.Since == q.Window.Until {
		return page, false, nil // no time lies in it
	}
	if !q.Window.IsAll() {
		eq.Since, eq.Until = q.Window.Since, q.Window.Until
	}
	if q.Order == IDAscending || q.Order == IDDescending {
		eq.Order = edgelist.ByID
	}
	if from != nil {
		eq.From = &edgelist.Key{Time: from.Time, ID: from.ID}
	}
	it := list.Iter(eq)
	size := 0
	page.Edges = make([]edgelist.Edge, 0, min(uint64(q.PageSize), list.Count()))
	for it.Next() {
		e := it.Edge()
		if len(page.Edges) == q.PageSize || size > MaxPageBytes {
			return page, true, nil
		}
		size += edgeBytes + len(e.Props)
		page.Edges = append(page.Edges, e)
	}
	return page, false, it.Err()
}
