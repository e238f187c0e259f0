package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"net"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// The tools of the tests are tested: a fault that does not happen proves nothing.

// lines are two nodes of which one listens and sends back what it hears.
type lines struct {
	t     *testing.T
	board *switchboard
	addr  string
}

func newLines(t *testing.T) *lines {
	t.Helper()
	b, err := newSwitchboard()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	t.Cleanup(func() { l.Close() })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	b.know("b", l.Addr().String())
	return &lines{t: t, board: b, addr: l.Addr().String()}
}

func (l *lines) dial(within time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	f := &faults{board: l.board.listener.Addr().String(), name: "a"}
	conn, err := f.dial(ctx, l.addr)
	if err == nil {
		l.t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

func (l *lines) mustDial() net.Conn {
	l.t.Helper()
	conn, err := l.dial(5 * time.Second)
	if err != nil {
		l.t.Fatal(err)
	}
	return conn
}

// echo sends text and returns how long it took to come back; an error: it did not.
func echo(conn net.Conn, text string, within time.Duration) (time.Duration, error) {
	begun := time.Now()
	_ = conn.SetDeadline(begun.Add(within))
	if _, err := io.WriteString(conn, text); err != nil {
		return 0, err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		return 0, err
	}
	if !bytes.Equal(got, []byte(text)) {
		return 0, errors.New("other bytes came back")
	}
	return time.Since(begun), nil
}

func TestSwitchboardCutsEitherDirection(t *testing.T) {
	for _, way := range [][2]string{{"a", "b"}, {"b", "a"}} {
		l := newLines(t)
		conn := l.mustDial()
		if _, err := echo(conn, "before", 5*time.Second); err != nil {
			t.Fatal(err)
		}
		l.board.set(way[0], way[1], wire{cut: true})
		if _, err := echo(conn, "during", 200*time.Millisecond); err == nil {
			t.Errorf("%v cut: it came back", way)
		}
		if _, err := l.dial(200 * time.Millisecond); err == nil {
			t.Errorf("%v cut: a new connection was made", way)
		}
		l.board.heal()
		// What was sent comes late, and in order.
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		late := make([]byte, len("during"))
		if _, err := io.ReadFull(conn, late); err != nil || string(late) != "during" {
			t.Errorf("%v whole again: %q, %v", way, late, err)
		}
		l.mustDial()
	}
}

func TestSwitchboardSlowsAndResets(t *testing.T) {
	l := newLines(t)
	conn := l.mustDial()
	l.board.set("a", "b", wire{delay: 100 * time.Millisecond})
	if took, err := echo(conn, "late", 5*time.Second); err != nil || took < 100*time.Millisecond {
		t.Errorf("with a delay: %v, %v", took, err)
	}
	l.board.set("a", "b", wire{rate: 100_000})
	if took, err := echo(conn, string(make([]byte, 50_000)), 10*time.Second); err != nil || took < 400*time.Millisecond {
		t.Errorf("50 kB at 100 kB/s: %v, %v", took, err)
	}
	l.board.heal()
	l.board.reset("b", "a")
	if _, err := echo(conn, "gone", 5*time.Second); err == nil {
		t.Error("after a reset it came back")
	}
	l.mustDial()
}

// A node obeys: its disk stands still, and its clock is the one that it is told.
func TestFaultsReachANode(t *testing.T) {
	board, err := newSwitchboard()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(board.close)
	f := &fleet{t: t, board: board}
	f.add()
	d := f.node(0)
	d.add(1, 1)
	f.stall(0, true)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	_, err = d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(2, 1)})
	cancel()
	if err == nil {
		t.Error("a write was acknowledged while the disk stood still")
	}
	f.stall(0, false)
	until(t, f, rand.New(rand.NewSource(1)), func(ctx context.Context, d *daemon) error {
		_, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(2, 1)})
		return err
	})
	f.skew(0, time.Hour)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		e := like(3, uint64(time.Now().UnixNano()))
		if _, err := d.graph.AddEdge(testCtx(t), &pb.AddEdgeRequest{Edge: e}); err != nil {
			t.Fatal(err)
		}
		got, err := d.graph.GetEdge(testCtx(t), &pb.GetEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst})
		if err != nil {
			t.Fatal(err)
		}
		if ahead := time.Until(time.UnixMicro(got.GetEdge().GetTime())); ahead > 55*time.Minute {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the clock is not an hour ahead")
		}
	}
}
