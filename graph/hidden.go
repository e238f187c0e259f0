package graph

import (
	"fmt"
	"slices"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// Hidden edges. A fact that is hidden leaves the OUT list of its source, and its inverse
// the list at the other end; both go to lists beside these, so that nothing which reads,
// counts or sums edges meets them (RULES C2). The fact keeps two bits: hidden by its
// source, hidden by its destination. It is to be seen where both are 0.
//
// Only the shard of the source changes a fact, hidden or not, and the lists at the other
// end follow by its stream alone (RULES C1). What the destination's shard wants of a fact
// it asks for, by its own stream. An ask names the edge, not the state in which it was
// seen, and an edge that is gone has none to change; so asks may be late, and come twice.
//
//	entry of a hidden fact: as in the OUT list, with a byte of bits before its properties
//	entry of its mirror:    as in the other list, without properties
const (
	hidden   Direction = In + 1 // hidden facts of a source
	hiddenIn Direction = In + 2 // the mirrors of hidden facts
)

// The bits of a hidden fact.
const (
	bySource byte = 1 << iota
	byDest
)

// with is the list of the same vertex and edge type in another direction.
func (l ListKey) with(d Direction) ListKey {
	l.Dir = d
	return l
}

// fact is an edge as the shard of its source sees it.
type fact struct {
	def      *EdgeTypeDef
	src, dst uint64
}

func (f *fact) list() ListKey { return f.def.fact(f.src) }

// delete takes a fact away, hidden or not, and reports whether it was there.
func (m *Machine) deleteFact(f fact) (bool, error) {
	l, err := m.open(f.list())
	if err != nil {
		return false, err
	}
	old, ok, err := l.w.Delete(f.dst)
	if err != nil {
		return false, fmt.Errorf("list %v: %w", l.key, err)
	}
	if !ok {
		return m.deleteHidden(f)
	}
	rec := record{kind: recDelete, peer: f.dst, time: old.Time}
	rec.pos = m.record(l, rec)
	return true, m.tell(f, rec)
}

// deleteHidden is deleteFact for one that is not to be seen.
func (m *Machine) deleteHidden(f fact) (bool, error) {
	if m.totals.of(f.def.ID).n[hidden] == 0 {
		return false, nil // spares a read
	}
	l, err := m.open(f.list().with(hidden))
	if err != nil {
		return false, err
	}
	old, ok, err := l.w.Delete(f.dst)
	if err != nil || !ok {
		return false, err
	}
	m.aside(l, recDelete)
	return true, m.tell(f, record{kind: recDrop, pos: m.pos, time: old.Time})
}

// isHidden reports whether a fact is there and not to be seen.
func (m *Machine) isHidden(f fact) (bool, error) {
	if m.totals.of(f.def.ID).n[hidden] == 0 {
		return false, nil
	}
	l, err := m.open(f.list().with(hidden))
	if err != nil {
		return false, err
	}
	_, ok, err := l.w.Get(f.dst)
	return ok, err
}

// setBits changes the bits of a fact. What its source's mark says holds in any case.
func (m *Machine) setBits(f fact, set, clear byte) error {
	if m.marks.state(f.list().Vertex).hides() {
		set, clear = set|bySource, clear&^bySource
	}
	seen, err := m.open(f.list())
	if err != nil {
		return err
	}
	e, ok, err := seen.w.Get(f.dst)
	if err != nil {
		return fmt.Errorf("list %v: %w", seen.key, err)
	}
	if ok {
		if bits := set &^ clear; bits != 0 {
			return m.hide(f, seen, e, bits)
		}
		return nil
	}
	if m.totals.of(f.def.ID).n[hidden] == 0 {
		return nil
	}
	side, err := m.open(seen.key.with(hidden))
	if err != nil {
		return err
	}
	e, ok, err = side.w.Get(f.dst)
	if err != nil || !ok {
		return err
	}
	if len(e.Props) == 0 {
		return kv.Corruptionf("list %v: hidden edge to %d has no bits", side.key, f.dst)
	}
	switch bits := (e.Props[0] | set) &^ clear; bits {
	case e.Props[0]:
		return nil
	case 0:
		return m.show(f, seen, side, e)
	default:
		e.Props = slices.Clone(e.Props)
		e.Props[0] = bits
		if _, _, err = side.w.Update(e); err == nil {
			m.aside(side, recUpdate)
		}
		return err
	}
}

// hide takes a fact out of sight.
func (m *Machine) hide(f fact, seen *openList, e edgelist.Edge, bits byte) error {
	side, err := m.open(seen.key.with(hidden))
	if err != nil {
		return err
	}
	props := append([]byte{bits}, e.Props...)
	if _, _, err := seen.w.Delete(f.dst); err != nil {
		return fmt.Errorf("list %v: %w", seen.key, err)
	}
	if err := m.insertNew(side, edgelist.Edge{Peer: f.dst, Time: e.Time, Props: props}); err != nil {
		return err
	}
	pos := m.record(seen, record{kind: recDelete, peer: f.dst, time: e.Time})
	side.w.SetVersion(pos)
	m.totals.add(side.key, recAdd)
	return m.tell(f, record{kind: recHide, pos: pos, time: e.Time, bits: bits})
}

// show brings a hidden fact back as it was.
func (m *Machine) show(f fact, seen, side *openList, e edgelist.Edge) error {
	back := edgelist.Edge{Peer: f.dst, Time: e.Time, Props: slices.Clone(e.Props[1:])}
	if _, _, err := side.w.Delete(f.dst); err != nil {
		return err
	}
	if err := m.insertNew(seen, back); err != nil {
		return err
	}
	rec := record{kind: recAdd, peer: f.dst, time: back.Time, props: back.Props}
	rec.pos = m.record(seen, rec)
	side.w.SetVersion(rec.pos)
	m.totals.add(side.key, recDelete)
	rec.kind = recShow
	return m.tell(f, rec)
}

// insertNew inserts an edge of which the rest of the state says that it is not there.
func (m *Machine) insertNew(l *openList, e edgelist.Edge) error {
	ok, err := l.w.Insert(e)
	if err == nil && !ok {
		err = kv.Corruptionf("edge to %d is there already", e.Peer)
	}
	if err != nil {
		return fmt.Errorf("list %v: %w", l.key, err)
	}
	return nil
}

// aside numbers a change that only a list of hidden edges has. The change log does not
// tell it.
func (m *Machine) aside(l *openList, kind recordKind) {
	l.w.SetVersion(m.next(SlotOf(l.key.Vertex)))
	m.totals.add(l.key, kind)
}

// tell sends the other end of a fact what became of it.
func (m *Machine) tell(f fact, rec record) error {
	rec.list, rec.peer = f.def.inverse(f.dst), f.src
	to := m.owners.of(SlotOf(rec.list.Vertex)).Shard
	if to == m.cfg.ID {
		return m.mirror(&rec)
	}
	m.outStream(to).send(&rec)
	return nil
}

// mirrorHidden follows at the other end what became of a fact that is or was hidden.
func (m *Machine) mirrorHidden(rec *record) error {
	seen, err := m.open(rec.list)
	if err != nil {
		return err
	}
	side, err := m.open(rec.list.with(hiddenIn))
	if err != nil {
		return err
	}
	e := edgelist.Edge{Peer: rec.peer, Time: rec.time, Props: rec.props}
	switch rec.kind {
	case recDrop:
		if err := m.deleteOld(side, rec); err != nil {
			return err
		}
		m.aside(side, recDelete)
		return nil
	case recHide:
		if err := m.deleteOld(seen, rec); err != nil {
			return err
		}
		if err := m.insertNew(side, edgelist.Edge{Peer: e.Peer, Time: e.Time}); err != nil {
			return err
		}
		side.w.SetVersion(m.record(seen, record{kind: recDelete, peer: rec.peer, time: rec.time}))
		m.totals.add(side.key, recAdd)
	default:
		if err := m.deleteOld(side, rec); err != nil {
			return err
		}
		if err := m.insertNew(seen, e); err != nil {
			return err
		}
		side.w.SetVersion(m.record(seen, record{kind: recAdd, peer: rec.peer, time: rec.time, props: rec.props}))
		m.totals.add(side.key, recDelete)
	}
	if rec.list.Dir != In {
		return nil
	}
	grown := int64(1)
	if rec.kind == recHide {
		grown = -1
	}
	return m.derive(rec.list, rec.peer, grown)
}

// deleteOld deletes an edge of which the stream says that it is there.
func (m *Machine) deleteOld(l *openList, rec *record) error {
	_, ok, err := l.w.Delete(rec.peer)
	if err == nil && !ok {
		err = kv.Corruptionf("record %d of kind %d does not fit: peer %d", rec.pos, rec.kind, rec.peer)
	}
	if err != nil {
		return fmt.Errorf("list %v: %w", l.key, err)
	}
	return nil
}

// answer asks for what the mark of a vertex wants of an edge that has just come to it, or
// was hidden: whatever a job has passed already, the edge shares its lot (RULES 28, 30).
func (m *Machine) answer(rec *record) error {
	v := rec.list.Vertex
	switch state := m.marks.state(v); {
	case state == VertexDeleting:
		return m.ask(recAskDelete, rec.list, rec.peer)
	case state.hides() && (rec.kind != recHide || rec.bits&byDest == 0):
		return m.ask(recAskHide, rec.list, rec.peer)
	case !state.hides() && rec.kind == recHide && rec.bits&byDest != 0:
		// It was asked for by a vertex that has been restored since.
		return m.ask(recAskShow, rec.list, rec.peer)
	}
	return nil
}

// ask asks the shard of a fact, whose mirror list l has, to change it.
func (m *Machine) ask(kind recordKind, l ListKey, src uint64) error {
	def, _ := m.schema.EdgeTypeByID(l.Type)
	m.pos++ // a number on the stream; no list changes here
	rec := record{kind: kind, pos: m.pos, list: def.fact(src), peer: l.Vertex.ID}
	if mk, ok := m.marks.of[l.Vertex]; ok {
		mk.asked = rec.pos
		m.marks.set(l.Vertex, mk)
	}
	to := m.owners.of(SlotOf(rec.list.Vertex)).Shard
	if to == m.cfg.ID {
		return m.grant(&rec)
	}
	m.outStream(to).send(&rec)
	return nil
}

// grant does what an ask asks for.
func (m *Machine) grant(rec *record) error {
	def, ok := m.schema.EdgeTypeByID(rec.list.Type)
	if !ok {
		return kv.Corruptionf("record %d: edge type %d", rec.pos, rec.list.Type)
	}
	f := fact{def, rec.list.Vertex.ID, rec.peer}
	switch rec.kind {
	case recAskDelete:
		_, err := m.deleteFact(f)
		return err
	case recAskHide:
		return m.setBits(f, byDest, 0)
	default:
		return m.setBits(f, 0, byDest)
	}
}

// foreclosed says what becomes of an add before the list of its source is looked at; 0:
// that decides. An edge that is hidden is there. None is added to or from a vertex that
// is being deleted, or is hidden.
func (m *Machine) foreclosed(f fact) (Outcome, error) {
	src, dst := VertexPlain, VertexPlain
	if len(m.marks.of) > 0 {
		src, dst = m.marks.state(f.list().Vertex), m.marks.state(f.def.inverse(f.dst).Vertex)
	}
	if src == VertexDeleting || dst == VertexDeleting {
		return refusedDeleting, nil
	}
	if is, err := m.isHidden(f); is || err != nil {
		return Unchanged, err
	}
	if !src.hides() && !dst.hides() {
		return 0, nil
	}
	l, err := m.open(f.list())
	if err != nil {
		return 0, err
	}
	if ok, err := l.w.Has(f.dst); ok || err != nil {
		return Unchanged, err // the job has not come to it
	}
	return refusedHidden, nil
}
