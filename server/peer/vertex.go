package peer

import (
	"context"

	"github.com/lianadb/liana/graph"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

func (c *calls) ChangeVertex(ctx context.Context, req *peerv1.ChangeVertexRequest) (*peerv1.VertexJob, error) {
	v := graph.Vertex{Type: graph.VertexType(req.GetVertexType()), ID: req.GetVertexId()}
	job, err := c.local.VertexJob(ctx, graph.VertexOp(req.GetOp()), v)
	if err != nil {
		return nil, StatusOf(err)
	}
	return wireVertexJob(job), nil
}

func (c *calls) GetShardJobs(ctx context.Context, req *peerv1.GetShardJobsRequest) (*peerv1.GetShardJobsResponse, error) {
	jobs, err := c.local.ShardJobs(ctx, req.GetShard())
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.GetShardJobsResponse{
		Vertices: each(jobs.Vertices, wireVertexJob),
		Backfills: each(jobs.Backfills, func(b graph.Backfill) *peerv1.Backfill {
			return &peerv1.Backfill{VertexType: uint32(b.Vertex), Metric: uint32(b.Metric), Done: b.Done}
		}),
	}, nil
}

// VertexJob implements graph.Service.
func (c *Client) VertexJob(ctx context.Context, op graph.VertexOp, v graph.Vertex) (graph.VertexJob, error) {
	res, err := call(ctx, c, op != graph.VertexLook, c.calls.ChangeVertex, &peerv1.ChangeVertexRequest{
		Op: uint32(op), VertexType: uint32(v.Type), VertexId: v.ID,
	})
	if err != nil {
		return graph.VertexJob{}, err
	}
	return vertexJob(res), nil
}

// ShardJobs implements graph.Service.
func (c *Client) ShardJobs(ctx context.Context, shard uint32) (graph.ShardJobs, error) {
	res, err := call(ctx, c, false, c.calls.GetShardJobs, &peerv1.GetShardJobsRequest{Shard: shard})
	if err != nil {
		return graph.ShardJobs{Shard: shard}, err
	}
	return graph.ShardJobs{
		Shard: shard, Vertices: each(res.GetVertices(), vertexJob),
		Backfills: each(res.GetBackfills(), func(b *peerv1.Backfill) graph.Backfill {
			return graph.Backfill{Vertex: graph.VertexType(b.GetVertexType()), Metric: graph.Metric(b.GetMetric()), Done: b.GetDone()}
		}),
	}, nil
}

func wireVertexJob(j graph.VertexJob) *peerv1.VertexJob {
	return &peerv1.VertexJob{
		VertexType: uint32(j.Vertex.Type), VertexId: j.Vertex.ID, State: uint32(j.State), Began: j.Began, Total: j.Total, Done: j.Done,
	}
}

func vertexJob(j *peerv1.VertexJob) graph.VertexJob {
	return graph.VertexJob{
		Vertex: graph.Vertex{Type: graph.VertexType(j.GetVertexType()), ID: j.GetVertexId()},
		State:  graph.VertexState(j.GetState()), Began: j.GetBegan(), Total: j.GetTotal(), Done: j.GetDone(),
	}
}
