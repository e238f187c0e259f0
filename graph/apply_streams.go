package graph

import (
	"maps"
	"sync/atomic"

	"github.com/lianadb/liana/kv"
)

// stream is both directions between this shard and a peer. Records on it are
// numbered by the sender's change counter; a delivery says after which number it
// begins, so gaps are told from losses.
//
// Invariant: trimmed <= acknowledged by the peer <= last.
type stream struct {
	peer uint32

	// Outgoing.
	outEpoch uint64
	trimmed  uint64 // rows up to here are deleted
	last     uint64 // of the last record given, or reach
	reach    uint64 // the peer has to come so far, whether or not records lead there
	pred     predecessor
	outDirty bool
	renewed  bool      // rows of it went to another stream, or came from one
	open     rowWriter // records of the entry being applied

	// Incoming.
	inEpoch   uint64
	inOpen    bool   // something was delivered, or is inherited
	cursor    uint64 // up to here everything is applied
	inDirty   bool
	delivered atomic.Uint64 // cursor as published, for readers
}

// predecessor is the stream that a child's stream goes on from: of shard, up to base.
// The zero value is none.
type predecessor struct {
	shard uint32
	base  uint64
}

// stream returns the stream to peer. The map is replaced, not changed, so that
// readers may look into it at any time.
func (m *Machine) stream(peer uint32) *stream {
	old := *m.streams.Load()
	if s, ok := old[peer]; ok {
		return s
	}
	s := &stream{peer: peer}
	all := maps.Clone(old)
	all[peer] = s
	m.streams.Store(&all)
	return s
}

// outStream returns the stream to peer, and notes that it is used.
func (m *Machine) outStream(peer uint32) *stream {
	s := m.stream(peer)
	if s.last == 0 {
		s.outDirty = true
	}
	return s
}

func (s *stream) send(rec *record) {
	s.last = rec.pos
	s.open.add(rec)
}

// deliverResult answers a deliver command. Refused says why nothing was applied
// ("" where it was, or had been before); the cursor says where to go on.
type deliverResult struct {
	cursor  uint64
	refused string
	owners  owners // of slots, where the sender does not know them
}

// applyDeliver applies the part of a delivery that lies past the cursor (RULES B1).
func (m *Machine) applyDeliver(kind byte, body []byte) (deliverResult, error) {
	v, err := decodeDelivery(kind, body)
	if err != nil {
		return deliverResult{}, err
	}
	s := m.stream(v.from)
	switch {
	case v.epoch != s.inEpoch:
		return deliverResult{cursor: s.cursor, refused: "another epoch"}, nil
	case !s.inOpen && !m.follows(v.pred):
		return deliverResult{cursor: s.cursor, refused: "records of its predecessor are missing"}, nil
	case v.after > s.cursor:
		return deliverResult{cursor: s.cursor, refused: "records are missing before it"}, nil
	case v.version > m.schema.Version:
		return deliverResult{cursor: s.cursor, refused: "a newer schema"}, nil
	}
	if moved, err := m.foreign(v, s.cursor); err != nil || moved {
		return deliverResult{cursor: s.cursor, refused: "a slot is not owned", owners: m.owners}, err
	}
	if !s.inOpen {
		s.inOpen, s.inDirty = true, true
	}
	for _, row := range v.rows {
		r := readRow(row)
		for r.next() {
			if r.rec.pos <= s.cursor {
				continue
			}
			if err := m.receive(&r.rec); err != nil {
				return deliverResult{}, err
			}
			s.cursor, s.inDirty = r.rec.pos, true
		}
		if err := r.err(); err != nil {
			return deliverResult{}, err
		}
	}
	if v.upTo > s.cursor {
		s.cursor, s.inDirty = v.upTo, true
	}
	return deliverResult{cursor: s.cursor}, nil
}

// follows reports whether everything of a predecessor is applied here.
func (m *Machine) follows(p predecessor) bool {
	if p.base == 0 {
		return true
	}
	s, ok := (*m.streams.Load())[p.shard]
	return ok && s.cursor >= p.base
}

// foreign reports whether the delivery holds a record past the cursor for a slot of
// another shard.
func (m *Machine) foreign(v *delivery, cursor uint64) (bool, error) {
	for _, row := range v.rows {
		r := readRow(row)
		for r.next() {
			if r.rec.pos > cursor && !m.owns(SlotOf(r.rec.list.Vertex)) {
				return true, nil
			}
		}
		if err := r.err(); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (m *Machine) receive(rec *record) error {
	switch rec.kind {
	case recAdd, recDelete, recUpdate, recHide, recShow, recDrop:
		return m.mirror(rec)
	case recAskDelete, recAskHide, recAskShow:
		return m.grant(rec)
	case recDerived:
		return m.applyDerived(rec)
	}
	return kv.Corruptionf("record kind %d in a delivery", rec.kind)
}

func (m *Machine) applyTrim(body []byte) error {
	t, err := decodeTrim(body)
	if err != nil {
		return err
	}
	s := m.stream(t.to)
	if t.epoch != s.outEpoch || t.pos <= s.trimmed || t.pos > s.last {
		return nil
	}
	s.trimmed, s.outDirty = t.pos, true
	m.trims = append(m.trims, t)
	return nil
}
