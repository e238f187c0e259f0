package resp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/lianadb/liana/graph"
)

// Sizes of a connection's buffer of what it has sent: while little comes, and while pipelines
// do.
const (
	calmBuffer = 8 << 10
	fullBuffer = 64 << 10
)

// minRead is the least room that is read into.
const minRead = 1 << 10

// conn is one connection. All but what CLIENT LIST shows of it belongs to its goroutine.
type conn struct {
	server *Server
	net    net.Conn
	id     uint64
	since  time.Time
	in     decoder
	out    *outlet
	w      writer
	b      *batch // under way
	// session is what the client has seen; made with its first command, since the cluster's
	// timeline is not known earlier.
	session *graph.Session
	tx      transaction
	quit    bool
	keep    int // bytes of the input buffer
	charged int // of them, counted in the server's budget
	renewed time.Time

	name     atomic.Pointer[string]
	lastSeen atomic.Int64 // µs
	commands atomic.Uint64
}

func (s *Server) newConn(n net.Conn) *conn {
	c := &conn{
		server: s, net: n, id: s.ids.Add(1), since: time.Now(), keep: calmBuffer,
		in:  newDecoder(s.cfg.MaxArgs, s.cfg.MaxCommandBytes),
		out: newOutlet(n, &s.cfg, &s.buffers, &s.figures.bytesOut),
	}
	c.name.Store(new(string))
	c.lastSeen.Store(c.since.UnixMicro())
	return c
}

// serve answers commands until the connection ends.
func (c *conn) serve() {
	err := c.run()
	if closed := c.out.close(); closed != nil && err == nil {
		err = closed
	}
	c.server.buffers.give(c.charged)
	c.server.ended(c, err)
}

// errPanic: a command met a bug. The connection ends, the process goes on.
var errPanic = errors.New("panic in a command")

func (c *conn) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.server.figures.panics.Add(1)
			c.server.host.Log.Error("panic in a command", "panic", p, "stack", string(debug.Stack()), "peer", c.net.RemoteAddr())
			err = errPanic
		}
	}()
	for !c.quit {
		args, ok, err := c.in.next()
		switch {
		case err != nil:
		case ok:
			err = c.turn(args)
		default:
			err = c.fill()
		}
		if err != nil {
			return c.refuse(err)
		}
	}
	return nil
}

// refuse tells the client of an error that ends its connection.
func (c *conn) refuse(err error) error {
	var bad protocolError
	switch {
	case errors.As(err, &bad):
		c.w.error(bad.Error())
	case errors.Is(err, errBuffers):
		c.w.error("ERR " + err.Error())
	default:
		return err
	}
	if failed := c.flush(); failed != nil {
		return failed
	}
	return err
}

// errBuffers: the connection was closed with its command half read, so nothing was changed.
var errBuffers = errors.New("the buffers of all connections are full, nothing was changed")

// errIdle ends a connection that sends nothing, or never the end of a command.
var errIdle = errors.New("idle for too long")

// fill reads what has arrived.
func (c *conn) fill() error {
	c.in.reclaim(c.keep)
	room := c.in.room(max(minRead, c.keep-len(c.in.buf)))
	if err := c.charge(); err != nil {
		return err
	}
	c.renew()
	if c.server.stopping.Load() {
		return errStopping
	}
	n, err := c.net.Read(room)
	c.in.filled(n)
	c.server.figures.bytesIn.Add(uint64(n))
	switch {
	case n == len(room):
		c.keep = fullBuffer
	case n < calmBuffer/4:
		c.keep = calmBuffer
	}
	switch {
	case n > 0:
		return nil
	case c.server.stopping.Load():
		return errStopping
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errIdle
	}
	return err
}

// charge counts the input buffer, beyond what every connection has.
func (c *conn) charge() error {
	want := max(0, cap(c.in.buf)-calmBuffer)
	if want > c.charged && !c.server.buffers.take(want-c.charged) {
		return errBuffers
	}
	if want < c.charged {
		c.server.buffers.give(c.charged - want)
	}
	c.charged = want
	return nil
}

// renew gives the next command its time to arrive. One that is half there has it already.
func (c *conn) renew() {
	idle := c.server.cfg.IdleTimeout
	if idle == 0 || len(c.in.buf) > 0 {
		return
	}
	// Setting a deadline costs about as much as a small read; an eighth more or less of
	// the timeout does not matter.
	if now := time.Now(); now.Sub(c.renewed) > idle/8 {
		c.renewed = now
		_ = c.net.SetReadDeadline(now.Add(idle)) // the read tells
	}
}

// turn executes the commands that have arrived, args being the first, and writes their
// replies.
func (c *conn) turn(args [][]byte) error {
	began := time.Now()
	c.lastSeen.Store(began.UnixMicro())
	d := c.server.host.Backend()
	if d == nil {
		c.w.error("LOADING Liana is loading the dataset in memory")
		return c.flush()
	}
	c.b = c.server.takeBatch(d.Schema())
	if c.session == nil {
		c.session = graph.NewSession(d.Timeline())
	}
	wrong := c.gather(args)
	if len(c.b.edits) > 0 {
		ctx, cancel := context.WithTimeout(c.server.ctx, c.server.cfg.CallTime)
		c.b.execute(ctx, d, c.session)
		cancel()
	}
	for i := range c.b.steps {
		c.render(&c.b.steps[i])
		if len(c.w.b) > pieceBytes {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	c.commands.Add(uint64(len(c.b.steps)))
	c.server.observe(time.Since(began), len(c.b.steps))
	c.server.giveBatch(c.b)
	c.b = nil
	if err := c.flush(); err != nil {
		return err
	}
	return wrong
}

// gather plans the commands that have arrived, as many as one batch takes. An error is for
// after those before it.
func (c *conn) gather(args [][]byte) (err error) {
	p := newPlanner(c, c.b)
	for ok := true; ok && err == nil; {
		p.command(args)
		if c.b.full() || p.last {
			return nil
		}
		args, ok, err = c.in.next()
	}
	return err
}

func (c *conn) flush() error {
	if len(c.w.b) == 0 {
		return nil
	}
	err := c.out.write(c.w.b)
	if c.w.b = c.w.b[:0]; cap(c.w.b) > 2*pieceBytes {
		c.w.b = nil
	}
	return err
}

// reasons are what ending returns.
func reasons() []string {
	return []string{"attack", "buffers", "idle", "network", "panic", "protocol", "slow_reader"}
}

// ending says why a connection ended, for figures and the log.
func ending(err error) string {
	var bad protocolError
	var attack errAttack
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, errStopping):
		return ""
	case errors.As(err, &attack):
		return "attack"
	case errors.As(err, &bad):
		return "protocol"
	case errors.Is(err, errIdle):
		return "idle"
	case errors.Is(err, errSlowReader):
		return "slow_reader"
	case errors.Is(err, errBuffers):
		return "buffers"
	case errors.Is(err, errPanic):
		return "panic"
	}
	return "network"
}
