// Package sink brings the changes of the shards to Redis as streams: one a shard, written by
// whichever node leads it. The id of an entry is the position of its change, so Redis itself
// refuses what it has already, and the last entry of a stream says where to go on.
//
// An entry has the fields:
//
//	timeline  of the cluster, in hex
//	kind      EDGE_ADDED, EDGE_DELETED, EDGE_UPDATED, COUNTER_CHANGED, SLOTS_MOVED, GAP
//	slot      of the source vertex or the counter
//	an edge:    src, type, dst ("user:42"); time, in µs; old_time of an update; properties as
//	            a JSON object where there are any
//	a counter:  vertex and metric, or key; value; gone or expires "1" where it is so
//	SLOTS_MOVED: shard: changes of slots from `slot` on are in that one's stream from here on
//	GAP:        from: changes past that position are lost; begin with an export
package sink
