package rediscache

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
)

// scriptRun makes random calls of scripts over few keys, so that most of them meet
// something.
type scriptRun struct {
	r    *rand.Rand
	slot cache.Slot
	gens [2]gen
	at   uint64 // of the last change
}

func (s *scriptRun) number() uint64 { return max(3, s.at) - s.r.Uint64N(3) }

func (s *scriptRun) gen() gen { return s.gens[s.r.IntN(8)/7] }

func (s *scriptRun) edge() cache.Edge {
	times := []int64{0, 1, -1, 1<<63 - 1, -1 << 63, 1 << 32, 1<<32 - 1, -1 << 32, 255, 256}
	peers := []uint64{1, 2, 1 << 31, 1 << 32, 1<<32 + 1, 1 << 63, 1<<64 - 2, 1<<63 - 1, 7, 8, 9, 32767, 255, 256}
	return cache.Edge{Time: times[s.r.IntN(len(times))], Peer: peers[s.r.IntN(len(peers))]}
}

func (s *scriptRun) list() cache.List {
	return cache.List{Vertex: cache.Vertex{Type: 1, ID: s.r.Uint64N(2) + 1}, Edge: 1}
}

func (s *scriptRun) change() cache.Change {
	s.at += s.r.Uint64N(3)
	c := cache.Change{
		Kind: cache.ChangeKind(1 + s.r.IntN(5)), Number: s.at, Slot: s.slot, List: s.list(), Edge: s.edge(), Old: s.edge(),
		Props: s.r.IntN(20) == 0, Metric: uint16(s.r.IntN(4)), Value: cache.Field(s.r.Uint64()),
	}
	if s.r.IntN(2) == 0 {
		c.Kind = cache.EdgeAdded
	}
	return c
}

// entry makes an entry of a kind, mostly at or past the last change.
func (s *scriptRun) entry(kind cache.Kind) cache.Entry {
	e := cache.Entry{At: cache.Position{Number: s.at + 2 - min(s.at, s.r.Uint64N(3))}}
	switch kind {
	case cache.KindRow:
		e.Row = &cache.Row{}
		for range s.r.IntN(12) {
			e.Row.Fields = append(e.Row.Fields, []cache.Field{cache.Unknown, cache.Absent, -3, 1<<53 - 1, 1 << 53, 1 << 60, 1, 2, 0, 0, 0, 0}[s.r.IntN(12)])
		}
	case cache.KindWindow:
		w := &cache.Window{Props: s.r.IntN(9) == 0}
		for range s.r.IntN(9) {
			w.Edges = append(w.Edges, s.edge())
		}
		slices.SortFunc(w.Edges, cache.Edge.Compare)
		w.Edges = slices.Compact(w.Edges)
		w.Total = uint64(len(w.Edges))
		if s.r.IntN(2) == 0 && len(w.Edges) > 0 {
			w.Total += s.r.Uint64N(4)
			w.Floor = w.Edges[0]
		}
		e.Window = w
	default:
		e.Chunk = &cache.Chunk{Bits: make([]byte, cache.ChunkBytes)}
		for range 6 {
			e.Chunk.Set(s.edge().Peer)
		}
	}
	return e
}

func (s *scriptRun) key() cache.Key {
	l := s.list()
	return []cache.Key{cache.RowKey(s.slot, l.Vertex), cache.WindowKey(s.slot, l), cache.ChunkKey(s.slot, l, s.edge().Peer)}[s.r.IntN(3)]
}

