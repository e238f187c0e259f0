package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
)

// fake is a Backend in a map: enough of the domain to see what a request became.
type fake struct {
	schema *graph.Schema

	mu       sync.Mutex
	edges    map[edgeKey]graph.Mutation
	counters map[graph.CounterRef]graph.CounterValue
	calls    int

	// Set by a test; each may be nil.
	onMutate func(ctx context.Context, ms []graph.Mutation) ([]graph.MutationResult, error)
	onRead   func(ctx context.Context) error // before every read
	onCheck  func(ctx context.Context, progress func(graph.CheckProgress)) (graph.CheckReport, error)
	onEdit   func([]graph.CounterEdit) ([]graph.EditResult, error)
	notReady error
}

type edgeKey struct {
	t        graph.EdgeType
	src, dst uint64
}

func newFake() *fake {
	return &fake{
		schema: graph.DefaultSchema(), edges: map[edgeKey]graph.Mutation{},
		counters: map[graph.CounterRef]graph.CounterValue{},
	}
}

// hook sets a field of the fake while calls may be running.
func (f *fake) hook(set func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(f)
}

func (f *fake) token() string {
	f.calls++
	return "token-" + strconv.Itoa(f.calls)
}

func (f *fake) Mutate(ctx context.Context, ms []graph.Mutation, _ graph.Wait) ([]graph.MutationResult, string, error) {
	f.mu.Lock()
	hook := f.onMutate
	f.mu.Unlock()
	for i, m := range ms {
		err := cmp.Or(checkID(fmt.Sprintf("mutations[%d].src_id", i), m.Src), checkID(fmt.Sprintf("mutations[%d].dst_id", i), m.Dst))
		if err == nil && m.Time < 0 {
			err = &graph.InvalidError{Field: fmt.Sprintf("mutations[%d].time", i), Limit: "0 or more", Msg: "before 1970"}
		}
		if err != nil {
			return nil, "", err
		}
	}
	if hook != nil {
		res, err := hook(ctx, ms)
		return res, "token-hook", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	res := make([]graph.MutationResult, len(ms))
	for i, m := range ms {
		res[i] = f.mutate(m)
	}
	return res, f.token(), nil
}

func (f *fake) mutate(m graph.Mutation) graph.MutationResult {
	k := edgeKey{m.Type, m.Src, m.Dst}
	_, there := f.edges[k]
	switch {
	case m.Op == graph.OpUpdate && !there:
		return graph.MutationResult{Outcome: graph.Missing}
	case there == (m.Op == graph.OpAdd):
		return graph.MutationResult{Outcome: graph.Unchanged}
	}
	if m.Op == graph.OpDelete {
		delete(f.edges, k)
	} else {
		f.edges[k] = m
	}
	return graph.MutationResult{Outcome: graph.Changed, Changed: true}
}

func (f *fake) read(ctx context.Context, opts graph.ReadOptions) error {
	f.mu.Lock()
	hook := f.onRead
	f.mu.Unlock()
	if opts.Token == "bad" {
		return &graph.InvalidError{Field: "token", Limit: "as an earlier answer gave it", Msg: "not a token"}
	}
	if hook == nil {
		return nil
	}
	return hook(ctx)
}

func (f *fake) HasEdges(ctx context.Context, opts graph.ReadOptions, t graph.EdgeType, srcs, dsts []uint64, exists []bool) (string, error) {
	if err := f.read(ctx, opts); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, dst := range dsts {
		if err := checkID(fmt.Sprintf("dst_ids[%d]", i), dst); err != nil {
			return "", err
		}
		_, exists[i] = f.edges[edgeKey{t, srcs[min(i, len(srcs)-1)], dst}]
	}
	return f.token(), nil
}

func (f *fake) GetEdge(ctx context.Context, opts graph.ReadOptions, t graph.EdgeType, src, dst uint64) (edgelist.Edge, string, error) {
	if err := f.read(ctx, opts); err != nil {
		return edgelist.Edge{}, "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.edges[edgeKey{t, src, dst}]
	if !ok {
		return edgelist.Edge{}, "", fmt.Errorf("%w: %d", graph.ErrNoEdge, dst)
	}
	return edgelist.Edge{Peer: dst, Time: m.Time, Props: m.Props}, f.token(), nil
}

func (f *fake) list(l graph.ListKey, w graph.Window) []edgelist.Edge {
	var out []edgelist.Edge
	for k, m := range f.edges {
		owner, peer := k.src, k.dst
		if l.Dir == graph.In {
			owner, peer = peer, owner
		}
		if k.t == l.Type && owner == l.Vertex.ID && m.Time >= w.Since && m.Time < w.Until {
			out = append(out, edgelist.Edge{Peer: peer, Time: m.Time, Props: m.Props})
		}
	}
	slices.SortFunc(out, func(a, b edgelist.Edge) int { return cmp.Compare(a.Peer, b.Peer) })
	return out
}

func (f *fake) CountEdges(ctx context.Context, opts graph.ReadOptions, lists []graph.ListKey, w graph.Window, counts []uint64) (string, error) {
	if err := f.read(ctx, opts); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, l := range lists {
		if err := checkID("vertex.id", l.Vertex.ID); err != nil {
			return "", err
		}
		counts[i] = uint64(len(f.list(l, w)))
	}
	return f.token(), nil
}

func (f *fake) ListEdges(ctx context.Context, opts graph.ReadOptions, q graph.ListQuery) (graph.ListPage, error) {
	if err := f.read(ctx, opts); err != nil {
		return graph.ListPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	from := 0
	if q.PageToken != "" {
		var err error
		if from, err = strconv.Atoi(q.PageToken); err != nil {
			return graph.ListPage{}, &graph.InvalidError{Field: "page_token", Limit: "as an earlier page gave it", Msg: "malformed"}
		}
	}
	all := f.list(q.List, q.Window)
	from = min(from+int(min(q.Skip, math.MaxInt32)), len(all))
	end, size := from, 0
	for end < len(all) && end-from < q.PageSize && size < graph.MaxPageBytes {
		size += 16 + len(all[end].Props)
		end++
	}
	page := graph.ListPage{Edges: all[from:end], Token: f.token()}
	if end < len(all) {
		page.Next = strconv.Itoa(end)
	}
	return page, nil
}

func (f *fake) IncrBy(_ context.Context, incs []graph.Increment, requestID string) ([]graph.IncrResult, string, error) {
	if len(requestID) > graph.MaxRequestID {
		return nil, "", &graph.InvalidError{Field: "request_id", Limit: "1 to 64 bytes", Msg: "too long"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	res := make([]graph.IncrResult, len(incs))
	for i, inc := range incs {
		c := f.counters[inc.Counter]
		sum := c.Value + inc.Delta
		switch {
		case (inc.Delta > 0) != (sum > c.Value) && inc.Delta != 0:
			res[i] = graph.IncrResult{Value: c.Value, Err: graph.ErrOverflow}
			continue
		case inc.HasMax && sum > inc.Max, inc.HasMin && sum < inc.Min:
			res[i] = graph.IncrResult{Value: c.Value}
			continue
		}
		f.counters[inc.Counter] = graph.CounterValue{Counter: inc.Counter, Value: sum, Exists: true, ExpireAt: inc.ExpireAt}
		res[i] = graph.IncrResult{Value: sum, Changed: true}
	}
	return res, f.token(), nil
}

func (f *fake) GetCounters(ctx context.Context, opts graph.ReadOptions, refs []graph.CounterRef) ([]graph.CounterValue, string, error) {
	if err := f.read(ctx, opts); err != nil {
		return nil, "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]graph.CounterValue, len(refs))
	for i, r := range refs {
		out[i] = f.counters[r]
	}
	return out, f.token(), nil
}

func (f *fake) SetCounter(_ context.Context, ref graph.CounterRef, value, expireAt int64) (string, error) {
	if len(ref.Key) > graph.MaxCounterKey {
		return "", &graph.InvalidError{Field: "counter.key", Limit: "1 to 512 bytes", Msg: "too long"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters[ref] = graph.CounterValue{Counter: ref, Value: value, Exists: true, ExpireAt: expireAt}
	return f.token(), nil
}

func (f *fake) DeleteCounter(_ context.Context, ref graph.CounterRef) (bool, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, there := f.counters[ref]
	delete(f.counters, ref)
	return there, f.token(), nil
}

func (f *fake) EditCounters(_ context.Context, es []graph.CounterEdit) ([]graph.EditResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onEdit != nil {
		return f.onEdit(es)
	}
	out := make([]graph.EditResult, len(es))
	for i, e := range es {
		v := f.counters[e.Counter]
		out[i].Before = counter.Counter{Value: v.Value, Exists: v.Exists}
		if e.Kind == counter.Add {
			v = graph.CounterValue{Counter: e.Counter, Value: v.Value + e.Value, Exists: true}
			f.counters[e.Counter] = v
		}
		out[i].Value, out[i].Outcome, out[i].Changed = v.Value, counter.Applied, e.Kind == counter.Add
	}
	return out, nil
}

func (f *fake) Timeline() uint64 { return 7 }

func (f *fake) Schema() *graph.Schema { return f.schema }

func (f *fake) Status() []graph.ShardStatus {
	return []graph.ShardStatus{{ID: 1, LastSlot: 2047, Leader: true, Applied: 7}, {ID: 2, FirstSlot: 2048, LastSlot: 4095, Fault: "planted\ngoroutine 7 [running]: /srv/secret.go"}}
}

func (f *fake) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.notReady
}

func (f *fake) Check(ctx context.Context, progress func(graph.CheckProgress)) (graph.CheckReport, error) {
	f.mu.Lock()
	hook := f.onCheck
	f.mu.Unlock()
	if hook != nil {
		return hook(ctx, progress)
	}
	progress(graph.CheckProgress{Lists: 1, ListsTotal: 2, Edges: 3})
	return graph.CheckReport{Lists: 2, Edges: 6}, nil
}

func (f *fake) Export(_ context.Context, t graph.EdgeType, each func([]graph.ExportedEdge) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []graph.ExportedEdge
	for k, m := range f.edges {
		if t == 0 || t == k.t {
			out = append(out, graph.ExportedEdge{Type: k.t, Src: k.src, Dst: k.dst, Time: m.Time, Props: m.Props})
		}
	}
	return each(out)
}

var errPlanted = errors.New("planted: /var/lib/liana/secret")
