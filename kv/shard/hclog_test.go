package shard

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
)

// errorLog keeps the texts of the errors that are logged.
type errorLog struct {
	slog.Handler
	mu   *sync.Mutex
	seen *[]string
}

func newErrorLog() errorLog { return errorLog{slog.DiscardHandler, new(sync.Mutex), new([]string)} }

func (e errorLog) Enabled(context.Context, slog.Level) bool { return true }
func (e errorLog) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e errorLog) WithGroup(string) slog.Handler            { return e }

func (e errorLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		e.mu.Lock()
		defer e.mu.Unlock()
		*e.seen = append(*e.seen, r.Message)
	}
	return nil
}

func (e errorLog) texts() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(*e.seen)
}

// A node that is stopped logs no errors for the connections that end with it.
func TestAStopLogsNoErrors(t *testing.T) {
	logs := map[string]errorLog{}
	f := newFleet(t, 3, func(c *NodeConfig) {
		logs[c.NodeID] = newErrorLog()
		c.Logger = slog.New(logs[c.NodeID])
	}).form()
	f.add("a")
	f.agree()
	stopped := logs[f.rigs[0].node.ID()]
	before := len(stopped.texts())
	f.close(f.rigs[0])
	if got := stopped.texts()[before:]; len(got) > 0 {
		t.Errorf("errors logged in a stop: %q", got)
	}
}
