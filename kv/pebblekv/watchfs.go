package pebblekv

import (
	"errors"
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
	// fill keeps logs filled ahead of their end (see filledFile).
	fill bool
}

// newFS puts the watch over base, or over the operating system's file system,
// watched for slowness too, when base is nil.
func newFS(base vfs.FS, fill bool, e *events) (vfs.FS, io.Closer) {
	closer := io.Closer(io.NopCloser(nil))
	if base == nil {
		base, closer = vfs.WithDiskHealthChecks(vfs.Default, slowDisk, nil, e.diskSlow)
	}
	return &watchFS{FS: base, doomed: e.doomed, fill: fill}, closer
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

func (fs *watchFS) Unwrap() vfs.FS { return fs.FS }

func (fs *watchFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	f, err = fs.watch(isLog(name), f, err)
	if err != nil || !isLog(name) || !fs.fill {
		return f, err
	}
	return &filledFile{File: f}, nil
}

func (fs *watchFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(old, name, c)
	f, err = fs.watch(isLog(name), f, err)
	if err != nil || !isLog(name) || !fs.fill {
		return f, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fs.check(err), f.Close())
	}
	return &filledFile{File: f, filled: info.Size()}, nil
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

func (f *watchedFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	return n, f.fs.check(err)
}

// filledFile is a log that is written with zeros ahead of its end. A sync of bytes
// that lie in blocks the file has already need not wait for the file system to
// journal its new size: measured on ext4, 0.25 ms against 0.77 ms. Pebble recycles
// logs to the same end, but only once it has filled its first ones. Its reader
// takes zeros behind the last record for the end, as it does the remains of a
// recycled log.
type filledFile struct {
	vfs.File
	end    int64 // of what was written
	filled int64 // of what was written or filled
	zeros  []byte
}

// fillBytes is how far a log is filled ahead. The sync after a fill is a slow one.
const fillBytes = 1 << 20

func (f *filledFile) Write(p []byte) (int, error) {
	end := f.end + int64(len(p))
	if end > f.filled {
		if f.zeros == nil {
			f.zeros = make([]byte, fillBytes)
		}
		if _, err := f.File.WriteAt(f.zeros, end); err != nil {
			return 0, err
		}
		f.filled = end + fillBytes
	}
	n, err := f.File.Write(p)
	f.end += int64(n)
	return n, err
}
