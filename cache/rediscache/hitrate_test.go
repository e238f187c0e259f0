package rediscache

import (
	"bufio"
	"container/list"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// like is one line of a stream of likes.
type like struct {
	user, note uint64
	time       int64
}

// readLikes reads MovieTweetings 100k (MIT), which is not part of the repository: lines
// of user::item::rating::unix seconds.
func readLikes(b *testing.B) (likes []like) {
	for _, path := range []string{
		os.Getenv("LIANA_RATINGS"),
		filepath.Join("..", "..", "..", "shared", "data", "movietweetings-100k", "ratings.dat"),
	} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var l like
			var rating int
			if _, err := fmt.Sscanf(strings.ReplaceAll(lines.Text(), "::", " "), "%d %d %d %d", &l.user, &l.note, &rating, &l.time); err != nil {
				b.Fatal(err)
			}
			likes = append(likes, l)
		}
		return likes
	}
	b.Skip("no ratings.dat: set LIANA_RATINGS to the file of MovieTweetings 100k")
	return nil
}

// zipf draws ranks with p(r) proportional to 1 / (r+1)^shape.
type zipf []float64

func newZipf(n int, shape float64) zipf {
	z, sum := make(zipf, n), 0.0
	for r := range z {
		sum += math.Pow(float64(r+1), -shape)
		z[r] = sum
	}
	return z
}

func (z zipf) draw(r *rand.Rand) int { return sort.SearchFloat64s(z, r.Float64()*z[len(z)-1]) }

// lru is an ideal LRU of a number of bytes.
type lru struct {
	room, used int
	byKey      map[cache.Key]*list.Element
	order      list.List // the last used first
	sizes      map[cache.Key]int
	hits, asks int
	missed     map[cache.Key]bool // of the call under way
}

func (c *lru) touch(k cache.Key) {
	c.asks++
	if e := c.byKey[k]; e != nil {
		c.hits++
		c.order.MoveToFront(e)
		return
	}
	c.missed[k] = true
	c.byKey[k] = c.order.PushFront(k)
	for c.used += c.sizes[k]; c.used > c.room; {
		last := c.order.Back()
		c.used -= c.sizes[last.Value.(cache.Key)]
		delete(c.byKey, c.order.Remove(last).(cache.Key))
	}
}

// overLRU tells an ideal LRU what is wanted of a tier.
type overLRU struct {
	cache.Source
	lru *lru
}

func (o overLRU) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	for i := range wants {
		o.lru.touch(wants[i].Key)
	}
	return o.Source.Load(ctx, wants, got)
}

// loads notes which entries the call under way took from storage.
type loads struct {
	cache.Source
	of map[cache.Key]bool
}

func (l loads) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	for i := range wants {
		l.of[wants[i].Key] = true
	}
	return l.Source.Load(ctx, wants, got)
}

// byQuestion counts questions by where their answers were: a batch asks much of one entry.
type byQuestion struct {
	all, hits, ideal float64
	loaded, missed   map[cache.Key]bool
}

// count takes in a call, of whose questions so many were put to storage.
func (c *byQuestion) count(qs []cache.Query, asked uint64) {
	hits := len(qs) - int(asked)
	for i := range qs {
		k := cache.WindowKey(qs[i].Slot, qs[i].List)
		if qs[i].Kind == cache.CountEdges {
			k = cache.RowKey(qs[i].Slot, qs[i].List.Vertex)
		}
		if c.loaded[k] {
			hits--
		}
		if !c.missed[k] {
			c.ideal++
		}
	}
	c.all, c.hits = c.all+float64(len(qs)), c.hits+float64(max(0, hits)) // what was loaded and could not tell counts twice
	clear(c.loaded)
	clear(c.missed)
}

// feedWorld asks as the readers of a feed do: the mix, batch sizes and popularity are
// those of the proposed likes profile, users and notes those of the stream.
type feedWorld struct {
	b       *testing.B
	m       *cachetest.Model
	r       *rand.Rand
	users   []uint64
	notes   []uint64 // the most liked first
	readers zipf
	popular zipf
	asked   int
}

