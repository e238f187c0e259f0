package shard

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger returns a logger for Raft that writes to l. What Raft warns of is
// part of every start and failover, so it is information here; what it informs
// of is for debugging; what it debugs is dropped. Once Raft is ended its connections
// fail under it, which is no error.
func raftLogger(l *slog.Logger, ended func() bool) hclog.Logger {
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard})
	logger.RegisterSink(&slogSink{l, ended})
	return logger
}

// laterTerm is how a leader hears of the next one, which Raft takes for an error.
const laterTerm = "peer has newer term, stopping replication"

type slogSink struct {
	logger *slog.Logger
	ended  func() bool
}

func (s *slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	var to slog.Level
	switch {
	case s.ended() && level >= hclog.Info:
		to = slog.LevelDebug
	case level == hclog.Error && msg == laterTerm:
		to = slog.LevelInfo
	case level == hclog.Error:
		to = slog.LevelError
	case level == hclog.Warn:
		to = slog.LevelInfo
	case level == hclog.Info:
		to = slog.LevelDebug
	default:
		return
	}
	if ctx := context.Background(); s.logger.Enabled(ctx, to) {
		for i, a := range args {
			if f, ok := a.(hclog.Format); ok && len(f) > 0 {
				args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
			}
		}
		s.logger.Log(ctx, to, "raft: "+msg, args...)
	}
}
