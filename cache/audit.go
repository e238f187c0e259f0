package cache

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Auditor compares a sample of the entries that a tier gives with storage. The protocol
// keeps copies right; what it cannot see are its own bugs, and hands other than its own.
//
// A comparison tells something only where the slot has not changed from the entry's
// position to storage's (CACHE.md 31); else it is skipped. It stands above all tiers,
// so that what it sees is what is answered.
type Auditor struct {
	next    Source
	storage AuditSource
	polls   *Polls
	ready   atomic.Bool // the next call gives a sample
	samples chan sample
	stats   AuditStats
}

// AuditSource is what an Auditor asks for the truth. A Storage is one.
type AuditSource interface {
	Source
	Leaders
}

// AuditStats count what came of the samples. The share of inconsistent entries is
// Wrong / (Wrong + Equal).
type AuditStats struct {
	Equal   atomic.Uint64
	Wrong   atomic.Uint64
	Skipped atomic.Uint64 // the slot had changed, or storage could not be asked
	// Ages count samples by how old they were at most: Ages[i] those of up to
	// AuditAges[i] and more than the one before, the last all others. AgeSum is in ns.
	Ages   [len(AuditAges) + 1]atomic.Uint64
	AgeSum atomic.Uint64
}

// AuditAges are the bounds of AuditStats.Ages, in ms.
var AuditAges = [...]int64{50, 100, 250, 500, 750, 1000, 2000, 5000}

// sample is an entry that a tier gave.
type sample struct {
	key   Key
	entry Entry
	age   time.Duration
}

// auditPause is the shortest time between two samples.
const auditPause = 50 * time.Millisecond

// NewAuditor returns an Auditor over the uppermost tier. polls tells the ages.
func NewAuditor(next Source, storage AuditSource, polls *Polls) *Auditor {
	return &Auditor{next: next, storage: storage, polls: polls, samples: make(chan sample, 1)}
}

// Stats returns the counters of this auditor.
func (a *Auditor) Stats() *AuditStats { return &a.stats }

// Load implements Source.
func (a *Auditor) Load(ctx context.Context, wants []Want, got []Entry) error {
	if err := a.next.Load(ctx, wants, got); err != nil {
		return err
	}
	if len(wants) == 0 || !a.ready.Load() {
		return nil
	}
	i := rand.IntN(len(wants))
	if got[i].IsNone() || !got[i].At.Covers(wants[i].Min) || !a.ready.CompareAndSwap(true, false) {
		return nil
	}
	a.samples <- sample{wants[i].Key, got[i], a.polls.age(wants[i].Key.Slot, got[i].At)}
	return nil
}

// Run compares samples until ctx ends. Entries that are not what storage holds are told
// to wrong, each with what differs.
func (a *Auditor) Run(ctx context.Context, wrong func(Key, error)) {
	pause := time.NewTicker(auditPause)
	defer pause.Stop()
	for {
		a.ready.Store(true)
		select {
		case <-ctx.Done():
			a.ready.Store(false)
			return
		case s := <-a.samples:
			a.count(s.age)
			a.audit(ctx, &s, wrong)
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

func (a *Auditor) count(age time.Duration) {
	i, _ := slices.BinarySearch(AuditAges[:], (age + time.Millisecond - 1).Milliseconds())
	a.stats.Ages[i].Add(1)
	a.stats.AgeSum.Add(uint64(age))
}

func (a *Auditor) audit(ctx context.Context, s *sample, wrong func(Key, error)) {
	truth, ok := a.truth(ctx, s)
	if !ok {
		a.stats.Skipped.Add(1)
		return
	}
	if err := s.entry.Differs(&truth); err != nil {
		a.stats.Wrong.Add(1)
		wrong(s.key, err)
		return
	}
	a.stats.Equal.Add(1)
}

// truth loads what storage holds, and whether it is of the same state as the sample.
func (a *Auditor) truth(ctx context.Context, s *sample) (Entry, bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	before, ok := a.last(ctx, s.key.Slot)
	if !ok || !s.entry.At.Covers(before) {
		return Entry{}, false
	}
	got := make([]Entry, 1)
	if err := a.storage.Load(ctx, []Want{{Key: s.key, Min: before}}, got); err != nil || got[0].IsNone() {
		return Entry{}, false
	}
	after, ok := a.last(ctx, s.key.Slot)
	return got[0], ok && after == before && got[0].At.Timeline == before.Timeline
}

// last is the position of a slot's last change.
func (a *Auditor) last(ctx context.Context, s Slot) (Position, bool) {
	at, err := Positions(ctx, a.storage, []Slot{s})
	p, ok := at[s]
	return p, ok && err == nil
}

// Differs tells in what an entry is not what it should be, both being of one state. An entry
// may know less than the truth, as one of a row does that is older than the schema.
func (e *Entry) Differs(truth *Entry) error {
	switch {
	case e.Row != nil && truth.Row != nil:
		return e.Row.differs(truth.Row)
	case e.Window != nil && truth.Window != nil:
		return e.Window.differs(truth.Window)
	case e.Chunk != nil && truth.Chunk != nil:
		if !bytes.Equal(e.Chunk.Bits, truth.Chunk.Bits) {
			return fmt.Errorf("bits %x, should be %x", e.Chunk.Bits, truth.Chunk.Bits)
		}
		return nil
	}
	return fmt.Errorf("an entry of another kind")
}

func (r *Row) differs(truth *Row) error {
	for i := range max(len(r.Fields), len(truth.Fields)) {
		is, want := r.field(i), truth.field(i)
		if is != want && is != Unknown && want != Unknown {
			return fmt.Errorf("field %d is %d, should be %d", i, is, want)
		}
	}
	return nil
}

func (w *Window) differs(truth *Window) error {
	if w.Total != truth.Total {
		return fmt.Errorf("a list of %d edges, should be %d", w.Total, truth.Total)
	}
	// Both are the newest edges of the list; either may reach further back.
	is, want := w.Edges, truth.Edges
	n := min(len(is), len(want))
	is, want = is[len(is)-n:], want[len(want)-n:]
	if !slices.Equal(is, want) {
		return fmt.Errorf("the newest edges are %v, should be %v", is, want)
	}
	if older := truth.Edges[:len(truth.Edges)-n]; !w.Complete() && len(w.Edges) == n && len(older) > 0 {
		if next := older[len(older)-1]; next.Compare(w.Floor) >= 0 {
			return fmt.Errorf("the window claims all edges from %v on, and lacks %v", w.Floor, next)
		}
	}
	return nil
}
