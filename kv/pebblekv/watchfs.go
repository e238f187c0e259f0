package pebblekv

import (
	"io"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// slowDisk is the time after which a write or sync in progress is reported.
const slowDisk = 5 * time.Second

// watchFS reports the failures that Pebble does not survive when they happen: it
// answers some of them with a panic that no recover stops, or learns of them
// only with the next synced batch. These are failed writes and syncs of logs
// and failed syncs of directories.
type watchFS struct {
	vfs.FS
	// doomed is told of them. It may return; the failure then goes on to Pebble.
	doomed func(error)
}

// newFS puts the watch over base, or over the operating system's file system,
// watched for slowness too, when base is nil.
func newFS(base vfs.FS, e *events) (vfs.FS, io.Closer) {
	closer := io.Closer(io.NopCloser(nil))
	if base == nil {
		base, closer = vfs.WithDiskHealthChecks(vfs.Default, slowDisk, nil, e.diskSlow)
	}
	return &watchFS{FS: base, doomed: e.doomed}, closer
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

func (fs *watchFS) Unwrap() vfs.FS { return fs.FS }

func (fs *watchFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return fs.watch(isLog(name), f, err)
}

func (fs *watchFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(old, name, c)
	return fs.watch(isLog(name), f, err)
}

func (fs *watchFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	return fs.watch(true, f, err)
}

func (fs *watchFS) watch(vital bool, f vfs.File, err error) (vfs.File, error) {
	if !vital {
		return f, err
	}
	if err != nil {
		return f, fs.check(err)
	}
	return &watchedFile{File: f, fs: fs}, nil
}

func (fs *watchFS) check(err error) error {
	if err != nil {
		fs.doomed(newFatalFault("%v", []any{err}))
	}
	return err
}

// watchedFile is a log or a directory.
type watchedFile struct {
	vfs.File
	fs *watchFS
}

func (f *watchedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.fs.check(err)
}

func (f *watchedFile) Sync() error     { return f.fs.check(f.File.Sync()) }
func (f *watchedFile) SyncData() error { return f.fs.check(f.File.SyncData()) }

func (f *watchedFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.fs.check(err)
}

func (f *watchedFile) Close() error { return f.fs.check(f.File.Close()) }
