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
		req *pb.StreamMutationsRequest
		err error
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
	s.receivers.Go(func() {
		for {
			req, err := stream.Recv()
			select {
			case next <- received{req, err}:
			case <-done:
				return
			}
			if err != nil {
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
		if r.err != nil {
			return r.err
		}
		if err := s.answerBatch(stream, r.req); err != nil {
			return err
		}
	}
}

func (s *graphService) answerBatch(stream mutationStream, req *pb.StreamMutationsRequest) error {
	ctx, cancel := context.WithTimeout(stream.Context(), s.limits.MaxCallTime)
	defer cancel()
	a, err := s.mutateBatch(ctx, req.GetMutations(), req.GetWait())
	if err != nil {
		return annotate(err, "sequence", strconv.FormatUint(req.GetSequence(), 10))
	}
	return stream.Send(&pb.StreamMutationsResponse{
		Sequence: req.GetSequence(), Outcomes: a.outcomes, Errors: a.errors, Token: a.token,
	})
}
