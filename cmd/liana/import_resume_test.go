package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failAt lets a stream fail for good at its n-th batch.
func failAt(n int) func(int) error {
	return func(batch int) error {
		if batch >= n {
			return status.Error(codes.PermissionDenied, "switched off")
		}
		return nil
	}
}

func TestImportGoesOnWhereItEnded(t *testing.T) {
	for _, form := range []string{"plain", "gzip"} {
		t.Run(form, func(t *testing.T) {
			f, addr := startFake(t)
			const n = 5000
			text := bigFile(n, 40, 2600)
			if form == "gzip" {
				text = packed(t, text)
			}
			name := write(t, text)
			rejects := filepath.Join(t.TempDir(), "rejects")
			args := importArgs(addr, name, "--batch", "100", "--policy", "skip", "--rejects", rejects)
			f.fault(failAt(31))
			first := importJSON(t, exitFailed, args...)
			// 30 batches of 100 good rows, and the 2 bad ones among them.
			if first.Read != 3002 || first.Rejected != 2 || !first.addUp() {
				t.Errorf("first: %+v", first)
			}
			f.calm()
			r := liana(args...)
			r.expect(t, exitPartial, "going on behind line 3002 (3002 rows read before)")
			if want := fmt.Sprintf("read %d = created %d + already there 0 + rejected 2\n", n, n-2); r.stdout != want {
				t.Errorf("got %q, want %q", r.stdout, want)
			}
			if edges, received := f.counts(); received != n-3002 || edges != n-2 {
				t.Errorf("%d rows sent again, %d edges", received, edges)
			}
			if text, _ := os.ReadFile(rejects); strings.Count(string(text), "\n") != 3 {
				t.Errorf("rejects:\n%s", text)
			}
			if _, err := os.Stat(name + ".liana-progress"); err == nil {
				t.Error("the progress file is still there")
			}
		})
	}
}

func TestImportStartsAnewWhereTheProgressDoesNotFit(t *testing.T) {
	f, addr := startFake(t)
	name := write(t, bigFile(300))
	base := importArgs(addr, name, "--batch", "100")
	progress := name + ".liana-progress"
	f.fault(failAt(3))
	importJSON(t, exitFailed, base...)
	f.fault(failAt(1))
	saved, err := os.ReadFile(progress)
	if err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := os.WriteFile(progress, saved, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	liana(base...).expect(t, exitFailed, "going on behind line 200")
	restore()
	liana(append(base, "--columns", "dst,src")...).expect(t, exitFailed, "the mapping of the columns is another one")
	restore()
	f.cluster = "c2"
	liana(base...).expect(t, exitFailed, "it belongs to another cluster")
	f.cluster = "c1"
	restore()
	if err := os.Chtimes(name, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	liana(base...).expect(t, exitFailed, "the file has changed")
	if err := os.WriteFile(progress, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.calm()
	liana(base...).expect(t, 0, "it cannot be read", "starting from the beginning")
	if f.size() != 300 {
		t.Errorf("%d edges", f.size())
	}
}

func TestImportNoResume(t *testing.T) {
	f, addr := startFake(t)
	name := write(t, bigFile(300))
	other := filepath.Join(t.TempDir(), "progress")
	args := importArgs(addr, name, "--batch", "100", "--progress-file", other)
	f.fault(failAt(2))
	importJSON(t, exitFailed, args...)
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	f.calm()
	got := importJSON(t, 0, append(args, "--no-resume")...)
	if _, received := f.counts(); got != (counts{300, 200, 100, 0}) || received != 300 {
		t.Errorf("got %+v, %d received", got, received)
	}
}

func TestImportSurvivesItsOwnKill(t *testing.T) {
	f, addr := startFake(t)
	const n = 20_000
	name := write(t, bigFile(n))
	progress := name + ".liana-progress"
	f.fault(func(int) error { time.Sleep(10 * time.Millisecond); return nil })
	args := importArgs(addr, name, "--batch", "50")
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), asCommand+"=1")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var saved checkpoint
	for deadline := time.Now().Add(10 * time.Second); saved.At.Line < 1000; time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(progress); err == nil {
			_ = json.Unmarshal(text, &saved) // renamed into place, so it is whole
		}
		if time.Now().After(deadline) {
			t.Fatal("no progress was saved")
		}
	}
	time.Sleep(100 * time.Millisecond) // some batches beyond the checkpoint
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // it was killed
	f.calm()
	got := importJSON(t, 0, args...)
	if got.Read != n || got.Created+got.AlreadyThere != n || got.AlreadyThere == 0 {
		t.Errorf("got %+v", got)
	}
	if edges, received := f.counts(); edges != n || received > n-500 || received == 0 {
		t.Errorf("%d edges, %d rows sent again", edges, received)
	}
}

func TestImportInterrupted(t *testing.T) {
	f, addr := startFake(t)
	name := write(t, bigFile(5000))
	f.fault(func(int) error { time.Sleep(10 * time.Millisecond); return nil })
	args := importArgs(addr, name, "--batch", "50")
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), asCommand+"=1")
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); f.size() == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var told string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		told += lines.Text()
	}
	if err := command.Wait(); command.ProcessState.ExitCode() != exitFailed || !strings.Contains(told, "run the same command again") {
		t.Errorf("%v: %s", err, told)
	}
	f.calm()
	if got := importJSON(t, 0, args...); got != (counts{5000, got.Created, got.AlreadyThere, 0}) || !got.addUp() {
		t.Errorf("got %+v", got)
	}
}
