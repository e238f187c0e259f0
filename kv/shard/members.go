package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// Member is one replica of a shard, as this replica knows the configuration.
type Member struct {
	Replica, Node string
	Voter         bool
	Last          uint64 // the last entry that it has, where it was asked (Progress) and answered
}

const (
	// membersTime bounds a change of members where the context does not.
	membersTime = 10 * time.Second
	// promoteLag is how many entries a learner may lack when it becomes a voter: about
	// what a log keeps in any case.
	promoteLag = 1024
)

// Members returns the replicas of the shard as this one knows them.
func (s *Shard) Members() []Member {
	f := s.raft().GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return membersOf(f.Configuration())
}

// Progress returns the members with the entries that they have, as far as they tell
// before ctx ends.
func (s *Shard) Progress(ctx context.Context) []Member {
	members := s.Members()
	var others []string
	at := map[string]*Member{}
	for i := range members {
		m := &members[i]
		if m.Replica == s.replica {
			m.Last = s.lastEntry()
			continue
		}
		others, at[m.Replica] = append(others, m.Replica), m
	}
	answers := s.lines.ask(others)
	for range others {
		select {
		case a := <-answers:
			at[a.replica].Last = a.last
		case <-ctx.Done():
			return members
		}
	}
	return members
}

// lastEntry is the last entry that the replica has. Behind a state that it was sent, or
// born with, its log is empty until the next one.
func (s *Shard) lastEntry() uint64 {
	_, last := s.log.bounds()
	return max(last, s.fsm.reached.Load())
}

// AddLearner adds a replica that follows and does not vote. Adding it again changes
// nothing. One that is new is sent the state rather than a long log, or the log of a shard
// that was split; so what is in the log is applied first.
func (s *Shard) AddLearner(ctx context.Context, replica string) error {
	err := s.reconfigure(ctx, "apply all before adding", replica, func(t time.Duration) raft.Future { return s.raft().Barrier(t) })
	if err != nil {
		return err
	}
	if err := s.shorten(ctx, replica); err != nil {
		return fmt.Errorf("shard %d: cut the log before %s is added: %w", s.id, replica, err)
	}
	return s.reconfigure(ctx, "add", replica, func(t time.Duration) raft.Future {
		return s.raft().AddNonvoter(raft.ServerID(replica), raft.ServerAddress(replica), 0, t)
	})
}

// Promote makes a learner a voter. One that does not answer, or lacks more than about
// a thousand entries, is ErrLagging: as a voter it could take the group its majority.
func (s *Shard) Promote(ctx context.Context, replica string) error {
	var m *Member
	members := s.Progress(ctx)
	for i := range members {
		if members[i].Replica == replica {
			m = &members[i]
		}
	}
	_, last := s.log.bounds()
	switch {
	case m == nil:
		return fmt.Errorf("shard %d: promote %s: it is no member", s.id, replica)
	case m.Last == 0:
		return fmt.Errorf("shard %d: promote %s: %w: it does not answer", s.id, replica, ErrLagging)
	case m.Last+promoteLag < last:
		return fmt.Errorf("shard %d: promote %s: %w: it has entries up to %d of %d", s.id, replica, ErrLagging, m.Last, last)
	}
	return s.reconfigure(ctx, "promote", replica, func(t time.Duration) raft.Future {
		return s.raft().AddVoter(raft.ServerID(replica), raft.ServerAddress(replica), 0, t)
	})
}

// RemoveReplica takes a replica out of the group. Removing it again changes nothing.
// Where the voters that are left and answer would be no majority, it is ErrNoQuorum.
func (s *Shard) RemoveReplica(ctx context.Context, replica string) error {
	voters, answer := 0, 0
	for _, m := range s.Progress(ctx) {
		if !m.Voter || m.Replica == replica {
			continue
		}
		voters++
		if m.Last > 0 {
			answer++
		}
	}
	if answer <= voters/2 {
		return fmt.Errorf("shard %d: remove %s: %w: %d of %d voters answer", s.id, replica, ErrNoQuorum, answer, voters)
	}
	err := s.reconfigure(ctx, "remove", replica, func(t time.Duration) raft.Future {
		return s.raft().RemoveServer(raft.ServerID(replica), 0, t)
	})
	if err == nil {
		s.lines.forget(replica)
	}
	return err
}

// TransferLeadership hands the leadership to a voter; "" is any that is up to date.
func (s *Shard) TransferLeadership(ctx context.Context, replica string) error {
	others, _ := s.voters()
	if replica != "" && !slices.Contains(others, replica) {
		return fmt.Errorf("shard %d: hand the leadership to %s: it is no other voter", s.id, replica)
	}
	if replica != "" && !s.answers(ctx, replica) {
		// Raft would begin, and the second transfer to a peer that is gone would never
		// end: the leader would refuse every write from then on.
		return fmt.Errorf("shard %d: hand the leadership to %s: %w: it does not answer", s.id, replica, ErrLagging)
	}
	return s.reconfigure(ctx, "hand the leadership to", replica, func(time.Duration) raft.Future {
		if replica == "" {
			return s.raft().LeadershipTransfer()
		}
		return s.raft().LeadershipTransferToServer(raft.ServerID(replica), raft.ServerAddress(replica))
	})
}

