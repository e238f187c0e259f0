package graph

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
	"github.com/lianadb/liana/kv/shard"
)

// A split and newer claims act at the end of their entry, and a cut follows at once:
// what the entry did before is in the outbox rows then, and nothing is left to be cut
// of counters of slots that go away (RULES D2).

// pendingSplits is what an entry asks for at its end.
type pendingSplits struct {
	claims owners // nil: none
	split  *split
}

// splitResult answers a split command. Refused says why nothing is split ("" where it
// is, or was before).
type splitResult struct{ refused string }

// applySplit notes that the shard is to be split at the end of the entry.
func (m *Machine) applySplit(body []byte) (splitResult, error) {
	s, err := decodeSplit(body)
	if err != nil {
		return splitResult{}, err
	}
	if child := m.owners.own(s.child); child != nil {
		if child.First == s.at {
			return splitResult{}, nil // before
		}
		return splitResult{fmt.Sprintf("there is a shard %d already, from slot %d on", s.child, child.First)}, nil
	}
	switch {
	case s.child >= MaxShards:
		return splitResult{fmt.Sprintf("shard %d: numbers are below %d", s.child, MaxShards)}, nil
	case m.own == nil || s.at <= m.own.First || s.at > m.own.Last:
		return splitResult{fmt.Sprintf("slot %d does not part the shard's slots: both halves need one", s.at)}, nil
	case m.ends.split != nil:
		return splitResult{"it is being split elsewhere"}, nil
	}
	m.ends.split = &s
	return splitResult{}, nil
}

// applyClaims notes newer claims to slots.
func (m *Machine) applyClaims(body []byte) error {
	o, err := decodeOwners(body)
	if err != nil {
		return err
	}
	if m.ends.claims != nil {
		o = m.ends.claims.merge(o)
	}
	m.ends.claims = o
	return nil
}

// endSplits does what the entry asked for.
func (m *Machine) endSplits() error {
	ends := m.ends
	m.ends = pendingSplits{}
	m.due = shard.Due{}
	if ends.claims != nil {
		if err := m.takeClaims(ends.claims); err != nil {
			return err
		}
	}
	if ends.split != nil {
		return m.splitOff(*ends.split)
	}
	return nil
}

// WasSplit implements shard.Splitter.
func (m *Machine) WasSplit() bool { return m.family != nil }

// AfterEntry implements shard.Splitter.
func (m *Machine) AfterEntry() shard.Due { return m.due }

// takeClaims puts newer claims to slots of other shards into force, and moves what is
// owed to their former owners.
func (m *Machine) takeClaims(claims owners) error {
	next := m.owners.merge(claims)
	if len(next) == len(m.owners) && &next[0] == &m.owners[0] {
		return nil
	}
	if own := next.own(m.cfg.ID); own == nil || m.own == nil || *own != *m.own {
		return nil // only its own log splits a shard
	}
	heirs := m.heirs(next)
	for _, parent := range slices.Sorted(maps.Keys(heirs)) {
		for _, heir := range heirs[parent] {
			if m.stream(heir).last > 0 {
				return nil // claims that do not belong together: a shard is born with all of its slots
			}
		}
	}
	for _, parent := range slices.Sorted(maps.Keys(heirs)) {
		if err := m.handOn(m.stream(parent), heirs[parent], next); err != nil {
			return fmt.Errorf("outbox to %d: %w", parent, err)
		}
	}
	m.owners, m.ownersNew, m.ownersTold = next, true, false
	m.due.Cut = true
	return nil
}

// heirs are the shards, ascending, that have slots in next which others have now.
func (m *Machine) heirs(next owners) map[uint32][]uint32 {
	out := map[uint32][]uint32{}
	for s := range Slot(NumSlots) {
		old, now := m.owners.of(s).Shard, next.of(s).Shard
		if old != now && !slices.Contains(out[old], now) {
			out[old] = append(out[old], now)
			slices.Sort(out[old])
		}
	}
	return out
}

