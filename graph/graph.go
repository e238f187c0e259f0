package graph

import (
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

// Graph is the store of edges and counters on one node: it routes calls to the
// replicas of the shards of their vertices. A call that needs a shard which this
// node does not lead, or has no replica of, fails with shard.ErrNotLeader: see
// Router. All methods may be called concurrently.
type Graph struct {
	cfg    Config
	cache  *pageCache
	schema atomic.Pointer[Schema]
	// members are this node's replicas by shard; nil where it has none. starting
	// guards changes to them.
	members [MaxShards]atomic.Pointer[member]
	// broken are replicas that are here and cannot run, and why.
	broken   [MaxShards]atomic.Pointer[error]
	starting sync.Mutex
	owners   atomic.Pointer[owners] // of the slots, as far as this node knows

	birthsMu sync.Mutex
	births   []birth       // replicas that a split has made here, not started yet
	tending  chan struct{} // of capacity 1: there is something to tend

	feeds     *feeds
	lastStamp atomic.Int64 // last time given to an edge that came without one
	ready     atomic.Bool
	life      context.Context // ends when Close begins
	stop      context.CancelFunc
	done      sync.WaitGroup
}

// MaxShards is the largest number of shards: one a slot. Their numbers are below it.
const MaxShards = NumSlots

// member is one shard: its Raft group and its state machine.
type member struct {
	group   atomic.Pointer[shard.Shard] // nil until it has started
	machine *Machine
	joins   bool // it began empty, or with a split, since this process runs
}

// Timeline is the number that all tokens of the cluster carry.
func (g *Graph) Timeline() uint64 { return g.cfg.Timeline }

// Config configures a Graph.
type Config struct {
	Node  *shard.Node
	Store kv.Store // the state of all shards
	// Shards is the number of shards that the cluster was founded with, 1 to MaxShards.
	// Splits add to them. Default 4.
	Shards int
	// Owners, where there are any, say who owns slots: claims to all of them.
	Owners []Claim
	// Replicas are the shards that Open starts on this node; nil: all of them. Others
	// are added by StartReplica.
	Replicas []uint32
	// Remote reaches the shards that other nodes lead. nil: there are none.
	Remote Remote
	// Schema is put into force where it extends the stored one. nil keeps the
	// stored one, or begins with Begin. A graph that is one of several nodes is given
	// none, but told by Adopt: two would else give two schemas one version.
	Schema *Schema
	// Begin is what a store without a schema begins with. nil: DefaultSchema.
	Begin *Schema
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
	// StaleReads is how old the state of a replica that follows may be to answer
	// MinimizeLatency reads. Default 1 s.
	StaleReads time.Duration
	// JobEdges is how many edges a second, at most, the jobs on vertices of a node pass.
	// Default 5,000.
	JobEdges int
	// Jobs, where set, may refuse to begin jobs on vertices, with ErrOldProgram.
	Jobs func() error
	// Admit, where set, may refuse writes, e.g. with ErrDiskFull.
	Admit func(deleting bool) error
	// Edits reports whether every node of the cluster knows edits of counters. nil: so it is.
	Edits  func() bool
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
	if c.JobEdges == 0 {
		c.JobEdges = 5_000
	}
	if c.FreshWait == 0 {
		c.FreshWait = 2 * time.Second
	}
	if c.StaleReads == 0 {
		c.StaleReads = time.Second
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

// Remote reaches shards that other nodes lead.
type Remote interface {
	// Deliver has the leader of a shard apply a delivery (see Graph.Deliver), and
	// returns its answer. An error tells nothing of whether it was applied.
	Deliver(ctx context.Context, to uint32, delivery []byte) ([]byte, error)
}

// Open opens the shards and begins to lead them. Reads and writes are answered
// once Ready returns nil.
func Open(cfg Config) (*Graph, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Graph{cfg: cfg, cache: newPageCache(cfg.CacheBytes), tending: make(chan struct{}, 1)}
	g.feeds = newFeeds(g, g.ChangeRows)
	g.life, g.stop = context.WithCancel(context.Background())
	founding := foundingOwners(cfg.Shards)
	if len(cfg.Owners) > 0 {
		founding = cfg.Owners
	}
	g.owners.Store(&founding)
	if err := g.openReplicas(g.setAside); err != nil {
		g.stop()
		g.closeMachines()
		return nil, err
	}
	if err := g.resolveSchema(); err != nil {
		g.stop()
		g.closeMachines()
		return nil, err
	}
	for _, mb := range g.replicas() {
		if err := g.setAside(mb.machine.cfg.ID, g.startGroup(mb, false)); err != nil {
			g.Close()
			return nil, err
		}
	}
	g.done.Go(func() { g.tend(g.life) })
	g.done.Go(func() { g.expire(g.life) })
	g.done.Go(func() { g.work(g.life) })
	return g, nil
}

func (mb *member) close() error {
	if s := mb.group.Load(); s != nil {
		return s.Close()
	}
	return nil
}

// replicas returns this node's replicas, by shard.
func (g *Graph) replicas() []*member {
	var out []*member
	for i := range g.members {
		if mb := g.members[i].Load(); mb != nil {
			out = append(out, mb)
		}
	}
	return out
}

// resolveSchema chooses the schema to put into force.
func (g *Graph) resolveSchema() error {
	var stored *Schema
	for _, mb := range g.replicas() {
		if s := mb.machine.schema; s != nil {
			if mb.machine.timeline != g.cfg.Timeline {
				return fmt.Errorf("graph: shard %d belongs to another timeline; the data directory is put together from several", mb.machine.cfg.ID)
			}
			if stored == nil || s.Version > stored.Version {
				stored = s
			}
		}
	}
	want := stored
	switch {
	case g.cfg.Schema != nil && stored != nil:
		var err error
		if want, err = stored.Successor(g.cfg.Schema); err != nil {
			return err
		}
	case g.cfg.Schema != nil:
		want = g.cfg.Schema
	case stored != nil:
	case g.cfg.Begin != nil:
		want = g.cfg.Begin
	default:
		want = DefaultSchema()
	}
	g.schema.Store(want)
	return nil
}

// Pauses between looks at the shards: while some do not serve yet, and after.
const (
	tendFirst = 5 * time.Millisecond
	tendLast  = 200 * time.Millisecond
)

// tend puts the schema into force on each shard that this node leads, now and
// whenever it begins to lead one. The graph is ready when all replicas have it.
func (g *Graph) tend(ctx context.Context) {
	delay := tendFirst
	for {
		all := g.startBorn(ctx)
		for _, mb := range g.replicas() {
			all = g.putSchema(ctx, mb) && all
			g.putClaims(mb)
		}
		if all && !g.ready.Swap(true) {
			g.cfg.Logger.Info("shards serve", "shards", len(g.replicas()), "schema_version", g.schema.Load().Version)
		}
		select {
		case <-ctx.Done():
			return
		case <-g.tending:
		case <-time.After(delay):
		}
		delay = min(2*delay, tendLast)
	}
}

// putSchema brings a shard to the schema in force, where this node leads it, and
// reports whether the replica serves.
func (g *Graph) putSchema(ctx context.Context, mb *member) bool {
	s := mb.group.Load()
	v, err := mb.machine.acquire()
	if s == nil || err != nil {
		return false
	}
	version := uint64(0)
	if v.schema != nil {
		version = v.schema.Version
		g.Adopt(v.schema)
	}
	v.release()
	if version >= g.schema.Load().Version {
		leader, _ := s.Leader()
		return leader != "" && (leader != g.cfg.Node.ID() || mb.machine.leads.Load())
	}
	_, err = s.Propose(ctx, encodeInit(g.cfg.Timeline, g.schema.Load(), g.cfg.Shards))
	return err == nil
}

// Adopt puts a schema into force, of the cluster or of a shard, where it is newer than the
// one that is. The shards that this node leads get it soon.
func (g *Graph) Adopt(s *Schema) {
	for old := g.schema.Load(); s.Version > old.Version; old = g.schema.Load() {
		if g.schema.CompareAndSwap(old, s) {
			return
		}
	}
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
		for _, mb := range g.replicas() {
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
	g.stop()
	for _, mb := range g.replicas() {
		_ = mb.close() // what it could not answer has an unknown outcome already
	}
	g.done.Wait()
	g.closeMachines()
}

func (g *Graph) closeMachines() {
	for _, mb := range g.replicas() {
		mb.machine.Close()
	}
}

// Schema returns the schema in force.
func (g *Graph) Schema() *Schema { return g.schema.Load() }

func (g *Graph) now() int64 { return g.cfg.Now().UnixMicro() }

// member returns this node's replica of a shard.
func (g *Graph) member(id uint32) (*member, error) {
	if mb := g.members[id].Load(); mb != nil {
		return mb, nil
	}
	if why := g.broken[id].Load(); why != nil {
		return nil, fmt.Errorf("shard %d: %w: %w", id, shard.ErrFault, *why)
	}
	return nil, fmt.Errorf("shard %d has no replica on this node: %w", id, shard.ErrNotLeader)
}

// follows reports whether this node has a replica of a shard that serves and is no
// older than MinimizeLatency reads may be.
func (g *Graph) follows(id uint32) bool {
	mb := g.members[id].Load()
	if mb == nil {
		return false
	}
	s := mb.group.Load()
	if s == nil || s.Fault() != nil {
		return false
	}
	leader, age := s.Leader()
	v := mb.machine.view.Load()
	return leader != "" && age <= g.cfg.StaleReads && v != nil && v.schema != nil
}

// leaderOf returns the node that leads a shard, "" where this node does not know.
func (g *Graph) leaderOf(id uint32) string {
	if mb := g.members[id].Load(); mb != nil {
		if s := mb.group.Load(); s != nil {
			leader, _ := s.Leader()
			return leader
		}
	}
	return ""
}

// moved adds to an error that this node does not lead a shard who does.
func (g *Graph) moved(id uint32, err error) error {
	var told *MovedError
	if err == nil || !errors.Is(err, shard.ErrNotLeader) || errors.As(err, &told) {
		return err
	}
	leader := g.leaderOf(id)
	if leader == g.cfg.Node.ID() {
		leader = "" // its term is not open yet
	}
	return fmt.Errorf("%w: %w", &MovedError{Shard: id, Leader: leader}, err)
}

// running returns the Raft group of a shard on this node.
func (g *Graph) running(id uint32) (*shard.Shard, error) {
	mb, err := g.member(id)
	if err != nil {
		return nil, err
	}
	return mb.running()
}

// Group returns the Raft group of this node's replica of a shard, for changes of its
// members.
func (g *Graph) Group(id uint32) (*shard.Shard, error) {
	if id >= MaxShards {
		return nil, fmt.Errorf("shard %d: %w", id, shard.ErrNotLeader)
	}
	s, err := g.running(id)
	return s, g.moved(id, err)
}

func (mb *member) running() (*shard.Shard, error) {
	s := mb.group.Load()
	if s == nil {
		return nil, fmt.Errorf("shard %d is starting: %w", mb.machine.cfg.ID, shard.ErrNotLeader)
	}
	return s, nil
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
