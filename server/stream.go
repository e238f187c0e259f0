package server

import (
	"context"
	"errors"
	"io"
	"strconv"

	"google.golang.org/grpc"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

type (
	mutationStream = grpc.BidiStreamingServer[pb.StreamMutationsRequest, pb.StreamMutationsResponse]
	// received is what one Recv returned.
	received struct {
		req  *pb.StreamMutationsRequest
		err  error
		size int64 // held
	}
)

// StreamMutations applies batches one after the other, so that the mutations
// of a source vertex keep their order across batches, and reads the next batch
// meanwhile. What a client sends beyond that waits in its own flow-control
// window. A batch that is refused as a whole ends the stream: those behind it
// must not overtake it. The client goes on with a new stream after the last
// sequence that was answered.
func (s *graphService) StreamMutations(stream mutationStream) error {
	next, done := make(chan received), make(chan struct{})
	defer close(done)
	s.waiters.Go(func() {
		for {
			r := s.receive(stream)
			select {
			case next <- r:
			case <-done:
				s.bytes.Add(-r.size)
				return
			}
			if r.err != nil {
				return
			}
		}
	})
	for {
		select {
		case <-s.stopping.Done():
			return errStopping
		default:
		}
		r := <-next // a stop ends Recv
		if errors.Is(r.err, io.EOF) {
			return nil
		}
		if err := s.answer(stream, r); err != nil {
			return err
		}
	}
}

func (s *graphService) answer(stream mutationStream, r received) error {
	defer s.bytes.Add(-r.size)
	if r.err != nil {
		return r.err
	}
	return s.answerBatch(stream, r.req)
}

// receive waits for a batch, and refuses it when too much is being handled.
func (s *graphService) receive(stream mutationStream) (r received) {
	if r.req, r.err = stream.Recv(); r.err != nil {
		return r
	}
	if r.size, r.err = s.hold(r.req); r.err != nil {
		r.err = ofBatch(r.req, r.err)
	}
	return r
}

// ofBatch tells which batch an error refuses.
func ofBatch(req *pb.StreamMutationsRequest, err error) error {
	return annotate(err, "sequence", strconv.FormatUint(req.GetSequence(), 10))
}

func (s *graphService) answerBatch(stream mutationStream, req *pb.StreamMutationsRequest) error {
	ctx, cancel := context.WithTimeout(stream.Context(), s.limits.MaxCallTime)
	defer cancel()
	a, err := s.mutateBatch(ctx, req.GetMutations(), req.GetWait())
	if err != nil {
		return ofBatch(req, err)
	}
	return stream.Send(&pb.StreamMutationsResponse{
		Sequence: req.GetSequence(), Outcomes: a.outcomes, Errors: a.errors, Token: a.token,
	})
}
