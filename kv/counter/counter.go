package counter

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// Limits. All but MaxRequestID bound what a row can hold.
const (
	// MaxFields is the number of metrics a vertex type can have.
	MaxFields = 64
	// MaxRowKey is the length of a row key in bytes: a free-form key of 512 bytes
	// and what the caller puts around it.
	MaxRowKey = 1024
	// MaxRequestID is the length of a request id in bytes.
	MaxRequestID = 64
)

// Never stands for a time that does not come.
const Never = math.MaxInt64

// Ref names a counter by where it is stored.
type Ref struct {
	Slot  uint16
	Row   []byte // key of the row; not kept after the call
	Field uint16 // below MaxFields; 0 for a free-form key
}

func (r Ref) String() string { return fmt.Sprintf("counter %x field %d", r.Row, r.Field) }

// Clock is the time at which a command is applied, in µs. Both parts come from
// the log and never run backwards.
type Clock struct {
	Now     int64 // log time since 1970-01-01 UTC: what expiry compares with
	Elapsed int64 // dedupe clock: never faster than real time, whatever Now does
}

// Bounds are the least and the largest value a counter may be brought to. The
// zero Bounds allow every value.
type Bounds struct {
	Min, Max       int64
	HasMin, HasMax bool
}

// Contains tells whether v lies within b.
func (b Bounds) Contains(v int64) bool {
	return !(b.HasMin && v < b.Min) && !(b.HasMax && v > b.Max)
}

// Intersect returns the bounds that hold where both b and c do.
func (b Bounds) Intersect(c Bounds) Bounds {
	if c.HasMin && (!b.HasMin || c.Min > b.Min) {
		b.Min, b.HasMin = c.Min, true
	}
	if c.HasMax && (!b.HasMax || c.Max < b.Max) {
		b.Max, b.HasMax = c.Max, true
	}
	return b
}

// add returns value + delta, or why it must not be. A sum past 64 bits is past
// every cap on that side, so it is an overflow only where there is none.
func (b Bounds) add(value, delta int64) (int64, Outcome) {
	sum := value + delta
	switch {
	case delta > 0 && sum < value:
		if b.HasMax {
			return value, Capped
		}
		return value, Overflow
	case delta < 0 && sum > value:
		if b.HasMin {
			return value, Capped
		}
		return value, Overflow
	case !b.Contains(sum):
		return value, Capped
	}
	return sum, Applied
}

// Increment adds Delta to a counter; an absent one counts as 0.
type Increment struct {
	Ref
	Delta int64
	// Caps are the request's bounds, Schema the metric's. Both hold; only Caps
	// count as an argument of the request, so that a retry across a change of
	// schema is still the same request.
	Caps, Schema Bounds
	// ExpireAt, µs of log time, becomes the expiry where the counter has none. 0
	// leaves it alone; a time that has come is refused with ExpirePast.
	ExpireAt int64
	// RequestID, where not empty, makes the increment apply once in the window,
	// together with Ordinal, its place in the request. Up to MaxRequestID bytes.
	RequestID string
	Ordinal   uint32
}

// hash is a digest of what makes two increments under one id the same request.
func (in *Increment) hash(buf []byte) ([]byte, uint64) {
	buf = binary.BigEndian.AppendUint16(buf[:0], in.Field)
	for _, v := range [...]int64{in.Delta, in.ExpireAt, in.Caps.Min, in.Caps.Max} {
		buf = binary.BigEndian.AppendUint64(buf, uint64(v))
	}
	buf = append(buf, flag(in.Caps.HasMin), flag(in.Caps.HasMax))
	buf = append(buf, in.Row...)
	sum := sha256.Sum256(buf)
	return buf, binary.BigEndian.Uint64(sum[:])
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Assignment sets a counter and its expiry.
type Assignment struct {
	Ref
	Value    int64
	Schema   Bounds // the metric's bounds; a value outside is refused with Capped
	ExpireAt int64  // µs of log time; 0: does not expire
}

// Outcome says what became of a write. Only Applied changed anything. The
// numbers are stored in answers.
type Outcome uint8

// The outcomes.
const (
	Applied    Outcome = iota + 1
	Capped             // the sum would lie outside the caps
	Overflow           // the sum does not fit 64 bits
	ExpirePast         // ExpireAt is not after log time
	DedupeFull         // the slot remembers as many answers as it may
	IDReused           // the request id came with other arguments before
	IDTooOld           // the id's own time part lies before the window
	Held               // a condition of an edit did not hold
)

func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Capped:
		return "capped"
	case Overflow:
		return "overflow"
	case ExpirePast:
		return "expire_at lies in the past"
	case DedupeFull:
		return "too many request ids within the window"
	case IDReused:
		return "request_id was used with other arguments"
	case IDTooOld:
		return "request_id is older than the window"
	case Held:
		return "held back by a condition"
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// remembered tells whether a retry of the same request gets the same answer from
// memory. The other refusals hold anew for each call.
func (o Outcome) remembered() bool { return o == Applied || o == Capped || o == Overflow }

// Result answers one increment.
type Result struct {
	// Value is the counter's after the call, for Applied, Capped, Overflow and
	// ExpirePast; 0 for the refusals of a request id, which do not read it.
	Value   int64
	Outcome Outcome
	// Repeated: the answer is that of an earlier call with the same request id;
	// this call changed nothing.
	Repeated bool
}

// Counter is a counter as read.
type Counter struct {
	Value    int64
	Exists   bool
	ExpireAt int64 // µs of log time; 0: does not expire
}
