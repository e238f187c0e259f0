// Package cache answers reads from copies, and never staler than promised.
//
// A Reader stands in front of storage. For each query it works out the least
// position that the answer must be at (Polls, Token), asks the tiers for the entry
// that holds the answer, and asks storage itself for what no entry can answer.
//
//	Reader -> Auditor -> Hot -> rediscache.Tier -> Flights -> Storage
//	   |                                                        ^
//	   +----------------- what no entry answers ----------------+
//
// Each arrow of the upper row is a Source; any of the middle ones may be left out.
//
// # The rule that all tiers share
//
// An Entry is the state of one row, list or bitmap chunk at a Position. It may be
// used for a query if and only if it is of the query's timeline and its position is at
// least the query's. No tier looks at ages: where a copy came from, and when, is all
// in its position.
//
// # Locks
//
// The locks of Polls, Flights (one a part), Hot, TopK and Rebuilds are leaves: none is
// held while another is taken, or over a call to a Source.
package cache
