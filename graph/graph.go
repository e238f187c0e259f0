package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// Graph is the store of edges and counters: it routes calls to the shards of
// their vertices. All methods may be called concurrently.
type Graph struct {
	cfg    Config
	cache  *pageCache
	schema atomic.Pointer[Schema]
	shards []*member
	owner  [NumSlots]uint8

	lastStamp atomic.Int64 // last time given to an edge that came without one
	ready     atomic.Bool
	stop      context.CancelFunc
	done      sync.WaitGroup
}

// MaxShards is the largest number of shards of a node.
const MaxShards = 64

// member is one shard: its Raft group and its state machine.
type member struct {
	first, last Slot
	group       atomic.Pointer[shard.Shard] // nil until it has started
	machine     *Machine
}

// Config configures a Graph.
type Config struct {
	Node  *shard.Node
	Store kv.Store // the state of all shards
	// Shards is the number of shards, 1 to MaxShards. It is fixed for a data
	// directory. Default 4.
	Shards int
	// Schema is put into force where it extends the stored one. nil keeps the
	// stored one, or begins with DefaultSchema.
	Schema *Schema
	// Timeline is the random number that all tokens of this cluster carry.
	Timeline uint64
	// PageKey signs page tokens. At least 16 bytes.
	PageKey []byte
	// CacheBytes bounds the cache of decoded pages. Default 128 MiB.
	CacheBytes int
	// Lists are the bounds of list pages. The zero value means the defaults.
	Lists edgelist.Options
	// Retain is how many changes each shard's change log keeps. Default 1,048,576.
	Retain uint64
	// MaxBacklogBytes and MaxBacklogAge are how far a shard may be behind before
	// writes whose inverse it keeps are refused. Defaults 64 MiB and 5 s.
	MaxBacklogBytes int
	MaxBacklogAge   time.Duration
	// FreshWait is how long a read waits for the position of its token. Default 2 s.
	FreshWait time.Duration
	// Admit, where set, may refuse writes, e.g. with ErrDiskFull.
	Admit  func(deleting bool) error
	Logger *slog.Logger
	Now    func() time.Time // default time.Now
}

