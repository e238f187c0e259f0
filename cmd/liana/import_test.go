package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// write makes a file of the given text.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "edges.csv")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// importArgs is the command line of an import of user -like-> note.
func importArgs(addr, file string, more ...string) []string {
	return append([]string{"import", "edges", file, "--addr", addr, "--type", "like", "--from", "user", "--to", "note"}, more...)
}

// importJSON runs an import, checks its exit code and returns what it counted.
func importJSON(t *testing.T, code int, args ...string) counts {
	t.Helper()
	r := liana(append([]string{"-o", "json"}, args...)...)
	r.expect(t, code)
	var c counts
	decoder := json.NewDecoder(strings.NewReader(r.stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		t.Fatalf("%v from %q; stderr %s", err, r.stdout, r.stderr)
	}
	return c
}

func TestImportRatings(t *testing.T) {
	f, addr := startFake(t)
	name := write(t, "1::1074638::7::1365029107\n2::0104257::8::1364690142\n2::0104257::8::1364690142\n")
	args := importArgs(addr, name, "--columns", "src,dst,-,time_s", "--delimiter", "::")
	if out := must(t, args...); out != "read 3 = created 2 + already there 1 + rejected 0\n" {
		t.Errorf("got %q", out)
	}
	if e := f.edges[edgeKey{"like", 2, 104257}]; e == nil || e.Time != 1364690142e6 {
		t.Errorf("got %v", e)
	}
	if got := importJSON(t, 0, args...); got != (counts{Read: 3, AlreadyThere: 3}) {
		t.Errorf("again: %+v", got)
	}
	if files, _ := filepath.Glob(name + ".*"); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}

func TestImportFileForms(t *testing.T) {
	const bom = "\ufeff"
	for name, c := range map[string]struct {
		text, columns string
		flags         []string
		want          counts
	}{
		"plain":                   {text: "1,2\n3,4\n", want: counts{2, 2, 0, 0}},
		"no newline at the end":   {text: "1,2\n3,4", want: counts{2, 2, 0, 0}},
		"CRLF":                    {text: "1,2\r\n3,4\r\n", want: counts{2, 2, 0, 0}},
		"byte order mark":         {text: bom + "1,2\n3,4\n", want: counts{2, 2, 0, 0}},
		"mark before a quote":     {text: bom + "\"1\",2\n", want: counts{1, 1, 0, 0}},
		"blank lines":             {text: "\n1,2\n\n\r\n3,4\n\n", want: counts{2, 2, 0, 0}},
		"empty file":              {text: "", want: counts{}},
		"only a header":           {text: "a,b\n", flags: []string{"--header"}, want: counts{}},
		"header":                  {text: bom + "\"a\nb\",c\n1,2\n", flags: []string{"--header"}, want: counts{1, 1, 0, 0}},
		"quoted":                  {text: "\"1\",\"2\"\r\n\"3\",4\n", want: counts{2, 2, 0, 0}},
		"quoted newline, quote":   {text: "\"a\n\"\"b\"\"\",1,2\n,3,4\n", columns: "-,src,dst", want: counts{2, 2, 0, 0}},
		"quoted delimiter":        {text: "1,\"a,b\",2\n", columns: "src,-,dst", want: counts{1, 1, 0, 0}},
		"other column order":      {text: "2013-09-01T00:00:00Z,9,x,8\n", columns: "time,dst,prop:device,src", want: counts{1, 1, 0, 0}},
		"tab":                     {text: "1\t2\n", flags: []string{"--delimiter", `\t`}, want: counts{1, 1, 0, 0}},
		"semicolon":               {text: "1;\"2\"\n", flags: []string{"--delimiter", ";"}, want: counts{1, 1, 0, 0}},
		"long delimiter":          {text: "1||2\r\n3||4", flags: []string{"--delimiter", "||"}, want: counts{2, 2, 0, 0}},
		"repeated pairs":          {text: "1,2\n1,2\n1,2\n", want: counts{3, 1, 2, 0}},
		"leading zeros":           {text: "0001,0104257\n", want: counts{1, 1, 0, 0}},
		"largest id":              {text: "18446744073709551614,9223372036854775808\n", want: counts{1, 1, 0, 0}},
		"ids as an export writes": {text: "user:1,note:2\n", want: counts{1, 1, 0, 0}},
		"one a batch":             {text: "1,2\n3,4\n5,6\n", flags: []string{"--batch", "1", "--in-flight", "1"}, want: counts{3, 3, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			_, addr := startFake(t)
			if c.columns == "" {
				c.columns = "src,dst"
			}
			args := importArgs(addr, write(t, c.text), append(c.flags, "--columns", c.columns)...)
			if got := importJSON(t, 0, args...); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestImportRejectsBadRows(t *testing.T) {
	_, addr := startFake(t)
	ahead := time.Now().Add(time.Hour).UnixMicro() // within a day: only the server refuses it
	rows := []struct{ row, reason string }{
		{"1,1,5,", ""},
		{"1,2", "2 fields where 4 columns are expected"},
		{"1,3,5,,6", "5 fields"},
		{"0,4,5,", "src: id 0 is outside 1 to 18446744073709551614"},
		{"1,18446744073709551615,5,", "dst: id 18446744073709551615 is outside"},
		{"-1,1,5,", `id "-1" is not an unsigned decimal number`},
		{"x,1,5,", "not an unsigned decimal number"},
		{" 1,1,5,", "not an unsigned decimal number"},
		{",1,5,", `id "" is not`},
		{"note:1,1,5,", "not an unsigned decimal number"},
		{"1,2,0,", "not after 1970"},
		{"1,2,-5,", "not after 1970"},
		{"1,2,,", `"" is not an integer`},
		{"1,2,1.5,", "not an integer"},
		{"1,2,9223372036854775807,", "out of range"},
		{"1,2,9000000000,", "lies in the future"},
		{fmt.Sprintf("1,2,%d,", ahead/1e6), "more than 5 minutes ahead"},
		{"1,2,5," + strings.Repeat("p", 1020), "the properties are 1026 bytes long"},
		{"1,2,5,\xff", "not valid UTF-8"},
		{`1,2,5,a"b`, "a quote inside a field that is not quoted"},
		{`1,2,5,"a"b`, "text after the closing quote"},
		{"1,9,5,ok", ""},
	}
	var text strings.Builder
	for _, r := range rows {
		text.WriteString(r.row + "\n")
	}
	args := importArgs(addr, write(t, text.String()), "--columns", "src,dst,time_s,prop:device", "--policy", "skip")
	r := liana(args...)
	r.expect(t, exitPartial)
	if want := fmt.Sprintf("read %d = created 2 + already there 0 + rejected %d\n", len(rows), len(rows)-2); r.stdout != want {
		t.Errorf("got %q, want %q", r.stdout, want)
	}
	told := strings.Split(strings.TrimSpace(r.stderr), "\n")
	for i, row := range rows {
		if row.reason == "" {
			continue
		}
		if len(told) == 0 || !strings.HasPrefix(told[0], fmt.Sprintf("line %d: ", i+1)) || !strings.Contains(told[0], row.reason) {
			t.Fatalf("row %q: want %q, got %q", row.row, row.reason, told)
		}
		told = told[1:]
	}
}

func TestImportStrayQuoteCostsOneRow(t *testing.T) {
	_, addr := startFake(t)
	// The quote of line 2 would close on line 4, before more text: only line 2 is at fault.
	text := "1,1,a\n1,2,\"b\n1,3,c\n1,4,\"d\"\n1,5,e\n"
	r := liana(importArgs(addr, write(t, text), "--columns", "src,dst,-", "--policy", "skip")...)
	r.expect(t, exitPartial, "line 2: ")
	if r.stdout != "read 5 = created 4 + already there 0 + rejected 1\n" {
		t.Errorf("got %q\n%s", r.stdout, r.stderr)
	}
	// Nothing closes it within the longest record.
	filler := "1,2," + strings.Repeat("b", 1000) + "\n"
	text = "1,1,\"a\n" + strings.Repeat(filler, maxRecord/1000) + "1,3,c\"\n"
	r = liana(importArgs(addr, write(t, text), "--columns", "src,dst,-", "--policy", "skip")...)
	r.expect(t, exitPartial, "line 1: a quoted field is not closed within", `a quote inside a field`)
	if want := fmt.Sprintf("read %d = ", maxRecord/1000+2); !strings.HasPrefix(r.stdout, want) {
		t.Errorf("got %q", r.stdout)
	}
}

func TestImportOverlongLine(t *testing.T) {
	_, addr := startFake(t)
	text := "1,1\n1," + strings.Repeat("2", 3*maxRecord) + "\n1,3\n"
	r := liana(importArgs(addr, write(t, text), "--policy", "skip")...)
	r.expect(t, exitPartial, "line 2: the line is longer than")
	if r.stdout != "read 3 = created 2 + already there 0 + rejected 1\n" {
		t.Errorf("got %q", r.stdout)
	}
}

func TestImportPolicyStop(t *testing.T) {
	f, addr := startFake(t)
	name := write(t, "1,1\n1,2\n\n1,x\n1,4\n")
	r := liana(importArgs(addr, name)...)
	r.expect(t, exitFailed, "stopped at a bad row", "line 4: dst: ")
	if r.stdout != "read 3 = created 2 + already there 0 + rejected 1\n" {
		t.Errorf("got %q", r.stdout)
	}
	// The same again stops at the same row; policy skip goes on from there.
	liana(importArgs(addr, name)...).expect(t, exitFailed, "line 4: dst: ", "going on behind line 2")
	r = liana(importArgs(addr, name, "--policy", "skip")...)
	r.expect(t, exitPartial, "going on behind line 2", "line 4: ")
	if r.stdout != "read 4 = created 3 + already there 0 + rejected 1\n" || f.size() != 3 {
		t.Errorf("got %q, %d edges", r.stdout, f.size())
	}
}

func TestImportPolicyStopTellsARejectOnce(t *testing.T) {
	_, addr := startFake(t)
	name := write(t, "1,1\n1,x\n1,3\n")
	rejects := filepath.Join(t.TempDir(), "rejects.csv")
	for range 2 {
		liana(importArgs(addr, name, "--rejects", rejects)...).expect(t, exitFailed, "line 2: dst: ")
	}
	liana(importArgs(addr, name, "--rejects", rejects, "--policy", "skip")...).expect(t, exitPartial)
	if text, err := os.ReadFile(rejects); err != nil || strings.Count(string(text), "1,x") != 1 || !strings.HasPrefix(string(text), "line,reason,row\n2,") {
		t.Errorf("%v:\n%s", err, text)
	}
}

func TestImportPolicyStopAtARowThatTheServerRefuses(t *testing.T) {
	f, addr := startFake(t)
	text := fmt.Sprintf("1,1,5\n1,2,5\n1,3,%d\n1,4,5\n", time.Now().Add(time.Hour).Unix())
	r := liana(importArgs(addr, write(t, text), "--columns", "src,dst,time_s")...)
	r.expect(t, exitFailed, "stopped at a bad row", "line 3: ")
	if r.stdout != "read 4 = created 3 + already there 0 + rejected 1\n" || f.size() != 3 {
		t.Errorf("got %q, %d edges", r.stdout, f.size())
	}
}

// bigFile has n rows with bad ones at the given lines.
func bigFile(n int, bad ...int) string {
	var text bytes.Buffer
	for i := 1; i <= n; i++ {
		if len(bad) > 0 && bad[0] == i {
			fmt.Fprintf(&text, "%d,oops\n", i)
			bad = bad[1:]
			continue
		}
		fmt.Fprintf(&text, "%d,%d\n", i, i%1000+1)
	}
	return text.String()
}

// scale is 1 in a long run, otherwise a small part.
func scale(n int) int {
	if os.Getenv("LIANA_LONG") == "1" {
		return n
	}
	return n / 50
}

func TestImportBadRowsFirstMiddleAndLast(t *testing.T) {
	_, addr := startFake(t)
	n := scale(1_000_000)
	name := write(t, bigFile(n, 1, n/2, n))
	rejects := filepath.Join(t.TempDir(), "rejects.csv")
	got := importJSON(t, exitPartial, importArgs(addr, name, "--policy", "skip", "--rejects", rejects)...)
	if want := (counts{uint64(n), uint64(n - 3), 0, 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	text, err := os.ReadFile(rejects)
	if err != nil {
		t.Fatal(err)
	}
	const reason = `"dst: id ""oops"" is not an unsigned decimal number"`
	want := fmt.Sprintf("line,reason,row\n1,%s,\"1,oops\"\n%d,%s,\"%d,oops\"\n%d,%s,\"%d,oops\"\n", reason, n/2, reason, n/2, n, reason, n)
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestImportGzip(t *testing.T) {
	f, addr := startFake(t)
	whole := packed(t, bigFile(6_000))
	for _, flag := range []string{"--gzip", "--gzip=false"} { // known by itself, too
		f.edges = map[edgeKey]*lianav1.Edge{}
		if got := importJSON(t, 0, importArgs(addr, write(t, whole), flag)...); got != (counts{6_000, 6_000, 0, 0}) {
			t.Errorf("%s: got %+v", flag, got)
		}
	}
	f.edges = map[edgeKey]*lianav1.Edge{}
	got := importJSON(t, exitFailed, importArgs(addr, write(t, whole[:len(whole)/2]))...)
	if got.Created == 0 || got.Created >= 6_000 || got.Created != uint64(f.size()) || !got.addUp() {
		t.Errorf("cut: %+v with %d edges", got, f.size())
	}
	r := liana(importArgs(addr, write(t, whole[:len(whole)/2]), "--policy", "skip")...)
	r.expect(t, exitFailed, "the gzip data is cut short")
	liana(importArgs(addr, write(t, whole[:len(whole)-4]))...).expect(t, exitFailed, "cut short")
	damaged := []byte(whole)
	damaged[len(damaged)-6] ^= 1 // the checksum
	liana(importArgs(addr, write(t, string(damaged)))...).expect(t, exitFailed, "invalid checksum")
	liana(importArgs(addr, write(t, "1,2\n"), "--gzip")...).expect(t, exitFailed, "is not gzip")
}

func TestImportCutQuotedField(t *testing.T) {
	for _, policy := range []string{"stop", "skip"} {
		_, addr := startFake(t)
		r := liana(importArgs(addr, write(t, "1,1\n1,2\n1,\"3\n\n"), "--policy", policy)...)
		r.expect(t, exitFailed, "line 3: a quoted field is not closed before the end of the file")
		if r.stdout != "read 2 = created 2 + already there 0 + rejected 0\n" {
			t.Errorf("%s: got %q", policy, r.stdout)
		}
	}
}

func TestImportStandardInput(t *testing.T) {
	f, addr := startFake(t)
	s := surroundings{stdin: strings.NewReader("1,2\n3,4\n")}
	lianaWith(s, importArgs(addr, "-")...).expect(t, 0)
	if f.size() != 2 {
		t.Errorf("%d edges", f.size())
	}
}

func TestImportUsage(t *testing.T) {
	_, addr := startFake(t)
	name := write(t, "1,2\n")
	for flags, text := range map[string]string{
		"--columns src":                 "want src and dst once each",
		"--columns src,dst,src":         `"src" is given twice`,
		"--columns src,dst,time,time_s": "at most one time",
		"--columns src,dst,when":        `got "when"`,
		"--columns src,dst,prop:":       `got "prop:"`,
		"--delimiter \"":                "--delimiter: want",
		"--policy maybe":                "--policy: want stop or skip",
		"--batch 0":                     "--batch: want 1 to 10000",
		"--batch 10001":                 "--batch: want 1 to 10000",
		"--in-flight 0":                 "--in-flight: want",
		"--resume --no-resume":          "none of the others",
	} {
		liana(importArgs(addr, name, strings.Fields(flags)...)...).expect(t, exitUsage, text)
	}
	liana(importArgs(addr, name+"x")...).expect(t, exitFailed, "no such file")
	liana(importArgs(addr, filepath.Dir(name))...).expect(t, exitFailed, "is a directory")
	liana("import", "edges", name, "--addr", addr, "--type", "like", "--from", "note", "--to", "user").
		expect(t, exitFailed, "--type like --from note --to user: like goes from user to note")
	liana("import", "edges", name, "--addr", addr, "--type", "love", "--from", "user", "--to", "note").
		expect(t, exitFailed, `unknown edge type "love"`)
	liana(importArgs(addr, write(t, "1,2,1365029107\n"), "--columns", "src,dst,time_us")...).
		expect(t, 0, "warning: the earliest time is 1970-01-01T00:22:45.029107Z")
}

func TestImportSparesItsFile(t *testing.T) {
	_, addr := startFake(t)
	const text = "1,2\nbad\n"
	name := filepath.Join(t.TempDir(), "edges.tmp")
	link := name + ".link"
	if err := errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Link(name, link)); err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{
		{"--rejects", name},
		{"--rejects", link},
		{"--rejects", filepath.Join(filepath.Dir(name), "x", "..", "edges.tmp")},
		{"--progress-file", name},
		{"--progress-file", strings.TrimSuffix(name, ".tmp")}, // whose temporary file is the one
		{"--progress-file", name + ".p", "--rejects", name + ".p"},
	} {
		liana(importArgs(addr, name, append(more, "--policy", "skip")...)...).expect(t, exitUsage, "file")
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Fatalf("%q: the file holds %q, %v", more, got, err)
		}
	}
}
