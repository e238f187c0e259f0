package graph

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lianadb/liana/kv/shard"
)

// LastChanges tells how far slots of a shard that this node leads have come: in at, one for
// each of slots, the position of its last change, or a later one. It is as a linearizable
// read: what was acknowledged before the call lies at or before these positions.
func (g *Graph) LastChanges(ctx context.Context, id uint32, slots []Slot, at []uint64) (timeline uint64, err error) {
	mb, err := g.memberAt(id)
	if err != nil {
		return 0, err
	}
	for _, s := range slots {
		if s >= NumSlots {
			return 0, invalid("slots", "slots", "%d", s)
		}
		if err := mb.machine.atHand(ctx, s); err != nil {
			return 0, err
		}
	}
	if err := mb.confirm(ctx); err != nil {
		return 0, g.moved(id, err)
	}
	v, err := mb.machine.acquire()
	if err != nil {
		return 0, fmt.Errorf("shard %d: %w", id, err)
	}
	defer v.release()
	for i, s := range slots {
		if !v.own.owns(s) {
			return 0, v.disowned(s, g.moved(id, fmt.Errorf("shard %d: slot %d: %w", id, s, shard.ErrNotLeader)))
		}
		at[i] = mb.machine.last[s].Load()
	}
	return v.timeline, nil
}

// Led returns the claims of the shards that this node leads.
func (g *Graph) Led() []Claim {
	var out []Claim
	for _, mb := range g.replicas() {
		if !mb.machine.leads.Load() {
			continue
		}
		v, err := mb.machine.acquire()
		if err != nil {
			continue
		}
		if v.own != nil && v.schema != nil {
			out = append(out, *v.own)
		}
		v.release()
	}
	return out
}

// LastChanges asks the leaders of slots how far these have come (see Graph.LastChanges). It
// calls tell for each slot whose leader answers before ctx ends, from several goroutines;
// a shard that does not answer holds up no other.
func (r *Router) LastChanges(ctx context.Context, slots []Slot, tell func(s Slot, timeline, pos uint64)) error {
	of := map[uint32][]Slot{}
	for _, s := range slots {
		id := r.cfg.Local.shardOf(s)
		of[id] = append(of[id], s)
	}
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for id, part := range of { // any order: each is asked for itself
		wg.Go(func() {
			if err := r.lastChangesOf(ctx, id, part, tell); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// lastChangesOf asks for slots of one shard. Where some have moved on, all are asked for
// anew.
func (r *Router) lastChangesOf(ctx context.Context, id uint32, slots []Slot, tell func(s Slot, timeline, pos uint64)) error {
	begun := time.Now()
	for attempt := 0; ; attempt++ {
		node := r.choose(id, attempt, toReadLeader)
		at := make([]uint64, len(slots))
		timeline, err := r.lastChangesAt(ctx, node, id, slots, at)
		r.learn(id, node, err)
		if err == nil {
			for i, s := range slots {
				tell(s, timeline, at[i])
			}
			return nil
		}
		if !again(err, toReadLeader) || !r.pause(ctx, begun, attempt) {
			return err
		}
		for _, s := range slots {
			if r.cfg.Local.shardOf(s) != id {
				return r.LastChanges(ctx, slots, tell)
			}
		}
	}
}

func (r *Router) lastChangesAt(ctx context.Context, node string, id uint32, slots []Slot, at []uint64) (timeline uint64, err error) {
	s, err := r.service(node)
	if err != nil {
		return 0, err
	}
	err = attemptOf(ctx, toReadLeader, func(ctx context.Context) (err error) {
		timeline, err = s.LastChanges(ctx, id, slots, at)
		return err
	})
	return timeline, err
}

// Excerpts is Graph.Excerpts over the cluster, by the leaders.
func (r *Router) Excerpts(ctx context.Context, wants []ExcerptWant, got []Excerpt) error {
	if err := checkExcerpts(wants); err != nil {
		return err
	}
	shardOf := func(i int) uint32 { return r.cfg.Local.shardOf(SlotOf(wants[i].List.Vertex)) }
	_, _, err := r.batch(ctx, len(wants), toReadLeader, shardOf, func(ctx context.Context, svc Service, pick []int) (string, []int, error) {
		found := make([]Excerpt, len(pick))
		err := svc.Excerpts(ctx, pickOf(wants, pick), found)
		for j, i := range pick {
			got[i] = found[j]
		}
		return "", nil, err
	})
	return err
}
