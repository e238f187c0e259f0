package measure

import (
	"sort"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Range and precision of latencies: 1 µs to 2 minutes in nanoseconds, 3 digits.
const (
	latencyMin    = int64(time.Microsecond)
	latencyMax    = int64(2 * time.Minute)
	latencyDigits = 3
)

// Result is what a load measured.
type Result struct {
	Elapsed time.Duration
	// Calls are operations that were answered in time, Units the work in them.
	Calls, Units int64
	Errors       int64
	FirstError   error
	// Missed operations of an open loop were due and never begun.
	Missed int64
	// Kinds are the latencies by kind of operation.
	Kinds map[int]*hdrhistogram.Histogram
}

func newResult() *Result { return &Result{Kinds: map[int]*hdrhistogram.Histogram{}} }

// NewHistogram returns an empty histogram of latencies in nanoseconds.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(latencyMin, latencyMax, latencyDigits)
}

// RecordLatency adds a latency; one beyond the range counts as its limit.
func RecordLatency(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d), latencyMin), latencyMax))
}

func (r *Result) record(o Outcome, d time.Duration) {
	h := r.Kinds[o.Kind]
	if h == nil {
		h = NewHistogram()
		r.Kinds[o.Kind] = h
	}
	RecordLatency(h, d)
	r.Calls++
	r.Units += int64(o.Units)
}

func (r *Result) fail(err error) {
	r.Errors++
	if r.FirstError == nil {
		r.FirstError = err
	}
}

// Merge adds what another load measured, beside this one (then Elapsed is 0 in it) or after it.
func (r *Result) Merge(o *Result) {
	if r.Kinds == nil {
		r.Kinds = map[int]*hdrhistogram.Histogram{}
	}
	r.Elapsed += o.Elapsed
	r.Missed += o.Missed
	r.Calls += o.Calls
	r.Units += o.Units
	r.Errors += o.Errors
	if r.FirstError == nil {
		r.FirstError = o.FirstError
	}
	for kind, h := range o.Kinds {
		if r.Kinds[kind] == nil {
			r.Kinds[kind] = NewHistogram()
		}
		r.Kinds[kind].Merge(h)
	}
}

// Rate is units per second.
func (r *Result) Rate() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Units) / r.Elapsed.Seconds()
}

// All returns the latencies of all kinds together.
func (r *Result) All() *hdrhistogram.Histogram {
	all := NewHistogram()
	for _, h := range r.Kinds {
		all.Merge(h)
	}
	return all
}

// Spread is the median of some values with the least and the greatest of them.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the zero Spread for no values. The median of an even number
// of values is the mean of the middle two.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := append([]float64(nil), values...)
	sort.Float64s(v)
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	return Spread{Median: median, Min: v[0], Max: v[len(v)-1]}
}

// RatioOf compares round by round, so that what slows the machine for a while
// touches both sides: the spread of a[i]/b[i].
func RatioOf(a, b []float64) Spread {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return SpreadOf(ratios)
}

// Quantile is a point of a latency distribution.
type Quantile struct {
	Percent float64 `json:"percent"`
	Micros  float64 `json:"us"`
}

// Quantiles returns the points that reports show; none of an empty histogram.
func Quantiles(h *hdrhistogram.Histogram) []Quantile {
	if h.TotalCount() == 0 {
		return nil
	}
	var out []Quantile
	for _, p := range []float64{0, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 100} {
		out = append(out, Quantile{Percent: p, Micros: Micros(h, p)})
	}
	return out
}

// Micros is the latency at a percentile, in microseconds.
func Micros(h *hdrhistogram.Histogram, percent float64) float64 {
	return float64(h.ValueAtPercentile(percent)) / 1000
}
