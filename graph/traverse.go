package graph

import (
	"context"
	"errors"
	"fmt"

	"github.com/lianadb/liana/edgelist"
)

// Step is one hop of a traversal: which edges it follows from each vertex.
type Step struct {
	Type   EdgeType
	Dir    Direction
	Order  Order
	Window Window
	Limit  int // edges of one vertex, the first in Order; 0: DefaultStepLimit
}

// TraverseQuery asks for the vertices that can be reached from Start.
type TraverseQuery struct {
	Start Vertex
	// Steps are the hops, one after the other; the last is repeated up to Depth.
	Steps    []Step
	Depth    int // hops, 1 to MaxDepth; 0: one for each step
	Limit    int // vertices, 1 to MaxReached; 0: DefaultReached
	MaxEdges int // edges read, 1 to MaxTraverseEdges; 0: DefaultTraverseEdges
}

// Limits of a traversal. What it holds in memory is bounded by the vertices it reaches.
const (
	MaxDepth             = 16
	MaxReached           = 100_000
	DefaultReached       = 10_000
	MaxStepLimit         = 100_000
	DefaultStepLimit     = 1_000
	MaxTraverseEdges     = 10_000_000
	DefaultTraverseEdges = 1_000_000
)

// Reached is a vertex that a traversal reached, at its least depth, and a vertex one step
// before it.
type Reached struct {
	Vertex Vertex
	Depth  int
	From   Vertex
}

// CutBy says which limit cut a traversal.
type CutBy uint8

// The limits. After CutByStep the traversal goes on, after the others it ends.
const (
	CutByStep     CutBy = iota + 1 // edges of one vertex
	CutByLimit                     // vertices
	CutByMaxEdges                  // edges read
)

// Cut says that a limit kept vertices of a depth out.
type Cut struct {
	By    CutBy
	Depth int
	// Vertices are those whose lists were not read to their end.
	Vertices int
}

// TraverseEnd is what became of a traversal: nothing was cut where Cuts is empty. Query
// has the limits that were in force.
type TraverseEnd struct {
	Query TraverseQuery
	Cuts  []Cut
	Edges int // edges read
	Token string
}

// Traverse walks from a vertex along edges, breadth first, and calls tell with the
// vertices that it reaches: each once, with its least depth, in order of depth. The start
// is never among them. Lists are read as they stand when the walk comes to them: a call for
// each node that leads some, for as many vertices of a hop as a call may answer. It ends
// soon after ctx.
func (r *Router) Traverse(ctx context.Context, ro ReadOptions, q TraverseQuery, tell func([]Reached) error) (TraverseEnd, error) {
	return r.cfg.Local.traverse(ctx, r, ro, q, tell)
}

// Traverse is Router.Traverse over the shards of this node.
func (g *Graph) Traverse(ctx context.Context, ro ReadOptions, q TraverseQuery, tell func([]Reached) error) (TraverseEnd, error) {
	return g.traverse(ctx, g, ro, q, tell)
}

func (g *Graph) traverse(ctx context.Context, of lister, ro ReadOptions, q TraverseQuery, tell func([]Reached) error) (TraverseEnd, error) {
	schema := g.Schema()
	if err := checkTraverse(schema, &q); err != nil {
		return TraverseEnd{}, err
	}
	w := walk{
		of: of, timeline: g.cfg.Timeline, ro: ro, q: q, tell: tell, schema: schema,
		seen: map[Vertex]struct{}{q.Start: {}}, ends: []uint64{q.Start.ID}, at: q.Start.Type,
	}
	for depth := 1; depth <= q.Depth && len(w.ends) > 0 && !w.ended; depth++ {
		if err := w.hop(ctx, depth); err != nil {
			return TraverseEnd{}, err
		}
	}
	token, err := mergeTokens(g.cfg.Timeline, w.tokens)
	return TraverseEnd{Query: q, Cuts: w.cuts, Edges: w.edges, Token: token}, err
}

