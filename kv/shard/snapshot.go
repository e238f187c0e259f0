package shard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// snapshotID names the snapshot that is always there: the state itself.
const snapshotID = "state"

// snapshots is a raft.SnapshotStore that copies nothing until another replica needs
// it. The state store is the snapshot: List answers with its applied row, so Raft
// starts behind it, and taking one is a flush. Those received lie in nameless files
// until Raft restores them; one that is never restored is gone with the process.
type snapshots struct {
	shard uint32
	store kv.Store
	dir   string // for files on their way
	parts func() kv.Parts
	cut   func() position
	pins  *pins
	// replacing counts the installs that have begun. A view that was taken before one
	// may lose rows to it (RULES 8).
	replacing func() uint64

	mu       sync.Mutex
	received map[string]*receivedSnapshot
	count    int
}

var _ raft.SnapshotStore = (*snapshots)(nil)

// List returns the position of the state as it was last cut. It is empty
// before the first entry: Raft refuses to bootstrap a group with a snapshot.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	p := s.cut()
	if p.index == 0 {
		return nil, nil
	}
	m, err := s.meta(p, snapshotID, 0)
	if err != nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{m}, nil
}

func (s *snapshots) meta(p position, id string, size int64) (*raft.SnapshotMeta, error) {
	c, err := decodeConfiguration(p.configuration)
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", s.shard, err)
	}
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: id, Index: p.index, Term: p.term,
		Configuration: c, ConfigurationIndex: p.configurationIndex, Size: size,
	}, nil
}

// Create begins a snapshot: one of the own state, which Close makes durable and
// nothing is written to, or one that another replica sends.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	f, err := spool(s.dir)
	if err != nil {
		return nil, fmt.Errorf("shard %d: receive a snapshot: %w", s.shard, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return &receivedSnapshot{File: f, of: s, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("received-%d", s.count), Index: index, Term: term,
		Configuration: c, ConfigurationIndex: configurationIndex,
	}}, nil
}

// Open returns a snapshot that was received, once, or the state as it is now for a
// replica that is too far behind. Its position may be past the one that List told.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if id == snapshotID {
		return s.openState()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.received[id]
	if !ok {
		return nil, nil, fmt.Errorf("shard %d: snapshot %q is not there", s.shard, id)
	}
	delete(s.received, id)
	return &r.meta, r.File, nil
}

// openState fixes a view of the state. Its size is not known yet: see outgoing.
func (s *snapshots) openState() (*raft.SnapshotMeta, io.ReadCloser, error) {
	pin, replaced := s.pins.add(s.cut().index), s.replacing() // before the view is taken
	view, err := s.store.NewSnapshot()
	if err != nil {
		pin.drop()
		return nil, nil, fmt.Errorf("shard %d: snapshot: %w", s.shard, err)
	}
	out := &outgoing{of: s, pin: pin, view: view, replaced: replaced}
	if out.position, err = readPosition(view.Get, s.shard); err == nil {
		var m *raft.SnapshotMeta
		if m, err = s.meta(out.position, snapshotID, 0); err == nil {
			return m, out, nil
		}
	}
	return nil, nil, errors.Join(err, out.Close())
}

// receivedSnapshot is a snapshot that is, or was, being received.
type receivedSnapshot struct {
	*os.File
	of   *snapshots
	meta raft.SnapshotMeta
	done bool
}

// ID implements raft.SnapshotSink.
func (r *receivedSnapshot) ID() string { return r.meta.ID }

// Cancel implements raft.SnapshotSink.
func (r *receivedSnapshot) Cancel() error { return r.File.Close() }

// Close implements raft.SnapshotSink: what was written can be opened. One of the own
// state has nothing in it, and is a flush.
func (r *receivedSnapshot) Close() error {
	if r.done {
		return nil
	}
	r.done = true
	size, err := r.Seek(0, io.SeekCurrent)
	if err == nil && size == 0 {
		return errors.Join(r.of.store.Flush(), r.File.Close())
	}
	if err == nil {
		_, err = r.Seek(0, io.SeekStart)
	}
	if err != nil {
		return errors.Join(err, r.File.Close())
	}
	r.meta.Size = size
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if r.of.received == nil {
		r.of.received = make(map[string]*receivedSnapshot)
	}
	for id, old := range r.of.received { // never restored: Raft takes one at a time
		_ = old.File.Close()
		delete(r.of.received, id)
	}
	r.of.received[r.meta.ID] = r
	return nil
}

// nothingToPersist is the raft.FSMSnapshot of a state that is already stored.
type nothingToPersist struct{}

func (nothingToPersist) Persist(raft.SnapshotSink) error { return nil }
func (nothingToPersist) Release()                        {}
