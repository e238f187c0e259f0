package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxRecord is the longest record of an import file, in bytes. Longer ones are
// rejected: memory stays bounded whatever the file holds.
const maxRecord = 1 << 20

// position is a place between two lines of the (unpacked) file.
type position struct {
	// Bytes before it, and lines before it.
	Offset int64  `json:"offset"`
	Line   uint64 `json:"line"`
}

// line is one line of the file, without its line end.
type line struct {
	text []byte
	// The line end as read: "\n", "\r\n", or empty at the end of the file.
	ending string
	number uint64
	// Where the next line begins.
	after position
	// The line is longer than maxRecord; text holds its beginning.
	overlong bool
}

// lineReader reads lines and can take some back.
type lineReader struct {
	r    *bufio.Reader
	at   position
	back []line // lines taken back; the next to be read is the last
	buf  []byte
}

func newLineReader(r io.Reader, at position) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 1<<16), at: at}
}

// next returns the next line, or io.EOF. Its text is valid until the following call.
func (l *lineReader) next() (line, error) {
	if n := len(l.back); n > 0 {
		last := l.back[n-1]
		l.back = l.back[:n-1]
		return last, nil
	}
	text, overlong, err := l.read()
	if err != nil && !(errors.Is(err, io.EOF) && len(text) > 0) {
		return line{}, err
	}
	l.at.Line++
	out := line{text: text, number: l.at.Line, after: l.at, overlong: overlong}
	switch {
	case bytes.HasSuffix(text, []byte("\r\n")):
		out.ending = "\r\n"
	case bytes.HasSuffix(text, []byte("\n")):
		out.ending = "\n"
	}
	out.text = text[:len(text)-len(out.ending)]
	if out.number == 1 {
		out.text = bytes.TrimPrefix(out.text, []byte("\ufeff")) // byte order mark
	}
	return out, nil
}

// read reads up to and including the next '\n' and moves the offset. Of an overlong
// line it returns the beginning and passes over the rest.
func (l *lineReader) read() (text []byte, overlong bool, err error) {
	text, err = l.r.ReadSlice('\n')
	l.at.Offset += int64(len(text))
	if !errors.Is(err, bufio.ErrBufferFull) {
		return text, false, err
	}
	l.buf = append(l.buf[:0], text...)
	for errors.Is(err, bufio.ErrBufferFull) {
		text, err = l.r.ReadSlice('\n')
		l.at.Offset += int64(len(text))
		if len(l.buf)+len(text) > maxRecord {
			overlong = true
		} else {
			l.buf = append(l.buf, text...)
		}
	}
	return l.buf, overlong, err
}

// unread takes lines back; the first of them is read next. Their texts must not be
// shared with the reader's buffer.
func (l *lineReader) unread(lines []line) {
	for i := len(lines) - 1; i >= 0; i-- {
		l.back = append(l.back, lines[i])
	}
}

// clone copies the line's text out of the reader's buffer.
func (l line) clone() line {
	l.text = bytes.Clone(l.text)
	return l
}
