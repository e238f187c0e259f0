package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed report.html.tmpl
var pageTemplate string

// WriteHTML writes the report as one page that loads nothing.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"number": Number, "micros": Micros, "bytes": Bytes, "spread": SpreadText,
		"count":   func(n int) string { return Number(float64(n)) },
		"per":     func(b uint64, n int) string { return Number(float64(b) / float64(max(n, 1))) },
		"seconds": func(s float64) string { return fmt.Sprintf("%.2f s", s) },
		"when":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
		"minutes": func(s float64) string { return time.Duration(s * float64(time.Second)).Round(time.Second).String() },
	}).Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("report template: %w", err)
	}
	return t.Execute(w, r)
}

// Trouble tells what went wrong in a cell; empty where nothing did.
func (c *Cell) Trouble() string { return c.trouble() }

// Colours are the series that the style sheet tells apart.
func (r *Report) Colours() [colours]struct{} { return [colours]struct{}{} }

// CallsF is Calls, for the number format.
func (k KindLatency) CallsF() float64 { return float64(k.Calls) }
