package graph

import "testing"

// Edges without a time keep their order of arrival over small steps of the clock back. A
// clock that was an hour ahead for a moment does not hold their times there for an hour.
func TestStampsFollowTheClock(t *testing.T) {
	const now, hour = int64(1_700_000_000_000_000), int64(3_600_000_000)
	g := &Graph{}
	for _, c := range []struct{ now, want int64 }{
		{now, now},
		{now, now + 1},           // in the same microsecond
		{now - 500_000, now + 2}, // half a second back
		{now + 10, now + 10},     // and on
		{now + hour, now + hour}, // wrong
		{now + 20, now + 20},     // right again
		{now + 20, now + 21},     // in order as before
		{now - hour, now - hour}, // wrong the other way
		{now + 30, now + 30},     // right again
		{now + 30 - stampAhead, now + 30 - stampAhead},
	} {
		if got := g.stamp(c.now); got != c.want {
			t.Errorf("at %d: %d, want %d", c.now-now, got-now, c.want-now)
		}
	}
}
