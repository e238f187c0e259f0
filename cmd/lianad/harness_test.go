package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// asDaemon makes the test binary behave as lianad, so that the tests start real
// processes of the code under test.
const asDaemon = "LIANAD_TEST_AS_DAEMON"

// atLevel makes it a program of another feature level.
const atLevel = "LIANAD_TEST_AT_LEVEL"

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		h := faultyHost()
		if level, err := strconv.ParseUint(os.Getenv(atLevel), 10, 32); err == nil {
			h.level = uint32(level)
		}
		os.Exit(run(h, os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// process is a running lianad.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string // standard output
	stderr *lockedBuffer
	exited chan struct{} // closed when it has ended; code is set then
	code   int
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// launch starts a process with the arguments given. It does not outlive the test.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return launchWith(t, nil, args...)
}

// launchWith is launch with more environment.
func launchWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), lines: make(chan string, 16), stderr: &lockedBuffer{}, exited: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), asDaemon+"=1"), env...)
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			p.lines <- sc.Text()
		}
		var exit *exec.ExitError
		if err := p.cmd.Wait(); errors.As(err, &exit) {
			p.code = exit.ExitCode()
		}
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("standard error of %v:\n%s", args, p.stderr)
		}
	})
	return p
}

// startArgs is `start` on free ports.
func startArgs(dir string, more ...string) []string {
	return append([]string{"start", "--data-dir", dir, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
		"--resp-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0"}, more...)
}

// daemon is a process that is ready, with clients.
type daemon struct {
	*process
	ready    map[string]string // the words of its line
	graph    pb.GraphClient
	counters pb.CountersClient
	admin    pb.AdminClient
	cluster  pb.ClusterClient
	cache    pb.CacheClient
	changes  pb.ChangesClient
}

func startDaemon(t *testing.T, dir string, more ...string) *daemon {
	t.Helper()
	return launch(t, startArgs(dir, more...)...).daemon()
}

// daemon waits until the process is ready.
func (p *process) daemon() *daemon {
	t := p.t
	t.Helper()
	d := &daemon{process: p, ready: map[string]string{}}
	select {
	case line := <-d.lines:
		rest, ok := strings.CutPrefix(line, "liana ready ")
		if !ok {
			t.Fatalf("first line %q", line)
		}
		for _, w := range strings.Fields(rest) {
			k, v, _ := strings.Cut(w, "=")
			d.ready[k] = v
		}
	case <-d.exited:
		t.Fatalf("ended with %d", d.code)
	case <-time.After(30 * time.Second):
		t.Fatal("not ready")
	}
	conn, err := grpc.NewClient(d.ready["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	d.graph, d.counters = pb.NewGraphClient(conn), pb.NewCountersClient(conn)
	d.admin, d.cluster = pb.NewAdminClient(conn), pb.NewClusterClient(conn)
	d.cache, d.changes = pb.NewCacheClient(conn), pb.NewChangesClient(conn)
	return d
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		p.t.Fatal("does not end")
	}
	return p.code
}

// wantEnd checks an exit code and what the process said.
func (p *process) wantEnd(code int, says ...string) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Errorf("exit code %d, want %d", got, code)
	}
	for _, s := range says {
		if !strings.Contains(p.stderr.String(), s) {
			p.t.Errorf("standard error does not say %q:\n%s", s, p.stderr)
		}
	}
}

func testCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func like(src, dst uint64) *pb.Edge {
	return &pb.Edge{Src: &pb.Vertex{Type: "user", Id: src}, Type: "like", Dst: &pb.Vertex{Type: "note", Id: dst}}
}

func (d *daemon) add(src, dst uint64) {
	d.t.Helper()
	if _, err := d.graph.AddEdge(testCtx(d.t), &pb.AddEdgeRequest{Edge: like(src, dst)}); err != nil {
		d.t.Fatal(err)
	}
}

// countIn is the number of likes of a note.
func (d *daemon) countIn(id uint64) uint64 {
	d.t.Helper()
	resp, err := d.graph.CountEdges(testCtx(d.t), &pb.CountEdgesRequest{
		Vertex: &pb.Vertex{Type: "note", Id: id}, Type: "like", Direction: pb.Direction_IN,
		Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.Count
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// silent runs a command line in this process.
func silent(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(host{}, args, &out, &errs)
	return code, out.String(), errs.String()
}

func pidText(p *process) string { return fmt.Sprint(p.cmd.Process.Pid) }
