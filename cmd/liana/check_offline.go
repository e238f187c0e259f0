package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/datadir"
	"github.com/lianadb/liana/kv/pebblekv"
	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// checkDirectoryOffline is the offlineChecker of this program: it opens the state of a
// data directory for reading only.
func checkDirectoryOffline(ctx context.Context, dir string, progress func(*lianav1.CheckResponse)) (_ *lianav1.CheckResponse, err error) {
	d, err := datadir.Open(dir, datadir.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	state, err := pebblekv.Open(d.StatePath(), pebblekv.Options{
		Profile: pebblekv.State, Merger: graph.Merger(), ReadOnly: true,
	})
	if err != nil {
		return nil, fmt.Errorf("state store: %w", err)
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	report, err := graph.CheckStore(ctx, state, d.Identity().Shards, func(p graph.CheckProgress) {
		progress(&lianav1.CheckResponse{Lists: p.Lists, Edges: p.Edges, ListsTotal: p.ListsTotal})
	})
	if err != nil {
		return nil, err
	}
	return &lianav1.CheckResponse{
		Lists: report.Lists, Edges: report.Edges, ListsTotal: report.Lists, Counters: report.Counters,
		Skipped: report.Skipped, Faults: report.Faults, Findings: report.Findings, Done: true,
	}, nil
}
