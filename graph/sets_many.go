package graph

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lianadb/liana/edgelist"
)

// ManyQuery asks, for each of many lists, which of its peers list A has too: which of
// these notes did the people that I follow like, and who of them.
type ManyQuery struct {
	A      SetSide
	Lists  []ListKey // 1 to MaxManyLists
	Window Window    // of Lists
	Limit  int       // members a list, 1 to MaxManyMembers; 0: DefaultManyMembers
	// MaxEdges bounds the edges that are looked at, all lists together. 1 to MaxSetEdges;
	// 0: DefaultSetEdges.
	MaxEdges int
}

// Limits of a ManyQuery.
const (
	MaxManyLists       = 1000
	MaxManyMembers     = 1000
	DefaultManyMembers = 3
)

// ManyResult is the answer for one list: members in the order of the shorter of the two
// lists, newest first. A is A; B the list.
type ManyResult struct {
	Members []SetMember
	// More: Limit or MaxEdges cut it, there may be more (see Combine).
	More bool
}

// IntersectMany answers a ManyQuery, one result for each of its lists. Lists that are
// shorter than A are read, and their peers looked for in A; in the others A's peers are looked
// for. Either takes one call for each node that leads some of them.
func (r *Router) IntersectMany(ctx context.Context, ro ReadOptions, q ManyQuery) ([]ManyResult, string, error) {
	return r.cfg.Local.intersectMany(ctx, r, ro, q)
}

// IntersectMany is Router.IntersectMany over the shards of this node.
func (g *Graph) IntersectMany(ctx context.Context, ro ReadOptions, q ManyQuery) ([]ManyResult, string, error) {
	return g.intersectMany(ctx, g, ro, q)
}

func (g *Graph) intersectMany(ctx context.Context, of lister, ro ReadOptions, q ManyQuery) ([]ManyResult, string, error) {
	if err := checkMany(g.Schema(), &q); err != nil {
		return nil, "", err
	}
	m := many{graph: g, of: of, ro: ro, q: q, results: make([]ManyResult, len(q.Lists)), look: max(1, q.MaxEdges/len(q.Lists))}
	short, long, err := m.divide(ctx)
	if err == nil && len(short) > 0 {
		err = m.byLists(ctx, short)
	}
	if err == nil && len(long) > 0 {
		err = m.byA(ctx, long)
	}
	if err != nil {
		return nil, "", err
	}
	token, err := mergeTokens(g.cfg.Timeline, m.tokens)
	return m.results, token, err
}

func checkMany(s *Schema, q *ManyQuery) error {
	if len(q.Lists) == 0 || len(q.Lists) > MaxManyLists {
		return invalid("vertices", fmt.Sprintf("1 to %d", MaxManyLists), "%d", len(q.Lists))
	}
	for i, l := range q.Lists {
		both := SetQuery{A: q.A, B: SetSide{List: l, Window: q.Window}}
		if err := checkSides(s, &both); err != nil {
			return err
		}
		q.A.List, q.Lists[i] = both.A.List, both.B.List
	}
	if err := checkLimit("limit", &q.Limit, DefaultManyMembers, MaxManyMembers); err != nil {
		return err
	}
	return checkLimit("max_edges", &q.MaxEdges, DefaultSetEdges, MaxSetEdges)
}

// many is a ManyQuery under way.
type many struct {
	graph   *Graph
	of      lister
	ro      ReadOptions
	q       ManyQuery
	results []ManyResult
	look    int // edges of each driving list that are looked at
	tokens  []string
}

// divide tells the lists that are shorter than A from the others; empty ones are neither.
func (m *many) divide(ctx context.Context) (short, long []int, err error) {
	var a [1]uint64
	counts := make([]uint64, len(m.q.Lists))
	if _, err := m.of.CountEdges(ctx, m.ro, []ListKey{m.q.A.List}, m.q.A.Window, a[:]); err != nil {
		return nil, nil, below("a", err)
	}
	token, err := m.of.CountEdges(ctx, m.ro, m.q.Lists, m.q.Window, counts)
	if err != nil {
		return nil, nil, err
	}
	m.tokens = append(m.tokens, token) // also what is answered for empty lists
	for i, n := range counts {
		switch {
		case n == 0 || a[0] == 0:
		case n < a[0]:
			short = append(short, i)
		default:
			long = append(long, i)
		}
	}
	return short, long, nil
}

