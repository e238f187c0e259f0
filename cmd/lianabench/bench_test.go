package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
	"github.com/lianadb/liana/cmd/lianabench/target"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench runs the command line and returns its report. Nothing may stay behind.
func bench(t *testing.T, args ...string) *report.Report {
	t.Helper()
	dir := openDir(t)
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append(args, "-q", "-o", "json", "--work-dir", dir))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (error %v)", left, err)
	}
	var r report.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// openDir makes a directory that PostgreSQL's account may pass through.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lianabench-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
}

func TestRunComparesSystemsInTurn(t *testing.T) {
	needRedis(t)
	page := filepath.Join(t.TempDir(), "report.html")
	r := bench(t, "run", "--mix", "write", "--targets", "redis-fsync,redis", "--callers", "4", "--rounds", "2",
		"--duration", "500ms", "--warmup", "20ms", "--users", "1000", "--notes", "1000", "--html", page)
	if len(r.Loads) != 1 || len(r.Loads[0].Cells) != 2 || len(r.Systems) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, c := range r.Loads[0].Cells {
		if c.Rate.Median <= 0 || len(c.PerRound) != 2 || c.Errors != 0 || c.Quantile(50) <= 0 || c.Yes == 0 || c.PeakResident == 0 {
			t.Errorf("%+v", c)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "redis-fsync") {
		t.Errorf("page: %v", err)
	}
}

func TestRunAnswersTheMixesOfReads(t *testing.T) {
	needRedis(t)
	for _, mix := range []string{"has", "feed", "linkbench"} {
		r := bench(t, "run", "--mix", mix, "--targets", "redis", "--callers", "2", "--rounds", "1",
			"--duration", "20s", "--count", "60", "--warmup", "10ms", "--users", "200", "--notes", "2000", "--ids", "dense")
		if c := r.Loads[0].Cells[0]; c.Calls != 60 || c.Errors != 0 {
			t.Errorf("%s: %+v", mix, c)
		}
	}
}

func TestBatchesAndOpenLoop(t *testing.T) {
	needRedis(t)
	r := bench(t, "run", "--mix", "hot", "--targets", "redis", "--callers", "4", "--rounds", "1", "--batch", "50",
		"--rate", "200", "--duration", "200ms", "--warmup", "0s")
	c := r.Loads[0].Cells[0]
	if c.Calls+c.Missed < 39 || c.Calls+c.Missed > 41 || c.Rate.Median < 100*50 || c.Yes != 1 {
		t.Errorf("%+v", c)
	}
}

func TestCelebrityChecksAndCompares(t *testing.T) {
	needRedis(t)
	r := bench(t, "celebrity", "--edges", "100,3000", "--targets", "redis", "--probes", "20")
	if len(r.Curves) != 2 || len(r.Curves[0].Points) != 2 {
		t.Fatalf("%+v", r.Curves)
	}
	for i, ops := range []int{7, 6} {
		for _, p := range r.Curves[i].Points {
			if len(p.Ops) != ops || p.WorstRatio() <= 0 {
				t.Errorf("side %d: %+v", i, p)
			}
		}
	}
}

func TestSizeAndReturn(t *testing.T) {
	needRedis(t)
	r := bench(t, "size", "--likes", "3000", "--restart", "4000", "--targets", "redis-fsync")
	if len(r.Sizes) != 1 || r.Sizes[0].PerLike < 5 || len(r.Restarts) != 1 || r.Restarts[0].Likes < 3500 || r.Restarts[0].Seconds <= 0 {
		t.Errorf("%+v %+v", r.Sizes, r.Restarts)
	}
}

func TestRawEngine(t *testing.T) {
	r := bench(t, "raw", "--rounds", "1", "--duration", "100ms")
	if r.Loads[0].Cells[0].Rate.Median < 1000 {
		t.Errorf("%+v", r.Loads[0])
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"run", "--mix", "wrong"}, {"run", "--ids", "odd"}, {"run", "-o", "xml"}, {"run", "--targets", "mysql"}, {"run", "--api", "x"},
		{"run", "--callers", "0"}, {"run", "--rounds", "0"}, {"run", "--duration", "0s"}, {"run", "--rate", "-1"}, {"run", "--batch", "0"},
		{"run", "--mix", "feed", "--batch", "10"}, {"run", "--arrivals", "late"}, {"run", "extra"},
		{"celebrity", "--edges", "5"}, {"curve", "--edges", "1000,100"}, {"celebrity", "--side", "up"}, {"celebrity", "--probes", "1"}, {"curve", "--small", "3"},
		{"size", "--likes", "0"}, {"raw", "--rounds", "0"}, {"suite", "--liana-addr", "127.0.0.1:1"},
	} {
		root := newRoot()
		root.SetOut(&bytes.Buffer{})
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append(args, "-q", "--work-dir", t.TempDir()))
		if err := root.Execute(); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

// Whatever goes wrong, the servers that were started are stopped and their
// data is removed.
func TestLabCleansUpAfterAnError(t *testing.T) {
	needRedis(t)
	work := t.TempDir()
	boom := errors.New("boom")
	var pids []int
	err := inLab(&config{workDir: work, quiet: true, output: "table"}, "test", &bytes.Buffer{}, func(l *lab) error {
		s, err := l.start(t.Context(), "redis", false)
		if err != nil {
			return err
		}
		pids = s.PIDs()
		return boom
	})
	if !errors.Is(err, boom) || len(pids) == 0 {
		t.Fatalf("error %v, processes %v", err, pids)
	}
	if u := measure.UsageOf(pids...); u != (measure.Usage{}) {
		t.Error("the server still runs")
	}
	if left, _ := os.ReadDir(work); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCancelEndsARunAndCleansUp(t *testing.T) {
	needRedis(t)
	work := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	root := newRoot()
	root.SetOut(&bytes.Buffer{})
	root.SetArgs([]string{"run", "--targets", "redis", "--duration", "1m", "-q", "--work-dir", work})
	start := time.Now()
	if err := root.ExecuteContext(ctx); err == nil {
		t.Error("no error")
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("ended after %v", took)
	}
	if left, _ := os.ReadDir(work); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestVerdictsOfASuite(t *testing.T) {
	cells := func(pairs map[string]float64) *report.Comparison {
		c := &report.Comparison{}
		for label, rate := range pairs {
			c.Cells = append(c.Cells, report.Cell{Label: label, PerRound: []float64{rate, rate}})
		}
		return c
	}
	point := report.Point{Edges: 2_000_000, Ops: []report.OpCost{{Op: "add", P50: 140, Ratio: 1.4}}}
	first := report.Point{Edges: 100, Ops: []report.OpCost{{Op: "add", P50: 100, Ratio: 1}}}
	s := &suite{lab: &lab{cfg: &config{}, systems: map[string]*report.System{"liana": {PeakResident: 600 << 20}}}, plan: fullPlan(),
		raw:     measure.Spread{Median: 150_000},
		durable: cells(map[string]float64{"liana": 20_000, "redis-fsync": 30_000, "postgres": 5000, "liana, one note": 21_000}),
		batches: cells(map[string]float64{"liana MutateEdges": 110_000, "liana StreamMutations": 90_000}),
		has:     cells(map[string]float64{"liana HasEdges": 900, "redis SISMEMBER": 1000}),
		user:    &report.Curve{Points: []report.Point{first, point}}, celebrity: &report.Curve{Points: []report.Point{point}},
	}
	s.report.Sizes = []report.Size{{Target: "liana", Name: "scattered", Likes: 5_000_000, PerLike: 60}, {Target: "redis-fsync", Name: "dense", PerLike: 1}}
	s.report.Restarts = []report.Restart{{Target: "liana", Likes: 10_000_000, Seconds: 0.9}}
	want := []report.Grade{report.Below, report.Least, report.Aim, report.Aim, report.Aim, report.Below, report.Absent, report.Aim, report.Least, report.Plain}
	for i, v := range s.verdicts() {
		if v.Grade != want[i] {
			t.Errorf("%s: %s is graded %s, want %s", v.What, v.Measured, v.Grade, want[i])
		}
	}
	empty := &suite{lab: &lab{cfg: &config{}, systems: map[string]*report.System{}}, plan: quickPlan()}
	for _, v := range empty.verdicts() {
		if v.Grade != report.Absent || v.Measured != "–" {
			t.Errorf("nothing was measured: %+v", v)
		}
	}
}

// lyingSession gives wrong answers; probes must not time them.
type lyingSession struct{ target.Session }

func (lyingSession) HasEdges(context.Context, uint64, []uint64, []bool) error { return nil }
func (lyingSession) CountEdges(_ context.Context, _ bool, _ []uint64, n []uint64) error {
	n[0] = 7
	return nil
}
func (lyingSession) ListNewest(_ context.Context, _ target.List, _, _ int, page []target.Peer) ([]target.Peer, error) {
	return append(page, target.Peer{ID: 1}), nil
}
func (lyingSession) CountWindow(context.Context, target.List, int64, int64) (uint64, error) {
	return 0, nil
}
func (lyingSession) AddEdge(context.Context, workload.Edge) (bool, error)    { return false, nil }
func (lyingSession) DeleteEdge(context.Context, workload.Edge) (bool, error) { return false, nil }

func TestProbesRefuseWrongAnswers(t *testing.T) {
	ids, _ := workload.ParseIDs("dense")
	p := &prober{ctx: t.Context(), session: lyingSession{}, probes: 10,
		big: &probe{star: workload.NewStar(false, 0, ids), edges: 1000}, small: &probe{star: workload.NewStar(false, 1, ids), edges: 100}}
	for _, q := range p.questions() {
		if _, err := p.measure(&q); err == nil {
			t.Errorf("%s: a wrong answer was taken", q.name)
		}
	}
}

// TestSuiteGoesThroughAllParts runs the whole suite at a tiny scale, where
// LIANAD names a server binary.
func TestSuiteGoesThroughAllParts(t *testing.T) {
	binary := os.Getenv("LIANAD")
	if binary == "" {
		t.Skip("LIANAD does not name a server binary")
	}
	cfg := &config{workDir: openDir(t), quiet: true, output: "json", html: filepath.Join(t.TempDir(), "suite.html"), ids: "scattered", seed: 1,
		liana: target.LianaOptions{Binary: binary, Shards: 4, Conns: 2, API: target.APIMutate}}
	ids, err := cfg.validate()
	if err != nil {
		t.Fatal(err)
	}
	tiny := plan{scale: "tiny", rounds: 1, load: measure.Load{Warmup: 50 * time.Millisecond, Duration: time.Second},
		hasUsers: 20, graphUsers: 200, openRate: 100, curve: []int{100, 500, 1000}, celebrity: 1000,
		likes: 2000, restart: 3000, others: 1000, budget: 20 * time.Second}
	var out bytes.Buffer
	err = inLab(cfg, "tiny suite", &out, func(l *lab) error {
		s := &suite{lab: l, plan: tiny, ids: ids}
		if failed := s.run(t.Context()); failed > 0 {
			t.Errorf("%d parts failed: %v", failed, l.report.Notes)
		}
		l.report.Verdicts = s.verdicts()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	for _, v := range r.Verdicts {
		t.Logf("%s: %s (%s)", v.What, v.Measured, v.Grade)
		if v.Grade == report.Absent {
			t.Errorf("%s: not measured", v.What)
		}
	}
}
