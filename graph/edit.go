package graph

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/lianadb/liana/kv/counter"
)

// ErrOldProgram: a node of the cluster runs a program that could not read the log entry
// that a call would make.
var ErrOldProgram = errors.New("a node of the cluster runs an older program that does not know this yet, nothing was changed")

// CounterEdit is one step on one counter: kv/counter says what the kinds and conditions do.
type CounterEdit struct {
	Counter  CounterRef
	Kind     counter.EditKind
	If       counter.Condition
	Value    int64
	ExpireAt int64 // µs since 1970, of Put and Expire; 0: none. One that has come removes the counter.
	Keep     bool  // of Put: leave the expiry as it is
}

// EditResult is the answer to one edit. Without Err the edit was applied, or held back as
// Edited says.
type EditResult struct {
	counter.Edited
	// Pos is a position of the counter's slot that shows the edit; 0 of one that changed the
	// counter: it is not known.
	Pos uint64
	Err error
}

// Commands that edit counters.
const cmdEdit byte = 0x28

const editKeeps = 1

// edits are the content of an edit command.
//
//	edit      n | n × (counter | kind [1] conditions [1] flags [1] | value, expiry (varint))
func encodeEdits(es []CounterEdit, pick []int) []byte {
	b := binary.AppendUvarint(append(make([]byte, 0, 8+32*len(pick)), cmdEdit), uint64(len(pick)))
	for _, i := range pick {
		e := &es[i]
		var flags byte
		if e.Keep {
			flags |= editKeeps
		}
		b = append(appendCounter(b, &e.Counter), byte(e.Kind), byte(e.If), flags)
		b = binary.AppendVarint(binary.AppendVarint(b, e.Value), e.ExpireAt)
	}
	return b
}

func (d *decoder) edit() CounterEdit {
	e := CounterEdit{Counter: d.counter(), Kind: counter.EditKind(d.byte()), If: counter.Condition(d.byte())}
	flags := d.byte()
	e.Keep = flags&editKeeps != 0
	e.Value, e.ExpireAt = d.varint(), d.varint()
	if d.err == nil && (e.Kind < counter.Look || e.Kind > counter.Expire || e.If&^counter.AllConditions != 0 || flags > editKeeps) {
		d.fail("edit: unknown kind %d, condition %#x or flag %#x", e.Kind, byte(e.If), flags)
	}
	return e
}

// editsResult answers an edit command, one for each edit. Outcome 0 is a refusal by schema
// or slot.
type editsResult struct{ items []counter.Edited }

func (m *Machine) applyEdits(body []byte) (*editsResult, error) {
	d := decoder{b: body}
	n := d.count()
	res := &editsResult{items: make([]counter.Edited, 0, min(n, MaxBatch))}
	for i := 0; i < n && d.err == nil; i++ {
		e := d.edit()
		if d.err != nil {
			break
		}
		out, err := m.applyEdit(&e)
		if err != nil {
			return nil, fmt.Errorf("edit %d: %w", i, err)
		}
		res.items = append(res.items, out)
	}
	return res, d.done()
}

func (m *Machine) applyEdit(e *CounterEdit) (counter.Edited, error) {
	bounds, known := m.metricBounds(&e.Counter)
	if e.Kind == counter.Look && e.Counter.Key == "" { // derived ones too
		_, known = m.schema.MetricByID(e.Counter.Vertex.Type, e.Counter.Metric)
	}
	if !known || !m.owns(e.Counter.Slot()) {
		return counter.Edited{}, nil
	}
	out, err := m.counters.Edit(counter.Edit{
		Ref: m.refOf(&e.Counter), Kind: e.Kind, If: e.If, Value: e.Value, Schema: bounds, ExpireAt: e.ExpireAt, Keep: e.Keep,
	}, m.clock())
	if err == nil && out.Changed {
		m.changed.add(e.Counter)
	}
	return out, err
}

// EditCounters makes edits. Those of one shard are one command: they take effect together,
// in their order, and nothing comes between them. An error means that nothing was changed.
func (g *Graph) EditCounters(ctx context.Context, es []CounterEdit) ([]EditResult, error) {
	removing, err := g.checkEdits(es)
	if err != nil {
		return nil, err
	}
	if g.cfg.Admit != nil {
		if err := g.cfg.Admit(removing); err != nil {
			return nil, err
		}
	}
	results := make([]EditResult, len(es))
	parts := g.splitEdits(es)
	for i := range parts {
		p := &parts[i]
		p.propose(g, func() []byte { return encodeEdits(es, p.pick) })
	}
	for i := range parts {
		p := &parts[i]
		res := p.wait(ctx, g)
		for j, at := range p.pick {
			if p.err != nil {
				results[at] = EditResult{Err: p.err}
				continue
			}
			results[at] = g.editResult(p.shard, es[at].Counter.Slot(), res.(*editsResult).items[j])
		}
	}
	return results, nil
}

func (g *Graph) editResult(id uint32, slot Slot, out counter.Edited) EditResult {
	switch out.Outcome {
	case 0:
		return EditResult{Err: g.disowned(id, slot)}
	case counter.Overflow:
		return EditResult{Edited: out, Err: ErrOverflow}
	}
	return EditResult{Edited: out, Pos: g.lastChange(id, slot)}
}

