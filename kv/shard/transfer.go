package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"time"

	"github.com/lianadb/liana/kv"
)

// The state of a shard goes to a replica too far behind on a stream of its own. The
// sender writes blocks
//
//	[4] length | [4] CRC-32C | length bytes
//
// the first of which is the head,
//
//	version [1] | number [8] | term [8] | length [1], first key of the data span
//	| length [1], first key behind it | position, as the applied row holds it
//
// and, once the receiver has answered it with send, rows of the machine's parts in
// ascending order,
//
//	uvarint | key | uvarint | value
//
// and an empty block. The receiver builds tables of them as they come, and answers
// with ready. Only then Raft's own message goes out, with nothing in it but a ticket,
//
//	version [1] | number [8] | position
//
// by which Restore finds what has arrived. The sender keeps the stream open until Raft
// has answered; when it ends, what was not restored is discarded. So nothing waits in a
// file for its size to be known, and neither Raft nor the state machine of the receiver
// stands still meanwhile. An answer is
//
//	code [1] | text, its length before it as one byte: why not
const (
	transferVersion = 1
	headVersion     = 2
	blockBytes      = 256 << 10
	maxBlock        = 64 << 20 // a block of one large row
	// maxTicket bounds a head too: both hold a configuration.
	maxTicket = 64 << 10
	growBytes = 1 << 20 // a block's memory grows by, as its bytes come
	// stallTime is how long a transfer may stand still.
	stallTime = 30 * time.Second
)

// transferCode is what the receiver of a transfer answers.
type transferCode byte

const (
	transferSend    transferCode = 1 // the rows may come
	transferHeld    transferCode = 2 // it has this state already: no rows, but the ticket
	transferReady   transferCode = 3 // all is there: the ticket may come
	transferRefused transferCode = 4
)

var (
	// errReplaced: the state was replaced while it was sent. This replica does not lead.
	errReplaced = errors.New("the state was replaced meanwhile")
	// errNotSent: Raft reads the state by itself.
	errNotSent = errors.New("the state is sent on a stream of its own")
	// errNotArrived: a ticket for what is not there.
	errNotArrived = errors.New("the state has not arrived")
	// errUnknownRow: the state was made by a newer program.
	errUnknownRow = errors.New("the state holds what this program cannot read: a newer one made it")
	// errTransfer: the receiver does not take the state.
	errTransfer = errors.New("the state was refused")
)

// transferHead begins a transfer.
type transferHead struct {
	ticket
	term uint64 // the sender leads in it
	// data is the span of the machine's data: a split changes it.
	data kv.Span
}

// ticket names a state that was sent.
type ticket struct {
	number   uint64 // random
	position position
}

func (h transferHead) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{headVersion}, h.number)
	b = binary.BigEndian.AppendUint64(b, h.term)
	for _, key := range [][]byte{h.data.Lower, h.data.Upper} {
		b = append(append(b, byte(len(key))), key...) // the bounds of a span are short
	}
	return append(b, h.position.encode()...)
}

func decodeTransferHead(b []byte) (h transferHead, err error) {
	d := decoder{rest: b}
	if len(b) == 0 || b[0] != headVersion {
		return h, kv.Corruptionf("head of a transfer: %d bytes of an unknown version", len(b))
	}
	d.rest = b[1:]
	h.number, h.term = d.uint64(), d.uint64()
	for _, key := range []*[]byte{&h.data.Lower, &h.data.Upper} {
		if d.bad || len(d.rest) == 0 || len(d.rest) <= int(d.rest[0]) {
			return h, kv.Corruptionf("head of a transfer: %d bytes cut short", len(b))
		}
		n := 1 + int(d.rest[0])
		*key, d.rest = d.rest[1:n], d.rest[n:]
	}
	h.position, err = decodePosition(d.rest)
	return h, err
}

func (t ticket) encode() []byte {
	return append(binary.BigEndian.AppendUint64([]byte{transferVersion}, t.number), t.position.encode()...)
}

func decodeTicket(b []byte) (t ticket, err error) {
	if len(b) == 0 || b[0] != transferVersion {
		return t, kv.Corruptionf("ticket of %d bytes: unknown version", len(b))
	}
	d := decoder{rest: b[1:]}
	t.number = d.uint64()
	t.position, err = decodePosition(d.rest)
	return t, err
}

func (c transferCode) encode(why string) []byte {
	why = why[:min(len(why), maxHelloText)]
	return append([]byte{byte(c), byte(len(why))}, why...)
}

