package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// rowSource reads rows of a file into batches.
type rowSource struct {
	records *recordReader
	mapping *mapping
	// End at the first bad row (policy stop) instead of rejecting it and going on.
	stop      bool
	batchRows int
	// How far into the file reading is, 0 to 1, or -1.
	share func() float64

	at  position
	err error // returned once the batch before it is out
}

// badRow is the error with which a load ends under policy stop.
type badRow struct{ reject }

func (e *badRow) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.reason) }

// next reads a batch. Before an error or the end, what was read is returned first.
func (s *rowSource) next() (*batch, error) {
	if s.err != nil {
		return nil, s.err
	}
	b := new(batch)
	room := make([]lianav1.Mutation, s.batchRows)
	var size int
	for len(b.mutations) < s.batchRows && len(b.rejects) < s.batchRows && size < maxBatchBytes {
		row, err := s.records.next()
		var bad *rowError
		if err != nil && !errors.As(err, &bad) {
			s.err = err
			break
		}
		mutation := &room[len(b.mutations)]
		if err == nil {
			if err = s.mapping.apply(mutation, row.fields); err != nil {
				mutation.Reset()
			}
		}
		if err == nil {
			b.add(mutation, row)
			size += mutationBytes(mutation)
		} else if !s.reject(b, row, err) {
			break
		}
		b.rows++
		s.at = row.after
	}
	if b.rows == 0 {
		return nil, s.err
	}
	b.after, b.share = s.at, s.share()
	return b, nil
}

func (b *batch) add(mutation *lianav1.Mutation, row record) {
	b.mutations = append(b.mutations, mutation)
	b.lines = append(b.lines, row.line)
	b.texts = append(b.texts, excerpt(row.text))
}

// reject notes a bad row, or under policy stop ends the source before it (false).
func (s *rowSource) reject(b *batch, row record, reason error) bool {
	r := reject{row.line, reason.Error(), excerpt(row.text)}
	if s.stop {
		s.err = &badRow{r}
		return false
	}
	b.rejects = append(b.rejects, r)
	return true
}

// excerpt copies the beginning of a row, for the list of rejects.
func excerpt(text []byte) []byte {
	const longest = 200
	return bytes.Clone(text[:min(len(text), longest)])
}

// mutationBytes estimates the size of a mutation on the wire.
func mutationBytes(m *lianav1.Mutation) int {
	size := len(m.Type) + 40
	for name, value := range m.Properties {
		size += len(name) + len(value) + 8
	}
	return size
}

// skipHeader passes over the first record.
func (s *rowSource) skipHeader() error {
	header, err := s.records.next()
	if errors.Is(err, io.EOF) {
		return nil // an empty file; next will say so
	}
	var bad *rowError
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	s.at = header.after
	return nil
}
