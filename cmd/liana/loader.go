package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// Limits of a load.
const (
	maxBatch        = 10_000  // mutations in one request, the API's limit
	maxBatchBytes   = 1 << 20 // keeps a request well below gRPC's default limit of 4 MiB
	maxInFlight     = 256
	defaultRetryFor = time.Minute
	// How long the server may leave a batch unanswered.
	loadStall = time.Minute
)

// batch is a piece of a load: consecutive rows of the source.
type batch struct {
	mutations []*lianav1.Mutation
	// The line of each mutation, and its text; nil where the source has no lines.
	lines []uint64
	texts [][]byte
	// Rows rejected before sending.
	rejects []reject
	// Rows of the source in this batch: counted by the source, not derived from the above.
	rows uint64
	// Where the source goes on after the batch, and how far into the whole that is (-1: unknown).
	after position
	share float64
}

// reject is a row that was not taken.
type reject struct {
	line   uint64
	reason string
	text   []byte
}

// settlement is what became of a batch.
type settlement struct {
	created, alreadyThere uint64
	// Of created: the inverse follows later.
	inversePending uint64
	// Rows refused by the server.
	rejects []reject
}

// batchSource yields batches until io.EOF. Another error ends the load after the
// batches before it are settled.
type batchSource interface {
	next() (*batch, error)
}

// loader sends batches over StreamMutations with a bounded number in flight and
// settles them in their order. It is a single loop: the only other goroutine
// receives, so that a slow sender never blocks the server's answers.
//
// Edges are idempotent, so whatever was not answered is sent again after a fault: over
// a new stream where the server was away, one by one by MutateEdges where it refused
// or half failed. Rows that took effect without an answer then count as already there.
type loader struct {
	client   lianav1.GraphClient
	wait     lianav1.Wait
	inFlight int
	timeout  time.Duration // of a unary call
	stall    time.Duration // of the stream
	// How long the server may fail without a batch getting through.
	retryFor time.Duration
	source   batchSource
	// Called for each batch, in order, once it is settled. An error ends the load.
	settled func(*batch, settlement) error

	pending []*batch // sent or to be sent, oldest first; at most inFlight
	// The sequence of pending[0].
	sequence uint64
	// The source is done, by endErr where not nil.
	ended  bool
	endErr error
	// When a batch last got through.
	progressed time.Time
}

// run loads everything and returns the first error, after settling what it can.
func (l *loader) run(ctx context.Context) error {
	l.progressed = time.Now()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		before := l.sequence
		err := l.stream(ctx)
		if l.sequence > before {
			pause = minPause
		}
		var fatal *fatalError
		switch {
		case err == nil:
			return l.endErr
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &fatal):
			return fatal.error
		case refused(err):
			err = l.isolate(ctx)
		case retryable(err):
			err = l.sleep(ctx, pause, err)
		}
		if err != nil {
			return err
		}
	}
}

const (
	minPause = 100 * time.Millisecond
	maxPause = 2 * time.Second
)

// sleep waits before the next attempt, or gives up with cause.
func (l *loader) sleep(ctx context.Context, pause time.Duration, cause error) error {
	if time.Since(l.progressed) > l.retryFor {
		return annotate(cause, fmt.Sprintf("given up after %s of attempts", l.retryFor))
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fatalError ends the load: it is not the server's.
type fatalError struct{ error }

// stream runs one stream until all is settled (nil) or it breaks.
func (l *loader) stream(ctx context.Context) error {
	ctx, dog, cancel := newWatchdog(ctx, l.stall)
	s := &mutationStream{acks: make(chan ack, l.inFlight+1), dog: dog}
	var err error
	if s.stream, err = l.client.StreamMutations(ctx); err != nil {
		cancel()
		return err
	}
	go s.receive()
	defer s.close(cancel)
	for i, b := range l.pending {
		s.send(l.sequence+uint64(i), b, l.wait)
	}
	for {
		l.fill(s)
		if len(l.pending) == 0 {
			s.finish()
			return nil
		}
		oldest := l.pending[0]
		var answer *lianav1.StreamMutationsResponse
		if len(oldest.mutations) > 0 {
			if answer, err = s.next(ctx, l.sequence); err != nil {
				return err
			}
		}
		dog.pause()
		if err := l.settle(ctx, oldest, answer.GetOutcomes(), answer.GetErrors()); err != nil {
			return err
		}
		dog.feed()
	}
}

// fill takes batches from the source until the window is full.
func (l *loader) fill(s *mutationStream) {
	for !l.ended && !s.broken && len(l.pending) < l.inFlight {
		b, err := l.source.next()
		if err != nil {
			l.ended = true
			if !errors.Is(err, io.EOF) {
				l.endErr = err
			}
			return
		}
		s.send(l.sequence+uint64(len(l.pending)), b, l.wait)
		l.pending = append(l.pending, b)
	}
}

// done hands over a settled batch, which is pending[0].
func (l *loader) done(b *batch, s settlement) error {
	l.pending[0] = nil
	l.pending = l.pending[1:]
	l.sequence++
	l.progressed = time.Now()
	if err := l.settled(b, s); err != nil {
		return &fatalError{err}
	}
	return nil
}

// mutationStream is one open stream.
type mutationStream struct {
	stream grpc.BidiStreamingClient[lianav1.StreamMutationsRequest, lianav1.StreamMutationsResponse]
	dog    *watchdog
	// Holds as many answers as there can be, so that receive never waits for its reader.
	acks chan ack
	// Sending failed; the reason comes through acks, after the answers before it.
	broken bool
}

type ack struct {
	answer *lianav1.StreamMutationsResponse
	err    error
}

func (s *mutationStream) receive() {
	defer close(s.acks)
	for {
		answer, err := s.stream.Recv()
		s.acks <- ack{answer, err}
		if err != nil {
			return
		}
	}
}

// finish lets the server end a stream on which all is answered. How it does so
// changes nothing any more.
func (s *mutationStream) finish() {
	_ = s.stream.CloseSend()
	<-s.acks
}

// close cancels the stream and waits for receive.
func (s *mutationStream) close(cancel context.CancelFunc) {
	cancel()
	for range s.acks {
	}
}

func (s *mutationStream) send(sequence uint64, b *batch, wait lianav1.Wait) {
	if s.broken || len(b.mutations) == 0 {
		return
	}
	err := s.stream.Send(&lianav1.StreamMutationsRequest{Sequence: sequence, Mutations: b.mutations, Wait: wait})
	s.broken = err != nil
}

// next returns the answer of the batch with the given sequence.
func (s *mutationStream) next(ctx context.Context, sequence uint64) (*lianav1.StreamMutationsResponse, error) {
	a := <-s.acks
	switch {
	case errors.Is(a.err, io.EOF):
		return nil, status.Error(codes.Unavailable, "the server ended the stream before all was answered")
	case a.err != nil && errors.Is(context.Cause(ctx), errStalled):
		return nil, status.Error(codes.Unavailable, fmt.Sprintf("%v for %s", errStalled, s.dog.limit))
	case a.err != nil:
		return nil, a.err
	case a.answer.GetSequence() != sequence:
		return nil, &fatalError{fmt.Errorf("the server answered batch %d where %d was due", a.answer.GetSequence(), sequence)}
	}
	return a.answer, nil
}
