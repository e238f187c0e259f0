package rediscache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
)

// FeederConfig configures a Feeder.
type FeederConfig struct {
	// Tick is how often changes are brought to Redis. A tenth of the bound of
	// staleness, or less. Default 100 ms.
	Tick time.Duration
	// Raise is how often the slots that do not change are brought up to the shard's
	// position, so that the log may be trimmed. Default 1 minute.
	Raise time.Duration
	// Timeout bounds the wait for Redis in each step of a round. A server that does not
	// answer in time again and again is left alone for up to 5 s at a time, so that it does
	// not hold up the slots of others. Default 500 ms.
	Timeout time.Duration
	// Rand makes gens. Default: the runtime's source.
	Rand func() uint64
	// Window and Least are how many edges a window holds, and below how many one
	// that is not complete is given up. Default cache.WindowEdges and half of it.
	Window, Least int
}

func (c *FeederConfig) setDefaults() {
	if c.Tick == 0 {
		c.Tick = 100 * time.Millisecond
	}
	if c.Raise == 0 {
		c.Raise = time.Minute
	}
	if c.Timeout == 0 {
		c.Timeout = 500 * time.Millisecond
	}
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
	if c.Window == 0 {
		c.Window, c.Least = cache.WindowEdges, cache.WindowEdges/2
	}
}

// Feeder brings the changes of the shards that are led here to Redis. It keeps nothing
// durable: how far a slot has come stands in Redis, beside the data (CACHE.md F4). Several
// feeders of one slot do no harm. It is used by one goroutine.
//
// The client must not follow redirections by itself, or a slot under migration
// would lose changes (F6): see FeederOptions.
type Feeder struct {
	cfg    FeederConfig
	conn   conn
	log    cache.Log
	now    func() time.Time
	shards map[uint32]*fedShard
	// breakers are its own: a reader waits for less, so what it gives up may be fed.
	breakers *breakers
	relook   func(context.Context) // learns anew which server has which slot
	stats    FeederStats
	since    atomic.Int64 // ns since 1970: all that was in the logs then is in Redis; 0: nothing to feed
}

// FeederStats count what a Feeder did.
type FeederStats struct {
	Changes atomic.Uint64 // of the logs, sent; again after a failure
	Pushes  atomic.Uint64 // calls of PUSH that moved p
	Opened  atomic.Uint64 // slots that had no p
	Regens  atomic.Uint64 // slots whose entries were all forgotten
	Faults  atomic.Uint64 // calls that failed
}

// NewFeeder returns a Feeder.
func NewFeeder(cfg FeederConfig, client redis.UniversalClient, log cache.Log) *Feeder {
	f := newFeeder(cfg, newRedisConn(client), log)
	if c, ok := client.(*redis.ClusterClient); ok {
		f.relook = c.ReloadState // it follows no redirection, which would do so
	}
	return f
}

func newFeeder(cfg FeederConfig, c conn, log cache.Log) *Feeder {
	cfg.setDefaults()
	return &Feeder{cfg: cfg, conn: c, log: log, now: time.Now, shards: map[uint32]*fedShard{}, breakers: newBreakers(), relook: func(context.Context) {}}
}

// errLeftAlone is of calls that were not made, as their server does not answer.
var errLeftAlone = errors.New("redis is left alone for a while, as it does not answer")

// do makes calls of servers that answer, in parts that a pipeline holds well, and tells the
// breakers of it.
func (f *Feeder) do(ctx context.Context, calls []call) []reply {
	const part = 512
	replies := make([]reply, len(calls))
	for from := 0; from < len(calls); from += part {
		to := min(from+part, len(calls))
		f.doPart(ctx, calls[from:to], replies[from:to])
	}
	return replies
}

func (f *Feeder) doPart(ctx context.Context, calls []call, replies []reply) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	asked, which := calls, []int(nil)
	if !f.breakers.allWell() {
		asked, which = nil, make([]int, 0, len(calls))
		for i := range calls {
			if f.breakers.allow(f.conn.node(calls[i].keys[0])) {
				asked, which = append(asked, calls[i]), append(which, i)
			} else {
				replies[i].err = errLeftAlone
			}
		}
	}
	if len(asked) == 0 {
		return
	}
	for j, r := range f.conn.do(ctx, asked) {
		i := j
		if which != nil {
			i = which[j]
		}
		replies[i] = r
		if ok := r.err == nil || isMigrating(r.err); !ok || !f.breakers.allWell() {
			f.breakers.report(f.conn.node(asked[j].keys[0]), ok)
		}
	}
}

// OpenBreakers returns how many servers are left alone at present.
func (f *Feeder) OpenBreakers() int { return f.breakers.open() }

// Stats returns the counters of this feeder.
func (f *Feeder) Stats() *FeederStats { return &f.stats }

// Lag is for how long there have been changes that are not in Redis: about a tick
// while all is well, 0 where no shard is led. Any goroutine may ask.
func (f *Feeder) Lag() time.Duration {
	since := f.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, f.now().Sub(time.Unix(0, since)))
}

// Run feeds until ctx ends. Failed rounds are told to failed.
func (f *Feeder) Run(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(f.cfg.Tick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f.Round(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}

// Round brings every slot that is led here as far as its log goes. What fails is
// tried again in the next round.
func (f *Feeder) Round(ctx context.Context) error {
	led := map[uint32]bool{}
	var errs []error
	for _, sh := range f.log.Led() {
		led[sh.ID] = true
		s := f.shards[sh.ID]
		if s == nil || s.Shard != sh {
			s = newFedShard(f, sh)
			f.shards[sh.ID] = s
		}
		if err := s.round(ctx); err != nil {
			errs = append(errs, fmt.Errorf("feed shard %d: %w", sh.ID, err))
		}
	}
	for id := range f.shards { // any order: removed
		if !led[id] {
			delete(f.shards, id)
		}
	}
	f.since.Store(f.oldest())
	if len(errs) > 0 {
		f.relook(ctx)
	}
	return errors.Join(errs...)
}

// oldest is since when the shard that is furthest behind is so.
func (f *Feeder) oldest() (since int64) {
	for _, s := range f.shards { // any order: the least
		if at := s.fedAt.UnixNano(); since == 0 || at < since {
			since = at
		}
	}
	return since
}
