package main

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// maxProperties is the API's limit for the names and values of an edge's properties.
const maxProperties = 1024

// maxAhead is how far ahead of this machine's clock a time may lie before the row is
// rejected here. The server's rule (5 minutes ahead of its own clock) is stricter;
// a day leaves room for a wrong clock on this side.
const maxAhead = 24 * time.Hour

// column says what one field of a row means: it puts the field into m, or gives the
// reason for which the row is rejected.
type column func(m *lianav1.Mutation, field []byte) error

// mapping turns rows into mutations. Its exported fields describe it completely and
// are kept with the progress of an import: a changed mapping starts from the beginning.
type mapping struct {
	Type      string `json:"type"`
	From      string `json:"from"`
	To        string `json:"to"`
	Columns   string `json:"columns"`
	Delimiter string `json:"delimiter"`
	Header    bool   `json:"header"`

	columns []column
	latest  int64 // the latest time accepted here, in microseconds
}

const columnForms = "src, dst, time_s, time_ms, time_us, time, type, properties, prop:NAME or - (ignore)"

// compile checks the mapping and prepares it for use.
func (m *mapping) compile(now time.Time) error {
	for flag, value := range map[string]string{"--type": m.Type, "--from": m.From, "--to": m.To} {
		if value == "" {
			return usagef("%s is needed: the edge type is --type, its ends are --from and --to", flag)
		}
	}
	if unescaped, ok := strings.CutSuffix(m.Delimiter, `\t`); ok {
		m.Delimiter = unescaped + "\t"
	}
	if m.Delimiter == "" || strings.ContainsAny(m.Delimiter, "\"\r\n") || !utf8.ValidString(m.Delimiter) {
		return usagef("--delimiter: want one or more characters other than quotes and line ends, got %q", m.Delimiter)
	}
	m.latest = now.Add(maxAhead).UnixMicro()
	names := strings.Split(m.Columns, ",")
	var times int
	for i, name := range names {
		if strings.HasPrefix(name, "time") {
			times++
		}
		if name != "-" && slices.Contains(names[:i], name) {
			return usagef("--columns: %q is given twice", name)
		}
		column := m.column(name)
		if column == nil {
			return usagef("--columns: want names separated by commas, each one of %s; got %q", columnForms, name)
		}
		m.columns = append(m.columns, column)
	}
	if times > 1 || !slices.Contains(names, "src") || !slices.Contains(names, "dst") {
		return usagef("--columns: want src and dst once each, and at most one time; got %q", m.Columns)
	}
	return nil
}

// column returns the meaning of a column's name, or nil.
func (m *mapping) column(name string) column {
	switch name {
	case "-":
		return func(*lianav1.Mutation, []byte) error { return nil }
	case "src":
		return idColumn(name, m.From, func(m *lianav1.Mutation, id uint64) { m.SrcId = id })
	case "dst":
		return idColumn(name, m.To, func(m *lianav1.Mutation, id uint64) { m.DstId = id })
	case "time_s":
		return m.timeColumn(name, 1_000_000)
	case "time_ms":
		return m.timeColumn(name, 1000)
	case "time_us":
		return m.timeColumn(name, 1)
	case "time":
		return m.anyTimeColumn()
	case "type":
		return m.typeColumn()
	case "properties":
		return propertiesColumn
	}
	if property, ok := strings.CutPrefix(name, "prop:"); ok && property != "" && utf8.ValidString(property) {
		return propertyColumn(property)
	}
	return nil
}

// idColumn reads an id: a number, or type:number as an export writes it.
func idColumn(name, kind string, set func(*lianav1.Mutation, uint64)) column {
	prefix := kind + ":"
	return func(m *lianav1.Mutation, field []byte) error {
		if len(field) > len(prefix) && string(field[:len(prefix)]) == prefix {
			field = field[len(prefix):]
		}
		id, err := parseID(string(field))
		if err != nil {
			return rejectf("%s: %v", name, err)
		}
		set(m, id)
		return nil
	}
}

// timeColumn reads an integer that counts the given number of microseconds.
func (m *mapping) timeColumn(name string, scale int64) column {
	return func(mutation *lianav1.Mutation, field []byte) error {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return rejectf("%s: %q is not an integer of 64 bits", name, field)
		}
		if n > math.MaxInt64/scale {
			return rejectf("%s: %d is out of range", name, n)
		}
		return m.setTime(mutation, name, max(n, 0)*scale)
	}
}

// anyTimeColumn reads RFC 3339, or microseconds.
func (m *mapping) anyTimeColumn() column {
	micros := m.timeColumn("time", 1)
	return func(mutation *lianav1.Mutation, field []byte) error {
		if t, err := time.Parse(time.RFC3339Nano, string(field)); err == nil {
			return m.setTime(mutation, "time", t.UnixMicro())
		}
		if len(bytes.Trim(field, "-0123456789")) > 0 {
			return rejectf("time: %q is neither RFC 3339 nor microseconds since 1970", field)
		}
		return micros(mutation, field)
	}
}

// setTime refuses 0 too: to the server it means now.
func (m *mapping) setTime(mutation *lianav1.Mutation, name string, micros int64) error {
	if micros <= 0 {
		return rejectf("%s: the time is not after 1970-01-01T00:00:00Z", name)
	}
	if micros > m.latest {
		return rejectf("%s: the time %s lies in the future", name, timeText(micros))
	}
	mutation.Time = micros
	return nil
}

func (m *mapping) typeColumn() column {
	return func(_ *lianav1.Mutation, field []byte) error {
		if string(field) != m.Type {
			return rejectf("type: want %s, got %q", m.Type, field)
		}
		return nil
	}
}

// propertiesColumn reads a JSON object of strings; empty is none.
func propertiesColumn(m *lianav1.Mutation, field []byte) error {
	if len(field) == 0 {
		return nil
	}
	if !utf8.Valid(field) {
		return rejectf("properties: not valid UTF-8")
	}
	var properties map[string]string
	if err := json.Unmarshal(field, &properties); err != nil {
		return rejectf("properties: want a JSON object of strings: %v", err)
	}
	for name, value := range properties {
		if err := setProperty(m, name, value); err != nil {
			return err
		}
	}
	return nil
}

// propertyColumn reads one property; an empty field means that there is none.
func propertyColumn(name string) column {
	return func(m *lianav1.Mutation, field []byte) error {
		if len(field) == 0 {
			return nil
		}
		return setProperty(m, name, string(field))
	}
}

func setProperty(m *lianav1.Mutation, name, value string) error {
	if !utf8.ValidString(value) {
		return rejectf("property %s: not valid UTF-8", name)
	}
	if m.Properties == nil {
		m.Properties = make(map[string]string)
	}
	m.Properties[name] = value
	return nil
}

// apply fills m from the fields of one row.
func (m *mapping) apply(mutation *lianav1.Mutation, fields [][]byte) error {
	if len(fields) != len(m.columns) {
		return rejectf("%d fields where %d columns are expected", len(fields), len(m.columns))
	}
	mutation.Op, mutation.Type = lianav1.MutationOp_ADD, m.Type
	for i, column := range m.columns {
		if err := column(mutation, fields[i]); err != nil {
			return err
		}
	}
	var size int
	for name, value := range mutation.Properties {
		size += len(name) + len(value)
	}
	if size > maxProperties {
		return rejectf("the properties are %d bytes long, above %d", size, maxProperties)
	}
	return nil
}
