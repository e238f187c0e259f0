package main

import (
	"io"
	"log/slog"
)

func logLevel(text string) (slog.Level, error) {
	var l slog.Level
	err := l.UnmarshalText([]byte(text))
	return l, err
}

// newLogger logs in the format and from the level of a valid configuration.
func newLogger(c config, w io.Writer) *slog.Logger {
	level, _ := logLevel(c.LogLevel) // validated
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
