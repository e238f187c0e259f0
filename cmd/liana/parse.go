package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// maxID is the largest id of a vertex.
const maxID = math.MaxUint64 - 1

// parseVertex reads "user:42". name is the argument's name in messages.
func parseVertex(name, text string) (*lianav1.Vertex, error) {
	kind, number, found := strings.Cut(text, ":")
	if !found || kind == "" {
		return nil, usagef("%s: want type:id, such as user:42, got %q", name, text)
	}
	id, err := parseID(number)
	if err != nil {
		return nil, usagef("%s: want type:id, such as user:42, got %q: %v", name, text, err)
	}
	return &lianav1.Vertex{Type: kind, Id: id}, nil
}

// parseID reads an id in decimal; leading zeros do not matter.
func parseID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("id %q is not an unsigned decimal number", text)
	case err != nil || id == 0 || id > maxID:
		return 0, fmt.Errorf("id %s is outside 1 to %d", text, uint64(maxID))
	}
	return id, nil
}

// parseInt reads a signed 64-bit number.
func parseInt(name, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, usagef("%s: %s does not fit into 64 bits (%d to %d)", name, text, int64(math.MinInt64), int64(math.MaxInt64))
	case err != nil:
		return 0, usagef("%s: want an integer, such as 5 or -3, got %q", name, text)
	}
	return n, nil
}

// timeForms tells what parseTime reads.
const timeForms = `RFC 3339 ("2013-09-01T12:00:00Z"), a date, microseconds since 1970, an integer with s, ms or us, now, or relative (-1h, -30d, +1d)`

// parseTime reads a time into microseconds since 1970. Text with a sign and a unit
// is relative to now; a bare integer counts microseconds.
func parseTime(name, text string, now time.Time) (int64, error) {
	if text == "now" {
		return now.UnixMicro(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMicro(), nil
		}
	}
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz")
	unit := text[len(digits):]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, usagef("%s: want %s, got %q", name, timeForms, text)
	}
	signed := digits[0] == '-' || digits[0] == '+'
	scale, known := microseconds(unit, signed)
	if !known {
		return 0, usagef("%s: want %s, got %q", name, timeForms, text)
	}
	micros := n * scale
	if micros/scale != n {
		return 0, usagef("%s: %q is out of range", name, text)
	}
	if signed && unit != "" {
		micros += now.UnixMicro()
	}
	return micros, nil
}

// microseconds returns the length of a unit. Minutes and longer only make sense
// relative to now.
func microseconds(unit string, relative bool) (int64, bool) {
	switch unit {
	case "", "us":
		return 1, true
	case "ms":
		return 1e3, true
	case "s":
		return 1e6, true
	}
	long := map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}
	length, known := long[unit]
	return length.Microseconds(), known && relative
}

// parseEdgeTime reads the time of an edge. 0 is refused: to the server it means
// now, which nobody who writes 0 (or 1970-01-01) has in mind.
func parseEdgeTime(name, text string, now time.Time) (int64, error) {
	micros, err := parseTime(name, text, now)
	if err != nil {
		return 0, err
	}
	if micros <= 0 {
		return 0, usagef("%s: an edge's time must be after 1970-01-01T00:00:00Z, got %q", name, text)
	}
	return micros, nil
}

// parseProperties reads k=v pairs.
func parseProperties(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	properties := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return nil, usagef("--prop: want name=value, got %q", pair)
		}
		if _, twice := properties[key]; twice {
			return nil, usagef("--prop: %q is given twice", key)
		}
		properties[key] = value
	}
	return properties, nil
}

// parseWindow reads --since and --until; an empty text is an open bound, and nil
// is no window at all.
func parseWindow(since, until string, now time.Time) (*lianav1.Window, error) {
	if since == "" && until == "" {
		return nil, nil
	}
	window := new(lianav1.Window)
	if since != "" {
		t, err := parseTime("--since", since, now)
		if err != nil {
			return nil, err
		}
		window.Since = &t
	}
	if until != "" {
		t, err := parseTime("--until", until, now)
		if err != nil {
			return nil, err
		}
		window.Until = &t
	}
	return window, nil
}
