package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// respClient is a plain client of the Redis protocol.
type respClient struct {
	net net.Conn
	in  *bufio.Reader
}

func dialRESP(t *testing.T, addr string) *respClient {
	t.Helper()
	c, err := openRESP(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.net.Close() })
	return c
}

func openRESP(addr string) (*respClient, error) {
	n, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &respClient{net: n, in: bufio.NewReader(n)}, n.SetDeadline(time.Now().Add(2 * time.Minute))
}

// respReply is a reply: its kind as the protocol marks it ('_' for null), its text, and the
// items of an array.
type respReply struct {
	kind  byte
	text  string
	items []respReply
}

func (r respReply) String() string {
	if r.kind == '*' {
		return fmt.Sprintf("%v", r.items)
	}
	return strconv.QuoteRune(rune(r.kind)) + strconv.Quote(r.text)
}

// prefix is the first word of an error.
func (r respReply) prefix() string {
	word, _, _ := strings.Cut(r.text, " ")
	return word
}

func (c *respClient) do(args ...string) (respReply, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c.net, b.String()); err != nil {
		return respReply{}, err
	}
	return c.reply()
}

func (c *respClient) reply() (respReply, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return respReply{}, err
	}
	if len(line) < 3 {
		return respReply{}, errors.New("a short line")
	}
	r := respReply{kind: line[0], text: line[1 : len(line)-2]}
	switch r.kind {
	case ':', '+', '-':
		return r, nil
	case '$', '*':
	default:
		return r, fmt.Errorf("reply %q", line)
	}
	n, err := strconv.Atoi(r.text)
	if err != nil {
		return r, err
	}
	r.text = ""
	switch {
	case n < 0:
		r.kind = '_'
	case r.kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.in, b); err != nil {
			return r, err
		}
		r.text = string(b[:n])
	default:
		r.items = make([]respReply, n)
		for i := range r.items {
			if r.items[i], err = c.reply(); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}
