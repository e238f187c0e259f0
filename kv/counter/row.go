package counter

import (
	"encoding/binary"
	"math/bits"

	"github.com/lianadb/liana/kv"
)

// Versions of a counter row, its last byte.
const (
	rowPlain    = 1
	rowExpiring = 2
	rowTrailer  = 2 // bytes: n and version
)

// Row is a stored counter row, read in place. The zero Row has no fields.
type Row struct {
	raw      []byte
	present  uint64
	expiring uint64
	n        int
}

// ParseRow checks b whole and returns the row that reads it in place; b must not
// change while the row is used. Bytes that no row has are kv.ErrCorruption.
func ParseRow(b []byte) (Row, error) {
	if len(b) < rowTrailer {
		return Row{}, kv.Corruptionf("counter row of %d bytes", len(b))
	}
	body, n, version := b[:len(b)-rowTrailer], int(b[len(b)-2]), b[len(b)-1]
	if n < 1 || n > MaxFields || (version != rowPlain && version != rowExpiring) {
		return Row{}, kv.Corruptionf("counter row of %d fields, version %d", n, version)
	}
	r := Row{raw: b, n: n}
	width := (n + 7) / 8
	maps := width * int(version)
	if len(body) < 8*n+maps {
		return Row{}, kv.Corruptionf("counter row of %d fields in %d bytes", n, len(b))
	}
	r.present = bitmap(body[len(body)-maps:][:width])
	if version == rowExpiring {
		r.expiring = bitmap(body[len(body)-width:])
	}
	if len(body) != 8*n+8*bits.OnesCount64(r.expiring)+maps {
		return Row{}, kv.Corruptionf("counter row of %d fields, %b expiring, in %d bytes", n, r.expiring, len(b))
	}
	return r, r.validate(version)
}

// validate checks what makes the encoding of a content the only one.
func (r Row) validate(version byte) error {
	switch {
	case bits.Len64(r.present) != r.n:
		return kv.Corruptionf("counter row of %d fields, present %b", r.n, r.present)
	case r.expiring&^r.present != 0:
		return kv.Corruptionf("counter row: absent fields expire: present %b, expiring %b", r.present, r.expiring)
	case (version == rowExpiring) != (r.expiring != 0):
		return kv.Corruptionf("counter row of version %d, expiring %b", version, r.expiring)
	}
	for i := range r.n {
		if r.present&(1<<i) == 0 && r.word(i) != 0 {
			return kv.Corruptionf("counter row: absent field %d is %d", i, r.word(i))
		}
	}
	for i := range bits.OnesCount64(r.expiring) {
		if r.word(r.n+i) <= 0 {
			return kv.Corruptionf("counter row: expiry time %d", r.word(r.n+i))
		}
	}
	return nil
}

func (r Row) word(i int) int64 { return int64(binary.BigEndian.Uint64(r.raw[8*i:])) }

func (r Row) expireAt(field int) int64 {
	bit := uint64(1) << field
	if r.expiring&bit == 0 {
		return 0
	}
	return r.word(r.n + bits.OnesCount64(r.expiring&(bit-1)))
}

// Get returns a field as it stands at log time now.
func (r Row) Get(field uint16, now int64) Counter {
	if int(field) >= r.n || r.present&(1<<field) == 0 {
		return Counter{}
	}
	at := r.expireAt(int(field))
	if at != 0 && at <= now {
		return Counter{}
	}
	return Counter{Value: r.word(int(field)), Exists: true, ExpireAt: at}
}

// Fields is the number of fields stored: those from there on are absent.
func (r Row) Fields() int { return r.n }

func bitmap(b []byte) uint64 {
	var m uint64
	for i, v := range b {
		m |= uint64(v) << (8 * i)
	}
	return m
}

// record is a row in memory, as the apply goroutine changes it.
type record struct {
	values  []int64
	expiry  []int64 // nil, or one for each value; 0: does not expire
	present uint64
}

func recordOf(r Row) record {
	rec := record{values: make([]int64, r.n), present: r.present}
	for i := range rec.values {
		rec.values[i] = r.word(i)
	}
	if r.expiring != 0 {
		rec.expiry = make([]int64, r.n)
		for i := range rec.expiry {
			rec.expiry[i] = r.expireAt(i)
		}
	}
	return rec
}

func (r *record) get(field uint16) Counter {
	if r.present&(1<<field) == 0 {
		return Counter{}
	}
	return Counter{Value: r.values[field], Exists: true, ExpireAt: r.expireAt(field)}
}

func (r *record) expireAt(field uint16) int64 {
	if int(field) >= len(r.expiry) {
		return 0
	}
	return r.expiry[field]
}

func (r *record) set(field uint16, value, expireAt int64) {
	r.values = widen(r.values, int(field)+1)
	r.values[field] = value
	r.present |= 1 << field
	if expireAt != 0 || int(field) < len(r.expiry) {
		r.expiry = widen(r.expiry, int(field)+1)
		r.expiry[field] = expireAt
	}
}

func (r *record) clear(field uint16) {
	if r.present&(1<<field) != 0 {
		r.set(field, 0, 0)
		r.present &^= 1 << field
	}
}

func widen(s []int64, n int) []int64 {
	if len(s) >= n {
		return s
	}
	return append(s, make([]int64, n-len(s))...)
}

// appendTo appends the encoding. The record has a present field.
func (r *record) appendTo(dst []byte) []byte {
	n := bits.Len64(r.present)
	for _, v := range r.values[:n] {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	var expiring uint64
	for i, at := range r.expiry[:min(n, len(r.expiry))] {
		if at != 0 {
			dst = binary.BigEndian.AppendUint64(dst, uint64(at))
			expiring |= 1 << i
		}
	}
	dst = appendBitmap(dst, r.present, n)
	if expiring == 0 {
		return append(dst, byte(n), rowPlain)
	}
	dst = appendBitmap(dst, expiring, n)
	return append(dst, byte(n), rowExpiring)
}

func appendBitmap(dst []byte, m uint64, n int) []byte {
	for ; n > 0; n -= 8 {
		dst = append(dst, byte(m))
		m >>= 8
	}
	return dst
}
