package graph

import (
	"encoding/binary"

	"github.com/lianadb/liana/kv"
)

// A row of the change log or of an outbox holds the records of one log entry:
//
//	row     = version [1] first position (uvarint) record…
//	record  = kind and flags [1] position - previous position (uvarint)
//	          vertex type (uvarint) vertex id (uvarint) body
//	edge    = edge type (uvarint) peer (uvarint) time - previous time (varint)
//	          update: old time - time (varint)
//	          flagPrev: position - previous version of the list (uvarint)
//	          flagProps: length (uvarint) properties
//	counter = flagGone: it is there no more, flagExpires: it will not be at some time
//	          metric (uvarint), flagKey: length (uvarint) key; value (varint)
//	derived = metric (uvarint) delta (varint)
//	ask     = edge: of the list that holds the fact
//	hide    = edge, bits (uvarint)
//	show    = edge
//	drop    = edge
//	split   = 0 (uvarint) child << 16 | first slot (varint)
//
// The row lies under its last position, so a seek to p finds the row that holds
// p; positions within a row rise and need not be adjacent.
const rowVersion = 1

type recordKind uint8

const (
	recAdd recordKind = iota + 1
	recDelete
	recUpdate
	recCounter
	recDerived

	// For a shard that has a fact, from the one at the edge's other end.
	recAskDelete
	recAskHide
	recAskShow
	// From the shard that has a fact.
	recHide // the fact is hidden
	recShow // it is not any more
	recDrop // it was, and is deleted

	// recSplit: slots went to another shard with this change. Its value is that one's number
	// and, in the low 16 bits, the first of them.
	recSplit
)

// ofEdge reports whether a record is about an edge.
func (k recordKind) ofEdge() bool { return k <= recUpdate || k >= recAskDelete && k <= recDrop }

const (
	recKindMask = 0x0f
	flagIn      = 0x10
	flagProps   = 0x20
	flagPrev    = 0x40
	flagKey     = 0x80

	// Of counters, which have neither properties nor a version.
	flagExpires = flagProps
	flagGone    = flagPrev
)

// record is one change. In a change log the list is the one that changed; in an
// outbox it is the list that has to change.
type record struct {
	pos  uint64
	kind recordKind

	list    ListKey
	peer    uint64
	time    int64 // of the edge: the new one, for a delete the one that it had
	oldTime int64 // recUpdate
	prev    uint64
	props   []byte

	metric Metric
	key    string // free-form counter
	value  int64  // recCounter: the new value; recDerived: the delta
	bits   byte   // recHide: of the fact
	// recCounter: the counter was removed; it has an expiry.
	gone, expires bool
}

// rowWriter builds a row record by record. Positions must rise.
type rowWriter struct {
	buf      []byte
	pos      uint64
	time     int64
	withPrev bool // write the list's previous version
}

func (w *rowWriter) reset() { *w = rowWriter{buf: w.buf[:0], withPrev: w.withPrev} }

func (w *rowWriter) empty() bool { return len(w.buf) == 0 }

func (w *rowWriter) add(r *record) {
	if w.empty() {
		w.buf = binary.AppendUvarint(append(w.buf, rowVersion), r.pos)
		w.pos = r.pos
	}
	head := byte(r.kind)
	if r.list.Dir == In {
		head |= flagIn
	}
	if len(r.props) > 0 {
		head |= flagProps
	}
	if w.withPrev && r.prev > 0 && r.kind <= recUpdate {
		head |= flagPrev
	}
	if r.key != "" {
		head |= flagKey
	}
	if r.expires {
		head |= flagExpires
	}
	if r.gone {
		head |= flagGone
	}
	b := append(w.buf, head)
	b = binary.AppendUvarint(b, r.pos-w.pos)
	b = binary.AppendUvarint(b, uint64(r.list.Vertex.Type))
	b = binary.AppendUvarint(b, r.list.Vertex.ID)
	w.pos = r.pos
	if r.kind.ofEdge() {
		w.buf = w.appendEdge(b, r, head)
		return
	}
	b = binary.AppendUvarint(b, uint64(r.metric))
	if head&flagKey != 0 {
		b = appendBytes(b, r.key)
	}
	w.buf = binary.AppendVarint(b, r.value)
}

