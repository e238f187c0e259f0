package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// gate is a source whose loads wait to be let through, and answer at a position
// that is set beforehand.
type gate struct {
	mu      sync.Mutex
	at      Position
	loads   int
	err     error
	release chan struct{} // nil: loads pass
}

func (g *gate) Load(ctx context.Context, wants []Want, got []Entry) error {
	g.mu.Lock()
	at, err, release := g.at, g.err, g.release
	g.loads++
	g.mu.Unlock()
	if release != nil {
		<-release
	}
	if err != nil {
		return err
	}
	for i := range wants {
		got[i] = Entry{At: at, Row: &Row{Fields: []Field{Field(at.Number)}}}
	}
	return nil
}

func (g *gate) set(number uint64, release chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at, g.release = Position{1, number}, release
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.loads
}

func wantAt(number uint64) []Want {
	return []Want{{Key: RowKey(3, Vertex{1, 1}), Min: Position{1, number}}}
}

// CACHE.md 1.13, rule R3: R1 loads at 10, slowly; a write at 11; R2 with token 11
// must not take what R1 gets.
func TestFlightServesNobodyAnOlderState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		g := &gate{}
		g.set(10, slow)
		f := NewFlights(g)
		first, second := make([]Entry, 1), make([]Entry, 1)
		var errs [2]error
		go func() { errs[0] = f.Load(t.Context(), wantAt(10), first) }()
		synctest.Wait()
		g.set(11, nil)
		go func() { errs[1] = f.Load(t.Context(), wantAt(11), second) }()
		synctest.Wait()
		close(slow)
		synctest.Wait()
		if errs[0] != nil || errs[1] != nil || first[0].At.Number != 10 || second[0].At.Number != 11 {
			t.Errorf("first %+v, second %+v, errors %v; want positions 10 and 11", first[0].At, second[0].At, errs)
		}
	})
}

func TestFlightIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		g := &gate{}
		g.set(10, slow)
		f := NewFlights(g)
		for range 50 {
			go func() {
				got := make([]Entry, 1)
				if err := f.Load(t.Context(), wantAt(9), got); err != nil || got[0].At.Number != 10 {
					t.Errorf("got %+v, %v", got[0], err)
				}
			}()
		}
		synctest.Wait()
		close(slow)
		synctest.Wait()
		if g.count() != 1 {
			t.Errorf("%d loads for 50 callers at once", g.count())
		}
	})
}

// A leader that fails, or is cancelled, is no reason for others to fail.
func TestFlightOfOthersFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		g := &gate{err: errors.New("cancelled")}
		g.set(10, slow)
		f := NewFlights(g)
		go f.Load(t.Context(), wantAt(10), make([]Entry, 1))
		synctest.Wait()
		got := make([]Entry, 1)
		done := make(chan error, 1)
		go func() { done <- f.Load(t.Context(), wantAt(10), got) }()
		synctest.Wait()
		g.mu.Lock()
		g.err = nil
		g.mu.Unlock()
		g.set(10, nil)
		close(slow)
		if err := <-done; err != nil || got[0].IsNone() {
			t.Errorf("got %+v, %v", got[0], err)
		}
	})
}

// CACHE.md 1.14, rule R2: a copy is used by its position, not by its age.
func TestHotCopyIsUsedByItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		g.set(10, nil)
		h, err := NewHot(g, NewTopK(8, 1), 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		load := func(number uint64) Position {
			got := make([]Entry, 1)
			if err := h.Load(t.Context(), wantAt(number), got); err != nil {
				t.Fatal(err)
			}
			return got[0].At
		}
		load(10)
		load(10)
		if g.count() != 1 {
			t.Fatalf("%d loads of what is kept", g.count())
		}
		g.set(11, nil)
		if at := load(11); at.Number != 11 {
			t.Errorf("an answer at %d to who wants 11", at.Number)
		}
		time.Sleep(2 * hotKeep)
		if load(11); g.count() != 3 {
			t.Errorf("%d loads, want one more after the copy's time", g.count())
		}
	})
}

func TestColdKeysStayOutOfHot(t *testing.T) {
	g := &gate{}
	g.set(10, nil)
	h, err := NewHot(g, NewTopK(8, 5), 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if err := h.Load(t.Context(), wantAt(10), make([]Entry, 1)); err != nil {
			t.Fatal(err)
		}
		if want := min(i+1, 5); g.count() != want {
			t.Errorf("after read %d: %d loads, want %d", i+1, g.count(), want)
		}
	}
}

// need is the position that a query of a slot must be answered at, if a cache may.
func need(p *Polls, slot Slot) (Position, bool) {
	a := make([]asked, 1)
	p.needs([]Query{{Slot: slot}}, a)
	return a[0].min, !a[0].storage
}

// CACHE.md R1: the oldest poll within the bound counts, and none outside.
func TestPollsWithinTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolls(time.Second)
		if _, ok := need(p, 5); ok {
			t.Error("a need without a poll")
		}
		for i := range uint64(20) {
			p.tell(5, time.Now(), Position{1, 100 + i})
			time.Sleep(250 * time.Millisecond)
			at, ok := need(p, 5)
			if want := 100 + max(i, 3) - 3; !ok || at.Number != want {
				t.Errorf("after poll %d: need %d, %v; want %d", i, at.Number, ok, want)
			}
		}
		time.Sleep(751 * time.Millisecond)
		if at, ok := need(p, 5); ok {
			t.Errorf("no poll within the bound, and a need of %d", at.Number)
		}
	})
}

func TestPollsAnsweredOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPolls(time.Second)
		early := time.Now()
		time.Sleep(600 * time.Millisecond)
		p.tell(5, time.Now(), Position{1, 20})
		p.tell(5, early, Position{1, 10})
		if at, _ := need(p, 5); at.Number != 10 {
			t.Errorf("need %d, want that of the oldest poll", at.Number)
		}
		time.Sleep(600 * time.Millisecond)
		if at, _ := need(p, 5); at.Number != 20 {
			t.Errorf("need %d, want 20 when the older poll is out of the bound", at.Number)
		}
		// A restore: what was said before it counts no more, whenever it arrives.
		late := time.Now()
		time.Sleep(time.Millisecond)
		p.tell(5, time.Now(), Position{2, 3})
		p.tell(5, late, Position{1, 30})
		if at, _ := need(p, 5); at != (Position{2, 3}) {
			t.Errorf("need %+v after a restore", at)
		}
	})
}

// fixedLeaders answers each poll at once with the next number.
type fixedLeaders struct {
	polls atomic.Int64
}

func (l *fixedLeaders) Poll(_ context.Context, slots []Slot, tell func(Slot, Position)) error {
	n := l.polls.Add(1)
	for _, s := range slots {
		tell(s, Position{1, uint64(n)})
	}
	return nil
}

func TestPollsRunWhileSlotsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := NewPolls(time.Second), &fixedLeaders{}
		ctx, stop := context.WithCancel(t.Context())
		go p.Run(ctx, l, func(err error) { t.Error(err) })
		time.Sleep(time.Minute)
		if n := l.polls.Load(); n != 0 {
			t.Errorf("%d polls of nothing", n)
		}
		need(p, 7)
		time.Sleep(20 * time.Millisecond)
		if _, ok := need(p, 7); !ok {
			t.Error("a slot just read for the first time is not polled at once")
		}
		time.Sleep(10 * time.Second)
		n := l.polls.Load()
		if n < 40 || n > 43 {
			t.Errorf("%d polls in ten seconds with a bound of one", n)
		}
		if at, ok := need(p, 7); !ok || uint64(n)-at.Number > 4 {
			t.Errorf("need %+v, %v after %d polls", at, ok, n)
		}
		time.Sleep(time.Minute)
		n = l.polls.Load()
		time.Sleep(time.Minute)
		if more := l.polls.Load() - n; more != 0 {
			t.Errorf("%d polls of a slot nobody reads", more)
		}
		stop()
	})
}

func TestTopKFindsTheHotOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top, r := NewTopK(100, 50), rand.New(rand.NewPCG(1, 1))
		for i := range 40_000 {
			k := RowKey(1, Vertex{1, r.Uint64N(100_000) + 100})
			if i%4 == 0 {
				k = RowKey(1, Vertex{1, uint64(i / 4 % 10)})
			}
			top.Touch(k)
		}
		found := map[uint64]bool{}
		for _, k := range top.Top(10) {
			found[k.Key.Vertex.ID] = true
			if !top.IsHot(k.Key) {
				t.Errorf("%v is on top and not hot: %d touches", k.Key, k.Touches)
			}
		}
		for id := range uint64(10) {
			if !found[id] {
				t.Errorf("vertex %d had 1000 of 40,000 touches and is not among %v", id, found)
			}
		}
		time.Sleep(20 * time.Second)
		if top.IsHot(RowKey(1, Vertex{1, 1})) {
			t.Error("still hot after 20 s without a touch")
		}
	})
}

func TestRebuildsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultRebuildLimits()
		r, k, began := NewRebuilds(limits), RowKey(1, Vertex{1, 1}), time.Now()
		var at []time.Duration
		for time.Since(began) < 5*time.Minute {
			if r.Allow(k) {
				at = append(at, time.Since(began))
			}
			time.Sleep(10 * time.Millisecond)
		}
		for i := 3; i < len(at); i++ {
			if at[i]-at[i-3] < limits.Window {
				t.Fatalf("four rebuilds within %v: %v", at[i]-at[i-3], at)
			}
		}
		if len(at) < 10 || len(at) > 40 {
			t.Errorf("%d rebuilds in five minutes, want few but some: %v", len(at), at)
		}
		time.Sleep(time.Minute)
		for i := range 3 {
			if !r.Allow(k) {
				t.Errorf("rebuild %d after a quiet minute is refused", i)
			}
		}
		r.Deny(RowKey(1, Vertex{1, 2}))
		if time.Sleep(limits.Most - time.Nanosecond); r.Allow(RowKey(1, Vertex{1, 2})) {
			t.Error("allowed before its time")
		}
		if time.Sleep(time.Nanosecond); !r.Allow(RowKey(1, Vertex{1, 2})) {
			t.Error("refused after its time")
		}
		for i := range uint64(3 * rebuildKeys) {
			r.Allow(RowKey(1, Vertex{2, i}))
		}
		if len(r.byKey) > rebuildKeys {
			t.Errorf("%d keys remembered", len(r.byKey))
		}
	})
}

func TestTokenKnowsWhatOnlyStorageCanTell(t *testing.T) {
	var tok Token
	for i := range Slot(40) {
		tok.See(i, Position{7, uint64(i) + 1})
	}
	tok.See(3, Position{7, 1}) // older than what is known
	tok.See(4, Position{8, 99})
	tok.Pending = append(tok.Pending, Pending{Src: 1, Number: 5, Dst: 9})
	for _, c := range []struct {
		slot  Slot
		want  uint64
		known bool
	}{{3, 4, true}, {4, 5, true}, {31, 32, true}, {32, 0, false}, {2000, 0, false}, {9, 0, false}} {
		if n, known := tok.need(c.slot); n != c.want || known != c.known {
			t.Errorf("slot %d: need %d, %v; want %d, %v", c.slot, n, known, c.want, c.known)
		}
	}
}
