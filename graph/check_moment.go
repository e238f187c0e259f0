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

// Two replicas stand at different entries of their logs, on one node too, and what is
// in a stream between them is no fault. Whether two ends of an edge disagree is told
// from two looks, one after the other:
//
//   - neither end changed from before the first look to after the second,
//   - what the sender had given at the first, the receiver has at the second, so all
//     that the sender had done to the edge has arrived,
//   - what the receiver had at the first, the sender has given at the second, so the
//     receiver is not ahead of a sender's replica that lags.
//
// It does not matter which of the replicas lead.

// streamEnds are the ends of a shard's streams to and from the others.
type streamEnds struct {
	given, received map[uint32]uint64
}

// moment is what one look at some doubts has seen.
type moment struct {
	streams map[uint32]streamEnds
	doubts  []seenDoubt
}

// seenDoubt is a doubt, and where the ends stood before and after the look. what is
// empty where it was gone, away says that an end is on this node no longer.
type seenDoubt struct {
	doubt
	before, after ends
	away          bool
}

// ends say how far what a doubt depends on has come: of an edge the shards of both
// lists and the last changes of their slots, of a derived counter, which depends on
// many lists, the last change of each shard.
type ends struct {
	shards []uint32
	last   []uint64
}

// look takes views of all shards of this node and evaluates the doubts by them.
func (c *checker) look(ctx context.Context, doubts []doubt) (*moment, error) {
	now := &moment{streams: map[uint32]streamEnds{}, doubts: make([]seenDoubt, len(doubts))}
	var s sight
	for {
		highest := map[uint32]uint64{}
		for i := range doubts {
			before := c.views.endsOf(&doubts[i])
			now.doubts[i] = seenDoubt{doubt: doubts[i], before: before}
			for j, id := range before.shards {
				highest[id] = max(highest[id], before.last[j])
			}
		}
		s = sight{}
		if err := s.take(c.members); err != nil {
			return nil, err
		}
		if s.reach(highest) {
			break
		}
		s.release() // a change is told before the view that shows it is out
		if err := pauseFor(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
	defer s.release()
	return now, now.evaluate(&s)
}

func (now *moment) evaluate(s *sight) (err error) {
	for _, v := range s.views {
		if now.streams[v.m.cfg.ID], err = v.streamEnds(); err != nil {
			return err
		}
	}
	for i := range now.doubts {
		d := &now.doubts[i]
		if d.derived == nil && (s.of(d.list.Vertex) == nil || s.of(d.other.Vertex) == nil) || s.of(d.list.Vertex) == nil {
			d.away = true
			continue
		}
		if d.what, err = s.doubtful(&d.doubt); err != nil {
			return err
		}
		if d.derived != nil {
			d.before = s.all()
			d.after = d.before
		} else {
			d.after = s.endsOf(&d.doubt)
		}
	}
	return nil
}

// endsOf returns where the ends of a doubt about an edge stand now.
func (s *sight) endsOf(d *doubt) (e ends) {
	if d.derived != nil {
		return e
	}
	for _, x := range [2]Vertex{d.list.Vertex, d.other.Vertex} {
		m := s.of(x).m
		e.shards, e.last = append(e.shards, m.cfg.ID), append(e.last, m.last[SlotOf(x)].Load())
	}
	return e
}

// reach reports whether the views show the changes up to the positions given.
func (s *sight) reach(positions map[uint32]uint64) bool {
	for _, v := range s.views {
		if v.position < positions[v.m.cfg.ID] {
			return false
		}
	}
	return true
}

// all are the last changes that the views show.
func (s *sight) all() (e ends) {
	for _, v := range s.views {
		e.shards, e.last = append(e.shards, v.m.cfg.ID), append(e.last, v.position)
	}
	return e
}

// doubtful says what is wrong about a doubt in these views; "": nothing.
func (s *sight) doubtful(d *doubt) (string, error) {
	if d.derived != nil {
		return s.sumDiffers(d.list.Vertex, d.derived)
	}
	list, err := s.list(d.list)
	if err != nil {
		return "", err
	}
	e, ok, err := list.Get(d.peer)
	if err != nil {
		return "", err
	}
	if ok {
		return s.disagree(d.other, d.list.Vertex.ID, &e)
	}
	other, err := s.list(d.other)
	if err != nil {
		return "", err
	}
	if ok, err = other.Has(d.list.Vertex.ID); err != nil || !ok {
		return "", err
	}
	return "only the other end has it", nil
}

// proven reports whether a doubt seen now, and before, is a fault.
func (d *seenDoubt) proven(before *seenDoubt, then, now map[uint32]streamEnds) bool {
	if !slices.Equal(before.before.shards, d.after.shards) || !slices.Equal(before.before.last, d.after.last) {
		return false
	}
	for _, a := range d.after.shards {
		for _, b := range d.after.shards {
			if !passed(then, now, a, b) {
				return false
			}
		}
	}
	return true
}

// passed reports whether what was on its way between two shards then is not any more.
func passed(then, now map[uint32]streamEnds, from, to uint32) bool {
	return now[to].received[from] >= then[from].given[to] && now[from].given[to] >= then[to].received[from]
}

// streamEnds reads how far the shard's streams have come.
func (v *view) streamEnds() (streamEnds, error) {
	id := v.m.cfg.ID
	ends := streamEnds{}
	var err error
	if ends.received, err = v.streamRows(localStreamIn, func(s *stream, row []byte) (uint64, error) { err := s.decodeIn(row); return s.cursor, err }); err != nil {
		return ends, fmt.Errorf("shard %d: incoming streams: %w", id, err)
	}
	if ends.given, err = v.streamRows(localStreamOut, func(s *stream, row []byte) (uint64, error) { err := s.decodeOut(row); return s.last, err }); err != nil { // what is trimmed was given
		return ends, fmt.Errorf("shard %d: outgoing streams: %w", id, err)
	}
	for to := range ends.given { // any order: each is read for itself
		it, err := v.snap.NewIter(kv.Span{Lower: outboxKey(nil, id, to, 0), Upper: outboxKey(nil, id, to+1, 0)})
		if err != nil {
			return ends, err
		}
		if it.Last() {
			k := it.Key()
			ends.given[to] = max(ends.given[to], binary.BigEndian.Uint64(k[len(k)-8:]))
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return ends, fmt.Errorf("shard %d: outbox to %d: %w", id, to, err)
		}
	}
	return ends, nil
}

func (v *view) streamRows(family byte, read func(*stream, []byte) (uint64, error)) (map[uint32]uint64, error) {
	it, err := v.snap.NewIter(kv.PrefixSpan(appendLocal(nil, v.m.cfg.ID, family)))
	if err != nil {
		return nil, err
	}
	defer it.Close()
	out := map[uint32]uint64{}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.Value()
		if err != nil {
			return nil, err
		}
		pos, err := read(&stream{}, value)
		if err != nil {
			return nil, err
		}
		k := it.Key()
		out[binary.BigEndian.Uint32(k[len(k)-4:])] = pos
	}
	return out, it.Error()
}
