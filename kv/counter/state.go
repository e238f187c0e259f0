package counter

import (
	"fmt"
	"time"

	"github.com/lianadb/liana/kv"
)

// Rows removed on the way of one operation on a slot, where Sweep has left them
// for too long: more than one operation adds, so that they get fewer, and few
// enough to cost little.
const (
	expirePerTouch = 8
	forgetPerTouch = 4
)

// Config of a State. Window, MaxAnswers and Overdue decide what the state machine
// does: they must be the same on all replicas and for all of a log.
type Config struct {
	// Prefix appends what the keys of the rows of a slot that belong to this
	// package begin with; nothing else may lie under it. Different for each slot,
	// and none is the beginning of another.
	Prefix func(dst []byte, slot uint16) []byte
	// FirstSlot and EndSlot are the shard's slots, EndSlot not included.
	FirstSlot, EndSlot uint16
	// Window is how long the answer to a request id is kept. Default 10 minutes.
	Window time.Duration
	// MaxAnswers is how many answers a slot keeps at once. Default 262,144: 430
	// increments with an id per second on one slot, all the time.
	MaxAnswers int
	// Overdue is how long past its time a row must be before operations on its slot
	// help Sweep to remove it: Sweep pays for a scan once a slot, they once each.
	// Default 5 s; negative: no time at all.
	Overdue time.Duration
	// CacheRows bounds the rows kept decoded between cuts. Default 32,768, about
	// 150 bytes each where a row has one field. It changes speed only.
	CacheRows int
}

func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = 10 * time.Minute
	}
	if c.MaxAnswers == 0 {
		c.MaxAnswers = 1 << 18
	}
	if c.Overdue == 0 {
		c.Overdue = 5 * time.Second
	}
	if c.CacheRows == 0 {
		c.CacheRows = 1 << 15
	}
	return c
}

func (c Config) keys() keySpace {
	return keySpace{prefix: c.Prefix, first: c.FirstSlot, end: c.EndSlot}
}

// State is the counters of a shard as the apply goroutine sees them: the working
// set over the view of the last cut. It is rebuilt from the view by Open, at any
// cut, with the same answers from there on.
//
// An error of a method is a fault of storage or corruption and the shard stops;
// what a command did wrong is an Outcome.
type State struct {
	keys    keySpace
	window  int64 // µs
	overdue int64 // µs
	rows    *rows
	expiry  *queue
	answers *dedupe
	buf     []byte
}

// Open returns the state stored in view. It reads two rows a slot.
func Open(cfg Config, view kv.Reader) (*State, error) {
	cfg = cfg.withDefaults()
	keys := cfg.keys()
	if cfg.Prefix == nil || keys.slots() < 1 {
		return nil, fmt.Errorf("counter: no prefix, or slots %d to %d", cfg.FirstSlot, cfg.EndSlot)
	}
	expiry, err := openQueue(keys, kindExpiry, view)
	if err != nil {
		return nil, err
	}
	window := cfg.Window.Microseconds()
	answers, err := openDedupe(keys, window, cfg.MaxAnswers, view)
	if err != nil {
		return nil, err
	}
	return &State{
		keys: keys, window: window, overdue: max(0, cfg.Overdue.Microseconds()),
		rows:   newRows(view, max(1, cfg.CacheRows/2)),
		expiry: expiry, answers: answers,
	}, nil
}

// Incr applies one increment. With a request id it is applied at most once in
// the window, and a repeated call gets the first answer.
func (s *State) Incr(in Increment, clk Clock) (Result, error) {
	if err := s.enter(in.Ref, clk); err != nil {
		return Result{}, err
	}
	if in.RequestID == "" {
		return s.add(&in, clk.Now)
	}
	if len(in.RequestID) > MaxRequestID {
		return Result{}, fmt.Errorf("%v: request id of %d bytes reached the state machine", in.Ref, len(in.RequestID))
	}
	var hash uint64
	s.buf, hash = in.hash(s.buf)
	known, ok, err := s.answers.find(in.Slot, in.RequestID, in.Ordinal, clk.Elapsed)
	switch {
	case err != nil:
		return Result{}, err
	case ok && known.hash != hash:
		return Result{Outcome: IDReused}, nil
	case ok:
		return Result{Value: known.value, Outcome: known.outcome, Repeated: true}, nil
	}
	// An id that tells its age may have been forgotten already.
	if at, ok := timeOfID(in.RequestID); ok && at < clk.Now-s.window {
		return Result{Outcome: IDTooOld}, nil
	}
	full, err := s.answers.full(in.Slot, clk.Elapsed)
	if full || err != nil {
		return Result{Outcome: DedupeFull}, err
	}
	res, err := s.add(&in, clk.Now)
	if err != nil || !res.Outcome.remembered() {
		return res, err
	}
	return res, s.answers.remember(in.Slot, in.RequestID, in.Ordinal,
		answer{outcome: res.Outcome, value: res.Value, hash: hash, elapsed: clk.Elapsed})
}

