package main

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// staleness is the bound of reads of the level MINIMIZE_LATENCY.
const staleness = time.Second

// track is a counter with one writer: what it was acknowledged to hold, and when.
type track struct {
	key string

	mu    sync.Mutex
	acked []ackedValue
}

type ackedValue struct {
	at    time.Time
	value int64
	token string
}

// last is the newest that was acknowledged up to a time.
func (tr *track) last(until time.Time) ackedValue {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i := len(tr.acked) - 1; i >= 0; i-- {
		if !tr.acked[i].at.After(until) {
			return tr.acked[i]
		}
	}
	return ackedValue{}
}

func (tr *track) incr(ctx context.Context, d *daemon) error {
	r, err := d.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: &pb.CounterRef{Key: tr.key}, Delta: 1}})
	if err != nil {
		return err
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.acked = append(tr.acked, ackedValue{time.Now(), r.GetValue(), r.GetToken()})
	return nil
}

func (tr *track) read(ctx context.Context, d *daemon, c *pb.Consistency) (int64, error) {
	r, err := d.counters.Get(ctx, &pb.GetCounterRequest{Counter: &pb.CounterRef{Key: tr.key}, Consistency: c})
	if err != nil {
		return 0, err
	}
	return r.GetCounters()[0].GetValue(), nil
}

// levels are the reads that a test makes, with what each must show at least.
func (tr *track) levels(begun time.Time) map[string]struct {
	c     *pb.Consistency
	least int64
} {
	fresh, old := tr.last(begun), tr.last(begun.Add(-staleness))
	return map[string]struct {
		c     *pb.Consistency
		least int64
	}{
		"linearizable": {&pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}, fresh.value},
		"with a token": {&pb.Consistency{Level: pb.ReadLevel_AT_LEAST_AS_FRESH, Token: fresh.token}, fresh.value},
		"latency":      {&pb.Consistency{Level: pb.ReadLevel_MINIMIZE_LATENCY}, old.value},
	}
}

// Each read level keeps what it promises, at every node.
func TestReadLevels(t *testing.T) {
	f := newTrio(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *fleet)
	}{
		{"at a node that is cut off", levelsAtANodeThatIsCutOff},
		{"at a leader that stood still", aLeaderThatStoodStillServesNothingOld},
		{"linearizable reads share rounds", linearizableReadsShareRounds},
		{"under faults", levelsUnderFaults},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, f) })
		f.board.heal()
		f.settled()
	}
}

// A node that is cut off refuses what it cannot answer: it never shows what is older
// than a token, what is older than the bound, or an answer that nobody confirmed. Once
// it is back it answers all.
func levelsAtANodeThatIsCutOff(t *testing.T, f *fleet) {
	var tracks []*track
	for i := range 8 { // over all shards, and so all leaders
		tracks = append(tracks, &track{key: fmt.Sprintf("cut off %d", i)})
	}
	write := func(d *daemon) {
		t.Helper()
		for _, tr := range tracks {
			until(t, f, rand.New(rand.NewSource(1)), func(ctx context.Context, _ *daemon) error { return tr.incr(ctx, d) })
		}
	}
	const off = 1
	for _, how := range []struct {
		name string
		cut  func()
	}{
		{"from all", func() { f.isolate(off) }},
		{"unheard", func() { f.cutOneWay(off, 0); f.cutOneWay(off, 2) }},
		{"deaf", func() { f.cutOneWay(0, off); f.cutOneWay(2, off) }},
	} {
		write(f.node(off))
		how.cut()
		write(f.node(0)) // the others go on
		time.Sleep(staleness)
		refused := f.readCutOff(off, how.name, tracks)
		t.Logf("cut off (%s): %d of %d reads were refused", how.name, refused, 3*len(tracks))
		f.board.heal()
		for _, tr := range tracks {
			for name, l := range tr.levels(time.Now()) {
				until(t, f, rand.New(rand.NewSource(1)), func(ctx context.Context, _ *daemon) error {
					got, err := tr.read(ctx, f.node(off), l.c)
					if err == nil && got < l.least {
						t.Errorf("back (%s), %s, %s: read %d, want %d at least", how.name, tr.key, name, got, l.least)
					}
					return err
				})
			}
		}
	}
}

// readCutOff reads all tracks at all levels at a node that is cut off, and returns how
// many of the reads were refused.
func (f *fleet) readCutOff(off int, how string, tracks []*track) int {
	var refused atomic.Int64
	var wg sync.WaitGroup
	for _, tr := range tracks {
		for name, l := range tr.levels(time.Now()) {
			wg.Go(func() {
				f.within(func(ctx context.Context) {
					got, err := tr.read(ctx, f.node(off), l.c)
					switch {
					case err != nil:
						refused.Add(1)
					case got < l.least:
						f.t.Errorf("cut off (%s), %s, %s: read %d, want %d at least", how, tr.key, name, got, l.least)
					case name == "linearizable":
						f.t.Errorf("cut off (%s), %s: a linearizable read was answered, by nobody", how, tr.key)
					}
				})
			})
		}
	}
	wg.Wait()
	return int(refused.Load())
}

