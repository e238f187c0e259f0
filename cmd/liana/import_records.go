package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// record is one row of the file, split into fields.
type record struct {
	// The line on which it begins.
	line   uint64
	fields [][]byte
	// Where the next record begins.
	after position
	// What the rejects file shows of it.
	text []byte
}

// rowError rejects one row. Its text is the reason.
type rowError struct{ reason string }

func (e *rowError) Error() string { return e.reason }

func rejectf(format string, args ...any) error {
	return &rowError{fmt.Sprintf(format, args...)}
}

// recordReader reads records. A delimiter of one character means CSV (RFC 4180:
// quoted fields may hold delimiters, doubled quotes and line ends); a longer one is
// a plain separator without quoting. Blank lines are passed over.
type recordReader struct {
	lines     *lineReader
	delimiter []byte
	quoting   bool
	fields    [][]byte
	// Quoted fields without their quotes; the open one begins at start.
	scratch []byte
	start   int
}

func newRecordReader(lines *lineReader, delimiter string) *recordReader {
	return &recordReader{lines: lines, delimiter: []byte(delimiter), quoting: utf8.RuneCountInString(delimiter) == 1}
}

// next returns the next record, or io.EOF. With a *rowError the record (its line,
// text and end) is still told, and reading can go on. The record is valid until the
// following call.
func (r *recordReader) next() (record, error) {
	for {
		first, err := r.lines.next()
		if err != nil {
			return record{}, err
		}
		out := record{line: first.number, after: first.after, text: first.text}
		switch {
		case first.overlong:
			return out, rejectf("the line is longer than %d bytes", maxRecord)
		case len(first.text) == 0:
			continue
		case !r.quoting || bytes.IndexByte(first.text, '"') < 0:
			out.fields = r.split(first.text)
			return out, nil
		}
		return r.quoted(first)
	}
}

// split cuts text at the delimiters; there is no quote in it, or none counts.
func (r *recordReader) split(text []byte) [][]byte {
	r.fields = r.fields[:0]
	for {
		before, rest, found := bytes.Cut(text, r.delimiter)
		r.fields = append(r.fields, before)
		if !found {
			return r.fields
		}
		text = rest
	}
}

// quoted reads a record with quotes that begins with the given line, and joins
// further lines while a quoted field is open. Where the quotes do not come out, only
// the first line is rejected and reading goes on with the one after it: a stray quote
// must not swallow the rows that follow.
func (r *recordReader) quoted(first line) (record, error) {
	first = first.clone()
	out := record{line: first.number, after: first.after, text: first.text}
	r.fields, r.scratch = r.fields[:0], r.scratch[:0]
	open, err := r.scan(first.text, false)
	var more []line
	for ending := first.ending; open && err == nil; {
		next, readErr := r.lines.next()
		if errors.Is(readErr, io.EOF) {
			return out, fmt.Errorf("line %d: a quoted field is not closed before the end of the file: the file is cut", first.number)
		}
		if readErr != nil {
			return out, readErr
		}
		next = next.clone()
		more = append(more, next)
		r.scratch = append(r.scratch, ending...)
		ending = next.ending
		if len(r.scratch)+len(next.text) > maxRecord || next.overlong {
			err = rejectf("a quoted field is not closed within %d bytes", maxRecord)
			break
		}
		open, err = r.scan(next.text, true)
	}
	if err != nil {
		r.lines.unread(more)
		return out, err
	}
	if len(more) > 0 {
		out.after = more[len(more)-1].after
	}
	out.fields = r.fields
	return out, nil
}

// scan splits a line of a record into r.fields. open says, before and after, that
// the line's beginning or end lies inside a quoted field.
func (r *recordReader) scan(text []byte, open bool) (bool, error) {
	for {
		if !open && (len(text) == 0 || text[0] != '"') {
			field, rest, found := bytes.Cut(text, r.delimiter)
			if bytes.IndexByte(field, '"') >= 0 {
				return false, rejectf("field %d: a quote inside a field that is not quoted", len(r.fields)+1)
			}
			r.fields = append(r.fields, field)
			if !found {
				return false, nil
			}
			text = rest
			continue
		}
		if !open {
			r.start, text = len(r.scratch), text[1:]
		}
		rest, closed := r.unquote(text)
		switch {
		case !closed:
			return true, nil
		case len(rest) == 0:
			return false, nil
		case !bytes.HasPrefix(rest, r.delimiter):
			return false, rejectf("field %d: text after the closing quote", len(r.fields))
		}
		text, open = rest[len(r.delimiter):], false
	}
}

// unquote appends text to the open quoted field up to its closing quote, and returns
// what follows that.
func (r *recordReader) unquote(text []byte) (rest []byte, closed bool) {
	for {
		quote := bytes.IndexByte(text, '"')
		if quote < 0 {
			r.scratch = append(r.scratch, text...)
			return nil, false
		}
		r.scratch = append(r.scratch, text[:quote]...)
		text = text[quote+1:]
		if len(text) > 0 && text[0] == '"' {
			r.scratch = append(r.scratch, '"')
			text = text[1:]
			continue
		}
		r.fields = append(r.fields, r.scratch[r.start:len(r.scratch):len(r.scratch)])
		return text, true
	}
}
