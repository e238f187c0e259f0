package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/lianadb/liana/kv/pebblekv"
	"github.com/lianadb/liana/kv/shard"
)

// A process under test finds its faults here: the address of the switchboard, and the
// name that it has there.
const (
	boardAddress = "LIANAD_TEST_BOARD"
	boardName    = "LIANAD_TEST_NAME"
)

// faultyHost is the computer of a process under test: its clock, disk and network
// have the faults that the test's switchboard tells. Without one they have none.
func faultyHost() host {
	f := &faults{board: os.Getenv(boardAddress), name: os.Getenv(boardName)}
	if f.board == "" {
		return host{}
	}
	f.open.Store(closedChannel())
	if err := f.follow(); err != nil {
		fmt.Fprintf(os.Stderr, "faults: %v\n", err)
		os.Exit(exitFailed)
	}
	return host{clock: f.clock(), fs: pebblekv.HookedFS(f.write), wire: f.dial}
}

// faults are those of this process.
type faults struct {
	board, name string
	skew        atomic.Int64                  // of the wall clock, ns
	open        atomic.Pointer[chan struct{}] // closed while the disk works
}

func closedChannel() *chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return &ch
}

// follow takes the first order from the switchboard, and more as they come. The
// process does not outlive the test.
func (f *faults) follow() error {
	conn, err := net.Dial("tcp", f.board)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "orders %s\n", f.name); err != nil {
		return err
	}
	sc := bufio.NewScanner(conn)
	if !sc.Scan() {
		return fmt.Errorf("no orders: %w", io.ErrUnexpectedEOF)
	}
	f.obey(sc.Text())
	go func() {
		for sc.Scan() {
			f.obey(sc.Text())
		}
		os.Exit(exitFailed)
	}()
	return nil
}

func (f *faults) obey(order string) {
	var skew int64
	var stalled bool
	if _, err := fmt.Sscanf(order, "%d %t", &skew, &stalled); err != nil {
		fmt.Fprintf(os.Stderr, "faults: order %q: %v\n", order, err)
		os.Exit(exitFailed)
	}
	f.skew.Store(skew)
	select {
	case <-*f.open.Load():
		if stalled {
			ch := make(chan struct{})
			f.open.Store(&ch)
		}
	default:
		if !stalled {
			close(*f.open.Load())
		}
	}
}

// clock is the computer's, wrong by the skew.
func (f *faults) clock() shard.Clock {
	system := shard.SystemClock()
	return func() (time.Time, time.Duration) {
		wall, monotonic := system()
		return wall.Add(time.Duration(f.skew.Load())), monotonic
	}
}

// write waits while the disk is stalled.
func (f *faults) write(string) error {
	<-*f.open.Load()
	return nil
}

// dial connects to another node, or to Redis, through the switchboard.
func (f *faults) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.board)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	_, err = fmt.Fprintf(conn, "dial %s %s\n", f.name, addr)
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return conn, nil
}
