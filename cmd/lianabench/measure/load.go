// Package measure drives load and takes measurements: closed and open loops,
// histograms, ratios over rounds, processor time and memory of processes, and
// the facts of the machine. It knows no target.
package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Worker is one caller. It is used by one goroutine.
type Worker interface {
	// Prepare readies the next operation; its time is not measured.
	Prepare()
	// Run carries it out.
	Run(ctx context.Context) (Outcome, error)
}

// Outcome tells what an operation was: its kind, a small number, and how many
// units of work it did.
type Outcome struct {
	Kind  int
	Units int
}

// Load says how workers are driven.
type Load struct {
	// Warmup is driven like the rest and not measured.
	Warmup time.Duration
	// Duration bounds the measured time, Count (if > 0) the measured operations.
	Duration time.Duration
	Count    int64
	// Rate > 0 makes the loop open: so many operations a second are due, whether
	// or not earlier ones are answered, and latency runs from when each was due.
	// With 0 each worker begins an operation when its last one is answered.
	Rate float64
	// Poisson spaces the due times of an open loop exponentially, else evenly.
	Poisson bool
	Seed    uint64
	// Live, where set, counts measured units as they are done.
	Live *atomic.Int64
}

// errorLimit is how many failed operations end a run: a target that is down
// should not be measured failing.
const errorLimit = 100

// patience is how long after its end a load waits for the last answers.
const patience = time.Minute

// ErrTooManyErrors is wrapped by Run's error when it gave up.
var ErrTooManyErrors = errors.New("too many failed operations")

// Run drives the workers and returns what was measured. Operations that are
// answered after the measured time are waited for and not counted.
func Run(parent context.Context, l Load, workers []Worker) (*Result, error) {
	ctx, cancel := context.WithTimeout(parent, l.Warmup+2*l.Duration+patience)
	defer cancel()
	r := &run{load: l, cancel: cancel, begin: time.Now().Add(l.Warmup)}
	r.end = r.begin.Add(l.Duration)
	if l.Rate > 0 {
		r.schedule = newSchedule(l, r.begin.Add(-l.Warmup))
	}
	parts := make([]*Result, len(workers))
	var wg sync.WaitGroup
	for i, w := range workers {
		parts[i] = newResult()
		wg.Go(func() { r.drive(ctx, w, parts[i]) })
	}
	wg.Wait()
	total := newResult()
	for _, p := range parts {
		total.Merge(p)
	}
	total.Elapsed = r.elapsed()
	if r.schedule != nil {
		total.Missed = r.schedule.missed(r.end)
	}
	if total.Errors > 0 && (total.Errors >= errorLimit || total.Calls == 0) {
		return total, fmt.Errorf("%w: %d, the first: %w", ErrTooManyErrors, total.Errors, total.FirstError)
	}
	if err := parent.Err(); err != nil {
		return total, err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return total, fmt.Errorf("no end %v after the load's: %w", patience, ctx.Err())
	}
	return total, nil
}

// run is the state that the workers of a load share.
type run struct {
	load       Load
	cancel     context.CancelFunc
	begin, end time.Time
	schedule   *schedule
	measured   atomic.Int64 // operations given out after warm-up
	finished   atomic.Int64 // when Count was reached, in ns after begin
	failed     atomic.Int64
}

// elapsed is the measured time: shorter than Duration where Count came first.
func (r *run) elapsed() time.Duration {
	if ns := r.finished.Load(); ns > 0 {
		return min(time.Duration(ns), r.load.Duration)
	}
	return r.load.Duration
}

// drive is one worker's loop.
func (r *run) drive(ctx context.Context, w Worker, out *Result) {
	for ctx.Err() == nil {
		w.Prepare()
		due, ok := r.next(ctx)
		if !ok {
			return
		}
		outcome, err := w.Run(ctx)
		now := time.Now()
		switch {
		case err != nil && over(ctx):
			return
		case err != nil:
			out.fail(err)
			if r.failed.Add(1) >= errorLimit {
				r.cancel()
			}
		case now.After(r.begin) && !due.Before(r.begin) && now.Before(r.end.Add(r.grace())):
			out.record(outcome, now.Sub(due))
			if r.load.Live != nil {
				r.load.Live.Add(int64(outcome.Units))
			}
		}
	}
}

// over tells whether ctx has ended. A connection's deadline may fire a moment
// before the context's; such an error is the end, not a failure of the target.
func over(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// grace is how long after the end answers of an open loop still count: each
// operation that was due within the time belongs to the distribution, above all
// the late ones.
func (r *run) grace() time.Duration {
	if r.schedule != nil {
		return r.load.Duration
	}
	return 0
}

// next returns when the worker's next operation is due, having waited for it,
// and false at the end of the load.
func (r *run) next(ctx context.Context) (time.Time, bool) {
	due := time.Now()
	if r.schedule != nil {
		var ok bool
		if due, ok = r.schedule.take(ctx, r.end, r.grace()); !ok {
			return due, false
		}
	} else if !due.Before(r.end) {
		return due, false
	}
	if r.load.Count > 0 && !due.Before(r.begin) && r.measured.Add(1) > r.load.Count {
		r.finished.CompareAndSwap(0, max(int64(time.Since(r.begin)), 1))
		return due, false
	}
	return due, true
}

// schedule gives out the due times of an open loop, one after another, to
// whichever worker is free.
type schedule struct {
	mu   sync.Mutex
	next time.Time
	gap  time.Duration // mean
	rng  *rand.Rand    // nil: even gaps
}

func newSchedule(l Load, start time.Time) *schedule {
	s := &schedule{next: start, gap: time.Duration(float64(time.Second) / l.Rate)}
	if l.Poisson {
		s.rng = rand.New(rand.NewPCG(l.Seed, 0x6f70656e))
	}
	return s
}

// take returns the next due time before end, once it has come. An operation
// that is overdue is given out at once, until grace after the end.
func (s *schedule) take(ctx context.Context, end time.Time, grace time.Duration) (time.Time, bool) {
	if time.Now().After(end.Add(grace)) {
		return time.Time{}, false
	}
	s.mu.Lock()
	due := s.next
	if !due.Before(end) {
		s.mu.Unlock()
		return due, false
	}
	s.next = due.Add(s.interval())
	s.mu.Unlock()
	wait := time.Until(due)
	if wait <= 0 {
		return due, true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return due, true
	case <-ctx.Done():
		return due, false
	}
}

func (s *schedule) interval() time.Duration {
	if s.rng == nil {
		return s.gap
	}
	return time.Duration(s.rng.ExpFloat64() * float64(s.gap))
}

// missed is the number of operations that were due before end and never begun.
func (s *schedule) missed(end time.Time) int64 {
	if !s.next.Before(end) {
		return 0
	}
	return int64(end.Sub(s.next)/s.gap) + 1
}
