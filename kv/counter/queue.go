package counter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/google/btree"

	"github.com/lianadb/liana/kv"
)

// queueDegree is the fan-out of the tree of pending writes.
const queueDegree = 32

// queue holds entries by (slot, time, tail) as rows `prefix | kind | time | tail`
// and hands them out oldest first. The rows are the truth. In memory it keeps one
// number a slot, so that a slot with nothing due costs one comparison and a scan
// starts behind the tombstones of what was popped before.
type queue struct {
	keys    keySpace
	kind    byte
	view    kv.Reader
	pending *btree.BTreeG[queueWrite] // since the last cut
	// Invariant: bounds[i] <= time of the oldest entry of slot keys.first+i.
	bounds []int64
	lower  []byte
	upper  []byte
}

type queueWrite struct {
	key     []byte
	deleted bool
}

// entry is one entry of a slot.
type entry struct {
	time int64
	tail []byte
}

// openQueue reads the oldest entry of each slot.
func openQueue(keys keySpace, kind byte, view kv.Reader) (*queue, error) {
	q := &queue{
		keys: keys, kind: kind, view: view,
		pending: btree.NewG(queueDegree, func(a, b queueWrite) bool { return bytes.Compare(a.key, b.key) < 0 }),
		bounds:  make([]int64, keys.slots()),
	}
	for slot := keys.first; slot < keys.end; slot++ {
		if _, err := q.rebound(slot); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (q *queue) bound(slot uint16) *int64 { return &q.bounds[slot-q.keys.first] }

func (q *queue) key(slot uint16, time int64, tail ...[]byte) []byte {
	key := q.keys.local(nil, slot, q.kind)
	key = binary.BigEndian.AppendUint64(key, uint64(time))
	for _, t := range tail {
		key = append(key, t...)
	}
	return key
}

func (q *queue) add(slot uint16, time int64, tail ...[]byte) {
	q.pending.ReplaceOrInsert(queueWrite{key: q.key(slot, time, tail...)})
	b := q.bound(slot)
	*b = min(*b, time)
}

// remove leaves the bound: it may now be too low, never too high.
func (q *queue) remove(slot uint16, time int64, tail ...[]byte) {
	q.pending.ReplaceOrInsert(queueWrite{key: q.key(slot, time, tail...), deleted: true})
}

// pop removes up to limit entries of slot whose time is at most until, and
// returns them oldest first; none unless the oldest has reached trigger.
func (q *queue) pop(slot uint16, trigger, until int64, limit int) ([]entry, error) {
	b := q.bound(slot)
	if *b > trigger || *b == Never {
		return nil, nil
	}
	keys, err := q.scan(slot, limit+1)
	if err != nil {
		return nil, err
	}
	var popped []entry
	for i, key := range keys {
		e := q.entry(slot, key)
		// The bound that let us in may have been too low: the oldest entry decides.
		if *b = e.time; e.time > until || i == limit || (i == 0 && e.time > trigger) {
			return popped, nil
		}
		q.pending.ReplaceOrInsert(queueWrite{key: key, deleted: true})
		popped = append(popped, e)
	}
	*b = Never
	return popped, nil
}

// oldest returns the slot of the oldest entry if that is due at until. Bounds
// that proved too low are mended first, so that the choice depends on the entries
// alone and not on what this replica happened to read before.
func (q *queue) oldest(until int64) (slot uint16, ok bool, err error) {
	for {
		i, low := q.least()
		if low > until || low == Never {
			return 0, false, nil
		}
		slot = q.keys.first + uint16(i)
		head, err := q.rebound(slot)
		if err != nil || head == low {
			return slot, err == nil, err
		}
	}
}

func (q *queue) least() (i int, bound int64) {
	bound = Never
	for j, b := range q.bounds {
		if b < bound {
			i, bound = j, b
		}
	}
	return i, bound
}

// rebound makes the bound of slot exact and returns it.
func (q *queue) rebound(slot uint16) (int64, error) {
	keys, err := q.scan(slot, 1)
	if err != nil {
		return 0, err
	}
	b := q.bound(slot)
	if *b = Never; len(keys) > 0 {
		*b = q.entry(slot, keys[0]).time
	}
	return *b, nil
}

// scan returns the first n keys of slot at or after its bound, in order.
func (q *queue) scan(slot uint16, n int) ([][]byte, error) {
	q.lower = q.keys.local(q.lower[:0], slot, q.kind)
	q.lower = binary.BigEndian.AppendUint64(q.lower, uint64(*q.bound(slot)))
	q.upper = q.keys.local(q.upper[:0], slot, q.kind+1)
	var found [][]byte
	q.pending.AscendRange(queueWrite{key: q.lower}, queueWrite{key: q.upper}, func(w queueWrite) bool {
		if !w.deleted {
			found = append(found, w.key)
		}
		return len(found) < n
	})
	stored, err := q.scanView(n)
	if err != nil {
		return nil, fmt.Errorf("counter queue %d of slot %d: %w", q.kind, slot, err)
	}
	found = append(found, stored...)
	slices.SortFunc(found, bytes.Compare)
	return found[:min(n, len(found))], nil
}

// scanView returns the first n keys of [lower, upper) in the view on which no
// write is pending.
func (q *queue) scanView(n int) (found [][]byte, err error) {
	it, err := q.view.NewIter(kv.Span{Lower: q.lower, Upper: q.upper})
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := it.Close(); err == nil {
			err = e
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		if q.pending.Has(queueWrite{key: it.Key()}) {
			continue
		}
		if len(it.Key()) < len(q.lower) {
			return nil, kv.Corruptionf("key %x is too short", it.Key())
		}
		if found = append(found, bytes.Clone(it.Key())); len(found) == n {
			break
		}
	}
	return found, it.Error()
}

// entry splits a key that scan returned: all of these have a time.
func (q *queue) entry(slot uint16, key []byte) entry {
	q.lower = q.keys.local(q.lower[:0], slot, q.kind)
	rest := key[len(q.lower):]
	return entry{time: int64(binary.BigEndian.Uint64(rest)), tail: rest[8:]}
}

func (q *queue) cut(b kv.Batch) (err error) {
	q.pending.Ascend(func(w queueWrite) bool {
		if w.deleted {
			err = b.Delete(w.key)
		} else {
			err = b.Set(w.key, nil)
		}
		return err == nil
	})
	return err
}

func (q *queue) published(view kv.Reader) {
	q.view = view
	q.pending.Clear(true)
}
