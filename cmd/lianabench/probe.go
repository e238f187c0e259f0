package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/target"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// probe is a list that is asked.
type probe struct {
	star  workload.Star
	edges int
	added int
}

func (p *probe) list() target.List { return target.List{Vertex: p.star.Center, In: p.star.In} }

// prober asks two lists in turn and checks the answers.
type prober struct {
	ctx        context.Context
	session    target.Session
	pids       []int
	probes     int
	big, small *probe
	page       []target.Peer
}

const (
	// pageSize is that of the pages asked for.
	pageSize = 20
	// probeBlocks is how often the lists take turns within one kind of call.
	probeBlocks = 10
	// blockTime bounds one turn: calls that take long are made less often.
	blockTime = 200 * time.Millisecond
	// fresh numbers the edges that probes add, beyond all that lists grow to.
	fresh = 1 << 27
)

// asking is a call that is measured. It returns an error where the answer is wrong.
type asking func(on *probe, rng *rand.Rand) error

// question is one kind of call. before and after, where set, are not timed: they
// keep the list at its length around a write.
type question struct {
	name   string
	before asking
	ask    asking
	after  asking
	write  bool // asked together with its undoing: two calls
}

func (p *prober) questions() []question {
	all := []question{
		{name: "has edge", ask: p.has},
		{name: "count", ask: p.count},
		{name: "first page", ask: p.firstPage},
		{name: "page at rank n/2", ask: p.middlePage},
		{name: "count in a window", ask: p.window},
		{name: "add", ask: p.add, after: p.del, write: true},
		{name: "delete", before: p.add, ask: p.del, write: true},
	}
	if p.big.star.In {
		// Membership is asked of the user's list, which is short here.
		return all[1:]
	}
	return all
}

// run asks all questions of both lists.
func (p *prober) run() (report.Point, error) {
	point := report.Point{Edges: p.big.edges, Small: p.small.edges}
	for _, q := range p.questions() {
		cost, err := p.measure(&q)
		if err != nil {
			return point, fmt.Errorf("%s: %w", q.name, err)
		}
		point.Ops = append(point.Ops, cost)
	}
	return point, nil
}

// measure asks one question of both lists, block by block in turn.
func (p *prober) measure(q *question) (report.OpCost, error) {
	rng := rand.New(rand.NewPCG(uint64(p.big.edges), 0x70726f62))
	big, small := measure.NewHistogram(), measure.NewHistogram()
	var used measure.Usage
	for block := range probeBlocks {
		if block == 0 { // warm both
			for range 20 {
				for _, on := range []*probe{p.small, p.big} {
					if _, err := q.once(on, rng); err != nil {
						return report.OpCost{}, err
					}
				}
			}
		}
		if err := p.block(q, p.small, rng, small); err != nil {
			return report.OpCost{}, err
		}
		before := measure.UsageOf(p.pids...)
		if err := p.block(q, p.big, rng, big); err != nil {
			return report.OpCost{}, err
		}
		after := measure.UsageOf(p.pids...)
		used.CPU += after.CPU - before.CPU
		used.DiskWritten += after.DiskWritten - before.DiskWritten
		used.DiskRead += after.DiskRead - before.DiskRead
	}
	calls := float64(big.TotalCount())
	if q.write {
		calls *= 2
	}
	cost := report.OpCost{Op: q.name, Write: q.write, Calls: big.TotalCount(),
		P50: measure.Micros(big, 50), P99: measure.Micros(big, 99), SmallP50: measure.Micros(small, 50), SmallP99: measure.Micros(small, 99),
		ServerCPU: float64(used.CPU.Nanoseconds()) / 1000 / calls, Written: float64(used.DiskWritten) / calls, Read: float64(used.DiskRead) / calls}
	cost.Ratio = cost.P50 / cost.SmallP50
	return cost, nil
}

func (p *prober) block(q *question, on *probe, rng *rand.Rand, h *hdrhistogram.Histogram) error {
	end := time.Now().Add(blockTime)
	for i := 0; i < p.probes/probeBlocks && (i == 0 || time.Now().Before(end)); i++ {
		took, err := q.once(on, rng)
		if err != nil {
			return err
		}
		measure.RecordLatency(h, took)
	}
	return nil
}

// once asks the question and returns the time of the call that counts.
func (q *question) once(on *probe, rng *rand.Rand) (time.Duration, error) {
	if q.before != nil {
		if err := q.before(on, rng); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err := q.ask(on, rng)
	took := time.Since(start)
	if err == nil && q.after != nil {
		err = q.after(on, rng)
	}
	return took, err
}

// has asks by turns for an edge that exists and for one that does not.
func (p *prober) has(on *probe, rng *rand.Rand) error {
	there := rng.IntN(2) == 0
	e := on.star.Edge(rng.IntN(on.edges))
	if !there {
		e = on.star.Edge(fresh + fresh/2 + rng.IntN(fresh/2))
	}
	var exists [1]bool
	if err := p.session.HasEdges(p.ctx, e.Src, []uint64{e.Dst}, exists[:]); err != nil {
		return err
	}
	if exists[0] != there {
		return fmt.Errorf("answer %v for an edge where %v is right", exists[0], there)
	}
	return nil
}

func (p *prober) count(on *probe, _ *rand.Rand) error {
	var n [1]uint64
	if err := p.session.CountEdges(p.ctx, on.star.In, []uint64{on.star.Center}, n[:]); err != nil {
		return err
	}
	return wantCount(n[0], on.edges)
}

func wantCount(got uint64, want int) error {
	if got != uint64(want) {
		return fmt.Errorf("answer %d, right is %d", got, want)
	}
	return nil
}

func (p *prober) firstPage(on *probe, _ *rand.Rand) error { return p.pageAt(on, 0) }

func (p *prober) middlePage(on *probe, _ *rand.Rand) error { return p.pageAt(on, on.edges/2) }

// pageAt reads a page, newest first, and checks its first edge.
func (p *prober) pageAt(on *probe, rank int) error {
	var err error
	p.page, err = p.session.ListNewest(p.ctx, on.list(), rank, pageSize, p.page[:0])
	if err != nil {
		return err
	}
	if len(p.page) != pageSize || p.page[0].Time != on.star.Time(on.edges-1-rank) {
		return fmt.Errorf("page of %d at rank %d is not what was stored", len(p.page), rank)
	}
	return nil
}

// window counts the middle half of the list.
func (p *prober) window(on *probe, _ *rand.Rand) error {
	from, to := on.edges/4, on.edges-on.edges/4
	n, err := p.session.CountWindow(p.ctx, on.list(), on.star.Time(from), on.star.Time(to))
	if err != nil {
		return err
	}
	return wantCount(n, to-from)
}

// add puts a new edge of now, del takes it away again. Each adds at another
// place of the order by id.
func (p *prober) add(on *probe, _ *rand.Rand) error {
	changed, err := p.session.AddEdge(p.ctx, on.freshEdge(on.added))
	if err == nil && !changed {
		return errors.New("a new edge was there already")
	}
	return err
}

func (p *prober) del(on *probe, _ *rand.Rand) error {
	changed, err := p.session.DeleteEdge(p.ctx, on.freshEdge(on.added))
	if err == nil && !changed {
		return errors.New("an edge that was added is not there")
	}
	on.added++
	return err
}

// freshEdge is an edge of now.
func (p *probe) freshEdge(i int) workload.Edge {
	e := p.star.Edge(fresh + i)
	e.Time = 0
	return e
}
