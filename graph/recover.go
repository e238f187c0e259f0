package graph

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/lianadb/liana/kv"
)

// A shard whose majority was lost goes on from what one replica had, so two things that
// streams rest on no longer hold. What it sent last may be forgotten here, and yet be
// applied by its receivers: new records under the same numbers would be dropped there,
// silently. And what it was sent last may be forgotten here, and yet be trimmed by its
// senders: what comes next would be refused for ever.
//
// So a recovered shard gives no number a second time (recoveryGap), and lets a sender
// that has nothing older any more skip to where it begins (cmdSkip). Both make the
// streams flow again; what was lost stays missing at one end, and a check finds it.

// recoveryGap is more than the changes that a recovered shard can have lost.
const recoveryGap = 1 << 40

// RecoverCommand is what a shard applies first whose majority was lost.
func RecoverCommand() []byte { return []byte{cmdRecover} }

func (m *Machine) applyRecover() error {
	m.pos += recoveryGap
	m.recoveries++
	m.recovered = true
	// What was lost is no state to be read any more: who follows the change log has to begin
	// anew, and caches have nothing of it.
	m.changeFloor = m.pos
	for s := Slot(0); s < NumSlots; s++ {
		if m.owns(s) {
			m.touched = append(m.touched, SlotPosition{s, m.pos})
		}
	}
	return nil
}

// skip moves the cursor of a stream over what its sender does not have any more.
type skip struct {
	from       uint32
	epoch      uint64
	cursor, to uint64
}

func (s skip) encode() []byte {
	b := binary.AppendUvarint([]byte{cmdSkip}, uint64(s.from))
	b = binary.AppendUvarint(b, s.epoch)
	b = binary.AppendUvarint(b, s.cursor)
	return binary.AppendUvarint(b, s.to)
}

func decodeSkip(b []byte) (skip, error) {
	d := decoder{b: b}
	s := skip{from: d.uint32(), epoch: d.uvarint(), cursor: d.uvarint(), to: d.uvarint()}
	return s, d.done()
}

// applySkip takes no notice of a skip that was overtaken, nor of any in a shard that was
// never recovered: it has lost nothing.
func (m *Machine) applySkip(body []byte) (deliverResult, error) {
	k, err := decodeSkip(body)
	if err != nil {
		return deliverResult{}, err
	}
	s := m.stream(k.from)
	if m.recoveries > 0 && s.inEpoch == k.epoch && s.cursor == k.cursor && k.to > k.cursor {
		s.cursor, s.inDirty = k.to, true
	}
	return deliverResult{cursor: s.cursor}, nil
}

// cutRecoveries writes how often the shard was recovered: version [1] | count [8].
func (m *Machine) cutRecoveries(b kv.Batch) error {
	if !m.recovered {
		return nil
	}
	m.recovered = false
	return b.Set(appendLocal(nil, m.cfg.ID, localRecoveries), encodeRecoveries(m.recoveries))
}

func encodeRecoveries(n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{recoveriesVersion}, n)
}

const recoveriesVersion = 1

func (m *Machine) loadRecoveries() error {
	row, err := readLocal(m.cfg.Store, m.cfg.ID, localRecoveries)
	if row == nil || err != nil {
		return err
	}
	if len(row) != 9 || row[0] != recoveriesVersion {
		return kv.Corruptionf("row of recoveries of %d bytes", len(row))
	}
	m.recoveries = binary.BigEndian.Uint64(row[1:])
	return nil
}

// broken takes note that the receiver has lost what it had acknowledged, up to where
// its cursor is now. What the sender has still is sent again; what it has not is skipped.
func (s *sender) broken(ctx context.Context, cursor uint64) error {
	s.mu.Lock()
	s.acked = max(cursor, s.trimmed)
	s.mu.Unlock()
	if cursor >= s.trimmed {
		return fmt.Errorf("shard %d has lost records that it had acknowledged; they are sent again", s.to)
	}
	k := skip{from: s.o.m.cfg.ID, epoch: s.epoch, cursor: cursor, to: s.trimmed}
	p, _, err := s.o.peers.deliver(ctx, s.to, k.encode())
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := p.Result(); err != nil {
		return err
	}
	return fmt.Errorf("shard %d has lost records %d to %d, which are not here any more", s.to, cursor+1, s.trimmed)
}

// ReplicaParts names the state of a shard in the store of a node that is stopped.
func ReplicaParts(store kv.Store, id uint32, shards int) (kv.Parts, error) {
	m, err := openMachine(MachineConfig{ID: id, Founding: shards, Store: store}, newPageCache(1<<20))
	if err != nil {
		return kv.Parts{}, fmt.Errorf("shard %d: %w", id, err)
	}
	defer m.Close()
	return m.Parts(), nil
}