func newFeedWorld(b *testing.B, likes []like) *feedWorld {
	w := &feedWorld{b: b, m: cachetest.NewModel(cache.NumSlots), r: rand.New(rand.NewPCG(4, 4))}
	times := map[uint64]int{}
	seen := map[uint64]bool{}
	for _, l := range likes {
		w.like(cache.EdgeAdded, l.user, l.note, l.time*1e6)
		if times[l.note]++; times[l.note] == 1 {
			w.notes = append(w.notes, l.note)
		}
		if !seen[l.user] {
			seen[l.user] = true
			w.users = append(w.users, l.user)
		}
	}
	slices.SortStableFunc(w.notes, func(a, b uint64) int { return times[b] - times[a] })
	w.r.Shuffle(len(w.users), func(i, j int) { w.users[i], w.users[j] = w.users[j], w.users[i] })
	w.readers, w.popular = newZipf(len(w.users), 0.8), newZipf(len(w.notes), 0.99)
	return w
}

func (w *feedWorld) like(kind cache.ChangeKind, user, note uint64, time int64) {
	w.m.Apply(
		cache.Change{Kind: kind, List: benchUser(user), Edge: cache.Edge{Peer: note, Time: time}},
		cache.Change{Kind: kind, List: benchNote(note), Edge: cache.Edge{Peer: user, Time: time}},
	)
}

// keys are all entries that the mix asks for.
func (w *feedWorld) keys() (keys []cache.Key) {
	for _, u := range w.users {
		l := benchUser(u)
		keys = append(keys, cache.WindowKey(w.m.SlotOf(l.Vertex), l))
	}
	for _, n := range w.notes {
		l := benchNote(n)
		keys = append(keys, cache.RowKey(w.m.SlotOf(l.Vertex), l.Vertex), cache.WindowKey(w.m.SlotOf(l.Vertex), l))
	}
	return keys
}

// batch is a batch size: half up to 4, 90 % up to 49, 99 % up to 241, none over 500.
func (w *feedWorld) batch() int {
	points := []struct{ p, n float64 }{{0, 1}, {0.5, 4}, {0.9, 49}, {0.99, 241}, {1, 500}}
	u, i := w.r.Float64(), 1
	for u > points[i].p {
		i++
	}
	a, b := points[i-1], points[i]
	return int(math.Round(a.n * math.Pow(b.n/a.n, (u-a.p)/(b.p-a.p))))
}

func (w *feedWorld) note() uint64 { return w.notes[w.popular.draw(w.r)] }

// step makes one operation of the mix.
func (w *feedWorld) step(read func([]cache.Query)) {
	user, x := w.users[w.readers.draw(w.r)], w.r.Float64()*100
	var qs []cache.Query
	add := func(q cache.Query, l cache.List) {
		q.List, q.Slot = l, w.m.SlotOf(l.Vertex)
		qs = append(qs, q)
	}
	switch {
	case x < 45:
		for range w.batch() {
			add(cache.Query{Kind: cache.HasEdge, Peer: w.note()}, benchUser(user))
		}
	case x < 80:
		for range w.batch() {
			add(cache.Query{Kind: cache.CountEdges, Page: cache.PageQuery{}.AllTime()}, benchNote(w.note()))
		}
	case x < 97.2: // 0.2 of them later pages
		q := cache.Query{Kind: cache.ListPage, Page: cache.PageQuery{Limit: 20}.AllTime()}
		if x >= 97 {
			q.Page.Skip = 20 * (1 + w.r.Uint64N(10))
		}
		if w.r.IntN(2) == 0 {
			add(q, benchNote(w.note()))
		} else {
			add(q, benchUser(user))
		}
	case x < 99.6:
		w.like(cache.EdgeAdded, user, w.note(), time.Now().UnixMicro())
		return
	default:
		w.like(cache.EdgeRemoved, user, w.note(), 0)
		return
	}
	w.asked += len(qs)
	read(qs)
}

