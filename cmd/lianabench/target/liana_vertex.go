package target

import (
	"context"
	"time"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// VertexDeleter deletes notes, as only Liana does.
type VertexDeleter interface {
	// DeleteNote returns once the job has ended. progress is told its edges, and those
	// that it has passed.
	DeleteNote(ctx context.Context, note uint64, progress func(total, done uint64)) error
}

// DeleteNote implements VertexDeleter.
func (s *lianaServer) DeleteNote(ctx context.Context, note uint64, progress func(total, done uint64)) error {
	graph := lianav1.NewGraphClient(s.conns[0])
	v := &lianav1.Vertex{Type: noteType, Id: note}
	job, err := graph.DeleteVertex(ctx, &lianav1.DeleteVertexRequest{Vertex: v})
	for err == nil && job.GetState() != lianav1.VertexState_VERTEX_PLAIN {
		progress(job.GetTotal(), job.GetDone())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		job, err = graph.GetVertexJob(ctx, &lianav1.GetVertexJobRequest{Vertex: v})
	}
	return err
}
