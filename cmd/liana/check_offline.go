package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
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
	if err := lost(d, state); err != nil {
		return nil, err
	}
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

// lost is an error where a node has run on the directory, and yet its state is empty:
// nothing is wrong with an empty store, so it would be called clean.
func lost(d *datadir.Dir, state kv.Store) error {
	if _, err := os.Stat(d.StablePath()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	it, err := state.NewIter(kv.Span{})
	if err != nil {
		return err
	}
	there := it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("state store: %w", err)
	}
	if !there {
		return fmt.Errorf("the state store %s is empty although a node has run on it: bring it back from a copy", d.StatePath())
	}
	return nil
}
