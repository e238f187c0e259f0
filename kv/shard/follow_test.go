package shard

import (
	"testing"
	"time"
)

// A state is as fresh as the newest standing of the leader that it has reached, whatever was
// told since.
func TestAStateIsNoFresherThanWhatItHasReached(t *testing.T) {
	var f freshness
	begun := time.Now().Add(-time.Hour)
	for i := range uint64(4) {
		f.told(freshMark{10 * i, begun.Add(time.Duration(i) * time.Minute)})
	}
	for i := range uint64(4) {
		f.reached(10*i + 9)
		if got := f.since.Load().Sub(begun); got != time.Duration(i)*time.Minute {
			t.Errorf("at entry %d it is as of %v", 10*i+9, got)
		}
	}
}
