package main

import (
	"maps"
	"testing"
	"time"
)

func TestParseVertex(t *testing.T) {
	for text, want := range map[string]uint64{
		"user:1": 1, "user:0042": 42, "user:18446744073709551614": maxID,
	} {
		v, err := parseVertex("SRC", text)
		if err != nil || v.Type != "user" || v.Id != want {
			t.Errorf("%s: got %v, %v", text, v, err)
		}
	}
	for _, text := range []string{"", "user", ":1", "user:", "user:0", "user:-1", "user:+1", "user:x", "user:1:2", "user:1.5",
		"user: 1", "user:0x10", "user:1_000", "user:18446744073709551615", "user:18446744073709551616", "user:99999999999999999999999"} {
		if v, err := parseVertex("SRC", text); err == nil {
			t.Errorf("%s: got %v, want an error", text, v)
		}
	}
}

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	const hour = int64(3600e6)
	for text, want := range map[string]int64{
		"now":                              now.UnixMicro(),
		"1970-01-01T00:00:01Z":             1e6,
		"2013-09-01T12:00:00.000001+02:00": time.Date(2013, 9, 1, 10, 0, 0, 1000, time.UTC).UnixMicro(),
		"2013-09-01":                       time.Date(2013, 9, 1, 0, 0, 0, 0, time.UTC).UnixMicro(),
		"1365029107000000":                 1365029107000000,
		"1365029107s":                      1365029107000000,
		"1365029107001ms":                  1365029107001000,
		"5us":                              5,
		"0":                                0,
		"-1":                               -1,
		"-1h":                              now.UnixMicro() - hour,
		"-90m":                             now.UnixMicro() - 3*hour/2,
		"-30d":                             now.UnixMicro() - 30*24*hour,
		"-2w":                              now.UnixMicro() - 14*24*hour,
		"-5s":                              now.UnixMicro() - 5e6,
		"+1d":                              now.UnixMicro() + 24*hour,
	} {
		if got, err := parseTime("--time", text, now); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "5h", "5d", "s", "-", "-h", "1.5s", "2013-13-01", "9223372036854775808",
		"9223372036854775807s", "-1y", "1365029107 s", "h5"} {
		if got, err := parseTime("--time", text, now); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
	for _, text := range []string{"0", "-1", "1970-01-01", "1969-12-31T23:59:59Z"} {
		if got, err := parseEdgeTime("--time", text, now); err == nil {
			t.Errorf("edge time %q: got %d, want an error", text, got)
		}
	}
}

func TestParseProperties(t *testing.T) {
	got, err := parseProperties([]string{"device=phone", "note=a=b,c", "empty="})
	if want := (map[string]string{"device": "phone", "note": "a=b,c", "empty": ""}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, pairs := range [][]string{{"x"}, {"=x"}, {"a=1", "a=2"}} {
		if got, err := parseProperties(pairs); err == nil {
			t.Errorf("%q: got %v, want an error", pairs, got)
		}
	}
}
