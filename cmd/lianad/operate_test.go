package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// await looks at the cluster until it is as wanted.
func (f *fleet) await(what string, wanted func(*pb.GetClusterResponse) bool) *pb.GetClusterResponse {
	f.t.Helper()
	var last *pb.GetClusterResponse
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if last = f.look(); last != nil && wanted(last) {
			return last
		}
	}
	f.t.Fatalf("%s: it is\n%v", what, last)
	return nil
}

func nodeAt(a *pb.GetClusterResponse, peer string) *pb.ClusterNode {
	for _, n := range a.GetNodes() {
		if n.GetPeerAddr() == peer && n.GetState() != "removed" {
			return n
		}
	}
	return nil
}

// without reports that no shard has a replica on a node.
func without(a *pb.GetClusterResponse, node string) bool {
	for _, s := range a.GetShards() {
		for _, r := range s.GetReplicas() {
			if r.GetNode() == node {
				return false
			}
		}
	}
	return true
}

func remarked(a *pb.GetClusterResponse, text string) bool {
	return slices.ContainsFunc(a.GetRemarks(), func(r string) bool { return strings.Contains(r, text) })
}

// A node that stays away is replaced after the delay, by itself; before, the cluster
// says when.
func TestALostNodeIsReplacedAfterTheDelay(t *testing.T) {
	conf := writeFile(t, "liana.yaml", "cluster:\n  dead_after: 12s\n")
	f := newTrio(t, "--config", conf)
	for i := range uint64(50) {
		f.node(0).add(i+1, i%5+1)
	}
	lost := f.id(2)
	f.places[2].destroy()
	fourth := f.join().daemon()
	f.await("silence is told of", func(a *pb.GetClusterResponse) bool { return remarked(a, "its copies are made elsewhere") })
	begun := time.Now()
	f.await("the node is taken for dead", func(a *pb.GetClusterResponse) bool { return remarked(a, lost+" is taken for dead") })
	f.await("its copies are made anew", func(a *pb.GetClusterResponse) bool { return without(a, lost) && atRest(a) })
	t.Logf("made anew %v after the silence was noticed", time.Since(begun))
	if _, err := f.node(0).cluster.RemoveNode(testCtx(t), &pb.RemoveNodeRequest{Node: lost}); err != nil {
		t.Errorf("the empty node is not removed: %v", err)
	}
	for note := range uint64(5) {
		if got := fourth.countIn(note + 1); got != 10 {
			t.Errorf("note %d has %d likes, want 10", note+1, got)
		}
	}
}

// A lost node that holds copies is removed in one step, where there is room for them.
func TestALostNodeIsRemovedInOneStep(t *testing.T) {
	f := newTrio(t)
	for i := range uint64(50) {
		f.node(0).add(i+1, i%5+1)
	}
	lost := f.id(2)
	operator := f.node(0).cluster
	_, err := operator.RemoveNode(testCtx(t), &pb.RemoveNodeRequest{Node: lost})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "Drain it first") {
		t.Errorf("a node that answers: %v", err)
	}
	f.places[2].destroy()
	_, err = operator.RemoveNode(testCtx(t), &pb.RemoveNodeRequest{Node: lost})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "Add a storage node first") {
		t.Errorf("without room: %v", err)
	}
	fourth := f.join().daemon()
	if _, err := operator.RemoveNode(testCtx(t), &pb.RemoveNodeRequest{Node: lost}); err != nil {
		t.Fatal(err)
	}
	a := f.await("the node is removed", func(a *pb.GetClusterResponse) bool {
		return without(a, lost) && nodeState(a, lost) == "removed"
	})
	if !without(a, lost) {
		t.Errorf("%v", a)
	}
	f.await("three voters each", atRest)
	for note := range uint64(5) {
		if got := fourth.countIn(note + 1); got != 10 {
			t.Errorf("note %d has %d likes, want 10", note+1, got)
		}
	}
	// With the majority lost, nothing is removed: the steps are told.
	f.places[1].destroy()
	f.node(0).signal(syscall.SIGSTOP)
	_, err = fourth.cluster.RemoveNode(testCtx(t), &pb.RemoveNodeRequest{Node: nodeAt(a, f.places[1].peer).GetId()})
	f.node(0).signal(syscall.SIGCONT)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "needs 2 to elect a leader") {
		t.Errorf("without a majority: %v", err)
	}
}

