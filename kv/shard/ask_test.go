package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// answering is the other end of a line, answered by hand.
type answering struct{ conn net.Conn }

func (a answering) question(t *testing.T) [questionBytes]byte {
	t.Helper()
	var q [questionBytes]byte
	if _, err := io.ReadFull(a.conn, q[:]); err != nil {
		t.Fatal(err)
	}
	return q
}

func (a answering) say(t *testing.T, q [questionBytes]byte, term uint64) {
	t.Helper()
	b := append(append([]byte{}, q[:]...), make([]byte, answerBytes-questionBytes)...)
	binary.BigEndian.PutUint64(b[questionBytes:], term)
	if _, err := a.conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

func testLines(t *testing.T, dial func(context.Context) (net.Conn, error)) *lines {
	l := newLines(SystemClock(), 500*time.Millisecond, func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) })
	t.Cleanup(l.close)
	return l
}

// RULES 10: an answer that was given before a reader came says nothing to it.
func TestRuleA7_10_AnAnswerIsToAQuestionPutAfterTheCall(t *testing.T) {
	here, there := net.Pipe()
	l := testLines(t, func(context.Context) (net.Conn, error) { return here, nil })
	other := answering{there}
	first := l.ask([]string{"a"})
	q := other.question(t)
	second := l.ask([]string{"a"})
	third := l.ask([]string{"a"})
	other.say(t, q, 5)
	if a := <-first; a.term != 5 || a.replica != "a" {
		t.Fatalf("%+v", a)
	}
	q = other.question(t)
	select {
	case a := <-second:
		t.Fatalf("answered before its question was: %+v", a)
	default:
	}
	other.say(t, q, 6)
	if a, b := <-second, <-third; a.term != 6 || b.term != 6 {
		t.Fatalf("%+v, %+v", a, b)
	}
}

func TestALineTriesAgainWhereItsConnectionDied(t *testing.T) {
	var ends []answering
	dialed := make(chan struct{}, 9)
	l := testLines(t, func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		ends = append(ends, answering{there})
		dialed <- struct{}{}
		return here, nil
	})
	for i := range 3 {
		c := l.ask([]string{"a"})
		<-dialed
		end := ends[i]
		end.say(t, end.question(t), uint64(i+1))
		if a := <-c; a.err != nil || a.term != uint64(i+1) {
			t.Fatalf("%d: %+v", i, a)
		}
		end.conn.Close()
	}
}

func TestALineGivesUp(t *testing.T) {
	here, there := net.Pipe()
	calls := 0
	l := testLines(t, func(context.Context) (net.Conn, error) {
		calls++
		if calls > 1 {
			return nil, errors.New("gone")
		}
		return here, nil
	})
	c := l.ask([]string{"a"})
	answering{there}.question(t) // and no answer
	begun := time.Now()
	if a := <-c; a.err == nil || time.Since(begun) > 5*time.Second {
		t.Fatalf("%+v after %v", a, time.Since(begun))
	}
	for range 100 { // it is not called again at once
		if a := <-l.ask([]string{"a"}); a.err == nil {
			t.Fatal("an answer")
		}
	}
	if calls > 10 {
		t.Errorf("called %d times", calls)
	}
	l.close()
	if a := <-l.ask([]string{"a"}); !errors.Is(a.err, ErrStopped) {
		t.Errorf("after close: %v", a.err)
	}
}

func TestAnAnswerTellsTheClock(t *testing.T) {
	h := newHandClock()
	here, there := net.Pipe()
	l := newLines(h.read, time.Second, func(context.Context, string) (net.Conn, error) { return here, nil })
	defer l.close()
	c := l.ask([]string{"a"})
	other := answering{there}
	q := other.question(t)
	h.pass(200 * time.Millisecond) // the way there and back
	wall, mono := h.read()
	b := append(append([]byte{}, q[:]...), make([]byte, answerBytes-questionBytes)...)
	// Read half way, on a clock an hour ahead.
	theirs := wall.Add(time.Hour - 100*time.Millisecond)
	binary.BigEndian.PutUint64(b[answerBytes-8:], uint64(theirs.UnixMicro()))
	if _, err := there.Write(b); err != nil {
		t.Fatal(err)
	}
	want := wall.Add(time.Hour).UnixMicro() - mono.Microseconds()
	if a := <-c; a.err != nil || a.offset != want {
		t.Errorf("offset %d, want %d (%v)", a.offset, want, a.err)
	}
}
