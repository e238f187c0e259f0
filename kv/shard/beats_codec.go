package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

func writeFrame(w io.Writer, body []byte) error {
	b := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
	_, err := w.Write(b)
	return err
}

func readFrame(r io.Reader) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > maxBeatBytes {
		return nil, fmt.Errorf("heartbeats: a message of %d bytes", size)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendFlag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func encodeBeats(mark uint64, sent []*beat) []byte {
	b := binary.AppendUvarint(nil, mark)
	for _, one := range sent {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(one.shard)), one.term)
		b = appendText(appendText(b, one.replica), one.leader)
		b = appendFlag(b, one.standing.open)
		b = binary.AppendUvarint(binary.AppendUvarint(b, one.standing.applied), one.standing.committed)
	}
	return b
}

// errBadBeats: the bytes are no message of heartbeats.
var errBadBeats = errors.New("heartbeats: a malformed message")

func decodeBeats(b []byte) (mark uint64, got []*beat, err error) {
	d := decoder{rest: b}
	mark = d.uvarint()
	for !d.bad && len(d.rest) > 0 {
		shard := d.uvarint()
		one := &beat{shard: uint32(shard), term: d.uvarint(), answered: make(chan beatAnswer, 1)}
		one.replica, one.leader = string(d.bytes(maxHelloText)), string(d.bytes(maxHelloText))
		one.standing = standing{d.flag(), d.uvarint(), d.uvarint()}
		if d.bad || shard > math.MaxUint32 || len(got) == maxBeats {
			return 0, nil, errBadBeats
		}
		got = append(got, one)
	}
	if d.bad {
		return 0, nil, errBadBeats
	}
	return mark, got, nil
}

func encodeBeatAnswers(mark uint64, answers []beatAnswer) []byte {
	b := binary.AppendUvarint(nil, mark)
	for _, a := range answers {
		if a.err != nil {
			why := a.err.Error()
			b = appendText(append(b, 1), why[:min(len(why), maxHelloText)])
			continue
		}
		b = binary.AppendUvarint(binary.AppendUvarint(append(b, 0), a.term), a.last)
		b = appendFlag(appendFlag(b, a.success), a.behind)
	}
	return b
}

func decodeBeatAnswers(b []byte, n int) (mark uint64, answers []beatAnswer, err error) {
	answers = make([]beatAnswer, n)
	d := decoder{rest: b}
	mark = d.uvarint()
	for i := range answers {
		a := &answers[i]
		if refused := d.flag(); refused {
			a.err = errors.New(string(d.bytes(maxHelloText)))
			continue
		}
		a.term, a.last, a.success, a.behind = d.uvarint(), d.uvarint(), d.flag(), d.flag()
	}
	if d.bad || len(d.rest) > 0 {
		return 0, nil, errBadBeats
	}
	return mark, answers, nil
}
