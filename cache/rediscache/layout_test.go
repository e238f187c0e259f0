package rediscache

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/lianadb/liana/cache"
)

func goldenEntries() []struct {
	key   cache.Key
	entry cache.Entry
} {
	l := cache.List{Vertex: cache.Vertex{Type: 2, ID: 1<<64 - 2}, Edge: 40}
	in := l
	in.In = true
	chunk := &cache.Chunk{Bits: make([]byte, cache.ChunkBytes)}
	chunk.Set(3 * cache.ChunkPeers)
	chunk.Set(3*cache.ChunkPeers + 13)
	return []struct {
		key   cache.Key
		entry cache.Entry
	}{
		{cache.RowKey(4095, l.Vertex), cache.Entry{Row: &cache.Row{Fields: []cache.Field{7, cache.Unknown, cache.Absent, -1}}}},
		{cache.WindowKey(4095, l), cache.Entry{Window: &cache.Window{
			Total: 300, Floor: cache.Edge{Time: -2, Peer: 9}, Props: true, Edges: []cache.Edge{{Time: -2, Peer: 9}, {Time: 1_700_000_000_000_000, Peer: 1 << 63}},
		}}},
		{cache.WindowKey(0, in), cache.Entry{Window: &cache.Window{}}},
		{cache.ChunkKey(4095, l, 3*cache.ChunkPeers+13), cache.Entry{Chunk: chunk}},
	}
}

// A key tells what it is the key of, and nothing else is taken for one.
func TestKeysAreReadBack(t *testing.T) {
	for _, g := range goldenEntries() {
		timeline, at, k, ok := parseEntryKey(entryKey(1<<63, 35, &g.key))
		if !ok || timeline != 1<<63 || at != 35 || k != g.key {
			t.Errorf("%v is read back as %v, timeline %d, gen %d", g.key, k, timeline, at)
		}
		if _, _, k, ok := parseEntryKey(leaseKey(1<<63, 35, &g.key)); ok {
			t.Errorf("a lease is taken for the entry %v", k)
		}
	}
	for _, key := range []string{"", headKey(1, 2), "l1:1:{}:1:1.1:c", "l1:1:{5}:1:1:c", "l1:1:{5}:1:1.1:c:1", "l2:1:{5}:1:1.1:c", "l1:1:{5}:-:1.1:c", "l1:1:{5}:1:1.1:1o:?:b"} {
		if _, _, k, ok := parseEntryKey(key); ok {
			t.Errorf("%q is taken for %v", key, k)
		}
	}
}

// The formats are what testdata/layout shows. Redis servers hold them: a change of
// any needs a new keyVersion.
func TestGoldenLayout(t *testing.T) {
	datadriven.RunTest(t, "testdata/layout", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		switch d.Cmd {
		case "entries":
			fmt.Fprintf(&out, "%s\n  %x\n", headKey(1<<63, 4095), head{gen(1<<64 - 1), 5}.encode())
			for _, g := range goldenEntries() {
				g.entry.At.Number = 258
				fmt.Fprintf(&out, "%s\n", entryKey(1<<63, 35, &g.key))
				text := hex.EncodeToString([]byte(encodeEntry(&g.entry)))
				if len(text) > 400 {
					text = text[:64] + fmt.Sprintf("… (%d bytes)", len(text)/2)
				}
				fmt.Fprintf(&out, "  %s\n", text)
			}
		case "push":
			l := cache.List{Vertex: cache.Vertex{Type: 2, ID: 5}, Edge: 1}
			for _, o := range foldOps([]cache.Change{
				{Kind: cache.EdgeAdded, Number: 6, Slot: 1, List: l, Edge: cache.Edge{Time: 3, Peer: 70000}, Props: true},
				{Kind: cache.EdgeMoved, Number: 7, Slot: 1, List: l, Edge: cache.Edge{Time: 4, Peer: 70000}, Old: cache.Edge{Time: 3, Peer: 70000}},
				{Kind: cache.MetricSet, Number: 8, Slot: 1, List: cache.List{Vertex: l.Vertex}, Metric: 2, Value: -5},
				{Kind: cache.EdgeRemoved, Number: 9, Slot: 1, List: l, Edge: cache.Edge{Time: 4, Peer: 70000}},
				{Kind: cache.MetricGone, Number: 10, Slot: 1, List: cache.List{Vertex: l.Vertex}, Metric: 2},
			}) {
				fmt.Fprintf(&out, "%s\n  %c %x\n", entryKey(1, 35, &o.key), o.ops[0], o.ops[1:])
			}
		}
		return out.String()
	})
}

