package report

import (
	"fmt"
	"html/template"
	"math"
)

const chartWidth = 760

// Bars draws the rates of a comparison, with the bounds of the rounds as a
// line across the end of each bar.
func (c *Comparison) Bars() template.HTML {
	const rowHeight, labelWidth, ratioWidth = 34.0, 190.0, 210.0
	d := newDrawing(chartWidth, rowHeight*float64(len(c.Cells))+8, "rates of "+c.Name)
	most := 0.0
	for _, cell := range c.Cells {
		most = math.Max(most, cell.Rate.Max)
	}
	x := linearScale(labelWidth, chartWidth-ratioWidth, most)
	for i, cell := range c.Cells {
		y := rowHeight * float64(i)
		mid := y + rowHeight/2
		d.text("label", right, labelWidth-10, mid+4, cell.Label)
		d.rect(fmt.Sprintf("f%d", i%colours), labelWidth, y+6, x.at(cell.Rate.Median)-labelWidth, rowHeight-12,
			fmt.Sprintf("%s: %s %s/s", cell.Label, SpreadText(cell.Rate), c.Unit))
		if cell.Rate.Max > cell.Rate.Min {
			d.line("whisker", x.at(cell.Rate.Min), mid, x.at(cell.Rate.Max), mid)
			d.line("whisker", x.at(cell.Rate.Min), mid-4, x.at(cell.Rate.Min), mid+4)
			d.line("whisker", x.at(cell.Rate.Max), mid-4, x.at(cell.Rate.Max), mid+4)
		}
		end := x.at(cell.Rate.Max) + 8
		d.text("value", left, end, mid+4, Number(cell.Rate.Median)+"/s")
		if i > 0 && cell.Ratio.Median > 0 {
			d.text("label", left, end+88, mid+4, fmt.Sprintf("%s is × %s", c.Cells[0].Label, Number(cell.Ratio.Median)))
		}
	}
	return template.HTML(d.String()) //nolint:gosec // every text was escaped when drawn
}

// Percentiles draws the latency distributions of a comparison: one line a
// system, the rare slow calls stretched out to the right.
func (c *Comparison) Percentiles() template.HTML {
	const height, marginLeft, marginTop, marginBottom = 290.0, 70.0, 12.0, 62.0
	low, high := math.Inf(1), 0.0
	for i := range c.Cells {
		for _, q := range c.Cells[i].Latency {
			if q.Micros > 0 {
				low, high = math.Min(low, q.Micros), math.Max(high, q.Micros)
			}
		}
	}
	if high == 0 {
		return ""
	}
	low, high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high*1.0001)))
	d := newDrawing(chartWidth, height, "latency percentiles of "+c.Name)
	y := logScale(height-marginBottom, marginTop, low, high)
	for v := low; v <= high*1.001; v *= 10 {
		d.line("grid", marginLeft, y.at(v), chartWidth-20, y.at(v))
		d.text("tick", right, marginLeft-8, y.at(v)+4, Micros(v))
	}
	// The share of slower calls, by powers of ten: 1, 0.1, 0.01, …
	x := scale{from: marginLeft, to: chartWidth - 40, max: 4, by: func(p float64) float64 { return -math.Log10(math.Max(1-p/100, 1e-4)) }}
	for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99} {
		d.line("grid", x.at(p), marginTop, x.at(p), height-marginBottom)
		d.text("tick", middle, x.at(p), height-marginBottom+18, fmt.Sprintf("p%g", p))
	}
	var names []string
	for i := range c.Cells {
		cell := &c.Cells[i]
		names = append(names, cell.Label)
		var points [][2]float64
		for _, q := range cell.Latency {
			if q.Percent < 100 && q.Micros > 0 {
				points = append(points, [2]float64{x.at(q.Percent), y.at(q.Micros)})
			}
		}
		d.path(fmt.Sprintf("l%d", i%colours), points)
		for _, q := range cell.Latency {
			if q.Percent < 100 && q.Micros > 0 {
				d.dot(fmt.Sprintf("f%d", i%colours), x.at(q.Percent), y.at(q.Micros), fmt.Sprintf("%s p%g: %s", cell.Label, q.Percent, Micros(q.Micros)))
			}
		}
	}
	d.legend(marginLeft, height-12, names)
	return template.HTML(d.String()) //nolint:gosec // every text was escaped when drawn
}

