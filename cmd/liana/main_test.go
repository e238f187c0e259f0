package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// asCommand makes the test binary behave as the command itself, so that tests can kill it.
const asCommand = "LIANA_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := run(ctx, os.Args[1:], surroundings{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr})
		stop()
		os.Exit(code)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(serverDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}))
}

// result is what one command line did.
type result struct {
	code           int
	stdout, stderr string
}

func liana(args ...string) result {
	return lianaWith(surroundings{}, args...)
}

func lianaWith(s surroundings, args ...string) result {
	var stdout, stderr bytes.Buffer
	if s.stdin == nil {
		s.stdin = strings.NewReader("")
	}
	s.stdout, s.stderr = &stdout, &stderr
	code := run(context.Background(), args, s)
	return result{code, stdout.String(), stderr.String()}
}

// must runs a command line that has to succeed and returns its stdout.
func must(t *testing.T, args ...string) string {
	t.Helper()
	r := liana(args...)
	if r.code != 0 {
		t.Fatalf("liana %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// expect checks the exit code and that stderr holds each of the texts.
func (r result) expect(t *testing.T, code int, stderr ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range stderr {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr lacks %q:\n%s", text, r.stderr)
		}
	}
}
