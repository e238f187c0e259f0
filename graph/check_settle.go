package graph

import (
	"context"
	"encoding/binary"
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

// settleDoubts looks at the disagreements again, until each is gone or proven.
func (c *checker) settleDoubts(ctx context.Context) error {
	rest := c.doubts
	c.doubts = nil
	if c.still {
		for i := range rest {
			c.settleStill(&rest[i])
		}
		return nil
	}
	last, err := c.look(ctx, rest)
	for try := 0; err == nil && len(last.doubts) > 0; try++ {
		if try == settleTries {
			c.report.Skipped += uint64(len(last.doubts))
			return nil
		}
		if last, err = c.again(ctx, last); err == nil && len(last.doubts) > 0 {
			err = pauseFor(ctx, settlePause)
		}
	}
	return err
}

// settleStill settles a doubt in a store that stands still: it is a fault unless what
// is in the outboxes changes what is doubted.
func (c *checker) settleStill(d *doubt) {
	if c.pending[d.key()] || c.pending[d.mirrored()] || d.derived != nil && len(c.pending) > 0 {
		c.report.Skipped++
		return
	}
	c.fault("%s", d.String())
}

// again looks at the doubts of a moment once more. It keeps those that are neither gone
// nor proven.
func (c *checker) again(ctx context.Context, last *moment) (*moment, error) {
	asked := make([]doubt, len(last.doubts))
	for i := range last.doubts {
		asked[i] = last.doubts[i].doubt
	}
	now, err := c.look(ctx, asked)
	if err != nil {
		return nil, err
	}
	kept := now.doubts[:0]
	for i, d := range now.doubts {
		switch {
		case d.away:
			c.report.Skipped++
		case d.what == "":
		case d.proven(&last.doubts[i], last.streams, now.streams):
			c.fault("%s", d.String())
		default:
			kept = append(kept, d)
		}
	}
	now.doubts = kept
	return now, nil
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
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
			if r.rec.kind >= recHide {
				c.pending[pendingKey{list: r.rec.list.with(hiddenIn), peer: r.rec.peer}] = true
			}
		}
		if err := r.err(); err != nil {
			return err
		}
	}
	return it.Error()
}
