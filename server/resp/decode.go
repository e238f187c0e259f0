package resp

import (
	"bytes"
	"fmt"
	"strings"
)

// protocolError ends a connection: what follows in its stream cannot be told apart.
type protocolError string

func (e protocolError) Error() string { return "ERR Protocol error: " + string(e) }

// errAttack: a browser or a mail server was made to speak to the port (CASES.md 47). It is
// closed without an answer, and nothing that follows is executed.
type errAttack struct{ word string }

func (e errAttack) Error() string { return fmt.Sprintf("a client began with %q", e.word) }

// maxLine bounds an inline command, and the line before an argument, in bytes.
const maxLine = 64 << 10

// span is a part of the decoder's buffer.
type span struct{ from, to int }

// decoder cuts commands out of a stream. What is incomplete is gone on with where it was
// left, so that a stream in single bytes costs no more than one in large pieces.
type decoder struct {
	maxArgs, maxBytes int

	buf []byte
	// Invariant: begin <= at <= len(buf). Before begin all is handed out, before at all is
	// understood.
	begin, at int
	// The array under way: arguments still to come, 0: none is; the length of the next one,
	// -1: not known yet; those that are whole; and their size together.
	left, bulk, size int
	spans            []span
	args             [][]byte // of the last command that was handed out, reused
}

func newDecoder(maxArgs, maxBytes int) decoder {
	return decoder{maxArgs: maxArgs, maxBytes: maxBytes, bulk: -1}
}

// next returns the arguments of the next command; they lie in the buffer, and the slice is
// used again. ok is false where it is not whole yet.
func (d *decoder) next() (args [][]byte, ok bool, err error) {
	args, ok, err = d.command()
	if ok && isHTTP(args[0]) {
		return nil, false, errAttack{string(args[0])}
	}
	return args, ok, err
}

func (d *decoder) command() (args [][]byte, ok bool, err error) {
	for {
		if d.left == 0 {
			if d.at == len(d.buf) {
				return nil, false, nil
			}
			if d.buf[d.begin] != '*' {
				args, ok, err = d.inline()
			} else {
				ok, err = d.array()
			}
			if err != nil || !ok {
				return nil, false, err
			}
			if len(args) > 0 {
				return args, true, nil
			}
			if d.left == 0 { // an empty one
				continue
			}
		}
		return d.bulks()
	}
}

// line returns the rest of a line that begins at begin, without its end. It ends with
// "\r\n"; as Redis, it is content with any byte in place of the last.
func (d *decoder) line(begin int, what string) (line []byte, ok bool, err error) {
	i := bytes.IndexByte(d.buf[begin:], '\r')
	if i < 0 || begin+i+1 == len(d.buf) {
		if len(d.buf)-begin > maxLine {
			return nil, false, protocolError("too big " + what)
		}
		return nil, false, nil
	}
	d.at = begin + i + 2
	return d.buf[begin : begin+i], true, nil
}

// array reads the header of an array.
func (d *decoder) array() (ok bool, err error) {
	line, ok, err := d.line(d.begin, "mbulk count string")
	if !ok {
		return false, err
	}
	n, valid := parseInt64(line[1:])
	if !valid || n > int64(d.maxArgs) {
		return false, protocolError("invalid multibulk length")
	}
	d.spans, d.size, d.bulk = d.spans[:0], 0, -1
	if d.left = int(max(n, 0)); d.left == 0 {
		d.begin = d.at
	}
	return true, nil
}

// bulks reads the arguments of an array.
func (d *decoder) bulks() (args [][]byte, ok bool, err error) {
	for ; d.left > 0; d.left-- {
		if d.bulk < 0 {
			if ok, err := d.header(); !ok {
				return nil, false, err
			}
		}
		if len(d.buf)-d.at < d.bulk+2 {
			return nil, false, nil
		}
		d.spans = append(d.spans, span{d.at, d.at + d.bulk})
		d.at += d.bulk + 2
		d.bulk = -1
	}
	d.begin = d.at
	d.args = d.args[:0]
	for _, s := range d.spans {
		d.args = append(d.args, d.buf[s.from:s.to:s.to])
	}
	return d.args, true, nil
}

// header reads the length of an argument.
func (d *decoder) header() (ok bool, err error) {
	if d.at == len(d.buf) {
		return false, nil
	}
	if c := d.buf[d.at]; c != '$' {
		return false, protocolError(fmt.Sprintf("expected '$', got '%c'", printable(c)))
	}
	line, ok, err := d.line(d.at, "bulk count string")
	if !ok {
		return false, err
	}
	n, valid := parseInt64(line[1:])
	if !valid || n < 0 || n > int64(d.maxBytes-d.size) {
		return false, protocolError("invalid bulk length")
	}
	d.bulk, d.size = int(n), d.size+int(n)
	return true, nil
}

func printable(c byte) byte {
	if c < ' ' || c > '~' {
		return '?'
	}
	return c
}

