package report

import (
	"fmt"
	"math"
)

// Grade says how a figure stands to its targets.
type Grade string

// The grades, and what is said where there is nothing to grade.
const (
	Aim    Grade = "aim"
	Least  Grade = "least"
	Below  Grade = "below"
	Absent Grade = "not measured"
	Plain  Grade = "shown"
)

// Verdict is one row of the table of targets.
type Verdict struct {
	What     string `json:"what"`
	Least    string `json:"least"`
	Aim      string `json:"aim"`
	Measured string `json:"measured"`
	Grade    Grade  `json:"grade"`
}

// Judgement is a measured figure beside its two targets.
type Judgement struct {
	Value, Least, Aim float64
	// Lower says that less is better.
	Lower bool
}

// Grade compares. A value that is no number was not measured.
func (j Judgement) Grade() Grade {
	v, least, aim := j.Value, j.Least, j.Aim
	if math.IsNaN(v) || v <= 0 {
		return Absent
	}
	if j.Lower {
		v, least, aim = -v, -least, -aim
	}
	switch {
	case v >= aim:
		return Aim
	case v >= least:
		return Least
	}
	return Below
}

// Worst returns the least good of some grades.
func Worst(grades ...Grade) Grade {
	rank := map[Grade]int{Absent: 0, Below: 1, Least: 2, Aim: 3, Plain: 4}
	worst := Plain
	for _, g := range grades {
		if rank[g] < rank[worst] {
			worst = g
		}
	}
	return worst
}

// Number writes a figure with three digits that say something, and thousands
// set apart.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", math.Abs(v))
	out := ""
	for len(digits) > 3 {
		out = "," + digits[len(digits)-3:] + out
		digits = digits[:len(digits)-3]
	}
	if v < 0 {
		digits = "-" + digits
	}
	return digits + out
}

// Micros writes a time given in microseconds in a fitting unit.
func Micros(us float64) string {
	switch {
	case us == 0:
		return "–"
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 100_000:
		return fmt.Sprintf("%.1f ms", us/1000)
	case us < 1_000_000:
		return fmt.Sprintf("%.0f ms", us/1000)
	}
	return fmt.Sprintf("%.1f s", us/1e6)
}

// Bytes writes a size in a fitting unit of 1024.
func Bytes(b uint64) string {
	switch v := float64(b); {
	case b == 0:
		return "–"
	case v < 1<<20:
		return fmt.Sprintf("%.0f KiB", v/(1<<10))
	case v < 1<<30:
		return fmt.Sprintf("%.0f MiB", v/(1<<20))
	default:
		return fmt.Sprintf("%.2f GiB", v/(1<<30))
	}
}
