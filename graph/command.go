package graph

import (
	"encoding/binary"
	"fmt"

	"github.com/lianadb/liana/kv"
)

// Commands of a shard, as they lie in the log. Each begins with its kind; the
// numbers are fixed for ever, and an unknown one stops the shard.
//
//	init      timeline [8] | length, schema (JSON) | number of shards at the founding (uvarint)
//	mutate    n | n × (op [1] type, src, dst (uvarint) time (varint) length, properties)
//	deliver   from, epoch, after, schema version (uvarint) | n | n × (length, row)
//	trim      to, epoch, position (uvarint)
//	increment length, request id | first ordinal | n | n × increment
//	set       counter | value, expiry (varint)
//	remove    counter
//	expire    (nothing)
//	convey    from, epoch, after, up to, predecessor, base, schema version (uvarint) | n | n × (length, row)
//	claims    owners (as owners.go draws them)
//	split     child, first slot of it (uvarint)
//	recover   (nothing)
//	skip      from, epoch, cursor, to (uvarint)
//	backfill  vertex type, metric (uvarint) | from, to: places [12 each]
//	edit      as edit.go draws it
//	mark      operation [1] | vertex type, id (uvarint)
//	step      vertex type, id, job | edge type, direction, peer: where it goes on from | edges (uvarint)
//	end       vertex type, id, job (uvarint)
//	given     slot (uvarint)
//	counter   flags [1] | vertex type, id, metric (uvarint), or length, key
const (
	cmdInit byte = iota + 1
	cmdMutate
	cmdDeliver
	cmdTrim
	cmdIncrement
	cmdSetCounter
	cmdRemoveCounter
	cmdExpire
	cmdConvey // a delivery that a split left its mark on
	cmdClaims
	cmdSplit
)

// Commands of jobs in the background.
const (
	cmdBackfill byte = 0x30
	cmdMark     byte = 0x31
	cmdStep     byte = 0x32
	cmdEnd      byte = 0x33
	cmdGiven    byte = 0x34
)

// Commands of recovered shards (recover.go).
const (
	cmdRecover byte = 0x20
	cmdSkip    byte = 0x21
)

func encodeInit(timeline uint64, s *Schema, shards int) []byte {
	b := binary.BigEndian.AppendUint64([]byte{cmdInit}, timeline)
	return binary.AppendUvarint(appendBytes(b, s.encode()), uint64(shards))
}

// decodeInit returns 0 shards where the command is of a version that did not tell them.
func decodeInit(b []byte) (timeline uint64, s *Schema, shards int, err error) {
	if len(b) < 8 {
		return 0, nil, 0, kv.Corruptionf("init: cut short")
	}
	d := decoder{b: b[8:]}
	text := d.bytes()
	if len(d.b) > 0 {
		if shards = int(d.uint32()); shards < 1 || shards > MaxShards {
			d.fail("init: %d shards", shards)
		}
	}
	if err := d.done(); err != nil {
		return 0, nil, 0, err
	}
	s, err = decodeSchema(text)
	if err != nil {
		return 0, nil, 0, kv.Corruptionf("init: %w", err)
	}
	return binary.BigEndian.Uint64(b), s, shards, nil
}

func appendMutation(b []byte, m *Mutation) []byte {
	b = append(b, byte(m.Op))
	b = binary.AppendUvarint(b, uint64(m.Type))
	b = binary.AppendUvarint(b, m.Src)
	b = binary.AppendUvarint(b, m.Dst)
	b = binary.AppendVarint(b, m.Time)
	return appendBytes(b, m.Props)
}

// encodeMutate encodes the mutations that pick names, in its order.
func encodeMutate(ms []Mutation, pick []int) []byte {
	b := make([]byte, 0, 16+40*len(pick))
	b = binary.AppendUvarint(append(b, cmdMutate), uint64(len(pick)))
	for _, i := range pick {
		b = appendMutation(b, &ms[i])
	}
	return b
}

func (d *decoder) mutation() Mutation {
	m := Mutation{Op: Op(d.byte())}
	if (m.Op < OpAdd || m.Op > OpUpdate) && d.err == nil {
		d.fail("mutate: unknown operation %d", m.Op)
	}
	m.Type = EdgeType(d.uint16())
	m.Src = d.uvarint()
	m.Dst = d.uvarint()
	m.Time = d.varint()
	m.Props = d.bytes()
	return m
}

// delivery is the content of a deliver command: rows of the outbox of from,
// beginning with the first one after position after.
type delivery struct {
	from    uint32
	epoch   uint64
	after   uint64
	upTo    uint64 // there are no other records up to here; 0: than those in rows
	pred    predecessor
	version uint64 // least schema version that the rows need
	rows    [][]byte
}

func (v *delivery) encode() []byte {
	n := 48
	for _, r := range v.rows {
		n += len(r) + 4
	}
	// What no split has touched goes as it always went.
	kind := byte(cmdDeliver)
	if v.upTo > 0 || v.pred != (predecessor{}) {
		kind = cmdConvey
	}
	b := append(make([]byte, 0, n), kind)
	b = binary.AppendUvarint(b, uint64(v.from))
	b = binary.AppendUvarint(b, v.epoch)
	b = binary.AppendUvarint(b, v.after)
	if kind == cmdConvey {
		b = binary.AppendUvarint(b, v.upTo)
		b = binary.AppendUvarint(b, uint64(v.pred.shard))
		b = binary.AppendUvarint(b, v.pred.base)
	}
	b = binary.AppendUvarint(b, v.version)
	b = binary.AppendUvarint(b, uint64(len(v.rows)))
	for _, r := range v.rows {
		b = appendBytes(b, r)
	}
	return b
}

