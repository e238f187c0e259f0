package graph

import (
	"context"
	"fmt"
)

// VertexJob is Graph.VertexJob over the cluster.
func (r *Router) VertexJob(ctx context.Context, op VertexOp, v Vertex) (job VertexJob, err error) {
	if err := checkVertex(r.cfg.Local.Schema(), op, v); err != nil {
		return job, err
	}
	p := toWrite
	if op == VertexLook {
		p = toReadLeader
	}
	err = r.one(ctx, SlotOf(v), p, func(ctx context.Context, s Service) error {
		job, err = s.VertexJob(ctx, op, v)
		return err
	})
	return job, err
}

// Jobs returns the jobs at work in all shards of the cluster that have any.
func (r *Router) Jobs(ctx context.Context) (all []ShardJobs, err error) {
	for _, c := range *r.cfg.Local.owners.Load() {
		var jobs ShardJobs
		err = r.one(ctx, c.First, toReadLeader, func(ctx context.Context, s Service) error {
			jobs, err = s.ShardJobs(ctx, r.cfg.Local.shardOf(c.First))
			return err
		})
		if err != nil {
			return nil, err
		}
		jobs.Share = c.share()
		if len(jobs.Vertices)+len(jobs.Backfills) > 0 {
			all = append(all, jobs)
		}
	}
	return all, nil
}

// refusals are the adds among mutations whose destination is being deleted, or is hidden,
// with why. The shard of the source knows the state of its own vertices only, so this is
// asked before: what slips through while a job begins is undone by the job itself. Of
// most graphs nothing is marked, and then nothing is looked at; what a replica here shows
// is confirmed by the shard's leader, so none is refused once the job has ended.
func (r *Router) refusals(ctx context.Context, s *Schema, ms []Mutation) (map[int]error, error) {
	g := r.cfg.Local
	if !g.marked() {
		return nil, nil
	}
	states := map[Vertex]VertexState{}
	var out map[int]error
	for i := range ms {
		if ms[i].Op != OpAdd {
			continue
		}
		def, _ := s.EdgeTypeByID(ms[i].Type)
		v := def.inverse(ms[i].Dst).Vertex
		state, known := states[v]
		if !known {
			if state = g.seenState(v); state == VertexDeleting || state.hides() {
				job, err := r.VertexJob(ctx, VertexLook, v)
				if err != nil {
					return nil, err
				}
				state = job.State
			}
			states[v] = state
		}
		var why error
		switch {
		case state == VertexDeleting:
			why = ErrDeleting
		case state.hides() && !r.exists(ctx, ms[i]):
			why = ErrHidden
		default:
			continue
		}
		if out == nil {
			out = map[int]error{}
		}
		out[i] = fmt.Errorf("mutations[%d].dst_id: %s %d: %w", i, s.VertexTypeName(v.Type), v.ID, why)
	}
	return out, nil
}

// exists reports whether an edge is there to be seen.
func (r *Router) exists(ctx context.Context, m Mutation) bool {
	var is [1]bool
	_, err := r.HasEdges(ctx, ReadOptions{Level: Linearizable}, m.Type, []uint64{m.Src}, []uint64{m.Dst}, is[:])
	return err == nil && is[0]
}
