package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lianadb/liana/kv/catalog"
	pb "github.com/lianadb/liana/proto/liana/v1"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
	"github.com/lianadb/liana/server"
)

var _ server.Cluster = (*Member)(nil)

// Overview implements server.Cluster: the map, and what the nodes tell of themselves.
func (m *Member) Overview(ctx context.Context) (*pb.GetClusterResponse, error) {
	mp := m.Map()
	reports := m.ask(ctx, mp)
	seen := observe(reports)
	out := &pb.GetClusterResponse{ClusterId: mp.ClusterID, MapVersion: mp.Version, Replication: uint32(mp.Replication), Level: mp.Level}
	for _, rep := range reports { // one of them leads the catalog
		out.Remarks = append(out.Remarks, rep.GetRemarks()...)
	}
	slices.Sort(out.Remarks)
	for _, n := range mp.Nodes {
		out.Nodes = append(out.Nodes, describeNode(n, reports[n.ID]))
	}
	for _, s := range append(slices.Clone(mp.Shards), mp.Catalog) {
		out.Shards = append(out.Shards, describeShard(s, seen[s.ID], reports))
	}
	return out, nil
}

func describeNode(n catalog.Node, rep *peerv1.GetReplicasResponse) *pb.ClusterNode {
	out := &pb.ClusterNode{
		Id: n.ID, PeerAddr: n.PeerAddr, GrpcAddr: n.GRPCAddr, Zone: n.Zone, State: n.State.String(), Reachable: rep != nil,
		Level: n.Level,
	}
	if n.Gateway {
		out.Roles = append(out.Roles, "gateway")
	}
	if n.Storage {
		out.Roles = append(out.Roles, "storage")
	}
	for _, r := range rep.GetReplicas() {
		if r.GetShard() == catalogShard {
			continue
		}
		out.Replicas++
		if r.GetLeader() {
			out.Leaders++
		}
	}
	return out
}

