package rediscache

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// The cases of section H of the list of cases, by their numbers, on a real Redis.

// heldLoads holds a load back between storage's snapshot and the fill.
type heldLoads struct {
	cache.Source
	hold atomic.Pointer[func()]
}

func (h *heldLoads) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	err := h.Source.Load(ctx, wants, got)
	if f := h.hold.Swap(nil); f != nil {
		(*f)()
	}
	return err
}

// Case 28: a reader that holds an old value across a write, and across its way to
// Redis, does not put it there.
func TestCase28ASlowReaderIsRefused(t *testing.T) {
	s := startServer(t)
	w := newRealWorld(t, patient(), s.client(), s.client(onlyFeeder))
	held := &heldLoads{Source: w.m}
	tier := NewTier(patient(), s.client(), held)
	slow := cache.NewReader(w.m, tier, w.polls)
	must(t, w.feeder.Round(t.Context()))
	for i, c := range []cache.Query{
		{Kind: cache.CountEdges, List: cachetest.Like(1), Page: cache.PageQuery{}.AllTime()},
		{Kind: cache.HasEdge, List: cachetest.Like(2), Peer: 7},
		{Kind: cache.ListPage, List: cachetest.Like(3), Page: cache.PageQuery{Limit: 5}.AllTime()},
	} {
		c.Slot = w.m.SlotOf(c.List.Vertex)
		wrote := func() {
			w.m.Apply(cachetest.Add(c.List, 7, 7))
			must(t, w.feeder.Round(t.Context()))
		}
		held.hold.Store(&wrote)
		_, err := slow.Read(t.Context(), cache.Options{}, []cache.Query{c}, make([]cache.Answer, 1))
		must(t, err)
		if st := tier.Stats(); st.Refused.Load() != uint64(i+1) || st.Fills.Load() != 0 {
			t.Errorf("query %d: %d fills refused, %d taken", i, st.Refused.Load(), st.Fills.Load())
		}
		must(t, w.polls.Round(t.Context(), w.m))
		w.ask(c)
		w.ask(c)
	}
}

// Case 28: fifty readers and five writers on twenty keys, over two gateways with copies
// in memory. Each answer is within the bound and its token; at the end what is cached
// equals storage.
func TestCase28ManyReadersFewWriters(t *testing.T) {
	length := 2 * time.Second
	if os.Getenv("LIANA_LONG") != "" {
		length = 10 * time.Minute
	}
	ctx, stop := context.WithCancel(context.Background())
	var running, clients sync.WaitGroup
	defer running.Wait()
	defer stop()
	s := startServer(t)
	o := startOracle(t, ctx, &running, s.client)
	o.few = true
	working, end := context.WithTimeout(ctx, length)
	defer end()
	for i := range uint64(55) { // one call in ten is a write
		clients.Go(func() { o.client(working, i) })
	}
	clients.Wait()
	if !t.Failed() {
		o.atRest(ctx, s.client())
		o.sums()
	}
}

// Case 29: a window that is filled one by one holds exactly the newest edges at each step.
func TestCase29AWindowGrowsPastItsEnd(t *testing.T) {
	s := startServer(t)
	c := s.client()
	w := newRealWorld(t, patient(), s.client(), s.client(onlyFeeder))
	l := cachetest.Like(1)
	page := func(limit int) cache.Query {
		return cache.Query{Kind: cache.ListPage, List: l, Page: cache.PageQuery{Limit: limit}.AllTime()}
	}
	k := cache.WindowKey(1, l)
	must(t, w.feeder.Round(t.Context()))
	w.ask(page(1)) // filled, with nothing in it
	key := entryKey(1, w.feeder.shards[1].slots[1].p.gen, &k)
	for n := 1; n <= 1500; n++ {
		w.m.Apply(cachetest.Add(l, uint64(n), int64(n/2)))
		must(t, w.feeder.Round(t.Context()))
		v, err := c.Get(t.Context(), key).Bytes()
		must(t, err)
		e, err := decodeEntry(cache.KindWindow, v)
		must(t, err)
		held := min(n, cache.WindowEdges)
		if len(e.Window.Edges) != held || e.Window.Total != uint64(n) || e.Window.Edges[0].Peer != uint64(n-held+1) || e.Window.Edges[held-1].Peer != uint64(n) {
			t.Fatalf("after %d edges the window holds %d of %d", n, len(e.Window.Edges), e.Window.Total)
		}
		if n >= 999 && n <= 1001 || n == 1500 {
			must(t, w.polls.Round(t.Context(), w.m))
			for _, q := range []cache.Query{page(1), page(999), page(1000), page(1001), {Kind: cache.CountEdges, List: l, Page: cache.PageQuery{}.AllTime()}} {
				w.ask(q)
			}
			for _, peer := range []uint64{1, 2, uint64(n), uint64(n) + 1, uint64(n) - 999, uint64(n) - 1000} {
				w.ask(cache.Query{Kind: cache.HasEdge, List: l, Peer: peer, Dense: true})
			}
		}
	}
	if st := w.tier.Stats(); st.Corrupt.Load()+st.Refused.Load() > 0 {
		t.Errorf("%d corrupt, %d refused", st.Corrupt.Load(), st.Refused.Load())
	}
}