func (c Config) withDefaults() (Config, error) {
	if c.Shards == 0 {
		c.Shards = 4
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 128 << 20
	}
	if c.Lists == (edgelist.Options{}) {
		c.Lists = edgelist.DefaultOptions()
	}
	if c.MaxBacklogBytes == 0 {
		c.MaxBacklogBytes = 64 << 20
	}
	if c.MaxBacklogAge == 0 {
		c.MaxBacklogAge = 5 * time.Second
	}
	if c.FreshWait == 0 {
		c.FreshWait = 2 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Shards < 1 || c.Shards > MaxShards {
		return c, fmt.Errorf("graph: Shards %d: must be 1 to %d", c.Shards, MaxShards)
	}
	if len(c.PageKey) < 16 || c.Node == nil || c.Store == nil {
		return c, errors.New("graph: Node, Store and a PageKey of 16 bytes are needed")
	}
	return c, c.Lists.Validate()
}

// Open opens the shards and begins to lead them. Reads and writes are answered
// once Ready returns nil.
func Open(cfg Config) (*Graph, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Graph{cfg: cfg, cache: newPageCache(cfg.CacheBytes)}
	g.assignSlots()
	if err := g.openShards(); err != nil {
		g.closeMachines()
		return nil, err
	}
	if err := g.resolveSchema(); err != nil {
		g.closeMachines()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	for i, mb := range g.shards {
		s, err := cfg.Node.StartShard(shard.ShardConfig{ID: uint32(i), Machine: mb.machine})
		if err != nil {
			g.Close()
			return nil, fmt.Errorf("graph: %w", err)
		}
		mb.group.Store(s)
	}
	g.done.Go(func() { g.prepare(ctx) })
	g.done.Go(func() { g.expire(ctx) })
	return g, nil
}

// assignSlots gives each shard a contiguous range of slots.
func (g *Graph) assignSlots() {
	for i := range g.owner {
		g.owner[i] = uint8(i * g.cfg.Shards / NumSlots)
	}
}

func (g *Graph) openShards() error {
	n := g.cfg.Shards
	for i := range n {
		mb := &member{
			first: Slot((i*NumSlots + n - 1) / n),
			last:  Slot(((i+1)*NumSlots+n-1)/n - 1),
		}
		var err error
		mb.machine, err = openMachine(MachineConfig{
			ID: uint32(i), First: mb.first, Last: mb.last,
			Owner: func(s Slot) uint32 { return uint32(g.owner[s]) },
			Store: g.cfg.Store, Lists: g.cfg.Lists, Retain: g.cfg.Retain,
		}, g.cache)
		if err != nil {
			return err
		}
		mb.machine.outbox.peers = g
		g.shards = append(g.shards, mb)
	}
	return nil
}

// resolveSchema chooses the schema to put into force.
func (g *Graph) resolveSchema() error {
	var stored *Schema
	for _, mb := range g.shards {
		if s := mb.machine.schema; s != nil {
			if mb.machine.timeline != g.cfg.Timeline {
				return fmt.Errorf("graph: shard %d belongs to another timeline; the data directory is put together from several", mb.machine.cfg.ID)
			}
			if stored == nil || s.Version > stored.Version {
				stored = s
			}
		}
	}
	want := g.cfg.Schema
	switch {
	case want == nil && stored == nil:
		want = DefaultSchema()
	case want == nil:
		want = stored
	case stored == nil:
	default:
		same := *want
		same.Version = stored.Version
		if bytes.Equal(same.encode(), stored.encode()) {
			want = stored
			break
		}
		if err := want.Extends(stored); err != nil {
			return err
		}
		same.Version = stored.Version + 1
		want = &same
	}
	g.schema.Store(want)
	return nil
}

// prepare puts the schema into force on each shard, then the graph is ready.
func (g *Graph) prepare(ctx context.Context) {
	for _, mb := range g.shards {
		cmd := encodeInit(g.cfg.Timeline, g.schema.Load())
		for delay := 5 * time.Millisecond; ; delay = min(2*delay, 200*time.Millisecond) {
			if s := mb.group.Load(); s != nil {
				v, err := mb.machine.acquire()
				if err != nil {
					return
				}
				known := v.schema != nil && v.schema.Version >= g.schema.Load().Version
				v.release()
				if known {
					if s.Confirm(ctx) == nil {
						break
					}
				} else if _, err = s.Propose(ctx, cmd); err == nil {
					break
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
			}
		}
	}
	g.ready.Store(true)
	g.cfg.Logger.Info("shards serve", "shards", len(g.shards), "schema_version", g.schema.Load().Version)
}

// expire gives shards with counters to expire a chance to remove them, once a second.
func (g *Graph) expire(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := g.now()
		for _, mb := range g.shards {
			v, err := mb.machine.acquire()
			if err != nil {
				continue
			}
			due := v.nextExpiry <= now || v.nextForget <= v.elapsed
			v.release()
			if s := mb.group.Load(); due && s != nil {
				// A refused one is made good a second later.
				_, _ = s.ProposeAsync([]byte{cmdExpire}, shard.System)
			}
		}
	}
}

// Close stops the shards; the stores stay open. Calls under way end with an error.
func (g *Graph) Close() {
	if g.stop != nil {
		g.stop()
	}
	for _, mb := range g.shards {
		if s := mb.group.Load(); s != nil {
			s.Close()
		}
	}
	g.done.Wait()
	g.closeMachines()
}

func (g *Graph) closeMachines() {
	for _, mb := range g.shards {
		mb.machine.Close()
	}
}

// Schema returns the schema in force.
func (g *Graph) Schema() *Schema { return g.schema.Load() }

func (g *Graph) now() int64 { return g.cfg.Now().UnixMicro() }

func (g *Graph) member(s Slot) *member { return g.shards[g.owner[s]] }

// running returns the Raft group of a shard.
func (mb *member) running() (*shard.Shard, error) {
	s := mb.group.Load()
	if s == nil {
		return nil, fmt.Errorf("shard %d is starting: %w", mb.machine.cfg.ID, shard.ErrNotLeader)
	}
	return s, nil
}

// propose implements peers.
func (g *Graph) propose(to uint32, cmd []byte) (*shard.Proposal, error) {
	s, err := g.shards[to].running()
	if err != nil {
		return nil, err
	}
	return s.ProposeAsync(cmd, shard.System)
}

// ShardStatus is the state of one shard.
type ShardStatus struct {
	ID                  uint32
	FirstSlot, LastSlot uint16
	Leader              bool
	Applied, Position   uint64
	OutboxPending       uint64 // rows not acknowledged
	Fault               string // empty: well
	Raft                shard.Status
}

// Status returns the state of the shards.
func (g *Graph) Status() []ShardStatus {
	out := make([]ShardStatus, 0, len(g.shards))
	for _, mb := range g.shards {
		st := ShardStatus{ID: mb.machine.cfg.ID, FirstSlot: uint16(mb.first), LastSlot: uint16(mb.last)}
		if s := mb.group.Load(); s != nil {
			st.Raft = s.Status()
			st.Leader, st.Applied = st.Raft.Leading, st.Raft.Applied
			if st.Raft.Fault != nil {
				st.Fault = st.Raft.Fault.Error()
			}
		}
		if err := mb.machine.fault.Load(); err != nil && st.Fault == "" {
			st.Fault = (*err).Error()
		}
		if v, err := mb.machine.acquire(); err == nil {
			st.Position = v.position
			v.release()
		}
		st.OutboxPending = mb.machine.outbox.pending()
		out = append(out, st)
	}
	return out
}

// Ready returns nil when every shard serves.
func (g *Graph) Ready() error {
	if !g.ready.Load() {
		return errors.New("shards are starting")
	}
	for _, st := range g.Status() {
		if st.Fault != "" {
			return fmt.Errorf("shard %d: %s", st.ID, st.Fault)
		}
		if !st.Leader {
			return fmt.Errorf("shard %d has no leader", st.ID)
		}
	}
	return nil
}

// CacheStats are figures of the cache of decoded pages.
type CacheStats struct {
	Bytes        int
	Hits, Misses uint64
}

// CacheStats returns them.
func (g *Graph) CacheStats() CacheStats {
	return CacheStats{Bytes: g.cache.bytes(), Hits: g.cache.hits.Load(), Misses: g.cache.miss.Load()}
}
