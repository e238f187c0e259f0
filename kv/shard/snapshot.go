package shard

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// snapshotID names the only snapshot there is: the state itself.
const snapshotID = "state"

// snapshots is a raft.SnapshotStore that copies nothing. The state store is
// the snapshot: List answers with its applied row, so Raft starts behind it,
// and taking one is a flush.
type snapshots struct {
	shard uint32
	cut   func() position
	flush func() error
}

var _ raft.SnapshotStore = snapshots{}

// List returns the position of the state as it was last cut. It is empty
// before the first entry: Raft refuses to bootstrap a group with a snapshot.
func (s snapshots) List() ([]*raft.SnapshotMeta, error) {
	p := s.cut()
	if p.index == 0 {
		return nil, nil
	}
	c, err := decodeConfiguration(p.configuration)
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", s.shard, err)
	}
	return []*raft.SnapshotMeta{{
		Version:            raft.SnapshotVersionMax,
		ID:                 snapshotID,
		Index:              p.index,
		Term:               p.term,
		Configuration:      c,
		ConfigurationIndex: p.configurationIndex,
	}}, nil
}

// Create begins a snapshot. Raft calls it to take one of its own state, which
// Close makes durable, and to receive one, which Write refuses.
func (s snapshots) Create(raft.SnapshotVersion, uint64, uint64, raft.Configuration, uint64, raft.Transport) (raft.SnapshotSink, error) {
	return snapshotSink{s}, nil
}

// Open would read the state for a follower that is too far behind.
func (s snapshots) Open(string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	return nil, nil, fmt.Errorf("shard %d: open a snapshot: %w", s.shard, ErrNotReplicated)
}

type snapshotSink struct{ snapshots }

func (s snapshotSink) ID() string    { return snapshotID }
func (s snapshotSink) Cancel() error { return nil }
func (s snapshotSink) Close() error  { return s.flush() }

func (s snapshotSink) Write([]byte) (int, error) {
	return 0, fmt.Errorf("shard %d: receive a snapshot: %w", s.shard, ErrNotReplicated)
}

// nothingToPersist is the raft.FSMSnapshot of a state that is already stored.
type nothingToPersist struct{}

func (nothingToPersist) Persist(raft.SnapshotSink) error { return nil }
func (nothingToPersist) Release()                        {}
