package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Replicas ask each other where they stand, on streams of their own: Raft's carry
// nothing else. A question is a number, and its answer
//
//	number [8] | term [8] | open term [8] | applied [8] | last entry [8] | wall clock, µs since 1970 [8]
//
// An answer was given after its question was put, and that after it was asked for:
// leadership is confirmed by that, which Raft's heartbeats cannot do (RULES 10).
const (
	questionBytes = 8
	answerBytes   = 48
	// askAgain is how long a replica that did not answer is not called again.
	askAgain = 50 * time.Millisecond
)

// answer is what a replica says of itself.
type answer struct {
	replica string
	term    uint64 // it has voted in none beyond
	open    uint64 // the term it leads and has opened, 0 where it does not
	applied uint64
	last    uint64 // in its log, or in its state where no log follows that
	offset  int64  // its wall clock − the asker's monotonic clock, µs
	err     error
}

// lines are a replica's ways to ask others, one for each.
type lines struct {
	dial     func(ctx context.Context, replica string) (net.Conn, error)
	clock    Clock
	patience time.Duration // for one answer

	ctx  context.Context // ends with close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu sync.Mutex
	to map[string]*line
}

func newLines(clock Clock, patience time.Duration, dial func(context.Context, string) (net.Conn, error)) *lines {
	l := &lines{dial: dial, clock: clock, patience: patience, to: make(map[string]*line)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// ask puts a question to each of the replicas, and returns the channel that brings as
// many answers, failed ones too. It never blocks.
func (l *lines) ask(replicas []string) <-chan answer {
	answers := make(chan answer, len(replicas))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range replicas {
		if l.ctx.Err() != nil {
			answers <- answer{replica: r, err: ErrStopped}
			continue
		}
		n := l.to[r]
		if n == nil {
			ctx, hangUp := context.WithCancel(l.ctx)
			n = &line{lines: l, replica: r, ctx: ctx, hangUp: hangUp, wake: make(chan struct{}, 1)}
			l.to[r] = n
			l.wg.Go(n.run)
		}
		n.ask(answers)
	}
	return answers
}

// forget ends the line to a replica that is no member any more.
func (l *lines) forget(replica string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.to[replica]; n != nil {
		n.hangUp()
		delete(l.to, replica)
	}
}

func (l *lines) close() {
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.wg.Wait()
}

// line asks one replica, one question after the other. Those who ask while a question
// is on its way share the next.
type line struct {
	*lines
	replica string
	ctx     context.Context
	hangUp  context.CancelFunc
	wake    chan struct{}

	mu    sync.Mutex
	asked []chan<- answer // each with room for the answer

	// Of the goroutine run:
	conn   net.Conn
	number uint64
	resume time.Time // no call before
	failed error     // why
}

func (n *line) ask(to chan<- answer) {
	n.mu.Lock()
	n.asked = append(n.asked, to)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *line) take() []chan<- answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = nil
	return asked
}

func (n *line) run() {
	defer n.drop()
	for n.ctx.Err() == nil {
		select {
		case <-n.wake:
			n.tell(n.take(), n.question)
		case <-n.ctx.Done():
		}
	}
	n.tell(n.take(), func() answer { return answer{err: ErrStopped} })
}

func (n *line) tell(asked []chan<- answer, question func() answer) {
	if len(asked) == 0 {
		return
	}
	a := question()
	a.replica = n.replica
	for _, to := range asked {
		to <- a
	}
}

// question gets an answer. A connection that was open already may have died unnoticed,
// so it is tried on a new one then.
func (n *line) question() answer {
	if time.Now().Before(n.resume) {
		return answer{err: n.failed}
	}
	ctx, cancel := context.WithTimeout(n.ctx, n.patience)
	defer cancel()
	for {
		fresh := n.conn == nil
		a, err := n.exchange(ctx)
		if err == nil {
			return a
		}
		n.drop()
		if fresh || ctx.Err() != nil {
			n.failed = fmt.Errorf("ask %s: %w", n.replica, err)
			n.resume = time.Now().Add(askAgain)
			return answer{err: n.failed}
		}
	}
}

func (n *line) exchange(ctx context.Context) (a answer, err error) {
	if n.conn == nil {
		if n.conn, err = n.dial(ctx, n.replica); err != nil {
			return a, err
		}
	}
	conn := n.conn
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	n.number++
	_, before := n.clock()
	var q [questionBytes]byte
	binary.BigEndian.PutUint64(q[:], n.number)
	if _, err := conn.Write(q[:]); err != nil {
		return a, err
	}
	var b [answerBytes]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return a, err
	}
	_, after := n.clock()
	number, wall := a.decode(b)
	if number != n.number {
		return a, errors.New("an answer to another question")
	}
	a.offset = wall - (before + (after-before)/2).Microseconds()
	return a, nil
}

// encode encodes the answer to a question, given when the clock shows wall.
func (a answer) encode(number uint64, wall time.Time) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, answerBytes), number)
	for _, v := range []uint64{a.term, a.open, a.applied, a.last, uint64(max(0, wall.UnixMicro()))} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

// decode returns the number of the question and the wall clock, in µs.
func (a *answer) decode(b [answerBytes]byte) (number uint64, wall int64) {
	d := decoder{rest: b[:]}
	number = d.uint64()
	a.term, a.open, a.applied, a.last = d.uint64(), d.uint64(), d.uint64(), d.uint64()
	return number, int64(min(d.uint64(), maxMicroseconds))
}

// drop closes the connection.
func (n *line) drop() {
	if n.conn != nil {
		_ = n.conn.Close()
		n.conn = nil
	}
}

// answer answers the questions of one connection until it ends, and that is no later
// than r does.
func (s *Shard) answer(r *raft.Raft, conn net.Conn) {
	defer conn.Close()
	var q [questionBytes]byte
	for {
		if _, err := io.ReadFull(conn, q[:]); err != nil {
			return
		}
		wall, _ := s.node.cfg.Clock()
		a := answer{term: r.CurrentTerm(), open: s.proposer.openTerm.Load(), applied: s.fsm.reached.Load(), last: s.lastEntry()}
		b := a.encode(binary.BigEndian.Uint64(q[:]), wall)
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}
