package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
	"github.com/lianadb/liana/server/peer"
)

// Config configures a Member.
type Config struct {
	// Self is this node as it is to stand in the map.
	Self  catalog.RegisterNode
	Node  *shard.Node
	State kv.Store
	// Board holds the newest map known, at first the one this node was stopped with.
	Board *catalog.Board
	// File keeps the newest map for the next start.
	File *catalog.File
	Pool *peer.Pool
	// DeadAfter is how long a node may be away before its replicas are made anew.
	DeadAfter time.Duration
	// MaxDead is how many nodes may be away for so long at once and still be replaced: more
	// are a sign that the network is cut. 0: a quarter of the storage nodes, at least one.
	MaxDead int
	// MovesAtOnce bounds the shards that change their members at the same time, and with
	// that what the cluster copies beside its work.
	MovesAtOnce int
	// Schema, where set, is to be put into force.
	Schema *graph.Schema

	// Expelled is called once where this node may not be one of the cluster any more: it
	// was removed, or its program is too old. The node is to end.
	Expelled func(error)
	Log      *slog.Logger
}

// Member is this process as a member of its cluster.
type Member struct {
	cfg      Config
	replicas *replicas
	lead     *leader

	stop context.CancelFunc
	done sync.WaitGroup
}

// New returns a member that does nothing before Start.
func New(cfg Config) *Member {
	m := &Member{cfg: cfg}
	m.replicas = &replicas{
		node:    cfg.Node,
		catalog: &catalogReplica{node: cfg.Node, store: cfg.State},
	}
	m.lead = newLeader(m)
	return m
}

// Map returns the newest map known.
func (m *Member) Map() *catalog.Map { return m.cfg.Board.Map() }

// ReplicasOf returns the nodes that should have a replica of a shard.
func (m *Member) ReplicasOf(id uint32) []string {
	mp := m.Map()
	if s := mp.Shard(id); s != nil {
		return wanted(s)
	}
	for i := range mp.Shards { // one that is being split off lies where its parent does
		if v := mp.Shards[i].Splitting; v != nil && v.New == id {
			return wanted(&mp.Shards[i])
		}
	}
	return nil
}

// wanted returns the nodes where copies of a shard are to be.
func wanted(s *catalog.Shard) []string {
	var out []string
	for _, r := range s.Replicas {
		if s.Moving != nil && r.Node == s.Moving.From {
			continue
		}
		out = append(out, r.Node)
	}
	if s.Moving != nil && s.Moving.To != "" && !slices.Contains(out, s.Moving.To) {
		out = append(out, s.Moving.To)
	}
	return out
}

