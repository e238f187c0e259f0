package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/datadir"
	"github.com/lianadb/liana/kv/pebblekv"
	"github.com/lianadb/liana/kv/shard"
	"github.com/lianadb/liana/server"
	"github.com/lianadb/liana/server/cluster"
)

// node is an open data directory with everything that stands on it.
type node struct {
	host host
	cfg  config
	log  *slog.Logger
	// fatal is told of what an engine cannot survive, on the goroutine that met it.
	fatal func(error)

	dir        *datadir.Dir
	guard      *server.DiskGuard
	state, wal *pebblekv.Store
	shards     *shard.Node
	graph      *graph.Graph
	cluster    *membership
	caches     *caches     // nil: none
	sink       *changeSink // nil: none
	here       []uint32    // shards that there are replicas of, as of the start
	// damaged is told of tables of the state store; nil until somebody looks after them.
	damaged atomic.Pointer[func(*pebblekv.DamagedTable)]
	// expelled says why the node may not be one of its cluster any more; of capacity 1.
	expelled chan error
	// flushed is called when the state has become durable; nil until there are shards.
	flushed atomic.Pointer[func()]
}

// openNode opens the layers from the bottom up. On an error those that were
// opened are closed again.
func openNode(h host, cfg config, schema *graph.Schema, ports *ports, log *slog.Logger, fatal func(error)) (*node, error) {
	n := &node{host: h, cfg: cfg, log: log, fatal: fatal, cluster: newMembership(h, cfg, ports, log), expelled: make(chan error, 1)}
	for _, open := range []func() error{
		n.limitMemory, n.openDir,
		func() error { return n.advise(n.openStores()) },
		func() error { return n.advise(n.openShards()) },
		func() error { return n.advise(n.openCluster(schema)) },
		func() error { return n.openGraph(schema) },
		n.openRouter, n.openCaches, n.openSink, n.serveCluster,
	} {
		if err := open(); err != nil {
			return nil, errors.Join(err, n.close())
		}
	}
	return n, nil
}

// limitMemory tells the garbage collector how much memory the process may take. The
// caches and memtables are Go memory, which would otherwise take twice their size.
func (n *node) limitMemory() error {
	if limit := n.cfg.Storage.MemoryLimitBytes; limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return nil
}

func (n *node) openDir() (err error) {
	joined, err := n.cluster.join(n.cfg.DataDir)
	if err != nil {
		return err
	}
	n.dir, err = datadir.Open(n.cfg.DataDir, datadir.Options{Shards: n.cfg.Shards, Cluster: joined})
	if err != nil {
		return err
	}
	if err := n.cluster.load(n.dir); err != nil {
		return err
	}
	n.guard = server.NewDiskGuard(n.dir.Path(), n.cfg.Disk.ReserveBytes, n.log)
	return nil
}

// expel ends the node.
func (n *node) expel(err error) { n.expelled <- err }

func (n *node) openStores() (err error) {
	n.state, err = pebblekv.Open(n.dir.StatePath(), pebblekv.Options{
		Profile:       pebblekv.State,
		Merger:        graph.Merger(),
		CacheBytes:    n.cfg.Storage.BlockCacheBytes,
		MemTableBytes: n.cfg.Storage.MemtableBytes,
		Logger:        n.log.With("store", "state"),
		OnFlush: func() {
			if f := n.flushed.Load(); f != nil {
				(*f)()
			}
		},
		OnFault: n.storeFault("state"),
		FS:      n.host.fs,
	})
	if err != nil {
		return fmt.Errorf("state store: %w", err)
	}
	n.wal, err = pebblekv.Open(n.dir.LogPath(), pebblekv.Options{
		Profile: pebblekv.Log,
		Logger:  n.log.With("store", "log"),
		OnFault: n.storeFault("log"),
		FS:      n.host.fs,
	})
	if err != nil {
		return fmt.Errorf("log store: %w", err)
	}
	return nil
}

// advise says what can be done where a store is damaged as a whole. What is damaged in
// single shards does not come here.
func (n *node) advise(err error) error {
	if !errors.Is(err, kv.ErrCorruption) {
		return err
	}
	return fmt.Errorf("%w; the data of this node cannot be used any more: where its shards have replicas on other nodes, start it with an "+
		"empty data directory and --join, and run `liana cluster remove-node %s` (docs/operations.md, \"Data that is damaged\")", err, n.dir.Identity().NodeID)
}

