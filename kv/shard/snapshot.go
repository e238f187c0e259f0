package shard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// snapshotID names the snapshot that is always there: the state itself.
const snapshotID = "state"

// snapshots is a raft.SnapshotStore that copies nothing. The state store is the
// snapshot: List answers with its applied row, so Raft starts behind it, and taking one
// is a flush. What another replica sends arrives beside Raft, and here its ticket.
type snapshots struct {
	fsm    *fsm
	pins   *pins
	behind func() bool // the state may lack a split that is in the log: see Shard.wholeLog

	mu       sync.Mutex
	received *sink // the newest that was not opened
	count    int
}

var _ raft.SnapshotStore = (*snapshots)(nil)

// List returns the position of the state as it was last cut. It is empty
// before the first entry: Raft refuses to bootstrap a group with a snapshot.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	p := *s.fsm.cut.Load()
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
		return nil, fmt.Errorf("shard %d: %w", s.fsm.shard, err)
	}
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: id, Index: p.index, Term: p.term,
		Configuration: c, ConfigurationIndex: p.configurationIndex, Size: size,
	}, nil
}

// Create begins a snapshot: one of the own state, which Close makes durable and
// nothing is written to, or the ticket to one that another replica has sent.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return &sink{of: s, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("received-%d", s.count), Index: index, Term: term,
		Configuration: c, ConfigurationIndex: configurationIndex,
	}}, nil
}

// Open returns a ticket that was received, once, or the state as it is now for a
// replica that is too far behind. Its position may be past the one that List told.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if id == snapshotID && s.behind() {
		return nil, nil, fmt.Errorf("shard %d: snapshot: what was in the log before the term is not applied yet", s.fsm.shard)
	}
	if id == snapshotID {
		return s.openState()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.received
	if r == nil || r.meta.ID != id {
		return nil, nil, fmt.Errorf("shard %d: snapshot %q is not there", s.fsm.shard, id)
	}
	s.received = nil
	return &r.meta, io.NopCloser(&r.ticket), nil
}

// openState fixes a view of the state. Who sends it is peerTransport.
func (s *snapshots) openState() (*raft.SnapshotMeta, io.ReadCloser, error) {
	out, err := s.fsm.open(s.pins)
	if err != nil {
		return nil, nil, fmt.Errorf("shard %d: snapshot: %w", s.fsm.shard, err)
	}
	m, err := s.meta(out.position, snapshotID, 0)
	if err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	return m, out, nil
}

// sink is what Raft writes a snapshot to.
type sink struct {
	of     *snapshots
	meta   raft.SnapshotMeta
	ticket bytes.Buffer
	done   bool
}

// ID implements raft.SnapshotSink.
func (r *sink) ID() string { return r.meta.ID }

// Write implements io.Writer.
func (r *sink) Write(b []byte) (int, error) {
	if r.ticket.Len()+len(b) > maxTicket {
		return 0, kv.Corruptionf("ticket of over %d bytes", maxTicket)
	}
	return r.ticket.Write(b)
}

// Cancel implements raft.SnapshotSink.
func (r *sink) Cancel() error { return nil }

// Close implements raft.SnapshotSink: what was written can be opened. One of the own
// state has nothing in it, and is a flush.
func (r *sink) Close() error {
	if r.done {
		return nil
	}
	r.done = true
	if r.ticket.Len() == 0 {
		return r.of.fsm.store.Flush()
	}
	r.meta.Size = int64(r.ticket.Len())
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.received = r // Raft takes one at a time
	return nil
}

// nothingToPersist is the raft.FSMSnapshot of a state that is already stored.
type nothingToPersist struct{}

func (nothingToPersist) Persist(raft.SnapshotSink) error { return nil }
func (nothingToPersist) Release()                        {}
