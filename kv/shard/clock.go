package shard

import "time"

// Clock reads the wall clock, and a clock that only moves forward and is not
// touched when the wall clock is set.
type Clock func() (wall time.Time, monotonic time.Duration)

// SystemClock is the computer's clock.
func SystemClock() Clock {
	start := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(start)
	}
}

const (
	// maxMicroseconds bounds every time in the log: the year 11,000 or so, and
	// sums stay far from overflow.
	maxMicroseconds = 1 << 58
	// anchorEvery is how often a leader looks at its wall clock, in µs.
	anchorEvery = int64(time.Minute / time.Microsecond)
	// anchorStep is the change of the wall clock believed at once, in µs.
	anchorStep = int64(time.Second / time.Microsecond)
	// anchorWitness is how many looks in a row must agree before a larger
	// change is believed (a clock that was set, a machine that slept). A clock
	// that is wrong for one look changes nothing.
	anchorWitness = 3
)

// leaderClock makes the stamps of one term. Log time follows the wall clock as
// seen when the term opened, carried on by the monotonic clock and corrected
// once a minute. Where log time is ahead of the wall clock, it runs at half
// speed until it is met: it never stands still and never runs backwards.
// All times are in µs; wall and log time count from 1970.
type leaderClock struct {
	read   Clock
	opened int64 // monotonic reading when the term opened
	offset int64 // believed wall − monotonic

	last     int64 // log time of the last stamp
	lastMono int64 // monotonic reading at the last stamp
	anchored int64 // monotonic reading at the last look at the wall

	doubted   int64 // an offset seen but not believed yet
	witnesses int   // looks in a row that saw it
}

// openClock returns the clock of a term that opens now.
func openClock(read Clock) *leaderClock {
	c := &leaderClock{read: read}
	wall, mono := c.now()
	c.offset, c.last = wall-mono, wall
	c.opened, c.lastMono, c.anchored = mono, mono, mono
	return c
}

// now reads the clock; a wall clock before 1970 reads as 1970.
func (c *leaderClock) now() (wall, mono int64) {
	w, m := c.read()
	return min(max(0, w.UnixMicro()), maxMicroseconds), m.Microseconds()
}

// raise tells the clock that log time has already reached now.
func (c *leaderClock) raise(now int64) { c.last = max(c.last, now) }

// stamp returns the log time and the time since the term opened.
func (c *leaderClock) stamp() (wall, inTerm int64) {
	wall, mono := c.now()
	if mono-c.anchored >= anchorEvery {
		c.anchor(wall-mono, mono)
	}
	passed := max(0, mono-c.lastMono)
	c.last = min(max(mono+c.offset, c.last+passed/2), maxMicroseconds)
	c.lastMono = mono
	return c.last, max(0, mono-c.opened)
}

func (c *leaderClock) anchor(offset, mono int64) {
	c.anchored = mono
	if distance(offset, c.offset) <= anchorStep {
		c.offset, c.witnesses = offset, 0
		return
	}
	if distance(offset, c.doubted) > anchorStep {
		c.witnesses = 0
	}
	c.doubted = offset
	c.witnesses++
	if c.witnesses >= anchorWitness {
		c.offset, c.witnesses = offset, 0
	}
}

func distance(a, b int64) int64 { return max(a-b, b-a) }