// Case 30: ids near 2^63 and 2^64 and times a microsecond apart keep their order and
// value in Redis, in storage and across the border of the window.
func TestCase30LargeIDsAndCloseTimes(t *testing.T) {
	s := startServer(t)
	w := newRealWorld(t, patient(), s.client(), s.client(onlyFeeder))
	l := cachetest.Like(1)
	add := func(from, to uint64) {
		for i := from; i < to; i++ {
			peer := []uint64{1<<63 + i, 1<<63 - 1 - i, math.MaxUint64 - 1 - i}[i%3]
			w.m.Apply(cachetest.Add(l, peer, 1_700_000_000_000_000+int64(i/2)))
		}
	}
	add(0, 700)
	must(t, w.feeder.Round(t.Context()))
	all := cache.Query{Kind: cache.ListPage, List: l, Page: cache.PageQuery{Limit: 1}.AllTime()}
	w.ask(all)
	add(700, 1200) // by PUSH
	must(t, w.feeder.Round(t.Context()))
	must(t, w.polls.Round(t.Context(), w.m))
	hits := w.tier.Stats().Hits.Load()
	_, reads := w.m.Calls()
	var got []cache.Edge
	q := all
	q.Slot, q.Page.Limit = w.m.SlotOf(l.Vertex), 70
	for more := true; more; {
		w.ask(q)
		as := make([]cache.Answer, 1)
		_, err := w.reader.Read(t.Context(), cache.Options{}, []cache.Query{q}, as)
		must(t, err)
		got = append(got, as[0].Edges...)
		q.Page.From, more = &got[len(got)-1], as[0].More
	}
	want := w.m.Entry(&cache.Key{Slot: 1, Kind: cache.KindWindow, Vertex: l.Vertex, Edge: l.Edge}).Window
	slices.Reverse(got)
	if uint64(len(got)) != want.Total || !slices.Equal(got[len(got)-len(want.Edges):], want.Edges) || !slices.IsSortedFunc(got, cache.Edge.Compare) {
		t.Errorf("%d edges of %d, or not in order", len(got), want.Total)
	}
	_, after := w.m.Calls()
	if w.tier.Stats().Hits.Load()-hits < 26 || after-reads < 4 {
		t.Errorf("%d pages were asked of Redis, %d of storage: the test is to cross the border", w.tier.Stats().Hits.Load()-hits, after-reads)
	}
}

