package cache

import (
	"sync"
	"time"
)

// RebuildLimits bound how often one entry is loaded whole.
type RebuildLimits struct {
	// Loads is how often in any Window. Default 3 in 10 s.
	Loads  int
	Window time.Duration
	// Least and Most are the pauses of an entry that was wanted more often: each is twice
	// the one before. Default 0.5 s to 30 s. Most is also the pause of an entry that was
	// not worth its memory.
	Least, Most time.Duration
}

// DefaultRebuildLimits are those of the fields' descriptions.
func DefaultRebuildLimits() RebuildLimits {
	return RebuildLimits{Loads: 3, Window: 10 * time.Second, Least: 500 * time.Millisecond, Most: 30 * time.Second}
}

const rebuildKeys = 65536 // remembered

// Rebuilds limits how often one entry is loaded whole from storage: an entry that
// will not stay, as its slot changes faster than it is loaded or the tier evicts
// it at once, must not cost storage more than the questions themselves would.
type Rebuilds struct {
	limits RebuildLimits
	now    func() time.Time

	mu    sync.Mutex
	byKey map[Key]*rebuild
}

type rebuild struct {
	times   []time.Time // of the last loads, oldest first
	until   time.Time   // none before
	backoff time.Duration
}

// last is when the entry was loaded last; zero: never.
func (b *rebuild) last() (at time.Time) {
	if n := len(b.times); n > 0 {
		at = b.times[n-1]
	}
	return at
}

// NewRebuilds returns Rebuilds that remember nothing yet.
func NewRebuilds(l RebuildLimits) *Rebuilds {
	return &Rebuilds{limits: l, now: time.Now, byKey: map[Key]*rebuild{}}
}

// Allow reports whether an entry may be loaded now, and counts it if so.
func (r *Rebuilds) Allow(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	b := r.get(k, now)
	if now.Before(b.until) {
		return false
	}
	if now.Sub(b.until) > r.limits.Most {
		b.backoff = 0
	}
	if len(b.times) < r.limits.Loads {
		b.times = append(b.times, now)
		return true
	}
	if now.Sub(b.times[0]) < r.limits.Window {
		b.backoff = min(max(2*b.backoff, r.limits.Least), r.limits.Most)
		b.until = now.Add(b.backoff)
		return false
	}
	copy(b.times, b.times[1:])
	b.times[len(b.times)-1] = now
	return true
}

// Deny puts off the next load of an entry that is not worth one.
func (r *Rebuilds) Deny(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.get(k, now).until = now.Add(r.limits.Most)
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
		if now.After(b.until) && now.Sub(b.last()) > r.limits.Window {
			delete(r.byKey, k)
		}
	}
	if len(r.byKey) > rebuildKeys/2 {
		clear(r.byKey)
	}
}
