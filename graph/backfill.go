package graph

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// A derived counter may be declared over edges that are stored already. Each shard then
// works through its vertices in the order of their keys, in steps that are commands of
// its log, and keeps the place up to which it has come. At any entry of the log
//
//	what the shard has sent for a vertex = its sum, where it lies up to the place,
//	                                       nothing, where it lies beyond it:
//
// a step sends the whole sums of the vertices that it passes, as they are at that entry,
// and a change of a vertex sends its difference if the vertex lies up to the place. What
// is sent only adds up, so it does not matter how it mixes with the rest. A split copies
// the place: the order of keys is that of slots, so what it says of the vertices of either
// half stays true.
//
//	row: version [1] | n × (vertex type, metric (uvarint) | place [12]), by vertex type and metric

// place is the beginning of the keys of a vertex: slot [2], vertex type [2], id [8].
// Places are ordered as keys are.
type place [12]byte

func placeOf(v Vertex) (p place) {
	appendVertex(p[:0], v)
	return p
}

func (p place) compare(q place) int { return bytes.Compare(p[:], q[:]) }

func (p place) slot() Slot { return Slot(binary.BigEndian.Uint16(p[:])) }

// beforeSlot is a place before, and afterSlot one behind, all vertices of a slot.
func beforeSlot(s Slot) (p place) {
	binary.BigEndian.PutUint16(p[:], uint16(s))
	return p
}

func afterSlot(s Slot) place {
	p := place(bytes.Repeat([]byte{0xff}, len(place{})))
	binary.BigEndian.PutUint16(p[:], uint16(s))
	return p
}

// derivedName names a derived counter.
type derivedName struct {
	vertex VertexType
	metric Metric
}

func (d *Derived) name() derivedName { return derivedName{d.Vertex, d.Metric} }

// backfill is a derived counter that does not count all vertices of the shard yet.
type backfill struct {
	derivedName
	upTo place
}

const backfillVersion = 1

// backfills are those of a shard, by name. A value that others can see is never changed.
type backfills []backfill

// counts reports whether the sum of a vertex is part of a derived counter.
func (b backfills) counts(d *Derived, v Vertex) bool {
	for i := range b {
		if b[i].derivedName == d.name() {
			return placeOf(v).compare(b[i].upTo) <= 0
		}
	}
	return true
}

func (b backfills) find(n derivedName) int {
	return slices.IndexFunc(b, func(f backfill) bool { return f.derivedName == n })
}

func (b backfills) encode() []byte {
	out := []byte{backfillVersion}
	for i := range b {
		out = binary.AppendUvarint(out, uint64(b[i].vertex))
		out = binary.AppendUvarint(out, uint64(b[i].metric))
		out = append(out, b[i].upTo[:]...)
	}
	return out
}

func decodeBackfills(row []byte) (backfills, error) {
	d := decoder{b: row}
	if v := d.byte(); v != backfillVersion && d.err == nil {
		d.fail("backfills: version %d", v)
	}
	var b backfills
	for len(d.b) > 0 {
		b = append(b, backfill{derivedName{VertexType(d.uint16()), Metric(d.uint16())}, d.place()})
	}
	return b, d.err
}

func (d *decoder) place() (p place) {
	if len(d.b) < len(p) {
		d.fail("message: cut short")
		return p
	}
	d.b = d.b[copy(p[:], d.b):]
	return p
}

// Backfills reports whether s declares a derived counter over edges that may be stored
// already under old, the schema before it.
func (s *Schema) Backfills(old *Schema) bool {
	for _, d := range s.addedTo(old) {
		_, sum := old.edgeByID[d.Sum]
		_, over := old.edgeByID[d.Over]
		if sum && over {
			return true
		}
	}
	return false
}

// addedTo returns the derived counters that s has and old, which may be nil, has not.
func (s *Schema) addedTo(old *Schema) (added []*Derived) {
	for _, d := range s.derived {
		if old == nil || !slices.ContainsFunc(old.derived, func(o *Derived) bool { return *o == *d }) {
			added = append(added, d)
		}
	}
	return added
}

func (s *Schema) derivedCounter(n derivedName) *Derived {
	for _, d := range s.derived {
		if d.name() == n {
			return d
		}
	}
	return nil
}

