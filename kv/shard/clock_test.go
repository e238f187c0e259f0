package shard

import (
	"sync"
	"testing"
	"time"
)

// handClock is a Clock moved by hand.
type handClock struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
}

func newHandClock() *handClock {
	return &handClock{wall: time.UnixMicro(1_700_000_000_000_000), mono: time.Hour}
}

func (c *handClock) read() (time.Time, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall, c.mono
}

func (c *handClock) move(wall, mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(wall), c.mono+mono
}

// pass lets d go by on both clocks.
func (c *handClock) pass(d time.Duration) { c.move(d, d) }

// set moves the wall clock alone.
func (c *handClock) set(d time.Duration) { c.move(d, 0) }

// passed is log time since the term opened.
func passed(c *leaderClock, from int64) time.Duration {
	if c.due() {
		c.anchor(ownOffset(c.read))
	}
	wall, _ := c.stamp()
	return time.Duration(wall-from) * time.Microsecond
}

func openHand() (*handClock, *leaderClock, int64) {
	h := newHandClock()
	c := openClock(h.read, ownOffset(h.read))
	from, _ := c.stamp()
	return h, c, from
}

func TestRuleE1_AWallClockThatIsWrongOnceChangesNothing(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 24 * 365 * time.Hour} {
		h, c, from := openHand()
		for i := range 150 {
			h.set(jump) // for this one reading; a look at the wall is among them
			h.pass(time.Second)
			if got, want := passed(c, from), time.Duration(i+1)*time.Second; got != want {
				t.Fatalf("jump %v: after %v log time had moved %v", jump, want, got)
			}
			h.set(-jump)
			h.pass(0)
		}
	}
}

func TestRuleE1_AWallClockThatWasSetIsBelievedAfterThreeLooks(t *testing.T) {
	h, c, from := openHand()
	h.set(8 * time.Hour) // the machine slept
	for range 2 {
		h.pass(time.Minute)
		if got := passed(c, from); got > time.Hour {
			t.Fatalf("believed too early: %v", got)
		}
	}
	h.pass(time.Minute)
	if got, want := passed(c, from), 8*time.Hour+3*time.Minute; got != want {
		t.Fatalf("after three looks %v, want %v", got, want)
	}
}

func TestRuleE1_SmallCorrectionsAreFollowed(t *testing.T) {
	h, c, from := openHand()
	h.set(400 * time.Millisecond)
	h.pass(time.Minute)
	if got, want := passed(c, from), time.Minute+400*time.Millisecond; got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestRuleE1_LogTimeAheadOfTheClockRunsAtHalfSpeed(t *testing.T) {
	h := newHandClock()
	c := openClock(h.read, ownOffset(h.read))
	now, _ := c.stamp()
	ahead := now + time.Hour.Microseconds()
	c.raise(ahead) // an earlier leader's clock was an hour ahead
	for minute := 1; minute <= 240; minute++ {
		h.pass(time.Minute)
		got, _ := c.stamp()
		want := max(ahead+int64(minute)*time.Minute.Microseconds()/2, now+int64(minute)*time.Minute.Microseconds())
		if got != want {
			t.Fatalf("minute %d: log time %d, want %d", minute, got-now, want-now)
		}
	}
}

func TestClockBefore1970ReadsAs1970(t *testing.T) {
	h := &handClock{wall: time.UnixMicro(-5), mono: 0}
	if wall, inTerm := openClock(h.read, ownOffset(h.read)).stamp(); wall != 0 || inTerm != 0 {
		t.Errorf("stamp %d, %d", wall, inTerm)
	}
}

// RULES 36: the leader's clock is an hour ahead for one entry. Nothing expires
// early, in log time or by the dedupe clock, and time does not freeze after.
func TestRuleE1_36_OneEntryStampedAnHourAheadExpiresNothing(t *testing.T) {
	h := newHandClock()
	r := memRig(t, func(c *NodeConfig) { c.Clock = h.read }).start(1)
	r.add(1, "a")
	h.set(time.Hour)
	r.add(1, "a")
	h.set(-time.Hour)
	h.pass(5 * time.Second)
	r.add(1, "a")
	r.close()
	trail := r.machines[1].trail
	first, last := trail[len(trail)-3], trail[len(trail)-1]
	if got := last.Now - first.Now; got != 5_000_000 {
		t.Errorf("log time moved %d µs in 5 s", got)
	}
	if got := last.Elapsed - first.Elapsed; got != 5_000_000 {
		t.Errorf("dedupe clock moved %d µs in 5 s", got)
	}
}

// A clock an hour ahead when the term opened is in the log for good, but the
// dedupe clock does not see it and log time goes on.
func TestRuleE1_ATermOpenedAnHourAheadDoesNotTouchTheDedupeClock(t *testing.T) {
	h := newHandClock()
	h.set(time.Hour)
	r := memRig(t, func(c *NodeConfig) { c.Clock = h.read }).start(1)
	r.add(1, "a")
	before := r.machines[1].trail[len(r.machines[1].trail)-1]
	r.close()
	h.set(-time.Hour)
	r.start(1)
	h.pass(10 * time.Second)
	r.add(1, "a")
	r.close()
	after := r.machines[1].trail[len(r.machines[1].trail)-1]
	if got := after.Elapsed - before.Elapsed; got < 0 || got > 10_000_000 {
		t.Errorf("dedupe clock moved %d µs in 10 s", got)
	}
	if got := after.Now - before.Now; got != 5_000_000 {
		t.Errorf("log time ahead of the clock moved %d µs in 10 s, want half", got)
	}
}
