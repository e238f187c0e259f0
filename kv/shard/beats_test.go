package shard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestHeartbeatFormatsAreFrozen(t *testing.T) {
	sent := []*beat{
		{shard: 7, term: 300, replica: "n2.1", leader: "n1.9", standing: standing{true, 5, 300}},
		{shard: 1 << 31, term: 1, replica: "", leader: "x"},
	}
	if got, want := hex.EncodeToString(encodeBeats(128, sent)), "800107ac02046e322e31046e312e390105ac02808080800801000178000000"; got != want {
		t.Errorf("heartbeats %s, want %s", got, want)
	}
	answers := []beatAnswer{{term: 300, last: 5, success: true}, {err: errors.New("no")}, {term: 1, behind: true}}
	if got, want := hex.EncodeToString(encodeBeatAnswers(128, answers)), "800100ac0205010001026e6f0001000001"; got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
}

func sameBeats(a, b []*beat) bool {
	strip := func(all []*beat) (out []beat) {
		for _, one := range all {
			out = append(out, beat{shard: one.shard, term: one.term, replica: one.replica, leader: one.leader, standing: one.standing})
		}
		return out
	}
	return reflect.DeepEqual(strip(a), strip(b))
}

func FuzzDecodeBeats(f *testing.F) {
	f.Add(encodeBeats(9, []*beat{{shard: 7, term: 300, replica: "n2.1", leader: "n1.9", standing: standing{true, 5, 300}}}), 1)
	f.Add(encodeBeatAnswers(9, []beatAnswer{{term: 3, last: 1, success: true}, {err: errors.New("no")}}), 2)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if mark, got, err := decodeBeats(b); err == nil {
			if m, again, err := decodeBeats(encodeBeats(mark, got)); err != nil || m != mark || !sameBeats(got, again) {
				t.Fatalf("%x does not survive a second coding: %v", b, err)
			}
		}
		if n < 0 || n > maxBeats {
			return
		}
		if mark, got, err := decodeBeatAnswers(b, n); err == nil {
			if m, again, err := decodeBeatAnswers(encodeBeatAnswers(mark, got), n); err != nil || m != mark || !reflect.DeepEqual(got, again) {
				t.Fatalf("answers %x do not survive a second coding: %v", b, err)
			}
		}
	})
}

// countedConn counts the messages that are written.
type countedConn struct {
	net.Conn
	written *int
}

func (c countedConn) Write(b []byte) (int, error) {
	*c.written++
	return c.Conn.Write(b)
}

// Heartbeats of many groups for one node go in one message, and each gets its own answer.
func TestHeartbeatsShareMessages(t *testing.T) {
	f := newFleet(t, 2, func(c *NodeConfig) { c.PeerHeartbeat = 2 * time.Second }).form()
	from, to := f.rigs[0].node, f.rigs[1].shards[1]
	from0 := f.rigs[0].shards[1].instance.Load()
	here, there := net.Pipe()
	written := 0
	line := &beatLine{beats: from.beats, to: "n2", wake: make(chan struct{}, 1), conn: countedConn{here, &written}}
	f.must(f.rigs[1].node.beats.serve(there))
	var sent []*beat
	for i := range 64 {
		one := &beat{shard: 1, term: 1, replica: to.replica, leader: f.rigs[0].shards[1].replica, stands: from0.transport.stands, answered: make(chan beatAnswer, 1)}
		if i%2 == 1 { // one for a replica that is not there
			one.replica = "n2.other"
		}
		line.add(one)
		sent = append(sent, one)
	}
	line.tell(line.take())
	for i, one := range sent {
		a := <-one.answered
		if i%2 == 1 && (a.err == nil || !strings.Contains(a.err.Error(), "another replica")) {
			t.Errorf("a heartbeat for a replica that is gone: %+v", a)
		}
		if i%2 == 0 && (a.err != nil || a.term != to.raft().CurrentTerm()) {
			t.Errorf("a heartbeat of term 1: %+v, the replica is in term %d", a, to.raft().CurrentTerm())
		}
	}
	if written != 1 {
		t.Errorf("%d messages for 64 heartbeats", written)
	}
	line.drop()
}

// A connection for heartbeats is for one node of one cluster (RULES A8).
func TestRuleA8_HeartbeatsOfStrangersAreRefused(t *testing.T) {
	f := newFleet(t, 2, nil).form()
	for _, h := range []hello{
		{forHeartbeats, "another", 0, "n2"},
		{forHeartbeats, "one", 0, "n3"},
	} {
		here, there := net.Pipe()
		go f.rigs[1].node.Accept(there)
		if err := greet(here, time.Now().Add(5*time.Second), h); !errors.Is(err, errForeignHello) {
			t.Errorf("%+v: %v", h, err)
		}
		_ = here.Close()
	}
}

// What a peer sends that is no message ends the connection, and is not held in memory.
func TestHeartbeatsOfGarbage(t *testing.T) {
	f := newFleet(t, 2, nil).form()
	for _, garbage := range []string{"\xff\xff\xff\xff", "\x00\x00\x00\x02\x01\xff", "\x00\x10\x00\x01"} {
		here, there := net.Pipe()
		f.must(f.rigs[1].node.beats.serve(there))
		_ = here.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := fmt.Fprint(here, garbage); err != nil {
			t.Fatal(err)
		}
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%q: %v, want an end", garbage, err)
		}
		_ = here.Close()
	}
}

// A replica that does not take its heartbeat holds up those of the other groups no longer
// than they gather: a message waits for the answer to the one before.
func TestAReplicaThatHangsHoldsUpNoHeartbeats(t *testing.T) {
	f := newFleet(t, 2, func(c *NodeConfig) { c.PeerHeartbeat = 400 * time.Millisecond }).form()
	n, hung := f.rigs[1].node, f.rigs[1].shards[1]
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hang := func(raft.RPC) { <-release }
	hung.instance.Load().transport.SetHeartbeatHandler(hang)
	begun := time.Now()
	answers := n.takeBeats(time.Time{}, []*beat{
		{shard: 1, term: 1 << 20, replica: hung.replica, answered: make(chan beatAnswer, 1)},
		{shard: 1, term: 1, replica: "n2.other", answered: make(chan beatAnswer, 1)},
	})
	if took := time.Since(begun); took >= time.Second {
		t.Errorf("answered after %v, at a heartbeat of 400ms", took)
	}
	for i, want := range []string{"busy", "another replica"} {
		if err := answers[i].err; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("heartbeat %d: %v, want %q", i, err, want)
		}
	}
}
