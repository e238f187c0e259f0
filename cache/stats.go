package cache

import "sync/atomic"

// Stats count what became of the queries of a Reader.
type Stats struct {
	Answered     atomic.Uint64 // by an entry
	Asked        atomic.Uint64 // storage was asked
	Linearizable atomic.Uint64 // caches were passed by, as asked
	// Reasons for asking storage. A query that could have been answered by a
	// window or a chunk may count twice.
	Unpolled atomic.Uint64 // no leader was heard within the bound, or the token forbids caches
	Untold   atomic.Uint64 // there was an entry, and it could not tell
}
