package cache

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

// Hot keeps the entries that are asked for most in the memory of this process. A
// copy carries its position and is used by the same test as any other entry
// (CACHE.md R2), so it adds nothing to how old an answer can be; it is let go after
// a second only for the sake of memory.
type Hot struct {
	next   *Flights
	top    *TopK
	now    func() time.Time
	copies *otter.Cache[Key, hotCopy]
	stats  HotStats
}

// HotStats count what became of the entries that were wanted of a Hot.
type HotStats struct {
	Hits   atomic.Uint64
	Absent atomic.Uint64 // no copy
	Stale  atomic.Uint64 // there was a copy, from before what was wanted
}

type hotCopy struct {
	entry Entry
	since time.Time
}

const hotKeep = time.Second

// NewHot returns a Hot of up to maxBytes over a source.
func NewHot(next Source, top *TopK, maxBytes uint64) (*Hot, error) {
	copies, err := otter.New(&otter.Options[Key, hotCopy]{
		MaximumWeight: maxBytes,
		Weigher:       func(_ Key, c hotCopy) uint32 { return uint32(c.entry.size()) },
		// Upkeep is done by the caller: nothing is left running.
		Executor: func(fn func()) { fn() },
	})
	if err != nil {
		return nil, fmt.Errorf("hot copies of at most %d bytes: %w", maxBytes, err)
	}
	return &Hot{next: NewFlights(next), top: top, now: time.Now, copies: copies}, nil
}

// Stats returns the counters of this tier.
func (h *Hot) Stats() *HotStats { return &h.stats }

// Top returns the n keys that are asked for most, the most asked for first.
func (h *Hot) Top(n int) []HotKey { return h.top.Top(n) }

// Bytes is about how much memory the copies take.
func (h *Hot) Bytes() uint64 { return h.copies.WeightedSize() }

// Load implements Source. Callers that miss the same hot entry at the same time share
// one load of it.
func (h *Hot) Load(ctx context.Context, wants []Want, got []Entry) error {
	var left []int
	var absent, stale uint64
	now := h.now()
	for i := range wants {
		h.top.Touch(wants[i].Key)
		c, ok := h.copies.GetIfPresent(wants[i].Key)
		switch {
		case !ok || now.Sub(c.since) > hotKeep:
			absent++
		case c.entry.At.Covers(wants[i].Min):
			got[i] = c.entry
			continue
		default:
			stale++
		}
		if left == nil {
			left = make([]int, 0, len(wants)-i)
		}
		left = append(left, i)
	}
	h.stats.Hits.Add(uint64(len(wants) - len(left)))
	if len(left) == 0 {
		return nil
	}
	h.stats.Absent.Add(absent)
	h.stats.Stale.Add(stale)
	hot := h.top.areHot(wants, left)
	if err := h.next.load(ctx, wants, got, left, hot); err != nil {
		return err
	}
	for j, i := range left {
		if hot[j] && !got[i].IsNone() {
			h.copies.Set(wants[i].Key, hotCopy{got[i], h.now()})
		}
	}
	return nil
}

// Drop forgets the copies of a vertex.
func (h *Hot) Drop(v Vertex) {
	for k := range h.copies.Keys() {
		if k.Vertex == v {
			h.copies.Invalidate(k)
		}
	}
}