// next makes a call; p is the slot's as it is.
func (s *scriptRun) next(now []byte) call {
	head1 := headKey(1, s.slot)
	p, _ := decodeHead(now)
	switch n := s.r.IntN(20); {
	case n == 0:
		return call{scriptOpen, []string{head1}, []string{head{s.gens[0], s.number()}.encode()}}
	case n == 1:
		old := now
		if old == nil || s.r.IntN(3) == 0 {
			old = []byte(head{s.gen(), s.number()}.encode())
		}
		return call{scriptRegen, []string{head1}, []string{string(old), head{s.gen(), s.number()}.encode()}}
	case n < 9:
		k := s.key()
		return call{scriptFill, []string{head1, entryKey(1, p.gen, &k)}, []string{encodeNumber(uint64(s.gen())), encodeEntry(ptr(s.entry(k.Kind))), "100000"}}
	case n < 12:
		c := s.change()
		c.Kind = cache.ChangeKind(1 + s.r.IntN(3))
		k := cache.WindowKey(s.slot, c.List)
		prev := []uint64{0, c.Number - min(c.Number, 2), c.Number - min(1, c.Number), s.number()}[s.r.IntN(4)]
		return call{scriptNudge, []string{head1, entryKey(1, p.gen, &k)}, []string{encodeNumber(uint64(s.gen())), encodeNumber(prev), "6", "3", string(appendWindowOp(nil, &c))}}
	}
	var cs []cache.Change
	from := s.at
	for range s.r.IntN(5) {
		cs = append(cs, s.change())
	}
	if s.r.IntN(12) > 0 {
		from = p.h
	}
	sh := &fedShard{Shard: cache.Shard{Timeline: 1, First: s.slot, Last: s.slot}, f: newFeeder(FeederConfig{Window: 6, Least: 3}, nil, nil)}
	return sh.pushCall(0, head{p.gen, from}, s.at+s.r.Uint64N(2), cs)
}

func ptr[T any](v T) *T { return &v }

// dump is all that a Redis holds.
func dump(t *testing.T, c redis.UniversalClient) map[string]string {
	t.Helper()
	ctx, out := context.Background(), map[string]string{}
	keys, err := c.Keys(ctx, "*").Result()
	must(t, err)
	for _, k := range keys {
		v, err := c.Get(ctx, k).Result()
		must(t, err)
		out[k] = v
	}
	return out
}

// The model of the scripts, with which the protocol is simulated, does what they do.
func TestScriptsDoWhatTheirModelDoes(t *testing.T) {
	c := startServer(t).client()
	real, ctx := newRedisConn(c), context.Background()
	counts := map[string]int{}
	for seed := range uint64(10) {
		must(t, c.FlushDB(ctx).Err())
		model := newModelRedis()
		s := &scriptRun{r: rand.New(rand.NewPCG(seed, 1)), slot: 77, gens: [2]gen{1<<63 + 5, 9}, at: 10}
		for step := range 300 {
			call := s.next(model.get(headKey(1, s.slot)).values[0])
			before := dump(t, c)
			got, want := real.do(ctx, []call1{call})[0], model.do(ctx, []call1{call})[0]
			must(t, got.err)
			if !bytes.Equal(got.values[0], want.values[0]) || (got.values[0] == nil) != (want.values[0] == nil) {
				t.Fatalf("seed %d, step %d: %v %q: got %q, model %q", seed, step, call.script, call.args, got.values, want.values)
			}
			after := dump(t, c)
			if len(after) != len(model.keys) {
				t.Fatalf("seed %d, step %d: %v left %d keys, model %d", seed, step, call.script, len(after), len(model.keys))
			}
			for k, v := range after {
				if v != model.keys[k] {
					t.Fatalf("seed %d, step %d: %v %q\nkey %s was %x\nis      %x\nmodel   %x", seed, step, call.script, call.args, k, before[k], v, model.keys[k])
				}
			}
			counts[fmt.Sprintf("%v, %d keys changed", call.script, changed(before, after))]++
		}
	}
	t.Log(counts)
	for _, want := range []string{"push, 2 keys changed", "push, 3 keys changed", "fill, 1 keys changed", "fill, 0 keys changed", "nudge, 1 keys changed", "regen, 1 keys changed"} {
		if counts[want] < 5 {
			t.Errorf("%s: only %d times", want, counts[want])
		}
	}
}

type call1 = call

func changed(a, b map[string]string) (n int) {
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			n++
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			n++
		}
	}
	return n
}

