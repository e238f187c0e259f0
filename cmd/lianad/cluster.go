package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/datadir"
	"github.com/lianadb/liana/kv/pebblekv"
	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
	"github.com/lianadb/liana/server"
	"github.com/lianadb/liana/server/cluster"
	"github.com/lianadb/liana/server/peer"
)

// ports are where this node is reached.
type ports struct {
	peer *peer.Port // nil: other nodes do not reach it
	tls  *tls.Config
	grpc string
}

// listenPeers opens the peer port. A node alone goes on without it where another
// process has the default one: several on one machine need no flag for it.
func listenPeers(cfg config, srv *server.Server, log *slog.Logger) (*ports, error) {
	secure, err := cfg.Cluster.TLS.read()
	if err != nil {
		return nil, err
	}
	p, err := peer.Listen(cfg.PeerAddr, secure, log)
	alone := cfg.Cluster.Join == "" && cfg.Cluster.Replication <= 1 && cfg.PeerAddr == server.Defaults().PeerAddr
	if err != nil && !alone {
		return nil, fmt.Errorf("peer_addr: %w; stop what listens there, or choose another address", err)
	}
	if err != nil {
		log.Warn("no port for other nodes: this one stays alone (choose another with --peer-addr)", "error", err)
	}
	return &ports{peer: p, tls: secure, grpc: srv.GRPCAddr()}, nil
}

// peerAddr is the address of the peer port, or "off".
func (p *ports) peerAddr() string {
	if p.peer == nil {
		return "off"
	}
	return p.peer.Addr()
}

// domain is what answers clients' calls.
type domain interface {
	server.Writer
	server.Reader
	server.Walker
	server.Vertices
	server.Watcher
	server.Counters
}

// backend is what the server serves.
type backend struct {
	domain
	server.Operator
}

// reached reports whether every node of the cluster knows what a feature level brought.
func (m *membership) reached(level uint32) bool {
	mp := m.board.Map()
	return mp != nil && mp.Level >= level
}

// membership is this node's place in its cluster.
type membership struct {
	host   host
	cfg    config
	ports  *ports
	log    *slog.Logger
	joined *catalog.Map // what the join answered; nil without one

	id     datadir.Identity
	file   *catalog.File
	board  *catalog.Board
	pool   *peer.Pool
	member *cluster.Member
	router *graph.Router

	mu        sync.Mutex
	hints     map[string]hint // by node
	endSeek   context.CancelFunc
	seekEnded sync.WaitGroup
}

func newMembership(h host, cfg config, p *ports, log *slog.Logger) *membership {
	m := &membership{host: h, cfg: cfg, ports: p, log: log, board: catalog.NewBoard(nil), hints: map[string]hint{}}
	m.pool = peer.NewPool(m.address, h.wire, p.tls)
	return m
}

