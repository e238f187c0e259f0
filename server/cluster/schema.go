package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/catalog"
)

// The schema is the catalog's (RULES B7): a change is an edit there, refused if the schema
// was changed since the editor looked. Every node follows the map and adopts what it
// says; the leader of each shard puts it into the shard's log, and what is applied goes by
// that alone.

// schemaRetry is the pause before a change of the schema is tried again.
const schemaRetry = time.Second

// PutSchema implements server.Cluster.
func (m *Member) PutSchema(ctx context.Context, next *graph.Schema) (*graph.Schema, bool, error) {
	for {
		mp := m.Map()
		if mp.Version == 0 {
			return nil, false, catalog.ErrUnfounded
		}
		now, err := schemaOf(mp)
		if err != nil {
			return nil, false, err
		}
		after, err := now.Successor(next)
		if err != nil || after == now {
			return now, false, err
		}
		if after.Backfills(now) && mp.Level < catalog.JobsLevel {
			return now, false, refused(fmt.Errorf("a derived counter over edges that are there already needs feature level %d, and the cluster is at %d: "+
				"every node has to run the newer program first", catalog.JobsLevel, mp.Level))
		}
		err = m.Edit(ctx, mp.Version, catalog.SetSchema{Text: []byte(after.YAML())})
		if err == nil {
			m.replicas.shards.Adopt(after)
			return after, true, nil
		}
		if !errors.Is(err, catalog.ErrStale) {
			return nil, false, err
		}
		select { // another change came first: look again
		case <-m.cfg.Board.Newer(mp.Version):
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

func schemaOf(mp *catalog.Map) (*graph.Schema, error) {
	s, err := graph.ParseSchema(mp.Schema)
	if err != nil {
		return nil, fmt.Errorf("the schema in the map of version %d: %v", mp.Version, err) // not the caller's fault
	}
	return s, nil
}

// followSchema adopts each new schema of the map.
func (m *Member) followSchema(ctx context.Context) {
	for settings := uint64(0); ctx.Err() == nil; {
		mp := m.Map()
		if mp.SettingsVersion > settings { // the map is founded
			if s, err := schemaOf(mp); err != nil {
				m.cfg.Log.Error("schema: not adopted", "error", err)
			} else {
				m.adopt(ctx, mp, s)
			}
			settings = mp.SettingsVersion
		}
		select {
		case <-m.cfg.Board.Newer(mp.Version):
		case <-ctx.Done():
		}
	}
}

// adopt adopts the catalog's schema; or tells it the shards', which was put into force
// before the catalog was asked.
func (m *Member) adopt(ctx context.Context, mp *catalog.Map, s *graph.Schema) {
	m.replicas.shards.Adopt(s)
	own := m.replicas.shards.Schema()
	if own.Version <= s.Version {
		return
	}
	if err := m.Edit(ctx, mp.Version, catalog.SetSchema{Text: []byte(own.YAML())}); err != nil {
		m.cfg.Log.Warn("schema: the catalog has an older one than the shards", "error", err)
	}
}

// putOwn puts the schema that this node was started with into force, once it can.
func (m *Member) putOwn(ctx context.Context, s *graph.Schema) {
	select {
	case <-m.cfg.Board.Newer(0):
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		now, changed, err := m.PutSchema(ctx, s)
		switch {
		case errors.Is(err, graph.ErrSchema) && now != nil && now.Extends(s) == nil:
			m.cfg.Log.Info("schema: the one of the configuration is of before the present one", "present_version", now.Version)
			return
		case err == nil && changed:
			m.cfg.Log.Info("schema: put into force", "version", now.Version)
			return
		case err == nil:
			return
		case errors.Is(err, graph.ErrSchema):
			m.cfg.Log.Error("schema: the one of the configuration is refused", "error", err)
			return
		}
		sleep(ctx, schemaRetry)
	}
}
