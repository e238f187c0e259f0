package resp

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// budget bounds what the buffers of all connections hold together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take asks for n more bytes; false: there are not so many.
func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.limit {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

func (b *budget) give(n int) { b.used.Add(int64(-n)) }

// errSlowReader: the client does not take its replies.
var errSlowReader = errors.New("the client does not read its replies")

// promptly is how long a reply may take to go out before a goroutine of its own sees to it.
const promptly = 5 * time.Millisecond

// pieceBytes is written at a time while a client reads slowly: each piece has to be taken
// within the write timeout.
const pieceBytes = 64 << 10

// outlet writes replies. A client may send a long pipeline before it reads anything; so what
// it does not take at once is kept, up to a bound, while its commands go on.
type outlet struct {
	net     net.Conn
	timeout time.Duration
	max     int
	budget  *budget
	written *atomic.Uint64

	mu       sync.Mutex
	changed  *sync.Cond
	pending  []byte // not written yet
	draining bool
	err      error
	drained  sync.WaitGroup
}

func newOutlet(c net.Conn, cfg *Config, b *budget, written *atomic.Uint64) *outlet {
	o := &outlet{net: c, timeout: cfg.WriteTimeout, max: cfg.MaxOutputBytes, budget: b, written: written}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// write sends b, or keeps it until the client takes it. b may be used again afterwards.
func (o *outlet) write(b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.draining && o.err == nil {
		n, err := o.send(b, promptly)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		b = b[n:]
	}
	for o.err == nil && len(o.pending) > 0 && !o.hasRoom(len(b)) {
		o.changed.Wait()
	}
	if o.err != nil {
		return o.err
	}
	o.budget.used.Add(int64(len(b))) // over the limit where it is the only one
	o.pending = append(o.pending, b...)
	if !o.draining {
		o.draining = true
		o.drained.Go(o.drain)
	}
	return nil
}

func (o *outlet) hasRoom(n int) bool {
	return len(o.pending)+n <= o.max && o.budget.used.Load()+int64(n) <= o.budget.limit
}

func (o *outlet) send(b []byte, within time.Duration) (int, error) {
	if err := o.net.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return 0, err
	}
	n, err := o.net.Write(b)
	o.written.Add(uint64(n))
	return n, err
}

// drain writes what is pending, and ends when nothing is.
func (o *outlet) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending) > 0 && o.err == nil {
		b := o.pending
		o.pending = nil
		o.mu.Unlock()
		err := o.sendAll(b)
		o.mu.Lock()
		o.err = err
		o.changed.Broadcast()
	}
	o.budget.give(len(o.pending))
	o.pending, o.draining = nil, false
}

func (o *outlet) sendAll(b []byte) error {
	defer func() { o.budget.give(len(b)) }()
	for len(b) > 0 {
		n, err := o.send(b[:min(len(b), pieceBytes)], o.timeout)
		o.budget.give(n)
		b = b[n:]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errSlowReader
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close waits until all is written, or cannot be, and closes the connection.
func (o *outlet) close() error {
	o.drained.Wait()
	_ = o.net.Close() // it is over either way
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
