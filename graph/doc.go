// Package graph decides what edges and counters mean: the schema, the state
// machine of a shard, the way of an edge to its inverse, and the reads and
// writes that the server offers.
//
// # The way of a write
//
//	Graph.Mutate (write.go)        check, stamp, admit; one command a source shard
//	  → kv/shard                   gathered into a log entry, replicated, synced
//	  → Machine.Apply              (machine.go, apply_*.go) lists, change log, outbox: the working set
//	  → Machine.Cut, Publish       one batch; caches, then the new view
//	  → outbox (outbox.go)         rows to the shard of the other end, in order, as deliver commands
//	  → Machine.applyDeliver       the inverse, derived counters, the cursor
//	  → awaitInverses              the answer, with a token for both ends
//
// # The way of a read
//
//	Graph.HasEdges, CountEdges, ListEdges, GetCounters (read.go, counters.go)
//	  → reading.at                 a view of the shard, as fresh as level and token ask
//	  → view.list → pageSource     pages from the cache, else from the view's snapshot
//	  → edgelist.List
//
// # Lock order
//
//	Apply, Cut, Publish and Lead of a machine run one at a time (kv/shard) and take
//	outbox.mu -> sender.mu, and the locks of cache parts and notifiers, which are
//	leaves. A sender calls into kv/shard without holding its lock.
package graph
