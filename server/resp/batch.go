package resp

import (
	"context"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
)

// Backend is the domain as the port uses it.
type Backend interface {
	Schema() *graph.Schema
	// Timeline is the number that the cluster's tokens carry.
	Timeline() uint64
	// EditCounters makes edits, those of one shard together and in their order. An error
	// means that nothing was changed.
	EditCounters(ctx context.Context, es []graph.CounterEdit) ([]graph.EditResult, error)
	GetCounters(ctx context.Context, ro graph.ReadOptions, refs []graph.CounterRef) ([]graph.CounterValue, string, error)
}

// step is how one reply is made of the results of a batch.
type step struct {
	cmd      *command
	from, to int // edits of the batch
	reply    func(c *conn, s *step, res []graph.EditResult)
	// What reply needs beside.
	n    int64
	text string
	args [][]byte
}

// batch gathers commands that are executed together.
type batch struct {
	schema *graph.Schema // under which it was planned

	steps []step
	edits []graph.CounterEdit
	// heads marks the first edit of each key, where a command has several keys with
	// several edits each.
	heads []bool
	// whole are the edits that belong to one transaction each; nothing comes between them.
	whole   []span
	results []graph.EditResult
	refs    []graph.CounterRef
}

// Bounds of a batch. A pipeline of more is several batches, one after the other.
const (
	maxSteps = 4096
	maxEdits = 4096 // of one call
)

func (b *batch) full() bool { return len(b.steps) >= maxSteps || len(b.edits) >= maxEdits }

// reset empties a batch for its next use, whoever's that is.
func (b *batch) reset() {
	clear(b.steps)
	clear(b.edits)
	clear(b.results)
	b.schema = nil
	b.steps, b.edits, b.heads, b.whole, b.results = b.steps[:0], b.edits[:0], b.heads[:0], b.whole[:0], b.results[:0]
}

// large: it grew with one huge command, and is not kept.
func (b *batch) large() bool { return cap(b.edits) > 4*maxEdits || cap(b.steps) > 4*maxSteps }

func (b *batch) edit(e graph.CounterEdit) {
	b.edits = append(b.edits, e)
	b.heads = append(b.heads, true)
}

// more adds an edit of the key of the edit before.
func (b *batch) more(e graph.CounterEdit) {
	b.edits = append(b.edits, e)
	b.heads = append(b.heads, false)
}

// cutBack takes edits and steps off again, from these on.
func (b *batch) cutBack(steps, edits int) {
	b.steps, b.edits, b.heads = b.steps[:steps], b.edits[:edits], b.heads[:edits]
}

// reading reports whether an edit can be answered without the log.
func (b *batch) reading(i int) bool {
	if b.edits[i].Kind != counter.Look {
		return false
	}
	for _, w := range b.whole {
		if i >= w.from && i < w.to {
			return false
		}
	}
	return true
}

// execute fills results. Reads before the first write and after the last are ordinary reads,
// which caches and followers may answer; those between go through the log with the writes,
// so that they see what comes before them and not what comes after.
func (b *batch) execute(ctx context.Context, d Backend, s *graph.Session) {
	n := len(b.edits)
	if cap(b.results) < n {
		b.results = make([]graph.EditResult, n)
	}
	b.results = b.results[:n]
	first, last := 0, n
	for first < n && b.reading(first) {
		first++
	}
	for last > first && b.reading(last-1) {
		last--
	}
	b.read(ctx, d, s, 0, first)
	for from := first; from < last; {
		to := b.end(from, last)
		b.write(ctx, d, s, from, to)
		from = to
	}
	b.read(ctx, d, s, last, n)
}

// end is where a call that begins at from ends: at most maxEdits on, and in no transaction.
func (b *batch) end(from, last int) int {
	to := min(from+maxEdits, last)
	for _, w := range b.whole {
		if w.from > from && w.from < to && w.to > to {
			return w.from
		}
	}
	return to
}

func (b *batch) write(ctx context.Context, d Backend, s *graph.Session, from, to int) {
	res, err := d.EditCounters(ctx, b.edits[from:to])
	for i := from; i < to; i++ {
		if err != nil {
			b.results[i] = graph.EditResult{Err: err}
			continue
		}
		b.results[i] = res[i-from]
		s.Edited(&b.edits[i].Counter, &b.results[i])
	}
}

func (b *batch) read(ctx context.Context, d Backend, s *graph.Session, from, to int) {
	for ; from < to; from += maxEdits {
		b.readSome(ctx, d, s, from, min(to, from+maxEdits))
	}
}

func (b *batch) readSome(ctx context.Context, d Backend, s *graph.Session, from, to int) {
	b.refs = b.refs[:0]
	for i := from; i < to; i++ {
		b.refs = append(b.refs, b.edits[i].Counter)
	}
	values, token, err := d.GetCounters(ctx, graph.ReadOptions{Token: s.TokenFor(b.refs)}, b.refs)
	for i := from; i < to; i++ {
		if err != nil {
			b.results[i] = graph.EditResult{Err: err}
			continue
		}
		v := &values[i-from]
		b.results[i] = graph.EditResult{Edited: counter.Edited{
			Before: counter.Counter{Value: v.Value, Exists: v.Exists, ExpireAt: v.ExpireAt}, Value: v.Value, Outcome: counter.Applied,
		}}
	}
	if err == nil {
		s.Read(token)
	}
}
