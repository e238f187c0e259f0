package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/shard"
)

// Survivor is what a stopped node has, as it tells for a recovery.
type Survivor struct {
	ClusterID string         `json:"cluster_id"`
	Node      string         `json:"node"`
	Map       []byte         `json:"map"` // the last map it knew
	Shards    []shard.Remain `json:"shards"`
}

// Recovery is what to do about a cluster of which only some nodes are left. It follows
// from what they tell alone, so each of them comes to the same.
type Recovery struct {
	Lost   []string // nodes that are given up
	Shards []RecoveredShard
	// Edits bring the catalog to what is left. Its own group takes them first.
	Edits []catalog.Edit
}

// RecoveredShard is a shard that has a majority no more.
type RecoveredShard struct {
	ID uint32
	// Newest is the replica that becomes the only one; Others are to be destroyed.
	Newest shard.Remain
	Node   string
	Others []shard.Remain
	Lost   int // voters that are lost
}

// Reasons why there is nothing to recover, or no way.
var (
	// ErrMajorityLives: every shard has a majority among the nodes that are left.
	ErrMajorityLives = errors.New("every shard has a majority among these nodes: start them, and remove the lost ones with `liana cluster remove-node`")
	// ErrNotSurvivors: the nodes do not belong together, or lack a shard.
	ErrNotSurvivors = errors.New("these nodes cannot be recovered")
)

// PlanRecovery says how the nodes that are left become a cluster again.
func PlanRecovery(survivors []Survivor) (*Recovery, error) {
	mp, left, err := newestMap(survivors)
	if err != nil {
		return nil, err
	}
	r := &Recovery{}
	for _, n := range mp.Nodes {
		if n.State != catalog.Removed && !slices.Contains(left, n.ID) {
			r.Lost = append(r.Lost, n.ID)
		}
	}
	for _, s := range append([]catalog.Shard{mp.Catalog}, mp.Shards...) {
		if err := r.addShard(s.ID, survivors, left); err != nil {
			return nil, err
		}
	}
	if len(r.Shards) == 0 {
		return nil, ErrMajorityLives
	}
	for _, s := range r.Shards {
		r.Edits = append(r.Edits, catalog.CancelMove{Shard: s.ID},
			catalog.SetReplicas{Shard: s.ID, Replicas: []catalog.Replica{{Node: s.Node, ID: s.Newest.Replica}}})
	}
	for _, id := range r.Lost {
		r.Edits = append(r.Edits, catalog.SetNodeState{ID: id, State: catalog.Leaving})
	}
	return r, nil
}

// newestMap returns the newest map that the survivors know, and their ids.
func newestMap(survivors []Survivor) (*catalog.Map, []string, error) {
	var newest *catalog.Map
	var left []string
	for _, s := range survivors {
		m, err := catalog.DecodeMap(s.Map)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: the map of node %s: %w", ErrNotSurvivors, s.Node, err)
		}
		switch {
		case s.ClusterID != survivors[0].ClusterID:
			return nil, nil, fmt.Errorf("%w: node %s is of cluster %s, node %s of cluster %s",
				ErrNotSurvivors, s.Node, s.ClusterID, survivors[0].Node, survivors[0].ClusterID)
		case slices.Contains(left, s.Node):
			return nil, nil, fmt.Errorf("%w: node %s is there twice", ErrNotSurvivors, s.Node)
		}
		left = append(left, s.Node)
		if newest == nil || m.Version > newest.Version {
			newest = m
		}
	}
	if newest == nil || newest.Version == 0 {
		return nil, nil, fmt.Errorf("%w: no node knows the map of its cluster", ErrNotSurvivors)
	}
	for _, id := range left {
		if n := newest.Node(id); n == nil || n.State == catalog.Removed {
			return nil, nil, fmt.Errorf("%w: node %s is not one of the cluster's any more", ErrNotSurvivors, id)
		}
	}
	return newest, left, nil
}

// addShard adds what to do about a shard, if it has lost its majority.
func (r *Recovery) addShard(id uint32, survivors []Survivor, left []string) error {
	var have []shard.Remain
	for _, s := range survivors {
		for _, rem := range s.Shards {
			if rem.Shard == id && rem.Last > 0 {
				have = append(have, rem)
			}
		}
	}
	if len(have) == 0 {
		name := fmt.Sprintf("shard %d", id)
		if id == catalogShard {
			name = "the catalog"
		}
		return fmt.Errorf("%w: none has a copy of %s. Find a node that has, or its data directory", ErrNotSurvivors, name)
	}
	slices.SortFunc(have, newerFirst)
	newest := have[0]
	if shard.MajorityOf(newest.Members, left) {
		return nil
	}
	lost := 0
	for _, m := range newest.Members {
		if m.Voter && !slices.Contains(left, m.Node) {
			lost++
		}
	}
	r.Shards = append(r.Shards, RecoveredShard{
		ID: id, Newest: newest, Node: shard.NodeOf(newest.Replica), Others: have[1:], Lost: lost,
	})
	return nil
}

// newerFirst orders replicas by their logs, as an election would: those that vote before
// those that were only catching up.
func newerFirst(a, b shard.Remain) int {
	return cmp.Or(
		-compareBool(votes(a), votes(b)),
		-cmp.Compare(a.Term, b.Term),
		-cmp.Compare(a.Last, b.Last),
		cmp.Compare(a.Replica, b.Replica),
	)
}

func votes(r shard.Remain) bool {
	return slices.ContainsFunc(r.Members, func(m shard.Member) bool { return m.Replica == r.Replica && m.Voter })
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// CatalogCommands are what the catalog's group applies first.
func (r *Recovery) CatalogCommands() ([][]byte, error) {
	var out [][]byte
	for _, e := range r.Edits {
		cmd, err := catalog.Command(catalog.AnyVersion, e)
		if err != nil {
			return nil, err
		}
		out = append(out, cmd)
	}
	return out, nil
}
