package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// contest is a load that several systems get in turn.
type contest struct {
	name, about, unit string
	rounds            int
	load              measure.Load
	entries           []*entry
}

// entry is one system in a contest.
type entry struct {
	label   string
	subject *subject
	mix     *workload.Mix
	callers int
	batch   int    // likes a call; up to 1: one
	salt    uint64 // sets apart entries that write to the same system

	crew      *crew // made by compare where there is none yet
	rates     []float64
	total     measure.Result
	latency   map[int]*hdrhistogram.Histogram
	serverCPU []float64
	clientCPU []float64
}

// settleTime bounds the pause that a system gets to finish its own work before
// the next one is measured.
const settleTime = 3 * time.Second

// compare runs a contest: all entries in turn, round by round, and adds the
// result to the report.
func (l *lab) compare(ctx context.Context, c *contest) (*report.Comparison, error) {
	defer func() {
		for _, e := range c.entries {
			if e.crew != nil {
				// A session that cannot be closed any more has done its work.
				_ = e.crew.close()
			}
		}
	}()
	for _, e := range c.entries {
		var err error
		e.latency = map[int]*hdrhistogram.Histogram{}
		if e.crew != nil {
			continue
		}
		if e.crew, err = newCrew(ctx, e.subject, e.mix, e.callers, e.batch, e.salt); err != nil {
			return nil, err
		}
	}
	for round := range c.rounds {
		for _, e := range c.entries {
			if err := l.round(ctx, c, e, round); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", c.name, e.label, err)
			}
		}
	}
	result := c.result()
	l.report.Loads = append(l.report.Loads, result)
	l.doubt(&result)
	return &result, nil
}

// round drives one system once.
func (l *lab) round(ctx context.Context, c *contest, e *entry, round int) error {
	var live atomic.Int64
	load := c.load
	load.Live, load.Seed = &live, l.cfg.seed+uint64(round)
	stop := l.progress.during(fmt.Sprintf("%s · %s · round %d/%d", c.name, e.label, round+1, c.rounds), &live, 0)
	server, client, start := measure.UsageOf(e.subject.PIDs()...).CPU, measure.SelfCPU(), time.Now()
	r, err := measure.Run(ctx, load, e.crew.workers)
	took := time.Since(start).Seconds()
	e.serverCPU = append(e.serverCPU, (measure.UsageOf(e.subject.PIDs()...).CPU-server).Seconds()/took)
	e.clientCPU = append(e.clientCPU, (measure.SelfCPU()-client).Seconds()/took)
	stop()
	if err != nil {
		return err
	}
	e.rates = append(e.rates, r.Rate())
	e.total.Calls += r.Calls
	e.total.Missed += r.Missed
	e.total.Errors += r.Errors
	if e.total.FirstError == nil {
		e.total.FirstError = r.FirstError
	}
	for kind, h := range r.Kinds {
		if e.latency[kind] == nil {
			e.latency[kind] = measure.NewHistogram()
		}
		e.latency[kind].Merge(h)
	}
	l.progress.say("%s · %s · round %d/%d: %s %s/s, p99 %s", c.name, e.label, round+1, c.rounds,
		report.Number(r.Rate()), c.unit, report.Micros(measure.Micros(r.All(), 99)))
	measure.Settle(e.subject.PIDs(), settleTime)
	return nil
}

// result forms the comparison.
func (c *contest) result() report.Comparison {
	out := report.Comparison{Name: c.name, About: c.about, Unit: c.unit, Rounds: c.rounds}
	for _, e := range c.entries {
		all := measure.NewHistogram()
		cell := report.Cell{
			Label: e.label, Target: e.subject.Name(), PerRound: e.rates, Rate: measure.SpreadOf(e.rates),
			Ratio:     measure.RatioOf(c.entries[0].rates, e.rates),
			ServerCPU: measure.SpreadOf(e.serverCPU).Median, ClientCPU: measure.SpreadOf(e.clientCPU).Median,
			Yes: e.crew.yesShare(), PeakResident: e.subject.peak(),
			Calls: e.total.Calls, Errors: e.total.Errors, Missed: e.total.Missed,
		}
		if e.total.FirstError != nil {
			cell.FirstError = e.total.FirstError.Error()
		}
		for kind, h := range e.latency {
			all.Merge(h)
			if len(e.latency) > 1 {
				cell.Kinds = append(cell.Kinds, report.KindLatency{Kind: workload.Kind(kind).String(), Calls: h.TotalCount(),
					P50: measure.Micros(h, 50), P99: measure.Micros(h, 99)})
			}
		}
		sort.Slice(cell.Kinds, func(i, j int) bool { return cell.Kinds[i].Calls > cell.Kinds[j].Calls })
		cell.Latency = measure.Quantiles(all)
		out.Cells = append(out.Cells, cell)
	}
	return out
}

