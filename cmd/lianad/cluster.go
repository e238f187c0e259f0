package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/datadir"
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

// backend is what the server serves: calls by the router, and of the node what
// operators ask.
type backend struct {
	*graph.Router
	server.Operator
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
}

func newMembership(h host, cfg config, p *ports, log *slog.Logger) *membership {
	m := &membership{host: h, cfg: cfg, ports: p, log: log, board: catalog.NewBoard(nil)}
	m.pool = peer.NewPool(m.address, h.wire, p.tls)
	return m
}

// address is the peer address of a node as it is known now.
func (m *membership) address(node string) string {
	if n := m.board.Map().Node(node); n != nil {
		return n.PeerAddr
	}
	return ""
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
	seed := m.cfg.Cluster.Join
	if seed == "" {
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
	mp, err := m.ask(ctx, seed, m.self(id))
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", seed, err)
	}
	m.joined = mp
	m.log.Info("joined", "cluster", mp.ClusterID, "node", id, "through", seed)
	return &datadir.Identity{
		ClusterID: mp.ClusterID, NodeID: id, Timeline: mp.Timeline, TokenKey: mp.PageKey, Shards: len(mp.Shards),
	}, nil
}

// ask joins through a node, and tries again while it cannot be reached.
func (m *membership) ask(ctx context.Context, seed string, self catalog.RegisterNode) (*catalog.Map, error) {
	c, err := peer.DialClient(seed, m.host.wire, m.ports.tls)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for {
		res, err := c.Join(ctx, &peerv1.JoinRequest{
			NodeId: self.ID, PeerAddr: self.PeerAddr, GrpcAddr: self.GRPCAddr,
			Gateway: self.Gateway, Storage: self.Storage, Zone: self.Zone, Version: version,
			Level: self.Level,
		})
		if err == nil {
			return catalog.DecodeMap(res.GetMap())
		}
		if !errors.Is(err, graph.ErrUnreachable) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
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
		Board: m.board, File: m.file, Pool: m.pool, DeadAfter: m.cfg.Cluster.DeadAfter, MaxDead: m.cfg.Cluster.MaxDead,
		Schema: schema, Expelled: n.expel, Log: m.log,
	})
	founder := !m.id.Joined && m.board.Map().Version == 0
	if !founder && !slices.Contains(n.shards.Replicas(), catalog.CatalogShard) {
		return nil
	}
	var first *catalog.Map
	if founder {
		first = m.firstMap(schema)
	}
	return m.member.StartCatalog(first)
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

// serveCluster begins to answer other nodes.
func (n *node) serveCluster() error {
	m := n.cluster
	m.router = graph.NewRouter(graph.RouterConfig{
		Local: n.graph, Self: m.id.NodeID, Replicas: m.member.ReplicasOf, Service: m.pool.Service,
	})
	m.member.Start(n.graph)
	if m.ports.peer != nil {
		m.ports.peer.Serve(peer.Services{Local: n.graph, Cluster: m.member.Service(), Streams: n.shards.Accept})
	}
	return nil
}

// stop leaves the cluster's calls unanswered from here on.
func (m *membership) stop() {
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
