package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
	"github.com/lianadb/liana/server/resp"
)

// errorDomain marks the reasons as ours.
const errorDomain = "liana.dev"

// Errors of the door itself.
var (
	errNotReady     = errors.New("the server is starting")
	errStopping     = errors.New("the server is stopping")
	errTooManyCalls = errors.New("too many calls in flight")
	errNotRead      = errors.New("the client does not read its stream")
	errTooManyScans = errors.New("another check or export is running")
	errPanic        = errors.New("panic")
)

// reasonInvalid is the reason of a mistake in a request (graph.InvalidError).
const reasonInvalid = "INVALID_FIELD"

// reasonInternal is the reason of an error that no rule names.
const reasonInternal = "INTERNAL"

// rule says what an error becomes.
type rule struct {
	is     error
	code   codes.Code
	reason string
	// retry > 0: the same request may succeed later, not before that time.
	retry time.Duration
	// detail: the error's whole text is for the client. Without it the client gets
	// the text of is alone; what it wraps may name files and keys.
	detail bool
	// long: its text tells what to do, and is cut at maxAdvice only.
	long bool
	// resp is how the error begins on the Redis-protocol port. Empty: ERR, or TRYAGAIN where
	// repeating helps.
	resp string
}

// rules is the one table from errors to codes. The first rule that fits counts:
// what says most about the outcome of a write comes first, since errors wrap
// their causes. An error without a rule is INTERNAL: no call should meet it.
// docs/api.md explains the reasons.
func rules() []rule {
	const soon, later = 50 * time.Millisecond, time.Second
	return []rule{
		{is: graph.ErrInverseLate, code: codes.Aborted, reason: "INVERSE_PENDING", detail: true},
		{is: shard.ErrOutcomeUnknown, code: codes.Unknown, reason: "OUTCOME_UNKNOWN", resp: resp.UnknownOutcome},

		{is: graph.ErrNoEdge, code: codes.NotFound, reason: "NO_EDGE", detail: true},
		{is: graph.ErrOverflow, code: codes.OutOfRange, reason: "OVERFLOW", detail: true},
		{is: graph.ErrDerived, code: codes.FailedPrecondition, reason: "DERIVED_METRIC", detail: true},
		{is: graph.ErrRequestIDReused, code: codes.FailedPrecondition, reason: "REQUEST_ID_REUSED", detail: true},
		{is: graph.ErrIDTooOld, code: codes.FailedPrecondition, reason: "REQUEST_ID_TOO_OLD", detail: true},
		{is: graph.ErrOldTimeline, code: codes.FailedPrecondition, reason: "OLD_TIMELINE", detail: true},
		{is: graph.ErrSchema, code: codes.InvalidArgument, reason: "SCHEMA", detail: true},
		{is: graph.ErrDedupeFull, code: codes.ResourceExhausted, reason: "DEDUPE_FULL", retry: later, detail: true},
		{is: graph.ErrDiskFull, code: codes.ResourceExhausted, reason: "DISK_FULL", retry: 10 * time.Second, detail: true, resp: "MISCONF"},
		{is: graph.ErrOldProgram, code: codes.Unavailable, reason: "OLD_PROGRAM", retry: later, detail: true},
		{is: graph.ErrNoSplit, code: codes.FailedPrecondition, reason: "NO_SPLIT", detail: true},
		{is: graph.ErrDeleting, code: codes.FailedPrecondition, reason: "VERTEX_DELETING", detail: true},
		{is: graph.ErrHidden, code: codes.FailedPrecondition, reason: "VERTEX_HIDDEN", detail: true},
		{is: graph.ErrTooManyJobs, code: codes.ResourceExhausted, reason: "TOO_MANY_JOBS", retry: later, detail: true},
		{is: graph.ErrBacklogged, code: codes.Unavailable, reason: "BACKLOGGED", retry: later, detail: true},
		{is: graph.ErrTrimmed, code: codes.OutOfRange, reason: "CHANGES_TRIMMED", detail: true},
		{is: graph.ErrTooFresh, code: codes.Unavailable, reason: "NOT_FRESH", retry: soon, detail: true},
		{is: graph.ErrUnreachable, code: codes.Unavailable, reason: "UNREACHABLE", retry: soon},
		{is: graph.ErrCut, code: codes.Unavailable, reason: "CONNECTION_LOST", retry: soon, resp: resp.UnknownOutcome},
		{is: edgelist.ErrPropsTooLarge, code: codes.InvalidArgument, reason: reasonInvalid},
		{is: edgelist.ErrFull, code: codes.ResourceExhausted, reason: "LIST_FULL"},

		{is: shard.ErrNotLeader, code: codes.Unavailable, reason: "NOT_LEADER", retry: soon},
		{is: shard.ErrBusy, code: codes.ResourceExhausted, reason: "BUSY", retry: soon},
		{is: shard.ErrTooLarge, code: codes.InvalidArgument, reason: "COMMAND_TOO_LARGE"},
		{is: shard.ErrStopped, code: codes.Unavailable, reason: "STOPPING", retry: later},
		{is: shard.ErrFault, code: codes.Unavailable, reason: "SHARD_FAILED", retry: later},
		{is: shard.ErrLogLost, code: codes.DataLoss, reason: "LOG_LOST"},

		{is: ErrClusterRefused, code: codes.FailedPrecondition, reason: "CLUSTER_REFUSED", detail: true, long: true},
		{is: ErrNoCluster, code: codes.Unimplemented, reason: "NO_CLUSTER"},
		{is: ErrNoCache, code: codes.FailedPrecondition, reason: "NO_CACHE", detail: true},

		{is: errNotReady, code: codes.Unavailable, reason: "NOT_READY", retry: soon, resp: "LOADING"},
		{is: errStopping, code: codes.Unavailable, reason: "STOPPING", retry: later},
		{is: errTooManyCalls, code: codes.ResourceExhausted, reason: "TOO_MANY_CALLS", retry: soon, detail: true},
		{is: errNotRead, code: codes.DeadlineExceeded, reason: "NOT_READ", detail: true},
		{is: errSlowWatcher, code: codes.Aborted, reason: "SLOW_WATCHER"},
		{is: errTooManyScans, code: codes.ResourceExhausted, reason: "TOO_MANY_SCANS", retry: 10 * time.Second},

		{is: kv.ErrCorruption, code: codes.DataLoss, reason: "CORRUPTION"},
		{is: edgelist.ErrCorrupt, code: codes.DataLoss, reason: "CORRUPTION"},
		{is: kv.ErrClosed, code: codes.Unavailable, reason: "STOPPING", retry: later},

		{is: context.DeadlineExceeded, code: codes.DeadlineExceeded, reason: "DEADLINE", resp: "TIMEOUT"},
		{is: context.Canceled, code: codes.Canceled, reason: "CANCELED", resp: "TIMEOUT"},
	}
}

