package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// Errors of Propose, Tick and Confirm. They are wrapped with the shard's
// number; test them with errors.Is.
var (
	// ErrNotLeader: this replica does not lead, or its term is not open yet.
	// Nothing was proposed; retry at the leader.
	ErrNotLeader = errors.New("not the leader")
	// ErrBusy: the queue is full. Nothing was proposed; retry later.
	ErrBusy = errors.New("too many proposals waiting")
	// ErrTooLarge: the command is over MaxCommand bytes, or empty. Nothing was
	// proposed; a retry fails in the same way.
	ErrTooLarge = errors.New("command size out of bounds")
	// ErrStopped: the shard is closed. Nothing was proposed; retry elsewhere.
	ErrStopped = errors.New("stopped")
	// ErrFault: the shard has failed on this node (its own error is wrapped
	// too). Nothing was proposed; retry elsewhere.
	ErrFault = errors.New("failed on this node")
	// ErrOutcomeUnknown: the command went into a log entry and then its fate
	// was lost: leadership lost, a failing log, a closing shard, or the
	// context's end (wrapped). It may take effect later. Retry only what is
	// idempotent or carries a request id.
	ErrOutcomeUnknown = errors.New("outcome unknown")
)

// Errors of changes of a shard's members. Nothing was changed.
var (
	// ErrLagging: the learner does not answer or is too far behind; retry later.
	ErrLagging = errors.New("the replica has not caught up")
	// ErrNoQuorum: after the change the group would not have a majority.
	ErrNoQuorum = errors.New("too few voters would be left")
)

// Errors of OpenNode, StartShard and DestroyReplica.
var (
	// ErrRuns: the replica runs, or did and a store call of it has not returned. Nothing
	// was changed.
	ErrRuns = errors.New("the replica has not ended")
	// ErrForeign: a store carries no stamp or that of another node, so it does
	// not belong with the other two.
	ErrForeign = errors.New("store does not belong to this node")
	// ErrLogLost: the log lacks entries that the state or the group's founding
	// prove were there. The replica must not vote again.
	ErrLogLost = errors.New("the log has lost entries")
	// ErrNoReplica: a replica that is to join has no rows on this node. Where it had
	// some, they are lost with the data; it joins anew under another id.
	ErrNoReplica = errors.New("no replica of the shard was made on this node")
)

// Damaged reports whether an error says that what a replica has stored is wrong or lost:
// it is no use any more, and another is made from the leader's state. Rows that only a
// newer program can read are not damaged: they would come again.
func Damaged(err error) bool {
	return errors.Is(err, kv.ErrCorruption) && !errors.Is(err, errUnknownRow) || errors.Is(err, ErrLogLost)
}

// proposalError says what an error of Raft means for a proposed command: safe
// to retry where Raft certainly did not append it, unknown otherwise.
func proposalError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrFault), errors.Is(err, ErrOutcomeUnknown), errors.Is(err, ErrNotLeader):
		return err
	case errors.Is(err, raft.ErrNotLeader),
		errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	default:
		// ErrLeadershipLost, ErrRaftShutdown, ErrAbortedByRestore and errors
		// of StoreLogs: the entry may be in the log of a later leader.
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
}

// confirmError says what an error of VerifyLeader means to a reader.
func confirmError(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, raft.ErrRaftShutdown):
		return ErrStopped
	default:
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
}