// handOn moves what the outbox holds for slots of a parent's heirs to their streams.
// Each heir has the cursor that its parent had when it was born, and what its parent
// acknowledged later is not the heir's; so the heir's stream is complete from its
// beginning to reach, under the same numbers.
func (m *Machine) handOn(from *stream, heirs []uint32, next owners) error {
	if from.last == 0 {
		return nil
	}
	from.reach, from.outDirty, from.renewed = from.last, true, true
	for _, id := range heirs {
		s := m.stream(id)
		s.last, s.reach, s.pred = from.last, from.last, from.pred
		s.outDirty, s.renewed = true, true
	}
	if err := m.divideStored(from, next); err != nil {
		return err
	}
	var rows []row
	for _, r := range m.rows {
		if r.to != from {
			rows = append(rows, r)
			continue
		}
		parts, err := m.divide(r.value, next)
		if err != nil {
			return err
		}
		rows = append(rows, parts...)
	}
	m.rows = rows
	return nil
}

// divideStored divides the rows of a stream that are in the store.
func (m *Machine) divideStored(from *stream, next owners) error {
	it, err := m.cfg.Store.NewIter(kv.Span{
		Lower: outboxKey(nil, m.cfg.ID, from.peer, from.trimmed+1),
		Upper: binary.BigEndian.AppendUint32(appendLocal(nil, m.cfg.ID, localOutbox), from.peer+1),
	})
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var value []byte
		var parts []row
		if value, err = it.Value(); err == nil {
			parts, err = m.divide(value, next)
		}
		if err != nil || len(parts) == 1 && parts[0].to == from {
			continue
		}
		m.rewrites = append(m.rewrites, row{key: bytes.Clone(it.Key())})
		m.rewrites = append(m.rewrites, parts...)
	}
	return errors.Join(err, it.Error(), it.Close())
}

// divide returns the rows that a row of the outbox becomes: one for each shard that
// owns slots of its records.
func (m *Machine) divide(value []byte, next owners) ([]row, error) {
	writers := map[uint32]*rowWriter{}
	r := readRow(value)
	for r.next() {
		to := next.of(SlotOf(r.rec.list.Vertex)).Shard
		if writers[to] == nil {
			writers[to] = &rowWriter{}
		}
		writers[to].add(&r.rec)
	}
	var out []row
	for _, to := range slices.Sorted(maps.Keys(writers)) {
		w := writers[to]
		out = append(out, row{key: outboxKey(nil, m.cfg.ID, to, w.pos), value: w.buf, last: w.pos, to: m.stream(to)})
	}
	return out, r.err()
}

// child is the state of a shard that was split off, to be written with the next cut.
type child struct {
	split
	rows []kv.Row // its own rows but those of its trees
}

// splitOff gives slots to a child. Lists, counters and answers lie by slot and stay
// where they are; the child's own rows are made of the parent's as they are now.
func (m *Machine) splitOff(s split) error {
	m.pos++ // a change of all slots that move (CACHE.md V2)
	gen := m.own.Gen + 1
	next := m.owners.merge([]Claim{
		{First: m.own.First, Last: s.at - 1, Shard: m.cfg.ID, Gen: gen},
		{First: s.at, Last: m.own.Last, Shard: s.child, Gen: gen},
	})
	if m.family == nil {
		m.family = &family{founder: m.cfg.ID, first: m.own.First, last: m.own.Last}
	}
	m.noteSplit(s)
	m.child = &child{split: s, rows: m.childRows(s.child, next)}
	m.owners, m.own = next, next.own(m.cfg.ID)
	m.ownersNew, m.ownersTold = true, false
	m.due = shard.Due{Cut: true, Split: true, Child: s.child}
	return nil
}

// noteSplit tells who follows the change log where the slots go on.
func (m *Machine) noteSplit(s split) {
	w := rowWriter{}
	w.add(&record{pos: m.pos, kind: recSplit, value: int64(s.child)<<16 | int64(s.at)})
	m.rows = append(m.rows, row{key: changeKey(nil, m.cfg.ID, m.pos), value: w.buf, last: m.pos})
}

