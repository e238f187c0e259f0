package pebblekv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lianadb/liana/kv"
)

// tableBytes is the size at which a replacement begins the next table of its data.
const tableBytes = 64 << 20

// bytesPerSync is how much of a table is written before the disk is told to begin.
const bytesPerSync = 1 << 20

// replacement writes tables beside the database and ingests them in one step.
type replacement struct {
	s     *Store
	parts kv.Parts
	place *kv.Place
	dir   string

	files []string
	table *sstable.Writer
	span  int    // place in the parts of what table holds
	begun []bool // spans that have a table
	// closing brings how the table before ended: it is synced while the next is filled.
	closing chan error
	ended   error // why nothing more may be done; nil otherwise
}

// replacementDir is where the tables of replacements are written.
func (s *Store) replacementDir() string { return s.dir + ".incoming" }

// Replace implements kv.Store.
func (s *Store) Replace(parts kv.Parts) (kv.Replacement, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	dir := s.fs.PathJoin(s.replacementDir(), fmt.Sprintf("%d", s.replacements.Add(1)))
	if err := s.fs.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("pebblekv: replacement: %w", err)
	}
	return &replacement{
		s: s, parts: parts, place: kv.NewPlace(parts), dir: dir, span: -1, begun: make([]bool, 1+len(parts.Local)),
	}, nil
}

// Set implements kv.Replacement.
func (r *replacement) Set(key, value []byte) error {
	if r.ended != nil {
		return r.ended
	}
	if isChain(value) {
		return r.fail(fmt.Errorf("set %x: the value begins like an unfolded chain", key))
	}
	span, err := r.place.Of(key)
	if err != nil {
		return err
	}
	if r.table == nil || span != r.span || span == 0 && r.table.Raw().EstimatedSize() > tableBytes {
		if err := r.begin(span); err != nil {
			return err
		}
	}
	return r.fail(r.table.Set(key, value))
}

func (r *replacement) fail(err error) error {
	if err != nil {
		return fmt.Errorf("pebblekv: replacement: %w", err)
	}
	return nil
}

// begin ends the table at hand and begins one of a span. That of a local span first
// deletes what is there; the data span is excised.
func (r *replacement) begin(span int) error {
	if err := r.end(); err != nil {
		return err
	}
	path := r.s.fs.PathJoin(r.dir, fmt.Sprintf("%06d.sst", len(r.files)))
	f, err := r.s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return r.fail(err)
	}
	r.files = append(r.files, path)
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: bytesPerSync})
	r.table = sstable.NewWriter(objstorageprovider.NewFileWritable(f),
		r.s.options.MakeWriterOptions(6, r.s.db.TableFormat()))
	r.span = span
	if span <= 0 {
		return nil
	}
	r.begun[span] = true
	lower, upper := r.s.bounds(r.parts.Local[span-1])
	return r.fail(r.table.DeleteRange(lower, upper))
}

// end begins to end the table at hand, and waits for the one before.
func (r *replacement) end() error {
	err := r.wait()
	if r.table == nil {
		return err
	}
	table, closed := r.table, make(chan error, 1)
	r.table, r.closing = nil, closed
	go func() { closed <- table.Close() }()
	return err
}

// wait waits until no table is being ended.
func (r *replacement) wait() error {
	if r.closing == nil {
		return nil
	}
	err := <-r.closing
	r.closing = nil
	return r.fail(err)
}

// Commit implements kv.Replacement.
func (r *replacement) Commit(rows []kv.Row) error {
	if r.ended != nil {
		return r.ended
	}
	r.ended = kv.ErrCommitted
	if err := r.place.Rows(rows); err != nil {
		return err
	}
	for i, local := range r.parts.Local {
		lower, upper := r.s.bounds(local)
		if r.begun[i+1] || bytes.Equal(lower, upper) {
			continue
		}
		if err := r.begin(i + 1); err != nil {
			return err
		}
	}
	if err := errors.Join(r.addRows(rows), r.end(), r.wait()); err != nil {
		return err
	}
	if err := r.s.gate.enter(); err != nil {
		return err
	}
	defer r.s.gate.leave()
	var excise pebble.KeyRange // of nothing where no key can lie in the span
	if lower, upper := r.s.bounds(r.parts.Data); !bytes.Equal(lower, upper) {
		excise = pebble.KeyRange{Start: lower, End: upper}
	}
	_, err := r.s.db.IngestAndExcise(context.Background(), r.files, nil, nil, excise)
	return r.fail(err)
}

// addRows writes the rows, each into a table of its own: between their keys may lie
// some that are written to meanwhile.
func (r *replacement) addRows(rows []kv.Row) error {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b kv.Row) int { return bytes.Compare(a.Key, b.Key) })
	for _, row := range rows {
		if err := r.begin(-1); err != nil {
			return err
		}
		if err := r.table.Set(row.Key, row.Value); err != nil {
			return r.fail(err)
		}
	}
	return nil
}

// Close implements kv.Replacement.
func (r *replacement) Close() error {
	if r.ended == kv.ErrClosed {
		return kv.ErrClosed
	}
	r.ended = kv.ErrClosed
	return errors.Join(r.end(), r.wait(), r.fail(r.s.fs.RemoveAll(r.dir)))
}
