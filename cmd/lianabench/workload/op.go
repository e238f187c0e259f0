package workload

// Edge is a like: user Src likes note Dst. Time is in microseconds since 1970;
// 0 means now.
type Edge struct {
	Src, Dst uint64
	Time     int64
}

// Kind is a kind of operation.
type Kind uint8

// The operations that a stream is made of.
const (
	Add        Kind = iota // Edge
	Delete                 // Edge
	Update                 // Edge gets a new time
	Has                    // does user Vertex like each of IDs
	Count                  // the likes of each of IDs, on side In
	ListNewest             // the newest page of list (Vertex, In)
	ListOlder              // a later page of it
	Kinds                  // how many kinds there are
)

func (k Kind) String() string {
	return [...]string{"add", "delete", "update", "has", "count", "list newest", "list older"}[k]
}

// Op is one operation. A stream fills the same Op again and again: IDs is valid
// until the next call.
type Op struct {
	Kind   Kind
	Edge   Edge
	Vertex uint64
	In     bool // the list of a note (who likes it), else of a user
	IDs    []uint64
	Skip   int
	Limit  int
}

// Units is the number of single questions or writes in the operation.
func (o *Op) Units() int {
	if o.Kind == Has || o.Kind == Count {
		return len(o.IDs)
	}
	return 1
}

// Clock gives the times of likes that are loaded: rising, spread over a year
// that ended at a fixed date, at a resolution of a microsecond as real ones are.
type Clock struct {
	now, step int64
}

// yearEnd is 2025-01-01 UTC in microseconds.
const yearEnd = 1_735_689_600_000_000

// NewClock spreads n times over the year.
func NewClock(n int) *Clock {
	const year = 365 * 24 * 3600 * 1_000_000
	step := int64(year / max(n, 1))
	return &Clock{now: yearEnd - step*int64(n), step: max(step, 1)}
}

// Next returns the next time. The odd part keeps the low bits from being all
// alike, which would make times cheaper to store than they are.
func (c *Clock) Next() int64 {
	c.now += c.step
	return c.now - int64(uint64(c.now)*0x9e3779b97f4a7c15>>33)%c.step
}
