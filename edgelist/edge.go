package edgelist

import (
	"errors"
	"fmt"
	"math"
)

// MaxProps is the largest size of an edge's properties in bytes: 1 KiB of the
// caller's and room for its encoding of them.
const MaxProps = 1<<10 + 128

// Errors of this package. They are wrapped; test them with errors.Is.
var (
	// ErrCorrupt marks stored bytes that cannot be what was written, or pages
	// that contradict each other.
	ErrCorrupt = errors.New("edgelist: corrupt")
	// ErrPropsTooLarge is returned by Insert and Update when an edge's
	// properties are over MaxProps bytes; nothing was changed.
	ErrPropsTooLarge = errors.New("edgelist: properties too large")
	// ErrFull is returned when a list has used up its 2^32 page numbers.
	ErrFull = errors.New("edgelist: out of page numbers")
)

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))
}

// Edge is one edge of a list, seen from the vertex that owns the list.
type Edge struct {
	Peer  uint64 // id of the vertex at the other end
	Time  int64  // microseconds since the epoch
	Props []byte // opaque, at most MaxProps bytes; nil when there are none
}

// Order is an order of a list's edges, and the tree that keeps it.
type Order uint8

// The two orders.
const (
	ByID   Order = iota // by peer
	ByTime              // by time, then peer
)

// String names the order.
func (o Order) String() string {
	if o == ByTime {
		return "by-time"
	}
	return "by-id"
}

// Key is the place of an edge in an order. ByID looks at ID only.
type Key struct {
	Time int64
	ID   uint64
}

// minKey is below or equal to every key of either order.
func minKey() Key { return Key{Time: math.MinInt64} }

// key places the entry (t, id) in order o.
func (o Order) key(t int64, id uint64) Key {
	if o == ByID {
		t = 0
	}
	return Key{Time: t, ID: id}
}

// compare is negative when a lies before b in order o, 0 when they are equal.
func (o Order) compare(a, b Key) int {
	switch {
	case o == ByTime && a.Time != b.Time:
		if a.Time < b.Time {
			return -1
		}
		return 1
	case a.ID < b.ID:
		return -1
	case a.ID > b.ID:
		return 1
	}
	return 0
}

// PageID names a page within its list. The zero value is the head; tree pages
// have numbers from 1, no two pages of a list the same.
type PageID struct {
	Order Order
	No    uint32
}

// String writes the page as "head", "by-id/7" or "by-time/8".
func (id PageID) String() string {
	if id == (PageID{}) {
		return "head"
	}
	return fmt.Sprintf("%s/%d", id.Order, id.No)
}

// pack is the page as one number. Its order is that in which a Writer hands out
// pages: the head, then the by-id pages, then the by-time pages, each by number.
func (id PageID) pack() uint64 { return uint64(id.Order)<<32 | uint64(id.No) }

func unpack(v uint64) PageID { return PageID{Order: Order(v >> 32), No: uint32(v)} }

// Source gives a list's pages. Page returns nil, nil for an absent page; the
// pages it returns are never changed. Its errors pass through.
type Source interface {
	Page(id PageID) (*Page, error)
}

// Sink takes a list's changed pages. p is the page after the change, for the
// caller's cache; value and operand belong to the sink from then on.
type Sink interface {
	// Put stores value as the whole page.
	Put(id PageID, p *Page, value []byte) error
	// Merge adds operand to the page's stored value (see Fold).
	Merge(id PageID, p *Page, operand []byte) error
	// Remove deletes the page.
	Remove(id PageID) error
}
