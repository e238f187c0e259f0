// Package catalog keeps the map of a cluster, its nodes, shards, copies of
// shards and schema, and plans where copies of shards should lie.
//
// The catalog is a Raft group of its own without slots (RULES F4): Machine is its
// state machine, Map its state, an Edit a command. Raft's configurations are the
// truth of who votes in which shard; the map says where copies are wanted. Every
// node follows the map on a Board and keeps the last one in a File, with which it
// runs on when the catalog has no leader.
//
// The planner (Plan, Drain, Replace, Rebalance, Place, PreferredLeaders, Startable)
// is pure: a map and what is known about nodes in, moves out.
//
// # Rows in the state store (everything under FF F1 is this package's)
//
// The keys of vertices and free-form counters begin with a slot (below 10 00), the
// rows of the graph's shards with FF F0, those of kv/shard with FE.
//
//	FF F1 'm'             [1] format 1 | uvarint version | bytes cluster id | [8] timeline
//	                      | uvarint settings version | uvarint replication | bytes page key
//	FF F1 'n' | node id   [1] format 1 | node
//	FF F1 's' | shard [4] [1] format 1 | shard; the catalog's own group is FF FF FF FF
//	FF F1 'y'             [1] format 1 | schema
//
// # Parts
//
//	node     id | uvarint changed | [8] incarnation | [1] roles: 1 gateway, 2 storage
//	         | [1] state: 1 active, 2 draining, 3 removed
//	         | bytes peer address | bytes gRPC address | bytes zone
//	shard    uvarint shard | uvarint changed | uvarint first slot | uvarint last slot
//	         | uvarint n | n × replica | [1] sum of: 1 a move, 2 a split, 4 a generation; these
//	replica  id | number
//	move     optional from | optional to | number
//	split    uvarint first slot of the new shard | uvarint new shard
//	generation uvarint, not 0
//	number   [1] 0, or 1 and [8] the number in the replica's id
//	optional [1] 0, or 1 and an id
//	id       a node id: uvarint k, the k-th id of this document, or 0 and then bytes, an
//	         id not met before in it
//	bytes    uvarint n | [n]
//
// The catalog's own group has first slot 1 and last slot 0. Numbers of fixed size are
// big-endian; a uvarint has its shortest form. So a document has one encoding only.
//
// # Delta (what changed since a version; since 0 it is a whole map)
//
//	[1] format 1 | uvarint base | uvarint version | bytes cluster id | [8] timeline
//	| uvarint settings version | uvarint replication | bytes page key
//	| bytes schema, only if settings version > base
//	| uvarint n | n × node, ascending by id | uvarint n | n × shard, ascending by
//	first slot; the catalog's own group stands first
//
// # Command
//
//	[1] format 1 | [1] kind | uvarint version expected | body; edit.go lists the bodies
//
// # File
//
//	"LIANAMAP" | [1] format 1 | [4] CRC-32C of what follows | delta since 0
package catalog