func nodeState(a *pb.GetClusterResponse, id string) string {
	for _, n := range a.GetNodes() {
		if n.GetId() == id {
			return n.GetState()
		}
	}
	return ""
}

// load writes to a trio through all nodes, each write until it is acknowledged, and
// remembers what was.
type load struct {
	f        *fleet
	stop     chan struct{}
	wg       sync.WaitGroup
	done     atomic.Int64
	repeated atomic.Int64
	mu       sync.Mutex
	other    map[string]int // errors that say no retry
}

const loadClients = 4

func startLoad(f *fleet) *load {
	l := &load{f: f, stop: make(chan struct{}), other: map[string]int{}}
	for c := range uint64(loadClients) {
		l.wg.Go(func() { l.run(c) })
	}
	return l
}

// run adds edges client → 1, 2, 3 …, and increments a counter of the client as often.
func (l *load) run(client uint64) {
	rng := rand.New(rand.NewSource(int64(client)))
	for i := uint64(1); ; i++ {
		select {
		case <-l.stop:
			return
		default:
		}
		l.until(rng, func(ctx context.Context, d *daemon) error {
			_, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(9000+client, i)})
			return err
		})
		l.until(rng, func(ctx context.Context, d *daemon) error {
			_, err := d.counters.IncrBy(ctx, &pb.IncrByRequest{
				Increment: &pb.Increment{Counter: &pb.CounterRef{Key: fmt.Sprint("load ", client)}, Delta: 1},
				RequestId: fmt.Sprintf("load-%d-%d", client, i),
			})
			return err
		})
		l.mu.Lock()
		l.done.Add(1)
		l.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
}

// until repeats a call, at any node, until it is acknowledged.
func (l *load) until(rng *rand.Rand, call func(context.Context, *daemon) error) {
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := call(ctx, l.f.node(rng.Intn(3)))
		cancel()
		if err == nil {
			return
		}
		l.repeated.Add(1)
		if status.Code(err) != codes.Unavailable {
			l.mu.Lock()
			l.other[fmt.Sprintf("%v", err)]++
			l.mu.Unlock()
		}
		time.Sleep(20 * time.Millisecond)
	}
	l.f.t.Errorf("a write was not acknowledged within a minute")
}

// end stops the load and checks that everything acknowledged is there, once.
func (l *load) end() {
	t := l.f.t
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	t.Logf("%d writes, %d calls repeated", 2*l.done.Load(), l.repeated.Load())
	if l.done.Load() < 100 {
		t.Errorf("only %d writes", 2*l.done.Load())
	}
	for text, n := range l.other {
		t.Errorf("%d calls failed with what says no retry: %s", n, text)
	}
	total := int64(0)
	for c := range uint64(loadClients) {
		got, err := l.f.node(0).counters.Get(testCtx(t), &pb.GetCounterRequest{
			Counter: &pb.CounterRef{Key: fmt.Sprint("load ", c)}, Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE},
		})
		if err != nil {
			t.Fatal(err)
		}
		n := got.GetCounters()[0].GetValue()
		total += n
		resp, err := l.f.node(1).graph.CountEdges(testCtx(t), &pb.CountEdgesRequest{
			Vertex: &pb.Vertex{Type: "user", Id: 9000 + c}, Type: "like", Direction: pb.Direction_OUT,
			Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE},
		})
		if err != nil || resp.GetCount() != uint64(n) {
			t.Errorf("client %d: %d increments and %d edges, %v", c, n, resp.GetCount(), err)
		}
	}
	if total != l.done.Load() {
		t.Errorf("%d increments, %d were acknowledged", total, l.done.Load())
	}
}

