package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
	"github.com/lianadb/liana/server/peer"
)

// Shards are this node's replicas of the data shards. graph.Graph implements it.
type Shards interface {
	StartReplica(id uint32, join bool) error
	DestroyReplica(id uint32, replica string) error
	Group(id uint32) (*shard.Shard, error)
	Adopt(*graph.Schema)
	Schema() *graph.Schema
	Learn(claims []graph.Claim) error
	Split(ctx context.Context, id, child uint32, at graph.Slot) error
	SplitPoint(id uint32) (graph.Slot, error)
	peer.Auditor
}

// replicas makes, changes and removes the replicas of this node, those of the
// catalog included.
type replicas struct {
	node    *shard.Node
	shards  Shards
	catalog *catalogReplica
}

func (r *replicas) group(id uint32) (*shard.Shard, error) {
	if id == catalogShard {
		return r.catalog.group()
	}
	return r.shards.Group(id)
}

// prepare makes a replica of a shard that waits to be added, and starts it.
func (r *replicas) prepare(id uint32) (replica string, err error) {
	replica, err = r.node.NewReplica(id)
	if err != nil {
		return "", err
	}
	return replica, r.start(id, true)
}

func (r *replicas) start(id uint32, join bool) error {
	if id == catalogShard {
		return r.catalog.start(join)
	}
	return r.shards.StartReplica(id, join)
}

// destroy removes this node's replica of a shard if it is the one that is meant.
func (r *replicas) destroy(id uint32, replica string) error {
	if id == catalogShard {
		return r.catalog.destroy(replica)
	}
	return r.shards.DestroyReplica(id, replica)
}

// change makes one change of the members of a shard that this node leads.
func (r *replicas) change(ctx context.Context, req *peerv1.ChangeMembersRequest) error {
	g, err := r.group(req.GetShard())
	if err != nil {
		return err
	}
	switch req.GetChange() {
	case peerv1.ChangeMembersRequest_CHANGE_ADD_LEARNER:
		return g.AddLearner(ctx, req.GetReplica())
	case peerv1.ChangeMembersRequest_CHANGE_PROMOTE:
		return g.Promote(ctx, req.GetReplica())
	case peerv1.ChangeMembersRequest_CHANGE_REMOVE:
		return g.RemoveReplica(ctx, req.GetReplica())
	case peerv1.ChangeMembersRequest_CHANGE_TRANSFER_LEADERSHIP:
		return g.TransferLeadership(ctx, req.GetReplica())
	}
	return fmt.Errorf("change %v is unknown to this version of the program", req.GetChange())
}

// report tells what this node's replicas are doing.
func (r *replicas) report() ([]*peerv1.Replica, error) {
	ids, err := r.node.Replicas()
	if err != nil {
		return nil, err
	}
	var out []*peerv1.Replica
	for _, id := range ids {
		rep := &peerv1.Replica{Shard: id}
		g, err := r.group(id)
		if err != nil {
			rep.Replica, _ = r.node.ReplicaOf(id) // "" is told where it cannot be read
			noteFault(rep, err)
			rep.Failed = errors.Is(err, shard.ErrFault)
		} else {
			describe(rep, g)
		}
		out = append(out, rep)
	}
	return out, nil
}

func noteFault(rep *peerv1.Replica, err error) {
	rep.Fault, _, _ = strings.Cut(err.Error(), "\n") // a bug has its stack behind it
	rep.Failed, rep.Damaged = true, shard.Damaged(err)
}

func describe(rep *peerv1.Replica, g *shard.Shard) {
	st := g.Status()
	rep.Replica, rep.Leader, rep.Applied, rep.Term = st.Replica, st.Leading, st.Applied, st.Term
	rep.LeaderNode, _ = g.Leader()
	switch {
	case st.Fault != nil:
		noteFault(rep, st.Fault)
	case st.Sick != "":
		rep.Fault = "the disk is sick: " + st.Sick
	}
	if !st.Leading {
		return
	}
	for _, m := range g.Members() {
		rep.Members = append(rep.Members, &peerv1.Member{Replica: m.Replica, Voter: m.Voter})
	}
}
