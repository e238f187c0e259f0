package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/target"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// caller carries the operations of a stream to a session: a measure.Worker.
type caller struct {
	session target.Session
	stream  *workload.Stream
	op      workload.Op
	batch   []workload.Edge // adds of one call; nil for a call each

	exists []bool
	counts []uint64
	page   []target.Peer
	yes    int64 // answers that were "yes"
	asked  int64 // answers that could be
}

func (c *caller) Prepare() {
	c.stream.Next(&c.op)
	for i := range c.batch {
		c.batch[i] = c.op.Edge
		if i < len(c.batch)-1 {
			c.stream.Next(&c.op)
		}
	}
}

func (c *caller) Run(ctx context.Context) (measure.Outcome, error) {
	if c.batch != nil {
		n, err := c.session.AddEdges(ctx, c.batch)
		c.tally(n, len(c.batch))
		return measure.Outcome{Kind: int(workload.Add), Units: len(c.batch)}, err
	}
	return measure.Outcome{Kind: int(c.op.Kind), Units: c.op.Units()}, c.do(ctx)
}

func (c *caller) tally(yes, asked int) {
	c.yes += int64(yes)
	c.asked += int64(asked)
}

// do makes the call of one operation.
func (c *caller) do(ctx context.Context) error {
	op := &c.op
	switch op.Kind {
	case workload.Add:
		return c.write(c.session.AddEdge(ctx, op.Edge))
	case workload.Delete:
		return c.write(c.session.DeleteEdge(ctx, op.Edge))
	case workload.Update:
		return c.write(c.session.UpdateEdge(ctx, op.Edge))
	case workload.Has:
		c.exists = resize(c.exists, len(op.IDs))
		if err := c.session.HasEdges(ctx, op.Vertex, op.IDs, c.exists); err != nil {
			return err
		}
		there := 0
		for _, e := range c.exists {
			if e {
				there++
			}
		}
		c.tally(there, len(op.IDs))
		return nil
	case workload.Count:
		c.counts = resize(c.counts, len(op.IDs))
		return c.session.CountEdges(ctx, op.In, op.IDs, c.counts)
	default:
		var err error
		c.page, err = c.session.ListNewest(ctx, target.List{Vertex: op.Vertex, In: op.In}, op.Skip, op.Limit, c.page[:0])
		return err
	}
}

func (c *caller) write(changed bool, err error) error {
	n := 0
	if changed {
		n = 1
	}
	c.tally(n, 1)
	return err
}

// resize returns a slice of n elements, s itself where it is long enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// crew is the callers of one system under one load. Streams run on from round
// to round, so that no round repeats the writes of the one before.
type crew struct {
	callers []*caller
	workers []measure.Worker
	pipes   []*target.Pipe // of workers that are no callers
}

// newCrew opens a session for each caller.
func newCrew(ctx context.Context, s target.Server, mix *workload.Mix, callers, batch int, salt uint64) (*crew, error) {
	c := &crew{}
	for i := range callers {
		session, err := s.Session(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: session %d: %w", s.Name(), i, err), c.close())
		}
		one := &caller{session: session, stream: mix.Stream(i, callers, salt)}
		if batch > 1 {
			one.batch = make([]workload.Edge, batch)
		}
		c.callers = append(c.callers, one)
		c.workers = append(c.workers, one)
	}
	return c, nil
}

func (c *crew) close() error {
	var errs []error
	for _, one := range c.callers {
		errs = append(errs, one.session.Close())
	}
	for _, p := range c.pipes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// yesShare is the share of answers that were "yes", over all rounds.
func (c *crew) yesShare() float64 {
	yes, asked := int64(0), int64(0)
	for _, one := range c.callers {
		yes += one.yes
		asked += one.asked
	}
	return float64(yes) / float64(max(asked, 1))
}
