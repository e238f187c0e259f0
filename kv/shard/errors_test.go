package shard

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// RULES B5: only what Raft certainly did not append may be sent again.
func TestRuleB5_WhatRaftSaysIsMappedToWhatARetryMayDo(t *testing.T) {
	for _, c := range []struct{ in, want error }{
		{raft.ErrNotLeader, ErrNotLeader},
		{raft.ErrEnqueueTimeout, ErrNotLeader},
		{raft.ErrLeadershipTransferInProgress, ErrNotLeader},
		{raft.ErrLeadershipLost, ErrOutcomeUnknown},
		{raft.ErrRaftShutdown, ErrOutcomeUnknown},
		{raft.ErrAbortedByRestore, ErrOutcomeUnknown},
		{errors.New("StoreLogs failed"), ErrOutcomeUnknown},
	} {
		got := proposalError(c.in)
		if !errors.Is(got, c.want) || !errors.Is(got, c.in) {
			t.Errorf("%v became %v, want %v", c.in, got, c.want)
		}
		if c.want == ErrOutcomeUnknown && errors.Is(got, ErrNotLeader) || c.want == ErrNotLeader && errors.Is(got, ErrOutcomeUnknown) {
			t.Errorf("%v became both: %v", c.in, got)
		}
	}
	if proposalError(nil) != nil || confirmError(nil) != nil {
		t.Error("success became an error")
	}
	for in, want := range map[error]error{
		raft.ErrLeadershipLost: ErrNotLeader, raft.ErrRaftShutdown: ErrStopped, context.Canceled: context.Canceled,
	} {
		if got := confirmError(in); !errors.Is(got, want) {
			t.Errorf("confirm: %v became %v", in, got)
		}
	}
}

func TestDamageIsWhatAnotherReplicaMends(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{fmt.Errorf("entry 7: %w", kv.ErrCorruption), true},
		{fmt.Errorf("shard 1: %w", ErrLogLost), true},
		{errUnknownRow, false},
		{fmt.Errorf("%w: %w", ErrFault, kv.Corruptionf("row")), true},
		{fmt.Errorf("storing log entries takes longer than 10s"), false},
		{ErrForeign, false},
	} {
		if got := Damaged(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
