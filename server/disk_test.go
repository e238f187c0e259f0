package server

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lianadb/liana/graph"
)

func TestDiskLevels(t *testing.T) {
	const reserve = 1600
	cases := []struct {
		free   uint64
		before DiskLevel
		want   DiskLevel
	}{
		{1600, DiskOK, DiskOK},
		{1599, DiskOK, DiskLow},
		{800, DiskOK, DiskLow},
		{799, DiskOK, DiskExhausted},
		{1650, DiskLow, DiskLow}, // it takes a sixteenth more to go back
		{1700, DiskLow, DiskOK},
		{850, DiskExhausted, DiskExhausted},
		{900, DiskExhausted, DiskLow},
		{1700, DiskExhausted, DiskOK},
		{0, DiskOK, DiskExhausted},
	}
	for _, c := range cases {
		if got := diskLevel(c.free, reserve, c.before); got != c.want {
			t.Errorf("%d bytes free, at level %d: %d, want %d", c.free, c.before, got, c.want)
		}
	}
	if got := diskLevel(0, 0, DiskOK); got != DiskOK {
		t.Errorf("no reserve: %d", got)
	}
}

func TestTheDiskGuardRefusesWritesAndRecoversByItself(t *testing.T) {
	var free atomic.Uint64
	var broken atomic.Bool
	free.Store(10_000)
	g := newDiskGuard(func() (uint64, error) {
		if broken.Load() {
			return 0, errors.New("planted")
		}
		return free.Load(), nil
	}, 1000, time.Millisecond, slog.New(slog.DiscardHandler))
	defer g.Close()
	refuses := func(del bool) bool {
		err := g.Admit(del)
		if err != nil && !errors.Is(err, graph.ErrDiskFull) {
			t.Fatalf("error %v", err)
		}
		return err != nil
	}
	if refuses(false) || refuses(true) {
		t.Fatal("refused with room")
	}
	free.Store(999)
	waitFor(t, "writes to be refused", func() bool { return refuses(false) })
	if refuses(true) {
		t.Error("a delete is refused above half the reserve")
	}
	free.Store(499)
	waitFor(t, "deletes to be refused", func() bool { return refuses(true) })
	broken.Store(true)
	time.Sleep(10 * time.Millisecond)
	if !refuses(true) {
		t.Error("a file system that does not answer counts as room")
	}
	broken.Store(false)
	free.Store(10_000)
	waitFor(t, "writes to go on", func() bool { return !refuses(false) })
}

func TestFreeBytesReadsTheFileSystem(t *testing.T) {
	if free, err := freeBytes(t.TempDir()); err != nil || free == 0 {
		t.Errorf("%d, %v", free, err)
	}
	if _, err := freeBytes("/does/not/exist"); err == nil {
		t.Error("no error for a path that is not there")
	}
}
