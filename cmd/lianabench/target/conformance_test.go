package target

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lianadb/liana/cmd/lianabench/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// form says what a system can be asked.
type form struct {
	lists bool // lists by time
	out   bool // by user: counts, lists
}

func TestRedisConforms(t *testing.T) {
	needs(t, "redis-server")
	for name, f := range map[string]form{"redis-fsync": {lists: true, out: true}, "redis": {lists: true, out: true}, "redis-bitmap": {}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, name, Options{Lists: f.lists})
			conforms(t, s, f)
			if name == "redis-fsync" {
				survivesCrash(t, s)
			}
		})
	}
}

func TestPostgresConforms(t *testing.T) {
	if _, err := postgresBin(); err != nil {
		t.Skip(err)
	}
	s := start(t, "postgres", Options{Lists: true})
	conforms(t, s, form{lists: true, out: true})
	survivesCrash(t, s)
}

func TestLianaSessionConforms(t *testing.T) {
	for _, api := range []string{APIMutate, APIStream} {
		t.Run(api, func(t *testing.T) {
			addr := serveFake(t)
			s := start(t, "liana", Options{Liana: LianaOptions{Addr: addr, Conns: 2, API: api}})
			conforms(t, s, form{lists: true, out: true})
		})
	}
}

// TestLianadConforms runs against the real server where LIANAD names it.
func TestLianadConforms(t *testing.T) {
	binary := os.Getenv("LIANAD")
	if binary == "" {
		t.Skip("LIANAD does not name a server binary")
	}
	s := start(t, "liana", Options{Liana: LianaOptions{Binary: binary, Shards: 4, Conns: 2, API: APIStream}})
	conforms(t, s, form{lists: true, out: true})
	survivesCrash(t, s)
}

func TestStartNamesTheFault(t *testing.T) {
	if _, err := Start(t.Context(), "mysql", t.TempDir(), Options{}); err == nil {
		t.Error("an unknown system started")
	}
	_, err := Start(t.Context(), "liana", t.TempDir(), Options{Liana: LianaOptions{Binary: "/nonexistent/lianad"}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

// start runs a system in a directory that other accounts may enter.
func start(t *testing.T, name string, o Options) Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "lianabench-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), name, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(t *testing.T, s Server) Session {
	t.Helper()
	session, err := s.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// must fails the test where a write did not do what it should.
func must(t *testing.T, what string, got, want bool, err error) {
	t.Helper()
	if err != nil || got != want {
		t.Fatalf("%s: changed %v, want %v (error %v)", what, got, want, err)
	}
}

// conforms asks a system everything, beginning with an empty store.
func conforms(t *testing.T, s Server, f form) {
	t.Helper()
	if s.Name() == "" || len(s.Facts()) == 0 {
		t.Error("the system does not say what it is")
	}
	ctx, c := t.Context(), open(t, s)
	at := func(i int) int64 { return 1_700_000_000_000_000 + int64(i)*1_000_000 }
	edge := func(user, note uint64, i int) workload.Edge { return workload.Edge{Src: user, Dst: note, Time: at(i)} }

	changed, err := c.AddEdge(ctx, edge(1, 10, 0))
	must(t, "first add", changed, true, err)
	changed, err = c.AddEdge(ctx, edge(1, 10, 5))
	must(t, "second add", changed, false, err)
	changed, err = c.DeleteEdge(ctx, edge(2, 10, 0))
	must(t, "delete of an absent edge", changed, false, err)

	// 120 users like note 10, two of them twice in the batch: beyond one pipeline.
	var batch []workload.Edge
	for u := uint64(1); u <= 120; u++ {
		batch = append(batch, edge(u, 10, int(u)))
	}
	batch = append(batch, edge(50, 11, 200), edge(1, 11, 201), edge(1, 12, 202))
	n, err := c.AddEdges(ctx, batch)
	if err != nil || n != 122 {
		t.Fatalf("batch: %d new edges, want 122 (error %v)", n, err)
	}

	exists := make([]bool, 5)
	if err := c.HasEdges(ctx, 1, []uint64{10, 99, 12, 10, 11}, exists); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, true, true, true} {
		if exists[i] != want {
			t.Errorf("HasEdges: %v", exists)
			break
		}
	}
	counts(t, c, true, []uint64{10, 99, 11, 10}, []uint64{120, 0, 2, 120})
	changed, err = c.DeleteEdge(ctx, edge(120, 10, 0))
	must(t, "delete", changed, true, err)
	counts(t, c, true, []uint64{10}, []uint64{119})
	if f.out {
		counts(t, c, false, []uint64{1, 120, 50}, []uint64{3, 0, 2})
	}
	if f.lists {
		listsConform(t, c, edge, at)
	} else if _, err := c.ListNewest(ctx, List{Vertex: 10, In: true}, 0, 10, nil); err == nil {
		t.Error("a list without lists")
	}
}

func counts(t *testing.T, c Session, in bool, ids, want []uint64) {
	t.Helper()
	got := make([]uint64, len(ids))
	if err := c.CountEdges(t.Context(), in, ids, got); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("counts of %v (in: %v) = %v, want %v", ids, in, got, want)
			return
		}
	}
}