// address is the peer address of a node as it is known now.
func (m *membership) address(node string) string {
	n := m.board.Map().Node(node)
	if n == nil {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.hints[node]; h.instead == n.PeerAddr && h.addr != "" {
		return h.addr
	}
	return n.PeerAddr
}

// hint is where a node was found, instead of where the map has it.
type hint struct{ addr, instead string }

// seeds are the addresses of --join, without this node's own.
func (m *membership) seeds() []string {
	if m.cfg.Cluster.Join == "" {
		return nil
	}
	return slices.DeleteFunc(strings.Split(m.cfg.Cluster.Join, ","), func(seed string) bool { return seed == m.ports.peerAddr() })
}

// seek looks for other nodes at the addresses of --join until the catalog has this node's
// own address: where the addresses of all have changed, no map that anybody has helps.
func (m *membership) seek(ctx context.Context) {
	for ctx.Err() == nil {
		if n := m.board.Map().Node(m.id.NodeID); n != nil && n.PeerAddr == m.ports.peerAddr() {
			return
		}
		for _, seed := range m.seeds() {
			if err := m.lookAt(ctx, seed); err != nil {
				m.log.Debug("nobody found", "at", seed, "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// lookAt notes which node is at an address.
func (m *membership) lookAt(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := peer.DialClient(addr, m.host.wire, m.ports.tls)
	if err != nil {
		return err
	}
	defer c.Close()
	res, err := c.GetReplicas(ctx)
	if err != nil {
		return err
	}
	if n := m.board.Map().Node(res.GetNodeId()); n != nil && n.PeerAddr != addr {
		m.mu.Lock()
		m.hints[n.ID] = hint{addr, n.PeerAddr}
		m.mu.Unlock()
	}
	return nil
}

func (m *membership) self(id string) catalog.RegisterNode {
	addr := m.ports.peerAddr()
	if m.ports.peer == nil {
		addr = ""
	}
	return catalog.RegisterNode{
		ID: id, PeerAddr: addr, GRPCAddr: m.ports.grpc, Zone: m.cfg.Cluster.Zone,
		Gateway: m.cfg.Cluster.has(roleGateway), Storage: m.cfg.Cluster.has(roleStorage), Level: m.host.featureLevel(),
	}
}

// joinTime bounds the join of a new node.
const joinTime = 30 * time.Second

// join makes a new data directory a member of the cluster that --join names, and
// returns the identity it is to have. It returns nil where there is nothing to join.
func (m *membership) join(path string) (*datadir.Identity, error) {
	if m.cfg.Cluster.Join == "" {
		return nil, nil
	}
	if _, known, err := datadir.Peek(path); err != nil || known {
		return nil, err // it is of its cluster already
	}
	if m.cfg.Shards != 0 {
		return nil, usageError{errors.New("shards: a node that joins takes the number of its cluster; leave it out")}
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTime)
	defer cancel()
	id := datadir.NewNodeID()
	seeds := m.seeds()
	if len(seeds) == 0 {
		return nil, usageError{errors.New("cluster.join: it names no other node")}
	}
	mp, err := m.ask(ctx, seeds, m.self(id))
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", strings.Join(seeds, ","), err)
	}
	m.joined = mp
	m.log.Info("joined", "cluster", mp.ClusterID, "node", id)
	return &datadir.Identity{
		ClusterID: mp.ClusterID, NodeID: id, Timeline: mp.Timeline, TokenKey: mp.PageKey, Shards: len(mp.Shards),
	}, nil
}

// ask joins through the first of some nodes that answers, and tries again while none
// does. To be told twice does no harm: the node's id is the same.
func (m *membership) ask(ctx context.Context, seeds []string, self catalog.RegisterNode) (*catalog.Map, error) {
	for turn := 0; ; turn++ {
		mp, err := m.askOne(ctx, seeds[turn%len(seeds)], self)
		if err == nil {
			return mp, nil
		}
		if !errors.Is(err, graph.ErrUnreachable) && !errors.Is(err, shard.ErrOutcomeUnknown) && !errors.Is(err, shard.ErrNotLeader) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// askTime bounds an attempt to join through one node.
const askTime = 5 * time.Second

func (m *membership) askOne(ctx context.Context, seed string, self catalog.RegisterNode) (*catalog.Map, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, err := peer.DialClient(seed, m.host.wire, m.ports.tls)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	res, err := c.Join(ctx, &peerv1.JoinRequest{
		NodeId: self.ID, PeerAddr: self.PeerAddr, GrpcAddr: self.GRPCAddr,
		Gateway: self.Gateway, Storage: self.Storage, Zone: self.Zone, Version: version,
		Level: self.Level,
	})
	if err != nil {
		return nil, err
	}
	return catalog.DecodeMap(res.GetMap())
}

// load brings the last map that is known onto the board.
func (m *membership) load(dir *datadir.Dir) error {
	m.id = dir.Identity()
	m.file = catalog.NewFile(dir.MapPath())
	last, err := m.file.Load()
	if errors.Is(err, kv.ErrCorruption) {
		m.log.Warn("the last map of the cluster is damaged; it is asked for anew", "error", err)
		last, err = &catalog.Map{}, nil
	}
	if err != nil {
		return err
	}
	if m.joined != nil {
		last = m.joined
		err = m.file.Save(last)
	}
	if len(last.Nodes) > 1 && m.ports.peer == nil {
		return errors.New("peer_addr: this node has others in its cluster and needs the port; stop what listens there, or choose another address")
	}
	if err := cluster.Admitted(last, m.id.NodeID, m.host.featureLevel()); err != nil {
		return err
	}
	m.board.Post(last.Since(0))
	return err
}

// openCluster opens the node's place in the catalog: a node that did not join founds
// the cluster.
func (n *node) openCluster(schema *graph.Schema) error {
	m := n.cluster
	m.member = cluster.New(cluster.Config{
		Self: m.self(m.id.NodeID), Node: n.shards, State: n.state,
		Board: m.board, File: m.file, Pool: m.pool, DeadAfter: m.cfg.Cluster.DeadAfter, MaxDead: m.cfg.Cluster.MaxDead, MovesAtOnce: m.cfg.Cluster.MovesAtOnce,
		Schema: schema, Expelled: n.expel, Log: m.log,
	})
	founder := !m.id.Joined && m.board.Map().Version == 0
	var err error
	if n.here, err = n.shards.Replicas(); err != nil {
		return err
	}
	if !founder && !slices.Contains(n.here, catalog.CatalogShard) {
		return nil
	}
	var first *catalog.Map
	if founder {
		first = m.firstMap(schema)
	}
	return m.member.StartCatalog(first)
}

// jobs refuses jobs on vertices while a node could not read their entries.
func (m *membership) jobs() error {
	if !m.reached(catalog.VertexLevel) {
		return graph.ErrOldProgram
	}
	return nil
}

// firstSchema is what this node begins with where its data has none: the cluster's, or
// where it founds one what it was given.
func (m *membership) firstSchema(given *graph.Schema) (*graph.Schema, error) {
	if mp := m.board.Map(); mp.Version > 0 {
		return graph.ParseSchema(mp.Schema)
	}
	return given, nil
}

// firstMap is the map of a cluster of this node alone.
func (m *membership) firstMap(schema *graph.Schema) *catalog.Map {
	if schema == nil {
		schema = graph.DefaultSchema()
	}
	self := m.self(m.id.NodeID)
	here := func() []catalog.Replica { return []catalog.Replica{{Node: self.ID}} }
	mp := &catalog.Map{
		Version: 1, ClusterID: m.id.ClusterID, Timeline: m.id.Timeline, PageKey: m.id.TokenKey,
		Level: self.Level, SettingsVersion: 1, Replication: max(1, m.cfg.Cluster.Replication), Schema: []byte(schema.YAML()),
		Nodes: []catalog.Node{{
			ID: self.ID, PeerAddr: self.PeerAddr, GRPCAddr: self.GRPCAddr, Gateway: self.Gateway, Storage: self.Storage,
			Zone: self.Zone, State: catalog.Active, Level: self.Level, Changed: 1,
		}},
		Catalog: catalog.Shard{ID: catalog.CatalogShard, First: 1, Replicas: here(), Changed: 1},
	}
	for i := range m.id.Shards {
		s := catalog.Shard{ID: uint32(i), Replicas: here(), Changed: 1}
		s.First, s.Last = catalog.SlotRange(i, m.id.Shards)
		mp.Shards = append(mp.Shards, s)
	}
	return mp
}

// replicas returns the shards to start here: those that this node has replicas of,
// and on the node that founds the cluster all.
func (m *membership) replicas(have []uint32, shards int) []uint32 {
	out := []uint32{}
	for _, id := range have {
		if id != catalog.CatalogShard {
			out = append(out, id)
		}
	}
	for id := range uint32(shards) {
		if !slices.Contains(have, id) && m.founds(id) {
			out = append(out, id)
		}
	}
	return out
}

// founds reports whether this node founds a shard: it never joined, and no map says
// that the shard lies elsewhere as well.
func (m *membership) founds(id uint32) bool {
	if m.id.Joined {
		return false
	}
	mp := m.board.Map()
	s := mp.Shard(id)
	return mp.Version == 0 || s != nil && len(s.Replicas) == 1 && s.Replicas[0].Node == m.id.NodeID && s.Moving == nil
}

// openRouter opens the way to all shards.
func (n *node) openRouter() error {
	m := n.cluster
	m.router = graph.NewRouter(graph.RouterConfig{
		Local: n.graph, Self: m.id.NodeID, Replicas: m.member.ReplicasOf, Service: m.pool.Service,
	})
	return nil
}

// others are the other nodes, for what is asked of their caches.
func (m *membership) others() map[string]peer.Copies {
	out := map[string]peer.Copies{}
	for _, n := range m.board.Map().Nodes {
		if n.ID == m.id.NodeID || n.State == catalog.Removed {
			continue
		}
		if c, err := m.pool.Client(n.ID); err == nil {
			out[n.ID] = c
		}
	}
	return out
}

// serveCluster begins to answer other nodes.
func (n *node) serveCluster() error {
	m := n.cluster
	m.member.Start(n.graph)
	damaged := func(d *pebblekv.DamagedTable) {
		n.graph.Damaged(d.Span, d)
		m.member.Damaged(d.Span, d)
	}
	n.damaged.Store(&damaged)
	if m.ports.peer != nil {
		ctx, cancel := context.WithCancel(context.Background())
		m.endSeek = cancel
		m.seekEnded.Go(func() { m.seek(ctx) })
		m.ports.peer.Serve(peer.Services{NodeID: m.id.NodeID, Local: n.graph, Cluster: m.member.Service(), Streams: n.shards.Accept, Copies: n.caches.copies()})
	}
	return nil
}

// stop leaves the cluster's calls unanswered from here on.
func (m *membership) stop() {
	if m.endSeek != nil {
		m.endSeek()
	}
	m.seekEnded.Wait()
	if m.member != nil {
		m.member.Stop()
	}
	if m.ports.peer != nil {
		m.ports.peer.Stop()
	}
	if err := m.pool.Close(); err != nil {
		m.log.Debug("connections to other nodes", "error", err)
	}
}
