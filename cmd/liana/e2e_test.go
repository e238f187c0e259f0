package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// serverDir holds the binary of lianad; TestMain removes it.
var serverDir string

// buildServer builds lianad once for all tests, with the flags of `make build` so that
// both share the compiler's cache, and returns the binary.
var buildServer = sync.OnceValues(func() (binary string, err error) {
	if serverDir, err = os.MkdirTemp("", "liana-e2e-"); err != nil {
		return "", err
	}
	binary = filepath.Join(serverDir, "lianad")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "../lianad")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building lianad: %w\n%s", err, out)
	}
	return binary, nil
})

// realServer is a running lianad.
type realServer struct {
	t         *testing.T
	binary    string
	dir, addr string
	command   *exec.Cmd
}

// startReal starts lianad over a new data directory and waits until it serves.
func startReal(t *testing.T) *realServer {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	// A fixed port, so that the server comes back under the same address.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &realServer{t: t, binary: binary, dir: t.TempDir(), addr: listener.Addr().String()}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(s.kill)
	return s
}

// startLimit is how long a server may take until it serves.
const startLimit = 30 * time.Second

func (s *realServer) start() {
	s.t.Helper()
	s.command = exec.Command(s.binary, "start", "--data-dir", s.dir, "--grpc-addr", s.addr,
		"--http-addr", "127.0.0.1:0", "--resp-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0")
	var log bytes.Buffer
	s.command.Stderr = &log
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	limit := time.AfterFunc(startLimit, func() { _ = s.command.Process.Kill() }) // ends the read below
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if !limit.Stop() || err != nil || !strings.Contains(line, "grpc="+s.addr) {
		s.kill()
		s.t.Fatalf("start-up line %q, %v\n%.4000s", line, err, log.String())
	}
}

// kill ends the server as kill -9 does.
func (s *realServer) kill() {
	_ = s.command.Process.Kill() // it may have ended already
	_ = s.command.Wait()         // it was killed
}

// do runs a command line against the server.
func (s *realServer) do(line string) string {
	s.t.Helper()
	return must(s.t, strings.Fields("--addr "+s.addr+" "+line)...)
}

func TestTourOfARealServer(t *testing.T) {
	s := startReal(t)
	for _, step := range []struct{ line, want string }{
		{"edge add user:42 like note:7 --time 2013-09-01", "yes"},
		{"edge add user:42 like note:7", "no"},
		{"edge add user:43 like note:7 --prop device=phone --prop place=x", "yes"},
		{"edge has user:42 like note:7 --linearizable", "yes"},
		{"edge has user:42 like note:7 note:8", "note:8  no"},
		{"edge count note:7 like --in", "2"},
		{"edge count note:7 like --in --until 2014-01-01", "1"},
		{"edge list note:7 like --in --oldest --limit 1", "2013-09-01T00:00:00Z"},
		{"edge list note:7 like --in --by-id --descending", "user:43"},
		{"edge get user:43 like note:7", `{"device":"phone","place":"x"}`},
		{"edge update user:42 like note:7 --time 2013-09-02 --prop device=tv", "yes"},
		{"edge get user:42 like note:7", `2013-09-02T00:00:00Z  {"device":"tv"}`},
		{"edge delete user:43 like note:7", "yes"},
		{"edge delete user:43 like note:7", "no"},
		{"edge add user:44 like note:7 --wait forward", "yes"},
		{"edge has user:44 like note:7", "yes"},
		{"counter incr note:7 views 10", "10"},
		{"counter incr note:7 views -3", "7"},
		{"counter incr note:7 views 4 --max 10", "held back by a cap"},
		{"counter incr --key invites --max 1 --expire-at 2100-01-01 --request-id r1", "1"},
		{"counter incr --key invites --max 1 --expire-at 2100-01-01 --request-id r1", "yes"},
		{"counter set note:7 shares 5", "TOKEN"},
		{"counter get note:7", "note:7 shares   5      yes"},
		{"counter delete note:7 shares", "yes"},
		{"schema show", "like"},
		{"status", "LEADER"},
		{"check", "clean"},
	} {
		if out := s.do(step.line); !strings.Contains(out, step.want) {
			t.Errorf("liana %s: no %q in\n%s", step.line, step.want, out)
		}
	}
	for line, text := range map[string]string{
		"edge add user:1 love note:1":                            "field: edge.type",
		"edge add user:1 like user:1":                            "field: edge.dst.type",
		"edge has note:1 like user:1 user:2":                     "field: src.type",
		"edge add user:1 like note:1 --time 2100-01-01":          "field: edge.time",
		"edge add user:1 like note:1 --time 9223372036854775807": "field: edge.time",
		"edge list note:7 like --in --page-token x":              "field: page_token",
		"edge count note:7 like --in --token x":                  "field: consistency.token",
		"edge get user:1 like note:1":                            "reason: NO_EDGE",
		"counter incr note:7 likes":                              "field: increment.counter.metric",
		"counter incr --key invites 9223372036854775807":         "reason: OVERFLOW",
		"export edges --type love":                               "field: type",
	} {
		liana(strings.Fields("--addr "+s.addr+" "+line)...).expect(t, exitFailed, text)
	}
}

