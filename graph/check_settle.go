package graph

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lianadb/liana/kv"
)

const (
	settleTries = 100
	settlePause = 20 * time.Millisecond
)

// maxDoubts bounds the doubts that wait, and so the memory of a check of a store in
// which nothing agrees.
const maxDoubts = 1 << 14

// doubt is a disagreement to look at again: of an edge in two lists, or of a
// derived counter.
type doubt struct {
	list    ListKey // the list that has the edge
	peer    uint64
	other   ListKey // the list that should have it, with list's vertex as peer
	derived *Derived
	what    string
}

func (c *checker) doubt(ctx context.Context, d doubt) error {
	c.doubts = append(c.doubts, d)
	if len(c.doubts) < maxDoubts {
		return nil
	}
	return c.settleDoubts(ctx)
}

// settleDoubts looks at each disagreement again. It is a fault only if it is
// there while neither end changes and nothing is on its way between them.
func (c *checker) settleDoubts(ctx context.Context) error {
	for _, d := range c.doubts {
		settled, err := c.settleOne(ctx, d)
		if err != nil {
			return err
		}
		if !settled {
			c.report.Skipped++
		}
	}
	c.doubts = c.doubts[:0]
	return nil
}

func (c *checker) settleOne(ctx context.Context, d doubt) (settled bool, err error) {
	if c.settle == nil {
		if c.pending[d.key()] || c.pending[d.mirrored()] || d.derived != nil && len(c.pending) > 0 {
			return false, nil
		}
		c.fault("%s", d.String())
		return true, nil
	}
	for range settleTries {
		before := c.positions(d)
		if err := c.settleStreams(ctx, d); err != nil {
			return false, err
		}
		what, err := c.again(d)
		if err != nil {
			return false, err
		}
		if what == "" {
			return true, nil
		}
		if slices.Equal(before, c.positions(d)) {
			d.what = what
			c.fault("%s", d.String())
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(settlePause):
		}
	}
	return false, nil
}

// positions of the slots that the doubt is about, as far as they are few. A
// derived counter depends on many lists: there all shards have to stand still.
func (c *checker) positions(d doubt) []uint64 {
	var out []uint64
	if d.derived == nil {
		for _, v := range [2]Vertex{d.list.Vertex, d.other.Vertex} {
			out = append(out, c.views.of(v).m.last[SlotOf(v)].Load())
		}
		return out
	}
	for _, mb := range c.members {
		most := uint64(0)
		for j := range mb.machine.last {
			most = max(most, mb.machine.last[j].Load())
		}
		out = append(out, most)
	}
	return out
}

func (c *checker) settleStreams(ctx context.Context, d doubt) error {
	if d.derived == nil {
		a, b := c.views.of(d.list.Vertex).m.cfg.ID, c.views.of(d.other.Vertex).m.cfg.ID
		return errors.Join(c.settle(ctx, a, b), c.settle(ctx, b, a))
	}
	for _, a := range c.members {
		for _, b := range c.members {
			if err := c.settle(ctx, a.machine.cfg.ID, b.machine.cfg.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// again looks at a doubt with views of now.
func (c *checker) again(d doubt) (string, error) {
	var now sight
	if err := now.take(c.members); err != nil {
		return "", err
	}
	defer now.release()
	if d.derived != nil {
		return now.sumDiffers(d.list.Vertex, d.derived)
	}
	list, err := now.list(d.list)
	if err != nil {
		return "", err
	}
	e, ok, err := list.Get(d.peer)
	if err != nil {
		return "", err
	}
	if ok {
		return now.disagree(d.other, d.list.Vertex.ID, &e)
	}
	other, err := now.list(d.other)
	if err != nil {
		return "", err
	}
	if ok, err = other.Has(d.list.Vertex.ID); err != nil || !ok {
		return "", err
	}
	return "only the other end has it", nil
}

func (d *doubt) key() pendingKey {
	if d.derived != nil {
		return pendingKey{list: ListKey{Vertex: d.list.Vertex}, of: d.derived.Metric}
	}
	return pendingKey{list: d.other, peer: d.list.Vertex.ID}
}

func (d *doubt) mirrored() pendingKey {
	return pendingKey{list: d.list, peer: d.peer}
}

func (d *doubt) String() string {
	if d.derived != nil {
		return fmt.Sprintf("vertex %v, metric %d: %s", d.list.Vertex, d.derived.Metric, d.what)
	}
	return fmt.Sprintf("edge type %d, vertex %v (%s), peer %d: %s", d.list.Type, d.list.Vertex, d.list.Dir, d.peer, d.what)
}

// settle waits until everything that shard from has sent to shard to is applied.
func (g *Graph) settle(ctx context.Context, from, to uint32) error {
	if from == to {
		return nil
	}
	snd := g.sender(from, to)
	if snd == nil {
		return nil
	}
	snd.mu.Lock()
	given := snd.given
	snd.mu.Unlock()
	return snd.await(ctx, given)
}

// loadPending gathers what the undelivered records of all outboxes will change.
func (c *checker) loadPending() error {
	c.pending = map[pendingKey]bool{}
	for _, from := range c.members {
		for to, s := range *from.machine.streams.Load() {
			if err := c.loadStream(from.machine, to, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) loadStream(m *Machine, to uint32, s *stream) error {
	at := slices.IndexFunc(c.members, func(mb *member) bool { return mb.machine.cfg.ID == to })
	cursor := uint64(0)
	if at >= 0 { // else it is on another node, and all of the outbox counts
		if in, ok := (*c.members[at].machine.streams.Load())[m.cfg.ID]; ok {
			cursor = in.cursor
		}
	}
	it, err := m.cfg.Store.NewIter(kv.Span{
		Lower: outboxKey(nil, m.cfg.ID, to, cursor+1), Upper: binary.BigEndian.AppendUint32(appendLocal(nil, m.cfg.ID, localOutbox), to+1),
	})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.Value()
		if err != nil {
			return err
		}
		r := readRow(value)
		for r.next() {
			if r.rec.pos <= cursor {
				continue
			}
			if r.rec.kind == recDerived {
				c.pending[pendingKey{list: ListKey{Vertex: r.rec.list.Vertex}, of: r.rec.metric}] = true
			} else {
				c.pending[pendingKey{list: r.rec.list, peer: r.rec.peer}] = true
			}
		}
		if err := r.err(); err != nil {
			return err
		}
	}
	return it.Error()
}