// maxErrorText bounds a message: 10,000 of them, with the rest of an answer, stay
// under what a default client takes.
const maxErrorText = 256

// maxAdvice bounds a message with steps to take. There is one an answer.
const maxAdvice = 1024

// verdict is an error as a client sees it.
type verdict struct {
	rule
	message string
	meta    map[string]string
}

// table is rules, built once.
type table []rule

// judge finds what err becomes.
func (t table) judge(err error) verdict {
	var v verdict
	var bad *graph.InvalidError
	switch {
	case errors.As(err, &bad):
		v = verdict{rule: rule{code: codes.InvalidArgument, reason: reasonInvalid}, message: bad.Error(),
			meta: map[string]string{"field": bad.Field, "limit": bad.Limit}}
	default:
		v = t.find(err)
	}
	var extra *annotated
	if errors.As(err, &extra) {
		if v.meta == nil {
			v.meta = map[string]string{}
		}
		maps.Copy(v.meta, extra.meta)
	}
	most := maxErrorText
	if v.long {
		most = maxAdvice
	}
	v.message = cut(v.message, most)
	return v
}

func (t table) find(err error) verdict {
	for _, r := range t {
		if !errors.Is(err, r.is) {
			continue
		}
		message := r.is.Error()
		if r.detail {
			message = err.Error()
		}
		return verdict{rule: r, message: message}
	}
	return verdict{rule: rule{code: codes.Internal, reason: reasonInternal}, message: "internal error"}
}

// serious reports whether an operator should read of v.
func (v verdict) serious() bool {
	return v.code == codes.Internal || v.code == codes.DataLoss
}

// status is v on the wire.
func (v verdict) status() error {
	meta := map[string]string{"retryable": strconv.FormatBool(v.retry > 0)}
	maps.Copy(meta, v.meta)
	info := &errdetails.ErrorInfo{Reason: v.reason, Domain: errorDomain, Metadata: meta}
	st := status.New(v.code, v.message)
	var err error
	var full *status.Status
	if v.retry > 0 {
		full, err = st.WithDetails(info, &errdetails.RetryInfo{RetryDelay: durationpb.New(v.retry)})
	} else {
		full, err = st.WithDetails(info)
	}
	if err != nil { // strings that are not UTF-8
		return st.Err()
	}
	return full.Err()
}

// cut shortens text to at most n bytes, at a character's edge.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const mark = "..."
	end := n - len(mark)
	for end > 0 && text[end]&0xc0 == 0x80 {
		end--
	}
	return text[:end] + mark
}

// annotated is an error with facts for its ErrorInfo.
type annotated struct {
	error
	meta map[string]string
}

func (a *annotated) Unwrap() error { return a.error }

func annotate(err error, keysAndValues ...string) error {
	meta := make(map[string]string, len(keysAndValues)/2)
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		meta[keysAndValues[i]] = keysAndValues[i+1]
	}
	return &annotated{error: err, meta: meta}
}

// invalid is a mistake in a request, found while decoding it.
func invalid(field, limit, format string, args ...any) error {
	return &graph.InvalidError{Field: field, Limit: limit, Msg: fmt.Sprintf(format, args...)}
}
