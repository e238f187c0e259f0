package rediscache

import (
	"context"
	"sync"
	"time"

	"github.com/lianadb/liana/cache"
)

// naiveFlights shares loads and takes what comes (what R3 forbids).
type naiveFlights struct {
	next  cache.Source
	mu    sync.Mutex
	under map[cache.Key]chan cache.Entry
}

func (f *naiveFlights) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	for i := range wants {
		f.mu.Lock()
		ch, there := f.under[wants[i].Key]
		if !there {
			ch = make(chan cache.Entry, 100)
			f.under[wants[i].Key] = ch
		}
		f.mu.Unlock()
		if there {
			select {
			case got[i] = <-ch:
				got[i].At = wants[i].Min
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		one := make([]cache.Entry, 1)
		err := f.next.Load(ctx, wants[i:i+1], one)
		got[i] = one[0]
		f.mu.Lock()
		delete(f.under, wants[i].Key)
		f.mu.Unlock()
		for range cap(ch) {
			ch <- one[0]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// naiveHot keeps copies by age (what R2 forbids).
type naiveHot struct {
	next   cache.Source
	mu     sync.Mutex
	copies map[cache.Key]naiveCopy
}

type naiveCopy struct {
	entry cache.Entry
	since time.Time
}

func (h *naiveHot) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	for i := range wants {
		h.mu.Lock()
		c, ok := h.copies[wants[i].Key]
		h.mu.Unlock()
		if ok && time.Since(c.since) <= time.Second {
			got[i] = c.entry
			got[i].At = wants[i].Min
			continue
		}
		one := make([]cache.Entry, 1)
		if err := h.next.Load(ctx, wants[i:i+1], one); err != nil {
			return err
		}
		if got[i] = one[0]; !one[0].IsNone() {
			h.mu.Lock()
			h.copies[wants[i].Key] = naiveCopy{one[0], time.Now()}
			h.mu.Unlock()
		}
	}
	return nil
}
