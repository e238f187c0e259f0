package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lianadb/liana/edgelist"
)

// SetOp combines the peers of two edge lists.
type SetOp uint8

// The operations.
const (
	Intersect  SetOp = iota + 1 // peers of both
	Difference                  // peers of A that B does not have
	Union                       // peers of either
)

// SetSide is an edge list as a set of its peers, those of a window of time.
type SetSide struct {
	List   ListKey
	Window Window
}

// SetQuery asks for a page of A op B. The peers of both lists are of one type.
type SetQuery struct {
	Op        SetOp
	A, B      SetSide
	PageSize  int // 1 to MaxPageSize; 0: DefaultPageSize
	PageToken string
	// MaxEdges bounds the edges that one page reads: it may then be short, even
	// empty, and still have a Next. 1 to MaxSetEdges; 0: DefaultSetEdges.
	MaxEdges int
}

// Limits of set queries.
const (
	MaxSetEdges     = 1_000_000
	DefaultSetEdges = 100_000
)

// SetMember is a peer, and the times of its edges in the lists that have it.
type SetMember struct {
	ID           uint64
	InA, InB     bool
	TimeA, TimeB int64
}

// SetPage is a page of a set. An empty Next says that this was all.
//
// An intersection is in the order of one list, newest first: of the shorter one when the first
// page was asked for (ByB: it is B), each of whose edges is looked for in the other. A difference
// is in the order of A, newest first. A union ascends by id. A peer that belongs to the set
// during all pages is shown exactly once.
type SetPage struct {
	Members []SetMember
	ByB     bool
	Next    string
	Token   string
}

// Combine returns a page of two edge lists combined.
func (r *Router) Combine(ctx context.Context, ro ReadOptions, q SetQuery) (SetPage, error) {
	return r.cfg.Local.combine(ctx, r, ro, q)
}

// Combine is Router.Combine over the shards of this node.
func (g *Graph) Combine(ctx context.Context, ro ReadOptions, q SetQuery) (SetPage, error) {
	return g.combine(ctx, g, ro, q)
}

func (g *Graph) combine(ctx context.Context, of lister, ro ReadOptions, q SetQuery) (SetPage, error) {
	from, err := g.setStart(&q)
	if err != nil {
		return SetPage{}, err
	}
	c := combination{graph: g, of: of, ro: ro, q: q, left: q.MaxEdges}
	if from != nil {
		c.first, c.page.ByB = from.Token, from.ByB
		c.from = &edgelist.Key{Time: from.Time, ID: from.ID}
		c.seen(from.Token)
		// Later pages are no older than the first.
		if c.ro.Token, err = mergeTokens(g.cfg.Timeline, []string{ro.Token, from.Token}); err != nil {
			return SetPage{}, err
		}
	} else if q.Op == Intersect {
		if c.page.ByB, err = c.shorter(ctx); err != nil {
			return SetPage{}, err
		}
	}
	more := false
	if q.Op == Union {
		more, err = c.merge(ctx)
	} else {
		more, err = c.probe(ctx)
	}
	if err != nil {
		return SetPage{}, err
	}
	return c.end(more)
}

// combination is a page of a set in the making.
type combination struct {
	graph  *Graph
	of     lister
	ro     ReadOptions
	q      SetQuery
	from   *edgelist.Key // the last edge of the driving list, or the last id, that was dealt with
	left   int           // edges that may be read yet
	first  string        // token of the first page; none on that one
	tokens []string
	page   SetPage
}

func (c *combination) seen(token string) { c.tokens = append(c.tokens, token) }

// end completes the page.
func (c *combination) end(more bool) (SetPage, error) {
	g := c.graph
	var err error
	if c.page.Token, err = mergeTokens(g.cfg.Timeline, c.tokens); err != nil {
		return SetPage{}, err
	}
	if more {
		first := c.first
		if first == "" {
			first = c.page.Token
		}
		c.page.Next = setCursor{ByB: c.page.ByB, Time: c.from.Time, ID: c.from.ID, Token: first}.encode(g.cfg.PageKey, &c.q)
	}
	return c.page, nil
}

// shorter reports whether B is the shorter list.
func (c *combination) shorter(ctx context.Context) (bool, error) {
	a, err := c.count(ctx, c.q.A)
	if err != nil {
		return false, below("a", err)
	}
	b, err := c.count(ctx, c.q.B)
	return b < a, below("b", err)
}

func (c *combination) count(ctx context.Context, s SetSide) (uint64, error) {
	var n [1]uint64
	_, err := c.of.CountEdges(ctx, c.ro, []ListKey{s.List}, s.Window, n[:])
	return n[0], err
}

// Edges of a driving list that are read at once.
const (
	firstProbe = 1000
	laterProbe = 8000
)

// probe goes along the driving list and looks for its edges in the other, until the page
// is full or enough is read. more: the list goes on.
func (c *combination) probe(ctx context.Context) (more bool, err error) {
	drive, other := c.q.A, c.q.B
	if c.page.ByB {
		drive, other = other, drive
	}
	for n := firstProbe; ; n = laterProbe {
		run, err := c.read(ctx, drive, NewestFirst, n)
		if err != nil {
			return false, err
		}
		found, err := c.find(ctx, other, run.Peers)
		if err != nil {
			return false, err
		}
		for i, peer := range run.Peers {
			t, ok := found[peer]
			if ok == (c.q.Op == Difference) {
				continue
			}
			if len(c.page.Members) == c.q.PageSize {
				return true, nil
			}
			c.page.Members = append(c.page.Members, c.member(peer, run.Times[i], t, ok))
			c.from = &edgelist.Key{Time: run.Times[i], ID: peer}
		}
		if last := len(run.Peers) - 1; last >= 0 {
			c.from = &edgelist.Key{Time: run.Times[last], ID: run.Peers[last]}
		}
		if !run.More || c.left == 0 {
			return run.More, nil
		}
	}
}

