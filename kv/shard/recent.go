package shard

import (
	"slices"

	"github.com/hashicorp/raft"
)

// Bounds of the entries that a log keeps in memory: Raft reads each of the newest
// several times, to send it, to apply it and, while the group is idle, to say what the
// next would follow.
const (
	recentEntries = 64
	recentBytes   = 256 << 10
)

// recentLog is the newest entries of a log, without a gap, oldest first. Their data is
// shared with Raft, which changes none.
type recentLog struct {
	entries []raft.Log
	bytes   int
}

// get copies an entry to log, or returns false.
func (r *recentLog) get(index uint64, log *raft.Log) bool {
	if len(r.entries) == 0 || index < r.entries[0].Index || index-r.entries[0].Index >= uint64(len(r.entries)) {
		return false
	}
	*log = r.entries[index-r.entries[0].Index]
	return true
}

// add takes entries that were stored.
func (r *recentLog) add(logs []*raft.Log) {
	for _, log := range logs {
		if n := len(r.entries); n > 0 && r.entries[n-1].Index+1 != log.Index {
			r.drop(0, n)
		}
		r.entries = append(r.entries, *log)
		r.bytes += recentSize(log)
	}
	n := 0
	for bytes := r.bytes; len(r.entries)-n > recentEntries || bytes > recentBytes; n++ {
		bytes -= recentSize(&r.entries[n])
	}
	r.drop(0, n)
}

// forget takes out the entries from..to, and with a gap all before it.
func (r *recentLog) forget(from, to uint64) {
	if len(r.entries) == 0 || to < r.entries[0].Index || from > r.entries[len(r.entries)-1].Index {
		return
	}
	first, last := r.entries[0].Index, r.entries[len(r.entries)-1].Index
	if to >= last && from > first {
		r.drop(int(from-first), len(r.entries))
		return
	}
	r.drop(0, int(min(to, last)-first)+1)
}

func (r *recentLog) drop(from, to int) {
	for i := range r.entries[from:to] {
		r.bytes -= recentSize(&r.entries[from+i])
	}
	r.entries = slices.Delete(r.entries, from, to)
}

func recentSize(log *raft.Log) int { return len(log.Data) + len(log.Extensions) }