// BenchmarkHitRate measures how much of the feed mix over a real stream the tiers answer,
// with a Redis that has room for a quarter of what all vertices take, against an ideal
// LRU of that size on the same wants.
func BenchmarkHitRate(b *testing.B) {
	likes := readLikes(b)
	for b.Loop() {
		hitRate(b, newFeedWorld(b, likes))
	}
	b.ReportMetric(0, "ns/op")
}

func hitRate(b *testing.B, w *feedWorld) {
	s := startServer(b, "--maxmemory-policy", "volatile-lfu")
	admin := s.client()
	memory := func() (n int) {
		for line := range strings.Lines(admin.Info(context.Background(), "memory").Val()) {
			_, _ = fmt.Sscanf(line, "used_memory:%d", &n)
		}
		return n
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	q := &byQuestion{loaded: map[cache.Key]bool{}, missed: map[cache.Key]bool{}}
	tier := NewTier(TierConfig{Timeout: time.Second, Lease: time.Millisecond}, s.client(), loads{cache.NewFlights(w.m), q.loaded})
	hot, err := cache.NewHot(tier, cache.NewTopK(1024, 64), 1<<20)
	must(b, err)
	feeder := NewFeeder(FeederConfig{}, s.client(onlyFeeder), w.m)
	must(b, feeder.Round(ctx))
	before := memory()
	c := &lru{missed: q.missed, byKey: map[cache.Key]*list.Element{}, sizes: map[cache.Key]int{}}
	for _, k := range w.keys() {
		e := w.m.Entry(&k)
		c.sizes[k] = len(encodeEntry(&e)) + 120 // its key and what Redis adds
		c.room += c.sizes[k]
	}
	c.room /= 4
	n, err := cache.Warm(ctx, w.m, tier, w.keys())
	must(b, err)
	room := before + (memory()-before)/4
	must(b, admin.ConfigSet(ctx, "maxmemory", fmt.Sprint(room)).Err())
	polls := cache.NewPolls(time.Second)
	reader := cache.NewReader(w.m, overLRU{hot, c}, polls)
	running.Go(func() { polls.Run(ctx, w.m, func(err error) { b.Error(err) }) })
	running.Go(func() { feeder.Run(ctx, func(err error) { b.Error(err) }) })
	read := func(qs []cache.Query) {
		asked := reader.Stats().Asked.Load()
		_, err := reader.Read(ctx, cache.Options{}, qs, make([]cache.Answer, len(qs)))
		must(b, err)
		q.count(qs, reader.Stats().Asked.Load()-asked)
	}
	run := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			w.step(read)
		}
	}
	run(15 * time.Second)
	hits, asks, questions := c.hits, c.asks, w.asked
	loads, reads := w.m.Calls()
	h, t := hot.Stats(), tier.Stats()
	inMemory, inRedis, limited := h.Hits.Load(), t.Hits.Load(), t.Limited.Load()
	unpolled := reader.Stats().Unpolled.Load()
	q.all, q.hits, q.ideal = 0, 0, 0
	run(15 * time.Second)
	hits, asks, questions = c.hits-hits, c.asks-asks, w.asked-questions
	l, r := w.m.Calls()
	inMemory, inRedis, limited = h.Hits.Load()-inMemory, t.Hits.Load()-inRedis, t.Limited.Load()-limited
	rate, ideal := float64(inMemory+inRedis)/float64(asks), float64(hits)/float64(asks)
	b.Logf("%d vertices, %d entries in all, Redis of %d bytes; %d questions in 15 s wanted %d entries: %d hits in memory, %d in Redis; %d loads and %d questions to storage; %d loads limited, %d questions unpolled",
		len(w.users)+len(w.notes), n, room, questions, asks, inMemory, inRedis, l-loads, r-reads, limited, reader.Stats().Unpolled.Load()-unpolled)
	b.ReportMetric(100*rate, "%hits")
	b.ReportMetric(100*q.hits/q.all, "%question-hits")
	b.ReportMetric(100*q.ideal/q.all, "%question-ideal-LRU")
	b.ReportMetric(100*ideal, "%ideal-LRU")
	b.ReportMetric(rate/ideal, "hits:ideal")
	b.ReportMetric(100*(1-float64(l-loads+r-reads)/float64(questions)), "%saved")
}
