package rediscache

import (
	"sync"
	"sync/atomic"
	"time"
)

// The behaviour of breakers.
const (
	breakerFailures = 3 // in a row open it
	breakerLeast    = 100 * time.Millisecond
	breakerMost     = 5 * time.Second
)

// breakers keep requests away from servers that do not answer: after a few
// failures in a row a server is left alone for a while, then tried with a single
// request. Others see it as a cache that has nothing.
type breakers struct {
	now func() time.Time
	bad atomic.Int64 // servers whose last answer was a failure

	mu    sync.Mutex
	nodes map[string]*breaker
}

type breaker struct {
	failures int
	pause    time.Duration
	until    time.Time // left alone before
	trying   bool      // one request is under way to see
}

func newBreakers() *breakers { return &breakers{now: time.Now, nodes: map[string]*breaker{}} }

// allWell reports whether the last answers of all servers were none of failures: then all
// may be asked, and need no report while they answer.
func (b *breakers) allWell() bool { return b.bad.Load() == 0 }

// allow reports whether a server may be asked. Who is allowed must report.
func (b *breakers) allow(node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodes[node]
	if n == nil || n.failures < breakerFailures {
		return true
	}
	if n.trying || b.now().Before(n.until) {
		return false
	}
	n.trying = true
	return true
}

// report tells how a server did.
func (b *breakers) report(node string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.bad.Store(int64(len(b.nodes))) }()
	n := b.nodes[node]
	if ok {
		delete(b.nodes, node)
		return
	}
	if n == nil {
		n = new(breaker)
		b.nodes[node] = n
	}
	n.failures++
	if n.failures >= breakerFailures && (n.trying || n.failures == breakerFailures) {
		n.pause = min(max(2*n.pause, breakerLeast), breakerMost)
		n.until = b.now().Add(n.pause)
	}
	n.trying = false
}

// open reports how many servers are left alone.
func (b *breakers) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, br := range b.nodes { // any order: counted
		if br.failures >= breakerFailures {
			n++
		}
	}
	return n
}
