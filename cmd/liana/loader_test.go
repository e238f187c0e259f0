package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

var testNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// futureRows is a file whose given rows only the server can refuse.
func futureRows(n int, bad ...int) string {
	ahead := time.Now().Add(time.Hour).Unix()
	var text string
	for i := 1; i <= n; i++ {
		at := int64(1365029107)
		if len(bad) > 0 && bad[0] == i {
			at, bad = ahead, bad[1:]
		}
		text += fmt.Sprintf("%d,%d,%d\n", i, i, at)
	}
	return text
}

func TestLoadFindsTheRowThatTheServerRefuses(t *testing.T) {
	for name, set := range map[string]func(*fakeServer){
		"by the field's name":           func(*fakeServer) {},
		"by halving":                    func(f *fakeServer) { f.anonymous = true },
		"with the batch failed":         func(f *fakeServer) { f.softRefusal = true },
		"with the batch failed, halved": func(f *fakeServer) { f.softRefusal, f.anonymous = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			f, addr := startFake(t)
			set(f)
			args := importArgs(addr, write(t, futureRows(500, 1, 77, 78, 300, 500)), "--columns", "src,dst,time_s", "--batch", "64", "--policy", "skip")
			r := liana(args...)
			r.expect(t, exitPartial, "line 1: ", "line 77: ", "line 78: ", "line 300: ", "line 500: ")
			if strings.Contains(r.stderr, "mutations[") {
				t.Errorf("a path inside a request is told:\n%s", r.stderr)
			}
			if f.size() != 495 {
				t.Errorf("%d edges", f.size())
			}
			if f.softRefusal && r.stdout != "read 500 = created 495 + already there 0 + rejected 5\n" {
				t.Errorf("got %q", r.stdout)
			}
		})
	}
}

func TestLoadGoesOnAfterTheServerWasAway(t *testing.T) {
	f, addr := startFake(t)
	var failures atomic.Int32
	f.fault(func(n int) error {
		if n%7 == 0 && failures.Add(1) <= 3 {
			return status.Error(codes.Unavailable, "restarting")
		}
		return nil
	})
	got := importJSON(t, 0, importArgs(addr, write(t, bigFile(2000)), "--batch", "100")...)
	if got.Read != 2000 || !got.addUp() || f.size() != 2000 || failures.Load() < 3 {
		t.Errorf("%+v, %d edges, %d failures", got, f.size(), failures.Load())
	}
}

func TestLoadNoticesASilentServer(t *testing.T) {
	f, addr := startFake(t)
	var stalled atomic.Bool
	f.fault(func(int) error {
		if stalled.CompareAndSwap(false, true) {
			time.Sleep(500 * time.Millisecond)
		}
		return nil
	})
	got := importJSON(t, 0, importArgs(addr, write(t, bigFile(300)), "--batch", "100", "--timeout", "200ms")...)
	if got.Read != 300 || !got.addUp() || f.size() != 300 {
		t.Errorf("%+v, %d edges", got, f.size())
	}
}

func TestLoadInsistsOnRowsThatMaySucceedLater(t *testing.T) {
	f, addr := startFake(t)
	seen := map[uint64]int{}
	f.onMutation = func(m *lianav1.Mutation) (lianav1.Outcome, *lianav1.MutationError) {
		seen[m.SrcId]++
		switch {
		case m.SrcId%50 == 0 && seen[m.SrcId] == 1:
			return lianav1.Outcome_FAILED, &lianav1.MutationError{Reason: "BUSY", Message: "busy", Retryable: true}
		case m.SrcId%50 == 1 && seen[m.SrcId] <= 2:
			return lianav1.Outcome_OUTCOME_UNKNOWN, &lianav1.MutationError{Reason: "OUTCOME_UNKNOWN"}
		case m.SrcId == 99:
			return lianav1.Outcome_FAILED, &lianav1.MutationError{Reason: "NO", Message: "never"}
		case m.SrcId == 98:
			return lianav1.Outcome_INVERSE_PENDING, nil
		}
		return 0, nil
	}
	r := liana(importArgs(addr, write(t, bigFile(300)), "--policy", "skip")...)
	r.expect(t, exitPartial, "line 99: never", "the inverse of 1 follows later")
	if r.stdout != "read 300 = created 299 + already there 0 + rejected 1\n" || f.size() != 298 {
		t.Errorf("got %q, %d edges", r.stdout, f.size())
	}
}

func TestLoadCutsBatchesByBytes(t *testing.T) {
	f, addr := startFake(t)
	var text strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&text, "%d,1,%01000d\n", i+1, i)
	}
	got := importJSON(t, 0, importArgs(addr, write(t, text.String()), "--columns", "src,dst,prop:p", "--batch", "10000")...)
	if got.Created != 4000 || f.batches < 4 {
		t.Errorf("%+v in %d batches", got, f.batches)
	}
}

func TestLoadGivesUpWithTheServersReason(t *testing.T) {
	f, addr := startFake(t)
	f.onMutation = func(*lianav1.Mutation) (lianav1.Outcome, *lianav1.MutationError) {
		return lianav1.Outcome_FAILED, &lianav1.MutationError{Reason: "BUSY", Message: "too much to do", Retryable: true}
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := &loader{client: lianav1.NewGraphClient(conn), inFlight: 2, timeout: time.Second, stall: time.Second, retryFor: 200 * time.Millisecond,
		source:  &demoSource{likes: demoStream(1, 50), batch: 10},
		settled: func(*batch, settlement) error { t.Error("a batch was settled"); return nil }}
	const want = "given up after 200ms of attempts: the server could not apply 10 mutations: BUSY too much to do"
	if err := l.run(context.Background()); status.Convert(err).Message() != want {
		t.Errorf("got %v", err)
	}
}
