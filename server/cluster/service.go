package cluster

import (
	"context"

	"github.com/lianadb/liana/kv/catalog"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
	"github.com/lianadb/liana/server/peer"
)

// service serves the Cluster calls of other nodes: decode, call, encode.
type service struct {
	peerv1.UnimplementedClusterServer
	m *Member
}

// Service returns what the peer port serves for m.
func (m *Member) Service() peerv1.ClusterServer { return &service{m: m} }

func (s *service) Join(ctx context.Context, req *peerv1.JoinRequest) (*peerv1.JoinResponse, error) {
	err := s.m.Edit(ctx, catalog.AnyVersion, catalog.RegisterNode{
		ID: req.GetNodeId(), PeerAddr: req.GetPeerAddr(), GRPCAddr: req.GetGrpcAddr(),
		Gateway: req.GetGateway(), Storage: req.GetStorage(), Zone: req.GetZone(), Level: max(req.GetLevel(), catalog.FirstLevel),
	})
	if err != nil {
		return nil, peer.StatusOf(err)
	}
	// This node may not have seen the edit yet; the map need not show it.
	return &peerv1.JoinResponse{Map: s.m.Map().Encode()}, nil
}

func (s *service) WatchMap(req *peerv1.WatchMapRequest, stream peerv1.Cluster_WatchMapServer) error {
	have := req.GetHaveVersion()
	for {
		select {
		case <-s.m.cfg.Board.Newer(have):
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		m := s.m.Map()
		if err := stream.Send(&peerv1.WatchMapResponse{Map: m.Since(have).Encode()}); err != nil {
			return err
		}
		have = m.Version
	}
}

func (s *service) Propose(ctx context.Context, req *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	res, err := s.m.replicas.catalog.propose(ctx, req.GetCommand())
	if err != nil {
		return nil, peer.StatusOf(err)
	}
	return wireResult(res), nil
}

func (s *service) PrepareReplica(_ context.Context, req *peerv1.PrepareReplicaRequest) (*peerv1.PrepareReplicaResponse, error) {
	replica, err := s.m.replicas.prepare(req.GetShard())
	if err != nil {
		return nil, peer.StatusOf(err)
	}
	return &peerv1.PrepareReplicaResponse{Replica: replica}, nil
}

func (s *service) DestroyReplica(_ context.Context, req *peerv1.DestroyReplicaRequest) (*peerv1.DestroyReplicaResponse, error) {
	if err := s.m.replicas.destroy(req.GetShard(), req.GetReplica()); err != nil {
		return nil, peer.StatusOf(err)
	}
	return &peerv1.DestroyReplicaResponse{}, nil
}

func (s *service) ChangeMembers(ctx context.Context, req *peerv1.ChangeMembersRequest) (*peerv1.ChangeMembersResponse, error) {
	if err := s.m.replicas.change(ctx, req); err != nil {
		return nil, peer.StatusOf(err)
	}
	return &peerv1.ChangeMembersResponse{}, nil
}

func (s *service) SplitShard(ctx context.Context, req *peerv1.SplitShardRequest) (*peerv1.SplitShardResponse, error) {
	at, err := s.m.replicas.split(ctx, req)
	if err != nil {
		return nil, peer.StatusOf(err)
	}
	return &peerv1.SplitShardResponse{At: uint32(at)}, nil
}

func (s *service) GetReplicas(context.Context, *peerv1.GetReplicasRequest) (*peerv1.GetReplicasResponse, error) {
	rep, err := s.m.report()
	if err != nil {
		return nil, peer.StatusOf(err)
	}
	return rep, nil
}