func checkTraverse(s *Schema, q *TraverseQuery) error {
	if len(q.Steps) == 0 || len(q.Steps) > MaxDepth {
		return invalid("steps", fmt.Sprintf("1 to %d", MaxDepth), "%d steps", len(q.Steps))
	}
	if err := checkLimit("depth", &q.Depth, len(q.Steps), MaxDepth); err != nil {
		return err
	}
	if q.Depth < len(q.Steps) {
		return invalid("depth", "at least the number of steps", "%d, and %d steps", q.Depth, len(q.Steps))
	}
	if err := checkLimit("limit", &q.Limit, DefaultReached, MaxReached); err != nil {
		return err
	}
	if err := checkLimit("max_edges", &q.MaxEdges, DefaultTraverseEdges, MaxTraverseEdges); err != nil {
		return err
	}
	at := q.Start
	for i := range q.Depth {
		st := &q.Steps[min(i, len(q.Steps)-1)]
		if _, err := resolveList(s, ListKey{at, st.Type, st.Dir}); err != nil {
			return underStep(i, len(q.Steps), err)
		}
		if err := checkLimit("limit", &st.Limit, DefaultStepLimit, MaxStepLimit); err != nil {
			return underStep(i, len(q.Steps), err)
		}
		if err := checkOrder(st.Order, st.Window); err != nil {
			return underStep(i, len(q.Steps), err)
		}
		at.Type = s.peerType(st.Type, st.Dir)
	}
	return nil
}

// checkLimit checks a number that is 0 where the default is meant.
func checkLimit(field string, n *int, otherwise, most int) error {
	if *n < 0 || *n > most {
		return invalid(field, fmt.Sprintf("1 to %d, or 0 for %d", most, otherwise), "%d", *n)
	}
	if *n == 0 {
		*n = otherwise
	}
	return nil
}

// underStep names the step that a mistake is in.
func underStep(i, steps int, err error) error {
	var bad *InvalidError
	if !errors.As(err, &bad) {
		return err
	}
	switch {
	case bad.Field == "vertex.id":
		return &InvalidError{Field: "start.id", Limit: bad.Limit, Msg: bad.Msg}
	case i == 0 && bad.Field == "vertex.type":
		return &InvalidError{Field: "start.type", Limit: bad.Limit, Msg: bad.Msg}
	case bad.Field == "vertex.type":
		return &InvalidError{Field: fmt.Sprintf("steps[%d].type", min(i, steps-1)), Limit: bad.Limit, Msg: fmt.Sprintf("hop %d: %s", i+1, bad.Msg)}
	}
	return &InvalidError{Field: fmt.Sprintf("steps[%d].%s", min(i, steps-1), bad.Field), Limit: bad.Limit, Msg: bad.Msg}
}

// peerType is the type of the vertices at the other end of lists.
func (s *Schema) peerType(t EdgeType, d Direction) VertexType {
	def, _ := s.EdgeTypeByID(t)
	if d == In {
		return def.From
	}
	return def.To
}

// walk is a traversal under way.
type walk struct {
	of       lister
	timeline uint64
	ro       ReadOptions
	q        TraverseQuery
	tell     func([]Reached) error
	schema   *Schema

	seen map[Vertex]struct{} // the start, and what was told
	ends []uint64            // what the last hop reached, all of type at
	at   VertexType

	cuts    []Cut
	edges   int
	reached int
	tokens  []string
	ended   bool
}

// strand is a list that a hop reads, from its place on.
type strand struct {
	id   uint64
	from *edgelist.Key
	left int // edges that the step allows yet
}

