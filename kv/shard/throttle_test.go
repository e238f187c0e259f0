package shard

import (
	"fmt"
	"testing"
	"time"
)

func TestAThrottleLetsSoManyBytesThrough(t *testing.T) {
	p := throttle{rate: 1000}
	now := time.Unix(0, 0)
	for i, c := range []struct {
		after time.Duration
		bytes int
		wait  time.Duration
	}{
		{0, 100, 0},                         // the first goes at once
		{0, 100, 100 * time.Millisecond},    // behind it
		{0, 500, 200 * time.Millisecond},    // two transfers share it
		{700 * time.Millisecond, 50, 0},     // what was not used is not saved up
		{10 * time.Second, 9000, 0},         // a huge one
		{0, 1, longestPause},                // waits no longer than that
		{longestPause, 1, time.Millisecond}, // and what it did not wait is forgiven
		{time.Hour, 1000, 0},                //
		{0, 1000, time.Second},              //
		{500 * time.Millisecond, 1, 1500 * time.Millisecond},
	} {
		now = now.Add(c.after)
		if got := p.reserve(c.bytes, now); got.Round(time.Millisecond) != c.wait {
			t.Errorf("%d: wait %v, want %v", i, got, c.wait)
		}
	}
	if none := (&throttle{}); none.reserve(1<<40, now) != 0 || none.reserve(1, now) != 0 {
		t.Error("without a bound there is a wait")
	}
}

// A replica that is sent the state is sent it at the rate of the node.
func TestTransfersKeepTheThrottleOfTheNode(t *testing.T) {
	const rate = 100 << 10
	f := newFleet(t, 3, func(c *NodeConfig) {
		oneEntry(c)
		c.Limits.TransferBytes = rate
	}).form()
	f.agree()
	f.isolate(true, 3)
	for i := range 100 {
		f.add(fmt.Sprintf("%01900d", i))
	}
	for _, r := range f.rigs[:2] {
		f.must(r.node.Truncate(true))
	}
	f.isolate(false, 3)
	begun := time.Now()
	f.add("a")
	f.agree()
	if f.rigs[2].shards[1].Status().Installs == 0 {
		t.Fatal("the state was not sent")
	}
	// 190 kB: the end comes when they are accounted for.
	if took, least := time.Since(begun), 1500*time.Millisecond; took < least {
		t.Errorf("190 kB at %d bytes a second took %v", rate, took)
	}
}
