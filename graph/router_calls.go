package graph

import (
	"context"
	"fmt"

	"github.com/lianadb/liana/edgelist"
)

// Mutate is Graph.Mutate over the cluster. A mutation whose shard finds no leader
// before the deadline is Failed, one on a connection that is cut Unknown.
func (r *Router) Mutate(ctx context.Context, ms []Mutation, wait Wait) ([]MutationResult, string, error) {
	g := r.cfg.Local
	s := g.Schema()
	if err := g.normalizeAll(s, ms); err != nil {
		return nil, "", err
	}
	refused, err := r.refusals(ctx, s, ms)
	if err != nil {
		return nil, "", err
	}
	if len(refused) > 0 {
		return r.mutateRest(ctx, ms, wait, refused)
	}
	return r.mutate(ctx, s, ms, wait)
}

// mutateRest is Mutate without the mutations that are refused.
func (r *Router) mutateRest(ctx context.Context, ms []Mutation, wait Wait, refused map[int]error) ([]MutationResult, string, error) {
	results := make([]MutationResult, len(ms))
	var rest []Mutation
	var places []int
	for i := range ms {
		if err := refused[i]; err != nil {
			results[i] = MutationResult{Outcome: Failed, Err: err}
			continue
		}
		rest, places = append(rest, ms[i]), append(places, i)
	}
	if len(rest) == 0 {
		return results, (&Token{Timeline: r.cfg.Local.cfg.Timeline}).Encode(), nil
	}
	done, token, err := r.mutate(ctx, r.cfg.Local.Schema(), rest, wait)
	if err != nil {
		return nil, "", err
	}
	for j, i := range places {
		results[i] = done[j]
	}
	return results, token, nil
}

// mutate spreads mutations over the nodes that lead their sources' shards.
func (r *Router) mutate(ctx context.Context, s *Schema, ms []Mutation, wait Wait) ([]MutationResult, string, error) {
	g := r.cfg.Local
	results := make([]MutationResult, len(ms))
	shardOf := func(i int) uint32 {
		def, _ := s.EdgeTypeByID(ms[i].Type)
		return g.shardOf(SlotOf(def.fact(ms[i].Src).Vertex))
	}
	token, left, err := r.batch(ctx, len(ms), toWrite, shardOf, func(ctx context.Context, svc Service, pick []int) (string, []int, error) {
		res, token, err := svc.Mutate(ctx, pickOf(ms, pick), wait)
		if err != nil {
			return "", nil, refuse(err, results, pick)
		}
		var retry []int
		for j, i := range pick {
			results[i] = res[j]
			if res[j].Outcome == Failed && again(res[j].Err, toWrite) {
				retry = append(retry, i)
			}
		}
		return token, retry, nil
	})
	if len(left) == 0 && err != nil || len(left) == len(ms) && err != nil {
		return nil, "", err
	}
	for _, i := range left {
		if results[i].Outcome == 0 {
			results[i] = MutationResult{Outcome: Failed, Err: err}
		}
	}
	return results, token, nil
}

// refuse takes the error of a node's whole share. It is the error of the call where
// the call is made again or was this node's alone, else that of its mutations.
func refuse(err error, results []MutationResult, pick []int) error {
	if again(err, toWrite) || len(pick) == len(results) && !unknown(err) {
		return err
	}
	out := Failed
	if unknown(err) {
		out = Unknown
	}
	for _, i := range pick {
		results[i] = MutationResult{Outcome: out, Err: err}
	}
	return nil
}

// HasEdges is Graph.HasEdges over the cluster.
func (r *Router) HasEdges(ctx context.Context, ro ReadOptions, t EdgeType, srcs, dsts []uint64, exists []bool) (string, error) {
	g := r.cfg.Local
	if r.alone() {
		token, err := g.HasEdges(ctx, ro, t, srcs, dsts, exists)
		if !again(err, toReadLeader) {
			return token, err
		}
	}
	def, ok := g.Schema().EdgeTypeByID(t)
	if !ok {
		return "", invalid("type", "an edge type of the schema", "edge type %d", t)
	}
	if err := checkPairs(srcs, dsts); err != nil {
		return "", err
	}
	src := func(i int) uint64 {
		if len(srcs) == 1 {
			return srcs[0]
		}
		return srcs[i]
	}
	shardOf := func(i int) uint32 {
		id := src(i)
		if def.Symmetric {
			id = min(id, dsts[i])
		}
		return g.shardOf(SlotOf(def.fact(id).Vertex))
	}
	token, _, err := r.batch(ctx, len(dsts), purposeOf(ro), shardOf, func(ctx context.Context, svc Service, pick []int) (string, []int, error) {
		from := make([]uint64, len(pick))
		for j, i := range pick {
			from[j] = src(i)
		}
		found := make([]bool, len(pick))
		token, err := svc.HasEdges(ctx, ro, t, from, pickOf(dsts, pick), found)
		for j, i := range pick {
			exists[i] = found[j]
		}
		return token, nil, err
	})
	return token, err
}

// GetEdge is Graph.GetEdge over the cluster.
func (r *Router) GetEdge(ctx context.Context, ro ReadOptions, t EdgeType, src, dst uint64) (e edgelist.Edge, token string, err error) {
	g := r.cfg.Local
	def, ok := g.Schema().EdgeTypeByID(t)
	if !ok {
		return e, "", invalid("type", "an edge type of the schema", "edge type %d", t)
	}
	at := src
	if def.Symmetric {
		at = min(src, dst)
	}
	err = r.one(ctx, SlotOf(def.fact(at).Vertex), purposeOf(ro), func(ctx context.Context, s Service) error {
		e, token, err = s.GetEdge(ctx, ro, t, src, dst)
		return err
	})
	return e, token, err
}

