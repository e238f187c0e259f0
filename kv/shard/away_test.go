package shard

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// RULES 15: a transfer that outlives the log makes the next one necessary, for ever. A
// follower that was away for many writes catches up while they go on, in at most two,
// though the log behind the first transfer grows past its bound again and again.
func TestRuleA3_15_AFollowerAwayForLongCatchesUpUnderLoad(t *testing.T) {
	writes, counters := int64(30_000), 50_000
	if os.Getenv("LIANA_LONG") == "1" {
		writes, counters = 500_000, 500_000
	}
	f := newFleet(t, 3, func(c *NodeConfig) {
		c.PeerHeartbeat = 500 * time.Millisecond
		c.Limits.LogBytes, c.Limits.KeepEntries = 128<<10, 64
	}).form()
	f.add("a")
	f.agree()
	f.isolate(true, 3)

	w := startWriters(f, counters)
	defer w.end()
	w.await(writes)
	f.slow.Store(int64(100 * time.Millisecond)) // the log's bound is written several times meanwhile
	back := f.rigs[2].shards[1]
	if first := f.leader().Status().FirstLog; first <= back.Status().LastLog+1 {
		t.Fatalf("the log still begins at %d: no transfer is needed", first)
	}
	w.await(w.done.Load() + 1) // the load goes on
	begun, before := time.Now(), w.done.Load()
	f.isolate(false, 3)
	eventuallyIn(t, 2*time.Minute, "the follower to catch up under load", func() bool {
		return back.Status().Installs > 0 && back.Status().Applied+promoteLag/4 > f.leader().Status().Applied
	})
	t.Logf("caught up in %v under %d writes, with %d transfers", time.Since(begun), w.done.Load()-before, back.Status().Installs)
	if got := back.Status().Installs; got > 2 {
		t.Errorf("%d transfers", got)
	}
	w.end()
	f.agree()
}

// writers add to counters until they end.
type writers struct {
	f    *fleet
	done atomic.Int64
	stop chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

func startWriters(f *fleet, counters int) *writers {
	w := &writers{f: f, stop: make(chan struct{})}
	for i := range 64 {
		w.wg.Go(func() {
			for n := i; ; n += 64 {
				select {
				case <-w.stop:
					return
				default:
				}
				w.write(fmt.Appendf(nil, "counter-%07d", n%counters))
			}
		})
	}
	return w
}

// write adds through whoever leads; what becomes of one write does not matter.
func (w *writers) write(name []byte) {
	for _, r := range w.f.rigs {
		s := r.shards[1]
		if s.proposer.openTerm.Load() == 0 {
			continue
		}
		c, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if _, err := s.Propose(c, name); err == nil {
			w.done.Add(1)
		}
		cancel()
		return
	}
	time.Sleep(time.Millisecond)
}

func (w *writers) await(n int64) {
	w.f.t.Helper()
	eventuallyIn(w.f.t, 5*time.Minute, fmt.Sprintf("%d writes", n), func() bool { return w.done.Load() >= n })
}

func (w *writers) end() {
	w.once.Do(func() { close(w.stop) })
	w.wg.Wait()
}

// To apply a long log takes many times the processor that it takes to copy what it made: a
// replica that joins is sent the state, also where the log is whole. Another member that
// is a little behind still finds its entries.
func TestAJoiningReplicaIsSentTheStateOfALongLog(t *testing.T) {
	f := newFleet(t, 3, nil)
	for _, r := range f.rigs {
		f.open(r)
	}
	f.rigs[0].startShard(1)
	f.join(f.rigs[1])
	name := strings.Repeat("x", 2000)
	for range joinEntries + joinBytes/len(name) {
		f.add(name)
	}
	if first := f.leader().Status().FirstLog; first > 2 {
		t.Fatalf("the log begins at %d already", first)
	}
	f.join(f.rigs[2])
	f.add("a")
	f.agree()
	for i, want := range []uint64{0, 0, 1} {
		if got := f.rigs[i].shards[1].Status().Installs; got != want {
			t.Errorf("replica %d was sent the state %d times, want %d", i+1, got, want)
		}
	}
}

// A short log is sent as it is: nothing is flushed for it.
func TestAJoiningReplicaIsSentAShortLog(t *testing.T) {
	f := newFleet(t, 2, nil).form()
	f.add("a")
	f.agree()
	if got := f.rigs[1].shards[1].Status().Installs; got != 0 {
		t.Errorf("the replica was sent the state %d times", got)
	}
}
