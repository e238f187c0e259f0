package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// asMessage runs a command line with -o json and reads its output into m: it must be
// one document, and of the message's form.
func asMessage[M proto.Message](t *testing.T, m M, args ...string) M {
	t.Helper()
	out := must(t, append([]string{"-o", "json"}, args...)...)
	var document map[string]any
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	if err := protojson.Unmarshal([]byte(out), m); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); field.ContainingOneof() == nil {
			if _, there := document[string(field.Name())]; !there {
				t.Errorf("%v: the document lacks %s:\n%s", args, field.Name(), out)
			}
		}
	}
	return m
}

func TestEdgeCommands(t *testing.T) {
	_, addr := startFake(t)
	at := []string{"--addr", addr}
	do := func(line string) []string { return append(strings.Fields(line), at...) }

	added := asMessage(t, new(lianav1.AddEdgeResponse), do("edge add user:42 like note:7 --time 1365029107s --prop device=phone")...)
	if !added.Changed || added.Token == "" {
		t.Errorf("add: %v", added)
	}
	if again := asMessage(t, new(lianav1.AddEdgeResponse), do("edge add user:42 like note:7")...); again.Changed {
		t.Errorf("add again: %v", again)
	}
	if got := asMessage(t, new(lianav1.HasEdgeResponse), do("edge has user:42 like note:7")...); !got.Exists {
		t.Errorf("has: %v", got)
	}
	many := asMessage(t, new(lianav1.HasEdgesResponse), do("edge has user:42 like note:6 note:7 note:8")...)
	if fmt.Sprint(many.Exists) != "[false true false]" {
		t.Errorf("has many: %v", many)
	}
	got := asMessage(t, new(lianav1.GetEdgeResponse), do("edge get user:42 like note:7")...)
	if got.Edge.Time != 1365029107e6 || got.Edge.Properties["device"] != "phone" || got.Edge.Src.Id != 42 {
		t.Errorf("get: %v", got)
	}
	if c := asMessage(t, new(lianav1.CountEdgesResponse), do("edge count note:7 like --in")...); c.Count != 1 {
		t.Errorf("count: %v", c)
	}
	if u := asMessage(t, new(lianav1.UpdateEdgeResponse), do("edge update user:42 like note:7 --time 2013-09-01")...); !u.Changed {
		t.Errorf("update: %v", u)
	}
	if d := asMessage(t, new(lianav1.DeleteEdgeResponse), do("edge delete user:42 like note:7")...); !d.Changed {
		t.Errorf("delete: %v", d)
	}
	if out := must(t, do("edge has user:42 like note:7")...); out != "no\n" {
		t.Errorf("has after delete: %q", out)
	}
	liana(do("edge has note:1 like user:2 user:3")...).expect(t, exitFailed, "like goes from user to note")
}

func TestEdgeTables(t *testing.T) {
	_, addr := startFake(t)
	do := func(line string) string { return must(t, append(strings.Fields(line), "--addr", addr)...) }
	if got := do("edge add user:42 like note:7 --time 1365029107s --prop device=phone"); got != "CHANGED  TOKEN\nyes      t1\n" {
		t.Errorf("add:\n%s", got)
	}
	want := "SRC      TYPE  DST     TIME                  PROPERTIES\n" +
		"user:42  like  note:7  2013-04-03T22:45:07Z  {\"device\":\"phone\"}\n"
	for _, line := range []string{"edge get user:42 like note:7", "edge list user:42 like"} {
		if got := do(line); got != want {
			t.Errorf("%s:\n%s", line, got)
		}
	}
	if got := do("edge count user:42 like"); got != "1\n" {
		t.Errorf("count: %q", got)
	}
	if got := do("edge has user:42 like note:7 note:8"); got != "DST     EXISTS\nnote:7  yes\nnote:8  no\n" {
		t.Errorf("has:\n%s", got)
	}
	if got := do("edge list user:1 like --all"); got != "SRC  TYPE  DST  TIME  PROPERTIES\n" {
		t.Errorf("empty list: %q", got)
	}
}

