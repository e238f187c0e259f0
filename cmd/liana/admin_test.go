package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/datadir"
	"github.com/lianadb/liana/kv/pebblekv"
	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func TestSchemaAndStatus(t *testing.T) {
	_, addr := startFake(t)
	if out := must(t, "schema", "show", "--addr", addr); out != "vertex_types:\n  - name: user\n" {
		t.Errorf("got %q", out)
	}
	if s := asMessage(t, new(lianav1.GetSchemaResponse), "schema", "show", "--addr", addr); s.Version != 1 {
		t.Errorf("got %v", s)
	}
	out := must(t, "status", "--addr", addr)
	for _, text := range []string{"cluster  c1", "0-2047", "FAULT: corrupt page"} {
		if !strings.Contains(out, text) {
			t.Errorf("status lacks %q:\n%s", text, out)
		}
	}
	asMessage(t, new(lianav1.GetStatusResponse), "status", "--addr", addr)
}

func TestCheckExitCodes(t *testing.T) {
	f, addr := startFake(t)
	f.check = []*lianav1.CheckResponse{{Lists: 1, ListsTotal: 2}, {Lists: 2, Edges: 5, ListsTotal: 2, Done: true}}
	if out := must(t, "check", "--addr", addr); out != "2 lists, 5 edges: clean\n" {
		t.Errorf("got %q", out)
	}
	asMessage(t, new(lianav1.CheckResponse), "check", "--addr", addr)
	if f.wholeCluster {
		t.Error("the whole cluster was checked unasked")
	}
	if must(t, "check", "--addr", addr, "--cluster"); !f.wholeCluster {
		t.Error("--cluster was not asked for")
	}
	liana("check", "--data-dir", "d", "--cluster").expect(t, exitUsage, "exclude each other")

	f.check = []*lianav1.CheckResponse{{Lists: 2, Edges: 5, Faults: 3, Findings: []string{"note:7 like IN: count 4, entries 5"}, Done: true}}
	r := liana("check", "--addr", addr)
	r.expect(t, exitFaults)
	if r.stdout != "note:7 like IN: count 4, entries 5\n… and 2 more\n2 lists, 5 edges: 3 faults\n" {
		t.Errorf("got %q", r.stdout)
	}

	f.check = []*lianav1.CheckResponse{{Lists: 1}}
	liana("check", "--addr", addr).expect(t, exitNotChecked, "before it was done")
	liana("check", "--data-dir", "d").expect(t, exitNotChecked, "cannot open a data directory")
}

func TestCheckOffline(t *testing.T) {
	var dir string
	answer, fault := &lianav1.CheckResponse{Lists: 3, Done: true}, error(nil)
	s := surroundings{checkOffline: func(_ context.Context, d string, progress func(*lianav1.CheckResponse)) (*lianav1.CheckResponse, error) {
		dir = d
		progress(&lianav1.CheckResponse{Lists: 1, ListsTotal: 3})
		return answer, fault
	}}
	lianaWith(s, "check", "--data-dir", "/data").expect(t, 0)
	if dir != "/data" {
		t.Errorf("checked %q", dir)
	}
	answer.Faults = 1
	lianaWith(s, "check", "--data-dir", "/data").expect(t, exitFaults)
	answer, fault = nil, errors.New("the directory is in use")
	lianaWith(s, "check", "--data-dir", "/data").expect(t, exitNotChecked, "in use")
}

