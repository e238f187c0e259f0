package main

import (
	"strings"
	"testing"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func TestCounterCommands(t *testing.T) {
	f, addr := startFake(t)
	incr := func(line string) *lianav1.IncrByResponse {
		t.Helper()
		return asMessage(t, new(lianav1.IncrByResponse), strings.Fields("--addr "+addr+" counter incr "+line)...)
	}
	for _, step := range []struct {
		line    string
		value   int64
		changed bool
	}{
		{"note:7 views", 1, true},
		{"note:7 views 10", 11, true},
		{"note:7 views -3", 8, true},
		{"note:7 views -- -3", 5, true},
		{"note:7 views 3 --max 7", 5, false},
		{"note:7 views -6 --min 0", 5, false},
		{"note:7 views -5 --min=-0", 0, true},
		{"note:7 views -5 --min -5", -5, true},
		{"--key daily", 1, true},
		{"--key daily -4", -3, true},
		{"--key daily 9223372036854775807", 9223372036854775804, true},
	} {
		if got := incr(step.line); got.Value != step.value || got.Changed != step.changed || got.Token == "" {
			t.Errorf("incr %s: got %v", step.line, got)
		}
	}
	incr("note:8 views --expire-at 2030-01-01 --request-id r1")
	r := f.last["incr"].(*lianav1.IncrByRequest)
	if r.RequestId != "r1" || r.Increment.ExpireAt != 1893456000e6 || r.Increment.Min != nil || r.Increment.Max != nil {
		t.Errorf("got %v", r)
	}
	liana("counter", "incr", "--key", "daily", "9", "--addr", addr).expect(t, exitFailed, "overflow")

	one := asMessage(t, new(lianav1.GetCounterResponse), "counter", "get", "note:7", "views", "shares", "--addr", addr)
	if len(one.Counters) != 2 || one.Counters[0].Value != -5 || one.Counters[1].Exists {
		t.Errorf("got %v", one)
	}
	if all := asMessage(t, new(lianav1.GetCounterResponse), "counter", "get", "note:7", "--addr", addr); len(all.Counters) != 3 {
		t.Errorf("got %v", all)
	}
	asMessage(t, new(lianav1.SetCounterResponse), "counter", "set", "--key", "daily", "-25", "--expire-at", "2030-01-01", "--addr", addr)
	want := "COUNTER  VALUE  EXISTS  EXPIRES\ndaily    -25    yes     2030-01-01T00:00:00Z\n"
	if got := must(t, "counter", "get", "--key", "daily", "--addr", addr); got != want {
		t.Errorf("got\n%s", got)
	}
	if d := asMessage(t, new(lianav1.DeleteCounterResponse), "counter", "delete", "--key", "daily", "--addr", addr); !d.Changed {
		t.Errorf("got %v", d)
	}
	if got := must(t, "counter", "incr", "note:7", "views", "100", "--max", "1", "--addr", addr); !strings.Contains(got, "held back by a cap") {
		t.Errorf("got %q", got)
	}
}
