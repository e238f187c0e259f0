package catalog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	fileMagic   = "LIANAMAP"
	fileVersion = 1
	fileHead    = len(fileMagic) + 1 + 4
	fileDraft   = ".new" // added to the name while the file is written
	maxFileSize = 64 << 20
)

// File keeps the last map that a node knew, so that the node can run when the catalog
// has no leader (RULES F4). It holds a secret, the page key, and nobody else may read
// it. A File is used by one goroutine.
type File struct {
	path    string
	version uint64 // of the map in the file, 0 if not known
}

// NewFile returns the file at path, which need not exist; its folder must.
func NewFile(path string) *File { return &File{path: path} }

// Load returns the map, of version 0 where there is no file. A damaged file is an
// error marked kv.ErrCorruption: the node may go on without it and ask the catalog.
func (f *File) Load() (*Map, error) {
	b, err := readBounded(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Map{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: last map: %w", err)
	}
	if len(b) < fileHead || string(b[:len(fileMagic)]) != fileMagic {
		return nil, corruptf("%s is no map", f.path)
	}
	if v := b[len(fileMagic)]; v != fileVersion {
		return nil, corruptf("%s has format %d, this program reads %d", f.path, v, fileVersion)
	}
	body := b[fileHead:]
	if binary.BigEndian.Uint32(b[fileHead-4:]) != checksum(body) {
		return nil, corruptf("%s: the checksum differs", f.path)
	}
	m, err := DecodeMap(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	f.version = m.Version
	return m, nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileSize {
		return nil, corruptf("%s has %d bytes", path, info.Size())
	}
	return os.ReadFile(path)
}

// Save writes m, durably and as a whole or not at all. A map that is not newer than
// the one loaded or saved last is not written.
func (f *File) Save(m *Map) error {
	if m.Version <= f.version {
		return nil
	}
	body := m.Encode()
	b := append(make([]byte, 0, fileHead+len(body)), fileMagic...)
	b = append(b, fileVersion)
	b = binary.BigEndian.AppendUint32(b, checksum(body))
	if err := replace(f.path, append(b, body...)); err != nil {
		return fmt.Errorf("catalog: last map: %w", err)
	}
	f.version = m.Version
	return nil
}

// replace puts a new content under a name: a draft, synced, renamed, and the rename
// synced.
func replace(path string, b []byte) error {
	draft, err := os.OpenFile(path+fileDraft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = draft.Write(b)
	if err := errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+fileDraft, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Follow saves what board shows, at most once every pause, until ctx ends; then it
// saves once more and returns. report is called with each error; the map is saved at
// the next change again.
func (f *File) Follow(ctx context.Context, board *Board, pause time.Duration, report func(error)) {
	for {
		last := ctx.Err() != nil // asked first: what was shown before the end is saved
		m := board.Map()
		if err := f.Save(m); err != nil {
			report(err)
		}
		if last {
			return
		}
		select {
		case <-board.Newer(m.Version):
		case <-ctx.Done():
		}
		rest := time.NewTimer(pause)
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
		rest.Stop()
	}
}
