package graph

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lianadb/liana/kv/shard"
)

// Pauses between steps of what runs in the background.
const (
	workIdle = 100 * time.Millisecond // there was nothing to do
	workWait = 20 * time.Millisecond  // only others have something to do
	workStep = 5 * time.Second        // for a step, at most
	// jobStep is the number of edges of a step: few, so that a write that comes behind one
	// does not wait long.
	jobStep = 32
	// jobSteps is how many steps a second there are, at least, where JobEdges is low.
	jobSteps = 20
	jobEnds  = 64 // of the jobs that end with one look
	// jobBacklog is how many bytes of records may be on their way to a shard before jobs
	// wait.
	jobBacklog = 256 << 10
)

// work makes the steps of what the shards that this node leads have to do in the
// background. Each is a command of the shard's log, and says what it goes on from: a step
// that is lost, or made twice, or by two leaders, does no harm. After a step it rests as
// long as the step took, so that it takes no more than half of the time of anything.
func (g *Graph) work(ctx context.Context) {
	w := worker{Graph: g, arrivals: map[jobName]arrivals{}}
	for ctx.Err() == nil {
		begun, edges, waits := time.Now(), 0, false
		for _, mb := range g.replicas() {
			n, more := w.workOn(ctx, mb)
			edges, waits = edges+n, waits || more
		}
		w.turn++
		rest := workIdle
		switch {
		case edges > 0:
			rest = max(time.Since(begun), time.Duration(edges)*time.Second/time.Duration(g.cfg.JobEdges)-time.Since(begun))
		case waits:
			rest = workWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

// worker is what work remembers between its looks. Another leader finds it anew.
type worker struct {
	*Graph
	turn     int
	arrivals map[jobName]arrivals
}

// jobName names a job of any shard.
type jobName struct {
	shard uint32
	job   uint64
}

// arrivals are what a deletion waits for before it ends: what other shards had for its
// vertex when it had passed all lists, by shard the position on the stream from it. Edges
// that were acknowledged before the vertex was marked are among it.
type arrivals []streamPosition

// workOn makes a step of what a shard has to do. It returns how many edges that passed,
// and whether there is more to come.
func (g *worker) workOn(ctx context.Context, mb *member) (edges int, more bool) {
	s := mb.group.Load()
	if s == nil || !mb.machine.leads.Load() {
		return 0, false
	}
	v, err := mb.machine.acquire()
	if err != nil {
		return 0, false // closed
	}
	defer v.release()
	if len(v.backfills)+len(v.jobs) == 0 {
		return 0, false
	}
	if g.owes(mb) {
		return 0, true
	}
	back, ok, err := v.nextBackfill(backfillOwned, backfillWalked)
	if err != nil {
		g.cfg.Logger.Error("a derived counter is not counted on", "shard", mb.machine.cfg.ID, "error", err)
	} else if ok && proposeStep(ctx, s, back.encode()) {
		edges = backfillOwned
	}
	if len(v.jobs) == 0 {
		return edges, ok
	}
	passing := g.endJobs(ctx, mb, s, v.jobs)
	if len(passing) == 0 {
		return edges, true
	}
	j := passing[g.turn%len(passing)]
	n := min(jobStep, max(1, g.cfg.JobEdges/jobSteps))
	if proposeStep(ctx, s, stepCommand{j.vertex, j.job, j.at, uint64(n)}.encode()) {
		edges += n
	}
	return edges, true
}

// endJobs has those jobs end that have passed everything, and returns the others. Before,
// it tells the shard's log what others have applied of its asks. What is refused is made
// good at the next look.
func (g *worker) endJobs(ctx context.Context, mb *member, s *shard.Shard, jobs []runningJob) (passing []runningJob) {
	ends := 0
	for i := range jobs {
		j := &jobs[i]
		if !j.through {
			passing = append(passing, *j)
			continue
		}
		if ends++; ends > jobEnds || !g.arrived(ctx, mb, j) {
			continue
		}
		for _, t := range mb.machine.outbox.trims() {
			_, _ = s.ProposeAsync(t.encode(), shard.System)
		}
		_, _ = s.ProposeAsync(endCommand{j.vertex, j.job}.encode(), shard.System)
	}
	maps.DeleteFunc(g.arrivals, func(n jobName, _ arrivals) bool {
		return n.shard == mb.machine.cfg.ID && !slices.ContainsFunc(jobs, func(j runningJob) bool { return j.job == n.job })
	})
	return passing
}

// arrived reports whether a job may end as far as others are concerned.
func (g *worker) arrived(ctx context.Context, mb *member, j *runningJob) bool {
	if j.state != VertexDeleting {
		return true // what comes later finds the mark, or needs none
	}
	name := jobName{mb.machine.cfg.ID, j.job}
	a, known := g.arrivals[name]
	if !known {
		if a, known = g.await(ctx, name.shard, SlotOf(j.vertex)); !known {
			return false
		}
		g.arrivals[name] = a
	}
	return mb.machine.received(a)
}

// await asks all other shards what they have for a slot of a shard; false: not all could
// say, or one believes that the slot is another's.
func (g *worker) await(ctx context.Context, own uint32, slot Slot) (a arrivals, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, workStep)
	defer cancel()
	var heard [NumSlots]bool
	hear := func(c *Claim) {
		for s := int(c.First); s <= int(c.Last); s++ {
			heard[s] = true
		}
	}
	for _, c := range *g.owners.Load() {
		if c.Shard == own {
			hear(&c)
			continue
		}
		r, err := g.askShard(ctx, c.Shard, encodeGiven(slot))
		if err != nil {
			return nil, false
		}
		g.learn(r.owners)
		mine := r.owners.own(c.Shard)
		if mine == nil || r.owners.of(slot).Shard != own {
			return nil, false
		}
		hear(mine)
		if r.cursor > 0 {
			a = append(a, streamPosition{c.Shard, r.cursor})
		}
	}
	return a, !slices.Contains(heard[:], false)
}

// askShard puts a question to a shard, wherever it is led.
func (g *Graph) askShard(ctx context.Context, id uint32, cmd []byte) (deliverResult, error) {
	way, _, err := g.deliver(ctx, id, cmd)
	if err != nil {
		return deliverResult{}, err
	}
	select {
	case <-way.Done():
	case <-ctx.Done():
		return deliverResult{}, ctx.Err()
	}
	res, err := way.Result()
	if err != nil {
		return deliverResult{}, err
	}
	return res.(deliverResult), nil
}

// owes reports whether much is on its way to or from a shard: jobs wait for it.
func (g *Graph) owes(mb *member) bool {
	own := mb.machine.cfg.ID
	for _, other := range g.replicas() {
		for to, snd := range other.machine.outbox.all() {
			if other != mb && to != own {
				continue
			}
			if bytes, _ := snd.backlog(); bytes > jobBacklog {
				return true
			}
		}
	}
	return false
}

// all are the senders, by shard.
func (o *outbox) all() map[uint32]*sender {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[uint32]*sender, len(o.senders))
	for to, s := range o.senders {
		out[to] = s
	}
	return out
}

// trims are what the receivers are known to have applied.
func (o *outbox) trims() (out []trim) {
	for to, s := range o.all() {
		if acked := s.ackedNow(); acked > 0 {
			out = append(out, trim{to: to, epoch: s.epoch, pos: acked})
		}
	}
	return out
}

// proposeStep reports whether a step was made. One that was not is made good at the next
// look.
func proposeStep(ctx context.Context, s *shard.Shard, step []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, workStep)
	defer cancel()
	p, err := s.ProposeAsync(step, shard.System)
	if err == nil {
		_, err = p.Wait(ctx)
	}
	return err == nil
}
