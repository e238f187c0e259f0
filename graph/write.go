package graph

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lianadb/liana/kv/shard"
)

// commandBytes bounds a mutate command, so that a large call becomes several
// and shares log entries with others.
const commandBytes = 512 << 10

// Mutate applies mutations. Those of one source vertex act in their order; the
// call is not a transaction. An error means that nothing was changed: a
// mistake in one of them (*InvalidError with the path "mutations[i].…") or a
// refusal of all. What became of each is in the results otherwise.
//
// With WaitBoth the call returns once every inverse is durable too, and
// its token covers both ends (CACHE.md T1, T2).
func (g *Graph) Mutate(ctx context.Context, ms []Mutation, wait Wait) ([]MutationResult, string, error) {
	s := g.Schema()
	if err := g.normalizeAll(s, ms); err != nil {
		return nil, "", err
	}
	w := newWrite(g, s, g.stamped(ms), wait)
	if err := g.admit(w); err != nil {
		return nil, "", err
	}
	w.propose()
	w.collect(ctx)
	if wait == WaitBoth {
		w.awaitInverses(ctx)
	}
	return w.results, w.token(), nil
}

// write is one Mutate call on its way.
type write struct {
	g       *Graph
	schema  *Schema
	ms      []Mutation
	wait    Wait
	results []MutationResult
	from    []uint32 // shard of each mutation's fact
	to      []uint32 // shard of its inverse; as the source shard said, once it has
	parts   []part
	// waits[from][to] is the position that the inverses have to reach.
	waits map[[2]uint32]uint64
}

// part is one command: what of a batch goes to one shard, by its indexes, in order.
type part struct {
	shard uint32
	pick  []int
	p     *shard.Proposal
	err   error
}

// propose hands the part's command to its shard.
func (p *part) propose(g *Graph, command func() []byte) {
	s, err := g.running(p.shard)
	if err == nil {
		p.p, err = s.ProposeAsync(command(), shard.Client)
	}
	p.err = g.moved(p.shard, err)
}

// wait returns the shard's answer, or sets err.
func (p *part) wait(ctx context.Context, g *Graph) (res any) {
	if p.err == nil {
		res, p.err = p.p.Wait(ctx)
		p.err = g.moved(p.shard, p.err)
	}
	return res
}

func newWrite(g *Graph, s *Schema, ms []Mutation, wait Wait) *write {
	w := &write{
		g: g, schema: s, ms: ms, wait: wait,
		results: make([]MutationResult, len(ms)), from: make([]uint32, len(ms)), to: make([]uint32, len(ms)),
	}
	open := map[uint32]int{} // 1 + index of the part that takes more
	size := map[uint32]int{}
	for i := range ms {
		def, _ := s.EdgeTypeByID(ms[i].Type)
		from := g.shardOf(SlotOf(def.fact(ms[i].Src).Vertex))
		w.from[i], w.to[i] = from, g.shardOf(SlotOf(def.inverse(ms[i].Dst).Vertex))
		if open[from] == 0 || size[from] > commandBytes {
			w.parts = append(w.parts, part{shard: from})
			open[from], size[from] = len(w.parts), 0
		}
		p := &w.parts[open[from]-1]
		p.pick = append(p.pick, i)
		size[from] += 40 + len(ms[i].Props)
	}
	return w
}

// admit refuses a write before anything of it is proposed (RULES B2).
func (g *Graph) admit(w *write) error {
	if g.cfg.Admit != nil {
		deleting := !slices.ContainsFunc(w.ms, func(m Mutation) bool { return m.Op != OpDelete })
		if err := g.cfg.Admit(deleting); err != nil {
			return err
		}
	}
	asked := map[[2]uint32]bool{}
	for i := range w.ms {
		from, to := w.from[i], w.to[i]
		if from == to || asked[[2]uint32{from, to}] {
			continue
		}
		asked[[2]uint32{from, to}] = true
		snd := g.sender(from, to)
		if snd == nil {
			continue
		}
		bytes, age := snd.backlog()
		if bytes > g.cfg.MaxBacklogBytes || w.wait == WaitBoth && age > g.cfg.MaxBacklogAge {
			return fmt.Errorf("shard %d owes shard %d %d bytes, for %v: %w", from, to, bytes, age, ErrBacklogged)
		}
	}
	return nil
}

func (w *write) propose() {
	for i := range w.parts {
		p := &w.parts[i]
		p.propose(w.g, func() []byte { return encodeMutate(w.ms, p.pick) })
	}
}

// collect waits for the answers of the source shards.
func (w *write) collect(ctx context.Context) {
	for i := range w.parts {
		p := &w.parts[i]
		res := p.wait(ctx, w.g)
		if p.err != nil {
			out := Failed
			if errors.Is(p.err, shard.ErrOutcomeUnknown) {
				out = Unknown
			}
			for _, m := range p.pick {
				w.results[m] = MutationResult{Outcome: out, Err: p.err}
			}
			continue
		}
		w.answered(p, res.(*mutateResult))
	}
}

func (w *write) answered(p *part, res *mutateResult) {
	for j, m := range p.pick {
		out := res.outcomes[j]
		w.results[m] = MutationResult{Outcome: out, Changed: out == Changed}
		if err := refusalOf(out); err != nil {
			w.results[m] = MutationResult{Outcome: Failed, Err: fmt.Errorf("mutations[%d]: %w", m, err)}
			continue
		}
		if out == Failed {
			def, _ := w.schema.EdgeTypeByID(w.ms[m].Type)
			w.results[m].Err = w.g.disowned(p.shard, SlotOf(def.fact(w.ms[m].Src).Vertex))
			continue
		}
		w.to[m] = res.to[j]
	}
	for _, s := range res.waits {
		if w.waits == nil {
			w.waits = make(map[[2]uint32]uint64, len(res.waits))
		}
		k := [2]uint32{p.shard, s.to}
		w.waits[k] = max(w.waits[k], s.pos)
	}
}