// childRows are the rows that a child begins with.
func (m *Machine) childRows(id uint32, o owners) []kv.Row {
	own := func(family byte) []byte { return appendLocal(nil, id, family) }
	f := *m.family
	f.base = slices.Clone(m.totals)
	rows := []kv.Row{
		{Key: own(localMeta), Value: encodeMeta(m.timeline, m.pos, m.pos)},
		{Key: own(localSchema), Value: m.schema.encode()},
		{Key: own(localOwners), Value: o.encode()},
		{Key: own(localTotals), Value: m.totals.encode()},
		{Key: own(localFamily), Value: f.encode()},
		{Key: own(localBirth), Value: Birth{Parent: m.cfg.ID, Base: m.pos}.encode()},
	}
	if m.recoveries > 0 {
		rows = append(rows, kv.Row{Key: own(localRecoveries), Value: encodeRecoveries(m.recoveries)})
	}
	if len(m.backfills) > 0 {
		rows = append(rows, kv.Row{Key: own(localBackfills), Value: m.backfills.encode()})
	}
	for _, s := range m.sortedStreams() {
		if s.last > 0 {
			out := stream{reach: s.last, pred: predecessor{m.cfg.ID, s.last}}
			rows = append(rows, kv.Row{Key: streamKey(nil, id, localStreamOut, s.peer), Value: encodeOut(&out)})
		}
		if s.inOpen {
			rows = append(rows, kv.Row{Key: streamKey(nil, id, localStreamIn, s.peer), Value: encodeStream(s.inEpoch, s.cursor)})
		}
	}
	return rows
}

// cutSplits writes what a split and newer claims left to be written, behind all else.
func (m *Machine) cutSplits(b kv.Batch) error {
	for _, r := range m.rewrites {
		var err error
		if r.value == nil {
			err = b.Delete(r.key)
		} else {
			err = b.Set(r.key, r.value)
		}
		if err != nil {
			return err
		}
	}
	if m.child == nil {
		return nil
	}
	if err := b.Set(appendLocal(nil, m.cfg.ID, localFamily), m.family.encode()); err != nil {
		return err
	}
	for _, r := range m.child.rows {
		if err := b.Set(r.Key, r.Value); err != nil {
			return err
		}
	}
	return m.moveTrees(b)
}

// moveTrees gives the child the rows of its lists in tree form: those stored, as the
// cut changes them.
func (m *Machine) moveTrees(b kv.Batch) error {
	own := appendLocal(nil, m.cfg.ID, localTree)
	span := kv.Span{Lower: binary.BigEndian.AppendUint16(bytes.Clone(own), uint16(m.child.at)), Upper: kv.PrefixSpan(own).Upper}
	trees := map[string]bool{}
	it, err := m.cfg.Store.NewIter(span)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		trees[string(it.Key()[len(own):])] = true
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return err
	}
	for head, tree := range m.treesNoted {
		if bytes.Compare(append(bytes.Clone(own), head...), span.Lower) >= 0 {
			trees[head] = tree
		}
	}
	if err := b.DeleteRange(span); err != nil {
		return err
	}
	for _, head := range slices.Sorted(maps.Keys(trees)) {
		if !trees[head] {
			continue
		}
		if err := b.Set(append(appendLocal(nil, m.child.child, localTree), head...), nil); err != nil {
			return err
		}
	}
	return nil
}

// publishSplits goes on after a cut with what a split changed in memory.
func (m *Machine) publishSplits() error {
	m.rewrites = nil
	clear(m.treesNoted)
	if m.child == nil {
		return nil
	}
	id := m.child.child
	m.child = nil
	m.marks.drop(m.own)
	var err error
	if m.counters, err = counter.Open(m.counterConfig(m.own), m.cfg.Store); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	if m.cfg.Born != nil {
		m.cfg.Born(id)
	}
	return nil
}

