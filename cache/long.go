package cache

import "sync/atomic"

// longWindow is from how many edges on a window is larger than a chunk.
const longWindow = ChunkBytes / 16

// longRetry is how often a chunk that storage did not give is asked for again, in
// reads of its window.
const longRetry = 64

// longLists remembers for which peers of which lists a chunk is to be asked before the
// window: those whose window is long or cannot tell, and that have a chunk. What it
// says decides only what is asked first; it may be wrong, and forgets.
type longLists struct {
	table [1 << 14]atomic.Uint64 // a chunk's hash, its lowest bit the verdict
	again atomic.Uint64          // how often an old verdict stood against a new try
}

func (l *longLists) place(hash uint64) *atomic.Uint64 {
	return &l.table[hash>>1%uint64(len(l.table))]
}

func (l *longLists) isLong(hash uint64) bool { return l.place(hash).Load() == hash|1 }

// learn looks at what came of asking for a peer among dense ids in an entry of a kind.
func (l *longLists) learn(kind Kind, e *Entry, hash uint64) {
	if kind == KindWindow && (e.IsNone() || len(e.Window.Edges) < longWindow && e.Window.Complete()) {
		return
	}
	place := l.place(hash)
	was, is := place.Load(), hash|1
	switch {
	case kind == KindChunk && e.IsNone():
		is = hash &^ 1
	case kind == KindWindow && was == hash&^1 && l.again.Add(1)%longRetry != 0:
		return
	}
	if was != is {
		place.Store(is)
	}
}
