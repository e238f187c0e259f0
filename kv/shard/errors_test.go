package shard

import (
	"context"
	"errors"
	"testing"

	"github.com/hashicorp/raft"
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
