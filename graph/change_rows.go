package graph

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// ChangesWant asks for changes of a shard.
type ChangesWant struct {
	Shard uint32
	Past  uint64        // a position; ChangesNow: none, but how far the log is
	Wait  time.Duration // for a change, where there is none yet
}

// ChangesNow as Past asks where the log ends, as a linearizable read finds it.
const ChangesNow = math.MaxUint64

// ChangeRows are changes as the log holds them, and what the shard was in that view.
type ChangeRows struct {
	Timeline uint64
	Owners   []Claim // to all slots
	Birth    *Birth  // nil: it was not split off
	// The log begins past Floor. Where that is past what was asked for, nothing is told.
	Floor uint64
	// Through is the position up to which all is told.
	Through uint64
	Rows    [][]byte // they may begin with changes that were not asked for
}

// maxChangeBytes bounds the rows of a ChangeRows: one more row fits in any case.
const maxChangeBytes = 128 << 10

// ChangeRows answers for this node's replica of a shard: the leader's, or one that follows
// closely.
func (g *Graph) ChangeRows(ctx context.Context, want ChangesWant) (ChangeRows, error) {
	mb, err := g.memberAt(want.Shard)
	if err != nil {
		return ChangeRows{}, err
	}
	if want.Past == ChangesNow {
		if err := mb.confirm(ctx); err != nil {
			return ChangeRows{}, g.moved(want.Shard, err)
		}
	}
	v, err := g.viewPast(ctx, mb, want)
	if err != nil {
		return ChangeRows{}, err
	}
	defer v.release()
	out := ChangeRows{Timeline: v.timeline, Owners: v.owners, Birth: v.birth, Floor: v.changeFloor, Through: want.Past}
	switch {
	case want.Past == ChangesNow:
		out.Through = v.position
		return out, nil
	case want.Past < v.changeFloor || want.Past >= v.position:
		return out, nil
	}
	if out.Rows, out.Through, err = v.changeRows(ctx, want.Past); errors.Is(err, kv.ErrCorruption) {
		err = v.m.failed(err)
	}
	return out, err
}

// viewPast returns a view past a position, or the newest one after a wait.
func (g *Graph) viewPast(ctx context.Context, mb *member, want ChangesWant) (*view, error) {
	timeout := time.NewTimer(want.Wait)
	defer timeout.Stop()
	for {
		moved := mb.machine.moved.wait()
		if !g.leads(want.Shard) && !g.follows(want.Shard) {
			return nil, g.moved(want.Shard, fmt.Errorf("shard %d: the replica is older than %v: %w", want.Shard, g.cfg.StaleReads, shard.ErrNotLeader))
		}
		v, err := mb.machine.acquire()
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", want.Shard, err)
		}
		if v.position > want.Past || v.changeFloor > want.Past || want.Past == ChangesNow || want.Wait == 0 {
			return v, nil
		}
		select {
		case <-moved:
			v.release()
		case <-timeout.C:
			return v, nil
		case <-ctx.Done():
			v.release()
			return nil, ctx.Err()
		}
	}
}

func (v *view) changeRows(ctx context.Context, past uint64) (rows [][]byte, through uint64, err error) {
	it, err := v.snap.NewIter(kv.Span{Lower: changeKey(nil, v.m.cfg.ID, past+1), Upper: changeKey(nil, v.m.cfg.ID, v.position+1)})
	if err != nil {
		return nil, past, err
	}
	defer it.Close()
	size := 0
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return nil, past, err
		}
		row, err := it.Value()
		if err != nil {
			return nil, past, err
		}
		rows = append(rows, append([]byte(nil), row...))
		k := it.Key()
		past = binary.BigEndian.Uint64(k[len(k)-8:]) // the row lies under its last position
		if size += len(row); size >= maxChangeBytes {
			return rows, past, nil
		}
	}
	return rows, v.position, it.Error()
}

// ChangeRows is Graph.ChangeRows of a shard of the cluster.
func (r *Router) ChangeRows(ctx context.Context, want ChangesWant) (rows ChangeRows, err error) {
	p := toReadHere
	if want.Past == ChangesNow {
		p = toReadLeader
	}
	begun := time.Now()
	for attempt := 0; ; attempt++ {
		node := r.choose(want.Shard, attempt, p)
		var s Service
		if s, err = r.service(node); err == nil {
			err = attemptOf(ctx, p, func(ctx context.Context) (err error) {
				rows, err = s.ChangeRows(ctx, want)
				return err
			})
		}
		if err != nil || p == toReadLeader {
			r.learn(want.Shard, node, err)
		}
		if !again(err, p) || !r.pause(ctx, begun, attempt) {
			return rows, err
		}
	}
}

// Facts returns the changes of the rows past a position, each edge once, and of splits.
func (r *ChangeRows) Facts(s *Schema, past uint64) ([]Change, error) {
	all, err := decodeRows(r.Rows, past)
	out := all[:0]
	for i := range all {
		if c := &all[i]; c.Kind == SlotsMoved || (&ChangeFilter{}).takes(s, c) {
			out = append(out, *c)
		}
	}
	return out, err
}

// decodeRows returns the changes of rows that lie past a position, without those of inverse
// edges. They keep the rows.
func decodeRows(rows [][]byte, past uint64) ([]Change, error) {
	var out []Change
	for _, row := range rows {
		if _, err := tellRow(row, past, func(c *Change) {
			if c.List.Dir == Out {
				out = append(out, *c)
			}
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}
