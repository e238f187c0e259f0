package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/lianadb/liana/cmd/lianabench/measure"
	"github.com/lianadb/liana/cmd/lianabench/report"
)

// verdicts fills in the table of targets.
func (s *suite) verdicts() []report.Verdict {
	rows := []report.Verdict{s.hasVerdict(), s.addVerdict(), s.batchVerdict(), s.hotVerdict(), s.starVerdict()}
	rows = append(rows, s.sizeVerdicts()...)
	return absent(append(rows, s.restartVerdict(), s.memoryVerdict(), s.curveVerdict()))
}

// absent says so in the rows that were not measured.
func absent(rows []report.Verdict) []report.Verdict {
	for i := range rows {
		if rows[i].Grade == report.Absent {
			rows[i].Measured = "–"
		}
	}
	return rows
}

// rates returns the rates of a comparison's cell by round; none where it was
// not measured.
func rates(c *report.Comparison, label string) []float64 {
	if c != nil {
		for _, cell := range c.Cells {
			if cell.Label == label {
				return cell.PerRound
			}
		}
	}
	return nil
}

func rate(c *report.Comparison, label string) float64 {
	return measure.SpreadOf(rates(c, label)).Median
}

// times writes a ratio as a factor.
func times(s measure.Spread) string { return "× " + report.SpreadText(s) }

func (s *suite) hasVerdict() report.Verdict {
	ratio := measure.RatioOf(rates(s.has, "liana HasEdges"), rates(s.has, "redis SISMEMBER"))
	return report.Verdict{
		What: "HasEdges, 100 a call, warm, to Redis pipelined SISMEMBER", Least: "1.0 ×", Aim: "2 ×",
		Measured: fmt.Sprintf("%s/s to %s/s: %s", report.Number(rate(s.has, "liana HasEdges")), report.Number(rate(s.has, "redis SISMEMBER")), times(ratio)),
		Grade:    report.Judgement{Value: ratio.Median, Least: 1, Aim: 2}.Grade(),
	}
}

func (s *suite) addVerdict() report.Verdict {
	liana := rates(s.durable, "liana")
	postgres, redis := measure.RatioOf(liana, rates(s.durable, "postgres")), measure.RatioOf(liana, rates(s.durable, "redis-fsync"))
	grade := report.Judgement{Value: postgres.Median, Least: 3, Aim: 3}.Grade()
	if grade == report.Aim && redis.Median < 1 {
		grade = report.Least
	}
	return report.Verdict{
		What: "AddEdge, one a call, 64 callers, both directions durable", Least: "3 × PostgreSQL", Aim: "1 × Redis fsync-always",
		Measured: fmt.Sprintf("%s/s: %s PostgreSQL, %s Redis", report.Number(measure.SpreadOf(liana).Median), times(postgres), times(redis)),
		Grade:    grade,
	}
}

// batchVerdict grades the better of the two calls. PostgreSQL's figure is that
// of single likes; its own batches are in the table of the load.
func (s *suite) batchVerdict() report.Verdict {
	mutate, stream := rate(s.batches, "liana MutateEdges"), rate(s.batches, "liana StreamMutations")
	best := math.Max(mutate, stream)
	toPostgres, toRaw := best/rate(s.durable, "postgres"), best/s.raw.Median
	grade := report.Worst(report.Judgement{Value: best, Least: 40_000, Aim: 100_000}.Grade(),
		report.Judgement{Value: toPostgres, Least: 6, Aim: 6}.Grade())
	if grade == report.Aim && !(toRaw >= 0.5) {
		grade = report.Least
	}
	return report.Verdict{
		What: "MutateEdges / StreamMutations, durable, both directions", Least: "40,000/s and 6 × PostgreSQL", Aim: "100,000/s, 0.5 × raw Pebble",
		Measured: fmt.Sprintf("%s / %s/s: × %s PostgreSQL, × %s raw Pebble (%s/s)", report.Number(mutate), report.Number(stream),
			report.Number(toPostgres), report.Number(toRaw), report.Number(s.raw.Median)),
		Grade: grade,
	}
}

func (s *suite) hotVerdict() report.Verdict {
	ratio := measure.RatioOf(rates(s.durable, "liana, one note"), rates(s.durable, "liana"))
	return report.Verdict{
		What: "all 64 callers on one note, to the spread figure", Least: "0.9 ×", Aim: "1 ×",
		Measured: fmt.Sprintf("%s/s: %s", report.Number(rate(s.durable, "liana, one note")), times(ratio)),
		Grade:    report.Judgement{Value: ratio.Median, Least: 0.9, Aim: 1}.Grade(),
	}
}