// TestCheckOfALostState: an empty store is clean, but not where a node has run.
func TestCheckOfALostState(t *testing.T) {
	dir := t.TempDir()
	d, err := datadir.Open(dir, datadir.Options{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	state, err := pebblekv.Open(d.StatePath(), pebblekv.Options{Profile: pebblekv.State, Merger: graph.Merger()})
	if err := errors.Join(err, state.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	s := surroundings{checkOffline: checkDirectoryOffline}
	lianaWith(s, "check", "--data-dir", dir).expect(t, 0)
	if err := os.WriteFile(d.StablePath(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lianaWith(s, "check", "--data-dir", dir).expect(t, exitNotChecked, "is empty although")
}

func TestExport(t *testing.T) {
	f, addr := startFake(t)
	likesOf(f, 3)
	f.put("like", 2, 9, 5, map[string]string{"b": `quote " and, comma`, "a": "line\nend"})
	f.put("follow", 1, 2, 6, nil)
	rows, err := csv.NewReader(strings.NewReader(must(t, "export", "edges", "--addr", addr))).ReadAll()
	if err != nil || len(rows) != 6 || strings.Join(rows[0], ",") != "src,type,dst,time,properties" {
		t.Fatalf("got %q, %v", rows, err)
	}
	want := []string{"user:2", "like", "note:9", "5", `{"a":"line\nend","b":"quote \" and, comma"}`}
	if !slices.ContainsFunc(rows, func(row []string) bool { return slices.Equal(row, want) }) {
		t.Errorf("no row %q in %q", want, rows)
	}
	out := must(t, "export", "edges", "--type", "follow", "--format", "jsonl", "--addr", addr)
	if strings.Contains(out, " ") {
		t.Errorf("not compact: %q", out) // protojson alone may put spaces in, build by build
	}
	e := new(lianav1.Edge)
	if err := protojson.Unmarshal([]byte(out), e); err != nil || e.Dst.Id != 2 || strings.Count(out, "\n") != 1 {
		t.Errorf("got %v, %v from %q", e, err, out)
	}
}

func TestExportToAFileIsWholeOrAbsent(t *testing.T) {
	f, addr := startFake(t)
	likesOf(f, 3)
	dir := t.TempDir()
	name := filepath.Join(dir, "edges.csv")
	var summary exportSummary
	out := must(t, "export", "edges", "--output", name, "-o", "json", "--addr", addr)
	if err := json.Unmarshal([]byte(out), &summary); err != nil || summary != (exportSummary{3, name}) {
		t.Errorf("got %q, %v", out, err)
	}
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f.fault(func(n int) error {
		if n == 2 {
			return status.Error(codes.Internal, "a page is damaged")
		}
		return nil
	})
	liana("export", "edges", "--output", name, "--addr", addr).expect(t, exitFailed, "a page is damaged")
	after, err := os.ReadFile(name)
	if err != nil || string(after) != string(before) {
		t.Errorf("the older file was touched: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
}

func TestExportedEdgesComeBackByImport(t *testing.T) {
	from, addr := startFake(t)
	likesOf(from, 50)
	from.put("like", 2, 9, 5, map[string]string{"b": `quote " and, comma`, "a": "line\nend", "empty": ""})
	name := filepath.Join(t.TempDir(), "edges.csv")
	must(t, "export", "edges", "--output", name, "--addr", addr)
	to, addr := startFake(t)
	must(t, "import", "edges", name, "--type", "like", "--from", "user", "--to", "note",
		"--columns", "src,type,dst,time,properties", "--header", "--addr", addr)
	if len(to.edges) != 51 {
		t.Errorf("%d edges came back", len(to.edges))
	}
	for key, e := range from.edges {
		if got := to.edges[key]; got.GetTime() != e.Time || propertiesText(got.GetProperties()) != propertiesText(e.Properties) {
			t.Errorf("%v: got %v, want %v", key, got, e)
		}
	}
}

func (f *fakeServer) ListHotKeys(_ context.Context, req *lianav1.ListHotKeysRequest) (*lianav1.ListHotKeysResponse, error) {
	note := &lianav1.Vertex{Type: "note", Id: 7}
	keys := []*lianav1.HotKey{
		{Kind: "row", Vertex: note, Touches: 90},
		{Kind: "window", Vertex: note, Type: "like", Direction: lianav1.Direction_IN, Touches: 8},
		{Kind: "chunk", Vertex: &lianav1.Vertex{Type: "user", Id: 1}, Type: "like", Direction: lianav1.Direction_OUT, FirstId: 4096, Touches: 2},
	}
	return &lianav1.ListHotKeysResponse{Keys: keys[:min(len(keys), int(req.GetLimit()))], Unanswered: []string{"n9"}}, nil
}

func (f *fakeServer) WarmCache(_ context.Context, req *lianav1.WarmCacheRequest) (*lianav1.WarmCacheResponse, error) {
	return &lianav1.WarmCacheResponse{Hot: req.GetTop(), Warm: req.GetTop() - 1}, nil
}

func (f *fakeServer) GetCacheStats(context.Context, *lianav1.GetCacheStatsRequest) (*lianav1.GetCacheStatsResponse, error) {
	return &lianav1.GetCacheStatsResponse{Nodes: []*lianav1.NodeCacheStats{
		{Node: "a", Figures: []*lianav1.CacheFigure{{Tier: "redis", Name: "hits_total", Value: 12345678}, {Tier: "redis", Name: "misses_total", Reason: "behind", Value: 2}}},
		{Node: "b", Figures: []*lianav1.CacheFigure{{Tier: "redis", Name: "hits_total", Value: 1}, {Tier: "feeder", Name: "lag_seconds", Value: 0.25}}},
	}}, nil
}

func (f *fakeServer) DropCached(_ context.Context, req *lianav1.DropCachedRequest) (*lianav1.DropCachedResponse, error) {
	if v := req.GetVertex(); v.GetType() != "note" || v.GetId() != 7 {
		return nil, status.Errorf(codes.InvalidArgument, "%v", v)
	}
	return &lianav1.DropCachedResponse{}, nil
}

func TestCacheCommands(t *testing.T) {
	_, addr := startFake(t)
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"hot"}, []string{"90     note:7  row", "8      note:7  window of like in", "2      user:1  chunk of like out from id 4096", "node n9 did not answer"}},
		{[]string{"hot", "--top", "1"}, []string{"note:7  row"}},
		{[]string{"warm", "--top", "30"}, []string{"29 of the 30 hottest entries are in Redis"}},
		{[]string{"stats"}, []string{"TIER    FIGURE", "redis   hits            12345678  1", "redis   misses: behind  2         -", "feeder  lag_seconds     -         0.25"}},
		{[]string{"drop", "note:7"}, []string{"dropped"}},
	} {
		out := must(t, append([]string{"cache", "--addr", addr}, c.args...)...)
		for _, text := range c.says {
			if !strings.Contains(out, text) {
				t.Errorf("%v lacks %q:\n%s", c.args, text, out)
			}
		}
	}
	if m := asMessage(t, new(lianav1.GetCacheStatsResponse), "cache", "stats", "--addr", addr); len(m.GetNodes()) != 2 {
		t.Errorf("stats as JSON: %v", m)
	}
	liana("cache", "drop", "--addr", addr, "seven").expect(t, exitUsage, "VERTEX: want type:id")
}
