package graph

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lianadb/liana/kv/pebblekv"
)

// journal is what was acknowledged: the last acknowledged state of each pair, and
// which pair has an operation under way.
type journal struct {
	mu      sync.Mutex
	acked   map[[2]uint64]bool
	flying  map[[2]uint64]bool
	begun   map[[2]uint64]int // operations begun on each pair
	counted int64             // acknowledged increments
	tried   int64
}

func newJournal() *journal {
	return &journal{acked: map[[2]uint64]bool{}, flying: map[[2]uint64]bool{}, begun: map[[2]uint64]int{}}
}

func (j *journal) copy() *journal {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := newJournal()
	out.counted, out.tried = j.counted, j.tried
	for k, n := range j.begun {
		out.begun[k] = n
	}
	for k, v := range j.acked {
		out.acked[k] = v
	}
	for k := range j.flying {
		out.flying[k] = true
	}
	return out
}

// write runs adds, deletes and increments of its own pairs until ctx ends.
func (j *journal) write(ctx context.Context, w *world, writer uint64, rng *rand.Rand) {
	for ctx.Err() == nil {
		k := [2]uint64{writer*100 + uint64(rng.Intn(40)) + 1, uint64(rng.Intn(30)) + 1}
		add := rng.Intn(3) > 0
		op := OpDelete
		if add {
			op = OpAdd
		}
		j.mu.Lock()
		j.flying[k] = true
		j.begun[k]++
		j.tried++
		j.mu.Unlock()
		res, _, err := w.g.Mutate(context.Background(), []Mutation{{Op: op, Type: 1, Src: k[0], Dst: k[1]}}, WaitBoth)
		inc, _, err2 := w.g.IncrBy(context.Background(), []Increment{{Counter: CounterRef{Key: "n"}, Delta: 1}}, "")
		j.mu.Lock()
		if err == nil && res[0].Err == nil {
			j.acked[k] = add
			delete(j.flying, k)
		}
		if err2 == nil && inc[0].Err == nil {
			j.counted++
		}
		j.mu.Unlock()
	}
}

// start lets writers run until stop is called.
func (j *journal) start(w *world, seed int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	for i := range uint64(6) {
		writers.Go(func() { j.write(ctx, w, i+1, rand.New(rand.NewSource(seed<<8+int64(i)))) })
	}
	return func() {
		cancel()
		writers.Wait()
	}
}

// verify compares a graph that came up after a crash with what was
// acknowledged before it (P2).
func (j *journal) verify(t *testing.T, w *world) {
	t.Helper()
	for k, want := range j.acked {
		if j.flying[k] {
			continue // an operation was under way: either state is right
		}
		if got := w.has(1, k[0], k[1]); got != want {
			t.Fatalf("edge %v: %v, acknowledged was %v", k, got, want)
		}
	}
	if n := w.counter(CounterRef{Key: "n"}); n < j.counted || n > j.tried {
		t.Fatalf("counter %d, acknowledged %d, tried %d", n, j.counted, j.tried)
	}
	settleAll(t, w)
	w.check()
}

// TestCrashesLoseNothingAcknowledged takes images of the disk under load, as loss of
// power (part of what was not synced is there) or the end of the process could
// leave them, and opens a graph on each.
func TestCrashesLoseNothingAcknowledged(t *testing.T) {
	images := 6
	if long() {
		images = 200
	}
	fs := pebblekv.NewCrashFS()
	w := &world{t: t, dir: t.TempDir(), fs: fs, cfg: Config{Timeline: 77, PageKey: testKey}}
	w.open()
	j := newJournal()
	rng := rand.New(rand.NewSource(9))
	for i := range images {
		stop := j.start(w, int64(i))
		time.Sleep(time.Duration(20+rng.Intn(60)) * time.Millisecond)
		before := j.copy()
		keep := []int{0, 50, 100}[i%3]
		image := fs.PowerLoss(uint64(i), keep)
		// What began while the image was taken may be in it or not.
		after := j.copy()
		for k, n := range after.begun {
			if before.begun[k] != n {
				before.flying[k] = true
			}
		}
		before.tried = after.tried
		stop()
		t.Run(fmt.Sprintf("image=%d/keep=%d%%", i, keep), func(t *testing.T) {
			c := &world{t: t, dir: t.TempDir(), storeDir: w.dir, fs: image, cfg: w.cfg}
			copyFile(t, filepath.Join(w.dir, "raft.db"), filepath.Join(c.dir, "raft.db"))
			c.open()
			defer c.close()
			before.verify(t, c)
		})
	}
	w.close()
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, b, 0o600))
}
