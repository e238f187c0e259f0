package cache

import (
	"context"
	"sync"
	"time"
)

// pollsKept is how many polls of a slot are kept. With four in each bound, the
// oldest of them has left the bound when the next one comes.
const pollsKept = 8

// poll is what a leader said when it was asked at sent.
type poll struct {
	sent time.Time
	at   Position
}

// Polls knows how far each slot had come, and when. From it follows how old a
// copy is at most (CACHE.md R1): a state at or past what a leader said to a poll that
// was sent at t shows all that was acknowledged before t. Only this process'
// monotonic clock is used, and only for when polls were sent.
type Polls struct {
	bound time.Duration
	now   func() time.Time

	mu    sync.Mutex
	slots [NumSlots]*slotPolls // nil: never read here
	wake  chan struct{}        // a slot without a poll is being read
}

type slotPolls struct {
	read time.Time // when the slot was last asked for
	n    int
	kept [pollsKept]poll // by sent, oldest first
}

// NewPolls returns Polls for a bound of staleness.
func NewPolls(bound time.Duration) *Polls {
	return &Polls{bound: bound, now: time.Now, wake: make(chan struct{}, 1)}
}

// tell keeps what a leader said to a poll sent at the given time.
func (p *Polls) tell(slot Slot, sent time.Time, at Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.slot(slot)
	i := s.n
	for i > 0 && s.kept[i-1].sent.After(sent) {
		i--
	}
	if i < s.n && s.kept[i].at.Timeline != at.Timeline {
		return // from before a restore, answered late
	}
	if i > 0 && s.kept[i-1].at.Timeline != at.Timeline {
		s.n, i = copy(s.kept[:], s.kept[i:s.n]), 0
	}
	if s.n == pollsKept {
		if i == 0 {
			return
		}
		copy(s.kept[:], s.kept[1:])
		s.n, i = s.n-1, i-1
	}
	copy(s.kept[i+1:s.n+1], s.kept[i:s.n])
	s.kept[i] = poll{sent, at}
	s.n++
}

func (p *Polls) slot(slot Slot) *slotPolls {
	if p.slots[slot] == nil {
		p.slots[slot] = new(slotPolls)
	}
	return p.slots[slot]
}

// needs sets for each query the least position of its slot that is within the bound,
// or that only storage may answer, as no leader was heard within it. The slots are
// polled from now on.
func (p *Polls) needs(qs []Query, asked []asked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, known := p.now(), true
	for i := range qs {
		if i > 0 && qs[i].Slot == qs[i-1].Slot {
			asked[i].min, asked[i].storage = asked[i-1].min, asked[i-1].storage
			continue
		}
		at, ok := p.slot(qs[i].Slot).need(now, p.bound)
		asked[i].min, asked[i].storage = at, !ok
		known = known && ok
	}
	if !known {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// need is the oldest of the polls within the bound.
func (s *slotPolls) need(now time.Time, bound time.Duration) (Position, bool) {
	s.read = now
	for i := range s.kept[:s.n] {
		if now.Sub(s.kept[i].sent) <= bound {
			return s.kept[i].at, true
		}
	}
	return Position{}, false
}

// age is how old a state of a slot at a position is at most: it shows all that was
// acknowledged before the newest poll that it covers was sent.
func (p *Polls) age(slot Slot, at Position) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, now := p.slot(slot), p.now()
	for i := s.n - 1; i >= 0; i-- {
		if at.Covers(s.kept[i].at) {
			return min(now.Sub(s.kept[i].sent), p.bound)
		}
	}
	return p.bound
}

// The rhythm of polls.
const (
	pollsABound = 4
	// pollFor is for how many bounds after its last read a slot is polled.
	pollFor = 20
	// pollPause is the shortest time between two rounds, in parts of the bound.
	pollPause = 100
)

// lately returns the slots that were read lately.
func (p *Polls) lately() []Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	var slots []Slot
	now := p.now()
	for i, s := range p.slots {
		if s != nil && !s.read.IsZero() && now.Sub(s.read) <= pollFor*p.bound {
			slots = append(slots, Slot(i))
		}
	}
	return slots
}

// Round polls all slots that were read lately, once.
func (p *Polls) Round(ctx context.Context, leaders Leaders) error {
	slots := p.lately()
	if len(slots) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.bound)
	defer cancel()
	sent := p.now()
	return leaders.Poll(ctx, slots, func(s Slot, at Position) { p.tell(s, sent, at) })
}

// Run polls until ctx ends. A round that hangs does not hold up the next. Failed
// rounds are told to failed.
func (p *Polls) Run(ctx context.Context, leaders Leaders, failed func(error)) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	tick := time.NewTicker(p.bound / pollsABound)
	defer tick.Stop()
	for {
		rounds.Go(func() {
			if err := p.Round(ctx, leaders); err != nil && ctx.Err() == nil {
				failed(err)
			}
		})
		pause := time.NewTimer(p.bound / pollPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.wake:
		}
	}
}
