package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// Restore takes over a state that has arrived (RULES A4 to A6). Raft brings only the
// ticket to it. A state that is older than what was applied is refused, one as old is
// taken for done.
func (s *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxTicket))
	if err != nil {
		return fmt.Errorf("shard %d: restore: %w", s.shard, err)
	}
	t, err := decodeTicket(b)
	if err != nil {
		return fmt.Errorf("shard %d: restore: %w", s.shard, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fault.get(); err != nil {
		return err
	}
	switch p := t.position; {
	case p.index < s.applied.index:
		return fmt.Errorf("shard %d: restore: the snapshot stands at entry %d, applied are %d", s.shard, p.index, s.applied.index)
	case p.index == s.applied.index:
		return nil
	}
	if err := s.install(t); err != nil {
		return fmt.Errorf("shard %d: install the snapshot of entry %d: %w", s.shard, t.position.index, err)
	}
	return s.takeOver(t.position)
}

// install replaces the state in the store by the one that a ticket is for.
func (s *fsm) install(t ticket) error {
	a := s.arrivals.take(t.number)
	if a == nil {
		return errNotArrived
	}
	defer a.rows.Close()
	parts, err := s.replaces(a.data)
	if err != nil {
		return err
	}
	if !bytes.Equal(a.position.encode(), t.position.encode()) || !sameParts(a.parts, parts) {
		return errNotArrived // the state's bounds are others than when it began to arrive
	}
	s.replacing.Add(1)
	return a.rows.Commit([]kv.Row{
		{Key: stateRowKey(stateApplied, s.shard), Value: t.position.encode()},
		{Key: stateRowKey(stateInstalled, s.shard), Value: installedRow{t.position.index, t.position.term}.encode()},
	})
}

// takeOver goes on from what was installed. A failure from here on is a fault: the
// store is at another place than the machine.
func (s *fsm) takeOver(p position) error {
	s.applied, s.pending = p, 0
	s.installedAt = installedRow{p.index, p.term}
	s.cut.Store(&p)
	s.reached.Store(p.index)
	s.installs.Add(1)
	err := s.machine.Restore()
	if err == nil {
		s.machine.Publish(p.index)
		s.noteSplit()
		s.fresh.reached(p.index)
		err = s.installed(s.installedAt)
	}
	if err != nil {
		s.fault.set(fmt.Errorf("shard %d: after an install: %w", s.shard, err))
	}
	return err
}

// installedRow names the entry that an installed snapshot stands at. It lies in the
// state until an entry behind it is cut: while it does, the log may be empty, or of a
// branch that the snapshot has made void.
type installedRow struct{ index, term uint64 }

func (r installedRow) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{rowVersion}, r.index)
	return binary.BigEndian.AppendUint64(b, r.term)
}

func readInstalled(store kv.Reader, shard uint32) (installedRow, error) {
	b, err := store.Get(nil, stateRowKey(stateInstalled, shard))
	if errors.Is(err, kv.ErrNotFound) {
		return installedRow{}, nil
	}
	if err != nil {
		return installedRow{}, fmt.Errorf("shard %d: installed row: %w", shard, err)
	}
	r, err := decodeInstalled(b)
	if err != nil {
		return r, fmt.Errorf("shard %d: %w", shard, err)
	}
	return r, nil
}

func decodeInstalled(b []byte) (installedRow, error) {
	if len(b) != 17 || b[0] != rowVersion {
		return installedRow{}, kv.Corruptionf("installed row of %d bytes: unknown version", len(b))
	}
	return installedRow{binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])}, nil
}

// discardStale deletes a log that an installed snapshot made void: one that does not
// hold the entry the snapshot stands at, and does not follow it (RULES A4).
func (l *logStore) discardStale(r installedRow) (discarded bool, last uint64, err error) {
	first, last := l.bounds()
	if r.index == 0 || last == 0 || first == r.index+1 {
		return false, last, nil
	}
	if first <= r.index && r.index <= last {
		var at raft.Log
		if err := l.GetLog(r.index, &at); err != nil {
			return false, last, err
		}
		if at.Term == r.term {
			return false, last, nil
		}
	}
	if err := l.DeleteRange(first, last); err != nil {
		return false, last, err
	}
	return true, last, l.sync()
}

// sync makes deletions durable.
func (l *logStore) sync() error {
	b := l.store.NewBatch()
	defer b.Close()
	// A batch without content would not be written.
	if err := b.Delete(l.key(0)); err != nil {
		return l.fail("sync", err)
	}
	if err := b.Commit(kv.Sync); err != nil {
		return l.fail("sync", err)
	}
	return nil
}
