package shard

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lianadb/liana/kv/pebblekv"
)

// crashDisk is the disk of a node: two crashable file systems and a bolt file.
type crashDisk struct {
	state, log *pebblekv.CrashFS
	bolt       string
}

// image takes the disk as loss of power (or, with keep 100, the end of the
// process) at this moment leaves it. Both stores stand for one moment: applying
// is held up, and a truncation between the two images only follows the state.
func (d crashDisk) image(t *testing.T, c *crashNode, seed uint64, keep int) crashDisk {
	t.Helper()
	c.shard.fsm.mu.Lock()
	defer c.shard.fsm.mu.Unlock()
	var next crashDisk
	next.log = d.log.PowerLoss(seed, keep)
	next.state = d.state.PowerLoss(seed+1, keep)
	b, err := os.ReadFile(d.bolt)
	if err != nil {
		t.Fatal(err)
	}
	next.bolt = filepath.Join(t.TempDir(), "raft.db")
	if err := os.WriteFile(next.bolt, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return next
}

type crashNode struct {
	state, log *pebblekv.Store
	node       *Node
	shard      *Shard
	machine    *sums
}

func (d crashDisk) open(t *testing.T) *crashNode {
	t.Helper()
	var c crashNode
	var node atomic.Pointer[Node]
	var err error
	flushed := func() {
		if n := node.Load(); n != nil {
			n.StateFlushed()
		}
	}
	c.state, err = pebblekv.Open("state", pebblekv.Options{FS: d.state.FS(), MemTableBytes: 64 << 10, OnFlush: flushed})
	if err != nil {
		t.Fatal(err)
	}
	c.log, err = pebblekv.Open("log", pebblekv.Options{FS: d.log.FS(), Profile: pebblekv.Log, MemTableBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	c.node, err = OpenNode(NodeConfig{State: c.state, Log: c.log, StablePath: d.bolt, Heartbeat: 10 * time.Millisecond,
		Limits: Limits{KeepEntries: 4, LogBytes: 128 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	node.Store(c.node)
	c.machine = newSums(t, c.state, 1)
	c.shard, err = c.node.StartShard(ShardConfig{ID: 1, Machine: c.machine})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.shard.Ready(ctx(t)); err != nil {
		t.Fatal(err)
	}
	return &c
}

func (c *crashNode) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(c.node.Close(), c.state.Close(), c.log.Close()); err != nil {
		t.Fatal(err)
	}
}

// Power is lost, or the process killed, at random moments under load, with any
// part of what was not synced surviving: what was acknowledged before that
// moment is there, once.
func TestRuleA1_AcknowledgedCommandsSurviveLossOfPower(t *testing.T) {
	rounds := 12
	if os.Getenv("LIANA_LONG") == "1" {
		rounds = 300
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	d := crashDisk{pebblekv.NewCrashFS(), pebblekv.NewCrashFS(), filepath.Join(t.TempDir(), "raft.db")}
	at := int64(0)
	for round := range rounds {
		c := d.open(t)
		if got := c.machine.get("a"); got < at {
			t.Fatalf("seed %d, round %d: %d after a crash, %d were acknowledged", seed, round, got, at)
		}
		var acked, highest atomic.Int64
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					v, err := c.shard.Propose(ctx(t), append([]byte("a "), make([]byte, 500)...))
					if err != nil {
						t.Error(err)
						return
					}
					acked.Add(1)
					for h := highest.Load(); v.(int64) > h && !highest.CompareAndSwap(h, v.(int64)); h = highest.Load() {
					}
				}
			})
		}
		time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			if err := c.node.Truncate(true); err != nil {
				t.Fatal(err)
			}
			if first, last := c.shard.log.bounds(); last > 8 && first == 1 {
				t.Fatal("the log was not cut")
			}
		}
		at = highest.Load()
		next := d.image(t, c, rng.Uint64(), rng.IntN(3)*50)
		close(stop)
		wg.Wait()
		c.close(t)
		d = next
	}
}
