package shard

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// aheadBlocks is how many blocks of a transfer are read ahead of the tables.
const aheadBlocks = 4

// ticketTime is how long what has arrived waits to be restored, where the connection
// does not end before.
const ticketTime = 5 * time.Minute

// arrival is a state that another replica sends.
type arrival struct {
	transferHead
	parts kv.Parts // as they were when it began
	rows  kv.Replacement
	reads func(key []byte) error // nil: all
	conn  net.Conn
	// Guarded by arrivals.mu:
	ready, taken bool
}

// arrivals are the states on their way to a replica. Only the newest counts: it is of
// the newest leader, or of a new attempt of the same.
type arrivals struct {
	mu     sync.Mutex
	newest *arrival
}

// begin makes a the newest. What it takes the place of is broken off.
func (s *arrivals) begin(a *arrival) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.newest; old != nil {
		if old.term > a.term {
			return fmt.Errorf("a leader of term %d sends the state already", old.term)
		}
		_ = old.conn.Close()
	}
	s.newest = a
	return nil
}

func (s *arrivals) ready(a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.ready = true
}

// take returns the arrival that a ticket is for, nil where there is none. It is the
// caller's then.
func (s *arrivals) take(number uint64) *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.newest
	if a == nil || !a.ready || a.number != number {
		return nil
	}
	s.newest, a.taken = nil, true
	return a
}

// drop discards what was not taken.
func (s *arrivals) drop(a *arrival) error {
	s.mu.Lock()
	if s.newest == a {
		s.newest = nil
	}
	taken := a.taken
	s.mu.Unlock()
	if taken {
		return nil
	}
	return a.rows.Close()
}

// receive takes the state that a leader sends, and keeps it until it is taken or the
// connection ends. term returns the newest term this replica knows of.
func (s *fsm) receive(conn net.Conn, term func() uint64) error {
	err := s.receiving(conn, term)
	if errors.Is(err, errUnknownRow) { // what comes next would be refused as well
		s.fault.set(fmt.Errorf("shard %d: receive the state: %w", s.shard, err))
	}
	if err != nil {
		_ = conn.SetWriteDeadline(time.Now().Add(helloTime))
		_, _ = conn.Write(transferRefused.encode(err.Error())) // it may be gone
		return fmt.Errorf("shard %d: receive the state: %w", s.shard, err)
	}
	return nil
}

func (s *fsm) receiving(conn net.Conn, term func() uint64) error {
	h, err := readTransferHead(conn)
	if err != nil {
		return err
	}
	applied := s.reached.Load()
	switch now := term(); {
	case h.term < now:
		return fmt.Errorf("it is of term %d, this is term %d", h.term, now)
	case h.position.index < applied:
		return fmt.Errorf("it stands at entry %d, applied are %d", h.position.index, applied)
	case h.position.index == applied:
		return awaitEnd(conn, transferHeld)
	}
	a := &arrival{transferHead: h, conn: conn}
	if m, ok := s.machine.(RowReader); ok {
		a.reads = m.Reads
	}
	if a.parts, err = s.givesWay(h.data); err != nil {
		return err
	}
	if a.rows, err = s.store.Replace(a.parts); err != nil {
		return err
	}
	err = s.arrivals.begin(a)
	if err == nil {
		err = a.build()
	}
	if err == nil {
		s.arrivals.ready(a)
		err = awaitEnd(conn, transferReady)
	}
	return errors.Join(err, s.arrivals.drop(a))
}

func readTransferHead(conn net.Conn) (h transferHead, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(stallTime)); err != nil {
		return h, err
	}
	b, err := readBlock(conn, nil, maxTicket)
	if err != nil {
		return h, err
	}
	return decodeTransferHead(b)
}

// awaitEnd says c and waits for the sender to end the stream.
func awaitEnd(conn net.Conn, c transferCode) error {
	if err := say(conn, c); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(ticketTime)) // an error is an end too
	if n, _ := conn.Read(make([]byte, 1)); n > 0 {
		return errors.New("bytes behind the end")
	}
	return nil
}

func say(conn net.Conn, c transferCode) error {
	if err := conn.SetWriteDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	_, err := conn.Write(c.encode(""))
	return err
}

// build fills the replacement, while the next blocks are read.
func (a *arrival) build() error {
	if err := say(a.conn, transferSend); err != nil {
		return err
	}
	full, empty := make(chan []byte, aheadBlocks), make(chan []byte, aheadBlocks)
	for range aheadBlocks {
		empty <- nil
	}
	var readErr error // once full is closed
	go func() {
		defer close(full)
		readErr = readBlocks(a.conn, full, empty)
	}()
	var err error
	for block := range full {
		if err == nil {
			if err = a.add(block); err != nil {
				_ = a.conn.SetReadDeadline(time.Unix(1, 0)) // no more
			}
		}
		empty <- block
	}
	if err != nil {
		return err
	}
	return readErr
}

// readBlocks reads up to the end.
func readBlocks(conn net.Conn, full chan<- []byte, empty <-chan []byte) error {
	for {
		block := <-empty
		if err := conn.SetReadDeadline(time.Now().Add(stallTime)); err != nil {
			return err
		}
		block, err := readBlock(conn, block, maxBlock)
		if err != nil || len(block) == 0 {
			return err
		}
		full <- block
	}
}

// add adds the rows of a block.
func (a *arrival) add(block []byte) error {
	for rest := block; len(rest) > 0; {
		var key, value []byte
		var err error
		if key, value, rest, err = cutRow(rest); err == nil && a.reads != nil {
			if why := a.reads(key); why != nil {
				err = fmt.Errorf("%w: %w", errUnknownRow, why)
			}
		}
		if err == nil {
			err = a.rows.Set(key, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sameParts(a, b kv.Parts) bool {
	return slices.EqualFunc(a.Spans(), b.Spans(), func(x, y kv.Span) bool {
		return bytes.Equal(x.Lower, y.Lower) && bytes.Equal(x.Upper, y.Upper) && (x.Upper == nil) == (y.Upper == nil)
	})
}

// receive takes the state that another replica sends on c.
func (s *Shard) receive(r *raft.Raft, c net.Conn) {
	defer c.Close() // last: whoever stops the replica waits for it
	if err := s.fsm.receive(c, r.CurrentTerm); err != nil {
		s.logger.Info("no state was received", "err", err)
	}
}
