package shard

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lianadb/liana/kv/pebblekv"
)

// diskRig is a node on Pebble on the real disk, wired as in production.
func diskRig(b testing.TB, dir string, cfg func(*NodeConfig)) *rig {
	b.Helper()
	var r *rig
	var node atomic.Pointer[Node]
	state, err := pebblekv.Open(filepath.Join(dir, "state"), pebblekv.Options{OnFlush: func() {
		if n := node.Load(); n != nil {
			n.StateFlushed()
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	log, err := pebblekv.Open(filepath.Join(dir, "log"), pebblekv.Options{Profile: pebblekv.Log})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.close()
		if err := state.Close(); err != nil {
			b.Error(err)
		}
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	})
	r = newRig(b, state, log, func(c *NodeConfig) {
		c.Heartbeat = 50 * time.Millisecond
		if cfg != nil {
			cfg(c)
		}
	})
	r.stable = filepath.Join(dir, "raft.db")
	r.start(1) // found
	node.Store(r.node)
	return r
}

// BenchmarkPropose measures durable commands of 64 bytes, each caller waiting
// for its answer, on Pebble on disk.
func BenchmarkPropose(b *testing.B) {
	for _, flying := range []int{1, 2, 3} {
		for _, groups := range []int{1, 4} {
			for _, callers := range []int{1, 64, 1024} {
				b.Run(fmt.Sprintf("flying=%d/groups=%d/callers=%d", flying, groups, callers), func(b *testing.B) {
					benchPropose(b, flying, groups, callers)
				})
			}
		}
	}
}

func benchPropose(b *testing.B, flying, groups, callers int) {
	r := diskRig(b, b.TempDir(), func(c *NodeConfig) { c.Limits.Flying = flying })
	for id := uint32(2); id <= uint32(groups); id++ {
		r.startShard(id)
		if err := r.shards[id].Ready(ctx(b)); err != nil {
			b.Fatal(err)
		}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	c := ctx(b)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		s := r.shards[uint32(i%groups)+1]
		cmd := fmt.Appendf(nil, "%064d", i)
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := s.Propose(c, cmd); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	var entries, commands uint64
	for _, s := range r.shards {
		st := s.Status()
		entries, commands = entries+st.Entries, commands+st.Commands
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
	b.ReportMetric(float64(commands)/float64(entries), "commands/entry")
}