// byLists reads lists and looks for their peers in A.
func (m *many) byLists(ctx context.Context, pick []int) error {
	runs, err := m.readShort(ctx, pick)
	if err != nil {
		return err
	}
	var peers []uint64
	for i := range runs {
		peers = append(peers, runs[i].Peers...)
	}
	slices.Sort(peers)
	peers = slices.Compact(peers)
	times := make(map[uint64]int64)
	for len(peers) > 0 {
		n := min(len(peers), MaxRunEdges)
		var found [1]FoundPeers
		token, err := m.of.FindPeers(ctx, m.ro, []ListKey{m.q.A.List}, peers[:n], found[:])
		if err != nil {
			return err
		}
		m.tokens = append(m.tokens, token)
		for i, at := range found[0].At {
			if t := found[0].Times[i]; m.q.A.Window.has(t) {
				times[peers[at]] = t
			}
		}
		peers = peers[n:]
	}
	for i, run := range runs {
		res := &m.results[pick[i]]
		res.More = run.More
		for j, peer := range run.Peers {
			t, ok := times[peer]
			if !ok {
				continue
			}
			if !m.add(res, SetMember{ID: peer, InA: true, TimeA: t, InB: true, TimeB: run.Times[j]}) {
				break
			}
		}
	}
	return nil
}

// readShort reads the newest edges of lists, in as many rounds as it takes.
func (m *many) readShort(ctx context.Context, pick []int) ([]ListRun, error) {
	runs := make([]ListRun, len(pick))
	var todo []int
	for i := range pick {
		todo = append(todo, i)
	}
	for len(todo) > 0 {
		reads := make([]ListRead, len(todo))
		for k, i := range todo {
			reads[k] = ListRead{List: m.q.Lists[pick[i]], Window: m.q.Window, Limit: min(MaxRunEdges, m.look-len(runs[i].Peers))}
			if n := len(runs[i].Peers); n > 0 {
				reads[k].From = &edgelist.Key{Time: runs[i].Times[n-1], ID: runs[i].Peers[n-1]}
			}
		}
		got := make([]ListRun, len(todo))
		token, err := m.of.ReadLists(ctx, m.ro, reads, got)
		if err != nil {
			return nil, err
		}
		m.tokens = append(m.tokens, token)
		asked := todo
		todo = nil
		for k, i := range asked {
			run := &runs[i]
			run.Peers, run.Times = append(run.Peers, got[k].Peers...), append(run.Times, got[k].Times...)
			run.More = got[k].More
			if !got[k].Done || run.More && len(run.Peers) < m.look {
				todo = append(todo, i)
			}
		}
	}
	return runs, nil
}

// byA reads A and looks for its peers in lists.
func (m *many) byA(ctx context.Context, pick []int) error {
	lists := make([]ListKey, len(pick))
	for i, j := range pick {
		lists[i] = m.q.Lists[j]
	}
	c := combination{graph: m.graph, of: m.of, ro: m.ro, left: m.look}
	for {
		run, err := c.read(ctx, m.q.A, NewestFirst, min(laterProbe, MaxLookups/len(lists)))
		if err != nil {
			return err
		}
		if err := m.lookForA(ctx, pick, lists, run); err != nil {
			return err
		}
		last := len(run.Peers) - 1
		if !run.More || c.left == 0 || last < 0 || m.full(pick) {
			for _, j := range pick {
				m.results[j].More = m.results[j].More || run.More
			}
			m.tokens = append(m.tokens, c.tokens...)
			return nil
		}
		c.from = &edgelist.Key{Time: run.Times[last], ID: run.Peers[last]}
	}
}

func (m *many) lookForA(ctx context.Context, pick []int, lists []ListKey, run ListRun) error {
	order := make([]int, len(run.Peers)) // of the run, by peer
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(run.Peers[a], run.Peers[b]) })
	peers := make([]uint64, len(order))
	for i, j := range order {
		peers[i] = run.Peers[j]
	}
	found := make([]FoundPeers, len(lists))
	token, err := m.of.FindPeers(ctx, m.ro, lists, peers, found)
	if err != nil {
		return err
	}
	m.tokens = append(m.tokens, token)
	for i, j := range pick {
		times := make(map[int]int64, len(found[i].At)) // by place in the run
		var places []int
		for k, at := range found[i].At {
			if t := found[i].Times[k]; m.q.Window.has(t) {
				times[order[at]] = t
				places = append(places, order[at])
			}
		}
		slices.Sort(places) // newest first again
		for _, k := range places {
			if !m.add(&m.results[j], SetMember{ID: run.Peers[k], InA: true, TimeA: run.Times[k], InB: true, TimeB: times[k]}) {
				break
			}
		}
	}
	return nil
}

// add adds a member; false: there is no room for it.
func (m *many) add(res *ManyResult, x SetMember) bool {
	if len(res.Members) == m.q.Limit {
		res.More = true
		return false
	}
	res.Members = append(res.Members, x)
	return true
}

// full reports whether no result has room.
func (m *many) full(pick []int) bool {
	for _, j := range pick {
		if len(m.results[j].Members) < m.q.Limit {
			return false
		}
	}
	return true
}
