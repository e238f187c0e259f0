package pebblekv

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// HookedFS is the operating system's file system, for tests of disks that are slow or
// fail: before is called ahead of each operation that writes or syncs the file or
// directory path. It may take its time; its error is the operation's.
func HookedFS(before func(path string) error) FS {
	return FS{fs: errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		return before(op.Path)
	}))}
}
