package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// printer is the one place through which results reach stdout: a table for
// people, or one JSON document for machines.
type printer struct {
	w    io.Writer
	json bool
}

// message prints an answer: as JSON, or by table, which writes cells separated by tabs.
func (p printer) message(m proto.Message, table func(w io.Writer)) error {
	if !p.json {
		return p.table(table)
	}
	text, err := messageJSON(m)
	if err != nil {
		return err
	}
	return p.document(text)
}

// value is message for results that are not messages of the API.
func (p printer) value(v any, table func(w io.Writer)) error {
	if !p.json {
		return p.table(table)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return p.document(text)
}

func (p printer) table(fill func(w io.Writer)) error {
	tw := tabwriter.NewWriter(p.w, 0, 4, 2, ' ', 0)
	fill(tw)
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	return nil
}

func (p printer) document(text []byte) error {
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	indented.WriteByte('\n')
	if _, err := p.w.Write(indented.Bytes()); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	return nil
}

// messageJSON is the compact protojson form of m, with the names of the .proto
// files and with empty fields. protojson varies its white space on purpose;
// compacting makes the output the same each time.
func messageJSON(m proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return compact.Bytes(), nil
}

// edgePages prints the pages of one listing as they arrive, so that a listing of
// any length is printed in bounded memory: as one table, or as one ListEdgesResponse.
type edgePages struct {
	printer
	printed int
}

func (p *edgePages) page(edges []*lianav1.Edge) error {
	if !p.json {
		return p.table(func(w io.Writer) {
			if p.printed == 0 {
				fmt.Fprintln(w, "SRC\tTYPE\tDST\tTIME\tPROPERTIES")
			}
			for _, e := range edges {
				fmt.Fprintln(w, edgeRow(e))
			}
			p.printed += len(edges)
		})
	}
	var text bytes.Buffer
	for _, e := range edges {
		if p.printed == 0 {
			text.WriteString("{\"edges\":[\n")
		} else {
			text.WriteString(",\n")
		}
		edge, err := messageJSON(e)
		if err != nil {
			return err
		}
		text.Write(edge)
		p.printed++
	}
	if _, err := p.w.Write(text.Bytes()); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	return nil
}

// end completes the document.
func (p *edgePages) end(nextPageToken, token string) error {
	if !p.json {
		return nil
	}
	head := "\n]"
	if p.printed == 0 {
		head = "{\"edges\":[]"
	}
	next, err := json.Marshal(nextPageToken)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	seen, err := json.Marshal(token)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	if _, err := fmt.Fprintf(p.w, "%s,\"next_page_token\":%s,\"token\":%s}\n", head, next, seen); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	return nil
}

func edgeRow(e *lianav1.Edge) string {
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", vertexText(e.GetSrc()), e.GetType(), vertexText(e.GetDst()),
		timeText(e.GetTime()), propertiesText(e.GetProperties()))
}

func vertexText(v *lianav1.Vertex) string {
	return v.GetType() + ":" + strconv.FormatUint(v.GetId(), 10)
}

// timeText writes microseconds since 1970 as RFC 3339 in UTC.
func timeText(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.999999Z07:00")
}

// propertiesText is a JSON object with sorted names, or nothing where there are none.
func propertiesText(properties map[string]string) string {
	if len(properties) == 0 {
		return ""
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(properties) // a map of strings into memory cannot fail
	return string(bytes.TrimSpace(text.Bytes()))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
