package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	p := &progress{w: &out, unit: "rows", now: func() time.Time { return now }, start: now, shown: now, before: 500}
	now = now.Add(9 * time.Second)
	p.update(900, 0.4)
	if out.Len() > 0 {
		t.Errorf("early: %q", out.String())
	}
	now = now.Add(time.Second)
	p.update(1500, 0.5)
	if want := "[============            ]  50%  1500 rows, 100/s, 10s left\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	p.terminal = true
	now = now.Add(barInterval)
	p.update(1502, -1)
	if !strings.HasPrefix(out.String(), "\r") || !strings.HasSuffix(out.String(), "1502 rows, 98/s") {
		t.Errorf("got %q", out.String())
	}
	out.Reset()
	p.silent = true
	now = now.Add(time.Hour)
	p.update(2000, 1)
	if out.Len() > 0 {
		t.Errorf("silent: %q", out.String())
	}
}
