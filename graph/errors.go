package graph

import (
	"errors"
	"fmt"
)

// Errors of the domain. They are wrapped; test them with errors.Is. The server
// turns them, and those of kv and kv/shard, into status codes in one table.
var (
	// ErrInverseLate: the edge is durable, its inverse follows by itself. Occurs when
	// the deadline comes while a BOTH write waits for the other shard.
	ErrInverseLate = errors.New("forward durable, inverse pending")
	// ErrBacklogged: the shard of the other end is behind; nothing was changed.
	ErrBacklogged = errors.New("the destination shard is behind, nothing was changed")
	// ErrOldTimeline: a token from before a restore.
	ErrOldTimeline = errors.New("token is from before a restore")
	// ErrTooFresh: the shard did not reach the token's position in time.
	ErrTooFresh = errors.New("the shard has not reached the token's position")
	// ErrNoEdge: an update or get of an edge that is not there.
	ErrNoEdge = errors.New("no such edge")
	// ErrOverflow: the sum does not fit 64 bits; nothing was changed.
	ErrOverflow = errors.New("counter would overflow, nothing was changed")
	// ErrDerived: a client write to a derived metric.
	ErrDerived = errors.New("metric is derived and cannot be written")
	// ErrDedupeFull: no room to remember another request id; nothing was changed.
	ErrDedupeFull = errors.New("too many request ids within the window, nothing was changed")
	// ErrRequestIDReused: the request id was used with other arguments.
	ErrRequestIDReused = errors.New("request_id was used with other arguments")
	// ErrDiskFull: too little space is left; nothing was changed.
	ErrDiskFull = errors.New("disk space is below the reserve, nothing was changed")
	// ErrTrimmed: the change log does not reach back to what was asked for.
	ErrTrimmed = errors.New("the change log does not reach back so far")
	// ErrDeleting: an edge to or from a vertex that is being deleted, or another
	// operation on it; nothing was changed.
	ErrDeleting = errors.New("the vertex is being deleted, nothing was changed")
	// ErrHidden: a new edge to or from a vertex that is hidden; nothing was changed.
	ErrHidden = errors.New("the vertex is hidden, nothing was changed")
	// ErrTooManyJobs: a shard has as many jobs at work as it may; nothing was changed.
	ErrTooManyJobs = errors.New("too many vertices are being deleted, hidden or restored")
	// ErrNoSplit: the shard cannot be split there; nothing was changed.
	ErrNoSplit = errors.New("cannot be split there, nothing was changed")
)

// TrimmedError says that the change log of a shard begins past what was asked for. It
// is an ErrTrimmed.
type TrimmedError struct {
	Shard         uint32
	Asked, Oldest uint64 // positions: changes past Oldest are there
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("shard %d: changes past %d are gone, the log begins past %d", e.Shard, e.Asked, e.Oldest)
}

// Unwrap makes it an ErrTrimmed.
func (e *TrimmedError) Unwrap() error { return ErrTrimmed }

// InvalidError is a mistake in a request: which field, what is wrong and what
// is allowed. Nothing was changed.
type InvalidError struct {
	Field string // e.g. "edge.time", "mutations[17].src_id"
	Limit string // what is allowed, e.g. "1 to 18446744073709551614"
	Msg   string
}

func (e *InvalidError) Error() string {
	if e.Limit == "" {
		return fmt.Sprintf("%s: %s", e.Field, e.Msg)
	}
	return fmt.Sprintf("%s: %s (allowed: %s)", e.Field, e.Msg, e.Limit)
}

func invalid(field, limit, format string, args ...any) error {
	return &InvalidError{Field: field, Limit: limit, Msg: fmt.Sprintf(format, args...)}
}
