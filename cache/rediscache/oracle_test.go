package rediscache

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// oracle is two gateways and a feeder on a real Redis, with everything running by
// itself, and clients that check each answer.
type oracle struct {
	t       *testing.T
	m       *cachetest.Model
	readers []*cache.Reader
	tiers   []*Tier
	audits  []*cache.Auditor
	asked   atomic.Int64
	few     bool // all clients use twenty lists
}

const oracleBound = time.Second

// dialer makes clients; change may alter their options.
type dialer func(change ...func(*redis.UniversalOptions)) redis.UniversalClient

func startOracle(t *testing.T, ctx context.Context, running *sync.WaitGroup, dial dialer) *oracle {
	o := &oracle{t: t, m: cachetest.NewModel(16)}
	o.m.Record = true
	for range 2 {
		tier := NewTier(TierConfig{Timeout: 100 * time.Millisecond, Lease: 50 * time.Millisecond}, dial(), slowLoads{o.m})
		polls := cache.NewPolls(oracleBound)
		hot, err := cache.NewHot(tier, cache.NewTopK(64, 20), 1<<20)
		must(t, err)
		audit := cache.NewAuditor(hot, o.m, polls)
		running.Go(func() { polls.Run(ctx, o.m, func(err error) { t.Error(err) }) })
		running.Go(func() {
			audit.Run(ctx, func(k cache.Key, err error) { t.Errorf("the auditor found %v: %v", k, err) })
		})
		o.tiers, o.audits, o.readers = append(o.tiers, tier), append(o.audits, audit), append(o.readers, cache.NewReader(o.m, audit, polls))
	}
	f := NewFeeder(FeederConfig{Tick: 20 * time.Millisecond}, dial(onlyFeeder), o.m)
	running.Go(func() { f.Run(ctx, func(error) {}) })
	return o
}

// slowLoads lets some loads take so long that their slots move on meanwhile.
type slowLoads struct{ cache.Source }

func (s slowLoads) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	err := s.Source.Load(ctx, wants, got)
	if rand.IntN(2) == 0 {
		time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
	}
	return err
}

// client writes and reads until ctx ends, through either gateway, under its token.
func (o *oracle) client(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 5))
	var tok cache.Token
	for ctx.Err() == nil {
		l, peer := cachetest.Like(r.Uint64N(200)), r.Uint64N(40_000)+1
		if o.few {
			l, peer = cachetest.Like(r.Uint64N(20)), r.Uint64N(20)+1
		} else if r.IntN(3) > 0 {
			l, peer = cachetest.Like(r.Uint64N(4)), r.Uint64N(8)+1
		}
		if r.IntN(10) == 0 {
			made := o.m.Apply([]cache.Change{cachetest.Add(l, peer, r.Int64N(50)), cachetest.Remove(l, peer), set(l.Vertex, 1, cache.Field(r.IntN(100)))}[r.IntN(3)])
			if len(made) > 0 {
				tok.See(made[0].Slot, cache.Position{Timeline: 1, Number: made[0].Number})
			}
		}
		q := cache.Query{Kind: cache.QueryKind(1 + r.IntN(4)), List: l, Slot: o.m.SlotOf(l.Vertex), Peer: peer, Dense: true, Metric: 1, Page: cache.PageQuery{Limit: 1 + r.IntN(9)}.AllTime()}
		k := cachetest.Asked{Query: q, Bound: oracleBound, At: time.Now()}
		if r.IntN(2) == 0 {
			k.Token = tok
			k.Token.Seen = slices.Clone(tok.Seen)
		}
		as := make([]cache.Answer, 1)
		got, err := o.readers[r.IntN(2)].Read(ctx, cache.Options{Token: k.Token}, []cache.Query{q}, as)
		if err != nil {
			if ctx.Err() == nil {
				o.t.Error(err)
			}
			return
		}
		o.asked.Add(1)
		if err := o.m.Check(&k, &as[0], &got); err != nil {
			o.t.Error(err)
			return
		}
		for _, p := range got.Seen {
			tok.See(p.Slot, cache.Position{Timeline: got.Timeline, Number: p.Number})
		}
	}
}

