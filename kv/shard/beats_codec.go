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

func encodeBeats(sent []*beat) []byte {
	var b []byte
	for _, one := range sent {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(one.shard)), one.term)
		b = appendText(appendText(b, one.replica), one.leader)
	}
	return b
}

// errBadBeats: the bytes are no message of heartbeats.
var errBadBeats = errors.New("heartbeats: a malformed message")

func decodeBeats(b []byte) ([]*beat, error) {
	var got []*beat
	for d := (decoder{rest: b}); len(d.rest) > 0; {
		shard := d.uvarint()
		one := &beat{shard: uint32(shard), term: d.uvarint(), answered: make(chan beatAnswer, 1)}
		one.replica, one.leader = string(d.bytes(maxHelloText)), string(d.bytes(maxHelloText))
		if d.bad || shard > math.MaxUint32 || len(got) == maxBeats {
			return nil, errBadBeats
		}
		got = append(got, one)
	}
	return got, nil
}

func encodeBeatAnswers(answers []beatAnswer) []byte {
	var b []byte
	for _, a := range answers {
		if a.err != nil {
			why := a.err.Error()
			b = appendText(append(b, 1), why[:min(len(why), maxHelloText)])
			continue
		}
		b = binary.AppendUvarint(binary.AppendUvarint(append(b, 0), a.term), a.last)
		if a.success {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

func decodeBeatAnswers(b []byte, n int) ([]beatAnswer, error) {
	answers := make([]beatAnswer, n)
	d := decoder{rest: b}
	for i := range answers {
		a := &answers[i]
		if refused := d.flag(); refused {
			a.err = errors.New(string(d.bytes(maxHelloText)))
			continue
		}
		a.term, a.last, a.success = d.uvarint(), d.uvarint(), d.flag()
	}
	if d.bad || len(d.rest) > 0 {
		return nil, errBadBeats
	}
	return answers, nil
}
