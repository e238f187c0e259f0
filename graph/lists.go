package graph

import (
	"context"
	"fmt"
	"slices"

	"github.com/lianadb/liana/edgelist"
)

// ListRead asks for a run of edges of one list, without properties.
type ListRead struct {
	List   ListKey
	Order  Order
	Window Window
	From   *edgelist.Key // it begins behind this one; nil: at the beginning
	Limit  int           // edges, 1 to MaxRunEdges
}

// ListRun is the answer to a ListRead.
type ListRun struct {
	Peers []uint64
	Times []int64
	// More: the list goes on behind the run, which ended at the read's limit or at
	// that of the call.
	More bool
	// Done is false where the call ended before it came to this read.
	Done bool
}

// FoundPeers tells which of the peers that were looked for a list has: their indexes,
// ascending, and the times of their edges.
type FoundPeers struct {
	At    []uint32
	Times []int64
}

// lister reads many lists: a router those of the cluster, a graph those of this node.
type lister interface {
	CountEdges(ctx context.Context, ro ReadOptions, lists []ListKey, w Window, counts []uint64) (string, error)
	ReadLists(ctx context.Context, ro ReadOptions, reads []ListRead, runs []ListRun) (string, error)
	FindPeers(ctx context.Context, ro ReadOptions, lists []ListKey, peers []uint64, found []FoundPeers) (string, error)
}

// Limits of reads of many lists.
const (
	MaxRunEdges = 1 << 16 // edges in the answer of a call
	MaxLookups  = 1 << 18 // lists × peers of a call
)

// looks is how many look-ups a read makes between two looks at its context.
const looks = 512

// ReadLists fills runs, one for each of reads. The answer is bounded by MaxRunEdges: reads
// past that are not done, and are asked for anew.
func (g *Graph) ReadLists(ctx context.Context, ro ReadOptions, reads []ListRead, runs []ListRun) (string, error) {
	if err := checkReads(reads); err != nil {
		return "", err
	}
	r, err := g.newReading(ro, "")
	if err != nil {
		return "", err
	}
	defer r.close()
	s, left := g.Schema(), MaxRunEdges
	for i := range reads {
		if left == 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		l, err := resolveList(s, reads[i].List)
		if err != nil {
			return "", err
		}
		list, err := r.list(ctx, l)
		if err != nil {
			return "", err
		}
		if err := runs[i].read(ctx, list, &reads[i], left); err != nil {
			return "", r.faultOf(err, l)
		}
		left -= len(runs[i].Peers)
	}
	return r.out.Encode(), nil
}

func checkReads(reads []ListRead) error {
	if err := checkBatch("reads", len(reads)); err != nil {
		return err
	}
	for i := range reads {
		q := &reads[i]
		if q.Limit < 1 || q.Limit > MaxRunEdges {
			return invalid(fmt.Sprintf("reads[%d].limit", i), fmt.Sprintf("1 to %d", MaxRunEdges), "%d", q.Limit)
		}
		if err := checkOrder(q.Order, q.Window); err != nil {
			return err
		}
	}
	return nil
}

// checkOrder refuses orders that there are not, and windows that an order cannot have.
func checkOrder(o Order, w Window) error {
	if o > IDDescending {
		return invalid("order", "NEWEST_FIRST, OLDEST_FIRST, ID_ASCENDING or ID_DESCENDING", "%d", o)
	}
	if o >= IDAscending && !w.IsAll() {
		return invalid("window", "none with an order by id", "a window of time")
	}
	return checkWindow(w)
}