// answers reports whether a replica tells how far it is, soon.
func (s *Shard) answers(ctx context.Context, replica string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*s.heartbeat())
	defer cancel()
	select {
	case a := <-s.lines.ask([]string{replica}):
		return a.err == nil
	case <-ctx.Done():
		return false
	}
}

func (s *Shard) reconfigure(ctx context.Context, what, replica string, change func(time.Duration) raft.Future) error {
	if s.proposer.openTerm.Load() == 0 {
		return fmt.Errorf("shard %d: %s %s: %w", s.id, what, replica, ErrNotLeader)
	}
	patience := membersTime
	if end, ok := ctx.Deadline(); ok {
		patience = time.Until(end)
	}
	if err := await(ctx, change(patience)); err != nil {
		return fmt.Errorf("shard %d: %s %s: %w", s.id, what, replica, err)
	}
	return nil
}

// await waits for Raft's answer as long as ctx lasts.
func await(ctx context.Context, future raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- future.Error() }()
	select {
	case err := <-done:
		if err != nil {
			return proposalError(err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	}
}

// NewReplica makes the rows of a replica of a shard on this node that is to join a
// group, and returns its id. A replica that is there already keeps its id.
func (n *Node) NewReplica(shard uint32) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := stateRowKey(stateReplica, shard)
	b, err := n.cfg.State.Get(nil, key)
	if err == nil {
		row, err := decodeReplicaRow(b)
		if err != nil {
			return "", fmt.Errorf("shard %d: %w", shard, err)
		}
		if row.form != replicaFounding {
			return replicaID(n.stamp.nodeID, row.number), nil
		}
	} else if !errors.Is(err, kv.ErrNotFound) {
		return "", fmt.Errorf("shard %d: replica row: %w", shard, err)
	}
	row := replicaRow{form: replicaJoined, number: randomNumber()}
	if err := clearLogs(n.cfg.Log, shard); err != nil {
		return "", err
	}
	if err := setSync(n.cfg.State, key, row.encode()); err != nil {
		return "", fmt.Errorf("shard %d: replica row: %w", shard, err)
	}
	return replicaID(n.stamp.nodeID, row.number), nil
}

// Replicas returns the shards that this node has replicas of, ascending.
func (n *Node) Replicas() ([]uint32, error) {
	it, err := n.cfg.State.NewIter(kv.PrefixSpan([]byte{stateSpace, stateReplica}))
	if err != nil {
		return nil, fmt.Errorf("replica rows: %w", err)
	}
	var out []uint32
	for ok := it.First(); ok; ok = it.Next() {
		out = append(out, shardOfRow(it.Key()))
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, fmt.Errorf("replica rows: %w", err)
	}
	return out, nil
}

// ReplicaOf returns the id of this node's replica of a shard, whether or not it runs; ""
// where there is none.
func (n *Node) ReplicaOf(shard uint32) (string, error) {
	b, err := n.cfg.State.Get(nil, stateRowKey(stateReplica, shard))
	if errors.Is(err, kv.ErrNotFound) {
		return "", nil
	}
	row := replicaRow{}
	if err == nil {
		row, err = decodeReplicaRow(b)
	}
	if err != nil {
		return "", fmt.Errorf("shard %d: replica row: %w", shard, err)
	}
	return replicaID(n.stamp.nodeID, row.number), nil
}

// DestroyReplica removes this node's replica of a shard for good: its state, its rows
// and its log. parts are the spans of its state. One that runs, or has a store call under
// way that was left behind, is ErrRuns.
func (n *Node) DestroyReplica(shard uint32, parts kv.Parts) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shards[shard] != nil {
		return fmt.Errorf("shard %d: destroy: %w", shard, ErrRuns)
	}
	// State first: without the replica row nothing of it is ever used again. It is replaced
	// by nothing rather than deleted: where it is damaged, nobody meets the damage any more.
	parts.Local = slices.Clone(parts.Local)
	for _, row := range []byte{stateApplied, stateReplica, stateInstalled} {
		key := stateRowKey(row, shard)
		parts.Local = append(parts.Local, kv.Span{Lower: key, Upper: append(bytes.Clone(key), 0)})
	}
	r, err := n.cfg.State.Replace(parts)
	if err == nil {
		err = errors.Join(r.Commit(nil), r.Close())
	}
	if err != nil {
		return fmt.Errorf("shard %d: destroy: %w", shard, err)
	}
	return clearLogs(n.cfg.Log, shard)
}
