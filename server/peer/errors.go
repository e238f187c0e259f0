package peer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// Kinds that carry more than a text.
const (
	kindOther   = 1
	kindMoved   = 2
	kindInvalid = 3
)

// kind is an error that keeps its meaning between nodes.
type kind struct {
	number uint32
	is     error
}

// kinds is the table of these. The numbers are part of the protocol. The first that
// fits counts: what says most about the outcome of a write comes first.
func kinds() []kind {
	return []kind{
		{10, graph.ErrInverseLate},
		{11, shard.ErrOutcomeUnknown},
		{kindMoved, shard.ErrNotLeader},
		{12, graph.ErrNoEdge},
		{13, graph.ErrOverflow},
		{14, graph.ErrDerived},
		{15, graph.ErrRequestIDReused},
		{16, graph.ErrIDTooOld},
		{17, graph.ErrOldTimeline},
		{18, graph.ErrDedupeFull},
		{19, graph.ErrDiskFull},
		{32, graph.ErrNoSplit},
		{33, graph.ErrTrimmed},
		{34, graph.ErrUnreachable},
		{35, graph.ErrOldProgram},
		{40, graph.ErrDeleting},
		{41, graph.ErrHidden},
		{42, graph.ErrTooManyJobs},
		{20, graph.ErrBacklogged},
		{21, graph.ErrTooFresh},
		{22, edgelist.ErrPropsTooLarge},
		{23, edgelist.ErrFull},
		{24, shard.ErrBusy},
		{25, shard.ErrTooLarge},
		{26, shard.ErrStopped},
		{27, shard.ErrFault},
		{28, kv.ErrCorruption},
		{29, kv.ErrClosed},
		{30, context.DeadlineExceeded},
		{31, context.Canceled},
	}
}

// encodeError returns err for another node, nil for nil.
func encodeError(err error) *peerv1.Error {
	if err == nil {
		return nil
	}
	out := &peerv1.Error{Kind: kindOther, Message: err.Error()}
	var bad *graph.InvalidError
	if errors.As(err, &bad) {
		out.Kind, out.Message, out.Field, out.Limit = kindInvalid, bad.Msg, bad.Field, bad.Limit
		return out
	}
	for _, k := range kinds() {
		if errors.Is(err, k.is) {
			out.Kind = k.number
			break
		}
	}
	var moved *graph.MovedError
	if errors.As(err, &moved) {
		out.Shard, out.Leader, out.Claims = moved.Shard, moved.Leader, each(moved.Claims, wireClaim)
	}
	return out
}

func wireClaim(c graph.Claim) *peerv1.Claim {
	return &peerv1.Claim{First: uint32(c.First), Last: uint32(c.Last), Shard: c.Shard, Generation: c.Gen}
}

func claim(c *peerv1.Claim) graph.Claim {
	return graph.Claim{
		First: graph.Slot(min(c.GetFirst(), graph.NumSlots)), Last: graph.Slot(min(c.GetLast(), graph.NumSlots)),
		Shard: c.GetShard(), Gen: c.GetGeneration(),
	}
}

// farError is an error of another node. It has the meaning that is has here.
type farError struct {
	node, text string
	is         error // may be nil
}

func (e *farError) Error() string { return fmt.Sprintf("node %s: %s", e.node, e.text) }
func (e *farError) Unwrap() error { return e.is }

func decodeError(node string, e *peerv1.Error) error {
	switch {
	case e == nil || e.Kind == 0:
		return nil
	case e.Kind == kindInvalid:
		return &graph.InvalidError{Field: e.Field, Limit: e.Limit, Msg: e.Message}
	case e.Kind == kindMoved:
		return &graph.MovedError{Shard: e.Shard, Leader: e.Leader, Claims: each(e.Claims, claim)}
	}
	for _, k := range kinds() {
		if k.number == e.Kind {
			return &farError{node, e.Message, k.is}
		}
	}
	return &farError{node, e.Message, nil}
}

// StatusOf is err as the answer to a call.
func StatusOf(err error) error {
	if err == nil {
		return nil
	}
	st, bad := status.New(codes.Aborted, "see details").WithDetails(encodeError(err))
	if bad != nil { // text that is not UTF-8
		return status.Error(codes.Internal, "the error cannot be told")
	}
	return st.Err()
}

// errorOf is the error of a call to another node. sent: the call may have reached it.
func errorOf(node string, err error, write, sent bool) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if e, ok := d.(*peerv1.Error); ok {
			return decodeError(node, e)
		}
	}
	if !sent {
		return &farError{node, st.Message(), graph.ErrUnreachable}
	}
	var is error
	switch st.Code() {
	case codes.DeadlineExceeded:
		is = context.DeadlineExceeded
	case codes.Canceled:
		is = context.Canceled
	case codes.Unavailable:
		is = graph.ErrCut
	}
	if write {
		// Without the status: whoever answers a client would take it for its own.
		return &farError{node, st.Message(), errors.Join(shard.ErrOutcomeUnknown, is)}
	}
	return &farError{node, st.Message(), is}
}
