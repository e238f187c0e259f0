package shard

import "github.com/lianadb/liana/kv"

// Machine is the replicated state machine of one shard. The shard never calls
// it concurrently, though not always from the same goroutine. Its state after
// an entry depends on the entries alone: no clock, no randomness, no map order.
type Machine interface {
	// Apply changes the machine's working set only. results[i] answers
	// e.Commands[i]; an entry without commands (a new term, a tick) moves the
	// clock and has no results. An error means corruption or an unknown
	// command: the shard stops on this node, and nothing of the batch being
	// applied is cut. The commands may not be kept or changed.
	Apply(e Entry) (results []any, err error)
	// Cut writes everything applied since the last Cut into b. The shard adds
	// its applied row to the same batch and commits it.
	Cut(b kv.Batch) error
	// Publish makes what was cut visible to readers. It is called after the
	// batch was committed; applied is the index of the last entry in it.
	Publish(applied uint64)
	// Parts names the machine's state in the store: all of its rows and no others. They
	// are copied to replicas that are too far behind, and replaced by theirs.
	Parts() kv.Parts
	// Restore takes over a state that was installed in the store: it drops what it has
	// in memory and loads. Publish follows. It is called between entries.
	Restore() error
	// Lead is called with true when this replica leads and has applied an
	// entry of its own term, so its state holds every acknowledged write, and
	// with false when it stops leading. Calls alternate. The first may come
	// before StartShard has returned.
	Lead(leading bool)
}

// RowReader is what a Machine is beside that can tell its rows from those of a newer
// program. A state with a row that it does not know is not taken: the shard stops on this
// node, and says why (CASES 46).
type RowReader interface {
	// Reads returns an error for a row of an unknown kind. It is called at any time.
	Reads(key []byte) error
}

// Entry is one entry of a shard's log as its machine sees it.
type Entry struct {
	Index, Term uint64
	// Now is the log time: µs since 1970 UTC, stamped by the leader. It never
	// runs backwards.
	Now int64
	// Elapsed is the dedupe clock in µs. It counts time that passed under a
	// leader and never runs faster than real time, whatever the wall clocks do.
	Elapsed int64
	// Commands are in the order they were proposed.
	Commands [][]byte
}
