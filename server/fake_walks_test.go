package server

import (
	"context"

	"github.com/lianadb/liana/graph"
)

// The fake answers no questions that take many lists: these are tested on the real domain.

func (f *fake) Traverse(ctx context.Context, opts graph.ReadOptions, _ graph.TraverseQuery, _ func([]graph.Reached) error) (graph.TraverseEnd, error) {
	return graph.TraverseEnd{}, f.read(ctx, opts)
}

func (f *fake) Combine(ctx context.Context, opts graph.ReadOptions, _ graph.SetQuery) (graph.SetPage, error) {
	return graph.SetPage{}, f.read(ctx, opts)
}

func (f *fake) IntersectMany(ctx context.Context, opts graph.ReadOptions, q graph.ManyQuery) ([]graph.ManyResult, string, error) {
	return make([]graph.ManyResult, len(q.Lists)), "", f.read(ctx, opts)
}

func (f *fake) VertexJob(ctx context.Context, _ graph.VertexOp, v graph.Vertex) (graph.VertexJob, error) {
	return graph.VertexJob{Vertex: v}, f.read(ctx, graph.ReadOptions{})
}

func (f *fake) Jobs(ctx context.Context) ([]graph.ShardJobs, error) {
	return nil, f.read(ctx, graph.ReadOptions{})
}

// Watch tells nothing but where it begins.
func (f *fake) Watch(ctx context.Context, _ graph.WatchQuery, tell func(graph.Watched) error) error {
	if err := tell(graph.Watched{Token: "here"}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}
