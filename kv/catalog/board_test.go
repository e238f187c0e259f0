package catalog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
)

func TestABoardTellsOfNewMaps(t *testing.T) {
	b := NewBoard(nil)
	newer := b.Newer(0)
	if err := b.Post(sample().Since(0)); err != nil {
		t.Fatal(err)
	}
	<-newer
	<-b.Newer(899)
	select {
	case <-b.Newer(900):
		t.Error("900 is newer than 900")
	default:
	}
	other := *sample()
	other.ClusterID, other.Version = "x", 1000
	if err := b.Post(other.Since(0)); !errors.Is(err, ErrForeign) || b.Map().Version != 900 {
		t.Error(err)
	}
	next := *sample()
	next.Version, next.SettingsVersion, next.Replication = 901, 901, 1
	if err := b.Post(next.Since(900)); err != nil || b.Map().Replication != 1 || len(b.Map().Shards) != 3 {
		t.Error(err)
	}
	shown, newer := b.Map(), b.Newer(901)
	for _, m := range []*Map{sample(), &next} {
		b.show(m)
		if err := b.Post(m.Since(0)); err != nil || b.Map() != shown {
			t.Error("the board shows another map", err)
		}
	}
	select {
	case <-newer:
		t.Error("the board told of a map that is not newer")
	default:
	}
}

func TestTheLastMapSurvivesOnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "MAP")
	f := NewFile(path)
	if m, err := f.Load(); err != nil || m.Version != 0 {
		t.Fatal(m, err)
	}
	if err := f.Save(&Map{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("an unfounded map was written")
	}
	if err := f.Save(firstOf(sample())); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error("others may read the page key", err)
	}
	if err := os.WriteFile(path+fileDraft, []byte("half a"), 0o600); err != nil { // of a save that was cut short
		t.Fatal(err)
	}
	if err := f.Save(sample()); err != nil {
		t.Fatal(err)
	}
	m, err := NewFile(path).Load()
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, m, sample())
	older := sample()
	older.Version, older.Nodes[1].Changed, older.Schema = 899, 899, nil
	for _, f := range []*File{f, loaded(t, path)} {
		if err := f.Save(older); err != nil {
			t.Fatal(err)
		}
	}
	if m, _ := NewFile(path).Load(); m.Version != 900 {
		t.Error("an older map replaced a newer one")
	}
	if err := NewFile(filepath.Join(path, "x", "y")).Save(sample()); err == nil {
		t.Error("saved where there is no folder")
	}
}

func loaded(t *testing.T, path string) *File {
	t.Helper()
	f := NewFile(path)
	if _, err := f.Load(); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestADamagedFileIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "MAP")
	if err := NewFile(path).Save(sample()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for _, bad := range [][]byte{whole[:i], append(append(slices.Clone(whole[:i]), whole[i]^0x40), whole[i+1:]...)} {
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := NewFile(path).Load()
			if !errors.Is(err, kv.ErrCorruption) {
				t.Fatalf("byte %d, %d bytes: %v", i, len(bad), err)
			}
			if strings.Contains(err.Error(), "0123456789abcdef") {
				t.Fatalf("the error tells the page key: %v", err)
			}
		}
	}
}

func TestAFollowerSavesWhatTheBoardShows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "MAP")
	board := NewBoard(nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		NewFile(path).Follow(ctx, board, time.Millisecond, func(err error) { t.Error(err) })
	}()
	load := func() uint64 {
		m, err := NewFile(path).Load()
		if err != nil {
			t.Fatal(err)
		}
		return m.Version
	}
	first := sample()
	if err := board.Post(first.Since(0)); err != nil {
		t.Fatal(err)
	}
	for load() != 900 {
		time.Sleep(time.Millisecond)
	}
	next := *first
	next.Version = 901
	if err := board.Post(next.Since(900)); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	if load() != 901 {
		t.Error("the newest map was not saved at the end")
	}
}

func TestAFollowerReportsErrorsAndTriesAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	board := NewBoard(sample())
	ctx, cancel := context.WithCancel(context.Background())
	NewFile(filepath.Join(dir, "MAP")).Follow(ctx, board, 0, func(err error) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		cancel()
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			t.Error(err)
		}
	})
	loaded(t, filepath.Join(dir, "MAP"))
	if m, err := NewFile(filepath.Join(dir, "MAP")).Load(); err != nil || m.Version != 900 {
		t.Error(m, err)
	}
}