// likesOf adds n likes of user 1 on the notes 1 to n, at the times 1 s to n s.
func likesOf(f *fakeServer, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i <= n; i++ {
		f.put("like", 1, uint64(i), int64(i)*1e6, nil)
	}
}

// dstIDs lists the destinations' ids, separated by spaces.
func dstIDs(edges []*lianav1.Edge) string {
	var ids []string
	for _, e := range edges {
		ids = append(ids, strconv.FormatUint(e.Dst.Id, 10))
	}
	return strings.Join(ids, " ")
}

func TestEdgeListOrdersWindowsAndPages(t *testing.T) {
	f, addr := startFake(t)
	likesOf(f, 10)
	f.pageCap = 3 // pages are also cut by the server
	for flags, want := range map[string]string{
		"":                                     "10 9 8 7 6 5 4 3 2 1",
		"--limit 4":                            "10 9 8 7",
		"--oldest --limit 4":                   "1 2 3 4",
		"--oldest --skip 8":                    "9 10",
		"--by-id --limit 2":                    "1 2",
		"--by-id --descending --limit 2":       "10 9",
		"--since 3s --until 6s":                "5 4 3",
		"--since 1970-01-01T00:00:09Z":         "10 9",
		"--limit 2147483647":                   "10 9 8 7 6 5 4 3 2 1",
		"--all --skip 7":                       "3 2 1",
		"--all --skip 2":                       "8 7 6 5 4 3 2 1",
		"--page-token 8":                       "2 1",
		"--limit 9223372036854775807 --oldest": "1 2 3 4 5 6 7 8 9 10",
	} {
		args := append(strings.Fields("edge list user:1 like "+flags), "--addr", addr)
		if got := dstIDs(asMessage(t, new(lianav1.ListEdgesResponse), args...).Edges); got != want {
			t.Errorf("%s: got %s, want %s", flags, got, want)
		}
	}
	page := asMessage(t, new(lianav1.ListEdgesResponse), "edge", "list", "user:1", "like", "--limit", "4", "--addr", addr)
	if page.NextPageToken != "4" || page.Token == "" {
		t.Errorf("got %q, %q", page.NextPageToken, page.Token)
	}
	all := asMessage(t, new(lianav1.ListEdgesResponse), "edge", "list", "user:1", "like", "--all", "--addr", addr)
	if all.NextPageToken != "" || all.Token == "" {
		t.Errorf("all: got %q, %q", all.NextPageToken, all.Token)
	}
	r := liana("edge", "list", "user:1", "like", "--limit", "4", "--addr", addr)
	r.expect(t, 0, "--page-token 4")
	liana("edge", "list", "user:1", "like", "--page-token", "x", "--addr", addr).expect(t, exitFailed, "BAD_PAGE_TOKEN")
}

func TestReadLevelsAndWaitsReachTheServer(t *testing.T) {
	f, addr := startFake(t)
	likesOf(f, 1)
	must(t, "edge", "has", "user:1", "like", "note:1", "--token", "abc", "--addr", addr)
	if c := f.last["has"].(*lianav1.HasEdgeRequest).Consistency; c.Level != lianav1.ReadLevel_AT_LEAST_AS_FRESH || c.Token != "abc" {
		t.Errorf("got %v", c)
	}
	must(t, "edge", "count", "user:1", "like", "--linearizable", "--addr", addr)
	if c := f.last["count"].(*lianav1.CountEdgesRequest).Consistency; c.Level != lianav1.ReadLevel_LINEARIZABLE {
		t.Errorf("got %v", c)
	}
	must(t, "edge", "add", "user:1", "like", "note:2", "--wait", "forward", "--addr", addr)
	if wait := f.last["add"].(*lianav1.AddEdgeRequest).Wait; wait != lianav1.Wait_FORWARD {
		t.Errorf("got %v", wait)
	}
	must(t, "edge", "delete", "user:1", "like", "note:2", "--addr", addr)
	if wait := f.last["delete"].(*lianav1.DeleteEdgeRequest).Wait; wait != lianav1.Wait_BOTH {
		t.Errorf("got %v", wait)
	}
}
