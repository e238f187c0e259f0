// Package resp is the Redis-protocol port: the counters of a node for any Redis client.
//
// A connection's commands are taken as many at a time as have arrived. Each becomes steps of
// one batch: edits of counters, and how its reply is made of their results. The batch is
// executed with one call for what it writes, so that a pipeline is one log entry a shard;
// then the replies are written in the order of the commands.
//
// The package serves a Backend and knows no engine, no log and no status codes. What errors
// mean to a client is the caller's business as well (Host.Explain).
package resp
