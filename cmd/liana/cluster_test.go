package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// GetCluster tells of two nodes, and of a shard that moves and is split.
func (f *fakeServer) GetCluster(context.Context, *lianav1.GetClusterRequest) (*lianav1.GetClusterResponse, error) {
	return &lianav1.GetClusterResponse{
		ClusterId: f.cluster, Replication: 1, MapVersion: 7, Level: 2,
		Nodes: []*lianav1.ClusterNode{
			{Id: "aaaa-1", PeerAddr: "h:1", GrpcAddr: "h:2", Roles: []string{"gateway", "storage"}, State: "active", Reachable: true, Replicas: 1, Leaders: 1},
			{Id: "bbbb-2", PeerAddr: "h:3", Roles: []string{"storage"}, State: "draining"},
		},
		Shards: []*lianav1.ClusterShard{
			{Id: 0, LastSlot: 2047, Leader: "aaaa-1", Replicas: []*lianav1.ClusterReplica{{Node: "aaaa-1", Voter: true}}, SplittingInto: 5, SplittingAt: 1024},
			{Id: 1, FirstSlot: 2048, LastSlot: 4095, Replicas: []*lianav1.ClusterReplica{{Node: "bbbb-2", Voter: true, Fault: "corrupt page"}}, MovingFrom: "bbbb-2", MovingTo: "aaaa-1"},
		},
		Remarks: []string{"node bbbb-2 does not answer"},
	}, nil
}

func (f *fakeServer) SplitShard(req *lianav1.SplitShardRequest, stream grpc.ServerStreamingServer[lianav1.SplitShardResponse]) error {
	f.note("split", req)
	for i := range 3 {
		done := i == 2
		if done && req.GetShard() == 9 {
			return nil // as a server that is stopped
		}
		if err := stream.Send(&lianav1.SplitShardResponse{NewShard: 5, At: 1024, Done: done, Phase: map[bool]string{true: "shard 5 has slots 1024 to 2047"}[done]}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeServer) Rebalance(req *lianav1.RebalanceRequest, stream grpc.ServerStreamingServer[lianav1.RebalanceResponse]) error {
	f.note("rebalance", req)
	for i := range uint32(3) {
		if err := stream.Send(&lianav1.RebalanceResponse{MovesDone: i, MovesLeft: 2 - i, Done: i == 2, Moves: []string{"shard 1: bbbb to aaaa"}}); err != nil {
			return err
		}
	}
	return nil
}

// PutSchema takes each text but "bad", and knows the one that it has.
func (f *fakeServer) PutSchema(_ context.Context, req *lianav1.PutSchemaRequest) (*lianav1.PutSchemaResponse, error) {
	old, _ := f.last["schema"].(*lianav1.PutSchemaRequest)
	f.note("schema", req)
	if strings.HasPrefix(req.GetYaml(), "bad") {
		return nil, status.Error(codes.InvalidArgument, "edge type like is missing")
	}
	return &lianav1.PutSchemaResponse{Version: 2, Changed: old.GetYaml() != req.GetYaml()}, nil
}

// note keeps the newest request of a call.
func (f *fakeServer) note(call string, req any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[call] = req
}

func TestClusterStatus(t *testing.T) {
	_, addr := startFake(t)
	out := must(t, "cluster", "status", "--addr", addr)
	for _, text := range []string{
		"version 7, level 2", "draining, UNREACHABLE",
		"aaaa, splitting: slots from 1024 on go to shard 5",
		"NONE", "bbbb (corrupt page), moving from bbbb to aaaa", "node bbbb-2 does not answer",
	} {
		if !strings.Contains(out, text) {
			t.Errorf("status lacks %q:\n%s", text, out)
		}
	}
	s := asMessage(t, new(lianav1.GetClusterResponse), "cluster", "status", "--addr", addr).GetShards()[0]
	if s.GetSplittingInto() != 5 || s.GetSplittingAt() != 1024 {
		t.Errorf("a split in JSON: %v", s)
	}
}

func TestClusterSplitAndRebalanceWaitForTheEnd(t *testing.T) {
	f, addr := startFake(t)
	if out := must(t, "cluster", "split", "0", "--at", "1024", "--addr", addr); out != "shard 5 has slots 1024 to 2047\n" {
		t.Errorf("split says %q", out)
	}
	if req := f.last["split"].(*lianav1.SplitShardRequest); req.GetShard() != 0 || req.GetAt() != 1024 {
		t.Errorf("asked for %v", req)
	}
	if s := asMessage(t, new(lianav1.SplitShardResponse), "cluster", "split", "0", "--addr", addr); s.GetNewShard() != 5 {
		t.Errorf("split in JSON: %v", s)
	}
	liana("cluster", "split", "9", "--addr", addr).expect(t, 1, "before it was done")
	liana("cluster", "split", "x", "--addr", addr).expect(t, exitUsage, "want a number")
	if out := must(t, "cluster", "rebalance", "--dry-run", "--addr", addr); out != "shard 1: bbbb to aaaa\nmoves made: 2, left: 0\n" {
		t.Errorf("rebalance says %q", out)
	}
	if !f.last["rebalance"].(*lianav1.RebalanceRequest).GetDryRun() {
		t.Error("--dry-run was not asked for")
	}
}

func TestSchemaPut(t *testing.T) {
	f, addr := startFake(t)
	file := write(t, "vertex_types: []\n")
	if out := must(t, "schema", "put", file, "--addr", addr); out != "version 2 is in force\n" {
		t.Errorf("put says %q", out)
	}
	if got := f.last["schema"].(*lianav1.PutSchemaRequest).GetYaml(); got != "vertex_types: []\n" {
		t.Errorf("the server was sent %q", got)
	}
	if out := must(t, "schema", "put", file, "--addr", addr); out != "version 2 says the same already\n" {
		t.Errorf("put again says %q", out)
	}
	if a := asMessage(t, new(lianav1.PutSchemaResponse), "schema", "put", file, "--addr", addr); a.GetChanged() || a.GetVersion() != 2 {
		t.Errorf("put in JSON: %v", a)
	}
	liana("schema", "put", write(t, "bad"), "--addr", addr).expect(t, 1, "edge type like is missing")
	liana("schema", "put", file+".none", "--addr", addr).expect(t, 1, "no such file")
	liana("schema", "put", "--addr", addr).expect(t, exitUsage)
}
