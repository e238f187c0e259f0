package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// Cluster is what operators ask of the cluster that a node belongs to.
type Cluster interface {
	Overview(ctx context.Context) (*pb.GetClusterResponse, error)
	Drain(ctx context.Context, node string) error
	Activate(ctx context.Context, node string) error
	Remove(ctx context.Context, node string) error
	// SplitShard calls progress from one goroutine until the shard is two. at is the first
	// slot of the new one; 0: where the data has its middle.
	SplitShard(ctx context.Context, shard uint32, at uint16, progress func(*pb.SplitShardResponse) error) error
	// Rebalance calls progress from one goroutine until the cluster is even.
	Rebalance(ctx context.Context, dryRun bool, progress func(*pb.RebalanceResponse) error) error
	SetReplication(ctx context.Context, replicas int) error
	// Check checks all nodes, that the replicas of a shard say the same, and edges whose
	// ends lie on different nodes.
	Check(ctx context.Context, progress func(graph.CheckProgress)) (graph.CheckReport, error)
	// PutSchema puts a schema into force that extends the present one, and returns the one
	// that is in force then.
	PutSchema(ctx context.Context, next *graph.Schema) (now *graph.Schema, changed bool, err error)
}

var (
	// ErrNoCluster: the server was attached without a cluster.
	ErrNoCluster = errors.New("the node has no cluster")
	// ErrClusterRefused: an operation on the cluster is not possible now, or never. Its
	// text says what to do.
	ErrClusterRefused = errors.New("refused")
)

// clusterService is liana.v1.Cluster.
type clusterService struct {
	pb.UnimplementedClusterServer
	*calls
}

func (s *clusterService) cluster() (Cluster, error) {
	if c := s.attached.Load().Cluster; c != nil {
		return c, nil
	}
	return nil, ErrNoCluster
}

func (s *clusterService) GetCluster(ctx context.Context, _ *pb.GetClusterRequest) (*pb.GetClusterResponse, error) {
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	return c.Overview(ctx)
}

// named makes a change that concerns one node.
func (s *clusterService) named(ctx context.Context, node string, change func(Cluster, context.Context, string) error) error {
	if node == "" {
		return invalid("node", "the id of a node of the cluster", "is empty")
	}
	c, err := s.cluster()
	if err != nil {
		return err
	}
	return change(c, ctx, node)
}

func (s *clusterService) DrainNode(ctx context.Context, req *pb.DrainNodeRequest) (*pb.DrainNodeResponse, error) {
	return &pb.DrainNodeResponse{}, s.named(ctx, req.GetNode(), Cluster.Drain)
}

func (s *clusterService) ActivateNode(ctx context.Context, req *pb.ActivateNodeRequest) (*pb.ActivateNodeResponse, error) {
	return &pb.ActivateNodeResponse{}, s.named(ctx, req.GetNode(), Cluster.Activate)
}

func (s *clusterService) RemoveNode(ctx context.Context, req *pb.RemoveNodeRequest) (*pb.RemoveNodeResponse, error) {
	return &pb.RemoveNodeResponse{}, s.named(ctx, req.GetNode(), Cluster.Remove)
}

func (s *clusterService) SplitShard(req *pb.SplitShardRequest, stream grpc.ServerStreamingServer[pb.SplitShardResponse]) error {
	c, err := s.cluster()
	if err != nil {
		return err
	}
	if at := req.GetAt(); at >= graph.NumSlots {
		return &graph.InvalidError{
			Field: "at", Limit: fmt.Sprintf("1 to %d, or 0 for the middle", graph.NumSlots-1), Msg: fmt.Sprint(at),
		}
	}
	return c.SplitShard(stream.Context(), req.GetShard(), uint16(req.GetAt()), stream.Send)
}

func (s *clusterService) Rebalance(req *pb.RebalanceRequest, stream grpc.ServerStreamingServer[pb.RebalanceResponse]) error {
	c, err := s.cluster()
	if err != nil {
		return err
	}
	return c.Rebalance(stream.Context(), req.GetDryRun(), stream.Send)
}

func (s *clusterService) SetReplication(ctx context.Context, req *pb.SetReplicationRequest) (*pb.SetReplicationResponse, error) {
	n := req.GetReplicas()
	if n == 0 || n > 7 || n%2 == 0 {
		return nil, invalid("replicas", "1, 3, 5 or 7", "%d", n)
	}
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	return &pb.SetReplicationResponse{}, c.SetReplication(ctx, int(n))
}
