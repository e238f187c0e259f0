package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// Member is one replica of a shard, as the leader's configuration has it.
type Member struct {
	Replica, Node string
	Voter         bool
}

// membersTime bounds a change of members where the context does not.
const membersTime = 10 * time.Second

// Members returns the replicas of the shard as this one knows them.
func (s *Shard) Members() []Member {
	f := s.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	var out []Member
	for _, srv := range f.Configuration().Servers {
		out = append(out, Member{
			Replica: string(srv.ID), Node: NodeOf(string(srv.ID)), Voter: srv.Suffrage == raft.Voter,
		})
	}
	return out
}

// Parts names the state of the replica's machine in the store.
func (s *Shard) Parts() kv.Parts { return s.fsm.machine.Parts() }

// AddLearner adds a replica that follows and does not vote. Adding it again changes
// nothing.
func (s *Shard) AddLearner(ctx context.Context, replica string) error {
	return s.reconfigure(ctx, "add", replica, func(t time.Duration) raft.Future {
		return s.raft.AddNonvoter(raft.ServerID(replica), raft.ServerAddress(replica), 0, t)
	})
}

// Promote makes a learner a voter. Who calls it has seen that the learner has caught
// up: until it has, it is a voter that answers late.
func (s *Shard) Promote(ctx context.Context, replica string) error {
	return s.reconfigure(ctx, "promote", replica, func(t time.Duration) raft.Future {
		return s.raft.AddVoter(raft.ServerID(replica), raft.ServerAddress(replica), 0, t)
	})
}

// RemoveReplica takes a replica out of the group. Removing it again changes nothing.
func (s *Shard) RemoveReplica(ctx context.Context, replica string) error {
	return s.reconfigure(ctx, "remove", replica, func(t time.Duration) raft.Future {
		return s.raft.RemoveServer(raft.ServerID(replica), 0, t)
	})
}

// TransferLeadership hands the leadership to a voter; "" is any that is up to date.
func (s *Shard) TransferLeadership(ctx context.Context, replica string) error {
	return s.reconfigure(ctx, "hand the leadership to", replica, func(time.Duration) raft.Future {
		if replica == "" {
			return s.raft.LeadershipTransfer()
		}
		return s.raft.LeadershipTransferToServer(raft.ServerID(replica), raft.ServerAddress(replica))
	})
}

func (s *Shard) reconfigure(ctx context.Context, what, replica string, change func(time.Duration) raft.Future) error {
	if s.proposer.openTerm.Load() == 0 {
		return fmt.Errorf("shard %d: %s %s: %w", s.id, what, replica, ErrNotLeader)
	}
	patience := membersTime
	if end, ok := ctx.Deadline(); ok {
		patience = time.Until(end)
	}
	done := make(chan error, 1)
	future := change(patience)
	go func() { done <- future.Error() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("shard %d: %s %s: %w", s.id, what, replica, proposalError(err))
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shard %d: %s %s: %w: %w", s.id, what, replica, ErrOutcomeUnknown, ctx.Err())
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
func (n *Node) Replicas() []uint32 {
	it, err := n.cfg.State.NewIter(kv.PrefixSpan([]byte{stateSpace, stateReplica}))
	if err != nil {
		return nil
	}
	defer it.Close()
	var out []uint32
	for ok := it.First(); ok; ok = it.Next() {
		out = append(out, shardOfRow(it.Key()))
	}
	return out
}

// DestroyReplica removes this node's replica of a shard for good: its state, its rows
// and its log. parts are the spans of its state. The replica must not run.
func (n *Node) DestroyReplica(shard uint32, parts kv.Parts) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shards[shard] != nil {
		return fmt.Errorf("shard %d: its replica runs and cannot be destroyed", shard)
	}
	// State first: without the replica row nothing of it is ever used again.
	b := n.cfg.State.NewBatch()
	defer b.Close()
	for _, span := range append([]kv.Span{parts.Data}, parts.Local...) {
		if err := b.DeleteRange(span); err != nil {
			return fmt.Errorf("shard %d: destroy: %w", shard, err)
		}
	}
	for _, row := range []byte{stateApplied, stateReplica, stateInstalled} {
		if err := b.Delete(stateRowKey(row, shard)); err != nil {
			return fmt.Errorf("shard %d: destroy: %w", shard, err)
		}
	}
	if err := b.Commit(kv.Sync); err != nil {
		return fmt.Errorf("shard %d: destroy: %w", shard, err)
	}
	return clearLogs(n.cfg.Log, shard)
}
