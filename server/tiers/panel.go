package tiers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/rediscache"
	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
	"github.com/lianadb/liana/server"
	"github.com/lianadb/liana/server/peer"
)

// Panel is what operators see of the caches, and do with them: of this node for others
// (peer.Copies), of all for who asks here (server.Cache).
type Panel struct {
	Graph *graph.Graph
	// Of a gateway; else all are nil.
	Reader  *cache.Reader
	Hot     *cache.Hot
	Auditor *cache.Auditor
	Tier    *rediscache.Tier
	Storage *Storage
	// Of a node with storage; else nil.
	Feeder *rediscache.Feeder

	Self string // id of this node
	// Others returns the other nodes, by their ids.
	Others func() map[string]peer.Copies
}

var (
	_ peer.Copies  = (*local)(nil)
	_ server.Cache = (*Panel)(nil)
)

// local is the caches of this node.
type local struct{ p *Panel }

// Local is what other nodes ask of this one.
func (p *Panel) Local() peer.Copies { return &local{p} }

// HotKeys implements peer.Copies.
func (l *local) HotKeys(_ context.Context, req *peerv1.HotKeysRequest) (*peerv1.HotKeysResponse, error) {
	out := &peerv1.HotKeysResponse{}
	if l.p.Hot == nil {
		return out, nil
	}
	for _, h := range l.p.Hot.Top(int(req.GetLimit())) {
		if h.Touches > 0 {
			out.Keys = append(out.Keys, wireKey(h))
		}
	}
	return out, nil
}

// Figures implements peer.Copies.
func (l *local) Figures(context.Context, *peerv1.FiguresRequest) (*peerv1.FiguresResponse, error) {
	out := &peerv1.FiguresResponse{}
	for _, f := range l.p.Figures() {
		out.Figures = append(out.Figures, &peerv1.Figure{Tier: f.Tier, Name: f.Name, Reason: f.Reason, Value: f.Value})
	}
	return out, nil
}

// DropCopies implements peer.Copies.
func (l *local) DropCopies(_ context.Context, req *peerv1.DropCopiesRequest) (*peerv1.DropCopiesResponse, error) {
	if l.p.Hot != nil {
		l.p.Hot.Drop(cache.Vertex{Type: uint16(req.GetVertexType()), ID: req.GetVertexId()})
	}
	return &peerv1.DropCopiesResponse{}, nil
}

func wireKey(h cache.HotKey) *peerv1.HotKey {
	return &peerv1.HotKey{
		Kind: uint32(h.Key.Kind), VertexType: uint32(h.Key.Vertex.Type), VertexId: h.Key.Vertex.ID,
		Type: uint32(h.Key.Edge), In: h.Key.In, Chunk: h.Key.Chunk, Touches: h.Touches,
	}
}

func keyOf(k *peerv1.HotKey) cache.Key {
	v := cache.Vertex{Type: uint16(k.GetVertexType()), ID: k.GetVertexId()}
	return cache.Key{
		Slot: slotOf(graphVertex(v)), Kind: cache.Kind(k.GetKind()), Vertex: v,
		Edge: uint16(k.GetType()), In: k.GetIn(), Chunk: k.GetChunk(),
	}
}

// askTime bounds the wait for another node.
const askTime = 2 * time.Second

// each asks all nodes at once and returns those that did not answer. take is called by one
// goroutine at a time.
func each[R any](ctx context.Context, p *Panel, call func(context.Context, peer.Copies) (R, error), take func(node string, r R)) (unanswered []string) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	nodes := p.Others()
	nodes[p.Self] = p.Local()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for id, n := range nodes { // any order: answers are sorted by who takes them
		wg.Go(func() {
			r, err := call(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				unanswered = append(unanswered, id)
				return
			}
			take(id, r)
		})
	}
	wg.Wait()
	slices.Sort(unanswered)
	return unanswered
}

