package rediscache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// The benchmark's users like notes with dense ids: most of them few, as LinkBench says,
// some a screen full, some more than a window holds.
const (
	benchNotes  = 10_000
	benchShort  = 4_000 // users 0 … with 0 to 15 likes
	benchMedium = 200   // users after them, with 128
	benchLong   = 200   // and with 1,500
	benchBatch  = 100   // questions a call
	benchCalls  = 16    // callers at once
)

// benchWorld has everything cached and polled: what is measured are hits.
type benchWorld struct {
	m     *cachetest.Model
	bare  redis.UniversalClient
	redis *cache.Reader
	hot   *cache.Reader
	likes [][]uint64
}

func newBenchWorld(b *testing.B, clients func(...func(*redis.UniversalOptions)) redis.UniversalClient) *benchWorld {
	w := &benchWorld{m: cachetest.NewModel(cache.NumSlots), bare: clients()}
	w.m.ChunkLeast = cache.ChunkLeast
	r := rand.New(rand.NewPCG(1, 1))
	for user := range benchShort + benchMedium + benchLong {
		n := r.IntN(16)
		if user >= benchShort {
			n = 128
		}
		if user >= benchShort+benchMedium {
			n = 1500
		}
		w.likes = append(w.likes, w.like(b, uint64(user), r, n))
	}
	tier := NewTier(TierConfig{Timeout: 10 * time.Second, TTL: 10 * time.Hour}, clients(), w.m)
	must(b, NewFeeder(FeederConfig{}, clients(onlyFeeder), w.m).Round(b.Context()))
	cold, err := cache.NewHot(tier, cache.NewTopK(1<<14, 1<<60), 1<<30) // all that stands above Redis, and nothing is hot
	must(b, err)
	hot, err := cache.NewHot(tier, cache.NewTopK(1<<14, 64), 1<<30)
	must(b, err)
	w.redis, w.hot = w.reader(b, cold), w.reader(b, hot)
	for _, q := range w.everything() {
		for range 2 {
			for part := range slices.Chunk(q, 1000) {
				w.read(b, w.redis, part)
			}
		}
	}
	return w
}

// like gives a user n likes, in Liana and as a plain client would keep them.
func (w *benchWorld) like(b *testing.B, user uint64, r *rand.Rand, n int) (notes []uint64) {
	pipe := w.bare.Pipeline()
	for i, note := range r.Perm(benchNotes)[:n] {
		notes = append(notes, uint64(note))
		in := cachetest.Add(cachetest.Like(uint64(note)), user, int64(i))
		in.List = benchNote(uint64(note))
		w.m.Apply(cachetest.Add(benchUser(user), uint64(note), int64(i)), in)
		pipe.SetBit(b.Context(), fmt.Sprint("bits:", user), int64(note), 1)
		pipe.Incr(b.Context(), fmt.Sprint("count:", note))
	}
	_, err := pipe.Exec(b.Context())
	must(b, err)
	return notes
}

func benchUser(id uint64) cache.List {
	return cache.List{Vertex: cache.Vertex{Type: 1, ID: id}, Edge: 1}
}

func benchNote(id uint64) cache.List {
	return cache.List{Vertex: cache.Vertex{Type: 2, ID: id}, Edge: 1, In: true}
}

// reader has polled every slot, and goes on believing it.
func (w *benchWorld) reader(b *testing.B, s cache.Source) *cache.Reader {
	polls := cache.NewPolls(time.Hour)
	r := cache.NewReader(w.m, s, polls)
	var qs []cache.Query
	for id := range uint64(cache.NumSlots) {
		qs = append(qs, w.count(id))
	}
	_, err := r.Read(b.Context(), cache.Options{}, qs, make([]cache.Answer, len(qs)))
	must(b, err)
	must(b, polls.Round(b.Context(), w.m))
	return r
}

func (w *benchWorld) count(note uint64) cache.Query {
	l := benchNote(note)
	return cache.Query{Kind: cache.CountEdges, List: l, Slot: w.m.SlotOf(l.Vertex), Page: cache.PageQuery{}.AllTime()}
}

func (w *benchWorld) has(user, note uint64) cache.Query {
	l := benchUser(user)
	return cache.Query{Kind: cache.HasEdge, List: l, Slot: w.m.SlotOf(l.Vertex), Peer: note, Dense: true}
}

func (w *benchWorld) everything() [][]cache.Query {
	var counts, has []cache.Query
	for note := range uint64(benchNotes) {
		counts = append(counts, w.count(note))
	}
	for user := range w.likes {
		has = append(has, w.has(uint64(user), benchNotes+1))
	}
	return [][]cache.Query{counts, has}
}

func (w *benchWorld) read(b *testing.B, r *cache.Reader, qs []cache.Query) {
	as := make([]cache.Answer, len(qs))
	if _, err := r.Read(context.Background(), cache.Options{}, qs, as); err != nil {
		b.Error(err)
	}
}

