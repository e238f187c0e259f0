package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/lianadb/liana/cmd/lianabench/measure"
)

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	t := &tables{out: w}
	t.line("%s", r.Title)
	t.line("%s", r.MachineLine())
	if r.Scale != "" {
		t.line("%s", r.Scale)
	}
	for i := range r.Loads {
		t.load(&r.Loads[i])
	}
	for i := range r.Curves {
		t.curve(&r.Curves[i])
	}
	t.sizes(r.Sizes)
	t.restarts(r.Restarts)
	t.systems(r.Systems)
	t.verdicts(r.Verdicts)
	for _, n := range r.Notes {
		t.line("Note: %s", n)
	}
	return t.err
}

// MachineLine describes the machine in one line.
func (r *Report) MachineLine() string {
	m := r.Machine
	return fmt.Sprintf("%d cores (%s), %s, Linux %s, %s, %s; fsync of 4 KiB %s (p99 %s)", m.Cores, m.CPU,
		Bytes(m.MemoryMiB<<20), m.Kernel, m.Go, m.FileSystem, Micros(m.FsyncP50us), Micros(m.FsyncP99us))
}

// tables writes tables and keeps the first error.
type tables struct {
	out io.Writer
	err error
}

func (t *tables) line(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.out, format+"\n", args...)
	}
}

// table writes rows of cells separated by tabs under a title.
func (t *tables) table(title, header string, rows []string) {
	if len(rows) == 0 {
		return
	}
	t.line("\n%s", title)
	w := tabwriter.NewWriter(t.out, 0, 4, 2, ' ', 0)
	_, err := fmt.Fprintln(w, header+"\n"+strings.Join(rows, "\n"))
	if err == nil {
		err = w.Flush()
	}
	if t.err == nil {
		t.err = err
	}
}

// SpreadText writes a median with its bounds, where they differ.
func SpreadText(s measure.Spread) string {
	if s == (measure.Spread{}) {
		return "–"
	}
	if s.Min == s.Max {
		return Number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Number(s.Median), Number(s.Min), Number(s.Max))
}

func (t *tables) load(c *Comparison) {
	var rows []string
	for i := range c.Cells {
		cell := &c.Cells[i]
		ratio := "1"
		if i > 0 {
			ratio = SpreadText(cell.Ratio)
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%s\t%s", cell.Label, SpreadText(cell.Rate), ratio,
			Micros(cell.Quantile(50)), Micros(cell.Quantile(99)), Micros(cell.Quantile(99.9)),
			cell.ServerCPU, cell.ClientCPU, Bytes(cell.PeakResident), cell.trouble()))
	}
	first := "first"
	if len(c.Cells) > 0 {
		first = c.Cells[0].Label
	}
	t.table(fmt.Sprintf("%s: %s", c.Name, c.About),
		fmt.Sprintf("system\t%s/s\t%s is × this\tp50\tp99\tp99.9\tserver CPUs\tclient CPUs\tmemory\t", c.Unit, first), rows)
	rows = nil
	for i := range c.Cells {
		for _, k := range c.Cells[i].Kinds {
			rows = append(rows, fmt.Sprintf("  %s\t%s\t%s\t%s\t%s", c.Cells[i].Label, k.Kind, Number(float64(k.Calls)), Micros(k.P50), Micros(k.P99)))
		}
	}
	t.table("  by operation", "  system\toperation\tcalls\tp50\tp99", rows)
}

// trouble says what went wrong in a cell.
func (c *Cell) trouble() string {
	var s []string
	if c.Errors > 0 {
		s = append(s, fmt.Sprintf("%d errors: %s", c.Errors, c.FirstError))
	}
	if c.Missed > 0 {
		s = append(s, fmt.Sprintf("%d due and never begun", c.Missed))
	}
	return strings.Join(s, "; ")
}

func (t *tables) curve(c *Curve) {
	var rows []string
	for _, p := range c.Points {
		for _, o := range p.Ops {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f µs\t%s", Number(float64(p.Edges)), o.Op, Micros(o.P50), Micros(o.P99),
				Micros(o.SmallP50), Micros(o.SmallP99), Number(o.Ratio), o.ServerCPU, Number(o.Written)))
		}
	}
	t.table(fmt.Sprintf("%s, %s: %s", c.Name, c.Target, c.About),
		"edges\toperation\tp50\tp99\tsmall list p50\tp99\tratio of p50\tserver CPU a call\tbytes written a call", rows)
}

func (t *tables) sizes(sizes []Size) {
	var rows []string
	for _, s := range sizes {
		var parts []string
		for _, p := range s.Parts {
			text := fmt.Sprintf("%s %s", p.Name, Number(float64(p.Bytes)/float64(s.Likes)))
			if p.Apart {
				text += " (apart)"
			}
			parts = append(parts, text)
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", s.Target, s.Name, Number(float64(s.Likes)), Number(s.PerLike),
			strings.Join(parts, ", "), Number(s.LoadRate), Bytes(s.PeakResident)))
	}
	t.table("Space on disk, compacted", "system\tids\tlikes\tbytes a like\tof which\tloaded at likes/s\tpeak memory", rows)
}

func (t *tables) restarts(restarts []Restart) {
	var rows []string
	for _, r := range restarts {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%.2f s\t%s", r.Target, Number(float64(r.Likes)), r.Seconds, Bytes(r.Resident)))
	}
	t.table("Serving again after kill -9", "system\tlikes\tafter\tmemory then", rows)
}

func (t *tables) systems(systems []System) {
	var rows []string
	for _, s := range systems {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s", s.Name, Bytes(s.PeakResident), strings.Join(s.Facts, "; ")))
	}
	t.table("Systems", "name\tpeak memory\tas measured", rows)
}

func (t *tables) verdicts(verdicts []Verdict) {
	var rows []string
	for _, v := range verdicts {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", v.What, v.Least, v.Aim, v.Measured, v.Grade))
	}
	t.table("Targets", "what\tat least\taim\tmeasured\treached", rows)
}
