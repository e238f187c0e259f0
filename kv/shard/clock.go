package shard

import (
	"fmt"
	"slices"
	"time"
)

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
	// anchorEvery is how often a leader looks at the wall clocks, in µs.
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
// once a minute. What is seen is the median of a majority of the voters' clocks, so
// that one that is wrong moves nothing. Where log time is ahead of the wall clock, it runs at half
// speed until it is met: it never stands still and never runs backwards.
// All times are in µs; wall and log time count from 1970.
type leaderClock struct {
	read   Clock // its monotonic reading counts
	opened int64 // monotonic reading when the term opened
	offset int64 // believed wall − monotonic

	last     int64 // log time of the last stamp
	lastMono int64 // monotonic reading at the last stamp
	anchored int64 // monotonic reading at the last look at the wall

	doubted   int64 // an offset seen but not believed yet
	witnesses int   // looks in a row that saw it
}

// openClock returns the clock of a term that opens now, at an offset that was just
// looked up.
func openClock(read Clock, offset int64) *leaderClock {
	c := &leaderClock{read: read, offset: offset}
	mono := c.now()
	c.last = min(max(0, mono+offset), maxMicroseconds)
	c.opened, c.lastMono, c.anchored = mono, mono, mono
	return c
}

func (c *leaderClock) now() (mono int64) {
	_, m := c.read()
	return m.Microseconds()
}

// ownOffset is the wall clock less the monotonic clock; a wall clock before 1970 reads
// as 1970.
func ownOffset(read Clock) int64 {
	w, m := read()
	return min(max(0, w.UnixMicro()), maxMicroseconds) - m.Microseconds()
}

// raise tells the clock that log time has already reached now.
func (c *leaderClock) raise(now int64) { c.last = max(c.last, now) }

// stamp returns the log time and the time since the term opened.
func (c *leaderClock) stamp() (wall, inTerm int64) {
	mono := c.now()
	passed := max(0, mono-c.lastMono)
	c.last = min(max(mono+c.offset, c.last+passed/2), maxMicroseconds)
	c.lastMono = mono
	return c.last, max(0, mono-c.opened)
}

// due reports whether it is time to look at the clocks, and that it is done now.
func (c *leaderClock) due() bool {
	mono := c.now()
	if mono-c.anchored < anchorEvery {
		return false
	}
	c.anchored = mono
	return true
}

// anchor takes the offset that a look at the clocks has shown.
func (c *leaderClock) anchor(offset int64) {
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

// look is what a look at the clocks of the voters has shown, or why it failed.
type look struct {
	attempt uint64 // of leading
	offset  int64
	err     error
}

// clockPatience is how long a look waits for the clocks of the others once it has
// those of a majority. A voter that is down costs as much at each change of leader.
const clockPatience = 20 * time.Millisecond

// clocks returns the median offset of the clocks of a majority of the voters (RULES
// E1): the lower one of two in the middle, since a clock that is ahead does the harm.
func (s *Shard) clocks() (int64, error) {
	others, need := s.voters()
	offsets := []int64{ownOffset(s.node.cfg.Clock)}
	answers := s.lines.ask(others)
	var failed error
	var enough <-chan time.Time // after it, what is there will do
	for range others {
		if need <= 0 && enough == nil {
			t := time.NewTimer(clockPatience)
			defer t.Stop()
			enough = t.C
		}
		select {
		case a := <-answers:
			if a.err != nil {
				failed = a.err
				continue
			}
			offsets = append(offsets, a.offset)
			need--
			continue
		case <-enough:
		}
		break
	}
	if need > 0 {
		return 0, fmt.Errorf("no majority tells its clock: %w", failed)
	}
	slices.Sort(offsets)
	return offsets[(len(offsets)-1)/2], nil
}
