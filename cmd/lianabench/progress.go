package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lianadb/liana/cmd/lianabench/report"
)

// progress tells on standard error what is going on: a line that is redrawn on
// a terminal, a line for each finished step elsewhere.
type progress struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	began    time.Time
}

func newProgress(quiet bool) *progress {
	if quiet {
		return &progress{out: io.Discard, began: time.Now()}
	}
	info, err := os.Stderr.Stat()
	return &progress{out: os.Stderr, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, began: time.Now()}
}

// say prints a finished step.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, "%6.1f s  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

func (p *progress) clear() {
	if p.terminal {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", 78))
	}
}

// during shows what is being done, with a count and its rate, until the
// returned function is called.
func (p *progress) during(what string, done *atomic.Int64, of int64) (stop func()) {
	if !p.terminal {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		start := time.Now()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				p.draw(what, done.Load(), of, time.Since(start))
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
	}
}

func (p *progress) draw(what string, done, of int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf("%6.1f s  %s  %s", time.Since(p.began).Seconds(), what, report.Number(float64(done)))
	if of > 0 {
		const width = 20
		full := int(min(done, of) * width / of)
		text += fmt.Sprintf(" of %s [%s%s]", report.Number(float64(of)), strings.Repeat("#", full), strings.Repeat("·", width-full))
	}
	p.clear()
	fmt.Fprintf(p.out, "%s  %s/s", text, report.Number(float64(done)/took.Seconds()))
}
