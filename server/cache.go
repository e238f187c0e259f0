package server

import (
	"context"
	"errors"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// Cache is what operators ask of the caches before the storage.
type Cache interface {
	// Figures are those of this node's caches.
	Figures() []CacheFigure
	// HotKeys returns the n keys that all gateways together are asked for most.
	HotKeys(ctx context.Context, n int) (*pb.ListHotKeysResponse, error)
	// Warm loads the n hottest entries into Redis.
	Warm(ctx context.Context, n int) (*pb.WarmCacheResponse, error)
	Stats(ctx context.Context) (*pb.GetCacheStatsResponse, error)
	// Drop has all that is cached of a vertex read anew.
	Drop(ctx context.Context, v graph.Vertex) (*pb.DropCachedResponse, error)
}

// CacheFigure is a number of a tier: the metric liana_cache_<Name>, a counter where that
// ends with _total.
type CacheFigure struct {
	Tier, Name string
	Reason     string // of misses; else empty
	Help       string
	Value      float64
}

// ErrNoCache: there is no cache.
var ErrNoCache = errors.New("no cache: the cluster's nodes were started without a Redis (--redis)")

// cacheService is liana.v1.Cache.
type cacheService struct {
	pb.UnimplementedCacheServer
	*calls
}

func (s *cacheService) cache() (Cache, error) {
	if c := s.attached.Load().Cache; c != nil {
		return c, nil
	}
	return nil, ErrNoCache
}

// The numbers of keys that can be asked for.
const (
	defaultHot  = 20
	defaultWarm = 1000
	maxHot      = 4096
)

// keys is the number of keys that a request asks for.
func keys(field string, asked uint32, unset int) (int, error) {
	switch {
	case asked == 0:
		return unset, nil
	case asked > maxHot:
		return 0, invalid(field, "0 to 4096", "%d", asked)
	}
	return int(asked), nil
}

func (s *cacheService) ListHotKeys(ctx context.Context, req *pb.ListHotKeysRequest) (*pb.ListHotKeysResponse, error) {
	n, err := keys("limit", req.GetLimit(), defaultHot)
	if err != nil {
		return nil, err
	}
	c, err := s.cache()
	if err != nil {
		return nil, err
	}
	return c.HotKeys(ctx, n)
}

func (s *cacheService) WarmCache(ctx context.Context, req *pb.WarmCacheRequest) (*pb.WarmCacheResponse, error) {
	n, err := keys("top", req.GetTop(), defaultWarm)
	if err != nil {
		return nil, err
	}
	c, err := s.cache()
	if err != nil {
		return nil, err
	}
	return c.Warm(ctx, n)
}

func (s *cacheService) GetCacheStats(ctx context.Context, _ *pb.GetCacheStatsRequest) (*pb.GetCacheStatsResponse, error) {
	c, err := s.cache()
	if err != nil {
		return nil, err
	}
	return c.Stats(ctx)
}

func (s *cacheService) DropCached(ctx context.Context, req *pb.DropCachedRequest) (*pb.DropCachedResponse, error) {
	v, err := names{s.domain().Schema()}.vertex("vertex", req.GetVertex())
	if err == nil {
		err = checkID("vertex.id", v.ID)
	}
	if err != nil {
		return nil, err
	}
	c, err := s.cache()
	if err != nil {
		return nil, err
	}
	return c.Drop(ctx, v)
}
