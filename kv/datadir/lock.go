package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/lianadb/liana/kv"
)

// lock is the flock on a directory. The kernel drops it when the process ends,
// however it ends. The file names the process for those who come second.
type lock struct {
	file *os.File
}

// acquire takes the lock at path, shared (readers) or exclusive. Held by
// another process it is kv.ErrLocked.
func acquire(path string, shared bool) (*lock, error) {
	flags, how := os.O_RDWR|os.O_CREATE, syscall.LOCK_EX
	if shared {
		flags, how = os.O_RDONLY|os.O_CREATE, syscall.LOCK_SH
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w%s", kv.ErrLocked, holder(f))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &lock{file: f}
	if !shared {
		// The name is a help for people; a full disk must not keep a server from
		// starting.
		_ = l.sign(strconv.Itoa(os.Getpid()) + "\n")
	}
	return l, nil
}

func (l *lock) sign(text string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(text), 0)
	return err
}

// release gives the lock back. The file stays: a new one under the same name
// could be locked by two.
func (l *lock) release() error {
	_ = l.sign("") // fails for a shared lock, which has not signed
	return l.file.Close()
}

// holder is " (process 123)" where the file names a living process, else empty:
// a name left behind by a killed one would mislead.
func holder(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return ""
	}
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}