// The nodes are stopped and started again with the newer program, one after the other,
// under load: nothing acknowledged is lost, no call fails but for the moment, and what the
// newer program brings is used only when all have it.
func TestARollingUpgradeUnderLoad(t *testing.T) {
	t.Setenv(atLevel, "1")
	f := newTrio(t)
	l := startLoad(f)
	t.Setenv(atLevel, "2")
	for i := range f.places {
		time.Sleep(time.Second)
		d := f.places[i].down()
		d.signal(syscall.SIGTERM)
		d.wantEnd(exitOK)
		f.restart(i)
		a := f.await("three voters each", atRest)
		if i < 2 && a.GetLevel() != 1 {
			t.Errorf("level %d with %d of 3 nodes at 2", a.GetLevel(), i+1)
		}
	}
	f.await("level 2", func(a *pb.GetClusterResponse) bool { return a.GetLevel() == 2 })
	l.end()

	// There is no way back.
	t.Setenv(atLevel, "1")
	old := launch(t, startArgs(filepath.Join(t.TempDir(), "data"), "--join", f.places[0].peer)...)
	old.wantEnd(exitFailed, "start it with the newer program")
	d := f.places[2].down()
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK)
	launch(t, startArgs(f.places[2].dir)...).wantEnd(exitFailed, "start the newer program")
}

// Two of three nodes are destroyed for good. What is left recovers offline and goes on
// with all that it had; then the cluster grows to three again.
func TestAClusterRecoversFromALostMajority(t *testing.T) {
	f := newTrio(t)
	for i := range uint64(200) {
		f.node(int(i%3)).add(i+1, i%9+1)
	}
	f.caughtUp()
	left := f.places[1]
	d := left.down()
	args := []string{"--data-dir", left.dir}

	// Not while it runs, nor while the others do.
	code, _, stderr := silent(append([]string{"recover", "apply", "--yes"}, args...)...)
	if code != exitFailed || !strings.Contains(stderr, "in use") {
		t.Errorf("while it runs: %d, %s", code, stderr)
	}
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK)
	code, _, stderr = silent(append([]string{"recover", "apply", "--yes"}, args...)...)
	if code != exitFailed || !strings.Contains(stderr, "it is not lost") {
		t.Errorf("while the others run: %d, %s", code, stderr)
	}
	f.places[0].destroy()
	f.places[2].destroy()

	// Alone it does not come to serve.
	alone := launch(t, startArgs(left.dir, "--peer-addr", left.peer)...)
	select {
	case line := <-alone.lines:
		t.Errorf("without a majority: %q", line)
	case <-time.After(4 * time.Second):
	}
	alone.signal(syscall.SIGKILL)
	alone.wait()

	code, told, stderr := silent(append([]string{"recover", "apply"}, args...)...)
	if code != exitOK || !strings.Contains(told, "2 voters are lost") || !strings.Contains(told, "catalog:") {
		t.Fatalf("told: %d, %s%s", code, told, stderr)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	code, text, stderr := silent(append([]string{"recover", "report"}, args...)...)
	if err := os.WriteFile(report, []byte(text), 0o600); err != nil || code != exitOK {
		t.Fatalf("report: %d, %v, %s", code, err, stderr)
	}
	for _, again := range []string{"", " again"} { // cut off and repeated
		code, told, stderr = silent(append([]string{"recover", "apply", "--yes", report}, args...)...)
		if code != exitOK {
			t.Fatalf("apply%s: %d, %s%s", again, code, told, stderr)
		}
	}
	left.restart()
	d = left.daemon()
	for note := range uint64(9) {
		if got, want := d.countIn(note+1), uint64((200-note+8)/9); got != want {
			t.Errorf("note %d has %d likes, want %d", note+1, got, want)
		}
	}
	d.add(500, 1)
	d.check()
	a := f.await("the lost are removed", func(a *pb.GetClusterResponse) bool {
		gone := 0
		for _, n := range a.GetNodes() {
			if n.GetState() == "removed" {
				gone++
			}
		}
		return gone == 2
	})
	if len(a.GetNodes()) != 3 {
		t.Errorf("%v", a.GetNodes())
	}
	f.join()
	f.join()
	f.settled()
	last := f.places[4].daemon()
	if got := last.countIn(1); got != 24 {
		t.Errorf("note 1 has %d likes, want 24", got)
	}
	last.check()
}

// caughtUp waits until no replica lacks an entry.
func (f *fleet) caughtUp() {
	f.t.Helper()
	f.await("no replica lags", func(a *pb.GetClusterResponse) bool {
		for _, s := range a.GetShards() {
			for _, r := range s.GetReplicas() {
				if r.GetLag() > 0 {
					return false
				}
			}
		}
		return atRest(a)
	})
}
