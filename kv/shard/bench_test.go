package shard

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
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
// for its answer, on Pebble on disk. The yardstick raw is as many callers that
// commit one such key each, synced, to the log's engine: no Raft, no state.
func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("raw/callers=%d", callers), func(b *testing.B) { benchRaw(b, callers) })
		for _, groups := range []int{1, 4} {
			b.Run(fmt.Sprintf("groups=%d/callers=%d", groups, callers), func(b *testing.B) {
				benchPropose(b, diskRig(b, b.TempDir(), nil), groups, callers)
			})
		}
	}
}

// share lets callers do b.N operations between them.
func share(b *testing.B, callers int, op func(caller int) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := op(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}

func benchRaw(b *testing.B, callers int) {
	r := diskRig(b, b.TempDir(), nil)
	share(b, callers, func(i int) error {
		return setSync(r.log, fmt.Appendf(nil, "raw%d", i), make([]byte, 64))
	})
}

// BenchmarkGather is BenchmarkPropose on memory with a sync of 0.45 ms, the same
// whatever the disk does: for comparing ways to gather.
func BenchmarkGather(b *testing.B) {
	for _, callers := range []int{64, 1024} {
		for _, groups := range []int{1, 4} {
			for _, flying := range []int{1, 2, 3} {
				b.Run(fmt.Sprintf("callers=%d/groups=%d/flying=%d", callers, groups, flying), func(b *testing.B) {
					r := newRig(b, kv.NewMem(nil), slowSync{kv.NewMem(nil)}, func(c *NodeConfig) { c.Limits.Flying = flying })
					benchPropose(b, r.start(1), groups, callers)
				})
			}
		}
	}
}

type slowSync struct{ kv.Store }

func (s slowSync) NewBatch() kv.Batch { return slowBatch{s.Store.NewBatch()} }

type slowBatch struct{ kv.Batch }

func (b slowBatch) Commit(d kv.Durability) error {
	if d == kv.Sync { // not time.Sleep, which rounds up to a millisecond
		if err := syscall.Nanosleep(&syscall.Timespec{Nsec: 450_000}, nil); err != nil && err != syscall.EINTR {
			return err
		}
	}
	return b.Batch.Commit(kv.NoSync)
}

func benchPropose(b *testing.B, r *rig, groups, callers int) {
	for id := uint32(2); id <= uint32(groups); id++ {
		r.startShard(id)
		if err := r.shards[id].Ready(ctx(b)); err != nil {
			b.Fatal(err)
		}
	}
	c := ctx(b)
	share(b, callers, func(i int) error {
		_, err := r.shards[uint32(i%groups)+1].Propose(c, fmt.Appendf(nil, "%064d", i))
		return err
	})
	var entries, commands uint64
	for _, s := range r.shards {
		st := s.Status()
		entries, commands = entries+st.Entries, commands+st.Commands
	}
	b.ReportMetric(float64(commands)/float64(entries), "commands/entry")
}