// hop goes one step from all ends. Lists are read in rounds: first the beginning of each,
// so that a total limit is not used up by the first of them.
func (w *walk) hop(ctx context.Context, depth int) error {
	step := w.q.Steps[min(depth, len(w.q.Steps))-1]
	from := w.at
	w.at = w.schema.peerType(step.Type, step.Dir)
	queue := make([]strand, len(w.ends))
	for i, id := range w.ends {
		queue[i] = strand{id: id, left: step.Limit}
	}
	w.ends = nil
	for len(queue) > 0 && !w.ended {
		if w.reached == w.q.Limit { // whether there are more would be known by reading them
			w.end(CutByLimit, depth, len(queue))
			break
		}
		n, reads := w.ask(step, from, queue)
		if n == 0 {
			w.end(CutByMaxEdges, depth, len(queue))
			break
		}
		runs := make([]ListRun, n)
		token, err := w.of.ReadLists(ctx, w.ro, reads, runs)
		if err != nil {
			return err
		}
		if w.tokens = append(w.tokens, token); len(w.tokens) > maxTokenSlots {
			if token, err = mergeTokens(w.timeline, w.tokens); err != nil {
				return err
			}
			w.tokens = append(w.tokens[:0], token)
		}
		asked := queue[:n]
		queue = queue[n:]
		if queue, err = w.take(depth, from, asked, runs, queue); err != nil {
			return err
		}
	}
	return nil
}

// First and later runs of a list.
const (
	firstRun = 256
	laterRun = 4096
)

// ask makes a round of reads for the first strands of a queue.
func (w *walk) ask(step Step, from VertexType, queue []strand) (n int, reads []ListRead) {
	// A round reads no more than the limits let it use: of edges read at once some may lead
	// to what was seen already.
	left := min(MaxRunEdges, w.q.MaxEdges-w.edges, max(firstRun, 4*(w.q.Limit-w.reached)))
	for n < len(queue) && n < MaxBatch && left > 0 {
		s := &queue[n]
		run := firstRun
		if s.from != nil {
			run = laterRun
		}
		run = min(run, s.left, left)
		reads = append(reads, ListRead{
			List:  ListKey{Vertex{from, s.id}, step.Type, step.Dir},
			Order: step.Order, Window: step.Window, From: s.from, Limit: run,
		})
		left -= run
		n++
	}
	return n, reads
}

// take takes what a round has read, tells what is new in it, and returns the queue with
// the strands that are to be read on.
func (w *walk) take(depth int, from VertexType, asked []strand, runs []ListRun, queue []strand) ([]strand, error) {
	var told []Reached
	for i := range asked {
		s, run := asked[i], &runs[i]
		if !run.Done {
			queue = append(queue, s)
			continue
		}
		w.edges += len(run.Peers)
		for _, peer := range run.Peers {
			x := Vertex{w.at, peer}
			if _, ok := w.seen[x]; ok {
				continue
			}
			if w.reached == w.q.Limit {
				w.end(CutByLimit, depth, len(asked)-i+len(queue))
				return nil, w.tellAll(told)
			}
			w.seen[x] = struct{}{}
			w.ends = append(w.ends, peer)
			w.reached++
			told = append(told, Reached{Vertex: x, Depth: depth, From: Vertex{from, s.id}})
		}
		if !run.More {
			continue
		}
		if s.left -= len(run.Peers); s.left == 0 {
			w.cut(CutByStep, depth, 1)
			continue
		}
		if n := len(run.Peers); n > 0 {
			s.from = &edgelist.Key{Time: run.Times[n-1], ID: run.Peers[n-1]}
		}
		queue = append(queue, s)
	}
	return queue, w.tellAll(told)
}

func (w *walk) tellAll(told []Reached) error {
	if len(told) == 0 {
		return nil
	}
	return w.tell(told)
}

func (w *walk) cut(by CutBy, depth, vertices int) {
	if n := len(w.cuts); n > 0 && w.cuts[n-1].By == by && w.cuts[n-1].Depth == depth {
		w.cuts[n-1].Vertices += vertices
		return
	}
	w.cuts = append(w.cuts, Cut{By: by, Depth: depth, Vertices: vertices})
}

func (w *walk) end(by CutBy, depth, vertices int) {
	w.cut(by, depth, vertices)
	w.ended = true
}
