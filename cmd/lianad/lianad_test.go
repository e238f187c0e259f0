package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

func TestItServesStopsAndServesAgain(t *testing.T) {
	dir, ctx := filepath.Join(t.TempDir(), "data"), testCtx(t)
	d := startDaemon(t, dir)
	if d.ready["data-dir"] != dir || d.ready["shards"] != "4" || !strings.HasPrefix(d.ready["resp"], "127.0.0.1:") || !strings.HasPrefix(d.ready["peer"], "127.0.0.1:") || d.ready["pid"] != pidText(d.process) {
		t.Errorf("ready line %v", d.ready)
	}
	for i := range uint64(20) {
		d.add(i+1, 7)
	}
	incr, err := d.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: &pb.CounterRef{Key: "k"}, Delta: 3}})
	if err != nil || incr.Value != 3 {
		t.Fatalf("incr: %v, %v", incr, err)
	}
	page, err := d.graph.ListEdges(ctx, &pb.ListEdgesRequest{Vertex: &pb.Vertex{Type: "note", Id: 7}, Type: "like", Direction: pb.Direction_IN, PageSize: 15})
	if err != nil || len(page.Edges) != 15 {
		t.Fatalf("page: %v, %v", page, err)
	}
	status1, err := d.admin.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": `"ready":true`, "/metrics": `liana_store_disk_bytes{store="log"}`} {
		if body := httpGet(t, d, path); !strings.Contains(body, want) {
			t.Errorf("%s: %.300s", path, body)
		}
	}
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK, "msg=stopped")

	d = startDaemon(t, dir)
	if n := d.countIn(7); n != 20 {
		t.Errorf("%d likes after a restart", n)
	}
	// Tokens and page tokens outlive a restart.
	rest, err := d.graph.ListEdges(ctx, &pb.ListEdgesRequest{
		Vertex: &pb.Vertex{Type: "note", Id: 7}, Type: "like", Direction: pb.Direction_IN, PageSize: 15,
		PageToken: page.NextPageToken, Consistency: &pb.Consistency{Token: incr.Token},
	})
	if err != nil || len(rest.Edges) != 5 || rest.NextPageToken != "" {
		t.Errorf("second page: %v, %v", rest, err)
	}
	status2, err := d.admin.GetStatus(ctx, &pb.GetStatusRequest{})
	if err != nil || status2.ClusterId != status1.ClusterId || status2.NodeId != status1.NodeId || status1.NodeId == "" {
		t.Errorf("%v became %v, %v", status1, status2, err)
	}
	d.signal(syscall.SIGINT)
	d.wantEnd(exitOK)
}

func httpGet(t *testing.T, d *daemon, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + d.ready["http"] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestASecondProcessIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	d := startDaemon(t, dir)
	second := launch(t, startArgs(dir)...)
	second.wantEnd(exitFailed, "in use by another process (process "+pidText(d.process)+")", dir)
	d.add(1, 1)
	if n := d.countIn(1); n != 1 {
		t.Errorf("count %d", n)
	}
}

func TestABusyPortLeavesNoDataDirectory(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	dir := filepath.Join(t.TempDir(), "data")
	p := launch(t, startArgs(dir, "--grpc-addr", busy.Addr().String())...)
	p.wantEnd(exitFailed, "grpc_addr", "address already in use", "choose another address")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was made: %v", err)
	}
}

func TestADirectoryThatDoesNotFitIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	d := startDaemon(t, dir, "--shards", "2")
	d.add(1, 1)
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK)

	launch(t, startArgs(dir, "--shards", "3")...).wantEnd(exitFailed, "it has 2, asked for were 3")

	d = startDaemon(t, dir) // what it has
	if d.ready["shards"] != "2" || d.countIn(1) != 1 {
		t.Errorf("ready line %v", d.ready)
	}
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK)

	identity := filepath.Join(dir, "LIANA")
	b, err := os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(b), `"format": 1`, `"format": 9`, 1)
	if err := os.WriteFile(identity, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, startArgs(dir)...).wantEnd(exitFailed, "format 9", "use the version of Liana that made it")

	// A directory put together from two: the identity of one, the data of another.
	if err := os.Remove(identity); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(t.TempDir(), "data")
	f := startDaemon(t, foreign, "--shards", "2")
	f.signal(syscall.SIGTERM)
	f.wantEnd(exitOK)
	b, err = os.ReadFile(filepath.Join(foreign, "LIANA"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(identity, b, 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, startArgs(dir)...).wantEnd(exitFailed, "does not belong to this node")
}

func TestASchemaIsPutIntoForceOrRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	const schema = `
vertices:
  - {name: user, id: 1}
  - {name: note, id: 2, metrics: [{name: views, id: 1}]}
edges:
  - {name: like, id: 1, from: user, to: note}
`
	good := writeFile(t, "schema.yaml", schema)
	d := startDaemon(t, dir, "--schema", good)
	got, err := d.admin.GetSchema(testCtx(t), &pb.GetSchemaRequest{})
	if err != nil || strings.Contains(got.Yaml, "favorite") || !strings.Contains(got.Yaml, "like") {
		t.Errorf("schema: %v, %v", got, err)
	}
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK)

	renamed := writeFile(t, "renamed.yaml", strings.Replace(schema, "name: like", "name: likes", 1))
	launch(t, startArgs(dir, "--schema", renamed)...).wantEnd(exitFailed, "edge type like (id 1) may not be removed")
	broken := writeFile(t, "broken.yaml", schema+"colour: red\n")
	launch(t, startArgs(dir, "--schema", broken)...).wantEnd(exitUsage, "colour", "broken.yaml")
	launch(t, startArgs(dir, "--schema", "/does/not/exist.yaml")...).wantEnd(exitUsage, "/does/not/exist.yaml")
}

func TestAStopAnswersWritesAndEndsStreams(t *testing.T) {
	d, ctx := startDaemon(t, filepath.Join(t.TempDir(), "data")), testCtx(t)
	idle, err := d.graph.StreamMutations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := idle.Send(&pb.StreamMutationsRequest{Sequence: 1, Mutations: []*pb.Mutation{{Op: pb.MutationOp_ADD, Type: "like", SrcId: 1, DstId: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Recv(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range uint64(16) {
		wg.Go(func() {
			for n := uint64(0); ; n++ {
				_, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(i+1, n+1)})
				if err == nil {
					continue
				}
				// Never a write whose fate is unknown: it was answered, or not taken.
				if code := status.Code(err); code != codes.Unavailable {
					t.Errorf("a write at the stop: %v", err)
				}
				return
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	d.signal(syscall.SIGTERM)
	_, err = idle.Recv()
	if status.Code(err) != codes.Unavailable || reason(err) != "STOPPING" {
		t.Errorf("idle stream: %v", err)
	}
	d.wantEnd(exitOK)
	wg.Wait()
}

func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}

func TestASecondSignalEndsItAtOnce(t *testing.T) {
	d := startDaemon(t, filepath.Join(t.TempDir(), "data"))
	var wg sync.WaitGroup
	wg.Go(func() { // a profile holds the stop up for half a second
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if resp, err := client.Get("http://" + d.ready["http"] + "/debug/pprof/profile?seconds=20"); err == nil {
			resp.Body.Close()
		}
	})
	time.Sleep(200 * time.Millisecond)
	d.signal(syscall.SIGTERM)
	time.Sleep(2 * signalEcho)
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitForced, "ending at once")
	wg.Wait()
}

func TestASignalHeardTwiceMeansOneStop(t *testing.T) {
	d := startDaemon(t, filepath.Join(t.TempDir(), "data"))
	d.signal(syscall.SIGTERM)
	d.signal(syscall.SIGINT) // the kernel makes one of two that are the same
	d.wantEnd(exitOK)
}

func TestAFullDiskRefusesWritesOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	d := startDaemon(t, dir)
	d.add(1, 1)
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK)

	// No disk has this much free.
	cfg := writeFile(t, "liana.yaml", "disk:\n  reserve_bytes: 4611686018427387904\n")
	d = startDaemon(t, dir, "--config", cfg)
	ctx := testCtx(t)
	_, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(1, 2)})
	if status.Code(err) != codes.ResourceExhausted || reason(err) != "DISK_FULL" {
		t.Errorf("add: %v", err)
	}
	_, err = d.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: &pb.CounterRef{Key: "k"}, Delta: 1}})
	if status.Code(err) != codes.ResourceExhausted || reason(err) != "DISK_FULL" {
		t.Errorf("increment: %v", err)
	}
	if n := d.countIn(1); n != 1 {
		t.Errorf("count %d", n)
	}
	if body := httpGet(t, d, "/metrics"); !strings.Contains(body, "liana_disk_writes_refused 2") {
		t.Error("the metric does not tell")
	}
}
