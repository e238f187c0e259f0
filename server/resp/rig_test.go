package resp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
)

// store is a Backend of one shard without a log: the counters of the state machine.
type store struct {
	schema *graph.Schema

	mu     sync.Mutex
	state  *counter.State
	pos    uint64
	calls  [][]graph.CounterEdit // to EditCounters
	reads  int                   // calls of GetCounters
	tokens []string              // of them
	// Set by a test; each may be nil.
	onEdit func([]graph.CounterEdit) ([]graph.EditResult, error)
	skew   time.Duration
}

func newStore(t testing.TB) *store {
	t.Helper()
	prefix := func(dst []byte, slot uint16) []byte {
		return append(binary.BigEndian.AppendUint16(dst, slot), 0xff, 0xfe)
	}
	state, err := counter.Open(counter.Config{Prefix: prefix, EndSlot: graph.NumSlots}, kv.NewMem(nil))
	if err != nil {
		t.Fatal(err)
	}
	return &store{schema: graph.DefaultSchema(), state: state}
}

func (s *store) hook(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
}

func (s *store) Schema() *graph.Schema { return s.schema }
func (s *store) Timeline() uint64      { return 7 }

func refOf(c graph.CounterRef) counter.Ref {
	r := counter.Ref{Slot: uint16(c.Slot()), Row: []byte("k" + c.Key)}
	if c.Key == "" {
		r.Row, r.Field = []byte(fmt.Sprint("v", c.Vertex)), uint16(c.Metric)-1
	}
	return r
}

func (s *store) now() int64 { return time.Now().Add(s.skew).UnixMicro() }

func (s *store) EditCounters(_ context.Context, es []graph.CounterEdit) ([]graph.EditResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, append([]graph.CounterEdit(nil), es...))
	if s.onEdit != nil {
		return s.onEdit(es)
	}
	out := make([]graph.EditResult, len(es))
	now := s.now()
	for i, e := range es {
		bounds := counter.Bounds{}
		if def, ok := s.schema.MetricByID(e.Counter.Vertex.Type, e.Counter.Metric); ok {
			bounds = counter.Bounds{Min: def.Min, Max: def.Max, HasMin: def.Min != math.MinInt64, HasMax: def.Max != math.MaxInt64}
		}
		r, err := s.state.Edit(counter.Edit{
			Ref: refOf(e.Counter), Kind: e.Kind, If: e.If, Value: e.Value, Schema: bounds, ExpireAt: e.ExpireAt, Keep: e.Keep,
		}, counter.Clock{Now: now, Elapsed: now})
		if err != nil {
			return nil, err
		}
		s.pos++
		out[i] = graph.EditResult{Edited: r, Pos: s.pos}
		if r.Outcome == counter.Overflow {
			out[i].Err = graph.ErrOverflow
		}
	}
	return out, nil
}

func (s *store) GetCounters(_ context.Context, ro graph.ReadOptions, refs []graph.CounterRef) ([]graph.CounterValue, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	s.tokens = append(s.tokens, ro.Token)
	out := make([]graph.CounterValue, len(refs))
	for i, ref := range refs {
		c, err := s.state.Get(refOf(ref), s.now())
		if err != nil {
			return nil, "", err
		}
		out[i] = graph.CounterValue{Counter: ref, Value: c.Value, Exists: c.Exists, ExpireAt: c.ExpireAt}
	}
	return out, "", nil
}

// rig is a port over a store.
type rig struct {
	*Server
	t     testing.TB
	store *store
	// starting: there is no backend yet.
	starting bool
}

var errPlanted = errors.New("planted")

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, store: newStore(t)}
	cfg := Defaults()
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s, err := Listen("127.0.0.1:0", cfg, Host{
		Backend: func() Backend {
			if r.starting {
				return nil
			}
			return r.store
		},
		Explain: func(err error) string {
			switch {
			case errors.Is(err, errPlanted):
				return UnknownOutcome + " " + err.Error()
			case errors.Is(err, graph.ErrUnreachable):
				return "TRYAGAIN " + err.Error()
			}
			return "ERR " + err.Error()
		},
		Observe: func(time.Duration, int) {},
		Version: func() string { return "test" }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Server = s
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Stop(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if left := s.buffers.used.Load(); left != 0 || len(s.conns) != 0 {
			t.Errorf("%d bytes of buffers and %d connections are left", left, len(s.conns))
		}
	})
	return r
}

// client is a plain client of the protocol.
type client struct {
	t   testing.TB
	net net.Conn
	in  *bufio.Reader
}

func (r *rig) dial() *client { return dial(r.t, r.Addr()) }

func dial(t testing.TB, addr string) *client {
	t.Helper()
	n, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	_ = n.SetDeadline(time.Now().Add(time.Minute))
	return &client{t: t, net: n, in: bufio.NewReader(n)}
}

// array is a command as clients send it.
func array(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func (c *client) send(raw string) {
	c.t.Helper()
	if _, err := io.WriteString(c.net, raw); err != nil {
		c.t.Fatal(err)
	}
}

// do sends a command and returns its reply in one line.
func (c *client) do(args ...string) string {
	c.t.Helper()
	c.send(array(args...))
	return c.reply()
}

// words splits a line at spaces and does it.
func (c *client) words(line string) string {
	c.t.Helper()
	return c.do(strings.Fields(line)...)
}

func (c *client) reply() string {
	c.t.Helper()
	text, err := readReply(c.in)
	if err != nil {
		c.t.Fatalf("reply: %v", err)
	}
	return text
}

// ended checks that the connection is closed with nothing more.
func (c *client) ended() {
	c.t.Helper()
	if b, err := c.in.ReadByte(); !isEnd(err) {
		c.t.Fatalf("the connection goes on: %q, %v", b, err)
	}
}

func isEnd(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &op) && !op.Timeout()
}

// readReply reads one reply: ":5", "+OK", "-ERR …", "$text", "nil", "[…]", "{…}", "=text".
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("an empty line")
	}
	rest := line[1:]
	switch line[0] {
	case ':', '+', '-':
		return line, nil
	case '_':
		return "nil", nil
	case '$', '=':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "nil", err
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return "", err
		}
		return line[:1] + string(b[:n]), nil
	case '*', '~', '%':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "nil", err
		}
		ends := "[]"
		if line[0] == '%' {
			n, ends = 2*n, "{}"
		}
		items := make([]string, n)
		for i := range items {
			if items[i], err = readReply(in); err != nil {
				return "", err
			}
		}
		return ends[:1] + strings.Join(items, " ") + ends[1:], nil
	}
	return "", fmt.Errorf("reply %q", line)
}