// read fills the run with at most most edges of a list.
func (run *ListRun) read(ctx context.Context, list *edgelist.List, q *ListRead, most int) error {
	run.Done = true
	if q.Window.Since == q.Window.Until {
		return nil // no time lies in it
	}
	most = min(most, q.Limit)
	n := min(uint64(most), list.Count())
	run.Peers, run.Times = make([]uint64, 0, n), make([]int64, 0, n)
	eq := edgelist.Query{Descending: q.Order == NewestFirst || q.Order == IDDescending, From: q.From, Bare: true}
	if q.Order < IDAscending {
		eq.Order = edgelist.ByTime
	}
	if !q.Window.IsAll() {
		eq.Since, eq.Until = q.Window.Since, q.Window.Until
	}
	it := list.Iter(eq)
	for it.Next() {
		if len(run.Peers) == most {
			run.More = true
			break
		}
		if len(run.Peers)%looks == looks-1 && ctx.Err() != nil {
			return ctx.Err()
		}
		e := it.Edge()
		run.Peers, run.Times = append(run.Peers, e.Peer), append(run.Times, e.Time)
	}
	return it.Err()
}

// FindPeers looks for peers, which ascend, in each of lists, and fills found.
func (g *Graph) FindPeers(ctx context.Context, ro ReadOptions, lists []ListKey, peers []uint64, found []FoundPeers) (string, error) {
	if err := checkLookups(lists, peers); err != nil {
		return "", err
	}
	return g.eachList(ctx, ro, lists, func(i int, list *edgelist.List) error { return found[i].find(ctx, list, peers) })
}

func checkLookups(lists []ListKey, peers []uint64) error {
	if err := checkBatch("lists", len(lists)); err != nil {
		return err
	}
	if len(lists)*len(peers) > MaxLookups || len(peers) > MaxRunEdges {
		return invalid("peers", fmt.Sprintf("at most %d with %d lists", MaxLookups/len(lists), len(lists)), "%d", len(peers))
	}
	if !slices.IsSorted(peers) {
		return invalid("peers", "ascending", "another order")
	}
	return nil
}

func (f *FoundPeers) find(ctx context.Context, list *edgelist.List, peers []uint64) error {
	if list.Count() == 0 {
		return ctx.Err()
	}
	finder := list.Finder()
	for i, peer := range peers {
		if i%looks == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		t, ok, err := finder.Time(peer)
		if err != nil {
			return err
		}
		if ok {
			f.At, f.Times = append(f.At, uint32(i)), append(f.Times, t)
		}
	}
	return nil
}

// ReadLists is Graph.ReadLists over the cluster: one call for each node that is asked.
func (r *Router) ReadLists(ctx context.Context, ro ReadOptions, reads []ListRead, runs []ListRun) (string, error) {
	if err := checkReads(reads); err != nil {
		return "", err
	}
	shardOf := func(i int) uint32 { return r.cfg.Local.shardOf(SlotOf(reads[i].List.Vertex)) }
	token, left, err := r.batch(ctx, len(reads), purposeOf(ro), shardOf, func(ctx context.Context, svc Service, pick []int) (string, []int, error) {
		got := make([]ListRun, len(pick))
		token, err := svc.ReadLists(ctx, ro, pickOf(reads, pick), got)
		if err != nil {
			return "", nil, err
		}
		for j, i := range pick {
			runs[i] = got[j]
		}
		return token, nil, nil
	})
	return token, unanswered(left, err)
}

// unanswered is the error of a batch of which items were left.
func unanswered(left []int, err error) error {
	if err == nil && len(left) > 0 {
		return ErrUnreachable
	}
	return err
}

// FindPeers is Graph.FindPeers over the cluster.
func (r *Router) FindPeers(ctx context.Context, ro ReadOptions, lists []ListKey, peers []uint64, found []FoundPeers) (string, error) {
	if err := checkLookups(lists, peers); err != nil {
		return "", err
	}
	shardOf := func(i int) uint32 { return r.cfg.Local.shardOf(SlotOf(lists[i].Vertex)) }
	token, left, err := r.batch(ctx, len(lists), purposeOf(ro), shardOf, func(ctx context.Context, svc Service, pick []int) (string, []int, error) {
		got := make([]FoundPeers, len(pick))
		token, err := svc.FindPeers(ctx, ro, pickOf(lists, pick), peers, got)
		if err != nil {
			return "", nil, err
		}
		for j, i := range pick {
			found[i] = got[j]
		}
		return token, nil, nil
	})
	return token, unanswered(left, err)
}