// doubtful is how far the shares of "yes" answers may lie apart before the
// systems cannot have held the same data.
const doubtful = 0.1

// doubt notes what a reader must know before believing a comparison.
func (l *lab) doubt(c *report.Comparison) {
	for _, cell := range c.Cells {
		if math.Abs(cell.Yes-c.Cells[0].Yes) > doubtful {
			l.note("%s: %s answered “yes” to %.0f %% of the questions, %s to %.0f %%; they did not do the same work.",
				c.Name, c.Cells[0].Label, 100*c.Cells[0].Yes, cell.Label, 100*cell.Yes)
		}
		if cell.Rate.Min == 0 {
			l.note("%s: %s answered nothing within a round; the rounds are too short for it.", c.Name, cell.Label)
		}
		if cell.Errors > 0 {
			l.note("%s: %s failed %d times: %s", c.Name, cell.Label, cell.Errors, cell.FirstError)
		}
	}
}

// loaders and loadBatch shape the filling of a store.
const (
	loaders   = 8
	loadBatch = 1000
)

// fill adds edges to a system until next is at its end, and returns how many were new.
func (l *lab) fill(ctx context.Context, s *subject, what string, total int, next func(emit func(workload.Edge) error) error) (int, time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var live, created atomic.Int64
	defer l.progress.during(fmt.Sprintf("%s · %s", what, s.Name()), &live, int64(total))()
	batches := make(chan []workload.Edge, loaders)
	errs := make([]error, loaders)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range loaders {
		wg.Go(func() {
			if errs[i] = load(ctx, s, batches, &live, &created); errs[i] != nil {
				cancel()
			}
		})
	}
	fed := feed(ctx, batches, next)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, fmt.Errorf("fill %s: %w", s.Name(), err)
	}
	return int(created.Load()), time.Since(start), fed
}

// feed cuts the edges of next into batches, and closes the channel.
func feed(ctx context.Context, batches chan<- []workload.Edge, next func(emit func(workload.Edge) error) error) error {
	defer close(batches)
	batch := make([]workload.Edge, 0, loadBatch)
	send := func() error {
		select {
		case batches <- batch:
			batch = make([]workload.Edge, 0, loadBatch)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := next(func(e workload.Edge) error {
		if batch = append(batch, e); len(batch) == loadBatch {
			return send()
		}
		return nil
	})
	if err == nil && len(batch) > 0 {
		err = send()
	}
	return err
}

// load is one loader.
func load(ctx context.Context, s *subject, batches <-chan []workload.Edge, live, created *atomic.Int64) error {
	session, err := s.Session(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	for batch := range batches {
		n, err := session.AddEdges(ctx, batch)
		if err != nil {
			return err
		}
		created.Add(int64(n))
		live.Add(int64(len(batch)))
	}
	return nil
}

// store fills a system with the graph of a mix.
func (l *lab) store(ctx context.Context, s *subject, m *workload.Mix) error {
	if m.Graph == nil {
		return nil
	}
	n, took, err := l.fill(ctx, s, "filling", m.Graph.Edges(), func(emit func(workload.Edge) error) error {
		return m.Graph.Load(m.IDs, emit)
	})
	if err != nil {
		return err
	}
	if n != m.Graph.Edges() {
		return fmt.Errorf("%s has %d of %d edges after filling", s.Name(), n, m.Graph.Edges())
	}
	l.progress.say("filled %s with %s likes at %s/s", s.Name(), report.Number(float64(n)), report.Number(float64(n)/took.Seconds()))
	measure.Settle(s.PIDs(), settleTime)
	return nil
}
