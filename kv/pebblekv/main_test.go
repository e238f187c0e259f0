package pebblekv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/lianadb/liana/kv"
)

const (
	// lockEnv names a directory that the test binary, run again, tries to open.
	lockEnv = "PEBBLEKV_TEST_LOCK"
	// aloneEnv is set in a test binary that was run again for one test.
	aloneEnv = "PEBBLEKV_TEST_ALONE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockEnv); dir != "" {
		_, err := Open(dir, Options{})
		fmt.Println("locked:", errors.Is(err, kv.ErrLocked))
		return
	}
	if os.Getenv(aloneEnv) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// alone runs the calling test in a process of its own and reports whether this
// is that process. It is for fatal faults: they leave Pebble's goroutines behind.
func alone(t *testing.T) bool {
	if os.Getenv(aloneEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), aloneEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
