package rediscache

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// The lag of a feeder grows while a server is away, and is gone with it; what it does
// is counted.
func TestFeederTellsItsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := cachetest.NewModel(4)
		c := &halfConn{modelRedis: newModelRedis()}
		f := newFeeder(FeederConfig{}, c, m)
		if f.Lag() != 0 {
			t.Errorf("a feeder that has nothing to feed lags %v", f.Lag())
		}
		must(t, f.Round(t.Context()))
		m.Apply(cachetest.Add(cachetest.Like(0), 1, 1), cachetest.Add(cachetest.Like(1), 1, 1))
		time.Sleep(100 * time.Millisecond)
		if f.Lag() != 100*time.Millisecond {
			t.Errorf("a tick after its round it lags %v", f.Lag())
		}
		c.down = true
		for range 10 {
			if err := f.Round(t.Context()); err == nil {
				t.Error("a node is down and the feeder says nothing")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if f.Lag() != 1100*time.Millisecond {
			t.Errorf("it lags %v, of 1.1 s without the node", f.Lag())
		}
		c.down = false
		must(t, f.Round(t.Context()))
		if f.Lag() != 0 {
			t.Errorf("it lags %v after a round", f.Lag())
		}
		m.Apply(cache.Change{Kind: cache.EdgeAdded, List: cachetest.Like(3), Edge: cache.Edge{Peer: 1}})
		delete(c.keys, headKey(1, 3))
		time.Sleep(lookEvery)
		must(t, f.Round(t.Context()))
		s := f.Stats()
		if s.Opened.Load() != 5 || s.Pushes.Load() < 2 || s.Changes.Load() < 2 || s.Faults.Load() < 2 || s.Regens.Load() != 0 {
			t.Errorf("opened %d, %d pushes, %d changes, %d faults, %d regens", s.Opened.Load(), s.Pushes.Load(), s.Changes.Load(), s.Faults.Load(), s.Regens.Load())
		}
	})
}