// Bytes that nobody wrote are removed by PUSH and replaced by FILL, and harm nothing.
func TestScriptsMeetForeignBytes(t *testing.T) {
	c := startServer(t).client()
	conn, ctx, l := newRedisConn(c), context.Background(), cache.List{Vertex: cache.Vertex{Type: 1, ID: 1}, Edge: 1}
	p := head{3, 10}
	must(t, c.Set(ctx, headKey(1, 5), p.encode(), 0).Err())
	sh := &fedShard{Shard: cache.Shard{Timeline: 1, First: 5, Last: 5}, f: newFeeder(FeederConfig{}, nil, nil)}
	for _, foreign := range []string{"", "x", "1234567", "12345678", "123456789", string(make([]byte, 33+7)), string(make([]byte, 5000))} {
		c1 := cache.Change{Kind: cache.EdgeAdded, Number: 11, Slot: 5, List: l, Edge: cache.Edge{Peer: 1}}
		call := sh.pushCall(0, p, 11, []cache.Change{c1})
		for _, k := range call.keys[1:] {
			must(t, c.Set(ctx, k, foreign, 0).Err())
		}
		r := conn.do(ctx, []call1{call})[0]
		must(t, r.err)
		if string(r.values[0]) != (head{3, 11}).encode() {
			t.Errorf("%q: PUSH returned %q", foreign, r.values[0])
		}
		fill := call1{scriptFill, []string{call.keys[0], call.keys[1]}, []string{encodeNumber(3), encodeEntry(&cache.Entry{At: cache.Position{Number: 1 << 52}, Row: &cache.Row{}}), "1000"}}
		if r := conn.do(ctx, []call1{fill})[0]; r.err != nil {
			t.Errorf("%q: FILL: %v", foreign, r.err)
		}
		must(t, c.Set(ctx, headKey(1, 5), p.encode(), 0).Err())
	}
}

// A server that lost the scripts gets them again, within the call.
func TestScriptsAreReloaded(t *testing.T) {
	c := startServer(t).client()
	conn, ctx := newRedisConn(c), context.Background()
	for i := range 3 {
		must(t, c.ScriptFlush(ctx).Err())
		calls := []call{
			{scriptOpen, []string{headKey(1, 5)}, []string{head{3, uint64(i)}.encode()}},
			{scriptLease, []string{fmt.Sprint("x", i)}, []string{"1000"}},
			{keys: []string{headKey(1, 5)}},
		}
		for j, r := range conn.do(ctx, calls) {
			if r.err != nil || r.values[0] == nil && j < 2 {
				t.Errorf("round %d, call %d: %q, %v", i, j, r.values, r.err)
			}
		}
	}
}

// What PUSH rewrites keeps its time to live; p has none.
func TestPushKeepsTheTimeToLive(t *testing.T) {
	c := startServer(t).client()
	conn, ctx, l := newRedisConn(c), context.Background(), cache.List{Vertex: cache.Vertex{Type: 1, ID: 1}, Edge: 1}
	p, k := head{3, 10}, cache.WindowKey(5, l)
	sh := &fedShard{Shard: cache.Shard{Timeline: 1, First: 5, Last: 5}, f: newFeeder(FeederConfig{}, nil, nil)}
	push := sh.pushCall(0, p, 11, []cache.Change{{Kind: cache.EdgeAdded, Number: 11, Slot: 5, List: l, Edge: cache.Edge{Peer: 1}}})
	for _, call := range []call{
		{scriptOpen, []string{headKey(1, 5)}, []string{p.encode()}},
		{scriptFill, []string{headKey(1, 5), entryKey(1, 3, &k)}, []string{encodeNumber(3), encodeEntry(&cache.Entry{At: cache.Position{Number: 10}, Window: &cache.Window{}}), "60000"}},
		push,
	} {
		must(t, conn.do(ctx, []call1{call})[0].err)
	}
	if v, err := c.Get(ctx, entryKey(1, 3, &k)).Result(); err != nil || len(v) != windowHeader+edgeSize {
		t.Errorf("window of %d bytes, %v", len(v), err)
	}
	if ttl := c.PTTL(ctx, entryKey(1, 3, &k)).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("the window lives for %v", ttl)
	}
	if ttl := c.PTTL(ctx, headKey(1, 5)).Val(); ttl != -1 {
		t.Errorf("p lives for %v", ttl)
	}
}
