package shard

import (
	"strings"
	"time"
)

// Leader returns the node that leads the shard as far as this replica knows, "" if
// it knows none, and how old the state here can be: everything acknowledged longer ago
// is in it. That is 0 on the leader. An isolated leader that has not noticed yet can
// add a heartbeat timeout to it. It is cheap enough for every read.
func (s *Shard) Leader() (node string, age time.Duration) {
	_, id := s.raft().LeaderWithID()
	switch {
	case id == "":
		return "", s.fsm.fresh.age()
	case string(id) == s.replica && s.proposer.openTerm.Load() != 0:
		return s.node.stamp.nodeID, 0
	}
	return NodeOf(string(id)), s.fsm.fresh.age()
}

// NodeOf returns the node that a replica id names.
func NodeOf(replica string) string {
	if i := strings.LastIndexByte(replica, '-'); i >= 0 {
		return replica[:i]
	}
	return replica
}