// family are the shards that came from one shard of the founding by splits. Their
// totals together are exact: a child begins with those of its parent, which it takes
// for too many, and notes them in base.
//
//	row: version [1] | founder, first slot, last slot (uvarint) | base as a row of totals
type family struct {
	founder     uint32
	first, last Slot
	base        totals
}

const familyVersion = 1

func (f *family) encode() []byte {
	b := binary.AppendUvarint([]byte{familyVersion}, uint64(f.founder))
	b = binary.AppendUvarint(b, uint64(f.first))
	b = binary.AppendUvarint(b, uint64(f.last))
	return append(b, f.base.encode()...)
}

func decodeFamily(b []byte) (*family, error) {
	d := decoder{b: b}
	if v := d.byte(); v != familyVersion && d.err == nil {
		d.fail("family: version %d", v)
	}
	f := &family{founder: d.uint32(), first: d.slot(), last: d.slot()}
	if d.err != nil {
		return nil, d.err
	}
	var err error
	f.base, err = decodeTotals(d.b)
	return f, err
}

// Birth says of which shard a shard was split off, and up to which position changes of
// its slots are told by the log of that one.
//
//	row: version [1] | parent, base (uvarint)
type Birth struct {
	Parent uint32
	Base   uint64
}

const birthVersion = 1

func (b Birth) encode() []byte {
	out := binary.AppendUvarint([]byte{birthVersion}, uint64(b.Parent))
	return binary.AppendUvarint(out, b.Base)
}

func decodeBirth(row []byte) (*Birth, error) {
	d := decoder{b: row}
	if v := d.byte(); v != birthVersion && d.err == nil {
		d.fail("birth: version %d", v)
	}
	b := &Birth{Parent: d.uint32(), Base: d.uvarint()}
	return b, d.done()
}

// Replaces implements shard.Splitter: the slots that the state here owns and those of
// the one that comes, without those of other replicas on this node. Where another one
// has slots that come, the state is of before a split that this node has seen the child
// of: it is refused, and a newer one comes (RULES F2).
func (m *Machine) Replaces(in kv.Parts) (kv.Parts, error) {
	first, end, ok := slotsOf(in.Data)
	if !ok {
		return in, nil // it owns nothing
	}
	lo, hi := first, end
	if m.own != nil {
		lo, hi = min(lo, int(m.own.First)), max(hi, int(m.own.Last)+1)
	}
	for _, c := range m.others() {
		switch {
		case int(c.First) < end && int(c.Last) >= first:
			return in, fmt.Errorf("shard %d: slots %d to %d are to come, and shard %d has slots %d to %d here", m.cfg.ID, first, end-1, c.Shard, c.First, c.Last)
		case int(c.First) >= end:
			hi = min(hi, int(c.First))
		default:
			lo = max(lo, int(c.Last)+1)
		}
	}
	in.Data = kv.Span{Lower: binary.BigEndian.AppendUint16(nil, uint16(lo)), Upper: binary.BigEndian.AppendUint16(nil, uint16(hi))}
	return in, nil
}

// slotsOf returns the slots, end not included, of a data span.
func slotsOf(s kv.Span) (first, end int, ok bool) {
	if len(s.Lower) != 2 || len(s.Upper) != 2 {
		return 0, 0, false
	}
	return int(binary.BigEndian.Uint16(s.Lower)), int(binary.BigEndian.Uint16(s.Upper)), true
}

// others are the claims of the other replicas on this node.
func (m *Machine) others() []Claim {
	if m.cfg.Others == nil {
		return nil
	}
	return m.cfg.Others(m.cfg.ID)
}

// routes are the owners of slots as the records of this shard follow them. n counts
// their changes.
type routes struct {
	owners
	n uint64
}

// renewStreams tells the senders which of their rows are not where they were. Writes
// that wait find the new routes first.
func (m *Machine) renewStreams() {
	for _, s := range m.sortedStreams() {
		if s.renewed {
			m.outbox.renew(s, m.routes.Load().n)
			s.renewed = false
		}
	}
}
