package target

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// process is a child of this program. It runs in a process group of its own,
// so that Ctrl-C reaches it by way of Stop only, and is killed by the kernel
// when this program dies without having stopped it.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	out    *tail
}

// startProcess runs path with args. The output goes to a bounded buffer, and to
// watch where one is given.
func startProcess(path string, args []string, as *syscall.Credential, watch io.Writer) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), exited: make(chan struct{}), out: &tail{}}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: as}
	p.cmd.Dir = "/"
	p.cmd.Stderr = p.out
	p.cmd.Stdout = p.out
	if watch != nil {
		p.cmd.Stdout = io.MultiWriter(p.out, watch)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop sends sig, and SIGKILL where the process is still there after grace.
func (p *process) stop(sig syscall.Signal, grace time.Duration) error {
	if p.gone() {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop process %d: %w", p.pid(), err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(grace):
		p.kill()
		return fmt.Errorf("process %d did not stop within %v and was killed", p.pid(), grace)
	}
}

// kill ends the process group at once and waits.
func (p *process) kill() {
	if p.gone() {
		return
	}
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.exited
}

func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// tail keeps the last lines that a process wrote, for error messages.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}

// freePort returns a port of 127.0.0.1 that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// unprivileged returns the account to run a server under that refuses to run
// as root: nil where we are not root.
func unprivileged(names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errU := strconv.ParseUint(u.Uid, 10, 32)
		gid, errG := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errU, errG); err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("none of the accounts %v exists", names)
}

// dirBytes is the space that the files under dir take on disk.
func dirBytes(dir string) (uint64, error) {
	total := uint64(0)
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
			total += uint64(st.Blocks) * 512
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", dir, err)
	}
	return total, nil
}
