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
	last     uint64 // of the last record given
	outDirty bool
	open     rowWriter // records of the entry being applied

	// Incoming.
	inEpoch   uint64
	cursor    uint64 // of the last record applied
	inDirty   bool
	delivered atomic.Uint64 // cursor as published, for readers
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
}

// applyDeliver applies the part of a delivery that lies past the cursor (RULES B1).
func (m *Machine) applyDeliver(body []byte) (deliverResult, error) {
	v, err := decodeDelivery(body)
	if err != nil {
		return deliverResult{}, err
	}
	s := m.stream(v.from)
	switch {
	case v.epoch != s.inEpoch:
		return deliverResult{s.cursor, "another epoch"}, nil
	case v.after > s.cursor:
		return deliverResult{s.cursor, "records are missing before it"}, nil
	case v.version > m.schema.Version:
		return deliverResult{s.cursor, "a newer schema"}, nil
	}
	if moved, err := m.foreign(v); err != nil || moved {
		return deliverResult{s.cursor, "a slot is not owned"}, err
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
	return deliverResult{cursor: s.cursor}, nil
}

// foreign reports whether the delivery holds a record for a slot of another shard.
func (m *Machine) foreign(v *delivery) (bool, error) {
	for _, row := range v.rows {
		r := readRow(row)
		for r.next() {
			if !m.owns(SlotOf(r.rec.list.Vertex)) {
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
	case recAdd, recDelete, recUpdate:
		return m.mirror(rec)
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
