// Package report holds what a benchmark found and writes it: as tables for
// people, as JSON, and as one HTML file with charts that needs nothing else.
package report

import (
	"encoding/json"
	"io"
	"time"

	"github.com/lianadb/liana/cmd/lianabench/measure"
)

// Report is everything that one run found. Rates are in units a second,
// latencies in microseconds, sizes in bytes.
type Report struct {
	Title   string          `json:"title"`
	Command string          `json:"command"`
	Started time.Time       `json:"started"`
	Seconds float64         `json:"seconds"`
	Machine measure.Machine `json:"machine"`
	// Scale tells how far a run is from the full one; empty for a full run.
	Scale    string       `json:"scale,omitempty"`
	Verdicts []Verdict    `json:"verdicts,omitempty"`
	Loads    []Comparison `json:"loads,omitempty"`
	Curves   []Curve      `json:"curves,omitempty"`
	Sizes    []Size       `json:"sizes,omitempty"`
	Restarts []Restart    `json:"restarts,omitempty"`
	Systems  []System     `json:"systems,omitempty"`
	Notes    []string     `json:"notes,omitempty"`
}

// System is a system that was measured.
type System struct {
	Name  string   `json:"name"`
	Facts []string `json:"facts"`
	// PeakResident is the most memory it took under all loads of the run.
	PeakResident uint64 `json:"peak_resident_bytes,omitempty"`
}

// Comparison is one load, given to several systems in turn.
type Comparison struct {
	Name   string `json:"name"`
	About  string `json:"about"`
	Unit   string `json:"unit"` // what a rate counts: "likes", "tests", "operations"
	Rounds int    `json:"rounds"`
	Cells  []Cell `json:"cells"`
}

// Cell is one system under one load.
type Cell struct {
	Label  string `json:"label"`
	Target string `json:"target"`
	// PerRound are the rates of the rounds, Rate their median and bounds.
	PerRound []float64      `json:"per_round"`
	Rate     measure.Spread `json:"rate"`
	// Ratio is the first cell of the comparison to this one, round by round.
	Ratio   measure.Spread     `json:"first_to_this"`
	Latency []measure.Quantile `json:"latency"`
	Kinds   []KindLatency      `json:"kinds,omitempty"`
	// ServerCPU and ClientCPU are processors in use, on average.
	ServerCPU float64 `json:"server_cpu"`
	ClientCPU float64 `json:"client_cpu"`
	// Yes is the share of answers that were "yes" (there, new, deleted); it is
	// alike for systems that hold the same data.
	Yes          float64 `json:"yes_share"`
	PeakResident uint64  `json:"peak_resident_bytes,omitempty"`
	Calls        int64   `json:"calls"`
	Errors       int64   `json:"errors,omitempty"`
	FirstError   string  `json:"first_error,omitempty"`
	Missed       int64   `json:"missed,omitempty"`
}

// KindLatency is the latency of one kind of operation in a mix.
type KindLatency struct {
	Kind  string  `json:"kind"`
	Calls int64   `json:"calls"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
}

// Quantile returns the latency at a percentile that Quantiles gives, else 0.
func (c *Cell) Quantile(percent float64) float64 {
	for _, q := range c.Latency {
		if q.Percent == percent {
			return q.Micros
		}
	}
	return 0
}

// Curve is what operations on one list cost as it grows.
type Curve struct {
	Name   string  `json:"name"`
	Target string  `json:"target"`
	About  string  `json:"about"`
	Points []Point `json:"points"`
}

// Point is a list of N edges, and a list that stays small, asked alike.
type Point struct {
	Edges int      `json:"edges"`
	Small int      `json:"small_list_edges"`
	Ops   []OpCost `json:"ops"`
}

// OpCost is the cost of one operation on the list.
type OpCost struct {
	Op    string  `json:"op"`
	Write bool    `json:"write,omitempty"`
	Calls int64   `json:"calls"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	// SmallP50 is the same on the small list, Ratio P50 over it.
	SmallP50 float64 `json:"small_p50_us"`
	SmallP99 float64 `json:"small_p99_us"`
	Ratio    float64 `json:"ratio"`
	// ServerCPU is processor time of the server a call, in microseconds; what it
	// does behind the call falls into it too. Disk is what it wrote to disk and read from it, in bytes a call.
	ServerCPU float64 `json:"server_cpu_us"`
	Written   float64 `json:"disk_written_bytes"`
	Read      float64 `json:"disk_read_bytes"`
}

// Size is the space that likes take.
type Size struct {
	Name     string  `json:"name"`
	Target   string  `json:"target"`
	Likes    int     `json:"likes"`
	LoadRate float64 `json:"load_rate"`
	Parts    []Part  `json:"parts"`
	// PerLike sums the parts that are not apart.
	PerLike      float64 `json:"bytes_per_like"`
	PeakResident uint64  `json:"peak_resident_bytes"`
}

// Part is a part of the space on disk.
type Part struct {
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"`
	Apart bool   `json:"apart,omitempty"`
}

// Restart is a return to service after kill -9.
type Restart struct {
	Target string `json:"target"`
	Likes  int    `json:"likes"`
	// Seconds run from the start of the process to the first right answer.
	Seconds  float64 `json:"seconds"`
	Resident uint64  `json:"resident_bytes"`
}

// WriteJSON writes the report as one indented document.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WorstRatio is the greatest of the ratios of a point.
func (p *Point) WorstRatio() float64 {
	worst := 0.0
	for _, o := range p.Ops {
		worst = max(worst, o.Ratio)
	}
	return worst
}
