package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// refused says that the server will not take the request as it is.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.FailedPrecondition, codes.NotFound:
		return true
	case codes.ResourceExhausted:
		return errorInfo(err).GetMetadata()["field"] != ""
	default:
		return false
	}
}

// retryable says that the same request may succeed later.
func retryable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Unknown, codes.ResourceExhausted, codes.Canceled:
		return !refused(err)
	default:
		return false
	}
}

// tally collects what became of the mutations of one batch.
type tally struct {
	batch *batch
	settlement
	// Why a mutation has to be sent again, as the server last put it.
	obstacle string
}

// reject notes a refusal. Where the row stood in its request says nothing to the
// reader of the reason, who gets its line.
func (t *tally) reject(i int, reason string) {
	r := reject{reason: mutationIndex.ReplaceAllString(reason, "")}
	if i < len(t.batch.lines) {
		r.line, r.text = t.batch.lines[i], t.batch.texts[i]
	}
	t.rejects = append(t.rejects, r)
}

// take counts the outcomes of the mutations with the given indexes, and returns the
// indexes of those that have to be sent again.
func (t *tally) take(indexes []int, outcomes []lianav1.Outcome, failures []*lianav1.MutationError) ([]int, error) {
	if len(outcomes) != len(indexes) {
		return nil, &fatalError{fmt.Errorf("the server answered %d of %d mutations", len(outcomes), len(indexes))}
	}
	byIndex := make(map[int]*lianav1.MutationError, len(failures))
	for _, failure := range failures {
		byIndex[int(failure.GetIndex())] = failure
	}
	var again []int
	for i, outcome := range outcomes {
		failure := byIndex[i]
		switch outcome {
		case lianav1.Outcome_CHANGED:
			t.created++
		case lianav1.Outcome_UNCHANGED:
			t.alreadyThere++
		case lianav1.Outcome_INVERSE_PENDING:
			t.created++
			t.inversePending++
		case lianav1.Outcome_OUTCOME_UNKNOWN, lianav1.Outcome_FAILED:
			if outcome == lianav1.Outcome_FAILED && failure != nil && !failure.GetRetryable() {
				t.reject(indexes[i], failure.GetMessage())
				continue
			}
			again = append(again, indexes[i])
			t.obstacle = failure.GetReason() + " " + failure.GetMessage()
		default:
			return nil, &fatalError{fmt.Errorf("the server answered with outcome %v, which this client does not know", outcome)}
		}
	}
	return again, nil
}

// settle counts the answer of the oldest batch and sees to it that each of its
// mutations is either in or rejected.
func (l *loader) settle(ctx context.Context, b *batch, outcomes []lianav1.Outcome, failures []*lianav1.MutationError) error {
	t := &tally{batch: b}
	again, err := t.take(allIndexes(len(b.mutations)), outcomes, failures)
	if err != nil {
		return err
	}
	if err := l.insist(ctx, t, again); err != nil {
		return err
	}
	return l.done(b, t.settlement)
}

// isolate settles the oldest batch by unary calls: the stream was refused, and only the
// row at fault shall be rejected.
func (l *loader) isolate(ctx context.Context) error {
	if len(l.pending) == 0 {
		return nil
	}
	b := l.pending[0]
	t := &tally{batch: b}
	if err := l.insist(ctx, t, allIndexes(len(b.mutations))); err != nil {
		return unwrapFatal(err)
	}
	return unwrapFatal(l.done(b, t.settlement))
}

func unwrapFatal(err error) error {
	var fatal *fatalError
	if errors.As(err, &fatal) {
		return fatal.error
	}
	return err
}

func allIndexes(n int) []int {
	indexes := make([]int, n)
	for i := range indexes {
		indexes[i] = i
	}
	return indexes
}

// insist sends the given mutations of a batch by MutateEdges until each has an outcome:
// again where the server could not, without the row at fault where it would not.
func (l *loader) insist(ctx context.Context, t *tally, indexes []int) error {
	for pause := minPause; len(indexes) > 0; {
		request := &lianav1.MutateEdgesRequest{Wait: l.wait}
		for _, i := range indexes {
			request.Mutations = append(request.Mutations, t.batch.mutations[i])
		}
		answer, err := l.mutate(ctx, request)
		switch {
		case err == nil:
			before := len(indexes)
			if indexes, err = t.take(indexes, answer.GetOutcomes(), answer.GetErrors()); err != nil {
				return err
			}
			if len(indexes) < before {
				l.progressed = time.Now()
				continue
			}
			err = status.Errorf(codes.Aborted, "the server could not apply %d mutations: %s", len(indexes), t.obstacle)
		case refused(err):
			if indexes, err = l.without(ctx, t, indexes, err); err != nil {
				return err
			}
			continue
		case !retryable(err) || ctx.Err() != nil:
			return &fatalError{err}
		}
		if err := l.sleep(ctx, pause, err); err != nil {
			return &fatalError{err}
		}
		pause = min(2*pause, maxPause)
	}
	return nil
}

func (l *loader) mutate(ctx context.Context, request *lianav1.MutateEdgesRequest) (*lianav1.MutateEdgesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return l.client.MutateEdges(ctx, request)
}

// mutationIndex finds the path of a mutation in an error of its request.
var mutationIndex = regexp.MustCompile(`mutations\[(\d+)\]\.?`)

// without takes the row at fault out of a request that was refused with err and returns
// the indexes that are left. Where the server does not name the row, it halves the
// request and settles the halves one after the other.
func (l *loader) without(ctx context.Context, t *tally, indexes []int, err error) ([]int, error) {
	if len(indexes) == 1 {
		t.reject(indexes[0], status.Convert(err).Message())
		return nil, nil
	}
	field := errorInfo(err).GetMetadata()["field"]
	if found := mutationIndex.FindStringSubmatch(field + " " + status.Convert(err).Message()); found != nil {
		at, convErr := strconv.Atoi(found[1])
		if convErr == nil && at < len(indexes) {
			t.reject(indexes[at], status.Convert(err).Message())
			return append(indexes[:at:at], indexes[at+1:]...), nil
		}
	}
	half := len(indexes) / 2
	if err := l.insist(ctx, t, indexes[:half:half]); err != nil {
		return nil, err
	}
	return indexes[half:], nil
}