// Case 31: no command that blocks a server or that an operator may have taken away is
// used, foreign keys stay, the keys of a slot lie together and the slots spread, and no
// script of ours takes long.
func TestCase31ASharedServer(t *testing.T) {
	foreign := 100_000
	if os.Getenv("LIANA_LONG") != "" {
		foreign = 1_000_000
	}
	s := startServer(t, "--rename-command", "KEYS", "", "--rename-command", "FLUSHALL", "", "--rename-command", "FLUSHDB", "", "--slowlog-log-slower-than", "10000", "--slowlog-max-len", "1000")
	c := s.client(func(o *redis.UniversalOptions) { o.ReadTimeout = time.Minute })
	ctx := t.Context()
	must(t, c.Eval(ctx, "for i = 1, ARGV[1] do redis.call('SET', 'l1:foreign:' .. i, i) end return 1", nil, foreign).Err())
	must(t, c.ConfigResetStat(ctx).Err())
	must(t, c.SlowLogReset(ctx).Err())
	w := newRealWorld(t, patient(), s.client(), s.client(onlyFeeder))
	must(t, w.feeder.Round(ctx))
	for i := range uint64(1200) { // a long window and its chunks, in pushes of as many changes as one carries
		w.m.Apply(cachetest.Add(cachetest.Like(1), i, int64(i)))
	}
	for round := range uint64(5) {
		must(t, w.polls.Round(ctx, w.m))
		w.ask(cache.Query{Kind: cache.ListPage, List: cachetest.Like(1), Page: cache.PageQuery{Limit: 1000}.AllTime()})
		w.ask(cache.Query{Kind: cache.HasEdge, List: cachetest.Like(1), Peer: round, Dense: true})
		for i := range uint64(80) {
			w.m.Apply(cachetest.Remove(cachetest.Like(1), (round*80+i)%1200), cachetest.Add(cachetest.Like(1), 2000+round*80+i, int64(i)))
		}
		must(t, c.ScriptFlush(ctx).Err())
		must(t, w.feeder.Round(ctx))
	}
	w.everythingCachedIsRight(c, 1)
	stats, err := c.Info(ctx, "commandstats").Result()
	must(t, err)
	calls := strings.Count(stats, "cmdstat_")
	for _, banned := range []string{"cmdstat_keys", "cmdstat_scan", "cmdstat_flush", "cmdstat_multi"} {
		if strings.Contains(stats, banned) || calls == 0 {
			t.Errorf("%s was called: %s", banned, stats)
		}
	}
	slow, err := c.SlowLogGet(ctx, 100).Result()
	must(t, err)
	if len(slow) > 2 { // on a busy machine a server may be held up in any command
		t.Errorf("%d commands took longer than 10 ms: %+v", len(slow), slow[0].Duration)
	}
	n, err := c.Eval(ctx, "local n = 0 for i = 1, ARGV[1] do n = n + redis.call('EXISTS', 'l1:foreign:' .. i) end return n", nil, foreign).Int()
	must(t, err)
	if n != foreign {
		t.Errorf("%d foreign keys of %d are left", n, foreign)
	}
}

// Case 31: the slots spread evenly over the nodes of a cluster.
func TestCase31SlotsSpread(t *testing.T) {
	var nodes [3]int
	for slot := range cache.Slot(cache.NumSlots) {
		nodes[hashSlot(fmt.Sprint(slot))*3/16384]++
	}
	for i, n := range nodes {
		if n < cache.NumSlots*30/100 || n > cache.NumSlots*37/100 {
			t.Errorf("node %d has %d of %d slots", i, n, cache.NumSlots)
		}
	}
}

// hashSlot is a Redis Cluster's hash of a tag: CRC-16/XMODEM.
func hashSlot(tag string) int {
	crc := uint16(0)
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

// Case 32: a Redis that hangs does not eat the time of a caller with a deadline.
func TestCase32DeadlinesAreKept(t *testing.T) {
	s := startServer(t)
	w := newRealWorld(t, TierConfig{Timeout: time.Minute}, s.client(), s.client(onlyFeeder))
	must(t, w.feeder.Round(t.Context()))
	w.ask(count(1))
	s.pause()
	defer s.resume()
	var late int
	for i := range uint64(300) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		q := count(i)
		q.Slot = w.m.SlotOf(q.List.Vertex)
		if _, err := w.reader.Read(ctx, cache.Options{}, []cache.Query{q}, make([]cache.Answer, 1)); err != nil {
			t.Errorf("read %d: %v", i, err)
		}
		if ctx.Err() != nil {
			late++
		}
		cancel()
	}
	if late > 3 { // the machine may be busy
		t.Errorf("%d of 300 reads came after their deadline", late)
	}
}

