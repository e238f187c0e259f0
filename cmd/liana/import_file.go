package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// headBytes is how much of a file's beginning its identity covers.
const headBytes = 64 << 10

// fileIdentity tells whether a file is the one an earlier import began with.
type fileIdentity struct {
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime_ns"`
	Head  string `json:"head_sha256"`
}

// importFile is an open file to import, unpacked where it is gzip.
type importFile struct {
	name     string
	file     *os.File // nil for the standard input
	identity fileIdentity
	packed   bool
	raw      *countingReader // the bytes as they lie on disk
	unpacked io.Reader
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// openImport opens a file, or the standard input for "-". gzip is recognised by its
// first bytes; packed demands it.
func openImport(name string, stdin io.Reader, packed bool) (*importFile, error) {
	f := &importFile{name: name, packed: packed}
	if name == "-" {
		f.raw = &countingReader{r: stdin}
		return f, f.unpack(bufio.NewReaderSize(f.raw, headBytes))
	}
	var err error
	if f.file, err = os.Open(name); err != nil {
		return nil, err
	}
	f.raw = &countingReader{r: f.file}
	buffered := bufio.NewReaderSize(f.raw, headBytes)
	if err = f.identify(buffered); err == nil {
		err = f.unpack(buffered)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *importFile) identify(r *bufio.Reader) error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a directory", f.name)
	}
	head, err := r.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading %s: %w", f.name, err)
	}
	sum := sha256.Sum256(head)
	f.identity = fileIdentity{info.Size(), info.ModTime().UnixNano(), hex.EncodeToString(sum[:])}
	return nil
}

func (f *importFile) unpack(r *bufio.Reader) error {
	magic, _ := r.Peek(2) // a file shorter than that is no gzip
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if f.packed {
			return fmt.Errorf("%s is not gzip, although --gzip says so", f.name)
		}
		f.unpacked = r
		return nil
	}
	f.packed = true
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("reading %s: %w", f.name, err)
	}
	f.unpacked = cutReader{unpacked, f.name}
	return nil
}

// cutReader says what the bare error of a cut gzip file means.
type cutReader struct {
	r    io.Reader
	name string
}

func (c cutReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("reading %s: the gzip data is cut short: %w", c.name, err)
	case err != nil && !errors.Is(err, io.EOF):
		err = fmt.Errorf("reading %s: %w", c.name, err)
	}
	return n, err
}

// skip passes over the first bytes of the unpacked data.
func (f *importFile) skip(offset int64) error {
	if f.file != nil && !f.packed {
		if _, err := f.file.Seek(offset, io.SeekStart); err != nil {
			return fmt.Errorf("reading %s: %w", f.name, err)
		}
		f.raw.n = offset
		f.unpacked = f.raw
		return nil
	}
	if _, err := io.CopyN(io.Discard, f.unpacked, offset); err != nil {
		return fmt.Errorf("reading %s up to byte %d: %w", f.name, offset, err)
	}
	return nil
}

// spare refuses to write over the file itself, or over one's own progress.
func (f *importFile) spare(rejects string, progress progressFile) error {
	switch {
	case f.is(rejects):
		return usagef("--rejects: %s is the file to import", rejects)
	case f.is(progress.name), f.is(progress.temporary()):
		return usagef("--progress-file: it would be written over %s, the file to import", f.name)
	case rejects != "" && sameFile(rejects, progress.name):
		return usagef("--rejects: %s is the progress file", rejects)
	}
	return nil
}

// is reports whether name is another name of the file.
func (f *importFile) is(name string) bool {
	return name != "" && f.file != nil && sameFile(name, f.name)
}

// sameFile reports whether two names are of one file, whether it is there or not.
func sameFile(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// share is how much of the file has been read, or -1.
func (f *importFile) share() float64 {
	if f.file == nil || f.identity.Size == 0 {
		return -1
	}
	return float64(f.raw.n) / float64(f.identity.Size)
}

func (f *importFile) close() {
	if f.file != nil {
		_ = f.file.Close() // it was only read
	}
}