// starVerdict takes the worst operation of both kinds of lists at the length
// that the target names.
func (s *suite) starVerdict() report.Verdict {
	worst, worstOp := 0.0, ""
	var told []string
	for _, c := range []struct {
		side  string
		curve *report.Curve
	}{{"user", s.user}, {"note", s.celebrity}} {
		p := pointAt(c.curve, s.plan.celebrity)
		if p == nil {
			return report.Verdict{What: "a long list to one of 100", Least: "3 × slower", Aim: "1.5 ×", Grade: report.Absent}
		}
		for _, o := range p.Ops {
			if o.Ratio > worst {
				worst, worstOp = o.Ratio, o.Op+" ("+c.side+")"
			}
			told = append(told, fmt.Sprintf("%s %s %s", c.side, o.Op, report.Number(o.Ratio)))
		}
	}
	return report.Verdict{
		What:  fmt.Sprintf("a list of %s edges to one of 100, p50 of each operation", report.Number(float64(s.plan.celebrity))),
		Least: "3 × slower at most", Aim: "1.5 ×",
		Measured: fmt.Sprintf("worst × %s, %s; all: %s", report.Number(worst), worstOp, strings.Join(told, ", ")),
		Grade:    report.Judgement{Value: worst, Least: 3, Aim: 1.5, Lower: true}.Grade(),
	}
}

func pointAt(c *report.Curve, edges int) *report.Point {
	if c != nil {
		for i := range c.Points {
			if c.Points[i].Edges == edges {
				return &c.Points[i]
			}
		}
	}
	return nil
}

func (s *suite) sizeVerdicts() []report.Verdict {
	var rows []report.Verdict
	for _, t := range []struct {
		ids        string
		least, aim float64
	}{{"scattered", 55, 42}, {"dense", 40, 28}} {
		v := report.Verdict{
			What:  fmt.Sprintf("bytes a like on disk, %s likes, %s ids", report.Number(float64(s.plan.likes)), t.ids),
			Least: report.Number(t.least), Aim: report.Number(t.aim), Grade: report.Absent,
		}
		for _, size := range s.report.Sizes {
			if size.Target == "liana" && size.Name == t.ids {
				v.Measured = fmt.Sprintf("%s (%s likes)", report.Number(size.PerLike), report.Number(float64(size.Likes)))
				v.Grade = report.Judgement{Value: size.PerLike, Least: t.least, Aim: t.aim, Lower: true}.Grade()
			}
		}
		rows = append(rows, v)
	}
	return rows
}

func (s *suite) restartVerdict() report.Verdict {
	v := report.Verdict{
		What:  fmt.Sprintf("serving again after kill -9 with %s likes", report.Number(float64(s.plan.restart))),
		Least: "3 s", Aim: "1 s", Grade: report.Absent,
	}
	for _, r := range s.report.Restarts {
		if r.Target == "liana" {
			v.Measured = fmt.Sprintf("%.2f s (%s likes)", r.Seconds, report.Number(float64(r.Likes)))
			v.Grade = report.Judgement{Value: r.Seconds, Least: 3, Aim: 1, Lower: true}.Grade()
		}
	}
	return v
}

func (s *suite) memoryVerdict() report.Verdict {
	peak := uint64(0)
	for _, name := range []string{"liana", "liana-stream"} {
		if system := s.systems[name]; system != nil {
			peak = max(peak, system.PeakResident)
		}
	}
	const mib = 1 << 20
	return report.Verdict{
		What: "resident memory under these loads, default configuration", Least: "1 GiB", Aim: "512 MiB", Measured: report.Bytes(peak),
		Grade: report.Judgement{Value: float64(peak) / mib, Least: 1024, Aim: 512, Lower: true}.Grade(),
	}
}

// curveVerdict tells how much the cost grew over the whole curve.
func (s *suite) curveVerdict() report.Verdict {
	v := report.Verdict{What: "cost of a list as it grows, p50", Least: "O(log n)", Grade: report.Absent}
	if s.user == nil || len(s.user.Points) < 2 {
		return v
	}
	first, last := s.user.Points[0], s.user.Points[len(s.user.Points)-1]
	var told []string
	for _, o := range last.Ops {
		if before, ok := first.Op(o.Op); ok {
			told = append(told, fmt.Sprintf("%s %s → %s", o.Op, report.Micros(before.P50), report.Micros(o.P50)))
		}
	}
	v.What = fmt.Sprintf("cost of a list of %s … %s edges, p50", report.Number(float64(first.Edges)), report.Number(float64(last.Edges)))
	v.Measured, v.Grade = strings.Join(told, ", "), report.Plain
	return v
}
