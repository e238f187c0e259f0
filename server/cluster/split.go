package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/catalog"
	pb "github.com/lianadb/liana/proto/liana/v1"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// A split is an intent in the map first (BeginSplit). The node that leads the catalog has
// the shard's leader split it, as often as it takes; when the child is led, the map gives
// it its slots (SplitShard). Until then the child's replicas are looked for where the
// parent's are.

// splitEvery is the pause between looks at a split that is under way.
const splitEvery = 100 * time.Millisecond

// SplitShard implements server.Cluster.
func (m *Member) SplitShard(ctx context.Context, id uint32, at uint16, progress func(*pb.SplitShardResponse) error) error {
	v, err := m.beginSplit(ctx, id, at)
	if err != nil {
		return err
	}
	for {
		mp := m.Map()
		res := &pb.SplitShardResponse{NewShard: v.New, At: uint32(v.At), Done: mp.Shard(v.New) != nil}
		res.Phase = fmt.Sprintf("shard %d: slots from %d on go to shard %d", id, v.At, v.New)
		if res.Done {
			res.Phase = fmt.Sprintf("shard %d has slots %d to %d", v.New, v.At, mp.Shard(v.New).Last)
		}
		if err := progress(res); err != nil || res.Done {
			return err
		}
		sleep(ctx, splitEvery)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// beginSplit notes the split in the map. One that is under way already is gone on with.
func (m *Member) beginSplit(ctx context.Context, id uint32, at uint16) (catalog.Split, error) {
	mp := m.Map()
	s := mp.Shard(id)
	if s == nil || id == catalogShard {
		return catalog.Split{}, refused(fmt.Errorf("%w: shard %d", catalog.ErrUnknown, id))
	}
	if s.Splitting != nil && (at == 0 || at == s.Splitting.At) {
		return *s.Splitting, nil
	}
	if child := mp.ShardOf(at); at > 0 && child != nil && child.First == at && s.Last == at-1 {
		return catalog.Split{At: at, New: child.ID}, nil // done before
	}
	if at == 0 {
		var err error
		if at, err = m.middle(ctx, id); err != nil {
			return catalog.Split{}, err
		}
	}
	v := catalog.Split{At: at, New: mp.NextShard()}
	return v, m.edit(ctx, mp.Version, catalog.BeginSplit{Shard: id, At: v.At, New: v.New})
}

// middle asks a shard's leader where its data has the middle.
func (m *Member) middle(ctx context.Context, id uint32) (uint16, error) {
	_, sit := m.look(ctx)
	leader := sit.Leaders[id]
	if leader == "" {
		return 0, &graph.MovedError{Shard: id}
	}
	at, err := m.at(leader).split(ctx, id, 0, 0)
	if errors.Is(err, graph.ErrNoSplit) {
		return 0, refused(err)
	}
	return at, err
}

// splitOn brings a split that is under way one step on.
func (l *leader) splitOn(ctx context.Context, s *catalog.Shard, seen map[uint32]seenShard) {
	v, parent := *s.Splitting, seen[s.ID]
	if parent.leader == "" || !l.take(s.ID) {
		return
	}
	id, led := s.ID, seen[v.New].leader != ""
	l.work.Go(func() {
		defer l.release(id)
		ctx, cancel := context.WithTimeout(ctx, changeTime)
		defer cancel()
		var err error
		if led {
			err = l.m.Edit(ctx, catalog.AnyVersion, catalog.SplitShard{Shard: id, At: v.At, New: v.New})
		} else {
			_, err = l.m.at(parent.leader).split(ctx, id, v.New, v.At)
		}
		if err != nil && ctx.Err() == nil {
			l.m.cfg.Log.Warn("shard: its split failed and is tried again", "shard", id, "into", v.New, "at", v.At, "error", err)
		}
	})
}

// teach tells this node's shards who owns slots, whenever the map changes.
func (m *Member) teach(ctx context.Context) {
	for have := uint64(0); ; {
		select {
		case <-m.cfg.Board.Newer(have):
		case <-ctx.Done():
			return
		}
		mp := m.Map()
		have = mp.Version
		if err := m.replicas.shards.Learn(Claims(mp)); err != nil {
			m.cfg.Log.Error("map: its shards are not taken over", "error", err)
		}
	}
}

// Claims says who owns slots, as a map tells it.
func Claims(mp *catalog.Map) []graph.Claim {
	out := make([]graph.Claim, 0, len(mp.Shards))
	for _, s := range mp.Shards {
		out = append(out, graph.Claim{First: graph.Slot(s.First), Last: graph.Slot(s.Last), Shard: s.ID, Gen: s.Gen})
	}
	return out
}

func (r remote) split(ctx context.Context, id, child uint32, at uint16) (uint16, error) {
	req := &peerv1.SplitShardRequest{Shard: id, Child: child, At: uint32(at)}
	if r.own() {
		return r.m.replicas.split(ctx, req)
	}
	c, err := r.m.cfg.Pool.Client(r.node)
	if err != nil {
		return 0, err
	}
	res, err := c.SplitShard(ctx, req)
	return uint16(res.GetAt()), err
}

// split splits a shard that this node leads, or tells where its middle is.
func (r *replicas) split(ctx context.Context, req *peerv1.SplitShardRequest) (uint16, error) {
	if req.GetChild() == 0 {
		at, err := r.shards.SplitPoint(req.GetShard())
		return uint16(at), err
	}
	at := graph.Slot(min(req.GetAt(), graph.NumSlots))
	return uint16(at), r.shards.Split(ctx, req.GetShard(), req.GetChild(), at)
}
