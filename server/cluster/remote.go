package cluster

import (
	"context"
	"sync"

	"github.com/lianadb/liana/kv/catalog"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// ask returns what the nodes of the map tell of their replicas; those that do not
// answer are absent.
func (m *Member) ask(ctx context.Context, mp *catalog.Map) map[string]*peerv1.GetReplicasResponse {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[string]*peerv1.GetReplicasResponse{}
	for _, n := range mp.Nodes {
		if n.State == catalog.Removed {
			continue
		}
		wg.Go(func() {
			res, err := m.at(n.ID).report(ctx)
			if err != nil {
				return
			}
			mu.Lock()
			out[n.ID] = res
			mu.Unlock()
		})
	}
	wg.Wait()
	return out
}

// at is a node as this one calls it: itself without the network.
func (m *Member) at(node string) remote { return remote{m, node} }

// remote is a node whose replicas are made, changed and removed.
type remote struct {
	m    *Member
	node string
}

func (r remote) own() bool { return r.node == r.m.cfg.Self.ID }

func (r remote) report(ctx context.Context) (*peerv1.GetReplicasResponse, error) {
	if r.own() {
		return r.m.report()
	}
	c, err := r.m.cfg.Pool.Client(r.node)
	if err != nil {
		return nil, err
	}
	return c.GetReplicas(ctx)
}

func (r remote) prepare(ctx context.Context, id uint32) (string, error) {
	if r.own() {
		return r.m.replicas.prepare(id)
	}
	c, err := r.m.cfg.Pool.Client(r.node)
	if err != nil {
		return "", err
	}
	res, err := c.PrepareReplica(ctx, &peerv1.PrepareReplicaRequest{Shard: id})
	return res.GetReplica(), err
}

func (r remote) destroy(ctx context.Context, id uint32, replica string) error {
	if r.own() {
		return r.m.replicas.destroy(id, replica)
	}
	c, err := r.m.cfg.Pool.Client(r.node)
	if err != nil {
		return err
	}
	_, err = c.DestroyReplica(ctx, &peerv1.DestroyReplicaRequest{Shard: id, Replica: replica})
	return err
}

func (r remote) change(ctx context.Context, id uint32, kind peerv1.ChangeMembersRequest_Change, replica string) error {
	req := &peerv1.ChangeMembersRequest{Shard: id, Change: kind, Replica: replica}
	if r.own() {
		return r.m.replicas.change(ctx, req)
	}
	c, err := r.m.cfg.Pool.Client(r.node)
	if err != nil {
		return err
	}
	_, err = c.ChangeMembers(ctx, req)
	return err
}
