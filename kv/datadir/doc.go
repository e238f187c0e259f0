// Package datadir keeps the layout and the identity of a data directory.
//
//	DIR/LIANA     identity (JSON, mode 0600): who this directory belongs to
//	DIR/LOCK      held with flock while a process has the directory open
//	DIR/state/    the engine that holds the state of all shards
//	DIR/log/      the engine that holds the Raft log
//	DIR/raft.db   term and vote of each Raft group
//
// The package names no engine: it makes the directory and its identity, says
// where things lie, and sees to it that one process has it open. LIANA is
// written before anything else may be, so a directory that holds data and no
// LIANA is not one of ours, or a damaged one; it is refused, never adopted.
//
// The identity is written once, at creation, and never changes:
//
//	format      version of this layout; another one is refused
//	cluster_id  the cluster whose data this is
//	node_id     the node within it
//	timeline    16 hexadecimal digits; a restore draws a new one, so that tokens
//	            from before it are known as such
//	token_key   32 bytes, base64: signs the tokens that clients hold
//	shards      number of shards, fixed at creation: keys do not say their shard
//	created     RFC 3339, UTC
package datadir
