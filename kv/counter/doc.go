// Package counter is the counter part of a shard's state machine: counter rows,
// caps, expiry and the memory of request ids. It is pure: log time, the dedupe
// clock and the reader of the last cut come in as arguments, and writes gather in
// a working set that Cut puts into a batch. A State is used by the shard's apply
// goroutine only; ParseRow and Row serve readers on any goroutine.
//
// # Counter row
//
// The key is the caller's. A row holds up to 64 fields: the metrics of a vertex at
// the offsets the schema gives them, or the one field of a free-form key.
//
//	[8n] fields, big-endian two's complement; field i lies at 8i, an absent one is 0
//	[8e] expiry times of the e expiring fields in field order, µs, big-endian
//	[p]  presence: bit i%8 of byte i/8, p = ⌈n/8⌉
//	[p]  expiry bitmap, same shape; only in version 2
//	[1]  n, 1 to 64; field n-1 is present
//	[1]  version: 1 = no field expires (e = 0), 2 = at least one does
//
// A field past n is absent, so a schema grows without touching a row. A row
// without a present field is not stored. One content has one encoding.
//
// # Rows of a slot
//
// They lie under Config.Prefix(slot); numbers are big-endian.
//
//	prefix | 1 | expiry time [8] | field [1] | row key         → empty
//	prefix | 2 | dedupe time [8] | length [1] | id | ordinal [4] → empty
//	prefix | 3 | length [1] | id | ordinal [4]                 → answer
//	prefix | 4                                                 → number of answers [8]
//
//	answer: version 1 [1] | outcome [1] | value [8] | argument hash [8] | dedupe time [8]
//
// Rows 1 are the order in which counters expire, rows 2 the order in which answers
// are forgotten. Nothing of a slot lies outside its prefix and its counter rows,
// so a shard splits between slots without rewriting any.
package counter
