package shard

import (
	"encoding/binary"

	"github.com/lianadb/liana/kv"
)

// Bounds of a log entry. They are part of the format: a decoder refuses more.
const (
	// MaxCommand is the size of the largest command, in bytes. It leaves room
	// for a full gRPC message of the default limit (4 MiB).
	MaxCommand = 8 << 20
	// MaxEntryCommands is the largest number of commands in one entry.
	MaxEntryCommands = 4096
)

const entryVersion = 1

type entryKind byte

const (
	kindCommands entryKind = 1
	kindOpenTerm entryKind = 2
	kindTick     entryKind = 3
)

// logEntry is a decoded log entry.
type logEntry struct {
	kind entryKind
	// term is the term whose leader stamped the entry. A replica that loses
	// and regains leadership while an entry is on its way may append it in a
	// later term, where its inTerm means nothing.
	term     uint64
	wall     int64 // µs since 1970, of the leader
	inTerm   int64 // µs since the term opened
	commands [][]byte
}

func (e logEntry) encodedSize() int {
	n := 2 + 4*binary.MaxVarintLen64
	for _, c := range e.commands {
		n += binary.MaxVarintLen32 + len(c)
	}
	return n
}

func (e logEntry) encode() []byte {
	b := make([]byte, 0, e.encodedSize())
	b = append(b, entryVersion, byte(e.kind))
	b = binary.AppendUvarint(b, e.term)
	b = binary.AppendUvarint(b, uint64(e.wall))
	b = binary.AppendUvarint(b, uint64(e.inTerm))
	b = binary.AppendUvarint(b, uint64(len(e.commands)))
	for _, c := range e.commands {
		b = binary.AppendUvarint(b, uint64(len(c)))
		b = append(b, c...)
	}
	return b
}

// decodeEntry decodes an entry whose commands share memory with b.
func decodeEntry(b []byte) (logEntry, error) {
	if len(b) < 2 || b[0] != entryVersion {
		return logEntry{}, kv.Corruptionf("log entry of %d bytes: unknown version", len(b))
	}
	e := logEntry{kind: entryKind(b[1])}
	d := decoder{rest: b[2:]}
	e.term = d.uvarint()
	e.wall = d.microseconds()
	e.inTerm = d.microseconds()
	count := d.uvarint()
	switch {
	case d.bad:
		return logEntry{}, kv.Corruptionf("log entry of %d bytes: cut short", len(b))
	case e.kind == kindCommands && (count < 1 || count > MaxEntryCommands),
		(e.kind == kindOpenTerm || e.kind == kindTick) && count != 0,
		e.kind < kindCommands || e.kind > kindTick:
		return logEntry{}, kv.Corruptionf("log entry of kind %d with %d commands", e.kind, count)
	}
	if count > 0 {
		e.commands = make([][]byte, 0, count)
	}
	for range count {
		e.commands = append(e.commands, d.bytes(MaxCommand))
	}
	if d.bad || len(d.rest) != 0 {
		return logEntry{}, kv.Corruptionf("log entry of %d bytes: commands do not fill it", len(b))
	}
	return e, nil
}

// decoder takes fields from the front of rest. After the first field that does
// not fit it is bad and yields zeros.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || d.bad {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) microseconds() int64 {
	v := d.uvarint()
	if v > maxMicroseconds {
		d.bad = true
		return 0
	}
	return int64(v)
}

func (d *decoder) bytes(limit uint64) []byte {
	n := d.uvarint()
	if d.bad || n > limit || n > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) flag() bool {
	v := d.uvarint()
	d.bad = d.bad || v > 1
	return v == 1
}

func (d *decoder) uint64() uint64 {
	if d.bad || len(d.rest) < 8 {
		d.bad = true
		return 0
	}
	v := binary.BigEndian.Uint64(d.rest)
	d.rest = d.rest[8:]
	return v
}
