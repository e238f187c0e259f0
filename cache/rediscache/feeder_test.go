package rediscache

import (
	"context"
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
		for back := time.Now(); f.Round(t.Context()) != nil; time.Sleep(100 * time.Millisecond) {
			if time.Since(back) > breakerMost {
				t.Fatal("a node that is back is not fed")
			}
		}
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

// A server that does not answer costs a feeder one wait, and then no more than one in each
// pause of its breaker: the slots of others are fed as ever.
func TestAServerThatHangsHoldsUpNoOtherSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := cachetest.NewModel(4)
		c := &hangingConn{modelRedis: newModelRedis()}
		f := newFeeder(FeederConfig{Timeout: 300 * time.Millisecond}, c, m)
		must(t, f.Round(t.Context()))
		c.hangs = true
		began, waited := time.Now(), time.Duration(0)
		for peer := uint64(1); time.Since(began) < 20*time.Second; peer++ {
			m.Apply(cachetest.Add(cachetest.Like(0), peer, 1), cachetest.Add(cachetest.Like(1), peer, 1))
			at := time.Now()
			if err := f.Round(t.Context()); err == nil {
				t.Fatal("a server hangs and the feeder says nothing")
			}
			waited += time.Since(at)
			if p := f.shards[1].slots[1].p; peer > 3 && p.h < m.Last(1).Number {
				t.Fatalf("round %d: the slot of the other server is fed up to %d, its last change is %d", peer, p.h, m.Last(1).Number)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if waited > 5*time.Second {
			t.Errorf("rounds waited %v in 20 s for a server that hangs", waited)
		}
		if f.OpenBreakers() != 1 {
			t.Errorf("%d breakers are open", f.OpenBreakers())
		}
		c.hangs = false
		time.Sleep(breakerMost)
		_ = f.Round(t.Context()) // asks for one slot
		must(t, f.Round(t.Context()))
		if p := f.shards[1].slots[0].p; p.h < m.Last(0).Number || f.OpenBreakers() > 0 {
			t.Errorf("the slot of the server that is back is fed up to %d, its last change is %d", p.h, m.Last(0).Number)
		}
	})
}

// hangingConn is two nodes, of which that of the even slots can hang.
type hangingConn struct {
	*modelRedis
	hangs bool
}

func (c *hangingConn) node(key string) string { return "ab"[nodeOf(key, 2):][:1] }

func (c *hangingConn) do(ctx context.Context, calls []call) []reply {
	out := make([]reply, len(calls))
	for i := range calls {
		if c.hangs && nodeOf(calls[i].keys[0], 2) == 0 {
			<-ctx.Done()
			out[i].err = ctx.Err()
		} else {
			out[i] = c.modelRedis.do(ctx, calls[i:i+1])[0]
		}
	}
	return out
}
