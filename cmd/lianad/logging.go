package main

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

func logLevel(text string) (slog.Level, error) {
	var l slog.Level
	err := l.UnmarshalText([]byte(text))
	return l, err
}

// newLogger logs in the format and from the level of a valid configuration.
func newLogger(c config, w io.Writer) *slog.Logger {
	level, _ := logLevel(c.LogLevel) // validated
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: plainError}
	if c.LogFormat == "json" {
		return slog.New(newCalm(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(newCalm(slog.NewTextHandler(w, opts)))
}

// plainError logs the text of an error. The text handler would ask for all that an
// error can tell: an engine's has a stack of kilobytes.
func plainError(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(err.Error())
	}
	return a
}

// calm lets a message through a number of times in a while: what goes wrong again and
// again, such as a flush to a full disk, says so without filling another disk.
type calm struct {
	slog.Handler
	*calmState
}

const (
	calmLines = 20
	calmTime  = 10 * time.Second
	// calmMessages bounds what is remembered. Messages are constants of the code,
	// so there are not nearly as many.
	calmMessages = 1000
)

type calmState struct {
	mu   sync.Mutex
	seen map[string]*calmCount
}

type calmCount struct {
	since         time.Time
	lines, untold int
}

func newCalm(h slog.Handler) calm {
	return calm{h, &calmState{seen: map[string]*calmCount{}}}
}

// Handle implements slog.Handler.
func (c calm) Handle(ctx context.Context, r slog.Record) error {
	untold, ok := c.allow(r.Message, r.Time)
	if !ok {
		return nil
	}
	if untold > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("not_logged", untold))
	}
	return c.Handler.Handle(ctx, r)
}

// allow reports whether a message may be logged, and how often it was not since it
// was last.
func (s *calmState) allow(message string, now time.Time) (untold int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.seen[message]
	if n == nil {
		if len(s.seen) >= calmMessages {
			clear(s.seen)
		}
		n = &calmCount{since: now}
		s.seen[message] = n
	}
	if now.Sub(n.since) >= calmTime {
		n.since, n.lines = now, 0
	}
	if n.lines == calmLines {
		n.untold++
		return 0, false
	}
	n.lines++
	untold, n.untold = n.untold, 0
	return untold, true
}

// WithAttrs implements slog.Handler.
func (c calm) WithAttrs(attrs []slog.Attr) slog.Handler {
	return calm{c.Handler.WithAttrs(attrs), c.calmState}
}

// WithGroup implements slog.Handler.
func (c calm) WithGroup(name string) slog.Handler {
	return calm{c.Handler.WithGroup(name), c.calmState}
}