// beginBackfills notes the derived counters that the schema adds to old. Where the shard
// has no edge of one of the types, all sums are 0, and there is nothing to do.
func (m *Machine) beginBackfills(old *Schema) {
	next := slices.Clone(m.backfills)
	for _, d := range m.schema.addedTo(old) {
		if m.own != nil && m.totals.of(d.Over).n[In] > 0 && m.totals.of(d.Sum).n[In] > 0 {
			next = append(next, backfill{derivedName: d.name()})
		}
	}
	slices.SortFunc(next, func(a, b backfill) int {
		return int(a.vertex)<<16 + int(a.metric) - int(b.vertex)<<16 - int(b.metric)
	})
	m.setBackfills(next)
}

func (m *Machine) setBackfills(b backfills) {
	m.backfills, m.backfillsNew = b, true
}

// backfillStep counts the vertices past from, up to to.
type backfillStep struct {
	derivedName
	from, to place
}

func (s backfillStep) encode() []byte {
	b := binary.AppendUvarint([]byte{cmdBackfill}, uint64(s.vertex))
	b = binary.AppendUvarint(b, uint64(s.metric))
	return append(append(b, s.from[:]...), s.to[:]...)
}

func decodeBackfillStep(b []byte) (backfillStep, error) {
	d := decoder{b: b}
	s := backfillStep{derivedName{VertexType(d.uint16()), Metric(d.uint16())}, d.place(), d.place()}
	return s, d.done()
}

// applyBackfill makes a step. It does nothing where the shard is at another place: the
// step was made before.
func (m *Machine) applyBackfill(body []byte) error {
	s, err := decodeBackfillStep(body)
	if err != nil {
		return err
	}
	i := m.backfills.find(s.derivedName)
	if i < 0 || m.own == nil || m.backfills[i].upTo != s.from {
		return nil
	}
	to := s.to
	if end := afterSlot(m.own.Last); to.compare(end) >= 0 {
		to = end // the rest was split off since
	}
	if to.compare(s.from) > 0 {
		d := m.schema.derivedCounter(s.derivedName)
		owned, err := m.ownedBetween(d, s.from, to)
		if err != nil {
			return err
		}
		for _, v := range owned {
			if err := m.sendSum(d, v); err != nil {
				return err
			}
		}
	}
	next := slices.Clone(m.backfills)
	if next[i].upTo = to; to == afterSlot(m.own.Last) || s.from.compare(to) >= 0 {
		next = slices.Delete(next, i, i+1)
	}
	m.setBackfills(next)
	return nil
}

// sendSum adds the sum of a vertex to the counter of each that owns it, as the operations
// before this one left it.
func (m *Machine) sendSum(d *Derived, v Vertex) error {
	counted, err := m.open(ListKey{Vertex: v, Type: d.Sum, Dir: In})
	if err != nil {
		return err
	}
	n := int64(counted.w.Count())
	if n == 0 {
		return nil
	}
	return m.addToOwners(d, v, n)
}

// ownedBetween returns the vertices of the shard past from, up to to, that something owns:
// those of the last cut, and those that were changed since.
func (m *Machine) ownedBetween(d *Derived, from, to place) ([]Vertex, error) {
	def, _ := m.schema.EdgeTypeByID(d.Over)
	from = from.within(m.own)
	it, err := m.cfg.Store.NewIter(kv.Span{Lower: from[:], Upper: behind(to)})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	seen := map[Vertex]bool{}
	w := ownedWalk{it: it, def: def}
	for ok := w.first(from); ok; ok = w.next() {
		if w.owned {
			seen[w.at] = true
		}
	}
	if err := it.Error(); err != nil {
		return nil, err
	}
	for l := range m.lists { // any order: what it gives is sorted
		if p := placeOf(l.Vertex); l.Type == d.Over && l.Dir == In && p.compare(from) > 0 && p.compare(to) <= 0 {
			seen[l.Vertex] = true
		}
	}
	out := make([]Vertex, 0, len(seen))
	for v := range seen {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Vertex) int { return placeOf(a).compare(placeOf(b)) })
	return out, nil
}

// within leaves out of a range that begins at p the slots before a shard's own.
func (p place) within(own *Claim) place {
	if first := beforeSlot(own.First); p.compare(first) < 0 {
		return first
	}
	return p
}

// behind is the bound of all keys of vertices up to p.
func behind(p place) []byte { return append(p[:], 0xff, 0xff) }

// ownedWalk walks over the vertices that edges of a type lead to, by the keys of a store.
type ownedWalk struct {
	it    kv.Iterator
	def   *EdgeTypeDef
	at    Vertex
	owned bool // at has a list of such edges
	buf   []byte
}

// first moves to the first vertex past p.
func (w *ownedWalk) first(p place) bool {
	return w.settle(w.it.SeekGE(append(append(w.buf[:0], p[:]...), 0xff)))
}

