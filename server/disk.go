package server

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lianadb/liana/graph"
)

// DiskLevel says what the free space permits.
type DiskLevel int32

// The levels.
const (
	DiskOK        DiskLevel = iota // everything
	DiskLow                        // deletes only: they are how people make room
	DiskExhausted                  // nothing
)

// DiskGuard watches the free space under a directory. Its Admit goes into
// graph.Config: writes are refused before the log, where nothing has changed yet,
// since an engine that meets a full disk can only end the process.
type DiskGuard struct {
	reserve uint64
	free    func() (uint64, error) // bytes left on the file system
	log     *slog.Logger

	level atomic.Int32
	last  atomic.Uint64

	stop    chan struct{}
	watcher sync.WaitGroup
}

// diskInterval is the time between two looks. What can be written between them
// must fit into half the reserve.
const diskInterval = time.Second

// NewDiskGuard watches the file system of path until Close. A reserve of 0 admits
// everything.
func NewDiskGuard(path string, reserve uint64, log *slog.Logger) *DiskGuard {
	return newDiskGuard(func() (uint64, error) { return freeBytes(path) }, reserve, diskInterval, log)
}

func newDiskGuard(free func() (uint64, error), reserve uint64, interval time.Duration, log *slog.Logger) *DiskGuard {
	g := &DiskGuard{reserve: reserve, free: free, log: log, stop: make(chan struct{})}
	g.look()
	g.watcher.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				g.look()
			case <-g.stop:
				return
			}
		}
	})
	return g
}

func freeBytes(path string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("free space: %w", err)
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}

// look measures and sets the level. A file system that does not answer leaves
// it as it is.
func (g *DiskGuard) look() {
	free, err := g.free()
	if err != nil {
		g.log.Warn("disk: cannot read the free space", "error", err)
		return
	}
	g.last.Store(free)
	before := DiskLevel(g.level.Load())
	after := diskLevel(free, g.reserve, before)
	if after == before {
		return
	}
	g.level.Store(int32(after))
	if after > before {
		g.log.Error("disk: space is below the reserve, writes are refused", "free_bytes", free, "reserve_bytes", g.reserve,
			"deletes_refused", after == DiskExhausted)
	} else {
		g.log.Info("disk: space is back", "free_bytes", free, "reserve_bytes", g.reserve, "writes_refused", after != DiskOK)
	}
}

// diskLevel asks for a sixteenth more than the reserve to leave a level, so that
// it does not flap.
func diskLevel(free, reserve uint64, before DiskLevel) DiskLevel {
	needs := func(level DiskLevel, bytes uint64) bool {
		if before >= level {
			bytes += reserve / 16
		}
		return free < bytes
	}
	switch {
	case reserve == 0:
		return DiskOK
	case needs(DiskExhausted, reserve/2):
		return DiskExhausted
	case needs(DiskLow, reserve):
		return DiskLow
	}
	return DiskOK
}

// Admit is nil where a write (or a delete) may go on, else graph.ErrDiskFull.
func (g *DiskGuard) Admit(del bool) error {
	level := DiskLevel(g.level.Load())
	if level == DiskOK || (level == DiskLow && del) {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, the reserve is %d", graph.ErrDiskFull, g.last.Load(), g.reserve)
}

// State is the free space as last seen, and what it permits.
func (g *DiskGuard) State() (free uint64, level DiskLevel) {
	return g.last.Load(), DiskLevel(g.level.Load())
}

// Close ends the watch. It is called once.
func (g *DiskGuard) Close() {
	close(g.stop)
	g.watcher.Wait()
}