func TestPagesOfARealServerHoldEachEdgeOnce(t *testing.T) {
	s := startReal(t)
	const n, page = 200, 7
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "%d,1,1365029107\n", 1+i*7919%n) // one time for all, ids in no order
	}
	must(t, importArgs(s.addr, write(t, text.String()), "--columns", "src,dst,time_s")...)
	list := func(flags ...string) *lianav1.ListEdgesResponse {
		return asMessage(t, new(lianav1.ListEdgesResponse), append([]string{"--addr", s.addr, "edge", "list", "note:1", "like", "--in"}, flags...)...)
	}
	newest := list("--all").Edges
	oldest := list("--all", "--oldest").Edges
	slices.Reverse(oldest)
	if len(newest) != n || srcIDs(newest) != srcIDs(oldest) {
		t.Errorf("%d edges; one order is not the mirror of the other", len(newest))
	}
	var paged []*lianav1.Edge
	calls := 0
	for token := ""; calls == 0 || token != ""; calls++ {
		answer := list("--limit", strconv.Itoa(page), "--page-token", token)
		paged, token = append(paged, answer.Edges...), answer.NextPageToken
	}
	if srcIDs(paged) != srcIDs(newest) || calls > n/page+2 {
		t.Errorf("%d edges in %d calls", len(paged), calls)
	}
	if skipped := list("--skip", "150").Edges; srcIDs(skipped) != srcIDs(newest[150:]) {
		t.Errorf("skip: got %s", srcIDs(skipped))
	}
	if byID := list("--by-id", "--limit", "3").Edges; srcIDs(byID) != "1 2 3" {
		t.Errorf("by id: got %s", srcIDs(byID))
	}
}

func srcIDs(edges []*lianav1.Edge) string {
	var ids []string
	for _, e := range edges {
		ids = append(ids, strconv.FormatUint(e.Src.Id, 10))
	}
	return strings.Join(ids, " ")
}

func TestReadYourWriteByToken(t *testing.T) {
	s := startReal(t)
	for i := range 20 {
		added := asMessage(t, new(lianav1.AddEdgeResponse), "--addr", s.addr, "edge", "add", fmt.Sprintf("user:%d", i+1), "like", "note:1")
		count := asMessage(t, new(lianav1.CountEdgesResponse), "--addr", s.addr, "edge", "count", "note:1", "like", "--in", "--token", added.Token)
		if count.Count != uint64(i+1) {
			t.Errorf("after %d adds: %d", i+1, count.Count)
		}
	}
}

func TestImportIntoARealServerThatIsKilled(t *testing.T) {
	s := startReal(t)
	const n = 30_000
	name := write(t, bigFile(n, 1, n/2, n))
	args := importArgs(s.addr, name, "--policy", "skip", "--batch", "200")
	done := make(chan result, 1)
	go func() { done <- liana(args...) }()
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		s.kill()
		s.start()
	}
	first := <-done
	first.expect(t, exitPartial)
	if !strings.HasPrefix(first.stdout, fmt.Sprintf("read %d = ", n)) || !strings.HasSuffix(first.stdout, " + rejected 3\n") {
		t.Errorf("got %q", first.stdout)
	}
	if again := importJSON(t, exitPartial, args...); again != (counts{n, 0, n - 3, 3}) {
		t.Errorf("again: %+v", again)
	}
	if out := s.do("check"); !strings.Contains(out, fmt.Sprintf("%d edges: clean", 2*(n-3))) {
		t.Errorf("check: %s", out)
	}
}

func TestExportOfARealServerComesBack(t *testing.T) {
	s := startReal(t)
	s.do("demo --likes 3000")
	s.do("edge add user:1 like note:1000000 --time 2013-01-01 --prop device=phone")
	s.do("edge add user:1 follow user:1")
	name := filepath.Join(t.TempDir(), "likes.csv")
	s.do("export edges --type like --output " + name)
	to := startReal(t)
	import1 := "import edges " + name + " --type like --from user --to note --columns src,type,dst,time,properties --header"
	if out := to.do(import1); out != "read 3001 = created 3001 + already there 0 + rejected 0\n" {
		t.Errorf("got %s", out)
	}
	if a, b := s.do("export edges --type like"), to.do("export edges"); a != b {
		t.Errorf("the exports differ: %d and %d bytes", len(a), len(b))
	}
	for _, line := range []string{"edge list user:1 like --all -o json", "edge get user:1 like note:1000000"} {
		a, b := s.do(line), to.do(line)
		if cut, _, found := strings.Cut(a, `"next_page_token"`); found {
			a, b = cut, strings.SplitN(b, `"next_page_token"`, 2)[0] // tokens belong to their cluster
		}
		if a != b {
			t.Errorf("liana %s:\n%s\nand\n%s", line, a, b)
		}
	}
}

func TestImportFindsTheRowThatARealServerRefuses(t *testing.T) {
	s := startReal(t)
	name := write(t, futureRows(500, 1, 77, 78, 300, 500))
	r := liana(importArgs(s.addr, name, "--columns", "src,dst,time_s", "--batch", "64", "--policy", "skip")...)
	r.expect(t, exitPartial, "line 1: time: ", "line 77: ", "line 78: ", "line 300: ", "line 500: ")
	if !strings.Contains(r.stdout, "rejected 5") || s.do("check") != "990 lists, 990 edges: clean\n" {
		t.Errorf("got %s\n%s", r.stdout, s.do("check"))
	}
}
