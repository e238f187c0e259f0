package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// drawing is an SVG picture being made. Colours and fonts are classes, so that
// the page's style sheet sets them, for light and dark alike.
type drawing struct {
	b             strings.Builder
	width, height float64
}

func newDrawing(width, height float64, title string) *drawing {
	d := &drawing{width: width, height: height}
	fmt.Fprintf(&d.b, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, width, height, html.EscapeString(title))
	return d
}

func (d *drawing) String() string { return d.b.String() + "</svg>" }

func (d *drawing) rect(class string, x, y, w, h float64, tip string) {
	fmt.Fprintf(&d.b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2">`, class, x, y, math.Max(w, 0.5), h)
	if tip != "" {
		fmt.Fprintf(&d.b, `<title>%s</title>`, html.EscapeString(tip))
	}
	d.b.WriteString(`</rect>`)
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.b, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

// anchor values of text.
const (
	left   = "start"
	middle = "middle"
	right  = "end"
)

func (d *drawing) text(class, anchor string, x, y float64, s string) {
	fmt.Fprintf(&d.b, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`, class, anchor, x, y, html.EscapeString(s))
}

func (d *drawing) dot(class string, x, y float64, tip string) {
	fmt.Fprintf(&d.b, `<circle class="%s" cx="%.1f" cy="%.1f" r="3"><title>%s</title></circle>`, class, x, y, html.EscapeString(tip))
}

func (d *drawing) path(class string, points [][2]float64) {
	var p strings.Builder
	for i, q := range points {
		p.WriteByte("ML"[min(i, 1)])
		fmt.Fprintf(&p, "%.1f %.1f", q[0], q[1])
	}
	fmt.Fprintf(&d.b, `<path class="%s" d="%s"/>`, class, p.String())
}

// scale maps values to a stretch of the picture.
type scale struct {
	from, to float64 // pixels
	min, max float64 // values, as seen by by
	by       func(float64) float64
}

func (s scale) at(v float64) float64 {
	if s.max == s.min {
		return s.from
	}
	return s.from + (s.by(v)-s.min)/(s.max-s.min)*(s.to-s.from)
}

func linearScale(from, to, maximum float64) scale {
	return scale{from: from, to: to, max: maximum, by: func(v float64) float64 { return v }}
}

func logScale(from, to, minimum, maximum float64) scale {
	return scale{from: from, to: to, min: math.Log10(minimum), max: math.Log10(maximum), by: math.Log10}
}

// niceStep returns a step of 1, 2 or 5 times a power of ten that cuts maximum
// into at most about n parts.
func niceStep(maximum float64, n int) float64 {
	if maximum <= 0 {
		return 1
	}
	raw := maximum / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*unit*1.0001 {
			return m * unit
		}
	}
	return 10 * unit
}

// legend draws names in a row below a chart, with their colours, and returns
// the height it took.
func (d *drawing) legend(x, y float64, names []string) {
	for i, name := range names {
		d.rect(fmt.Sprintf("f%d", i%colours), x, y-9, 10, 10, "")
		d.text("label", left, x+15, y, name)
		x += 30 + 6.6*float64(len([]rune(name)))
	}
}

// colours is how many series the style sheet tells apart.
const colours = 8
