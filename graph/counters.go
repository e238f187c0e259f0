package graph

import (
	"context"
	"errors"
	"fmt"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
)

// ErrIDTooOld: the request id tells its own time, which lies before the dedupe
// window; nothing was changed.
var ErrIDTooOld = errors.New("request_id is older than the window of 10 minutes, nothing was changed")

// IncrBy adds to counters, each for itself, in their order. With a requestID a
// repeated call within ten minutes applies once and gets the first answers.
// An error means that nothing was changed.
func (g *Graph) IncrBy(ctx context.Context, ins []Increment, requestID string) ([]IncrResult, string, error) {
	ordinals := make([]uint32, len(ins))
	for i := range ordinals {
		ordinals[i] = uint32(i)
	}
	return g.IncrPart(ctx, ins, ordinals, requestID)
}

// IncrPart is a part of an IncrBy call that is spread over nodes: ordinals are the
// places of the increments in the whole, by which a repeated call knows them.
func (g *Graph) IncrPart(ctx context.Context, ins []Increment, ordinals []uint32, requestID string) ([]IncrResult, string, error) {
	if len(ordinals) != len(ins) {
		return nil, "", invalid("ordinals", "one for each increment", "%d for %d", len(ordinals), len(ins))
	}
	if err := g.checkIncrements(ins, requestID); err != nil {
		return nil, "", err
	}
	if g.cfg.Admit != nil {
		if err := g.cfg.Admit(false); err != nil {
			return nil, "", err
		}
	}
	results := make([]IncrResult, len(ins))
	t := Token{Timeline: g.cfg.Timeline}
	parts := g.splitIncrements(ins, ordinals, requestID)
	for i := range parts {
		p := &parts[i]
		p.propose(g, p.cmd.encode)
	}
	for i := range parts {
		p := &parts[i]
		res := p.wait(ctx, g)
		for j, o := range p.pick {
			if p.err != nil {
				results[o] = IncrResult{Err: p.err}
				continue
			}
			slot := ins[o].Counter.Slot()
			results[o] = incrResult(res.(*incrementResult).items[j])
			if res.(*incrementResult).items[j].Outcome == 0 {
				results[o].Err = g.disowned(p.shard, slot)
				continue
			}
			t.see(slot, g.lastChange(p.shard, slot))
		}
	}
	return results, t.Encode(), nil
}

type incrementPart struct {
	part
	cmd increments
}

func (g *Graph) splitIncrements(ins []Increment, ordinals []uint32, requestID string) []incrementPart {
	var parts []incrementPart
	index := map[uint32]int{}
	for i := range ins {
		own := g.shardOf(ins[i].Counter.Slot())
		if index[own] == 0 {
			parts = append(parts, incrementPart{part: part{shard: own}, cmd: increments{requestID: requestID}})
			index[own] = len(parts)
		}
		p := &parts[index[own]-1]
		p.pick = append(p.pick, i)
		p.cmd.items = append(p.cmd.items, ins[i])
		p.cmd.ordinals = append(p.cmd.ordinals, ordinals[i])
	}
	return parts
}

func (g *Graph) checkIncrements(ins []Increment, requestID string) error {
	if err := checkBatch("increments", len(ins)); err != nil {
		return err
	}
	if len(requestID) > MaxRequestID {
		return invalid("request_id", fmt.Sprintf("at most %d bytes", MaxRequestID), "%d bytes", len(requestID))
	}
	s, now := g.Schema(), g.now()
	for i := range ins {
		in := &ins[i]
		field := fmt.Sprintf("increments[%d]", i)
		if err := g.checkCounter(s, field+".counter", &in.Counter, true); err != nil {
			return err
		}
		if in.HasMin && in.HasMax && in.Min > in.Max {
			return invalid(field+".max", "at least min", "%d, below %d", in.Max, in.Min)
		}
		if in.ExpireAt < 0 || in.ExpireAt > 0 && in.ExpireAt <= now {
			return invalid(field+".expire_at", "0 (never) or a time to come, in microseconds", "%d", in.ExpireAt)
		}
	}
	return nil
}

// incrResult turns the machine's outcome into the caller's answer.
func incrResult(r counter.Result) IncrResult {
	out := IncrResult{Value: r.Value, Changed: r.Outcome == counter.Applied}
	out.Err = outcomeError(r.Outcome)
	return out
}

func outcomeError(o counter.Outcome) error {
	switch o {
	case counter.Applied, counter.Capped:
		return nil
	case counter.Overflow:
		return ErrOverflow
	case counter.ExpirePast:
		return invalid("expire_at", "a time to come, in microseconds", "it has passed")
	case counter.DedupeFull:
		return ErrDedupeFull
	case counter.IDReused:
		return ErrRequestIDReused
	case counter.IDTooOld:
		return ErrIDTooOld
	}
	return fmt.Errorf("outcome %d is unknown to this version of the program", o)
}

