package graph

import (
	"context"
	"errors"
	"fmt"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// VertexJob asks for an operation on a vertex, and tells its state then. The operation
// goes on by itself when this returns. Asked for again it changes nothing. ErrDeleting: the
// vertex is being deleted, and cannot be hidden or restored.
func (g *Graph) VertexJob(ctx context.Context, op VertexOp, v Vertex) (VertexJob, error) {
	if err := checkVertex(g.Schema(), op, v); err != nil {
		return VertexJob{}, err
	}
	if op == VertexLook {
		return g.vertexState(ctx, v)
	}
	if g.cfg.Jobs != nil {
		if err := g.cfg.Jobs(); err != nil {
			return VertexJob{}, err
		}
	}
	if g.cfg.Admit != nil {
		if err := g.cfg.Admit(op == VertexDelete); err != nil {
			return VertexJob{}, err
		}
	}
	id := g.shardOf(SlotOf(v))
	s, err := g.running(id)
	if err != nil {
		return VertexJob{}, g.moved(id, err)
	}
	res, err := s.Propose(ctx, markCommand{op, v}.encode())
	if err != nil {
		return VertexJob{}, g.moved(id, err)
	}
	r := res.(markResult)
	if r.foreign {
		return VertexJob{}, g.disowned(id, SlotOf(v))
	}
	return r.job, r.refused
}

func checkVertex(s *Schema, op VertexOp, v Vertex) error {
	if _, ok := s.vertexByID[v.Type]; !ok {
		return invalid("vertex.type", "a vertex type of the schema", "vertex type %d", v.Type)
	}
	if op > VertexRestore {
		return invalid("op", "an operation on a vertex", "operation %d", op)
	}
	return checkID("vertex.id", v.ID)
}

// vertexState tells the state of a vertex, as a linearizable read finds it.
func (g *Graph) vertexState(ctx context.Context, v Vertex) (VertexJob, error) {
	r, err := g.newReading(ReadOptions{Level: Linearizable}, "")
	if err != nil {
		return VertexJob{}, err
	}
	defer r.close()
	w, err := r.at(ctx, SlotOf(v))
	if err != nil {
		return VertexJob{}, err
	}
	mk, err := w.mark(v)
	return mk.describe(v), err
}

// mark is the mark of a vertex; that of a plain one is zero.
func (v *view) mark(x Vertex) (mark, error) {
	if v.marked == 0 {
		return mark{}, nil
	}
	row, err := v.snap.Get(nil, markKey(nil, x))
	if errors.Is(err, kv.ErrNotFound) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, err
	}
	mk, err := decodeMark(row)
	if err != nil {
		err = v.m.failed(fmt.Errorf("shard %d: mark of vertex %v: %w", v.m.cfg.ID, x, err))
	}
	return mk, err
}

// ShardJobs are the jobs at work in a shard, those of vertices and those that count
// derived counters.
type ShardJobs struct {
	Shard     uint32
	Share     float64 // of all slots
	Vertices  []VertexJob
	Backfills []Backfill
}

// ShardJobs returns the jobs of a shard that this node leads.
func (g *Graph) ShardJobs(_ context.Context, id uint32) (ShardJobs, error) {
	out := ShardJobs{Shard: id}
	v, err := g.viewOf(id)
	if err != nil {
		return out, err
	}
	defer v.release()
	if !g.leads(id) {
		return out, g.moved(id, fmt.Errorf("shard %d: its jobs: %w", id, shard.ErrNotLeader))
	}
	for _, j := range v.jobs {
		out.Vertices = append(out.Vertices, j.describe(j.vertex))
	}
	out.Backfills = v.progress()
	return out, nil
}

// Jobs returns the jobs of the shards that this node leads.
func (g *Graph) Jobs(ctx context.Context) (all []ShardJobs, err error) {
	for _, c := range *g.owners.Load() {
		jobs, err := g.ShardJobs(ctx, c.Shard)
		if err != nil {
			return nil, err
		}
		jobs.Share = c.share()
		all = append(all, jobs)
	}
	return all, nil
}

// share is the part of all slots that is claimed.
func (c *Claim) share() float64 { return float64(int(c.Last)-int(c.First)+1) / NumSlots }

// seenState is the state of a vertex as this node's replica shows it, if it has one.
func (g *Graph) seenState(v Vertex) VertexState {
	mb := g.members[g.shardOf(SlotOf(v))].Load()
	if mb == nil {
		return VertexPlain
	}
	w, err := mb.machine.acquire()
	if err != nil {
		return VertexPlain
	}
	defer w.release()
	mk, err := w.mark(v)
	if err != nil {
		return VertexPlain
	}
	return mk.state
}

// marked reports whether this node's replicas show any vertex that is not plain.
func (g *Graph) marked() bool {
	for _, mb := range g.replicas() {
		if v := mb.machine.view.Load(); v != nil && v.marked > 0 {
			return true
		}
	}
	return false
}
