package shard

import (
	"sync"
	"time"
)

// throttle spreads what a node sends in transfers over time: all of them together send so
// many bytes a second, so that copying does not take the network and the disks from
// those who are served.
type throttle struct {
	rate int64 // bytes a second; 0: no bound

	mu   sync.Mutex
	free time.Time // when what was let through so far is accounted for
}

// longestPause bounds a pause, so that a transfer ends with its shard, and a receiver does
// not take it for a stall. A block of one huge row so goes somewhat too fast.
const longestPause = 2 * time.Second

// reserve lets n bytes through and returns how long to wait before they are sent.
func (p *throttle) reserve(n int, now time.Time) time.Duration {
	if p.rate == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free.Before(now) {
		p.free = now
	}
	wait := p.free.Sub(now)
	p.free = p.free.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	if wait > longestPause {
		p.free = p.free.Add(longestPause - wait) // the rest is forgiven
		wait = longestPause
	}
	return wait
}

func (p *throttle) wait(n int) { time.Sleep(p.reserve(n, time.Now())) }
