package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// wire is one direction between two nodes.
type wire struct {
	cut   bool          // what is sent arrives when it is whole again
	delay time.Duration // of what is sent
	rate  int           // bytes a second; 0: no limit
	lost  bool          // what is sent never arrives, and breaks the connection
}

// orders are what a process is told of its clock and disk.
type orders struct {
	skew    time.Duration
	stalled bool
}

func (o orders) line() string { return fmt.Sprintf("%d %t\n", int64(o.skew), o.stalled) }

// switchboard carries all connections between nodes, and those to Redis, and has them fail
// as told. It knows both ends of each: the dialer says its name, and the address that it wants.
type switchboard struct {
	listener net.Listener

	mu      sync.Mutex
	closed  bool
	wires   map[[2]string]wire
	names   map[string]string // of nodes by address
	changed chan struct{}     // closed at each change of the above
	calls   map[*call]bool
	orders  map[string]orders
	told    map[net.Conn]string // connections over which orders go
	done    sync.WaitGroup
}

func newSwitchboard() (*switchboard, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &switchboard{
		listener: l, wires: map[[2]string]wire{}, names: map[string]string{}, changed: make(chan struct{}),
		calls: map[*call]bool{}, orders: map[string]orders{}, told: map[net.Conn]string{},
	}
	b.done.Go(b.accept)
	return b, nil
}

func (b *switchboard) env(name string) []string {
	return []string{boardAddress + "=" + b.listener.Addr().String(), boardName + "=" + name}
}

func (b *switchboard) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.done.Go(func() { b.serve(conn) })
	}
}

// serve reads the first line of a connection, byte by byte: what follows is not for
// the switchboard.
func (b *switchboard) serve(conn net.Conn) {
	var line []byte
	for one := make([]byte, 1); len(line) < 200; line = append(line, one[0]) {
		if _, err := conn.Read(one); err != nil || one[0] == '\n' {
			break
		}
	}
	words := strings.Fields(string(line))
	switch {
	case len(words) == 2 && words[0] == "orders":
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.closed {
			_ = conn.Close()
			return
		}
		b.told[conn] = words[1]
		_, _ = io.WriteString(conn, b.orders[words[1]].line())
	case len(words) == 3 && words[0] == "dial":
		b.connect(conn, words[1], words[2])
	default:
		_ = conn.Close()
	}
}

// call is a connection from one node to another.
type call struct {
	from, to string // to is an address
	near     net.Conn
	far      net.Conn
	over     chan struct{}
	once     sync.Once
}

func (c *call) end() {
	c.once.Do(func() {
		close(c.over)
		for _, conn := range []net.Conn{c.near, c.far} {
			if conn != nil {
				_ = conn.(*net.TCPConn).SetLinger(0) // as a reset
				_ = conn.Close()
			}
		}
	})
}

// connect makes a call once both directions are whole.
func (b *switchboard) connect(near net.Conn, from, addr string) {
	c := &call{from: from, to: addr, near: near, over: make(chan struct{})}
	if !b.hold(c) {
		_ = near.Close()
		return
	}
	defer b.forget(c)
	defer c.end()
	// The dialer sends nothing before it is answered: what ends a read is its end.
	gone := make(chan struct{})
	go func() {
		_, _ = near.Read(make([]byte, 1))
		close(gone)
	}()
	up := b.whole(c, from, addr, gone) && b.whole(c, addr, from, gone)
	_ = near.SetReadDeadline(time.Now())
	<-gone
	_ = near.SetReadDeadline(time.Time{})
	if !up {
		return
	}
	far, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return
	}
	defer far.Close()
	b.mu.Lock()
	c.far = far
	b.mu.Unlock()
	if _, err := near.Write([]byte{1}); err != nil {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { b.pump(c, from, addr, near, far) })
	pumps.Go(func() { b.pump(c, addr, from, far, near) })
	pumps.Wait()
}

func (b *switchboard) hold(c *call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.calls[c] = true
	}
	return !b.closed
}

func (b *switchboard) forget(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.calls, c)
}

// wireOf is a direction as it is now, and is told of changes. Its ends are names or
// addresses.
func (b *switchboard) wireOf(from, to string) (wire, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, ok := b.names[from]; ok {
		from = n
	}
	if n, ok := b.names[to]; ok {
		to = n
	}
	return b.wires[[2]string{from, to}], b.changed
}

// whole waits until a direction is not cut; false: the call is over before that.
func (b *switchboard) whole(c *call, from, to string, gone <-chan struct{}) bool {
	for {
		w, changed := b.wireOf(from, to)
		if !w.cut {
			return true
		}
		select {
		case <-changed:
		case <-gone:
			return false
		case <-c.over:
			return false
		}
	}
}

// piece is what was sent, and when.
type piece struct {
	at    time.Time
	bytes []byte
}

// pump carries one direction of a call. What is sent while it is cut is not lost but
// late, as TCP has it; so is the end of the connection.
func (b *switchboard) pump(c *call, from, to string, src, dst net.Conn) {
	pieces := make(chan piece, 64)
	go func() {
		defer close(pieces)
		for {
			buf := make([]byte, 16<<10)
			n, err := src.Read(buf)
			if n > 0 {
				select {
				case pieces <- piece{time.Now(), buf[:n]}:
				case <-c.over:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer c.end()
	for p := range pieces {
		w, _ := b.wireOf(from, to)
		wait := time.Until(p.at.Add(w.delay))
		if w.rate > 0 {
			wait = max(wait, 0) + time.Duration(len(p.bytes))*time.Second/time.Duration(w.rate)
		}
		if !pass(c, wait) || !b.whole(c, from, to, nil) || w.lost {
			break
		}
		if _, err := dst.Write(p.bytes); err != nil {
			break
		}
	}
	if b.whole(c, from, to, nil) {
		c.end()
	}
	for range pieces { // until the reader has ended
	}
}

// pass waits; false: the call is over.
func pass(c *call, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-c.over:
		return false
	}
}

// know tells the name of the node at an address.
func (b *switchboard) know(name, addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names[addr] = name
	b.wake()
}

// set changes one direction.
func (b *switchboard) set(from, to string, w wire) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wires[[2]string{from, to}] = w
	b.wake()
}

// heal makes all directions whole.
func (b *switchboard) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.wires)
	b.wake()
}

func (b *switchboard) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// reset breaks all connections between two nodes.
func (b *switchboard) reset(one, other string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.calls {
		if to := b.names[c.to]; c.from == one && to == other || c.from == other && to == one {
			c.end()
		}
	}
}

// order tells a node of its clock and disk, now and whenever it starts again.
func (b *switchboard) order(name string, change func(*orders)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.orders[name]
	change(&o)
	b.orders[name] = o
	for conn, n := range b.told {
		if n == name {
			_, _ = io.WriteString(conn, o.line())
		}
	}
}

// close ends all connections, and with those for orders the processes.
func (b *switchboard) close() {
	b.mu.Lock()
	b.closed = true
	_ = b.listener.Close()
	for c := range b.calls {
		c.end()
	}
	for conn := range b.told {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.done.Wait()
}