func decodeDelivery(kind byte, b []byte) (*delivery, error) {
	d := decoder{b: b}
	v := &delivery{from: d.uint32(), epoch: d.uvarint(), after: d.uvarint()}
	if kind == cmdConvey {
		v.upTo = d.uvarint()
		v.pred = predecessor{d.uint32(), d.uvarint()}
	}
	v.version = d.uvarint()
	v.rows = make([][]byte, 0, min(d.count(), 1024))
	for len(d.b) > 0 {
		v.rows = append(v.rows, d.bytes())
	}
	return v, d.done()
}

func encodeClaims(o owners) []byte { return append([]byte{cmdClaims}, o.encode()...) }

// split gives the slots of a shard from at on to a new one.
type split struct {
	child uint32
	at    Slot
}

func (s split) encode() []byte {
	return binary.AppendUvarint(binary.AppendUvarint([]byte{cmdSplit}, uint64(s.child)), uint64(s.at))
}

func decodeSplit(b []byte) (split, error) {
	d := decoder{b: b}
	s := split{child: d.uint32(), at: d.slot()}
	return s, d.done()
}

// deliveryVersion reads the schema version of a delivery alone.
func deliveryVersion(kind byte, b []byte) (uint64, error) {
	d := decoder{b: b}
	_, _, _ = d.uint32(), d.uvarint(), d.uvarint()
	if kind == cmdConvey {
		_, _, _ = d.uvarint(), d.uint32(), d.uvarint()
	}
	version := d.uvarint()
	return version, d.err
}

type trim struct {
	to    uint32
	epoch uint64
	pos   uint64
}

func (t trim) encode() []byte {
	b := binary.AppendUvarint([]byte{cmdTrim}, uint64(t.to))
	b = binary.AppendUvarint(b, t.epoch)
	return binary.AppendUvarint(b, t.pos)
}

func decodeTrim(b []byte) (trim, error) {
	d := decoder{b: b}
	t := trim{to: d.uint32(), epoch: d.uvarint(), pos: d.uvarint()}
	return t, d.done()
}

const (
	counterIsKey  = 1
	incrHasMin    = 1
	incrHasMax    = 2
	incrHasExpire = 4
)

func appendCounter(b []byte, c *CounterRef) []byte {
	if c.Key != "" {
		return appendBytes(append(b, counterIsKey), c.Key)
	}
	b = binary.AppendUvarint(append(b, 0), uint64(c.Vertex.Type))
	b = binary.AppendUvarint(b, c.Vertex.ID)
	return binary.AppendUvarint(b, uint64(c.Metric))
}

func (d *decoder) counter() CounterRef {
	switch f := d.byte(); f {
	case 0:
		return CounterRef{
			Vertex: Vertex{Type: VertexType(d.uint16()), ID: d.uvarint()},
			Metric: Metric(d.uint16()),
		}
	case counterIsKey:
		return CounterRef{Key: string(d.bytes())}
	default:
		d.fail("counter: unknown flags %#x", f)
		return CounterRef{}
	}
}

// increments is the content of an increment command. The ordinal of an
// increment is its place in the caller's request, which may span shards.
type increments struct {
	requestID string
	items     []Increment
	ordinals  []uint32
}

func (v *increments) encode() []byte {
	b := appendBytes([]byte{cmdIncrement}, v.requestID)
	b = binary.AppendUvarint(b, uint64(len(v.items)))
	for i := range v.items {
		in := &v.items[i]
		b = appendCounter(b, &in.Counter)
		var flags byte
		if in.HasMin {
			flags |= incrHasMin
		}
		if in.HasMax {
			flags |= incrHasMax
		}
		if in.ExpireAt != 0 {
			flags |= incrHasExpire
		}
		b = binary.AppendVarint(append(b, flags), in.Delta)
		b = binary.AppendUvarint(b, uint64(v.ordinals[i]))
		if in.HasMin {
			b = binary.AppendVarint(b, in.Min)
		}
		if in.HasMax {
			b = binary.AppendVarint(b, in.Max)
		}
		if in.ExpireAt != 0 {
			b = binary.AppendVarint(b, in.ExpireAt)
		}
	}
	return b
}

func decodeIncrements(b []byte) (*increments, error) {
	d := decoder{b: b}
	v := &increments{requestID: string(d.bytes())}
	n := d.count()
	for i := 0; i < n && d.err == nil; i++ {
		in := Increment{Counter: d.counter()}
		flags := d.byte()
		in.HasMin, in.HasMax = flags&incrHasMin != 0, flags&incrHasMax != 0
		in.Delta = d.varint()
		v.ordinals = append(v.ordinals, d.uint32())
		if in.HasMin {
			in.Min = d.varint()
		}
		if in.HasMax {
			in.Max = d.varint()
		}
		if flags&incrHasExpire != 0 {
			in.ExpireAt = d.varint()
		}
		v.items = append(v.items, in)
	}
	return v, d.done()
}

func encodeSetCounter(c *CounterRef, value, expireAt int64) []byte {
	b := appendCounter([]byte{cmdSetCounter}, c)
	return binary.AppendVarint(binary.AppendVarint(b, value), expireAt)
}

func encodeRemoveCounter(c *CounterRef) []byte { return appendCounter([]byte{cmdRemoveCounter}, c) }

func errUnknownCommand(kind byte) error {
	return fmt.Errorf("command kind %d is unknown to this version of the program: %w", kind, kv.ErrCorruption)
}
