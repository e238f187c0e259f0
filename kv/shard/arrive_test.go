package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// receiving is a replica that stands at entry 2 of term 1, and senders of its state at
// entry 300.
type receiving struct {
	t *testing.T
	*fsm
	m *sums
}

func newReceiving(t *testing.T) receiving {
	s, m := testFSM(t, kv.NewMem(nil))
	s.installed = func(installedRow) error { return nil }
	s.ApplyBatch([]*raft.Log{configLog(1, 1, "x"), commandLog(2, 1, "a")})
	return receiving{t, s, m}
}

// send sends a state of one row, and returns the connection and how receive ends.
func (r receiving) send(number, term uint64) (net.Conn, chan error) {
	r.t.Helper()
	a, b := newPipe(r.t)
	ended := make(chan error, 1)
	go func() {
		ended <- r.receive(b, func() uint64 { return 1 })
		b.Close()
	}()
	key := append(r.m.prefix(), 'z')
	all := transferOf(r.t, transferHead{ticket{number, testPosition()}, term, testSpan()}, kv.Row{Key: key, Value: binary.BigEndian.AppendUint64(nil, 7)})
	go func() { _, _ = a.Write(all) }() // the other end may not read it all
	return a, ended
}

func (r receiving) restore(number uint64) error {
	return r.Restore(io.NopCloser(bytes.NewReader(ticket{number, testPosition()}.encode())))
}

// unchanged fails the test where anything has reached the state.
func (r receiving) unchanged() {
	r.t.Helper()
	if again, m := testFSM(r.t, r.store); r.fault.get() != nil || r.applied.index != 2 || again.applied.index != 2 || m.values["z"] != 0 {
		r.t.Errorf("fault %v, applied %d, %v", r.fault.get(), again.applied.index, m.values)
	}
}

func (r receiving) ready(conn net.Conn) {
	r.t.Helper()
	for _, c := range []transferCode{transferSend, transferReady} {
		if _, err := hear(conn, c); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestAStateThatHasArrivedIsTakenOnce(t *testing.T) {
	r := newReceiving(t)
	if err := r.restore(7); !errors.Is(err, errNotArrived) {
		t.Errorf("before it came: %v", err)
	}
	conn, ended := r.send(7, 1)
	r.ready(conn)
	if err := r.restore(8); !errors.Is(err, errNotArrived) {
		t.Errorf("by another ticket: %v", err)
	}
	r.unchanged()
	if err := r.restore(7); err != nil || r.applied.index != 300 || r.m.get("z") != 7 || r.m.get("a") != 0 {
		t.Errorf("%v, applied %d, %v", err, r.applied.index, r.m.values)
	}
	conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// RULES A5: what arrived and was not restored is discarded.
func TestRuleA5_WhatArrivedGoesWithItsSender(t *testing.T) {
	r := newReceiving(t)
	conn, ended := r.send(7, 1)
	r.ready(conn)
	conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := r.restore(7); !errors.Is(err, errNotArrived) {
		t.Errorf("restored: %v", err)
	}
	r.unchanged()
}

// A deposed leader may still send when the next begins: the newer term counts, in
// either order. Of one term the newer attempt counts.
func TestTheStateOfTheNewerLeaderCounts(t *testing.T) {
	r := newReceiving(t)
	first, firstEnded := r.send(1, 3)
	r.ready(first)
	again, againEnded := r.send(2, 3)
	r.ready(again)
	if err := <-firstEnded; err != nil {
		t.Error(err)
	}
	older, olderEnded := r.send(3, 2)
	if _, err := hear(older, transferSend); !errors.Is(err, errTransfer) {
		t.Errorf("an older leader hears %v", err)
	}
	if err := <-olderEnded; err == nil {
		t.Error("an older leader is heard")
	}
	stale, staleEnded := r.send(4, 0)
	if _, err := hear(stale, transferSend); !errors.Is(err, errTransfer) {
		t.Errorf("a leader of a term that is over hears %v", err)
	}
	<-staleEnded
	if err := r.restore(1); !errors.Is(err, errNotArrived) {
		t.Errorf("the first attempt: %v", err)
	}
	if err := r.restore(2); err != nil || r.m.get("z") != 7 {
		t.Errorf("the second: %v, %v", err, r.m.values)
	}
	again.Close()
	if err := <-againEnded; err != nil {
		t.Error(err)
	}
}

// moved is a machine whose state lies elsewhere than before.
type moved struct{ *sums }

func (moved) Parts() kv.Parts { return kv.Parts{Data: kv.PrefixSpan([]byte{9})} }

// A state that began to arrive before the machine's bounds changed replaces nothing.
func TestAStateOfOtherBoundsIsRefused(t *testing.T) {
	r := newReceiving(t)
	conn, ended := r.send(7, 1)
	r.ready(conn)
	r.machine = moved{r.m}
	if err := r.restore(7); !errors.Is(err, errNotArrived) {
		t.Errorf("restored: %v", err)
	}
	r.unchanged()
	conn.Close()
	<-ended
}

// A sender whose own state is replaced meanwhile may have lost rows under its view
// (RULES 8): it does not send the ticket.
func TestRuleA6_8_AViewReplacedWhileItIsSentIsNotSent(t *testing.T) {
	from, _ := filled(t, 40)
	to, _ := filled(t, 9)
	err := copyOf(t, from, to, func(b []byte) []byte { from.replacing.Add(1); return b })
	if !errors.Is(err, errReplaced) || to.applied.index != 9 {
		t.Errorf("%v, applied %d", err, to.applied.index)
	}
}

// A replica that has the state already is not sent it again, and says yes.
func TestRuleA5_AStateThatIsHeldIsNotSentAgain(t *testing.T) {
	from, _ := filled(t, 40)
	to, _ := filled(t, 40)
	to.installed = func(installedRow) error { t.Error("installed"); return nil }
	if err := copyOf(t, from, to, func([]byte) []byte { t.Error("rows are sent"); return nil }); err != nil {
		t.Error(err)
	}
}