// next moves to the next vertex.
func (w *ownedWalk) next() bool {
	return w.settle(w.it.SeekGE(append(appendVertex(w.buf[:0], w.at), 0xff)))
}

// settle finds the vertex at or behind the key at which the iterator stands.
func (w *ownedWalk) settle(ok bool) bool {
	for ok {
		k := w.it.Key()
		slot, t := binary.BigEndian.Uint16(k), VertexType(binary.BigEndian.Uint16(k[2:]))
		if t < w.def.To || len(k) < len(place{}) {
			ok = w.it.SeekGE(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(w.buf[:0], slot), uint16(w.def.To)))
			continue
		}
		if t > w.def.To {
			ok = w.it.SeekGE(binary.BigEndian.AppendUint16(w.buf[:0], slot+1))
			continue
		}
		w.at = Vertex{t, binary.BigEndian.Uint64(k[4:])}
		head := appendHeadKey(w.buf[:0], ListKey{Vertex: w.at, Type: w.def.ID, Dir: In})
		w.buf = head
		if bytes.Compare(k, head) < 0 {
			ok = w.it.SeekGE(head)
			k = nil
			if ok {
				k = w.it.Key()
			}
		}
		w.owned = bytes.HasPrefix(k, head)
		return true
	}
	return false
}

// Bounds of a step.
const (
	backfillOwned  = 128  // vertices whose sums are sent
	backfillWalked = 2048 // vertices that are looked at
)

// nextBackfill returns the step that follows what the view shows, which sends the sums of
// at most so many vertices and looks at so many; false: there is none.
func (v *view) nextBackfill(maxOwned, maxWalked int) (s backfillStep, ok bool, err error) {
	if len(v.backfills) == 0 || v.own == nil {
		return s, false, nil
	}
	f := v.backfills[0]
	s = backfillStep{f.derivedName, f.upTo, afterSlot(v.own.Last)}
	def, known := v.schema.EdgeTypeByID(v.schema.derivedCounter(f.derivedName).Over)
	if !known {
		return s, false, nil
	}
	from := f.upTo.within(v.own)
	it, err := v.snap.NewIter(kv.Span{Lower: from[:], Upper: behind(s.to)})
	if err != nil {
		return s, false, err
	}
	defer it.Close()
	w := ownedWalk{it: it, def: def}
	owned, walked := 0, 0
	for ok := w.first(from); ok; ok = w.next() {
		if w.owned {
			owned++
		}
		if walked++; owned == maxOwned || walked == maxWalked {
			s.to = placeOf(w.at)
			break
		}
	}
	return s, true, it.Error()
}

// Backfill tells how far a derived counter has come that was declared over edges which
// were there already. Until it is through, the counter lacks what is not counted yet.
type Backfill struct {
	Vertex VertexType
	Metric Metric
	Done   float64 // share of the shard's slots, below 1
}

// progress is how far the backfills of a view have come.
func (v *view) progress() []Backfill {
	if v.own == nil {
		return nil
	}
	var out []Backfill
	for _, f := range v.backfills {
		done := max(0, float64(f.upTo.slot())-float64(v.own.First))
		out = append(out, Backfill{f.vertex, f.metric, done / (float64(v.own.Last-v.own.First) + 1)})
	}
	return out
}

// addToOwners adds to the derived counters of all that own a vertex.
func (m *Machine) addToOwners(d *Derived, v Vertex, delta int64) error {
	owners, err := m.open(ListKey{Vertex: v, Type: d.Over, Dir: In})
	if err != nil {
		return err
	}
	it := owners.w.Iter(edgelist.Query{Order: edgelist.ByID})
	for it.Next() {
		m.derived.add(CounterRef{Vertex: Vertex{d.Vertex, it.Edge().Peer}, Metric: d.Metric}, delta)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list %v: %w", owners.key, err)
	}
	return nil
}

func (m *Machine) cutBackfills(b kv.Batch) error {
	key := appendLocal(nil, m.cfg.ID, localBackfills)
	switch {
	case !m.backfillsNew:
		return nil
	case len(m.backfills) == 0:
		return b.Delete(key)
	}
	return b.Set(key, m.backfills.encode())
}

func (m *Machine) loadBackfills() error {
	row, err := readLocal(m.cfg.Store, m.cfg.ID, localBackfills)
	if row == nil || err != nil {
		return err
	}
	m.backfills, err = decodeBackfills(row)
	return err
}
