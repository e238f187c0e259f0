// Package pebblekv is the kv.Store on Pebble, and the only importer of it.
//
// A node opens two stores: one with the State profile for its shards, one with
// the Log profile for its Raft log. DESIGN.md says which figures the profiles
// rest on and what happens when the disk fails.
//
// # Merge chains
//
// Values and operands lie in Pebble as they were written; Merger.IsOperand tells
// them apart. One form is this package's own, an unfolded chain:
//
//	[16] chainMagic
//	repeated, oldest first: [uvarint] length, [length] entry
//
// It is written only where a flush or compaction meets entries of one key that
// the Merger refuses. A failed flush would stop every shard of the node, so the
// entries are kept as they were instead, and the error goes to whoever reads the
// key; a Set or Delete of the key heals it. Set refuses values that begin with
// chainMagic.
package pebblekv
