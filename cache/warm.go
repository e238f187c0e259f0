package cache

import (
	"context"
	"maps"
	"sync"
)

// warmBatch is how many entries Warm loads in one call.
const warmBatch = 128

// Positions asks the leaders of slots for the positions of their last changes. Slots
// whose leader did not answer are left out.
func Positions(ctx context.Context, leaders Leaders, slots []Slot) (map[Slot]Position, error) {
	var mu sync.Mutex
	at := make(map[Slot]Position, len(slots))
	err := leaders.Poll(ctx, slots, func(s Slot, p Position) {
		mu.Lock()
		defer mu.Unlock()
		at[s] = p
	})
	mu.Lock() // a late answer may still come
	defer mu.Unlock()
	return maps.Clone(at), err
}

// Warm has a tier load the entries of keys, in the order given. It returns how many
// of them are there now; the others' slots have no leader, or the tier did not find
// them worth an entry.
func Warm(ctx context.Context, leaders Leaders, tier Source, keys []Key) (warm int, err error) {
	slots := make([]Slot, 0, len(keys))
	seen := map[Slot]bool{}
	for i := range keys {
		if s := keys[i].Slot; !seen[s] {
			seen[s] = true
			slots = append(slots, s)
		}
	}
	at, err := Positions(ctx, leaders, slots)
	if err != nil {
		return 0, err
	}
	var wants []Want
	for _, k := range keys {
		if p, led := at[k.Slot]; led {
			wants = append(wants, Want{Key: k, Min: p})
		}
	}
	for len(wants) > 0 {
		n := min(warmBatch, len(wants))
		got := make([]Entry, n)
		if err := tier.Load(ctx, wants[:n], got); err != nil {
			return warm, err
		}
		for i := range got {
			if !got[i].IsNone() {
				warm++
			}
		}
		wants = wants[n:]
	}
	return warm, nil
}