func TestEntriesComeBackAsTheyWere(t *testing.T) {
	for _, g := range goldenEntries() {
		g.entry.At.Number = 258
		text := encodeEntry(&g.entry)
		e, err := decodeEntry(g.key.Kind, []byte(text))
		if err != nil || encodeEntry(&e) != text {
			t.Errorf("%v: %+v, %v", g.key, e, err)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, g := range goldenEntries() {
		f.Add(uint8(g.key.Kind), []byte(encodeEntry(&g.entry)))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		e, err := decodeEntry(cache.Kind(kind), b)
		if err == nil && !bytes.Equal([]byte(encodeEntry(&e)), b) {
			t.Errorf("%x is read as %+v, which is written as %x", b, e, encodeEntry(&e))
		}
	})
}

func FuzzDecodeHead(f *testing.F) {
	f.Add([]byte(head{1, 2}.encode()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodeHead(b); err == nil && p.encode() != string(b) {
			t.Errorf("%x is read as %+v", b, p)
		}
	})
}

// TestMemoryOfWindows measures what Redis takes for an edge in a window, key and all.
func TestMemoryOfWindows(t *testing.T) {
	c := startServer(t).client()
	conn, ctx := newRedisConn(c), context.Background()
	p := head{1<<63 + 1, 10}
	must(t, c.Set(ctx, headKey(1<<63, 5), p.encode(), 0).Err())
	for _, n := range []int{0, 4, 10, 100, 500, 999, 1000} {
		l := cache.List{Vertex: cache.Vertex{Type: 1, ID: 1<<60 + uint64(n)}, Edge: 1}
		w := &cache.Window{Total: uint64(n)}
		for i := range n {
			w.Edges = append(w.Edges, cache.Edge{Time: int64(i), Peer: uint64(i)})
		}
		k := cache.WindowKey(5, l)
		key := entryKey(1<<63, p.gen, &k)
		r := conn.do(ctx, []call{{scriptFill, []string{headKey(1<<63, 5), key}, []string{encodeNumber(uint64(p.gen)), encodeEntry(&cache.Entry{At: cache.Position{Number: p.h}, Window: w}), "3600000"}}})
		must(t, r[0].err)
		filled := c.MemoryUsage(ctx, key).Val()
		sh := &fedShard{Shard: cache.Shard{Timeline: 1 << 63, First: 5, Last: 5}, f: newFeeder(FeederConfig{}, nil, nil)}
		push := sh.pushCall(0, p, p.h+1, []cache.Change{{Kind: cache.EdgeAdded, Number: p.h + 1, Slot: 5, List: l, Edge: cache.Edge{Time: 1e6, Peer: 1e6}}})
		must(t, conn.do(ctx, []call{push})[0].err)
		p.h++
		pushed := c.MemoryUsage(ctx, key).Val()
		if string(r[0].values[0]) != "1" || filled == 0 || pushed == 0 {
			t.Fatalf("%d edges: fill answered %q; %d bytes, then %d", n, r[0].values[0], filled, pushed)
		}
		held := min(n+1, cache.WindowEdges)
		t.Logf("%4d edges: %5d bytes when filled; %5d after one more: %.2f an edge", n, filled, pushed, float64(pushed)/float64(held))
		if n == 1000 && (float64(filled)/1000 > 20 || float64(pushed)/1000 > 20) {
			t.Errorf("a full window takes %d bytes filled, %d pushed to: over 20 an edge", filled, pushed)
		}
	}
}