// Whatever happens to nodes and links.
func levelsUnderFaults(t *testing.T, f *fleet) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered := map[string]int{}
	for i := range 4 {
		tr := &track{key: fmt.Sprintf("faults %d", i)}
		wg.Go(func() { each(stop, func() { f.within(func(ctx context.Context) { _ = tr.incr(ctx, f.node(0)) }) }) })
		for node := range f.places {
			wg.Go(func() {
				each(stop, func() {
					begun := time.Now()
					for name, l := range tr.levels(begun) {
						f.within(func(ctx context.Context) {
							got, err := tr.read(ctx, f.node(node), l.c)
							if err != nil {
								return
							}
							mu.Lock()
							answered[name]++
							mu.Unlock()
							if got < l.least {
								t.Errorf("node %d, %s, %s: read %d, want %d at least", node, tr.key, name, got, l.least)
							}
						})
						break // one of them: begun is of this read
					}
				})
			})
		}
	}
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); some(rng, 200, 800) {
		switch rng.Intn(5) {
		case 0:
			d := f.node(1 + rng.Intn(2))
			d.signal(syscall.SIGSTOP)
			some(rng, 500, 2000)
			d.signal(syscall.SIGCONT)
		case 1:
			isolate(f, rng)
		case 2:
			oneWay(f, rng)
		case 3:
			slowLinks(f, rng)
		case 4:
			stall(f, rng)
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("answered: %v", answered)
	for _, name := range []string{"linearizable", "with a token", "latency"} {
		if answered[name] < 50 {
			t.Errorf("only %d reads %s were answered", answered[name], name)
		}
	}
}

// each calls do again and again.
func each(stop <-chan struct{}, do func()) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
			do()
		}
	}
}

func (f *fleet) within(do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	do(ctx)
}

// Linearizable reads that come at once share the rounds in which a leader has itself
// confirmed, so a slow network costs them a round or two and not one each.
func linearizableReadsShareRounds(t *testing.T, f *fleet) {
	const readers, delay = 200, 100 * time.Millisecond
	tr := &track{key: "shared"}
	until(t, f, rand.New(rand.NewSource(1)), tr.incr)
	for i := range f.places {
		for j := range f.places {
			f.board.set(f.places[i].name, f.places[j].name, wire{delay: delay})
		}
	}
	// A first read finds the leader, and how long a round takes.
	first := time.Now()
	if _, err := tr.read(testCtx(t), f.node(0), &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}); err != nil {
		t.Fatal(err)
	}
	one := time.Since(first)
	begun := time.Now()
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			if got, err := tr.read(testCtx(t), f.node(0), &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}); err != nil || got != 1 {
				t.Errorf("read %d, %v", got, err)
			}
		})
	}
	wg.Wait()
	took := time.Since(begun)
	t.Logf("one read took %v, %d at once %v", one, readers, took)
	if took < 2*delay {
		t.Errorf("%d reads took %v: nobody was asked", readers, took)
	}
	if took > readers*delay/4 {
		t.Errorf("%d reads took %v: they did not share rounds", readers, took)
	}
}

// A leader that stood still wakes as one among others, and does not know it yet. It
// answers none of the calls that waited for it by what it had before.
func aLeaderThatStoodStillServesNothingOld(t *testing.T, f *fleet) {
	var tracks []*track
	for i := range 8 {
		tracks = append(tracks, &track{key: fmt.Sprintf("stood still %d", i)})
	}
	write := func(d *daemon) {
		t.Helper()
		for _, tr := range tracks {
			until(t, f, rand.New(rand.NewSource(1)), func(ctx context.Context, _ *daemon) error { return tr.incr(ctx, d) })
		}
	}
	for range 3 {
		f.settled()
		at := f.leaderOfMost()
		write(f.node(at))
		f.node(at).signal(syscall.SIGSTOP)
		write(f.node((at + 1) % 3)) // its shards have other leaders by then
		time.Sleep(staleness)
		var wg sync.WaitGroup
		for range 10 {
			for _, tr := range tracks {
				for name, l := range tr.levels(time.Now()) {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
						defer cancel()
						if got, err := tr.read(ctx, f.node(at), l.c); err == nil && got < l.least {
							t.Errorf("%s, %s: read %d, want %d at least", tr.key, name, got, l.least)
						}
					})
				}
			}
		}
		time.Sleep(100 * time.Millisecond) // the calls lie in its sockets
		f.node(at).signal(syscall.SIGCONT)
		wg.Wait()
	}
}
