package pebblekv

import (
	"errors"
	"fmt"
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

// openError marks an error of pebble.Open.
func openError(err error) error {
	// Another process holding the lock is EAGAIN, or on some systems EACCES, which
	// on the others is a directory that may not be written. Pebble's own answer for
	// a lock held by this process is a text only.
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held by current process") {
		return fmt.Errorf("%w: %w", kv.ErrLocked, err)
	}
	return corrupt(err)
}