func describeShard(s catalog.Shard, seen seenShard, reports map[string]*peerv1.GetReplicasResponse) *pb.ClusterShard {
	out := &pb.ClusterShard{
		Id: s.ID, FirstSlot: uint32(s.First), LastSlot: uint32(s.Last), Catalog: s.ID == catalogShard, Leader: seen.leader,
	}
	if out.Catalog {
		out.FirstSlot, out.LastSlot = 0, 0
	}
	if s.Moving != nil {
		out.MovingFrom, out.MovingTo = s.Moving.From, s.Moving.To
	}
	if s.Splitting != nil {
		out.SplittingInto, out.SplittingAt = s.Splitting.New, uint32(s.Splitting.At)
	}
	for _, m := range seen.members {
		out.Replicas = append(out.Replicas, &pb.ClusterReplica{
			Node: m.node, Replica: m.replica, Voter: m.voter, Lag: m.lag, Fault: faultOf(reports[m.node], s.ID),
		})
	}
	if seen.leader == "" {
		for _, node := range wanted(&s) {
			out.Replicas = append(out.Replicas, &pb.ClusterReplica{Node: node, Fault: faultOf(reports[node], s.ID)})
		}
	}
	slices.SortFunc(out.Replicas, func(a, b *pb.ClusterReplica) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

func faultOf(rep *peerv1.GetReplicasResponse, id uint32) string {
	if rep == nil {
		return "the node does not answer"
	}
	for _, r := range rep.GetReplicas() {
		if r.GetShard() == id {
			return r.GetFault()
		}
	}
	return ""
}

// edit is Edit for operators: a refusal of the catalog is one of theirs.
func (m *Member) edit(ctx context.Context, version uint64, e catalog.Edit) error {
	err := m.Edit(ctx, version, e)
	for _, is := range refusals() {
		if errors.Is(err, is) {
			return refused(err)
		}
	}
	return err
}

func refused(err error) error { return fmt.Errorf("%w: %w", server.ErrClusterRefused, err) }

// Drain implements server.Cluster.
func (m *Member) Drain(ctx context.Context, node string) error {
	mp, sit := m.look(ctx)
	if err := catalog.CheckDrain(mp, node, sit); err != nil {
		return refused(err)
	}
	return m.edit(ctx, mp.Version, catalog.SetNodeState{ID: node, State: catalog.Draining})
}

// look returns the map and what can be seen of its nodes now.
func (m *Member) look(ctx context.Context) (*catalog.Map, catalog.Situation) {
	mp := m.Map()
	reports := m.ask(ctx, mp)
	sit := catalog.Situation{Away: map[string]bool{}, Leaders: map[uint32]string{}}
	for _, n := range mp.Nodes {
		sit.Away[n.ID] = reports[n.ID] == nil
	}
	for id, s := range observe(reports) {
		sit.Leaders[id] = s.leader
	}
	return mp, sit
}

// Activate implements server.Cluster.
func (m *Member) Activate(ctx context.Context, node string) error {
	return m.edit(ctx, m.Map().Version, catalog.SetNodeState{ID: node, State: catalog.Active})
}

// Remove implements server.Cluster. A node that does not answer and still holds copies
// leaves: they are made anew elsewhere at once, and then it is removed.
func (m *Member) Remove(ctx context.Context, node string) error {
	mp, sit := m.look(ctx)
	if err := catalog.CheckRemoval(mp, node, sit); err != nil {
		return refused(err)
	}
	state := catalog.Removed
	if holds(mp, node) {
		state = catalog.Leaving
	}
	return m.edit(ctx, mp.Version, catalog.SetNodeState{ID: node, State: state})
}

// SetReplication implements server.Cluster.
func (m *Member) SetReplication(ctx context.Context, replicas int) error {
	return m.edit(ctx, m.Map().Version, catalog.SetReplication{Copies: replicas})
}

// rebalanceEvery is the pause between looks at moves that are under way.
const rebalanceEvery = time.Second

// Rebalance implements server.Cluster. The catalog's leader begins and makes the moves
// by itself; this shows them.
func (m *Member) Rebalance(ctx context.Context, dryRun bool, progress func(*pb.RebalanceResponse) error) error {
	done := uint32(0)
	last := map[uint32]bool{}
	for {
		mp, sit := m.look(ctx)
		plan, now := catalog.MakePlan(mp, sit), movingShards(mp)
		for id := range last {
			if !now[id] {
				done++
			}
		}
		last = now
		left := len(plan.Steps) + len(now)
		res := &pb.RebalanceResponse{MovesDone: done, MovesLeft: uint32(left), Moves: inWords(mp, plan, dryRun), Done: dryRun || left == 0}
		if err := progress(res); err != nil || res.Done {
			return err
		}
		sleep(ctx, rebalanceEvery)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func movingShards(mp *catalog.Map) map[uint32]bool {
	out := map[uint32]bool{}
	for _, s := range mp.Shards {
		if s.Moving != nil {
			out[s.ID] = true
		}
	}
	return out
}

func inWords(mp *catalog.Map, plan catalog.Plan, dryRun bool) []string {
	var out []string
	for _, s := range append(slices.Clone(mp.Shards), mp.Catalog) {
		if mv := s.Moving; mv != nil {
			out = append(out, inWord(s.ID, mv.From, mv.To, "under way"))
		}
	}
	if dryRun {
		for _, s := range plan.Steps {
			out = append(out, inWord(s.Shard, s.From, s.To, s.Reason.String()))
		}
	}
	for _, s := range plan.Stuck {
		out = append(out, s.Why)
	}
	return out
}

func inWord(id uint32, from, to, why string) string {
	name := fmt.Sprintf("shard %d", id)
	if id == catalogShard {
		name = "the catalog"
	}
	switch {
	case from == "":
		return fmt.Sprintf("%s: a copy on %s (%s)", name, to, why)
	case to == "":
		return fmt.Sprintf("%s: no copy on %s any more (%s)", name, from, why)
	}
	return fmt.Sprintf("%s: from %s to %s (%s)", name, from, to, why)
}

// report is what this node tells of its replicas.
func (m *Member) report() (*peerv1.GetReplicasResponse, error) {
	replicas, err := m.replicas.report()
	if err != nil {
		return nil, err
	}
	return &peerv1.GetReplicasResponse{NodeId: m.cfg.Self.ID, Replicas: replicas, MapVersion: m.Map().Version, Remarks: m.lead.remarked()}, nil
}
