package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/cmd/lianabench/measure"
)

// sample is a report with something in every part, and with characters that
// must not reach a page as they are.
func sample() *Report {
	quantiles := func(f float64) []measure.Quantile {
		return []measure.Quantile{{Percent: 0, Micros: 100 * f}, {Percent: 50, Micros: 800 * f}, {Percent: 99, Micros: 5000 * f},
			{Percent: 99.9, Micros: 20_000 * f}, {Percent: 99.99, Micros: 30_000 * f}, {Percent: 100, Micros: 90_000 * f}}
	}
	op := func(name string, p50 float64) OpCost {
		return OpCost{Op: name, Calls: 500, P50: p50, P99: 2 * p50, SmallP50: 100, SmallP99: 180, Ratio: p50 / 100, ServerCPU: 40, Written: 300, Write: name == "add"}
	}
	return &Report{
		Title: "A <report> & more", Command: `lianabench run --mix "write"`, Started: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Seconds: 125.5,
		Machine:  measure.Machine{Cores: 2, CPU: "test", MemoryMiB: 4096, Kernel: "6.1", Go: "go1.26", FileSystem: "ext4", FsyncP50us: 500, FsyncP99us: 900},
		Scale:    "A quick run.",
		Verdicts: []Verdict{{What: "writes", Least: "3 ×", Aim: "5 ×", Measured: "4 ×", Grade: Least}},
		Loads: []Comparison{{Name: "write", About: "64 callers", Unit: "likes", Rounds: 3, Cells: []Cell{
			{Label: "liana", Target: "liana", PerRound: []float64{20_000, 21_000, 22_000}, Rate: measure.Spread{Median: 21_000, Min: 20_000, Max: 22_000},
				Ratio: measure.Spread{Median: 1, Min: 1, Max: 1}, Latency: quantiles(1), ServerCPU: 1.1, ClientCPU: 0.5, PeakResident: 300 << 20,
				Kinds: []KindLatency{{Kind: "add", Calls: 12_345, P50: 800, P99: 5000}}},
			{Label: "<script>", Target: "x", Rate: measure.Spread{Median: 7000, Min: 6500, Max: 7100}, Ratio: measure.Spread{Median: 3, Min: 2.9, Max: 3.1},
				Latency: quantiles(3), Errors: 2, FirstError: "boom <b>", Missed: 7},
		}}},
		Curves: []Curve{{Name: "One list grows", Target: "liana", About: "one caller", Points: []Point{
			{Edges: 100, Small: 100, Ops: []OpCost{op("add", 100), op("count", 80)}},
			{Edges: 2_000_000, Small: 100, Ops: []OpCost{op("add", 140), op("count", 90)}},
		}}},
		Sizes: []Size{{Name: "dense", Target: "liana", Likes: 1000, LoadRate: 50_000, PerLike: 30,
			Parts: []Part{{Name: "state", Bytes: 30_000}, {Name: "change log", Bytes: 9000, Apart: true}}}},
		Restarts: []Restart{{Target: "liana", Likes: 1000, Seconds: 0.82, Resident: 1 << 30}},
		Systems:  []System{{Name: "liana", Facts: []string{"4 shards"}, PeakResident: 400 << 20}},
		Notes:    []string{"a note"},
	}
}