// storeFault tells of an engine's faults. What it tries again by itself is only
// logged; a damaged table stops the replicas that have something in it.
func (n *node) storeFault(store string) func(error) {
	return func(err error) {
		n.log.Error("fault of a store", "store", store, "error", err)
		var table *pebblekv.DamagedTable
		if f := n.damaged.Load(); f != nil && store == "state" && errors.As(err, &table) {
			(*f)(table)
		}
		if errors.Is(err, pebblekv.ErrFatal) {
			n.fatal(fmt.Errorf("%s store: %w", store, err))
		}
	}
}

func (n *node) openShards() (err error) {
	n.shards, err = shard.OpenNode(shard.NodeConfig{
		State: n.state, Log: n.wal, StablePath: n.dir.StablePath(),
		NodeID: n.dir.Identity().NodeID, ClusterID: n.dir.Identity().ClusterID, Dial: n.cluster.pool.Dial,
		Logger: n.log, Clock: n.host.clock,
		Limits: shard.Limits{LogBytes: n.cfg.Storage.RaftLogBytes, TransferBytes: n.cfg.Cluster.moveRate()},
	})
	if err != nil {
		return err
	}
	flushed := n.shards.StateFlushed
	n.flushed.Store(&flushed)
	return nil
}

func (n *node) openGraph(schema *graph.Schema) (err error) {
	id, s := n.dir.Identity(), n.cfg.Storage
	begin, err := n.cluster.firstSchema(schema)
	if err != nil {
		return err
	}
	n.graph, err = graph.Open(graph.Config{
		Node: n.shards, Store: n.state, Shards: id.Shards, Begin: begin,
		Timeline: id.Timeline, PageKey: id.TokenKey,
		Owners:   cluster.Claims(n.cluster.board.Map()),
		Replicas: n.cluster.replicas(n.here, id.Shards), Remote: n.cluster.member,
		CacheBytes: s.PageCacheBytes, Lists: s.Lists.options(), Retain: s.ChangeLogEntries,
		MaxBacklogBytes: s.MaxBacklogBytes, MaxBacklogAge: s.MaxBacklogAge, FreshWait: s.FreshWait,
		Admit: n.guard.Admit, Edits: func() bool { return n.cluster.reached(catalog.EditLevel) }, Jobs: n.cluster.jobs,
		Logger: n.log, Now: n.host.now(),
	})
	if err != nil || schema == nil {
		return err
	}
	// The catalog decides; what it would refuse is known now. One of before the present
	// schema does no harm: the cluster was told of another since.
	now := n.graph.Schema()
	if _, err := now.Successor(schema); err != nil && now.Extends(schema) != nil {
		return err
	}
	return nil
}

// attachment is what the server serves.
func (n *node) attachment() server.Attachment {
	id := n.dir.Identity()
	a := server.Attachment{
		Backend: n.backend(),
		Node:    server.Node{Version: version, ClusterID: id.ClusterID, NodeID: id.NodeID},
		Stores:  []server.Store{{Name: "state", Stats: n.state.Stats}, {Name: "log", Stats: n.wal.Stats}},
		Disk:    n.guard,
		Cluster: n.cluster.member,
	}
	if n.caches != nil {
		a.Cache = &n.caches.panel
	}
	return a
}

// close closes what is open, from the top down.
func (n *node) close() error {
	errs := []error{n.sink.close()}
	n.caches.close()
	n.cluster.stop()
	if n.graph != nil {
		n.graph.Close()
	}
	if n.shards != nil {
		errs = append(errs, n.shards.Close())
	}
	if n.wal != nil {
		errs = append(errs, n.wal.Close())
	}
	if n.state != nil {
		errs = append(errs, n.state.Close())
	}
	if n.guard != nil {
		n.guard.Close()
	}
	if n.dir != nil {
		errs = append(errs, n.dir.Close())
	}
	return errors.Join(errs...)
}

// readSchema reads the schema file of the configuration; none is nil.
func readSchema(path string) (*graph.Schema, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	s, err := graph.ParseSchema(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
