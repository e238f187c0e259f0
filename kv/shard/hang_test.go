package shard

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
)

// A replica is stopped while a store call of it hangs. It is neither started anew nor
// destroyed before that call has returned: what the call writes late would be in the log
// or the state of the next one. Then it is, by itself.
func TestAReplicaWhoseStopHangsIsNotDestroyedUnderIt(t *testing.T) {
	for name, hang := range map[string]struct {
		prefix []byte
		in     func(r *rig, f *faulty)
	}{
		"a hanging log":   {[]byte{logEntries}, func(r *rig, f *faulty) { f.Store, r.log = r.log, f }},
		"a hanging state": {[]byte{1}, func(r *rig, f *faulty) { f.Store, r.state = r.state, f }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := memRig(t, func(c *NodeConfig) { c.Limits.StoreTimeout = 300 * time.Millisecond })
			f := &faulty{prefix: hang.prefix}
			hang.in(r, f)
			r.start(1)
			r.add(1, "a")
			s, release := r.shards[1], make(chan struct{})
			end := sync.OnceFunc(func() {
				f.set(func(f *faulty) { f.setWait = nil })
				close(release)
			})
			defer end()
			f.set(func(f *faulty) { f.setWait = release })
			p, err := s.ProposeAsync([]byte("a"), Client)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "a store call is under way", func() bool {
				return s.works.log.began.Load()+s.works.apply.began.Load() != 0
			})
			if err := s.Close(); err == nil {
				t.Fatal("a stop that hangs is no error")
			}
			if _, err := p.Wait(ctx(t)); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("the write under way: %v", err)
			}
			parts := r.machines[1].Parts()
			if err := r.node.DestroyReplica(1, parts); !errors.Is(err, ErrRuns) {
				t.Errorf("destroyed under a store call: %v", err)
			}
			if _, err := r.node.StartShard(ShardConfig{ID: 1, Machine: newSums(t, r.state, 1)}); !errors.Is(err, ErrRuns) {
				t.Errorf("started beside a store call: %v", err)
			}
			if got := r.replicas(); len(got) != 1 {
				t.Errorf("replicas %v", got)
			}
			end()
			eventually(t, "the replica is destroyed", func() bool {
				err := r.node.DestroyReplica(1, parts)
				if err != nil && !errors.Is(err, ErrRuns) {
					t.Fatal(err)
				}
				return err == nil
			})
			it, err := r.state.NewIter(kv.PrefixSpan(r.machines[1].prefix()))
			if err != nil {
				t.Fatal(err)
			}
			defer it.Close()
			if it.First() || len(r.replicas()) != 0 {
				t.Errorf("left over: %x, replicas %v", it.Key(), r.replicas())
			}
			r.startShard(1) // and another one in its place
			if err := r.shards[1].Ready(ctx(t)); err != nil {
				t.Fatal(err)
			}
			r.add(1, "a")
		})
	}
}
