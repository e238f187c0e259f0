package graph

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// ChangeKind is what a change did.
type ChangeKind uint8

// The kinds of changes.
const (
	EdgeAdded ChangeKind = iota + 1
	EdgeDeleted
	EdgeUpdated // a new time, or new properties
	CounterChanged
	// SlotsMoved: a split gave slots to another shard. Their changes past this position are in
	// the log of that one.
	SlotsMoved
)

// Change is one change of an edge list or a counter, as the change log tells it. An edge
// between two vertices changes two lists, each in the log of its own shard.
type Change struct {
	// Position rises within the log of a shard, with gaps.
	Position uint64
	Kind     ChangeKind

	List    ListKey       // of a counter only the vertex
	Edge    edgelist.Edge // EdgeDeleted: with the time that it had, without properties
	OldTime int64         // EdgeUpdated

	Counter CounterRef
	Value   int64
	Gone    bool // the counter was removed
	Expires bool // the counter has an expiry; that it came is told by no change

	Child     uint32 // SlotsMoved: to whom
	ChildSlot Slot   // SlotsMoved: the first of them, up to the shard's last
}

// Slot is the slot of what changed.
func (c *Change) Slot() Slot {
	switch c.Kind {
	case CounterChanged:
		return c.Counter.Slot()
	case SlotsMoved:
		return c.ChildSlot
	}
	return SlotOf(c.List.Vertex)
}

// ChangeBounds are the positions that the change log of a shard tells of: past Floor,
// up to Last.
type ChangeBounds struct {
	Timeline    uint64
	Own         *Claim // of the shard, nil: none. Slots that it has lost are told of no more.
	Floor, Last uint64
}

// ChangeBounds returns what the change log of this node's replica of a shard tells of.
// All of it is committed.
func (g *Graph) ChangeBounds(id uint32) (ChangeBounds, error) {
	v, err := g.viewOf(id)
	if err != nil {
		return ChangeBounds{}, err
	}
	defer v.release()
	return ChangeBounds{Timeline: v.timeline, Own: v.own, Floor: v.changeFloor, Last: v.position}, nil
}

// ReadChanges calls tell with the changes of a shard past a position, in order, and
// returns the position up to which all are told: it ends with the log entry in which
// limit is reached, or where the log ends now. What tell is given is overwritten by the
// next. ErrTrimmed: changes past the position are gone.
func (g *Graph) ReadChanges(ctx context.Context, id uint32, past uint64, limit int, tell func(*Change)) (uint64, error) {
	v, err := g.viewOf(id)
	if err != nil {
		return past, err
	}
	defer v.release()
	if past < v.changeFloor {
		return past, fmt.Errorf("shard %d: changes past %d, the log begins past %d: %w", id, past, v.changeFloor, ErrTrimmed)
	}
	through, err := v.readChanges(ctx, past, limit, tell)
	if err != nil {
		err = fmt.Errorf("shard %d: changes past %d: %w", id, through, err)
	}
	if errors.Is(err, kv.ErrCorruption) {
		err = v.m.failed(err)
	}
	return through, err
}

func (v *view) readChanges(ctx context.Context, past uint64, limit int, tell func(*Change)) (through uint64, err error) {
	if past >= v.position {
		return past, nil
	}
	it, err := v.snap.NewIter(kv.Span{Lower: changeKey(nil, v.m.cfg.ID, past+1), Upper: changeKey(nil, v.m.cfg.ID, v.position+1)})
	if err != nil {
		return past, err
	}
	defer it.Close()
	told := 0
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return past, err
		}
		row, err := it.Value()
		if err != nil {
			return past, err
		}
		n, err := tellRow(row, past, tell)
		if err != nil {
			return past, err
		}
		k := it.Key()
		past = binary.BigEndian.Uint64(k[len(k)-8:]) // the row lies under its last position
		if told += n; told >= limit {
			return past, nil
		}
	}
	if err := it.Error(); err != nil {
		return past, err
	}
	return v.position, nil
}

// tellRow tells the records of a row that lie past a position.
func tellRow(row []byte, past uint64, tell func(*Change)) (told int, err error) {
	r := readRow(row)
	for r.next() {
		if r.rec.pos <= past {
			continue
		}
		c, err := changeOf(&r.rec)
		if err != nil {
			return told, err
		}
		tell(&c)
		told++
	}
	return told, r.err()
}

func changeOf(r *record) (Change, error) {
	c := Change{Position: r.pos, List: r.list}
	switch r.kind {
	case recAdd, recDelete, recUpdate:
		c.Kind = [...]ChangeKind{recAdd: EdgeAdded, recDelete: EdgeDeleted, recUpdate: EdgeUpdated}[r.kind]
		c.Edge, c.OldTime = edgelist.Edge{Peer: r.peer, Time: r.time, Props: r.props}, r.oldTime
	case recCounter:
		c.Kind, c.Counter = CounterChanged, CounterRef{Vertex: r.list.Vertex, Metric: r.metric, Key: r.key}
		c.Value, c.Gone, c.Expires = r.value, r.gone, r.expires
	case recSplit:
		c.Kind, c.Child, c.ChildSlot = SlotsMoved, uint32(r.value>>16), Slot(r.value&0xffff)
	default:
		return c, kv.Corruptionf("change %d: record of kind %d", r.pos, r.kind)
	}
	return c, nil
}