func TestPageHoldsEverythingAndLoadsNothing(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"A &lt;report&gt; &amp; more", "21,000", "liana is × 3.00", "300 MiB", "4 ×", `class="grade least"`, "2,000,000",
		"(change log 9.00)", "0.82 s", "400 MiB", "a note", "boom &lt;b&gt;", "7 due and never begun", "prefers-color-scheme: dark", "2m6s", "12,345 calls"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"<script", "http://", "https://", "src=", "@import", "NaN", "%!", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if n := strings.Count(page, "<svg"); n != 4 {
		t.Errorf("%d charts, want 4: rates, percentiles, reads and writes of the curve", n)
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	r := sample()
	for name, svg := range map[string]string{"bars": string(r.Loads[0].Bars()), "percentiles": string(r.Loads[0].Percentiles()), "reads": string(r.Curves[0].Reads()), "writes": string(r.Curves[0].Writes())} {
		if !strings.HasPrefix(svg, "<svg ") {
			t.Errorf("%s: %.60s", name, svg)
		}
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
}

func TestChartsOfNothing(t *testing.T) {
	c := Comparison{Cells: []Cell{{Label: "nothing"}}}
	if s := string(c.Bars()); strings.Contains(s, "NaN") {
		t.Errorf("bars: %s", s)
	}
	if s := c.Percentiles(); s != "" {
		t.Errorf("percentiles: %s", s)
	}
	one := Curve{Points: []Point{{Edges: 100}}}
	if s := one.Reads() + one.Writes(); s != "" {
		t.Errorf("curve: %s", s)
	}
	if err := (&Report{}).WriteHTML(io.Discard); err != nil {
		t.Error(err)
	}
}

func TestTableTellsTheSame(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"21,000 (20,000–22,000)", "3.00 (2.90–3.10)", "2 errors: boom <b>; 7 due and never begun", "2,000,000",
		"state 30.0, change log 9.00 (apart)", "0.82 s", "Targets", "Note: a note", "fsync of 4 KiB 500 µs"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestTableReportsAWriteError(t *testing.T) {
	if err := sample().WriteTable(brokenWriter{}); err == nil {
		t.Error("no error")
	}
}

func TestJSONComesBack(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Loads[0].Cells[0].Rate.Median != 21_000 || back.Curves[0].Points[1].Edges != 2_000_000 || back.Verdicts[0].Grade != Least {
		t.Errorf("%+v", back)
	}
}

func TestGrades(t *testing.T) {
	for _, c := range []struct {
		j    Judgement
		want Grade
	}{
		{Judgement{Value: 3, Least: 3, Aim: 5}, Least},
		{Judgement{Value: 2.99, Least: 3, Aim: 5}, Below},
		{Judgement{Value: 5, Least: 3, Aim: 5}, Aim},
		{Judgement{Value: 1.5, Least: 3, Aim: 1.5, Lower: true}, Aim},
		{Judgement{Value: 2, Least: 3, Aim: 1.5, Lower: true}, Least},
		{Judgement{Value: 3.1, Least: 3, Aim: 1.5, Lower: true}, Below},
		{Judgement{Least: 3, Aim: 1.5, Lower: true}, Absent},
		{Judgement{Value: math.NaN(), Least: 3, Aim: 5}, Absent},
	} {
		if got := c.j.Grade(); got != c.want {
			t.Errorf("%+v is graded %s, want %s", c.j, got, c.want)
		}
	}
	if Worst(Aim, Least, Aim) != Least || Worst(Aim, Absent) != Absent || Worst() != Plain {
		t.Error("Worst is not the worst")
	}
}

func TestNumbersForPeople(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.5: "0.50", 12.34: "12.3", 123.4: "123", 1234: "1,234", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "–", 1.4: "1 µs", 1500: "1.5 ms", 250_000: "250 ms", 2e6: "2.0 s"} {
		if got := Micros(v); got != want {
			t.Errorf("Micros(%v) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[uint64]string{0: "–", 2048: "2 KiB", 5 << 20: "5 MiB", 3 << 29: "1.50 GiB"} {
		if got := Bytes(v); got != want {
			t.Errorf("Bytes(%v) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]float64{100: 20, 7: 2, 0: 1, 1000: 200, 55: 10} {
		if got := niceStep(v, 6); got != want {
			t.Errorf("niceStep(%v) = %v, want %v", v, got, want)
		}
	}
	for n, want := range map[int]string{100: "100", 10_000: "10 k", 2_000_000: "2 M"} {
		if got := shortCount(n); got != want {
			t.Errorf("shortCount(%d) = %q", n, got)
		}
	}
}