// Reads and Writes draw the cost of operations over the length of the list.
// They are two pictures because a durable write costs several times a read.
func (c *Curve) Reads() template.HTML  { return c.chart("Reads", false) }
func (c *Curve) Writes() template.HTML { return c.chart("Durable writes", true) }

// chart has a logarithmic axis of lengths: growth by log n is a straight line
// there, growth by n bends up steeply.
func (c *Curve) chart(title string, writes bool) template.HTML {
	const height, marginLeft, marginTop, marginBottom = 330.0, 70.0, 12.0, 66.0
	names := c.opNames(writes)
	if len(c.Points) < 2 || len(names) == 0 {
		return ""
	}
	most := 0.0
	for _, p := range c.Points {
		for _, o := range p.Ops {
			if o.Write == writes {
				most = math.Max(most, o.P50)
			}
		}
	}
	step := niceStep(most, 6)
	most = step * math.Ceil(most/step)
	d := newDrawing(chartWidth, height, title+" by list length")
	x := logScale(marginLeft, chartWidth-30, float64(c.Points[0].Edges), float64(c.Points[len(c.Points)-1].Edges))
	y := linearScale(height-marginBottom, marginTop, most)
	for v := 0.0; v <= most*1.001; v += step {
		d.line("grid", marginLeft, y.at(v), chartWidth-30, y.at(v))
		label := Micros(v)
		if v == 0 {
			label = "0"
		}
		d.text("tick", right, marginLeft-8, y.at(v)+4, label)
	}
	for _, p := range c.Points {
		at := x.at(float64(p.Edges))
		d.line("grid", at, marginTop, at, height-marginBottom)
		d.text("tick", middle, at, height-marginBottom+18, shortCount(p.Edges))
	}
	for i, name := range names {
		c.drawOp(d, x, y, i, name)
	}
	d.text("tick", right, chartWidth-30, height-marginBottom+34, title+" by edges in the list: p50 of a call, client included")
	d.legend(marginLeft, height-12, names)
	return template.HTML(d.String()) //nolint:gosec // every text was escaped when drawn
}

// drawOp draws the line of one operation.
func (c *Curve) drawOp(d *drawing, x, y scale, i int, name string) {
	var points [][2]float64
	for _, p := range c.Points {
		if o, ok := p.Op(name); ok {
			points = append(points, [2]float64{x.at(float64(p.Edges)), y.at(o.P50)})
		}
	}
	d.path(fmt.Sprintf("l%d", i%colours), points)
	for _, p := range c.Points {
		if o, ok := p.Op(name); ok {
			d.dot(fmt.Sprintf("f%d", i%colours), x.at(float64(p.Edges)), y.at(o.P50),
				fmt.Sprintf("%s, %s edges: p50 %s, p99 %s", name, Number(float64(p.Edges)), Micros(o.P50), Micros(o.P99)))
		}
	}
}

// opNames lists the operations of a curve that write, or that do not.
func (c *Curve) opNames(writes bool) []string {
	var names []string
	if len(c.Points) > 0 {
		for _, o := range c.Points[len(c.Points)-1].Ops {
			if o.Write == writes {
				names = append(names, o.Op)
			}
		}
	}
	return names
}

// Op returns the cost of an operation by name.
func (p *Point) Op(name string) (OpCost, bool) {
	for _, o := range p.Ops {
		if o.Op == name {
			return o, true
		}
	}
	return OpCost{}, false
}

// shortCount writes 2000000 as 2 M.
func shortCount(n int) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%g M", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%g k", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
