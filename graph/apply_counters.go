package graph

import (
	"encoding/binary"
	"fmt"

	"github.com/lianadb/liana/kv/counter"
)

// sweepLimit bounds what one expire command removes.
const sweepLimit = 256

// incrementResult answers an increment command, one for each item.
type incrementResult struct {
	items []counter.Result
}

// changedCounters gathers the counters that an entry changed, in the order in
// which they are first met: several changes of one counter are one record.
type changedCounters struct {
	order []CounterRef
	known map[CounterRef]struct{}
}

func (c *changedCounters) add(ref CounterRef) {
	if _, ok := c.known[ref]; !ok {
		c.order = append(c.order, ref)
		c.known[ref] = struct{}{}
	}
}

// Slot is the slot of the counter.
func (c *CounterRef) Slot() Slot {
	if c.Key != "" {
		return SlotOfKey(c.Key)
	}
	return SlotOf(c.Vertex)
}

// ref places the counter in the store.
func (c *CounterRef) ref() counter.Ref { return c.refIn(nil) }

// refOf is ref, good until the next one: the apply goroutine makes one for each counter that
// it touches.
func (m *Machine) refOf(c *CounterRef) counter.Ref {
	r := c.refIn(m.rowKey[:0])
	m.rowKey = r.Row
	return r
}

func (c *CounterRef) refIn(b []byte) counter.Ref {
	r := counter.Ref{Slot: uint16(c.Slot()), Row: appendCounterKey(b, c)}
	if c.Key == "" {
		r.Field = uint16(c.Metric) - 1
	}
	return r
}

func appendCounterKey(b []byte, c *CounterRef) []byte {
	if c.Key == "" {
		return append(appendVertex(b, c.Vertex), familyCounter)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(SlotOfKey(c.Key)))
	b = binary.BigEndian.AppendUint16(b, typeFreeKey)
	return append(b, c.Key...)
}

// metricBounds are the caps that the schema gives the counter.
func (m *Machine) metricBounds(c *CounterRef) (b counter.Bounds, known bool) {
	if c.Key != "" {
		return counter.Bounds{}, true
	}
	def, ok := m.schema.MetricByID(c.Vertex.Type, c.Metric)
	if !ok || def.Derived {
		return counter.Bounds{}, false
	}
	return counter.Bounds{Min: def.Min, Max: def.Max, HasMin: def.hasMin(), HasMax: def.hasMax()}, true
}

func (m *Machine) applyIncrement(body []byte) (*incrementResult, error) {
	v, err := decodeIncrements(body)
	if err != nil {
		return nil, err
	}
	res := &incrementResult{items: make([]counter.Result, len(v.items))}
	for i := range v.items {
		in := &v.items[i]
		bounds, known := m.metricBounds(&in.Counter)
		if !known || !m.owns(in.Counter.Slot()) {
			continue // outcome 0: refused
		}
		r, err := m.counters.Incr(counter.Increment{
			Ref: m.refOf(&in.Counter), Delta: in.Delta, Schema: bounds,
			Caps:     counter.Bounds{Min: in.Min, Max: in.Max, HasMin: in.HasMin, HasMax: in.HasMax},
			ExpireAt: in.ExpireAt, RequestID: v.requestID, Ordinal: v.ordinals[i],
		}, m.clock())
		if err != nil {
			return nil, fmt.Errorf("increment %d: %w", i, err)
		}
		if r.Outcome == counter.Applied && !r.Repeated {
			m.changed.add(in.Counter)
		}
		res.items[i] = r
	}
	return res, nil
}

// setResult answers a set command. Outcome 0 is a refusal by schema or slot.
type setResult struct{ outcome counter.Outcome }

func (m *Machine) applySetCounter(body []byte) (setResult, error) {
	d := decoder{b: body}
	c, value, expireAt := d.counter(), d.varint(), d.varint()
	if err := d.done(); err != nil {
		return setResult{}, err
	}
	bounds, known := m.metricBounds(&c)
	if !known || !m.owns(c.Slot()) {
		return setResult{}, nil
	}
	out, err := m.counters.Set(counter.Assignment{
		Ref: c.ref(), Value: value, Schema: bounds, ExpireAt: expireAt,
	}, m.clock())
	if err == nil && out == counter.Applied {
		m.changed.add(c)
	}
	return setResult{out}, err
}

// removeResult answers a remove command.
type removeResult struct{ existed, refused bool }

func (m *Machine) applyRemoveCounter(body []byte) (removeResult, error) {
	d := decoder{b: body}
	c := d.counter()
	if err := d.done(); err != nil {
		return removeResult{}, err
	}
	if _, known := m.metricBounds(&c); !known || !m.owns(c.Slot()) {
		return removeResult{refused: true}, nil
	}
	existed, err := m.counters.Delete(c.ref(), m.clock())
	if err == nil && existed {
		m.changed.add(c)
	}
	return removeResult{existed: existed}, err
}

// applyDerived adds to a derived counter of this shard.
func (m *Machine) applyDerived(rec *record) error {
	c := CounterRef{Vertex: rec.list.Vertex, Metric: rec.metric}
	if _, err := m.counters.ApplyDerived(c.ref(), rec.value); err != nil {
		return fmt.Errorf("derived counter %v metric %d: %w", c.Vertex, c.Metric, err)
	}
	m.changed.add(c)
	return nil
}

// flushChangedCounters numbers the entry's changes of counters, and says what they
// came to.
func (m *Machine) flushChangedCounters() error {
	for _, c := range m.changed.order {
		now, err := m.counters.Get(m.refOf(&c), m.entry.Now)
		if err != nil {
			return fmt.Errorf("counter %v metric %d: %w", c.Vertex, c.Metric, err)
		}
		m.changes.add(&record{
			kind: recCounter, pos: m.next(c.Slot()), list: ListKey{Vertex: c.Vertex},
			metric: c.Metric, key: c.Key, value: now.Value, gone: !now.Exists, expires: now.ExpireAt != 0,
		})
	}
	m.changed.order = m.changed.order[:0]
	clear(m.changed.known)
	return nil
}