// hear reads an answer; one that is not wanted is an error.
func hear(r io.Reader, wanted ...transferCode) (transferCode, error) {
	var code [1]byte
	if _, err := io.ReadFull(r, code[:]); err != nil {
		return 0, err
	}
	why, err := readText(r)
	if err != nil {
		return 0, err
	}
	c := transferCode(code[0])
	switch {
	case slices.Contains(wanted, c):
		return c, nil
	case c == transferRefused:
		return 0, fmt.Errorf("%w: %s", errTransfer, why)
	}
	return 0, fmt.Errorf("%w: answer %d", errTransfer, c)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// headSize is that of what comes before the bytes of a block.
const headSize = 8

// blockWriter writes blocks. Each may take stallTime.
type blockWriter struct {
	conn     net.Conn
	buf      []byte          // begins with room for the head
	sent     func()          // called for each block
	throttle func(bytes int) // called before each block is sent; may be nil
}

func newBlockWriter(conn net.Conn, sent func()) *blockWriter {
	return &blockWriter{conn: conn, buf: make([]byte, headSize, headSize+blockBytes+4096), sent: sent}
}

func (b *blockWriter) row(key, value []byte) error {
	b.buf = append(binary.AppendUvarint(b.buf, uint64(len(key))), key...)
	b.buf = append(binary.AppendUvarint(b.buf, uint64(len(value))), value...)
	if len(b.buf) < headSize+blockBytes {
		return nil
	}
	return b.flush()
}

// flush ends the block at hand, even where it is empty: that is the end.
func (b *blockWriter) flush() error {
	content := b.buf[headSize:]
	binary.BigEndian.PutUint32(b.buf, uint32(len(content)))
	binary.BigEndian.PutUint32(b.buf[4:], crc32.Checksum(content, castagnoli))
	if b.throttle != nil {
		b.throttle(len(b.buf))
	}
	if err := b.conn.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
		return err
	}
	_, err := b.conn.Write(b.buf)
	b.buf = b.buf[:headSize]
	b.sent()
	return err
}

// end writes what is left and the end.
func (b *blockWriter) end() error {
	if len(b.buf) > headSize {
		if err := b.flush(); err != nil {
			return err
		}
	}
	return b.flush()
}

func (b *blockWriter) span(r kv.Reader, span kv.Span) error {
	it, err := r.NewIter(span)
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var value []byte
		if value, err = it.Value(); err == nil {
			err = b.row(it.Key(), value)
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}

// readBlock reads a block of at most limit bytes into buf, which it returns, grown
// where needed. An empty one is the end.
func readBlock(r io.Reader, buf []byte, limit int) ([]byte, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("transfer cut short: %w", err)
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > limit {
		return nil, kv.Corruptionf("transfer: a block of %d bytes", n)
	}
	for buf = buf[:0]; len(buf) < n; {
		at := len(buf)
		buf = slices.Grow(buf, min(n-at, growBytes))[:at+min(n-at, growBytes)]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return nil, fmt.Errorf("transfer cut short: %w", err)
		}
	}
	if crc32.Checksum(buf, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return nil, kv.Corruptionf("transfer: the checksum of a block differs")
	}
	return buf, nil
}

// cutRow takes the first row off a block.
func cutRow(b []byte) (key, value, rest []byte, err error) {
	d := decoder{rest: b}
	key = d.bytes(kv.MaxKeySize)
	value = d.bytes(maxBlock)
	if d.bad {
		return nil, nil, nil, kv.Corruptionf("row of a transfer: cut short")
	}
	return key, value, d.rest, nil
}

// outgoing is a view of the state on its way to a replica.
type outgoing struct {
	of       *fsm
	pin      *pin
	throttle *throttle   // may be nil
	view     kv.Snapshot // nil once it is not needed
	parts    kv.Parts
	replaced uint64 // installs that had begun when it was taken
	position position
}

// Read implements io.Reader for Raft, which has no use for it here.
func (o *outgoing) Read([]byte) (int, error) { return 0, errNotSent }

// Close implements io.Closer. What was kept for the receiver is kept a while longer.
func (o *outgoing) Close() error {
	o.pin.release()
	return o.closeView()
}

func (o *outgoing) closeView() error {
	v := o.view
	if o.view = nil; v == nil {
		return nil
	}
	return v.Close()
}

// send sends the state of a leader of term, and returns the ticket for it.
func (o *outgoing) send(conn net.Conn, term uint64) (ticket, error) {
	h := transferHead{ticket{randomNumber(), o.position}, term, o.parts.Data}
	w := newBlockWriter(conn, o.pin.touch)
	if o.throttle != nil {
		w.throttle = o.throttle.wait
	}
	w.buf = append(w.buf, h.encode()...)
	if err := w.flush(); err != nil {
		return ticket{}, err
	}
	switch c, err := o.hear(conn, transferSend, transferHeld); {
	case err != nil:
		return ticket{}, err
	case c == transferHeld:
		return h.ticket, nil
	}
	for _, span := range o.parts.Spans() {
		if err := w.span(o.view, span); err != nil {
			return ticket{}, err
		}
	}
	if err := errors.Join(w.end(), o.closeView()); err != nil {
		return ticket{}, err
	}
	if o.of.replacing.Load() != o.replaced {
		return ticket{}, errReplaced
	}
	_, err := o.hear(conn, transferReady)
	return h.ticket, err
}

func (o *outgoing) hear(conn net.Conn, wanted ...transferCode) (transferCode, error) {
	if err := conn.SetReadDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return hear(conn, wanted...)
}
