package rediscache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lianadb/liana/cache"
)

const (
	// pushChanges is how many changes one PUSH carries at most, so that no script
	// holds up Redis. Changes of one number are not parted.
	pushChanges = 64
	// chunkChanges is how many changes of the log are read at once.
	chunkChanges = 4096
	// lookEvery is how often p of a slot that does not change is looked at: a
	// server that lost it takes no fills until it is opened again.
	lookEvery = time.Second
)

// fedShard is a shard as its feeder sees it.
type fedShard struct {
	cache.Shard
	f     *Feeder
	slots []fedSlot
	fedAt time.Time // all that was in the log then is in Redis
}

// fedSlot is a slot as its feeder sees it.
type fedSlot struct {
	known bool // p is what the last answer said
	// unsettled: some keys may have missed changes, so none may stay
	unsettled bool
	p         head
	told      uint64 // the log was read up to here: what the slot changed was pushed
	raised    time.Time
	seen      time.Time      // when p was last heard to be so
	changes   []cache.Change // to be pushed
}

func newFedShard(f *Feeder, sh cache.Shard) *fedShard {
	return &fedShard{Shard: sh, f: f, slots: make([]fedSlot, int(sh.Last)-int(sh.First)+1), fedAt: f.now()}
}

func (s *fedShard) slot(i int) cache.Slot { return s.First + cache.Slot(i) }

func (s *fedShard) head(i int) string { return headKey(s.Timeline, s.slot(i)) }

func (s *fedShard) round(ctx context.Context) error {
	began := s.f.now()
	b, err := s.f.log.Bounds(s.ID)
	if err != nil {
		return err
	}
	if b.Last > cache.MaxNumber {
		return fmt.Errorf("position %d is past what is cached", b.Last)
	}
	// Each goes on with the slots whose server answers.
	err = errors.Join(s.look(ctx, b), s.read(ctx, b.Last), s.raise(ctx, b.Last))
	if s.isFed(b.Last) {
		s.fedAt = began
	}
	return err
}

// isFed reports whether Redis has all changes up to a position.
func (s *fedShard) isFed(to uint64) bool {
	for i := range s.slots {
		if sl := &s.slots[i]; !sl.known || sl.told < to {
			return false
		}
	}
	return true
}

// look learns p of the slots where it is not known, and sets it where there is
// none or where the log does not reach back to it.
func (s *fedShard) look(ctx context.Context, b cache.Bounds) error {
	var calls []call
	var which []int
	now := s.f.now()
	for i := range s.slots {
		sl := &s.slots[i]
		sl.known = sl.known && sl.told+1 >= b.First // else changes are missing
		if !sl.known || now.Sub(sl.seen) >= lookEvery {
			calls, which = append(calls, call{keys: []string{s.head(i)}}), append(which, i)
		}
	}
	var firstErr error
	var settle []call
	var settled []int
	for j, r := range s.f.do(ctx, calls) {
		i := which[j]
		if r.err != nil {
			firstErr = s.fault(i, r.err, firstErr)
			continue
		}
		c, change := s.settle(i, r.values[0], b)
		if change {
			settle, settled = append(settle, c), append(settled, i)
		}
	}
	for j, r := range s.f.do(ctx, settle) {
		i := settled[j]
		if r.err != nil {
			firstErr = s.fault(i, r.err, firstErr)
			continue
		}
		p, err := decodeHead(r.values[0])
		// Another feeder was quicker, maybe: then look again.
		if err == nil && p.encode() == wanted(&settle[j]) {
			s.count(&settle[j])
			s.slots[i].unsettled = false
			s.know(i, p)
		}
	}
	return firstErr
}

// settle takes in what p was found to be. change: it has to be set by the call.
func (s *fedShard) settle(i int, value []byte, b cache.Bounds) (c call, change bool) {
	sl := &s.slots[i]
	if sl.known && string(value) == sl.p.encode() {
		sl.seen = s.f.now()
		return call{}, false
	}
	sl.known = false
	fresh := head{gen(s.f.cfg.Rand()), b.Last}.encode()
	if value == nil {
		return call{scriptOpen, []string{s.head(i)}, []string{fresh}}, true
	}
	p, err := decodeHead(value)
	if err != nil || sl.unsettled || p.h+1 < b.First {
		return call{scriptRegen, []string{s.head(i)}, []string{string(value), fresh}}, true
	}
	s.know(i, p)
	return call{}, false
}

func (s *fedShard) know(i int, p head) {
	sl := &s.slots[i]
	sl.known, sl.p, sl.told, sl.seen, sl.changes = true, p, p.h, s.f.now(), nil
}

// fault notes that what became of a call on a slot is not known.
func (s *fedShard) fault(i int, err, first error) error {
	if !errors.Is(err, errLeftAlone) {
		s.f.stats.Faults.Add(1)
	}
	s.slots[i].known = false
	s.slots[i].unsettled = s.slots[i].unsettled || isMigrating(err)
	if first == nil {
		first = fmt.Errorf("slot %d: %w", s.slot(i), err)
	}
	return first
}