func (s *State) add(in *Increment, now int64) (Result, error) {
	row, err := s.live(in.Ref, now)
	if err != nil {
		return Result{}, err
	}
	c := row.get(in.Field)
	if in.ExpireAt != 0 && in.ExpireAt <= now {
		return Result{Value: c.Value, Outcome: ExpirePast}, nil
	}
	sum, outcome := in.Caps.Intersect(in.Schema).add(c.Value, in.Delta)
	if outcome == Applied {
		at := c.ExpireAt
		if at == 0 {
			at = in.ExpireAt
		}
		s.put(row, in.Ref, sum, at)
	}
	return Result{Value: sum, Outcome: outcome}, nil
}

// Set gives a counter a value and an expiry, whatever it had.
func (s *State) Set(a Assignment, clk Clock) (Outcome, error) {
	if err := s.enter(a.Ref, clk); err != nil {
		return 0, err
	}
	if a.ExpireAt != 0 && a.ExpireAt <= clk.Now {
		return ExpirePast, nil
	}
	if !a.Schema.Contains(a.Value) {
		return Capped, nil
	}
	row, err := s.live(a.Ref, clk.Now)
	if err != nil {
		return 0, err
	}
	s.put(row, a.Ref, a.Value, a.ExpireAt)
	return Applied, nil
}

// Delete removes a counter and says whether there was one.
func (s *State) Delete(ref Ref, clk Clock) (existed bool, err error) {
	if err := s.enter(ref, clk); err != nil {
		return false, err
	}
	row, err := s.live(ref, clk.Now)
	if err != nil || !row.get(ref.Field).Exists {
		return false, err
	}
	s.remove(row, ref)
	return true, nil
}

// Get reads a counter as of log time now.
func (s *State) Get(ref Ref, now int64) (Counter, error) {
	if err := s.check(ref); err != nil {
		return Counter{}, err
	}
	row, err := s.rows.load(ref.Row)
	if err != nil {
		return Counter{}, err
	}
	c := row.get(ref.Field)
	if c.ExpireAt != 0 && c.ExpireAt <= now {
		return Counter{}, nil
	}
	return c, nil
}

// ApplyDerived adds delta to a derived metric, which has no caps and no expiry and
// to which clients cannot write; it may pass through negative values while
// deltas arrive in another order. At 0 it is absent, and a row without a present
// field is removed. A sum past 64 bits means that the deltas are wrong.
func (s *State) ApplyDerived(ref Ref, delta int64) (value int64, err error) {
	if err := s.check(ref); err != nil {
		return 0, err
	}
	row, err := s.rows.load(ref.Row)
	if err != nil {
		return 0, err
	}
	c := row.get(ref.Field)
	sum, outcome := Bounds{}.add(c.Value, delta)
	if outcome != Applied || c.ExpireAt != 0 {
		return 0, kv.Corruptionf("derived %v at %d, expiry %d: adding %d", ref, c.Value, c.ExpireAt, delta)
	}
	if sum == 0 {
		s.remove(row, ref)
	} else {
		s.put(row, ref, sum, 0)
	}
	return sum, nil
}

// Sweep removes up to limit expired counters and as many answers past their
// window, oldest first, and returns how many it removed. Reads never see an
// expired counter nor a retry an old answer, so this only frees space. The leader
// proposes it, at most once a second, when NextExpiry or NextForget has come, and
// at once again where it removed limit or more.
func (s *State) Sweep(clk Clock, limit int) (removed int, err error) {
	expired, err := s.sweep(s.expiry, clk.Now, limit, func(slot uint16, left int) (int, error) {
		return s.expire(slot, clk.Now, 0, left)
	})
	if err != nil {
		return 0, err
	}
	forgotten, err := s.sweep(s.answers.forgets, clk.Elapsed-s.window, limit, func(slot uint16, left int) (int, error) {
		return s.answers.forget(slot, clk.Elapsed, 0, left)
	})
	return expired + forgotten, err
}

