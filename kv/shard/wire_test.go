package shard

import (
	"bytes"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// said is a connection on which the other side has said all it will say.
type said struct {
	net.Conn // nil
	io.Reader
	heard bytes.Buffer
}

func newSaid(b []byte) *said                       { return &said{Reader: bytes.NewReader(b)} }
func (c *said) Read(b []byte) (int, error)         { return c.Reader.Read(b) }
func (c *said) Write(b []byte) (int, error)        { return c.heard.Write(b) }
func (c *said) Close() error                       { return nil }
func (c *said) SetDeadline(time.Time) error        { return nil }
func (c *said) SetReadDeadline(time.Time) error    { return nil }
func (c *said) SetWriteDeadline(t time.Time) error { return nil }

func testSpan() kv.Span { return kv.Span{Lower: []byte{1, 2}, Upper: []byte{3}} }

func testPosition() position {
	return position{index: 300, term: 2, now: 3, elapsed: 4, termBase: 5,
		configurationIndex: 6, configuration: raft.EncodeConfiguration(testConfiguration())}
}

// transferOf is all that the sender of a state says.
func transferOf(t testing.TB, h transferHead, rows ...kv.Row) []byte {
	t.Helper()
	c := newSaid(nil)
	w := newBlockWriter(c, func() {})
	w.buf = append(w.buf, h.encode()...)
	err := w.flush()
	for _, r := range rows {
		err = errors.Join(err, w.row(r.Key, r.Value))
	}
	if err := errors.Join(err, w.end()); err != nil {
		t.Fatal(err)
	}
	return c.heard.Bytes()
}

func TestWhatReplicasSayIsFrozen(t *testing.T) {
	golden(t, "hello", hello{forState, "one", 7, "n1-00000000000000ff"}.encode())
	golden(t, "answer", answer{term: 1, open: 2, applied: 3, last: 4}.encode(300, time.UnixMicro(1_700_000_000_000_000)))
	h := transferHead{ticket{0x0102030405060708, testPosition()}, 9, testSpan()}
	golden(t, "transfer", transferOf(t, h, kv.Row{Key: []byte("a"), Value: []byte("1")}, kv.Row{Key: []byte("b")}))
	golden(t, "ticket", h.ticket.encode())
	golden(t, "transfer_answer", transferRefused.encode("why"))
}

func TestWhatReplicasSayIsUnderstood(t *testing.T) {
	for _, want := range []hello{{}, {forRaft, strings.Repeat("c", 64), 1 << 31, strings.Repeat("r", 255)}} {
		if got, err := readHello(bytes.NewReader(want.encode())); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	want, got := answer{term: 1, open: 2, applied: 3, last: 4}, answer{}
	if n, wall := got.decode([answerBytes]byte(want.encode(5, time.UnixMicro(6)))); n != 5 || wall != 6 || got != want {
		t.Errorf("%d, %d, %+v", n, wall, got)
	}
	h := transferHead{ticket{7, testPosition()}, 9, testSpan()}
	if got, err := decodeTransferHead(h.encode()); err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := decodeTicket(h.ticket.encode()); err != nil || !reflect.DeepEqual(got, h.ticket) {
		t.Errorf("%+v, %v", got, err)
	}
	long := strings.Repeat("why", 200)
	if _, err := hear(bytes.NewReader(transferRefused.encode(long)), transferReady); !errors.Is(err, errTransfer) || !strings.Contains(err.Error(), long[:maxHelloText]) {
		t.Error(err)
	}
	if _, err := hear(bytes.NewReader(transferSend.encode("")), transferReady); !errors.Is(err, errTransfer) {
		t.Error(err)
	}
}

func FuzzReadHello(f *testing.F) {
	f.Add(hello{forState, "one", 7, "n1-00000000000000ff"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bytes.NewReader(b))
		if err == nil && !bytes.HasPrefix(b, h.encode()) {
			t.Fatalf("%x read as %+v", b, h)
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add(answer{term: 1, open: 2, applied: 3, last: 4}.encode(300, time.UnixMicro(5)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != answerBytes {
			return
		}
		var a, again answer
		number, wall := a.decode([answerBytes]byte(b))
		n, w := again.decode([answerBytes]byte(a.encode(number, time.UnixMicro(wall))))
		if wall < 0 || wall > maxMicroseconds || a != again || n != number || w != wall {
			t.Fatalf("%x: %+v at %d", b, a, wall)
		}
	})
}

func FuzzDecodeTicket(f *testing.F) {
	h := transferHead{ticket{7, testPosition()}, 9, testSpan()}
	f.Add(h.encode())
	f.Add(h.ticket.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err1 := decodeTransferHead(b)
		k, err2 := decodeTicket(b)
		for _, err := range []error{err1, err2} {
			if err != nil && !errors.Is(err, kv.ErrCorruption) {
				t.Fatalf("unmarked error %v", err)
			}
		}
		if err1 == nil && !bytes.Equal(h.encode(), b) || err2 == nil && !bytes.Equal(k.encode(), b) {
			t.Fatalf("%x does not survive a second coding", b)
		}
	})
}

// Whatever a sender says, nothing of it reaches the state before Restore, what arrived
// is discarded with the stream, and the shard goes on.
func FuzzReceive(f *testing.F) {
	rows := []kv.Row{{Key: []byte("\x01\x00\x00\x00\x01a"), Value: make([]byte, 8)}, {Key: []byte("\x01\x00\x00\x00\x01b"), Value: make([]byte, 8)}}
	h := transferHead{ticket{7, testPosition()}, 9, testSpan()}
	f.Add(transferOf(f, h, rows...))
	f.Add(transferOf(f, h, rows[1], rows[0]))
	f.Add(transferOf(f, h, kv.Row{Key: []byte("\x00outside")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		store := kv.NewMem(nil)
		s, _ := testFSM(t, store)
		s.ApplyBatch([]*raft.Log{configLog(1, 1, "x"), commandLog(2, 1, "a")})
		c := newSaid(b)
		err := s.receive(c, func() uint64 { return 1 })
		if ready := bytes.Contains(c.heard.Bytes(), transferReady.encode("")); ready != (err == nil) &&
			!bytes.HasPrefix(c.heard.Bytes(), transferHeld.encode("")) {
			t.Fatalf("%x answered with %x, %v", b, c.heard.Bytes(), err)
		}
		if s.arrivals.newest != nil {
			t.Fatal("it is kept")
		}
		if again, m := testFSM(t, store); s.fault.get() != nil || again.applied.index != 2 || m.values["a"] != 1 || len(m.values) != 1 {
			t.Fatalf("%x: %v, applied %d, %v", b, s.fault.get(), again.applied.index, m.values)
		}
	})
}
