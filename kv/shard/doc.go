// Package shard replicates one state machine: a shard is one Raft group whose
// state lies in a kv.Store. It is the only importer of hashicorp/raft and
// raft-boltdb.
//
// # The way of a command
//
//	Propose → queue → gather (one log entry) → Raft → log (synced)
//	        → ApplyBatch → Machine.Apply → Machine.Cut + applied row → Commit
//	        → Machine.Publish → answer
//
// The Raft log is the write-ahead log. It is synced before an entry commits,
// so the state is committed unsynced: what a crash takes from the state is
// applied again from the log. The applied row lies in the same batch as the
// data, so no entry is ever applied twice.
//
// # Positions
//
//	durable ≤ cut ≤ applied ≤ commit ≤ last
//
//	applied  last entry the machine has applied to its working set
//	cut      the applied row as the state store shows it
//	durable  the applied row in the part of the state that loss of power leaves
//	commit   last entry Raft calls committed
//	last     last entry in the synced log
//
// Log entries are deleted by Node.Truncate alone, and only up to durable.
//
// # Rows in the state store (everything under the byte 0xFE is this package's)
//
//	FE 00                 stamp        [1] version 1 | [8] incarnation | node id
//	FE 01 | shard [4]     replica      [1] version 1 | [1] 1 founding, 2 founded, 3 joined | [8] replica number
//	FE 02 | shard [4]     applied      [1] version 1 | [8] index | [8] term | [8] log time | [8] dedupe clock
//	                                   | [8] dedupe clock when the term opened | [8] index of the configuration
//	                                   | configuration as raft.EncodeConfiguration gives it
//
//	FE 03 | shard [4]     installed    [1] version 1 | [8] index | [8] term
//
// What replicas say to each other is drawn in streams.go (the hello), ask.go (questions)
// and transfer.go (the state).
//
// # Rows in the log store (all of it is this package's)
//
//	00                                            stamp, as above
//	01 | shard [4] | replica number [8] | index [8]   [1] version 1 | [1] type | uvarint term
//	                                              | uvarint n | [n] extensions | data
//
// # Keys in the bolt file
//
//	stamp; then, for each replica, "replica id/key of Raft": the term and the vote
//
// # Log entry (the data of a Raft command)
//
//	[1] version 1 | [1] kind | uvarint term of the stamp | uvarint wall stamp, µs
//	| uvarint time in term, µs | uvarint n | n × (uvarint length | command)
//
// Numbers of fixed size are big-endian. Kinds: 1 commands (n ≥ 1), 2 the term
// is open (n = 0), 3 only the clock moves (n = 0).
//
// # Lock order
//
//	Node.mu -> fsm.mu -> (locks of the Machine)
//	lines.mu -> line.mu
//	arrivals.mu -> streams.mu
//	Shard.confirm.mu, queue.mu, logStore.mu, inflight.mu, streams.mu, greetings.mu,
//	pins.mu, snapshots.mu, freshness.mu, line.mu: leaves, held for a few instructions and never while
//	calling out of the package or into Raft.
//
// A Machine is called under fsm.mu. It may call ProposeAsync, which never
// blocks, but must not wait for a proposal, call Confirm or close the shard.
package shard