// CountEdges is Graph.CountEdges over the cluster.
func (r *Router) CountEdges(ctx context.Context, ro ReadOptions, lists []ListKey, w Window, counts []uint64) (string, error) {
	if err := checkBatch("lists", len(lists)); err != nil {
		return "", err
	}
	if err := checkWindow(w); err != nil {
		return "", err
	}
	g := r.cfg.Local
	s, resolved := g.Schema(), make([]ListKey, len(lists))
	for i, l := range lists {
		var err error
		if resolved[i], err = resolveList(s, l); err != nil {
			return "", err
		}
	}
	shardOf := func(i int) uint32 { return g.shardOf(SlotOf(resolved[i].Vertex)) }
	token, _, err := r.batch(ctx, len(lists), purposeOf(ro), shardOf, func(ctx context.Context, svc Service, pick []int) (string, []int, error) {
		found := make([]uint64, len(pick))
		token, err := svc.CountEdges(ctx, ro, pickOf(lists, pick), w, found)
		for j, i := range pick {
			counts[i] = found[j]
		}
		return token, nil, err
	})
	return token, err
}

// ListEdges is Graph.ListEdges over the cluster.
func (r *Router) ListEdges(ctx context.Context, ro ReadOptions, q ListQuery) (page ListPage, err error) {
	l, err := resolveList(r.cfg.Local.Schema(), q.List)
	if err != nil {
		return page, err
	}
	if err := checkQuery(&q); err != nil {
		return page, err
	}
	err = r.one(ctx, SlotOf(l.Vertex), purposeOf(ro), func(ctx context.Context, s Service) error {
		page, err = s.ListEdges(ctx, ro, q)
		return err
	})
	return page, err
}

// IncrBy is Graph.IncrBy over the cluster. With a requestID an increment with an
// unknown outcome is made again: it counts once (RULES B5).
func (r *Router) IncrBy(ctx context.Context, ins []Increment, requestID string) ([]IncrResult, string, error) {
	g := r.cfg.Local
	if err := g.checkIncrements(ins, requestID); err != nil {
		return nil, "", err
	}
	repeat := func(err error) bool {
		return again(err, toWrite) || requestID != "" && unknown(err)
	}
	results := make([]IncrResult, len(ins))
	shardOf := func(i int) uint32 { return g.shardOf(ins[i].Counter.Slot()) }
	token, left, err := r.batch(ctx, len(ins), toWrite, shardOf, func(ctx context.Context, svc Service, pick []int) (string, []int, error) {
		ordinals := make([]uint32, len(pick))
		for j, i := range pick {
			ordinals[j] = uint32(i)
		}
		res, token, err := svc.IncrPart(ctx, pickOf(ins, pick), ordinals, requestID)
		if err != nil && !repeat(err) && len(pick) == len(ins) {
			return "", nil, err
		}
		var retry []int
		for j, i := range pick {
			results[i] = IncrResult{Err: err}
			if err == nil {
				results[i] = res[j]
			}
			if repeat(results[i].Err) {
				retry = append(retry, i)
			}
		}
		return token, retry, nil
	})
	if len(left) == 0 && err != nil {
		return nil, "", err
	}
	for _, i := range left {
		if results[i].Err == nil {
			results[i].Err = err // no node could be asked
		}
	}
	return results, token, nil
}

// GetCounters is Graph.GetCounters over the cluster.
func (r *Router) GetCounters(ctx context.Context, ro ReadOptions, refs []CounterRef) ([]CounterValue, string, error) {
	if err := checkBatch("counters", len(refs)); err != nil {
		return nil, "", err
	}
	g := r.cfg.Local
	s := g.Schema()
	for i := range refs {
		if err := g.checkCounter(s, fmt.Sprintf("counters[%d]", i), &refs[i], false); err != nil {
			return nil, "", err
		}
	}
	out := make([]CounterValue, len(refs))
	shardOf := func(i int) uint32 { return g.shardOf(refs[i].Slot()) }
	token, _, err := r.batch(ctx, len(refs), purposeOf(ro), shardOf, func(ctx context.Context, svc Service, pick []int) (string, []int, error) {
		found, token, err := svc.GetCounters(ctx, ro, pickOf(refs, pick))
		if err != nil {
			return "", nil, err
		}
		for j, i := range pick {
			out[i] = found[j]
		}
		return token, nil, nil
	})
	if err != nil { // a read without all answers is none
		return nil, "", err
	}
	return out, token, nil
}

// SetCounter is Graph.SetCounter over the cluster.
func (r *Router) SetCounter(ctx context.Context, c CounterRef, value, expireAt int64) (token string, err error) {
	err = r.one(ctx, c.Slot(), toWrite, func(ctx context.Context, s Service) error {
		token, err = s.SetCounter(ctx, c, value, expireAt)
		return err
	})
	return token, err
}

// DeleteCounter is Graph.DeleteCounter over the cluster.
func (r *Router) DeleteCounter(ctx context.Context, c CounterRef) (existed bool, token string, err error) {
	err = r.one(ctx, c.Slot(), toWrite, func(ctx context.Context, s Service) error {
		existed, token, err = s.DeleteCounter(ctx, c)
		return err
	})
	return existed, token, err
}
