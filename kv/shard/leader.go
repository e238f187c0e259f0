package shard

import (
	"strings"
	"time"
)

// Leader returns the node that leads the shard as far as this replica knows, "" if
// it knows none, and how long ago it heard of it (0 where it leads itself). It is
// cheap enough for every read.
func (s *Shard) Leader() (node string, heard time.Duration) {
	_, id := s.raft.LeaderWithID()
	switch {
	case id == "":
		return "", 0
	case string(id) == s.replica:
		return s.node.stamp.nodeID, 0
	}
	return NodeOf(string(id)), time.Since(s.raft.LastContact())
}

// NodeOf returns the node that a replica id names.
func NodeOf(replica string) string {
	if i := strings.LastIndexByte(replica, '-'); i >= 0 {
		return replica[:i]
	}
	return replica
}
