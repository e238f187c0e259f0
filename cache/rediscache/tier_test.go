package rediscache

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// patient is a tier's configuration for tests on a busy machine.
func patient() TierConfig { return TierConfig{Timeout: 10 * time.Second, Lease: time.Millisecond} }

// stack is a tier and its feeder over a model.
func stack(m *cachetest.Model, reads, feeds conn) (*Tier, *Feeder) {
	return newTier(patient(), reads, m), newFeeder(FeederConfig{}, feeds, m)
}

func feed(f *Feeder) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		must(t, f.Round(context.Background()))
	}
}

func runSuite(t *testing.T, reads, feeds conn, empty func()) {
	for name, above := range map[string]func(*testing.T, *Tier) cache.Source{
		"Redis": func(_ *testing.T, tier *Tier) cache.Source { return tier },
		"HotOverFlightsOverRedis": func(t *testing.T, tier *Tier) cache.Source {
			h, err := cache.NewHot(tier, cache.NewTopK(64, 1), 1<<20)
			must(t, err)
			return h
		},
	} {
		t.Run(name, func(t *testing.T) {
			var hits, fills uint64
			cachetest.Run(t, func(t *testing.T, m *cachetest.Model) cachetest.Stack {
				empty()
				tier, f := stack(m, reads, feeds)
				must(t, f.Round(context.Background()))
				t.Cleanup(func() {
					s := tier.Stats()
					hits, fills = hits+s.Hits.Load(), fills+s.Fills.Load()
					if s.Corrupt.Load() > 0 || s.Failed.Load() > 0 {
						t.Errorf("%d corrupt entries, %d failures", s.Corrupt.Load(), s.Failed.Load())
					}
				})
				return cachetest.Stack{Source: above(t, tier), Feed: feed(f), Dense: true}
			})
			if hits < 500 || fills < 30 {
				t.Errorf("the suite was answered by storage: %d hits, %d fills", hits, fills)
			}
		})
	}
}

func TestConformanceOfModel(t *testing.T) {
	r := newModelRedis()
	runSuite(t, r, r, r.flush)
}

func TestConformanceStandalone(t *testing.T) {
	s := startServer(t)
	c := s.client()
	runSuite(t, newRedisConn(c), newRedisConn(s.client(func(o *redis.UniversalOptions) { *o = FeederOptions(*o) })), func() {
		must(t, c.FlushAll(context.Background()).Err())
	})
}

func TestConformanceCluster(t *testing.T) {
	cl := startCluster(t)
	c := newClient(t, cl.options()).(*redis.ClusterClient)
	feeds := newClient(t, cl.options(), func(o *redis.UniversalOptions) { *o = FeederOptions(*o) })
	runSuite(t, newRedisConn(c), newRedisConn(feeds), func() {
		must(t, c.ForEachMaster(context.Background(), func(ctx context.Context, n *redis.Client) error { return n.FlushAll(ctx).Err() }))
	})
}