// GetCounters reads counters.
func (g *Graph) GetCounters(ctx context.Context, ro ReadOptions, refs []CounterRef) ([]CounterValue, string, error) {
	if err := checkBatch("counters", len(refs)); err != nil {
		return nil, "", err
	}
	r, err := g.newReading(ro, "")
	if err != nil {
		return nil, "", err
	}
	defer r.close()
	s := g.Schema()
	out := make([]CounterValue, len(refs))
	for i := range refs {
		if err := g.checkCounter(s, fmt.Sprintf("counters[%d]", i), &refs[i], false); err != nil {
			return nil, "", err
		}
		if out[i], err = r.counter(ctx, refs[i]); err != nil {
			return nil, "", err
		}
	}
	return out, r.out.Encode(), nil
}

// counter reads one counter. One that is past its time by the clock here, though
// not yet by log time, is first brought to expire: were it only hidden, it would come
// back under a leader whose clock is behind (RULES E3).
func (r *reading) counter(ctx context.Context, c CounterRef) (CounterValue, error) {
	for tries := 0; ; tries++ {
		v, err := r.at(ctx, c.Slot())
		if err != nil {
			return CounterValue{}, err
		}
		val, err := v.counter(&c)
		if err != nil || val.ExpireAt == 0 || val.ExpireAt > r.g.now() || tries == 2 {
			return val, err
		}
		s, err := r.g.running(v.m.cfg.ID)
		if err != nil {
			return CounterValue{}, err
		}
		if err := s.Tick(ctx); err != nil {
			return CounterValue{}, err
		}
		r.drop(v.m.cfg.ID)
	}
}

// counter reads a counter as the view shows it at its log time.
func (v *view) counter(c *CounterRef) (CounterValue, error) {
	out := CounterValue{Counter: *c}
	ref := c.ref()
	b, err := v.snap.Get(nil, ref.Row)
	if errors.Is(err, kv.ErrNotFound) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("shard %d: %v: %w", v.m.cfg.ID, ref, err)
	}
	row, err := counter.ParseRow(b)
	if err != nil {
		return out, v.m.failed(fmt.Errorf("shard %d: %v: %w", v.m.cfg.ID, ref, err))
	}
	got := row.Get(ref.Field, v.now)
	out.Value, out.Exists, out.ExpireAt = got.Value, got.Exists, got.ExpireAt
	return out, nil
}

// SetCounter gives a counter a value and an expiry (µs; 0: none).
func (g *Graph) SetCounter(ctx context.Context, c CounterRef, value, expireAt int64) (string, error) {
	if err := g.checkCounter(g.Schema(), "counter", &c, true); err != nil {
		return "", err
	}
	if expireAt < 0 || expireAt > 0 && expireAt <= g.now() {
		return "", invalid("expire_at", "0 (never) or a time to come, in microseconds", "%d", expireAt)
	}
	id, res, err := g.counterCommand(ctx, &c, false, encodeSetCounter(&c, value, expireAt))
	if err != nil {
		return "", err
	}
	out := res.(setResult).outcome
	if out == counter.Capped {
		return "", invalid("value", "the metric's min to max", "%d", value)
	}
	if out == 0 {
		return "", g.disowned(id, c.Slot())
	}
	return g.counterToken(id, &c), outcomeError(out)
}

// DeleteCounter removes a counter, and tells whether it was there.
func (g *Graph) DeleteCounter(ctx context.Context, c CounterRef) (bool, string, error) {
	if err := g.checkCounter(g.Schema(), "counter", &c, true); err != nil {
		return false, "", err
	}
	id, res, err := g.counterCommand(ctx, &c, true, encodeRemoveCounter(&c))
	if err != nil {
		return false, "", err
	}
	r := res.(removeResult)
	if r.refused {
		return false, "", g.disowned(id, c.Slot())
	}
	return r.existed, g.counterToken(id, &c), nil
}

func (g *Graph) counterCommand(ctx context.Context, c *CounterRef, deleting bool, cmd []byte) (id uint32, res any, err error) {
	id = g.shardOf(c.Slot())
	if g.cfg.Admit != nil {
		if err := g.cfg.Admit(deleting); err != nil {
			return id, nil, err
		}
	}
	s, err := g.running(id)
	if err != nil {
		return id, nil, g.moved(id, err)
	}
	res, err = s.Propose(ctx, cmd)
	return id, res, g.moved(id, err)
}

func (g *Graph) counterToken(id uint32, c *CounterRef) string {
	t := Token{Timeline: g.cfg.Timeline}
	t.see(c.Slot(), g.lastChange(id, c.Slot()))
	return t.Encode()
}

// Counter rows that the shards of a node keep decoded, about 150 bytes each: together, and
// the least and the most of one.
const (
	nodeCounterRows  = 1 << 18
	leastCounterRows = 1 << 13
	mostCounterRows  = 1 << 17
)

// counterRows is the share of a shard, by what the node began with.
func (g *Graph) counterRows() int {
	shards := len(g.cfg.Replicas)
	if g.cfg.Replicas == nil {
		shards = g.cfg.Shards
	}
	return min(max(nodeCounterRows/max(shards, 1), leastCounterRows), mostCounterRows)
}
