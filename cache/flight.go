package cache

import (
	"context"
	"hash/maphash"
	"sync"
)

const flightParts = 64

// Flights lets callers that want the same entry at the same time share one load.
// A shared result is taken only if it covers what its taker wants (CACHE.md R3):
// a load that began before a write may well end after it.
type Flights struct {
	next  Source
	seed  maphash.Seed
	parts [flightParts]flightPart
}

type flightPart struct {
	mu    sync.Mutex
	under map[Key]*flight
}

// flight is one load of one entry. got and err are written before done is closed.
type flight struct {
	timeline uint64
	done     chan struct{}
	got      Entry
	failed   bool
}

// NewFlights returns Flights over a source.
func NewFlights(next Source) *Flights {
	f := &Flights{next: next, seed: maphash.MakeSeed()}
	for i := range f.parts {
		f.parts[i].under = map[Key]*flight{}
	}
	return f
}

func (f *Flights) part(k Key) *flightPart {
	return &f.parts[maphash.Comparable(f.seed, k)%flightParts]
}

// joinRounds is how often a caller joins flights that turn out too old before it
// loads for itself alone.
const joinRounds = 3

// Load implements Source.
func (f *Flights) Load(ctx context.Context, wants []Want, got []Entry) error {
	left, all := make([]int, len(wants)), make([]bool, len(wants))
	for i := range left {
		left[i], all[i] = i, true
	}
	return f.load(ctx, wants, got, left, all)
}

// load loads those of wants whose places are in left, and shares the loads of which
// shared says so. All that is not loaded by others is loaded in one call.
func (f *Flights) load(ctx context.Context, wants []Want, got []Entry, left []int, shared []bool) error {
	for range joinRounds {
		var err error
		if left, err = f.share(ctx, wants, got, left, shared); err != nil || len(left) == 0 {
			return err
		}
		shared = nil // what is left was shared
	}
	return loadSome(ctx, f.next, wants, got, left)
}

// share gets the entries in left, by loads of its own and of others, and returns
// those for which another's load was no good. shared nil: all may be shared.
func (f *Flights) share(ctx context.Context, wants []Want, got []Entry, left []int, shared []bool) (again []int, err error) {
	var own, joined []int
	var flights, others []*flight
	for j, i := range left {
		if shared != nil && !shared[j] {
			own, flights = append(own, i), append(flights, nil)
			continue
		}
		fl, mine := f.join(&wants[i])
		if mine {
			own, flights = append(own, i), append(flights, fl)
		} else {
			joined, others = append(joined, i), append(others, fl)
		}
	}
	if len(own) > 0 {
		if err := f.lead(ctx, wants, got, own, flights); err != nil {
			return nil, err
		}
	}
	for j, i := range joined {
		fl := others[j]
		select {
		case <-fl.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch {
		case fl.failed || !fl.got.IsNone() && !fl.got.At.Covers(wants[i].Min):
			again = append(again, i)
		default:
			got[i] = fl.got
		}
	}
	return again, nil
}

// join returns the flight of a want: one under way, or a new one that the caller
// has to lead.
func (f *Flights) join(w *Want) (fl *flight, mine bool) {
	p := f.part(w.Key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if fl := p.under[w.Key]; fl != nil && fl.timeline == w.Min.Timeline {
		return fl, false
	}
	fl = &flight{timeline: w.Min.Timeline, done: make(chan struct{}), failed: true}
	p.under[w.Key] = fl
	return fl, true
}

// lead loads the entries in own and ends their flights; nil is none.
func (f *Flights) lead(ctx context.Context, wants []Want, got []Entry, own []int, flights []*flight) error {
	defer func() { // also where the source panics: others wait
		for j, i := range own {
			if flights[j] == nil {
				continue
			}
			p := f.part(wants[i].Key)
			p.mu.Lock()
			if p.under[wants[i].Key] == flights[j] {
				delete(p.under, wants[i].Key)
			}
			p.mu.Unlock()
			close(flights[j].done)
		}
	}()
	if err := loadSome(ctx, f.next, wants, got, own); err != nil {
		return err
	}
	for j, i := range own {
		if flights[j] != nil {
			flights[j].got, flights[j].failed = got[i], false
		}
	}
	return nil
}

// loadSome loads those of wants whose places are in some.
func loadSome(ctx context.Context, s Source, wants []Want, got []Entry, some []int) error {
	if len(some) == len(wants) {
		return s.Load(ctx, wants, got)
	}
	part, found := make([]Want, len(some)), make([]Entry, len(some))
	for j, i := range some {
		part[j] = wants[i]
	}
	if err := s.Load(ctx, part, found); err != nil {
		return err
	}
	for j, i := range some {
		got[i] = found[j]
	}
	return nil
}