func (w *rowWriter) appendEdge(b []byte, r *record, head byte) []byte {
	b = binary.AppendUvarint(b, uint64(r.list.Type))
	b = binary.AppendUvarint(b, r.peer)
	b = binary.AppendVarint(b, r.time-w.time)
	w.time = r.time
	if r.kind == recUpdate {
		b = binary.AppendVarint(b, r.oldTime-r.time)
	}
	if r.kind == recHide {
		b = binary.AppendUvarint(b, uint64(r.bits))
	}
	if head&flagPrev != 0 {
		b = binary.AppendUvarint(b, r.pos-r.prev)
	}
	if head&flagProps != 0 {
		b = appendBytes(b, r.props)
	}
	return b
}

// rowReader walks the records of a row. Bytes that no rowWriter made end it with
// an error marked kv.ErrCorruption.
type rowReader struct {
	in   decoder
	rec  record
	time int64
}

func readRow(row []byte) rowReader {
	r := rowReader{in: decoder{b: row}}
	if v := r.in.byte(); v != rowVersion && r.in.err == nil {
		r.in.err = kv.Corruptionf("row: version %d", v)
	}
	r.rec.pos = r.in.uvarint()
	return r
}

// next moves to the next record. The record's slices alias the row.
func (r *rowReader) next() bool {
	if r.in.err != nil || len(r.in.b) == 0 {
		return false
	}
	in := &r.in
	head := in.byte()
	rec := record{kind: recordKind(head & recKindMask), pos: r.rec.pos + in.uvarint()}
	rec.list.Vertex = Vertex{Type: VertexType(in.uint16()), ID: in.uvarint()}
	if head&flagIn != 0 {
		rec.list.Dir = In
	}
	switch rec.kind {
	case recAdd, recDelete, recUpdate, recAskDelete, recAskHide, recAskShow, recHide, recShow, recDrop:
		rec.list.Type = EdgeType(in.uint16())
		rec.peer = in.uvarint()
		rec.time = r.time + in.varint()
		r.time = rec.time
		if rec.kind == recUpdate {
			rec.oldTime = rec.time + in.varint()
		}
		if rec.kind == recHide {
			rec.bits = byte(in.uint16())
		}
		if head&flagPrev != 0 {
			rec.prev = rec.pos - in.uvarint()
		}
		if head&flagProps != 0 {
			rec.props = in.bytes()
		}
	case recCounter, recDerived, recSplit:
		rec.expires, rec.gone = head&flagExpires != 0, head&flagGone != 0
		rec.metric = Metric(in.uint16())
		if head&flagKey != 0 {
			rec.key = string(in.bytes())
		}
		rec.value = in.varint()
	default:
		in.fail("row: unknown record kind %d", rec.kind)
	}
	r.rec = rec
	return in.err == nil
}

func (r *rowReader) err() error { return r.in.err }

// decoder reads the parts of a stored or proposed message. After the first
// fault it returns zeros, and err says what it was.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = kv.Corruptionf(format, args...)
	}
	d.b = nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("message: cut short")
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("message: cut short or number too long")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("message: cut short or number too long")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) uint16() uint16 {
	v := d.uvarint()
	if v > 0xffff {
		d.fail("message: %d does not fit 16 bits", v)
	}
	return uint16(v)
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	if v > 0xffffffff {
		d.fail("message: %d does not fit 32 bits", v)
	}
	return uint32(v)
}

func (d *decoder) bytes() []byte {
	s, rest, ok := cutBytes(d.b)
	if !ok {
		d.fail("message: cut short")
		return nil
	}
	d.b = rest
	return s
}

// count reads the number of items to come, each of at least one byte.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail("message: %d items announced, %d bytes left", n, len(d.b))
		return 0
	}
	return int(n)
}

// done reports the first fault, or bytes left over.
func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("message: %d bytes left over", len(d.b))
	}
	return d.err
}