// Deliver implements graph.Remote: at the node that leads the shard, which the ones
// asked know.
func (m *Member) Deliver(ctx context.Context, to uint32, delivery []byte) ([]byte, error) {
	var last error = &graph.MovedError{Shard: to}
	nodes := m.ReplicasOf(to)
	for range 2 * len(nodes) {
		node := nodes[0]
		nodes = append(nodes[1:], node)
		if node == m.cfg.Self.ID {
			continue
		}
		c, err := m.cfg.Pool.Client(node)
		if err == nil {
			var answer []byte
			if answer, err = c.Deliver(ctx, to, delivery); err == nil {
				return answer, nil
			}
		}
		last = err
		var moved *graph.MovedError
		if errors.As(err, &moved) && moved.Leader != "" {
			if i := slices.Index(nodes, moved.Leader); i > 0 {
				nodes[0], nodes[i] = nodes[i], nodes[0]
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// StartCatalog starts this node's replica of the catalog. found is the first map of
// a new cluster, nil where the replica is there already.
func (m *Member) StartCatalog(found *catalog.Map) error {
	if err := m.replicas.catalog.start(false); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	if found != nil {
		m.lead.found = found
	}
	return nil
}

// Damaged tells that what the state store holds of a span is damaged.
func (m *Member) Damaged(span kv.Span, err error) { m.replicas.catalog.damaged(span, err) }

// Start begins to follow the map and to do what it wants of this node.
func (m *Member) Start(shards Shards) {
	m.replicas.shards = shards
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	m.done.Go(func() { m.follow(ctx) })
	m.done.Go(func() { m.save(ctx) })
	m.done.Go(func() { m.teach(ctx) })
	m.done.Go(func() { m.register(ctx) })
	m.done.Go(func() { m.watchOwn(ctx) })
	m.done.Go(func() { m.followSchema(ctx) })
	if s := m.cfg.Schema; s != nil {
		m.done.Go(func() { m.putOwn(ctx, s) })
	}
	m.done.Go(func() { m.lead.run(ctx) })
}

// Stop ends what Start began.
func (m *Member) Stop() {
	if m.stop != nil {
		m.stop()
	}
	m.done.Wait()
	if err := m.replicas.catalog.stop(); err != nil {
		m.cfg.Log.Warn("catalog: stop", "error", err)
	}
}

// Pauses of the member's loops.
const (
	followRetry   = 500 * time.Millisecond
	watchOther    = time.Second // by a node that has a replica of the catalog itself
	registerRetry = time.Second
	proposeTime   = 5 * time.Second
	savePause     = 100 * time.Millisecond
)

// follow keeps the map up to date: from the replica of the catalog where this node
// has one that hears its leader, else from other nodes. One that was removed while its
// node was cut off hears none for ever, and would never tell of it.
func (m *Member) follow(ctx context.Context) {
	for turn := 0; ctx.Err() == nil; turn++ {
		patience := time.Duration(math.MaxInt64)
		if own := m.replicas.catalog.board(); own != nil {
			patience = watchOther // the own one may hear its leader again
			m.copy(ctx, own)
			if m.replicas.catalog.hears() {
				continue
			}
		}
		if node := m.source(turn); node != "" {
			if err := m.watch(ctx, node, patience); err != nil && ctx.Err() == nil {
				m.cfg.Log.Debug("map: watching ended", "node", node, "error", err)
			}
		}
		sleep(ctx, followRetry)
	}
}

// copy shows what the replica of the catalog applies, for some time.
func (m *Member) copy(ctx context.Context, own *catalog.Board) {
	have := m.Map().Version
	select {
	case <-own.Newer(have):
	case <-ctx.Done():
		return
	case <-time.After(followRetry): // the replica may be gone
		return
	}
	if err := m.cfg.Board.Post(own.Map().Since(have)); err != nil {
		m.cfg.Log.Error("map: not taken over from the catalog", "error", err)
	}
}

// source returns the node to watch at the n-th attempt: those with the catalog first.
func (m *Member) source(n int) string {
	mp := m.Map()
	var nodes []string
	for _, r := range mp.Catalog.Replicas {
		nodes = append(nodes, r.Node)
	}
	for _, other := range mp.Nodes {
		if other.State != catalog.Removed && !slices.Contains(nodes, other.ID) {
			nodes = append(nodes, other.ID)
		}
	}
	nodes = slices.DeleteFunc(nodes, func(id string) bool { return id == m.cfg.Self.ID })
	if len(nodes) == 0 {
		return ""
	}
	return nodes[n%len(nodes)]
}

func (m *Member) watch(ctx context.Context, node string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := m.cfg.Pool.Client(node)
	if err != nil {
		return err
	}
	return c.WatchMap(ctx, m.Map().Version, func(delta []byte) error {
		d, err := catalog.DecodeDelta(delta)
		if err != nil {
			return err
		}
		return m.cfg.Board.Post(d)
	})
}

// save keeps each new map for the next start.
func (m *Member) save(ctx context.Context) {
	m.cfg.File.Follow(ctx, m.cfg.Board, savePause, func(err error) {
		m.cfg.Log.Error("map: not saved", "error", err)
	})
}

// register tells the catalog this node's addresses, until it knows them.
func (m *Member) register(ctx context.Context) {
	select {
	case <-m.cfg.Board.Newer(0):
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		if m.registered() {
			return
		}
		if err := m.Edit(ctx, catalog.AnyVersion, m.cfg.Self); err != nil && ctx.Err() == nil {
			m.cfg.Log.Info("not registered with the catalog yet", "error", err)
		}
		sleep(ctx, registerRetry)
	}
}

// watchOwn looks whether this node is one of the cluster still.
func (m *Member) watchOwn(ctx context.Context) {
	for ctx.Err() == nil {
		mp := m.Map()
		if err := Admitted(mp, m.cfg.Self.ID, m.cfg.Self.Level); err != nil {
			m.cfg.Expelled(err)
			return
		}
		select {
		case <-m.cfg.Board.Newer(mp.Version):
		case <-ctx.Done():
		}
	}
}

// Admitted returns why a node of a level may not be one of the cluster of a map, nil
// where it may.
func Admitted(mp *catalog.Map, node string, level uint32) error {
	if n := mp.Node(node); n != nil && n.State == catalog.Removed {
		return fmt.Errorf("%w from cluster %s: node %s does not come back under its id; with an empty data directory and --join it "+
			"becomes a new one", catalog.ErrRemoved, mp.ClusterID, node)
	}
	if level < mp.Level {
		return fmt.Errorf("this program is of feature level %d and cluster %s is at %d, which it could not read: start the newer program",
			level, mp.ClusterID, mp.Level)
	}
	return nil
}

func (m *Member) registered() bool {
	n, s := m.Map().Node(m.cfg.Self.ID), m.cfg.Self
	return n != nil && n.PeerAddr == s.PeerAddr && n.GRPCAddr == s.GRPCAddr && n.Gateway == s.Gateway &&
		n.Storage == s.Storage && n.Zone == s.Zone && n.Level == s.Level
}

// Edit has the catalog make an edit, wherever it is led. While the cluster is being
// founded it waits for its first map.
func (m *Member) Edit(ctx context.Context, expected uint64, e catalog.Edit) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	select {
	case <-m.cfg.Board.Newer(0):
	case <-ctx.Done():
		return fmt.Errorf("catalog: the cluster has no map yet: %w", ctx.Err())
	}
	if need, have := catalog.LevelOf(e), m.Map().Level; need > have {
		return fmt.Errorf("%w: this needs feature level %d, and the cluster is at %d: every node has to run the newer program first",
			catalog.ErrRefused, need, have)
	}
	cmd, err := catalog.Command(expected, e)
	if err != nil {
		return err
	}
	res, err := m.propose(ctx, cmd)
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	return res.Err
}

// propose asks the nodes with a replica of the catalog until one leads it.
func (m *Member) propose(ctx context.Context, cmd []byte) (catalog.Result, error) {
	res, err := m.replicas.catalog.propose(ctx, cmd)
	for turn := 0; again(err) && ctx.Err() == nil; turn++ {
		node := m.source(turn)
		var moved *graph.MovedError
		if errors.As(err, &moved) && moved.Leader != "" {
			node = moved.Leader
		}
		if node == "" || node == m.cfg.Self.ID || turn%4 == 3 {
			res, err = m.replicas.catalog.propose(ctx, cmd)
		} else {
			res, err = m.proposeAt(ctx, node, cmd)
		}
		if again(err) {
			sleep(ctx, 20*time.Millisecond)
		}
	}
	return res, err
}

// again reports whether a command was certainly not proposed, so that another node
// may be asked.
func again(err error) bool {
	return !errors.Is(err, shard.ErrOutcomeUnknown) && (errors.Is(err, shard.ErrNotLeader) || errors.Is(err, graph.ErrUnreachable))
}

func (m *Member) proposeAt(ctx context.Context, node string, cmd []byte) (catalog.Result, error) {
	c, err := m.cfg.Pool.Client(node)
	if err != nil {
		return catalog.Result{}, err
	}
	res, err := c.Propose(ctx, &peerv1.ProposeRequest{Command: cmd})
	if err != nil {
		return catalog.Result{}, err
	}
	return result(res), nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