func (s *State) sweep(q *queue, until int64, limit int, drain func(slot uint16, left int) (int, error)) (int, error) {
	removed := 0
	for removed < limit {
		slot, ok, err := q.oldest(until)
		if err != nil || !ok {
			return removed, err
		}
		n, err := drain(slot, limit-removed)
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

// NextExpiry is a log time before which no counter expires, or Never. Some
// counter may expire only later; Sweep makes it exact.
func (s *State) NextExpiry() int64 {
	_, at := s.expiry.least()
	return at
}

// NextForget is a time of the dedupe clock before which no answer leaves its
// window, or Never.
func (s *State) NextForget() int64 {
	if _, at := s.answers.forgets.least(); at != Never {
		return at + s.window
	}
	return Never
}

// Cut writes all changes since the last cut into b, in an order that depends on
// them alone. Nothing is applied between Cut and Published.
func (s *State) Cut(b kv.Batch) error {
	if err := s.rows.cut(b); err != nil {
		return fmt.Errorf("counter rows: %w", err)
	}
	if err := s.expiry.cut(b); err != nil {
		return fmt.Errorf("counter expiry: %w", err)
	}
	if err := s.answers.cut(b); err != nil {
		return fmt.Errorf("counter answers: %w", err)
	}
	return nil
}

// Published ends a cut: view reads the state that the batch of the last Cut
// brought about. It may be the same Store each time.
func (s *State) Published(view kv.Reader) {
	s.rows.published(view)
	s.expiry.published(view)
	s.answers.published(view)
}

// enter checks ref and removes a little of what is overdue in its slot.
func (s *State) enter(ref Ref, clk Clock) error {
	if err := s.check(ref); err != nil {
		return err
	}
	if _, err := s.expire(ref.Slot, clk.Now, s.overdue, expirePerTouch); err != nil {
		return err
	}
	_, err := s.answers.forget(ref.Slot, clk.Elapsed, s.overdue, forgetPerTouch)
	return err
}

// check guards what the caller has checked before the log.
func (s *State) check(ref Ref) error {
	if ref.Field >= MaxFields || len(ref.Row) == 0 || len(ref.Row) > MaxRowKey || !s.keys.owns(ref.Slot) {
		return fmt.Errorf("%v of slot %d reached a state machine of slots [%d, %d), fields below %d, row keys of 1 to %d bytes",
			ref, ref.Slot, s.keys.first, s.keys.end, MaxFields, MaxRowKey)
	}
	return nil
}

// expire removes up to limit counters of slot whose time has come; none unless
// that of the first came overdue µs ago.
func (s *State) expire(slot uint16, now, overdue int64, limit int) (int, error) {
	popped, err := s.expiry.pop(slot, now-overdue, now, limit)
	if err != nil {
		return 0, err
	}
	for _, e := range popped {
		field, key, err := parseExpiryTail(e.tail)
		if err != nil {
			return 0, err
		}
		row, err := s.rows.load(key)
		if err != nil {
			return 0, err
		}
		if row.get(field).ExpireAt != e.time {
			return 0, kv.Corruptionf("counter row %x field %d expires at %d, its queue says %d",
				key, field, row.get(field).ExpireAt, e.time)
		}
		row.clear(field)
		s.rows.touch(row)
	}
	return len(popped), nil
}

// live loads the row of ref and removes its field if that has expired.
func (s *State) live(ref Ref, now int64) (*cachedRow, error) {
	row, err := s.rows.load(ref.Row)
	if err != nil {
		return nil, err
	}
	if at := row.get(ref.Field).ExpireAt; at != 0 && at <= now {
		s.remove(row, ref)
	}
	return row, nil
}

// put sets a field and moves its entry in the expiry queue.
func (s *State) put(row *cachedRow, ref Ref, value, expireAt int64) {
	if was := row.get(ref.Field).ExpireAt; was != expireAt {
		s.unqueue(row, ref)
		if expireAt != 0 {
			s.expiry.add(ref.Slot, expireAt, []byte{byte(ref.Field)}, ref.Row)
		}
	}
	row.set(ref.Field, value, expireAt)
	s.rows.touch(row)
}

func (s *State) remove(row *cachedRow, ref Ref) {
	if !row.get(ref.Field).Exists {
		return
	}
	s.unqueue(row, ref)
	row.clear(ref.Field)
	s.rows.touch(row)
}

func (s *State) unqueue(row *cachedRow, ref Ref) {
	if at := row.get(ref.Field).ExpireAt; at != 0 {
		s.expiry.remove(ref.Slot, at, []byte{byte(ref.Field)}, ref.Row)
	}
}

// parseExpiryTail splits `field | row key`; both alias tail.
func parseExpiryTail(tail []byte) (field uint16, key []byte, err error) {
	if len(tail) < 2 || tail[0] >= MaxFields {
		return 0, nil, kv.Corruptionf("counter expiry %x", tail)
	}
	return uint16(tail[0]), tail[1:], nil
}
