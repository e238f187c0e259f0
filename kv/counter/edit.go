package counter

import "fmt"

// EditKind says what an Edit does to a counter.
type EditKind uint8

// The kinds. The numbers lie in logs.
const (
	// Look changes nothing: it tells what the counter is, between two other edits.
	Look EditKind = iota + 1
	// Add adds Value; an absent counter counts as 0. The expiry stays.
	Add
	// Put gives the counter Value and an expiry, whatever it had.
	Put
	// Remove removes the counter.
	Remove
	// Expire gives a counter that is there another expiry; 0 takes it away.
	Expire
)

// Condition is a set of things that must be so for an edit to change anything.
type Condition uint8

// The conditions. The numbers lie in logs.
const (
	IfAbsent   Condition = 1 << iota // there is no such counter
	IfPresent                        // there is
	IfLasting                        // it is there and does not expire
	IfExpiring                       // it is there and expires
	IfLater                          // ExpireAt is later than its expiry; never where it has none
	IfEarlier                        // ExpireAt is earlier than its expiry; always where it has none

	// AllConditions are those that this program knows.
	AllConditions = IfAbsent | IfPresent | IfLasting | IfExpiring | IfLater | IfEarlier
)

// Edit reads and writes one counter in one step.
type Edit struct {
	Ref
	Kind   EditKind
	If     Condition
	Value  int64  // of Add and Put
	Schema Bounds // the metric's bounds: Add and Put do not leave them
	// ExpireAt is the expiry that Put and Expire give, µs of log time; 0: none. One that has
	// come removes the counter.
	ExpireAt int64
	// Keep has Put leave the expiry of the counter as it is.
	Keep bool
}

// Edited answers an Edit.
type Edited struct {
	Before  Counter // as it was
	Value   int64   // as it is
	Outcome Outcome // Applied, Held, Capped or Overflow
	// Changed: the counter or its expiry is another than before, or was written anew.
	Changed bool
}

// holds reports whether an edit may change a counter that is c.
func (i Condition) holds(c Counter, expireAt int64) bool {
	switch {
	case i&IfAbsent != 0 && c.Exists,
		i&IfPresent != 0 && !c.Exists,
		i&IfLasting != 0 && (!c.Exists || c.ExpireAt != 0),
		i&IfExpiring != 0 && c.ExpireAt == 0,
		i&IfLater != 0 && (c.ExpireAt == 0 || expireAt <= c.ExpireAt),
		i&IfEarlier != 0 && c.ExpireAt != 0 && expireAt >= c.ExpireAt:
		return false
	}
	return true
}

// Edit applies one edit.
func (s *State) Edit(e Edit, clk Clock) (Edited, error) {
	if err := s.enter(e.Ref, clk); err != nil {
		return Edited{}, err
	}
	row, err := s.live(e.Ref, clk.Now)
	if err != nil {
		return Edited{}, err
	}
	was := row.get(e.Field)
	out := Edited{Before: was, Value: was.Value, Outcome: Held}
	if !e.If.holds(was, e.ExpireAt) {
		return out, nil
	}
	out.Outcome = Applied
	switch e.Kind {
	case Look:
	case Add:
		out.Value, out.Outcome = e.Schema.add(was.Value, e.Value)
		if out.Changed = out.Outcome == Applied; out.Changed {
			s.put(row, e.Ref, out.Value, was.ExpireAt)
		}
	case Put:
		if !e.Schema.Contains(e.Value) {
			out.Outcome = Capped
			break
		}
		at := e.ExpireAt
		if e.Keep {
			at = was.ExpireAt
		}
		s.settle(row, e.Ref, &out, e.Value, at, clk.Now)
	case Remove:
		out.Value, out.Changed = 0, was.Exists
		s.remove(row, e.Ref)
	case Expire:
		if !was.Exists {
			out.Outcome = Held
			break
		}
		s.settle(row, e.Ref, &out, was.Value, e.ExpireAt, clk.Now)
	default:
		return Edited{}, fmt.Errorf("%v: edit of kind %d reached the state machine", e.Ref, e.Kind)
	}
	return out, nil
}

// settle gives a counter a value and an expiry, and removes it where that has come.
func (s *State) settle(row *cachedRow, ref Ref, out *Edited, value, expireAt, now int64) {
	if expireAt != 0 && expireAt <= now {
		out.Value, out.Changed = 0, out.Before.Exists
		s.remove(row, ref)
		return
	}
	out.Value, out.Changed = value, true
	s.put(row, ref, value, expireAt)
}
