package arch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tours are the documents whose commands are executed, each against a server of its
// own, and where: in an empty directory, or at the top of the tree.
var tours = []struct {
	file  string
	atTop bool
	least int // commands
}{
	{"README.md", false, 10},
	{"docs/api.md", false, 20},
	{"docs/clients.md", true, 3},
}

// step is one command of a tour.
type step struct {
	line    int    // in the document
	command string // as it is pasted
	shows   string // what the README says the output holds; empty: nothing
}

// tourMark stands on the line before each block of commands of the tour. A
// command's remark "# → text" says what its output holds.
const tourMark = "<!-- tour -->"

// readTour extracts the commands of a document's tour.
func readTour(text string) ([]step, error) {
	const before, fence, inside = 0, 1, 2
	var steps []step
	state := before
	for i, line := range strings.Split(text, "\n") {
		switch state {
		case before:
			if line == tourMark {
				state = fence
			}
		case fence:
			if line != "```sh" {
				return nil, fmt.Errorf("line %d: %q after the mark of the tour, want ```sh", i+1, line)
			}
			state = inside
		case inside:
			if line == "```" {
				state = before
				continue
			}
			command, remark, _ := strings.Cut(line, "# → ")
			if command = strings.TrimSpace(command); command != "" && !strings.HasPrefix(command, "#") {
				steps = append(steps, step{i + 1, command, strings.TrimSpace(remark)})
			}
		}
	}
	if state != before {
		return nil, errors.New("a block of the tour does not end")
	}
	return steps, nil
}

func TestReadTour(t *testing.T) {
	got, err := readTour("text\n```sh\nno part of it\n```\n" + tourMark + "\n```sh\n# a remark\nbin/a b   # → c d\n\nbin/e\n```\n")
	want := []step{{8, "bin/a b", "c d"}, {10, "bin/e", ""}}
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{tourMark + "\n```go\n```", tourMark + "\n```sh\nbin/a"} {
		if steps, err := readTour(bad); err == nil {
			t.Errorf("%q gives %v, want an error", bad, steps)
		}
	}
}

// TestTours executes the commands of documents, line by line, against servers with new
// data directories. It needs the binaries of `make build`.
func TestTours(t *testing.T) {
	for _, tour := range tours {
		text, err := os.ReadFile(filepath.Join(root, tour.file))
		if err != nil {
			t.Fatal(err)
		}
		steps, err := readTour(string(text))
		if err != nil {
			t.Fatalf("%s: %v", tour.file, err)
		}
		if len(steps) < tour.least {
			t.Errorf("%s has %d commands, want at least %d", tour.file, len(steps), tour.least)
		}
		t.Run(filepath.Base(tour.file), func(t *testing.T) {
			if os.Getenv("LIANA_TOUR") == "" {
				t.Skipf("%d commands found; `make tour` executes them", len(steps))
			}
			// Not t.Context(): that one ends before the server was asked to stop.
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			t.Cleanup(cancel)
			takeTour(ctx, t, tour.file, tour.atTop, steps)
		})
	}
}

func takeTour(ctx context.Context, t *testing.T, file string, atTop bool, steps []step) {
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at := startServer(ctx, t, filepath.Join(bin, "lianad"), dir)
	standIn(t, dir, filepath.Join(bin, "liana"), at.grpc)
	if atTop {
		dir = root
	}
	for _, s := range steps {
		if program, _, _ := strings.Cut(strings.TrimPrefix(s.command, "until "), " "); program != "go" && !strings.HasPrefix(program, "bin/") {
			if _, err := exec.LookPath(program); err != nil && regexp.MustCompile(`^\w+$`).MatchString(program) {
				t.Logf("%s:%d: left out: there is no %s here; .ci/deps says how to install it", file, s.line, program)
				continue
			}
		}
		runStep(ctx, t, dir, file, at, s)
	}
}

// runStep executes one command as a shell would on a paste.
func runStep(ctx context.Context, t *testing.T, dir, file string, at addresses, s step) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "sh", "-c", at.in(s.command))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	t.Logf("$ %s\n%s", s.command, out)
	if err != nil {
		t.Errorf("%s:%d: %s: %v\n%s", file, s.line, s.command, err, out)
	} else if !shows(string(out), s.shows) {
		t.Errorf("%s:%d: %s: printed\n%swant %q in it", file, s.line, s.command, out, s.shows)
	}
}

// shows reports whether text stands in out in whole words, however the columns
// are spaced: 1 does not stand in 14.
func shows(out, text string) bool {
	words := " " + strings.Join(strings.Fields(out), " ") + " "
	return text == "" || regexp.MustCompile(`\W`+regexp.QuoteMeta(text)+`\W`).MatchString(words)
}

func TestShows(t *testing.T) {
	const out = "NOTE    LIKES\nnote:7  14\n{\"device\":1}\n"
	for text, want := range map[string]bool{"": true, "note:7 14": true, "14": true, "device": true, "1": true, "4": false, "note": true, "not": false} {
		if shows(out, text) != want {
			t.Errorf("%q in the output: %v, want %v", text, !want, want)
		}
	}
}

// standIn puts a bin/liana into dir that talks to addr, so that the commands run
// as written although the server has another port than the README's.
func standIn(t *testing.T, dir, liana, addr string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' --addr %s \"$@\"\n", liana, addr)
	if err := os.WriteFile(filepath.Join(dir, "bin", "liana"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// addresses are where a server listens.
type addresses struct{ grpc, http string }

// in puts the addresses into a command in place of the default ones.
func (a addresses) in(command string) string {
	return strings.NewReplacer("127.0.0.1:7400", a.grpc, "127.0.0.1:7401", a.http).Replace(command)
}

var readyLine = regexp.MustCompile(`\bgrpc=(\S+) http=(\S+)`)

// startServer starts a server on free ports, waits until it is ready and returns its
// addresses. At the end of the test it is stopped the way an operator does, and must end
// well.
func startServer(ctx context.Context, t *testing.T, lianad, dir string) addresses {
	t.Helper()
	const free = "127.0.0.1:0"
	cmd := exec.CommandContext(ctx, lianad, "start", "--data-dir", filepath.Join(dir, "data"),
		"--grpc-addr", free, "--http-addr", free, "--resp-addr", free, "--peer-addr", free)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	var at addresses
	for at.grpc == "" && lines.Scan() {
		if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
			at = addresses{m[1], m[2]}
		}
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		for lines.Scan() { // so that the server is never blocked on its output
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("lianad: %v\n%s", err, &stderr)
		}
	})
	if at.grpc == "" {
		t.Fatal("lianad ended before it was ready")
	}
	return at
}
