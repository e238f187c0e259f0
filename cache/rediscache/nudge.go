package rediscache

import (
	"context"
	"strconv"

	"github.com/lianadb/liana/cache"
)

// nudgeCall tells the window of a list of one change.
func nudgeCall(timeline uint64, g gen, k *cache.Key, c *cache.Change, window, least int) call {
	return call{
		scriptNudge,
		[]string{headKey(timeline, k.Slot), entryKey(timeline, g, k)},
		[]string{encodeNumber(uint64(g)), encodeNumber(c.Prev), strconv.Itoa(window), strconv.Itoa(least), string(appendWindowOp(nil, c))},
	}
}

// Nudge tells Redis of a change of a list at once, rather than with the feeder's next
// tick. Nothing depends on it: what becomes of it is not reported. Changes of metrics are
// not for it: a row has many writers, who would pass each other (CACHE.md F1).
func (t *Tier) Nudge(ctx context.Context, timeline uint64, c *cache.Change) {
	g, known := t.knownGen(slotOf{c.Slot, timeline})
	if !known || c.Number > cache.MaxNumber || c.Kind > cache.EdgeMoved {
		return
	}
	k := cache.WindowKey(c.Slot, c.List)
	t.do(ctx, []call{nudgeCall(timeline, g, &k, c, cache.WindowEdges, cache.WindowEdges/2)})
}
