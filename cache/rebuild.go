package cache

import (
	"sync"
	"time"
)

// The limits of rebuilds of one entry.
const (
	rebuildsAllowed = 3
	rebuildWindow   = 10 * time.Second
	backoffLeast    = 500 * time.Millisecond
	backoffMost     = 30 * time.Second
	rebuildKeys     = 65536 // remembered
)

// Rebuilds limits how often one entry is loaded whole from storage: an entry that
// will not stay, as its slot changes faster than it is loaded or the tier evicts
// it at once, must not cost storage more than the questions themselves would.
type Rebuilds struct {
	now func() time.Time

	mu    sync.Mutex
	byKey map[Key]*rebuild
}

type rebuild struct {
	times   [rebuildsAllowed]time.Time // of the last ones, oldest first
	until   time.Time                  // none before
	backoff time.Duration
}

// NewRebuilds returns Rebuilds that remember nothing yet.
func NewRebuilds() *Rebuilds { return &Rebuilds{now: time.Now, byKey: map[Key]*rebuild{}} }

// Allow reports whether an entry may be loaded now, and counts it if so.
func (r *Rebuilds) Allow(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	b := r.get(k, now)
	if now.Before(b.until) {
		return false
	}
	if now.Sub(b.until) > backoffMost {
		b.backoff = 0
	}
	if first := b.times[0]; !first.IsZero() && now.Sub(first) < rebuildWindow {
		b.backoff = min(max(2*b.backoff, backoffLeast), backoffMost)
		b.until = now.Add(b.backoff)
		return false
	}
	copy(b.times[:], b.times[1:])
	b.times[rebuildsAllowed-1] = now
	return true
}

// Deny puts off the next load of an entry that is not worth one.
func (r *Rebuilds) Deny(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.get(k, now).until = now.Add(backoffMost)
}

func (r *Rebuilds) get(k Key, now time.Time) *rebuild {
	b := r.byKey[k]
	if b == nil {
		if len(r.byKey) >= rebuildKeys {
			r.forget(now)
		}
		b = new(rebuild)
		r.byKey[k] = b
	}
	return b
}

// forget lets go the keys that no longer limit anything, or, under a flood of new
// ones, all.
func (r *Rebuilds) forget(now time.Time) {
	for k, b := range r.byKey {
		if now.After(b.until) && now.Sub(b.times[rebuildsAllowed-1]) > rebuildWindow {
			delete(r.byKey, k)
		}
	}
	if len(r.byKey) > rebuildKeys/2 {
		clear(r.byKey)
	}
}
