package rediscache

import (
	"strconv"

	"github.com/lianadb/liana/cache"
)

// entryOps are what a PUSH does to one entry.
type entryOps struct {
	key cache.Key
	ops []byte // kind [1], then operations
}

// pushArgs are the arguments of a PUSH before those of entries.
func pushArgs(p head, to uint64, window, least int) []string {
	return []string{p.encode(), encodeNumber(to), strconv.Itoa(window), strconv.Itoa(least)}
}

// foldOps sorts changes by the entries that they concern.
func foldOps(cs []cache.Change) []entryOps {
	var out []entryOps
	index := map[cache.Key]int{}
	entry := func(k cache.Key, kind byte) *entryOps {
		i, ok := index[k]
		if !ok {
			i = len(out)
			index[k] = i
			out = append(out, entryOps{key: k, ops: []byte{kind}})
		}
		return &out[i]
	}
	for i := range cs {
		c := &cs[i]
		row := cache.RowKey(c.Slot, c.List.Vertex)
		switch c.Kind {
		case cache.MetricSet, cache.MetricGone:
			e := entry(row, 'c')
			e.ops = appendRowOp(e.ops, c)
		case cache.EdgeAdded, cache.EdgeRemoved:
			e := entry(row, 'c')
			e.ops = appendRowOp(e.ops, c)
			e = entry(cache.ChunkKey(c.Slot, c.List, c.Edge.Peer), 'b')
			e.ops = appendChunkOp(e.ops, c)
			fallthrough
		case cache.EdgeMoved:
			e := entry(cache.WindowKey(c.Slot, c.List), 'l')
			e.ops = appendWindowOp(e.ops, c)
		}
	}
	return out
}