// member is a peer of the driving list, and of the other where both.
func (c *combination) member(peer uint64, driving, other int64, both bool) SetMember {
	if c.page.ByB {
		return SetMember{ID: peer, InA: both, TimeA: other, InB: true, TimeB: driving}
	}
	return SetMember{ID: peer, InA: true, TimeA: driving, InB: both, TimeB: other}
}

// read reads a run of a list behind what was dealt with.
func (c *combination) read(ctx context.Context, s SetSide, o Order, n int) (ListRun, error) {
	reads := [1]ListRead{{List: s.List, Order: o, Window: s.Window, From: c.from, Limit: min(n, c.left)}}
	var runs [1]ListRun
	token, err := c.of.ReadLists(ctx, c.ro, reads[:], runs[:])
	if err != nil {
		return ListRun{}, err
	}
	c.left -= len(runs[0].Peers)
	c.seen(token)
	return runs[0], nil
}

// find looks for peers in a list and returns the times of those that are in its window.
func (c *combination) find(ctx context.Context, s SetSide, peers []uint64) (map[uint64]int64, error) {
	if len(peers) == 0 {
		return nil, nil
	}
	sorted := slices.Clone(peers)
	slices.Sort(sorted)
	var found [1]FoundPeers
	token, err := c.of.FindPeers(ctx, c.ro, []ListKey{s.List}, sorted, found[:])
	if err != nil {
		return nil, err
	}
	times := make(map[uint64]int64, len(found[0].At))
	for i, at := range found[0].At {
		if t := found[0].Times[i]; s.Window.has(t) {
			times[sorted[at]] = t
		}
	}
	c.seen(token)
	return times, nil
}

// has reports whether a time lies in the window.
func (w Window) has(t int64) bool {
	return t >= w.Since && (t < w.Until || w.Until == AllTime().Until)
}

// merge reads both lists by id and merges them.
func (c *combination) merge(ctx context.Context) (more bool, err error) {
	n := c.q.PageSize + 1
	c.left = max(c.left, 2) // one edge of each, so that every page comes on
	half := min(n, c.left/2)
	var reads [2]ListRead
	var runs [2]ListRun
	for i, l := range [...]ListKey{c.q.A.List, c.q.B.List} {
		reads[i] = ListRead{List: l, Order: IDAscending, Window: AllTime(), From: c.from, Limit: half}
	}
	for first := 0; first < len(runs); {
		token, err := c.of.ReadLists(ctx, c.ro, reads[first:], runs[first:])
		if err != nil {
			return false, err
		}
		c.seen(token)
		for first < len(runs) && runs[first].Done {
			first++
		}
	}
	a, b := &runs[0], &runs[1]
	for i, j := 0, 0; ; {
		// Behind the end of a run that its list goes beyond, nothing is known of it.
		switch endA, endB := i == len(a.Peers), j == len(b.Peers); {
		case endA && endB:
			return a.More || b.More, nil
		case endA && a.More || endB && b.More, len(c.page.Members) == c.q.PageSize:
			return true, nil
		case endB || !endA && a.Peers[i] < b.Peers[j]:
			c.add(SetMember{ID: a.Peers[i], InA: true, TimeA: a.Times[i]})
			i++
		case endA || b.Peers[j] < a.Peers[i]:
			c.add(SetMember{ID: b.Peers[j], InB: true, TimeB: b.Times[j]})
			j++
		default:
			c.add(SetMember{ID: a.Peers[i], InA: true, TimeA: a.Times[i], InB: true, TimeB: b.Times[j]})
			i, j = i+1, j+1
		}
	}
}

func (c *combination) add(m SetMember) {
	c.page.Members = append(c.page.Members, m)
	c.from = &edgelist.Key{ID: m.ID}
}

// checkSides checks the lists of a set query and resolves them.
func checkSides(s *Schema, q *SetQuery) error {
	var err error
	if q.A.List, err = resolveList(s, q.A.List); err != nil {
		return below("a", err)
	}
	if q.B.List, err = resolveList(s, q.B.List); err != nil {
		return below("b", err)
	}
	a, b := s.peerType(q.A.List.Type, q.A.List.Dir), s.peerType(q.B.List.Type, q.B.List.Dir)
	if a != b {
		return invalid("b.type", "edges whose other ends are of the type that a has, "+s.VertexTypeName(a), "other ends of type %s", s.VertexTypeName(b))
	}
	if err := checkWindow(q.A.Window); err != nil {
		return below("a", err)
	}
	if err := checkWindow(q.B.Window); err != nil {
		return below("b", err)
	}
	return nil
}

func checkSet(s *Schema, q *SetQuery) error {
	if q.Op < Intersect || q.Op > Union {
		return invalid("op", "a set operation", "%d", q.Op)
	}
	if err := checkSides(s, q); err != nil {
		return err
	}
	if q.Op == Union && !(q.A.Window.IsAll() && q.B.Window.IsAll()) {
		return invalid("a.window", "none in a union", "a window of time")
	}
	if err := checkLimit("page_size", &q.PageSize, DefaultPageSize, MaxPageSize); err != nil {
		return err
	}
	return checkLimit("max_edges", &q.MaxEdges, DefaultSetEdges, MaxSetEdges)
}

// below puts the field of a mistake under a path.
func below(path string, err error) error {
	var bad *InvalidError
	if !errors.As(err, &bad) {
		return err
	}
	return &InvalidError{Field: fmt.Sprintf("%s.%s", path, bad.Field), Limit: bad.Limit, Msg: bad.Msg}
}