func (g *Graph) splitEdits(es []CounterEdit) []part {
	var parts []part
	for i := range es {
		own := g.shardOf(es[i].Counter.Slot())
		at := slices.IndexFunc(parts, func(p part) bool { return p.shard == own }) // they are few
		if at < 0 {
			at = len(parts)
			parts = append(parts, part{shard: own, pick: make([]int, 0, len(es)-i)})
		}
		parts[at].pick = append(parts[at].pick, i)
	}
	return parts
}

// checkEdits checks the edits of a call. removing: none of them needs space.
func (g *Graph) checkEdits(es []CounterEdit) (removing bool, err error) {
	if err := checkBatch("edits", len(es)); err != nil {
		return false, err
	}
	s := g.Schema()
	removing = true
	for i := range es {
		e := &es[i]
		if g.checkCounter(s, "", &e.Counter, e.Kind != counter.Look) != nil { // again, to name the field
			return false, g.checkCounter(s, fmt.Sprintf("edits[%d].counter", i), &e.Counter, e.Kind != counter.Look)
		}
		if e.Kind < counter.Look || e.Kind > counter.Expire || e.If&^counter.AllConditions != 0 {
			return false, invalid(fmt.Sprintf("edits[%d].kind", i), "a known kind and condition", "%d, %#x", e.Kind, byte(e.If))
		}
		if e.ExpireAt < 0 {
			return false, invalid(fmt.Sprintf("edits[%d].expire_at", i), "0 (never) or a time, in microseconds", "%d", e.ExpireAt)
		}
		removing = removing && (e.Kind == counter.Look || e.Kind == counter.Remove)
	}
	return removing, nil
}

// EditCounters is Graph.EditCounters over the cluster. Edits of one counter keep their order. The
// answer of each edit tells whether it was refused, or has an unknown outcome. While a node runs a
// program that does not know edits, they are made where increments do the same.
func (r *Router) EditCounters(ctx context.Context, es []CounterEdit) ([]EditResult, error) {
	g := r.cfg.Local
	if _, err := g.checkEdits(es); err != nil {
		return nil, err
	}
	if g.cfg.Edits != nil && !g.cfg.Edits() {
		return r.editByIncrements(ctx, es)
	}
	if !r.alone() {
		return r.spreadEdits(ctx, es)
	}
	results, err := g.EditCounters(ctx, es)
	if again(err, toWrite) {
		return r.spreadEdits(ctx, es)
	}
	var left []int // of a shard that was led from here
	for i := range results {
		if again(results[i].Err, toWrite) {
			left = append(left, i)
		}
	}
	if err != nil || len(left) == 0 {
		return results, err
	}
	later, err := r.spreadEdits(ctx, pickOf(es, left))
	for j, i := range left {
		results[i] = EditResult{Err: err}
		if err == nil {
			results[i] = later[j]
		}
	}
	return results, nil
}

// spreadEdits makes edits by the nodes that lead their shards.
func (r *Router) spreadEdits(ctx context.Context, es []CounterEdit) ([]EditResult, error) {
	results := make([]EditResult, len(es))
	shardOf := func(i int) uint32 { return r.cfg.Local.shardOf(es[i].Counter.Slot()) }
	_, left, err := r.batch(ctx, len(es), toWrite, shardOf, func(ctx context.Context, svc Service, pick []int) (string, []int, error) {
		res, err := svc.EditCounters(ctx, pickOf(es, pick))
		if err != nil && !again(err, toWrite) && len(pick) == len(es) {
			return "", nil, err
		}
		var retry []int
		for j, i := range pick {
			results[i] = EditResult{Err: err}
			if err == nil {
				results[i] = res[j]
			}
			if again(results[i].Err, toWrite) {
				retry = append(retry, i)
			}
		}
		return "", retry, nil
	})
	if len(left) == 0 && err != nil {
		return nil, err
	}
	for _, i := range left {
		if results[i].Err == nil {
			results[i].Err = err // no node could be asked
		}
	}
	return results, nil
}

// editByIncrements makes edits that only add, without conditions, and refuses others.
func (r *Router) editByIncrements(ctx context.Context, es []CounterEdit) ([]EditResult, error) {
	ins := make([]Increment, len(es))
	for i := range es {
		e := &es[i]
		if e.Kind != counter.Add || e.If != 0 {
			return nil, ErrOldProgram
		}
		ins[i] = Increment{Counter: e.Counter, Delta: e.Value}
	}
	res, text, err := r.IncrBy(ctx, ins, "")
	if err != nil {
		return nil, err
	}
	t, err := ParseToken(text)
	if err != nil {
		return nil, err
	}
	out := make([]EditResult, len(es))
	for i := range res {
		out[i] = EditResult{Edited: counter.Edited{Value: res[i].Value, Outcome: counter.Applied, Changed: res[i].Changed}, Err: res[i].Err}
		if !res[i].Changed {
			out[i].Outcome = counter.Capped
		}
		if t != nil {
			out[i].Pos = t.position(ins[i].Counter.Slot())
		}
	}
	return out, nil
}
