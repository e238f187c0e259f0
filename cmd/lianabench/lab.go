package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/target"
)

// lab is a run of the benchmark: the directory that its servers live in, the
// servers, and the report that grows.
type lab struct {
	cfg      *config
	dir      string
	started  int
	servers  []*subject
	progress *progress
	report   report.Report
	systems  map[string]*report.System
}

// subject is a running system under test.
type subject struct {
	target.Server
	dir     string
	sampler *measure.Sampler
}

// newLab makes the directory, measures the machine and needs a close.
func newLab(cfg *config, title string) (*lab, error) {
	dir, err := os.MkdirTemp(cfg.workDir, "lianabench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the servers: %w", err)
	}
	l := &lab{cfg: cfg, dir: dir, progress: newProgress(cfg.quiet), systems: map[string]*report.System{}}
	// PostgreSQL runs under another account, which must get through to its data.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	machine, err := measure.Inspect(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	l.report = report.Report{Title: title, Command: strings.Join(os.Args, " "), Started: time.Now(), Machine: machine}
	if machine.FileSystem == "tmpfs" {
		l.note("The data lies on tmpfs, where an fsync costs nothing: figures of durable writes mean nothing. Use --work-dir.")
	}
	return l, nil
}

func (l *lab) note(format string, args ...any) {
	l.report.Notes = append(l.report.Notes, fmt.Sprintf(format, args...))
}

// start runs a system with an empty store.
func (l *lab) start(ctx context.Context, name string, lists bool) (*subject, error) {
	dir, err := l.newDir(name)
	if err != nil {
		return nil, err
	}
	server, err := target.Start(ctx, name, dir, target.Options{Lists: lists, Liana: l.cfg.liana})
	if err != nil {
		return nil, err
	}
	return l.look(server, dir), nil
}

// newDir makes a directory for a system that is about to start.
func (l *lab) newDir(name string) (string, error) {
	l.started++
	dir := filepath.Join(l.dir, fmt.Sprintf("%d-%s", l.started, strings.NewReplacer(" ", "-", ",", "").Replace(name)))
	return dir, os.Mkdir(dir, 0o755)
}

// look takes a started system into the lab's care.
func (l *lab) look(server target.Server, dir string) *subject {
	s := &subject{Server: server, dir: dir}
	s.watch()
	l.servers = append(l.servers, s)
	name := server.Name()
	if l.systems[name] == nil {
		l.systems[name] = &report.System{Name: name}
	}
	l.systems[name].Facts = server.Facts()
	return s
}

// part is a part of a run that measures several things.
type part struct {
	name string
	do   func(context.Context) error
}

// parts goes through the parts and returns how many failed. A part that fails is
// noted, and the others are measured all the same. Systems of a part end with it.
func (l *lab) parts(ctx context.Context, parts []part) int {
	failed := 0
	for _, p := range parts {
		err := p.do(ctx)
		for len(l.servers) > 0 {
			err = errors.Join(err, l.stop(l.servers[0]))
		}
		if ctx.Err() != nil {
			return failed + 1
		}
		if err != nil {
			failed++
			l.progress.say("%s FAILED: %v", p.name, err)
			l.note("Not measured, %s: %v", p.name, err)
		}
	}
	return failed
}

// watch begins to sample the memory of the system's processes; unwatch ends it
// and returns the most that was seen.
func (s *subject) watch() { s.sampler = measure.Watch(s.PIDs()...) }

func (s *subject) unwatch() uint64 {
	if s.sampler == nil {
		return 0
	}
	peak := s.sampler.Stop()
	s.sampler = nil
	return peak
}

// peak tells the most memory that the system has taken since it was watched.
func (s *subject) peak() uint64 {
	if s.sampler == nil {
		return 0
	}
	return s.sampler.Peak()
}

// keepPeak adds what the sampler saw to the system's line of the report.
func (l *lab) keepPeak(s *subject) uint64 {
	peak := s.unwatch()
	system := l.systems[s.Name()]
	system.PeakResident = max(system.PeakResident, peak)
	return peak
}

// stop ends a system and removes its data.
func (l *lab) stop(s *subject) error {
	l.keepPeak(s)
	err := s.Stop()
	for i, other := range l.servers {
		if other == s {
			l.servers = append(l.servers[:i], l.servers[i+1:]...)
			break
		}
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// close stops what still runs and removes the directory, whatever happened before.
func (l *lab) close() error {
	var errs []error
	for len(l.servers) > 0 {
		errs = append(errs, l.stop(l.servers[0]))
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

// finish completes the report and writes it where the flags say.
func (l *lab) finish(out io.Writer) error {
	l.report.Seconds = time.Since(l.report.Started).Seconds()
	l.report.Systems = nil
	for _, s := range l.systems {
		l.report.Systems = append(l.report.Systems, *s)
	}
	sort.Slice(l.report.Systems, func(i, j int) bool { return l.report.Systems[i].Name < l.report.Systems[j].Name })
	if l.cfg.html != "" {
		if err := l.writePage(l.cfg.html); err != nil {
			return fmt.Errorf("write the HTML report: %w", err)
		}
		l.progress.say("report written to %s", l.cfg.html)
	}
	if l.cfg.output == "json" {
		return l.report.WriteJSON(out)
	}
	return l.report.WriteTable(out)
}

func (l *lab) writePage(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(l.report.WriteHTML(f), f.Close())
}

// inLab runs an experiment in a lab of its own and writes the report. The lab
// is closed in any case.
func inLab(cfg *config, title string, out io.Writer, experiment func(*lab) error) error {
	l, err := newLab(cfg, title)
	if err != nil {
		return err
	}
	err = experiment(l)
	if closed := l.close(); closed != nil {
		err = errors.Join(err, fmt.Errorf("clean up: %w", closed))
	}
	if err != nil {
		return err
	}
	return l.finish(out)
}
