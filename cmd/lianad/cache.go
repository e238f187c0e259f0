package main

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/rediscache"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/server/peer"
	"github.com/lianadb/liana/server/tiers"
)

// caches are what stands before the storage on this node: on a gateway the tiers and
// their polls, on a node with storage the feeder of Redis.
type caches struct {
	clients []redis.UniversalClient
	reader  *tiers.Reader // nil on a node that is no gateway
	panel   tiers.Panel

	end   context.CancelFunc
	ended sync.WaitGroup
}

// The keys that are watched, and how often one is read in about a second before a copy of
// its entry is kept in memory.
const (
	hotKeys    = 4096
	hotTouches = 8
)

// ticksABound is how many ticks of the feeder are in the bound of staleness.
const ticksABound = 10

// openCaches opens the caches where a Redis is named; else there are none.
func (n *node) openCaches() error {
	if n.cfg.Redis.Addrs == "" {
		return nil
	}
	o, err := n.cfg.Redis.options()
	if err != nil {
		return err
	}
	if n.host.wire != nil {
		o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) { return n.host.wire(ctx, addr) }
	}
	c := &caches{panel: tiers.Panel{Graph: n.graph, Self: n.cluster.id.NodeID, Others: n.cluster.others}}
	ctx, cancel := context.WithCancel(context.Background())
	c.end = cancel
	n.caches = c
	if n.cfg.Cluster.has(roleGateway) {
		if err := c.openReader(ctx, n, o); err != nil {
			return err
		}
	}
	if n.cfg.Cluster.has(roleStorage) {
		c.openFeeder(ctx, n, o)
	}
	return nil
}

func (c *caches) openReader(ctx context.Context, n *node, o redis.UniversalOptions) error {
	cfg, p := n.cfg.Cache, &c.panel
	p.Storage = tiers.NewStorage(n.cluster.router, n.graph)
	tier := rediscache.TierConfig{TTL: cfg.TTL, Timeout: cfg.RedisTimeout, Rebuilds: cfg.Rebuilds.limits()}
	p.Tier = rediscache.NewTier(tier, c.client(rediscache.ReaderOptions(o)), cache.NewFlights(p.Storage))
	var err error
	if p.Hot, err = cache.NewHot(p.Tier, cache.NewTopK(hotKeys, hotTouches), cfg.HotBytes); err != nil {
		return err
	}
	polls := cache.NewPolls(cfg.Staleness)
	p.Auditor = cache.NewAuditor(p.Hot, p.Storage, polls)
	p.Reader = cache.NewReader(p.Storage, p.Auditor, polls)
	c.reader = tiers.NewReader(n.cluster.router, n.graph, p.Reader)
	told := complaints{log: n.log, text: "leaders did not say how far they are: reads of their shards pass the cache by"}
	c.ended.Go(func() { polls.Run(ctx, p.Storage, told.tell) })
	c.ended.Go(func() {
		p.Auditor.Run(ctx, func(k cache.Key, err error) {
			n.log.Error("a cached entry is not what the storage holds", "entry", k.String(), "slot", k.Slot, "error", err)
		})
	})
	return nil
}

func (c *caches) openFeeder(ctx context.Context, n *node, o redis.UniversalOptions) {
	cfg := rediscache.FeederConfig{Tick: n.cfg.Cache.Staleness / ticksABound, Timeout: n.cfg.Cache.FeedTimeout}
	c.panel.Feeder = rediscache.NewFeeder(cfg, c.client(rediscache.FeederOptions(o)), tiers.NewLog(n.graph))
	told := complaints{log: n.log, text: "changes do not come to Redis: what they concern is read from the storage"}
	c.ended.Go(func() { c.panel.Feeder.Run(ctx, told.tell) })
}

func (c *caches) client(o redis.UniversalOptions) redis.UniversalClient {
	client := redis.NewUniversalClient(&o)
	c.clients = append(c.clients, client)
	return client
}

// copies are what other nodes may ask of this node's caches; nil where there are none.
func (c *caches) copies() peer.Copies {
	if c == nil {
		return nil
	}
	return c.panel.Local()
}

// close ends the loops and the connections. Calls that are still at work find a cache that
// has nothing.
func (c *caches) close() {
	if c == nil {
		return
	}
	c.end()
	c.ended.Wait()
	for _, client := range c.clients {
		_ = client.Close() // a connection that does not end well loses nothing
	}
}

// complaintPause is the time between two lines about what fails all the time.
const complaintPause = 10 * time.Second

// complaints logs what goes on failing, now and then.
type complaints struct {
	log  *slog.Logger
	text string

	mu   sync.Mutex
	last time.Time
}

func (c *complaints) tell(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.last) >= complaintPause {
		c.last = now
		c.log.Warn(c.text, "error", err)
	}
}

// backend is what the server serves: calls by the caches or the router, and of the node
// what operators ask.
func (n *node) backend() backend {
	if n.caches != nil && n.caches.reader != nil {
		return backend{n.caches.reader, n.graph}
	}
	return backend{n.cluster.router, n.graph}
}

var (
	_ domain = (*graph.Router)(nil)
	_ domain = (*tiers.Reader)(nil)
)