// note is one that a user likes, or any.
func (w *benchWorld) note(user int, r *rand.Rand) uint64 {
	if likes := w.likes[user]; len(likes) > 0 && r.IntN(2) == 0 {
		return likes[r.IntN(len(likes))]
	}
	return r.Uint64N(benchNotes)
}

// from returns a draw of one of n users, the first of which is given.
func from(first, n int) func(*rand.Rand) int {
	return func(r *rand.Rand) int { return first + r.IntN(n) }
}

// BenchmarkReads compares reads of hits in Redis with a bare client's on the same server,
// and hits in memory with both, in rounds of the same run: benchBatch questions a call,
// benchCalls callers.
func BenchmarkReads(b *testing.B) {
	s := startServer(b)
	w := newBenchWorld(b, s.client)
	b.Run("CountEdgesBatch", func(b *testing.B) {
		w.compare(b, func(r *rand.Rand) []cache.Query {
			qs := make([]cache.Query, benchBatch)
			for i := range qs {
				qs[i] = w.count(r.Uint64N(benchNotes / 5))
			}
			return qs
		})
	})
	for _, c := range []struct {
		name string
		user func(*rand.Rand) int
		one  bool
	}{
		{"OneUserOf128Likes", from(benchShort, 20), true},
		{"OneUserOf1500Likes", from(benchShort+benchMedium, 20), true},
		{"ManyUsersOfFewLikes", from(0, benchShort/4), false},
		{"ManyUsersOf128Likes", from(benchShort, benchMedium), false},
		{"ManyUsersOf1500Likes", from(benchShort+benchMedium, benchLong), false},
	} {
		b.Run("HasEdges/"+c.name, func(b *testing.B) {
			w.compare(b, func(r *rand.Rand) []cache.Query {
				qs, user := make([]cache.Query, benchBatch), c.user(r)
				for i := range qs {
					if !c.one {
						user = c.user(r)
					}
					qs[i] = w.has(uint64(user), w.note(user, r))
				}
				return qs
			})
		})
	}
}

// compare runs rounds of each way to ask, and reports questions a second and their
// ratios.
func (w *benchWorld) compare(b *testing.B, draw func(*rand.Rand) []cache.Query) {
	ways := []func(qs []cache.Query){
		func(qs []cache.Query) { w.askBare(b, qs) },
		func(qs []cache.Query) { w.read(b, w.redis, qs) },
		func(qs []cache.Query) { w.read(b, w.hot, qs) },
	}
	_, before := w.m.Calls()
	rates := make([][]float64, len(ways))
	for b.Loop() {
		for i, ask := range ways {
			rates[i] = append(rates[i], benchRate(ask, draw))
		}
	}
	if _, after := w.m.Calls(); after > before {
		b.Logf("%d questions went to storage", after-before)
	}
	median := func(i int) float64 {
		slices.Sort(rates[i])
		return rates[i][len(rates[i])/2]
	}
	bare, inRedis, hot := median(0), median(1), median(2)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(bare, "bare/s")
	b.ReportMetric(inRedis, "redis/s")
	b.ReportMetric(hot, "hot/s")
	b.ReportMetric(inRedis/bare, "redis:bare")
	b.ReportMetric(hot/inRedis, "hot:redis")
}

// benchRate is how many questions a second are answered, after a while of the same.
func benchRate(ask func([]cache.Query), draw func(*rand.Rand) []cache.Query) float64 {
	const before, length = 150 * time.Millisecond, 300 * time.Millisecond
	var asked atomic.Int64
	var callers sync.WaitGroup
	seed, began := rand.Uint64(), time.Now()
	for i := range uint64(benchCalls) {
		r := rand.New(rand.NewPCG(i, seed))
		batches := make([][]cache.Query, 32)
		for j := range batches {
			batches[j] = draw(r)
		}
		callers.Go(func() {
			for n := 0; ; n++ {
				now := time.Since(began)
				if now > before+length {
					return
				}
				ask(batches[n%len(batches)])
				if now > before {
					asked.Add(benchBatch)
				}
			}
		})
	}
	callers.Wait()
	return float64(asked.Load()) / (time.Since(began) - before).Seconds()
}

// askBare asks as a client would that keeps a bitmap a user and a number a note.
func (w *benchWorld) askBare(b *testing.B, qs []cache.Query) {
	ctx, pipe := context.Background(), w.bare.Pipeline()
	for i := range qs {
		if q := &qs[i]; q.Kind == cache.HasEdge {
			pipe.GetBit(ctx, fmt.Sprint("bits:", q.List.Vertex.ID), int64(q.Peer))
		} else {
			pipe.Get(ctx, fmt.Sprint("count:", q.List.Vertex.ID))
		}
	}
	if cmds, err := pipe.Exec(ctx); err != nil || len(cmds) != len(qs) {
		b.Error(err)
	}
}
