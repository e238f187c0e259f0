package server

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + s.HTTPAddr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestTheHTTPPortAnswers(t *testing.T) {
	r := newRig(t, nil)
	for path, want := range map[string]string{
		"/": "Liana", "/healthz": "ok", "/readyz": `"ready":true`, "/debug/pprof/": "goroutine", "/debug/pprof/cmdline": "test",
	} {
		if code, body := get(t, r.Server, path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200s", path, code, body)
		}
	}
	if code, _ := get(t, r.Server, "/nothing"); code != 404 {
		t.Errorf("/nothing: %d", code)
	}
	_, body := get(t, r.Server, "/readyz")
	var ready readyBody
	if err := json.Unmarshal([]byte(body), &ready); err != nil || len(ready.Shards) != 2 || !ready.Shards[0].Leader {
		t.Errorf("/readyz: %s, %v", body, err)
	}
}

// The names are an interface: dashboards and alerts use them. A change of the
// golden file belongs into the release notes.
func TestMetricNamesAreFrozen(t *testing.T) {
	cfg := testConfig()
	s, err := Listen(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, s)
	guard := NewDiskGuard(t.TempDir(), 1, slog.New(slog.DiscardHandler))
	defer guard.Close()
	s.Attach(Attachment{Backend: newFake(), Node: Node{Version: "v"}, Disk: guard,
		Stores: []Store{{Name: "state", Stats: func() kv.Stats { return kv.Stats{DiskBytes: 77} }}}})
	conn := dial(t, s)
	if _, err := pb.NewGraphClient(conn).HasEdge(testCtx(t), hasRequest); err != nil {
		t.Fatal(err)
	}
	_, body := get(t, s, "/metrics")
	for _, want := range []string{
		`liana_grpc_calls_total{code="OK",method="liana.v1.Graph/HasEdge"} 1`,
		`liana_grpc_call_seconds_count{method="liana.v1.Graph/HasEdge"} 1`,
		`liana_shard_leader{shard="1"} 1`, `liana_shard_fault{shard="2"} 1`, `liana_shard_applied{shard="1"} 7`,
		`liana_store_disk_bytes{store="state"} 77`, `liana_build_info{version="v"} 1`, `go_goroutines`, `process_resident_memory_bytes`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	var names []string
	for line := range strings.Lines(body) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" && strings.HasPrefix(f[2], "liana_") {
			names = append(names, f[2]+" "+f[3])
		}
	}
	slices.Sort(names)
	got := strings.Join(names, "\n") + "\n"
	const golden = "testdata/metrics.txt"
	if os.Getenv("LIANA_REWRITE") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("%v; LIANA_REWRITE=1 rewrites %s, which differs from:\n%s", err, golden, got)
	}
}