// upset does things to a Redis until ctx ends.
func (s *server) upset(ctx context.Context, c redis.UniversalClient) {
	r := rand.New(rand.NewPCG(3, 3))
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(time.Duration(20+r.IntN(150)) * time.Millisecond)
		switch i % 7 {
		case 0:
			c.FlushAll(ctx)
		case 1:
			c.ScriptFlush(ctx)
		case 2:
			s.pause()
			time.Sleep(200 * time.Millisecond)
			s.resume()
		case 3:
			c.ConfigSet(ctx, "maxmemory-policy", "allkeys-random")
			c.ConfigSet(ctx, "maxmemory", "1500kb")
			time.Sleep(200 * time.Millisecond)
			c.ConfigSet(ctx, "maxmemory", "0")
		case 6:
			s.kill()
			s.start()
		default:
			for range 20 {
				c.Del(ctx, c.RandomKey(ctx).Val())
			}
		}
	}
}

// Whatever happens to Redis, no answer is older than its token or the bound, and none of
// a state that never was; at rest, what is cached equals storage.
func TestOracleOnRedisUnderFaults(t *testing.T) {
	length := 3 * time.Second
	if os.Getenv("LIANA_LONG") != "" {
		length = 2 * time.Minute
	}
	ctx, stop := context.WithCancel(context.Background())
	var running, clients sync.WaitGroup
	defer running.Wait()
	defer stop()
	s := startServer(t)
	dial := s.client
	o := startOracle(t, ctx, &running, dial)
	admin := dial()
	faults, calm := context.WithTimeout(ctx, length)
	defer calm()
	working, end := context.WithTimeout(ctx, length+2*time.Second)
	defer end()
	for i := range uint64(4) {
		clients.Go(func() { o.client(working, i) })
	}
	clients.Go(func() { s.upset(faults, admin) })
	clients.Wait()
	if t.Failed() {
		return
	}
	o.atRest(ctx, admin)
	hits, fills, failed, equal := o.sums()
	if hits == 0 || fills == 0 || failed == 0 || equal == 0 {
		t.Error("the test did not test what it was made for")
	}
}

// atRest waits until the feeder is done, and compares all that is cached with storage.
func (o *oracle) atRest(ctx context.Context, admin redis.UniversalClient) {
	o.t.Helper()
	eventually(o.t, "the feeder has come to the end", func() error {
		for slot := range cache.Slot(16) {
			v, err := admin.Get(ctx, headKey(1, slot)).Bytes()
			if err != nil {
				return err
			}
			if p, err := decodeHead(v); err != nil || p.h < o.m.Last(slot).Number {
				return errLost
			}
		}
		return nil
	})
	kinds := map[cache.Kind]int{}
	must(o.t, Walk(ctx, admin.(*redis.Client), func(k cache.Key, e cache.Entry) {
		truth := o.m.Entry(&k)
		if truth.IsNone() { // a chunk that is not worth it any more
			return
		}
		kinds[k.Kind]++
		if err := e.Differs(&truth); err != nil {
			o.t.Errorf("%v at %+v: %v", k, e.At, err)
		}
	}))
	if kinds[cache.KindRow] == 0 || kinds[cache.KindWindow] == 0 { // chunks are few
		o.t.Errorf("at rest, entries of these kinds were there to be compared: %v", kinds)
	}
}

// sums are the counters of both gateways.
func (o *oracle) sums() (hits, fills, failed, equal uint64) {
	for _, tier := range o.tiers {
		s := tier.Stats()
		hits, fills, failed = hits+s.Hits.Load(), fills+s.Fills.Load(), failed+s.Failed.Load()
	}
	var skipped uint64
	for _, a := range o.audits {
		equal, skipped = equal+a.Stats().Equal.Load(), skipped+a.Stats().Skipped.Load()
	}
	o.t.Logf("%d answers, %d hits and %d fills in Redis, %d lookups failed; %d entries audited, %d more were skipped", o.asked.Load(), hits, fills, failed, equal, skipped)
	return hits, fills, failed, equal
}
