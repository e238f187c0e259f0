package pebblekv

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lianadb/liana/kv"
)

// ErrFatal marks a fault after which Pebble cannot go on: the log or the
// manifest could not be written. The process has to end; see Options.OnFault.
var ErrFatal = errors.New("pebblekv: fatal")

// corrupt marks err with kv.ErrCorruption where Pebble says so.
func corrupt(err error) error {
	if err != nil && pebble.IsCorruptionError(err) && !errors.Is(err, kv.ErrCorruption) {
		return fmt.Errorf("%w: %w", kv.ErrCorruption, err)
	}
	return err
}

// DamagedTable says that a table is damaged. It is a kv.ErrCorruption.
type DamagedTable struct {
	Path string
	Span kv.Span // where its keys lie
	Err  error
}

func (d *DamagedTable) Error() string   { return fmt.Sprintf("pebblekv: table %s: %v", d.Path, d.Err) }
func (d *DamagedTable) Unwrap() []error { return []error{kv.ErrCorruption, d.Err} }

func damagedTable(i pebble.DataCorruptionInfo) *DamagedTable {
	d := &DamagedTable{Path: i.Path, Span: kv.Span{Lower: bytes.Clone(i.Bounds.Start)}, Err: i.Details}
	if end := i.Bounds.End; end.Key != nil {
		d.Span.Upper = bytes.Clone(end.Key)
		if end.IsUpperBoundFor(bytes.Compare, end.Key) { // inclusive
			d.Span.Upper = append(d.Span.Upper, 0)
		}
	}
	return d
}

// openError marks an error of pebble.Open.
func openError(err error) error {
	// Another process holding the lock is EAGAIN, or on some systems EACCES, which
	// on the others is a directory that may not be written. Pebble's own answer for
	// a lock held by this process is a text only.
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held by current process") {
		return fmt.Errorf("%w: %w", kv.ErrLocked, err)
	}
	if errors.Is(err, fs.ErrNotExist) { // what the manifest names is gone
		return fmt.Errorf("%w: %w", kv.ErrCorruption, err)
	}
	return corrupt(err)
}