// listsConform looks at note 10 (users 1 … 119) and user 1 (notes 10, 11, 12).
// The batch that came after the first add did not move user 1 in time.
func listsConform(t *testing.T, c Session, edge func(uint64, uint64, int) workload.Edge, at func(int) int64) {
	t.Helper()
	ctx := t.Context()
	likers := List{Vertex: 10, In: true}
	page, err := c.ListNewest(ctx, likers, 0, 3, nil)
	samePage(t, "newest", page, err, Peer{119, at(119)}, Peer{118, at(118)}, Peer{117, at(117)})
	page, err = c.ListNewest(ctx, likers, 117, 5, page[:0])
	samePage(t, "the end", page, err, Peer{2, at(2)}, Peer{1, at(0)})
	page, err = c.ListNewest(ctx, List{Vertex: 1}, 1, 1, nil)
	samePage(t, "of a user", page, err, Peer{11, at(201)})
	page, err = c.ListNewest(ctx, List{Vertex: 777}, 0, 10, nil)
	samePage(t, "of nobody", page, err)

	n, err := c.CountWindow(ctx, likers, at(10), at(20))
	if err != nil || n != 10 {
		t.Errorf("count in a window = %d, want 10 (error %v)", n, err)
	}
	changed, err := c.UpdateEdge(ctx, edge(5, 10, 300))
	must(t, "update", changed, true, err)
	changed, err = c.UpdateEdge(ctx, edge(120, 10, 300))
	must(t, "update of an absent edge", changed, false, err)
	page, err = c.ListNewest(ctx, likers, 0, 2, nil)
	samePage(t, "after an update", page, err, Peer{5, at(300)}, Peer{119, at(119)})
}

func samePage(t *testing.T, what string, got []Peer, err error, want ...Peer) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if len(got) != len(want) {
		t.Fatalf("%s: page %v, want %v", what, got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: page %v, want %v", what, got, want)
		}
	}
}

// survivesCrash kills the server after an acknowledged write and finds the
// write again; then it measures the disk.
func survivesCrash(t *testing.T, s Server) {
	t.Helper()
	ctx := t.Context()
	c := open(t, s)
	e := workload.Edge{Src: 4711, Dst: 10, Time: 1_700_000_000_000_000}
	changed, err := c.AddEdge(ctx, e)
	must(t, "add before the crash", changed, true, err)
	_ = c.Close()
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	took, err := WaitReady(ctx, s, 20*time.Second, func(ctx context.Context, c Session) error {
		exists := make([]bool, 1)
		if err := c.HasEdges(ctx, e.Src, []uint64{e.Dst}, exists); err != nil {
			return err
		}
		if !exists[0] {
			return errors.New("the acknowledged like is gone")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := s.DiskUsage(ctx)
	if err != nil || len(parts) == 0 {
		t.Fatalf("disk usage %v (error %v)", parts, err)
	}
	t.Logf("served again after %v; disk %v", took, parts)
}

func TestProcessesAreStopped(t *testing.T) {
	p, err := startProcess("/bin/sh", []string{"-c", "trap '' TERM; echo hello; sleep 60"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for p.out.String() != "hello" {
		time.Sleep(time.Millisecond)
	}
	if err := p.stop(15, 50*time.Millisecond); err == nil {
		t.Error("a process that does not listen was stopped without an error")
	}
	if !p.gone() {
		t.Error("the process is still there")
	}
	if err := p.stop(15, time.Second); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestDirBytesCountsFilesOnly(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := dirBytes(dir)
	if err != nil || n < 100_000 || n > 200_000 {
		t.Errorf("%d bytes (error %v)", n, err)
	}
	if n, err := dirBytes(filepath.Join(dir, "absent")); n != 0 || err != nil {
		t.Errorf("absent: %d, %v", n, err)
	}
}
