package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// counts are the rows of an import. Read is counted where rows are read, the others
// where they are settled; they must add up.
type counts struct {
	Read         uint64 `json:"read"`
	Created      uint64 `json:"created"`
	AlreadyThere uint64 `json:"already_there"`
	Rejected     uint64 `json:"rejected"`
}

func (c counts) addUp() bool { return c.Read == c.Created+c.AlreadyThere+c.Rejected }

// checkpoint is the progress of an import: all rows before At are settled. It is kept
// in a file beside the imported one.
type checkpoint struct {
	File    fileIdentity `json:"file"`
	Mapping mapping      `json:"mapping"`
	// The cluster that holds the edges: another one must get all rows.
	Cluster string   `json:"cluster"`
	At      position `json:"at"`
	Counts  counts   `json:"counts"`
	// Size of the rejects file: what stands behind belongs to rows that come again.
	RejectsSize int64 `json:"rejects_size"`
}

// fits says whether an import that begins as `now` can go on from c. If not, it says why.
func (c *checkpoint) fits(now *checkpoint) (reason string) {
	switch {
	case c.File != now.File:
		return "the file has changed"
	case !c.Mapping.same(&now.Mapping):
		return "the mapping of the columns is another one"
	case c.Cluster != now.Cluster:
		return "it belongs to another cluster"
	}
	return ""
}

func (m *mapping) same(other *mapping) bool {
	return m.Type == other.Type && m.From == other.From && m.To == other.To && m.Columns == other.Columns &&
		m.Delimiter == other.Delimiter && m.Header == other.Header
}

// loadCheckpoint reads a progress file; nil where there is none.
func loadCheckpoint(name string) (*checkpoint, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := new(checkpoint)
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	return c, nil
}

// saveInterval is how often the progress is written. What was settled since then is
// sent again after a crash, and counts as already there.
const saveInterval = time.Second

// progressFile keeps the newest checkpoint on disk. With an empty name it keeps nothing.
type progressFile struct {
	name  string
	saved time.Time
}

// temporary is where the file is written, before it is renamed; empty where nothing
// is kept.
func (f *progressFile) temporary() string {
	if f.name == "" {
		return ""
	}
	return f.name + ".tmp"
}

func (f *progressFile) save(c *checkpoint) error {
	f.saved = time.Now()
	if f.name == "" {
		return nil
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", f.name, err)
	}
	// Renamed into place, so that a crash leaves this one or the one before.
	if err := os.WriteFile(f.temporary(), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the progress file: %w", err)
	}
	if err := os.Rename(f.temporary(), f.name); err != nil {
		return fmt.Errorf("writing the progress file: %w", err)
	}
	return nil
}

func (f *progressFile) due() bool { return time.Since(f.saved) >= saveInterval }

func (f *progressFile) remove() error {
	if f.name == "" {
		return nil
	}
	if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the progress file: %w", err)
	}
	return nil
}
