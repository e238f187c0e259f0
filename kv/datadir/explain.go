package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/lianadb/liana/kv"
)

// explain adds the directory to an error of Open, and what can be done about it.
func explain(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("data directory %s: %w%s", path, err, advice(err))
}

func advice(err error) string {
	switch {
	case errors.Is(err, kv.ErrLocked):
		return "; stop that process, or choose another directory"
	case errors.Is(err, ErrFormat):
		return "; use the version of Liana that made it, or choose another directory"
	case errors.Is(err, ErrForeign):
		return "; choose an empty or a new directory"
	case errors.Is(err, ErrAbsent):
		return "; name one that `lianad start` has made"
	case errors.Is(err, ErrShards):
		return "; leave the number out to use what is there"
	case errors.Is(err, kv.ErrCorruption):
		return "; put " + identityFile + " back from a copy: without it the data cannot be opened"
	case errors.Is(err, syscall.ENOTDIR):
		return "; it is a file: choose a directory"
	case errors.Is(err, fs.ErrPermission):
		return "; give this user the right to read and write it"
	}
	return ""
}
