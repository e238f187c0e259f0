package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	barWidth    = 24
	barInterval = 200 * time.Millisecond
	logInterval = 10 * time.Second
)

// progress shows how far a long command is: a moving bar on a terminal, a line
// every 10 seconds elsewhere, nothing with -o json.
type progress struct {
	w        io.Writer
	terminal bool
	silent   bool
	unit     string
	now      func() time.Time

	start, shown time.Time
	// Units that were done before this run (a resumed import): no part of the rate.
	before uint64
	drawn  bool
}

func (c *cli) newProgress(unit string) *progress {
	now := time.Now()
	return &progress{w: c.stderr, terminal: c.stderrIsTerminal(), silent: c.out.json, unit: unit,
		now: time.Now, start: now, shown: now}
}

// update tells that `units` are done, which is the given share (0 to 1) of the whole;
// a share below 0 is unknown.
func (p *progress) update(units uint64, share float64) {
	interval := logInterval
	if p.terminal {
		interval = barInterval
	}
	now := p.now()
	if p.silent || now.Sub(p.shown) < interval {
		return
	}
	p.shown = now
	text := p.text(units, share, now.Sub(p.start))
	if !p.terminal {
		fmt.Fprintln(p.w, text)
		return
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	p.drawn = true
}

func (p *progress) text(units uint64, share float64, elapsed time.Duration) string {
	rate := float64(units-min(p.before, units)) / max(elapsed.Seconds(), 1e-3)
	text := fmt.Sprintf("%d %s, %.0f/s", units, p.unit, rate)
	if share < 0 {
		return text
	}
	share = min(share, 1)
	full := int(share * barWidth)
	bar := strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full)
	text = fmt.Sprintf("[%s] %3.0f%%  %s", bar, share*100, text)
	if share > 0 && share < 1 {
		left := time.Duration(float64(elapsed) * (1 - share) / share)
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return text
}

// clear takes the bar away so that other lines can be printed.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}
