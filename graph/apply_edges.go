package graph

import (
	"bytes"
	"fmt"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// mutateResult answers a mutate command. waits holds, for each shard that keeps an
// inverse of one of the mutations, the last position given on the stream to
// it: a BOTH write waits for these, whether or not it changed anything (RULES B4).
type mutateResult struct {
	outcomes []Outcome
	to       []uint32 // shard of the inverse of each
	waits    []streamPosition
}

type streamPosition struct {
	to  uint32
	pos uint64
}

func (r *mutateResult) wait(to uint32, pos uint64) {
	if pos == 0 {
		return
	}
	for i := range r.waits {
		if r.waits[i].to == to {
			r.waits[i].pos = max(r.waits[i].pos, pos)
			return
		}
	}
	r.waits = append(r.waits, streamPosition{to, pos})
}

// fact returns the list that holds the edge src -> dst itself, inverse the one
// that mirrors it. Both ends of a symmetric type have it in their OUT lists.
func (d *EdgeTypeDef) fact(src uint64) ListKey {
	return ListKey{Vertex: Vertex{d.From, src}, Type: d.ID, Dir: Out}
}

func (d *EdgeTypeDef) inverse(dst uint64) ListKey {
	l := ListKey{Vertex: Vertex{d.To, dst}, Type: d.ID, Dir: In}
	if d.Symmetric {
		l.Dir = Out
	}
	return l
}

func (m *Machine) applyMutate(body []byte) (*mutateResult, error) {
	d := decoder{b: body}
	n := d.count()
	res := &mutateResult{outcomes: make([]Outcome, 0, n), to: make([]uint32, n)}
	for i := 0; i < n && d.err == nil; i++ {
		mu := d.mutation()
		if d.err != nil {
			break
		}
		out, err := m.mutate(&mu, res)
		if err != nil {
			return nil, err
		}
		res.outcomes = append(res.outcomes, out)
	}
	return res, d.done()
}

// mutate changes the fact and sends its inverse on its way.
func (m *Machine) mutate(mu *Mutation, res *mutateResult) (Outcome, error) {
	def, ok := m.schema.EdgeTypeByID(mu.Type)
	if !ok {
		return Failed, nil
	}
	if !m.owns(SlotOf(def.fact(mu.Src).Vertex)) {
		return Failed, nil
	}
	if mu.Time == 0 {
		mu.Time = m.entry.Now
	}
	to := m.owners.of(SlotOf(def.inverse(mu.Dst).Vertex)).Shard
	res.to[len(res.outcomes)] = to
	out, err := m.changeFact(fact{def, mu.Src, mu.Dst}, mu)
	if to != m.cfg.ID && err == nil {
		if s, ok := (*m.streams.Load())[to]; ok {
			res.wait(to, s.last)
		}
	}
	return out, err
}

// changeFact changes a fact, and tells its other end.
func (m *Machine) changeFact(f fact, mu *Mutation) (Outcome, error) {
	if mu.Op == OpAdd {
		if out, err := m.foreclosed(f); out != 0 || err != nil {
			return out, err
		}
	}
	l, err := m.open(f.list())
	if err != nil {
		return 0, err
	}
	out, rec, err := m.change(l, mu)
	if err != nil {
		return 0, fmt.Errorf("list %v: %w", l.key, err)
	}
	if out == Unchanged && mu.Op == OpDelete {
		ok, err := m.deleteHidden(f)
		return changedIf(ok), err
	}
	if out == Changed {
		rec.pos = m.record(l, rec)
		err = m.tell(f, rec)
	}
	return out, err
}

// change applies mu to the list of its source.
func (m *Machine) change(l *openList, mu *Mutation) (Outcome, record, error) {
	rec := record{peer: mu.Dst, time: mu.Time, props: mu.Props}
	e := edgelist.Edge{Peer: mu.Dst, Time: mu.Time, Props: mu.Props}
	switch mu.Op {
	case OpAdd:
		rec.kind = recAdd
		ok, err := l.w.Insert(e)
		return changedIf(ok), rec, err
	case OpDelete:
		rec.kind = recDelete
		old, ok, err := l.w.Delete(mu.Dst)
		rec.time, rec.props = old.Time, nil
		return changedIf(ok), rec, err
	default:
		rec.kind = recUpdate
		old, ok, err := l.w.Get(mu.Dst)
		if err != nil || !ok {
			return Missing, rec, err
		}
		if old.Time == e.Time && bytes.Equal(old.Props, e.Props) {
			return Unchanged, rec, nil
		}
		rec.oldTime = old.Time
		_, ok, err = l.w.Update(e)
		return changedIf(ok), rec, err
	}
}

func changedIf(ok bool) Outcome {
	if ok {
		return Changed
	}
	return Unchanged
}

// record numbers a change of l and notes it in the change log.
func (m *Machine) record(l *openList, rec record) uint64 {
	if rec.kind != recAdd || l.key.Dir != In {
		rec.prev = l.w.Version() // not of what another replica may add unread
	}
	pos := m.number(l, rec)
	l.w.SetVersion(pos)
	return pos
}

// number gives a change of l its position, and puts it into the change log.
func (m *Machine) number(l *openList, rec record) uint64 {
	rec.list = l.key
	rec.pos = m.next(SlotOf(l.key.Vertex))
	l.version = rec.pos
	m.totals.add(l.key, rec.kind)
	m.changes.add(&rec)
	return rec.pos
}

// mirror applies to an inverse list what rec says of its fact. Deliveries come
// once and in order, so the list always is as the record expects; where it is
// not, the stored bytes are not those that were written.
func (m *Machine) mirror(rec *record) error {
	switch {
	case rec.kind >= recHide:
		if err := m.mirrorHidden(rec); err != nil || rec.kind == recDrop {
			return err
		}
		return m.answer(rec)
	case m.mayAddBlind(rec):
		m.addBlind(rec)
		if err := m.derive(rec.list, rec.peer, 1); err != nil {
			return err
		}
		return m.answer(rec)
	}
	l, err := m.open(rec.list)
	if err != nil {
		return err
	}
	e := edgelist.Edge{Peer: rec.peer, Time: rec.time, Props: rec.props}
	var ok bool
	grown := int64(0)
	switch rec.kind {
	case recAdd:
		ok, err = l.w.Insert(e)
		grown = 1
	case recUpdate:
		_, ok, err = l.w.Update(e)
	case recDelete:
		_, ok, err = l.w.Delete(rec.peer)
		grown = -1
	default:
		return kv.Corruptionf("record kind %d for an inverse list", rec.kind)
	}
	if err == nil && !ok {
		err = kv.Corruptionf("record %d of kind %d does not fit: peer %d", rec.pos, rec.kind, rec.peer)
	}
	if err != nil {
		return fmt.Errorf("list %v: %w", rec.list, err)
	}
	m.record(l, *rec)
	if grown != 0 && rec.list.Dir == In {
		err = m.derive(l.key, rec.peer, grown)
	}
	if rec.kind != recAdd || err != nil {
		return err
	}
	return m.answer(rec)
}

// derivedSums gathers what an entry adds to derived counters, in the order in
// which they are first met.
type derivedSums struct {
	order []CounterRef
	sums  map[CounterRef]int64
}

func (d *derivedSums) add(c CounterRef, delta int64) {
	if _, ok := d.sums[c]; !ok {
		d.order = append(d.order, c)
	}
	d.sums[c] += delta
}

// derive follows the growth of the IN list l, by an edge from peer, into the
// counters that are derived from it. Lists are read as the operations before
// this one in the entry left them (RULES C4).
func (m *Machine) derive(l ListKey, peer uint64, grown int64) error {
	for _, d := range m.schema.sumsOf[l.Type] {
		if m.totals.of(d.Over).n[In] == 0 || !m.backfills.counts(d, l.Vertex) {
			continue // nothing here has an owner: spares a read of each list's
		}
		if err := m.addToOwners(d, l.Vertex, grown); err != nil {
			return err
		}
	}
	for _, d := range m.schema.sumsOver[l.Type] {
		if m.totals.of(d.Sum).n[In] == 0 || !m.backfills.counts(d, l.Vertex) {
			continue
		}
		counted, err := m.open(ListKey{Vertex: l.Vertex, Type: d.Sum, Dir: In})
		if err != nil {
			return err
		}
		if n := int64(counted.w.Count()); n > 0 {
			m.derived.add(CounterRef{Vertex: Vertex{d.Vertex, peer}, Metric: d.Metric}, grown*n)
		}
	}
	return nil
}

// flushDerived sends what the entry added to derived counters.
func (m *Machine) flushDerived() error {
	for _, c := range m.derived.order {
		delta := m.derived.sums[c]
		if delta == 0 {
			continue
		}
		rec := record{kind: recDerived, list: ListKey{Vertex: c.Vertex}, metric: c.Metric, value: delta}
		to := m.owners.of(SlotOf(c.Vertex)).Shard
		if to == m.cfg.ID {
			if err := m.applyDerived(&rec); err != nil {
				return err
			}
			continue
		}
		m.pos++ // the record's number on its stream; no list of this shard changed
		rec.pos = m.pos
		m.outStream(to).send(&rec)
	}
	m.derived.order = m.derived.order[:0]
	clear(m.derived.sums)
	return nil
}