// Case 33: ids of any size are no offsets: they cost no more than an edge does.
func TestCase33HugeIDs(t *testing.T) {
	s := startServer(t)
	c := s.client()
	w := newRealWorld(t, patient(), s.client(), s.client(onlyFeeder))
	peers := []uint64{0, math.MaxUint32, math.MaxUint32 + 1, 1_000_000_000_000_000_000, math.MaxUint64 - 1}
	memory := func() (n int) {
		for line := range strings.Lines(c.Info(t.Context(), "memory").Val()) {
			fmt.Sscanf(line, "used_memory_dataset:%d", &n)
		}
		return n
	}
	must(t, w.feeder.Round(t.Context()))
	before, likes := memory(), 0
	for id := range uint64(200) {
		for _, p := range peers {
			w.m.Apply(cachetest.Add(cachetest.Like(id), p, 1))
			likes++
		}
		must(t, w.feeder.Round(t.Context()))
		must(t, w.polls.Round(t.Context(), w.m))
		for range 2 {
			for _, p := range peers {
				for _, peer := range []uint64{p, p + 1, p - 1} {
					w.ask(cache.Query{Kind: cache.HasEdge, List: cachetest.Like(id), Peer: peer, Dense: true})
				}
			}
		}
	}
	if grown := memory() - before; grown > likes*cache.ChunkBytes {
		t.Errorf("%d likes take %d bytes, more than a chunk each", likes, grown)
	}
	if w.tier.Stats().Hits.Load() < uint64(likes) {
		t.Errorf("%d hits", w.tier.Stats().Hits.Load())
	}
}

// countedConn counts the commands that readers send.
type countedConn struct {
	*modelRedis
	calls atomic.Int64
}

func (c *countedConn) do(ctx context.Context, calls []call) []reply {
	c.calls.Add(int64(len(calls)))
	return c.modelRedis.do(ctx, calls)
}

// Whatever the number of callers, a hot note costs a gateway at most two calls a second,
// also while it is written.
func TestHotNoteCostsNoCalls(t *testing.T) {
	for name, c := range map[string]struct {
		written bool
		most    int64 // a second
	}{"read only": {false, 2}, "written too": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, r := cachetest.NewModel(16), &countedConn{modelRedis: newModelRedis()}
				tier := newTier(TierConfig{}, r, cache.NewFlights(m))
				hot, err := cache.NewHot(tier, cache.NewTopK(64, 64), 1<<20)
				must(t, err)
				polls := cache.NewPolls(time.Second)
				reader := cache.NewReader(m, hot, polls)
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				defer running.Wait()
				defer stop()
				running.Go(func() { polls.Run(ctx, m, func(err error) { t.Error(err) }) })
				running.Go(func() {
					newFeeder(FeederConfig{}, r.modelRedis, m).Run(ctx, func(err error) { t.Error(err) })
				})
				var asked atomic.Int64
				for i := range 64 {
					running.Go(func() {
						for time.Sleep(time.Duration(i) * 17 * time.Microsecond); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
							q := count(5)
							q.Slot = 5
							_, err := reader.Read(ctx, cache.Options{}, []cache.Query{q}, make([]cache.Answer, 1))
							must(t, err)
							asked.Add(1)
						}
					})
				}
				if c.written {
					running.Go(func() {
						for i := uint64(0); ctx.Err() == nil; i++ {
							m.Apply(cachetest.Add(cachetest.Like(5), i, int64(i)))
							time.Sleep(3 * time.Millisecond)
						}
					})
				}
				time.Sleep(2 * time.Second)
				const seconds = 10
				calls, questions := r.calls.Load(), asked.Load()
				loads, reads := m.Calls()
				time.Sleep(seconds * time.Second)
				calls, questions = r.calls.Load()-calls, asked.Load()-questions
				l, rd := m.Calls()
				stop()
				if calls > c.most*seconds || l+rd-loads-reads > 2*seconds || questions < 60_000 {
					t.Errorf("%d questions in %d s made %d calls of Redis, %d loads and %d reads of storage", questions, seconds, calls, l-loads, rd-reads)
				}
				t.Logf("%d calls of Redis, %d of storage for %d questions in %d s", calls, l+rd-loads-reads, questions, seconds)
			})
		})
	}
}