// read reads the log from the slot that is furthest behind, and pushes.
func (s *fedShard) read(ctx context.Context, last uint64) error {
	from := last
	for i := range s.slots {
		if s.slots[i].known {
			from = min(from, s.slots[i].told)
		}
	}
	for from < last {
		through, err := s.f.log.Changes(ctx, s.ID, from, chunkChanges, s.take)
		if err != nil {
			return err
		}
		if through <= from {
			return fmt.Errorf("the log ends at %d, its bound was %d", through, last)
		}
		if err := s.push(ctx, through); err != nil {
			return err
		}
		from = through
	}
	return nil
}

func (s *fedShard) take(c *cache.Change) {
	if c.Slot < s.First || c.Slot > s.Last {
		return
	}
	sl := &s.slots[c.Slot-s.First]
	if sl.known && c.Number > sl.told {
		sl.changes = append(sl.changes, *c)
	}
}

// push pushes what was taken of the log up to a position.
func (s *fedShard) push(ctx context.Context, through uint64) error {
	var calls []call
	var which []int
	for i := range s.slots {
		sl := &s.slots[i]
		if !sl.known {
			continue
		}
		if through > sl.told {
			sl.told = through
		}
		cs := sl.changes
		sl.changes = nil
		s.f.stats.Changes.Add(uint64(len(cs)))
		for _, c := range s.pushes(i, cs, through) {
			calls, which = append(calls, c), append(which, i)
		}
	}
	return s.finish(which, calls, s.f.do(ctx, calls))
}

// pushes returns the calls that bring a slot to a position, in order. Their
// expectation of p is that all before have succeeded.
func (s *fedShard) pushes(i int, cs []cache.Change, through uint64) (calls []call) {
	p := s.slots[i].p
	for len(cs) > 0 {
		n := min(pushChanges, len(cs))
		for n < len(cs) && cs[n].Number == cs[n-1].Number {
			n++
		}
		to := cs[n-1].Number
		if n == len(cs) {
			to = through
		}
		next := head{p.gen, to}
		if untold(cs[:n]) {
			next.gen = gen(s.f.cfg.Rand())
			calls = append(calls, call{scriptRegen, []string{s.head(i)}, []string{p.encode(), next.encode()}})
		} else {
			calls = append(calls, s.pushCall(i, p, to, cs[:n]))
		}
		p, cs = next, cs[n:]
	}
	return calls
}

func untold(cs []cache.Change) bool {
	for i := range cs {
		if cs[i].Kind == cache.Untold {
			return true
		}
	}
	return false
}

// pushCall makes one PUSH: the operations of each entry that the changes concern.
func (s *fedShard) pushCall(i int, p head, to uint64, cs []cache.Change) call {
	c := call{scriptPush, []string{s.head(i)}, pushArgs(p, to, s.f.cfg.Window, s.f.cfg.Least)}
	ops := foldOps(cs)
	for _, o := range ops {
		c.keys = append(c.keys, entryKey(s.Timeline, p.gen, &o.key))
		c.args = append(c.args, string(o.ops))
	}
	return c
}

// finish takes in what became of pushes. All of a slot must have come to what they
// were to; else the slot is looked at again.
func (s *fedShard) finish(which []int, calls []call, replies []reply) (firstErr error) {
	for j, r := range replies {
		i := which[j]
		sl := &s.slots[i]
		if r.err != nil {
			firstErr = s.fault(i, r.err, firstErr)
			continue
		}
		p, err := decodeHead(r.values[0])
		if err != nil || p.encode() != wanted(&calls[j]) {
			sl.known = false
			continue
		}
		s.count(&calls[j])
		sl.p = p
		sl.seen = s.f.now()
		sl.raised = sl.seen
	}
	return firstErr
}

// wanted is p as an OPEN, REGEN or PUSH leaves it.
func wanted(c *call) string {
	if c.script == scriptPush {
		return c.args[0][:numberSize] + c.args[1]
	}
	return c.args[len(c.args)-1]
}

// count counts a call that did what it was made for.
func (s *fedShard) count(c *call) {
	switch c.script {
	case scriptOpen:
		s.f.stats.Opened.Add(1)
	case scriptRegen:
		s.f.stats.Regens.Add(1)
	case scriptPush:
		s.f.stats.Pushes.Add(1)
	}
}

// raise brings the slots that have not changed for long, or are new here, up to a
// position.
func (s *fedShard) raise(ctx context.Context, to uint64) error {
	var calls []call
	var which []int
	now := s.f.now()
	for i := range s.slots {
		sl := &s.slots[i]
		if !sl.known || sl.p.h >= to || sl.told < to || !sl.raised.IsZero() && now.Sub(sl.raised) < s.f.cfg.Raise {
			continue
		}
		calls = append(calls, s.pushCall(i, sl.p, to, nil))
		which = append(which, i)
	}
	return s.finish(which, calls, s.f.do(ctx, calls))
}