// inline reads a line of words. None of them is no command.
func (d *decoder) inline() (args [][]byte, ok bool, err error) {
	i := bytes.IndexByte(d.buf[d.at:], '\n')
	if i < 0 {
		d.at = len(d.buf)
		if d.at-d.begin > maxLine {
			return nil, false, protocolError("too big inline request")
		}
		return nil, false, nil
	}
	line := bytes.TrimSuffix(d.buf[d.begin:d.at+i], []byte("\r"))
	d.at += i + 1
	d.begin = d.at
	if len(line) > maxLine {
		return nil, false, protocolError("too big inline request")
	}
	d.args, ok = splitWords(d.args[:0], line)
	if !ok {
		return nil, false, protocolError("unbalanced quotes in request")
	}
	if len(d.args) > d.maxArgs {
		return nil, false, protocolError("too many arguments")
	}
	return d.args, true, nil
}

// isHTTP knows the words that a command of ours never begins with and a request of a
// browser always has.
func isHTTP(word []byte) bool {
	return bytes.EqualFold(word, []byte("POST")) || bytes.EqualFold(word, []byte("Host:"))
}

// room returns space for the next read, at least n bytes.
func (d *decoder) room(n int) []byte {
	if cap(d.buf)-len(d.buf) < n {
		grown := make([]byte, len(d.buf), max(2*cap(d.buf), len(d.buf)+n))
		copy(grown, d.buf)
		d.buf = grown
	}
	return d.buf[len(d.buf):cap(d.buf)]
}

func (d *decoder) filled(n int) { d.buf = d.buf[:len(d.buf)+n] }

// wants is how many bytes are missing at least to the end of the argument under way.
func (d *decoder) wants() int {
	if d.left == 0 || d.bulk < 0 {
		return 1
	}
	return max(1, d.at+d.bulk+2-len(d.buf))
}

// reclaim forgets what was handed out: arguments of before are no longer valid. A buffer
// of more than keep bytes that holds little is given back.
func (d *decoder) reclaim(keep int) {
	rest := d.buf[d.begin:]
	if cap(d.buf) > keep && len(rest)+d.wants() <= keep {
		d.buf = append(make([]byte, 0, keep), rest...)
	} else if d.begin > 0 {
		d.buf = d.buf[:copy(d.buf, rest)]
	}
	if d.begin > 0 && d.left > 0 {
		for i := range d.spans {
			d.spans[i].from -= d.begin
			d.spans[i].to -= d.begin
		}
	}
	d.at -= d.begin
	d.begin = 0
}

// splitWords splits a line as Redis does: at space, with "…" (escapes \n \r \t \b \a \xHH)
// and '…' (escape \').
func splitWords(words [][]byte, line []byte) ([][]byte, bool) {
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return words, true
		}
		word, n, ok := oneWord(line[i:])
		if !ok {
			return nil, false
		}
		words = append(words, word)
		i += n
	}
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// oneWord reads a word at the beginning of line; n bytes of it.
func oneWord(line []byte) (word []byte, n int, ok bool) {
	word = []byte{}
	var quote byte
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && (isSpace(c) || c == 0):
			return word, i + 1, true
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0:
			word = append(word, c)
		case c == '\\' && quote == '"' && i+3 < len(line) && line[i+1] == 'x' && isHex(line[i+2]) && isHex(line[i+3]):
			word = append(word, unhex(line[i+2])<<4|unhex(line[i+3]))
			i += 3
		case c == '\\' && quote == '"' && i+1 < len(line):
			i++
			word = append(word, unescape(line[i]))
		case c == '\\' && quote == '\'' && i+1 < len(line) && line[i+1] == '\'':
			i++
			word = append(word, '\'')
		case c == quote:
			if i+1 < len(line) && !isSpace(line[i+1]) {
				return nil, 0, false
			}
			return word, i + 1, true
		default:
			word = append(word, c)
		}
	}
	return word, len(line), quote == 0
}

func unescape(c byte) byte {
	if i := strings.IndexByte("nrtba", c); i >= 0 {
		return "\n\r\t\b\a"[i]
	}
	return c
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// parseInt64 parses as Redis does: the one way to write a number that Redis itself would use.
func parseInt64(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	digits := b
	neg := b[0] == '-'
	if neg {
		digits = b[1:]
	}
	if len(digits) == 0 || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	u, ok := parseUint(digits)
	switch {
	case !ok:
		return 0, false
	case neg:
		return -int64(u), u <= 1<<63
	}
	return int64(u), u < 1<<63
}

// parseUint parses decimal digits.
func parseUint(digits []byte) (u uint64, ok bool) {
	if len(digits) == 0 || len(digits) > 20 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := uint64(c - '0')
		if u > (1<<64-1-d)/10 {
			return 0, false
		}
		u = u*10 + d
	}
	return u, true
}