// refusalOf is why a shard refused a mutation, nil where it did not.
func refusalOf(out Outcome) error {
	switch out {
	case refusedDeleting:
		return ErrDeleting
	case refusedHidden:
		return ErrHidden
	}
	return nil
}

// awaitInverses waits until the inverses are applied, and marks the mutations
// whose inverse is not in time. Also one that changed nothing waits: it may be the
// retry of one whose inverse is still on its way (RULES B4). Where a receiver is split
// meanwhile, it waits for the one that the records went to.
func (w *write) awaitInverses(ctx context.Context) {
	routing := map[uint32]uint64{} // by source shard
	for waits := w.waits; len(waits) > 0; {
		next := map[[2]uint32]uint64{}
		for k, pos := range waits {
			err := w.g.awaitStream(ctx, k[0], k[1], pos, routing[k[0]])
			if errors.Is(err, errRerouted) {
				routing[k[0]] = w.reroute(k, pos, next)
			} else if err != nil {
				w.late(k, err)
			}
		}
		waits = next
	}
}

// late marks the mutations whose inverses are owed by k[0] to k[1].
func (w *write) late(k [2]uint32, err error) {
	for i := range w.results {
		r := &w.results[i]
		if w.from[i] == k[0] && w.to[i] == k[1] && r.Err == nil {
			r.Outcome, r.Err = InversePending, err
		}
	}
}

// reroute finds where the records went that k[0] owed to k[1], and returns by which
// routing.
func (w *write) reroute(k [2]uint32, pos uint64, next map[[2]uint32]uint64) uint64 {
	mb := w.g.members[k[0]].Load()
	if mb == nil {
		next[k] = pos // its sender is gone as well, and says so
		return math.MaxUint64
	}
	r := mb.machine.routes.Load()
	for i := range w.results {
		if w.from[i] != k[0] || w.to[i] != k[1] || w.results[i].Err != nil {
			continue
		}
		def, _ := w.schema.EdgeTypeByID(w.ms[i].Type)
		w.to[i] = r.of(SlotOf(def.inverse(w.ms[i].Dst).Vertex)).Shard
		key := [2]uint32{k[0], w.to[i]}
		next[key] = max(next[key], pos)
		w.waits[key] = max(w.waits[key], pos)
	}
	return r.n
}

// awaitStream waits until what shard from owes shard to is applied up to pos.
func (g *Graph) awaitStream(ctx context.Context, from, to uint32, pos, routing uint64) error {
	for {
		if snd := g.sender(from, to); snd != nil {
			return snd.await(ctx, pos, routing)
		}
		mb := g.members[from].Load()
		if mb == nil || !mb.machine.leads.Load() || routing == 0 {
			return fmt.Errorf("shard %d does not lead: %w", from, ErrInverseLate)
		}
		select { // the stream of an heir is about to begin
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrInverseLate, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// token says what the caller may expect to see: the source's end, and the other
// end as seen or as pending.
func (w *write) token() string {
	t := Token{Timeline: w.g.cfg.Timeline}
	for i := range w.ms {
		if t.Others {
			break
		}
		r := &w.results[i]
		if r.Outcome == Failed || r.Outcome == Unknown {
			continue
		}
		def, _ := w.schema.EdgeTypeByID(w.ms[i].Type)
		src := SlotOf(def.fact(w.ms[i].Src).Vertex)
		dst := SlotOf(def.inverse(w.ms[i].Dst).Vertex)
		t.see(src, w.g.lastChange(w.from[i], src))
		if w.from[i] == w.to[i] || w.wait == WaitBoth && r.Outcome != InversePending && w.g.leads(w.to[i]) {
			t.see(dst, w.g.lastChange(w.to[i], dst))
		} else if pos := w.waits[[2]uint32{w.from[i], w.to[i]}]; pos > 0 {
			t.await(PendingInverse{Src: w.from[i], Pos: pos, Dst: dst})
		}
	}
	return t.Encode()
}

// sender returns the outgoing end of a stream, nil where nothing was sent on it or
// this node does not lead the sending shard.
func (g *Graph) sender(from, to uint32) *sender {
	mb := g.members[from].Load()
	if mb == nil {
		return nil
	}
	return mb.machine.outbox.sender(uint32(to))
}

// leads reports whether this node leads a shard, so that it shows all that was
// acknowledged.
func (g *Graph) leads(id uint32) bool {
	mb := g.members[id].Load()
	return mb != nil && mb.machine.leads.Load()
}

// disowned says why a shard refused what concerns a slot: it does not own the slot (any
// more), or its schema is behind.
func (g *Graph) disowned(id uint32, s Slot) error {
	err := fmt.Errorf("shard %d refused a command for slot %d: %w", id, s, shard.ErrNotLeader)
	mb := g.members[id].Load()
	if mb == nil {
		return err
	}
	v, closed := mb.machine.acquire()
	if closed != nil {
		return err
	}
	defer v.release()
	return v.disowned(s, err)
}

// disowned adds to err who owns a slot, where that is not the view's shard.
func (v *view) disowned(s Slot, err error) error {
	if v.owners == nil || v.own.owns(s) {
		return err
	}
	return fmt.Errorf("%w: %w", &MovedError{Shard: v.m.cfg.ID, Claims: v.owners}, err)
}

// lastChange is the position of the last change of a slot by a shard that is visible
// here.
func (g *Graph) lastChange(id uint32, s Slot) uint64 {
	mb := g.members[id].Load()
	if mb == nil {
		return 0
	}
	return mb.machine.last[s].Load()
}