// hottest gathers the keys that all gateways are asked for most, the most touched first.
func (p *Panel) hottest(ctx context.Context, n int) (top []cache.HotKey, unanswered []string) {
	touches := map[cache.Key]uint64{}
	unanswered = each(ctx, p, func(ctx context.Context, c peer.Copies) (*peerv1.HotKeysResponse, error) {
		return c.HotKeys(ctx, &peerv1.HotKeysRequest{Limit: uint32(n)})
	}, func(_ string, r *peerv1.HotKeysResponse) {
		for _, k := range r.GetKeys() {
			touches[keyOf(k)] += k.GetTouches()
		}
	})
	for k, t := range touches { // any order: sorted below
		top = append(top, cache.HotKey{Key: k, Touches: t})
	}
	slices.SortFunc(top, func(a, b cache.HotKey) int {
		return cmp.Or(cmp.Compare(b.Touches, a.Touches), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return top[:min(n, len(top))], unanswered
}

// HotKeys implements server.Cache.
func (p *Panel) HotKeys(ctx context.Context, n int) (*pb.ListHotKeysResponse, error) {
	top, unanswered := p.hottest(ctx, n)
	out := &pb.ListHotKeysResponse{Unanswered: unanswered}
	s := p.Graph.Schema()
	for _, h := range top {
		k := &pb.HotKey{Vertex: &pb.Vertex{Type: s.VertexTypeName(graph.VertexType(h.Key.Vertex.Type)), Id: h.Key.Vertex.ID}, Touches: h.Touches}
		if h.Key.Kind == cache.KindRow {
			k.Kind = "row"
		} else {
			k.Kind, k.Direction = "window", pb.Direction_OUT
			if h.Key.In {
				k.Direction = pb.Direction_IN
			}
			if def, ok := s.EdgeTypeByID(graph.EdgeType(h.Key.Edge)); ok {
				k.Type = def.Name
			}
		}
		if h.Key.Kind == cache.KindChunk {
			k.Kind, k.FirstId = "chunk", h.Key.Chunk*cache.ChunkPeers
		}
		out.Keys = append(out.Keys, k)
	}
	return out, nil
}

// Warm implements server.Cache.
func (p *Panel) Warm(ctx context.Context, n int) (*pb.WarmCacheResponse, error) {
	if p.Tier == nil {
		return nil, fmt.Errorf("%w: this node is no gateway; ask one that is", server.ErrNoCache)
	}
	top, unanswered := p.hottest(ctx, n)
	keys := make([]cache.Key, len(top))
	for i := range top {
		keys[i] = top[i].Key
	}
	warm, err := cache.Warm(ctx, p.Storage, p.Tier, keys)
	return &pb.WarmCacheResponse{Hot: uint32(len(keys)), Warm: uint32(warm), Unanswered: unanswered}, err
}

// Stats implements server.Cache.
func (p *Panel) Stats(ctx context.Context) (*pb.GetCacheStatsResponse, error) {
	out := &pb.GetCacheStatsResponse{}
	out.Unanswered = each(ctx, p, func(ctx context.Context, c peer.Copies) (*peerv1.FiguresResponse, error) {
		return c.Figures(ctx, &peerv1.FiguresRequest{})
	}, func(node string, r *peerv1.FiguresResponse) {
		n := &pb.NodeCacheStats{Node: node}
		for _, f := range r.GetFigures() {
			n.Figures = append(n.Figures, &pb.CacheFigure{Tier: f.GetTier(), Name: f.GetName(), Reason: f.GetReason(), Value: f.GetValue()})
		}
		out.Nodes = append(out.Nodes, n)
	})
	slices.SortFunc(out.Nodes, func(a, b *pb.NodeCacheStats) int { return cmp.Compare(a.GetNode(), b.GetNode()) })
	return out, nil
}

// Drop implements server.Cache: first in Redis, or a gateway would copy what is there still.
func (p *Panel) Drop(ctx context.Context, v graph.Vertex) (*pb.DropCachedResponse, error) {
	if p.Tier == nil {
		return nil, fmt.Errorf("%w: this node is no gateway; ask one that is", server.ErrNoCache)
	}
	slot := slotOf(v)
	at, err := cache.Positions(ctx, p.Storage, []cache.Slot{slot})
	if err != nil {
		return nil, err
	}
	if err := p.Tier.Forget(ctx, at[slot].Timeline, slot); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	unanswered := each(ctx, p, func(ctx context.Context, c peer.Copies) (*peerv1.DropCopiesResponse, error) {
		return c.DropCopies(ctx, &peerv1.DropCopiesRequest{VertexType: uint32(v.Type), VertexId: v.ID})
	}, func(string, *peerv1.DropCopiesResponse) {})
	return &pb.DropCachedResponse{Unanswered: unanswered}, nil
}
