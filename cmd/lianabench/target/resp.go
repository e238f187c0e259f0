package target

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// respConn is a lean client of the Redis protocol for one goroutine: commands
// are put together in a buffer, sent in one write and their replies read in
// order. The yardstick shares the processors with this program, so its client
// should cost little.
type respConn struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

// respError is an error that the server answered.
type respError string

func (e respError) Error() string { return "redis: " + string(e) }

func dialRESP(ctx context.Context, addr string) (*respConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return &respConn{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (c *respConn) Close() error { return c.conn.Close() }

// begin starts a command of n arguments; arg and uint add them.
func (c *respConn) begin(n int) {
	c.out = append(c.out, '*')
	c.out = strconv.AppendInt(c.out, int64(n), 10)
	c.out = append(c.out, '\r', '\n')
}

func (c *respConn) arg(s string) {
	c.length(len(s))
	c.out = append(c.out, s...)
	c.out = append(c.out, '\r', '\n')
}

func (c *respConn) uint(v uint64) { c.key("", v) }

// key adds the argument prefix + decimal v.
func (c *respConn) key(prefix string, v uint64) {
	var digits [20]byte
	d := strconv.AppendUint(digits[:0], v, 10)
	c.length(len(prefix) + len(d))
	c.out = append(c.out, prefix...)
	c.out = append(c.out, d...)
	c.out = append(c.out, '\r', '\n')
}

func (c *respConn) length(n int) {
	c.out = append(c.out, '$')
	c.out = strconv.AppendInt(c.out, int64(n), 10)
	c.out = append(c.out, '\r', '\n')
}

// send writes all commands begun since the last send.
func (c *respConn) send(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Time{}
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// line reads a reply's first line: its kind and the rest.
func (c *respConn) line() (byte, []byte, error) {
	l, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(l) < 3 {
		return 0, nil, errors.New("redis: short reply")
	}
	kind, rest := l[0], l[1:len(l)-2]
	if kind == '-' {
		return 0, nil, respError(rest)
	}
	return kind, rest, nil
}

// int reads a number: an integer, or a bulk string of digits. An absent bulk is 0.
func (c *respConn) int() (int64, error) {
	kind, rest, err := c.line()
	if err != nil {
		return 0, err
	}
	switch kind {
	case ':':
		return parseInt(rest)
	case '$':
		n, err := parseInt(rest)
		if err != nil || n < 0 {
			return 0, err
		}
		body, err := c.in.Peek(int(n) + 2)
		if err != nil {
			return 0, err
		}
		v, err := parseInt(body[:n])
		_, _ = c.in.Discard(int(n) + 2)
		return v, err
	}
	return 0, fmt.Errorf("redis: unexpected reply %q", string(kind)+string(rest))
}

// array reads the header of an array and returns its length.
func (c *respConn) array() (int, error) {
	kind, rest, err := c.line()
	if err != nil {
		return 0, err
	}
	if kind != '*' {
		return 0, fmt.Errorf("redis: unexpected reply %q", string(kind)+string(rest))
	}
	n, err := parseInt(rest)
	return int(n), err
}

// text reads a simple or bulk string.
func (c *respConn) text() (string, error) {
	kind, rest, err := c.line()
	if err != nil {
		return "", err
	}
	if kind != '$' {
		return string(rest), nil
	}
	n, err := parseInt(rest)
	if err != nil || n < 0 {
		return "", err
	}
	body := make([]byte, n+2)
	for read := 0; read < len(body); {
		m, err := c.in.Read(body[read:])
		if err != nil {
			return "", err
		}
		read += m
	}
	return string(body[:n]), nil
}

// call sends one command of string arguments and returns its text reply.
func (c *respConn) call(ctx context.Context, args ...string) (string, error) {
	c.begin(len(args))
	for _, a := range args {
		c.arg(a)
	}
	if err := c.send(ctx); err != nil {
		return "", err
	}
	return c.text()
}

// parseInt reads a decimal number, without a copy. Scores of sorted sets come
// as floats once they pass 2^53, which no time of ours does.
func parseInt(b []byte) (int64, error) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	v := int64(0)
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, fmt.Errorf("redis: %q is no number", b)
		}
		v = v*10 + int64(d-'0')
	}
	if neg {
		return -v, nil
	}
	return v, nil
}
