package resp

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitFor waits for a condition.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func (r *rig) ends(why string) uint64 {
	for _, e := range r.Figures().Ends {
		if e.Name == why {
			return e.N
		}
	}
	return 0
}

// CASES.md 47: a page in a browser that sends commands to the port.
func TestHTTPIsRefusedWithTheKeyUnchanged(t *testing.T) {
	r := newRig(t, nil)
	for i, request := range []string{
		"POST / HTTP/1.1\r\nHost: localhost:7402\r\nContent-Length: 14\r\n\r\nINCRBY k 1\r\n",
		"GET / HTTP/1.1\r\nHost: localhost:7402\r\n\r\nINCRBY k 1\r\n",
		"host: x\r\nINCRBY k 1\r\n", " post x\r\nINCRBY k 1\r\n", array("POST", "x") + array("INCRBY", "k", "1"),
		"PUT / HTTP/1.1\r\nHOST: x\r\n\r\nINCRBY k 1\r\n",
	} {
		c := r.dial()
		c.send(request)
		if rest, err := io.ReadAll(c.in); err != nil && !isEnd(err) || strings.Contains(string(rest), ":1") {
			t.Errorf("request %d: %q, %v", i, rest, err)
		}
	}
	if got := r.dial().do("GET", "k"); got != "nil" {
		t.Fatalf("the key is %s", got)
	}
	if n := r.ends("attack"); n != 6 {
		t.Errorf("%d connections were closed as attacks", n)
	}
}

func TestWhatIsTooLargeEndsTheConnection(t *testing.T) {
	r := newRig(t, nil)
	limit := r.cfg.MaxCommandBytes
	for _, s := range []struct{ name, send, want string }{
		{"1 M arguments", "*1000000\r\n$4\r\nMGET\r\n", "-ERR Protocol error: invalid multibulk length"},
		{"2^63 arguments", "*9223372036854775808\r\n", "-ERR Protocol error: invalid multibulk length"},
		{"no number", "*x\r\n", "-ERR Protocol error: invalid multibulk length"},
		{"512 MB", "*2\r\n$3\r\nGET\r\n$536870912\r\n", "-ERR Protocol error: invalid bulk length"},
		{"a little too much", fmt.Sprintf("*2\r\n$3\r\nGET\r\n$%d\r\n", limit-2), "-ERR Protocol error: invalid bulk length"},
		{"less than nothing", "*2\r\n$3\r\nGET\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length"},
		{"no bulk", "*1\r\n:5\r\n", "-ERR Protocol error: expected '$', got ':'"},
		{"an endless line", strings.Repeat("x", maxLine+2), "-ERR Protocol error: too big inline request"},
		{"an endless count", "*" + strings.Repeat("1", maxLine+2), "-ERR Protocol error: too big mbulk count string"},
		{"an endless length", "*1\r\n$" + strings.Repeat("1", maxLine+2), "-ERR Protocol error: too big bulk count string"},
		{"quotes", "GET \"k\r\n", "-ERR Protocol error: unbalanced quotes in request"},
		{"quotes again", "GET \"k\"x\r\n", "-ERR Protocol error: unbalanced quotes in request"},
	} {
		c := r.dial()
		c.send(array("PING") + s.send)
		if got := c.reply(); got != "+PONG" {
			t.Errorf("%s: the command before it: %s", s.name, got)
		}
		if got := c.reply(); got != s.want {
			t.Errorf("%s: %s, want %s", s.name, got, s.want)
		}
		c.ended()
	}
	// What just fits is executed.
	c := r.dial()
	c.send(fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", limit-4, strings.Repeat("x", limit-4)))
	if got := c.reply(); len(got) != limit-4+1 {
		t.Errorf("a reply of %d bytes", len(got))
	}
	args := make([]string, r.cfg.MaxArgs)
	for i := range args {
		args[i] = "k"
	}
	args[0] = "EXISTS"
	c.do("INCR", "k")
	if got := c.do(args...); got != fmt.Sprintf(":%d", r.cfg.MaxArgs-1) {
		t.Errorf("as many arguments as fit: %s", got)
	}
}

// A command that says how large it will be takes no memory before it comes.
func TestAnnouncedBytesTakeNoMemory(t *testing.T) {
	r := newRig(t, nil)
	for range 200 {
		r.dial().send(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$%d\r\nx", r.cfg.MaxCommandBytes-100))
	}
	waitFor(t, "all are read", func() bool { return r.Figures().BytesIn >= 200*20 })
	if n := r.Figures().BufferBytes; n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
}

func TestBuffersOfAllConnectionsAreBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxBufferBytes = 2 * c.MaxCommandBytes })
	half := strings.Repeat("x", r.cfg.MaxCommandBytes/2)
	told := 0
	for range 12 {
		c := r.dial()
		c.send(fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s", r.cfg.MaxCommandBytes-4, half))
	}
	waitFor(t, "some are closed", func() bool { return r.ends("buffers") > 0 })
	for range 1 {
		if got := r.dial().do("PING"); got == "+PONG" {
			told++
		}
	}
	if n := r.Figures().BufferBytes; n > int64(r.cfg.MaxBufferBytes) {
		t.Errorf("%d bytes are kept (allowed: %d)", n, r.cfg.MaxBufferBytes)
	}
	if told != 1 {
		t.Error("a small command finds no room")
	}
}

func TestIdleConnections(t *testing.T) {
	r := newRig(t, func(c *Config) { c.IdleTimeout = 600 * time.Millisecond })
	busy, still, slow := r.dial(), r.dial(), r.dial()
	done := make(chan struct{})
	go func() { // a byte now and then is no command
		defer close(done)
		for i := 0; ; i++ {
			if _, err := slow.net.Write([]byte("*1\r\n$100\r\n" + strings.Repeat("x", 90))[i : i+1]); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	for r.ends("idle") < 2 { // never still for long
		if got := busy.do("PING"); got != "+PONG" {
			t.Fatal(got)
		}
	}
	still.ended()
	<-done
}

func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxConnections = 3 })
	for range 3 {
		r.dial().do("PING")
	}
	c := r.dial()
	if got := c.reply(); got != "-ERR max number of clients reached" {
		t.Fatal(got)
	}
	c.ended()
	if f := r.Figures(); f.Connections != 3 || f.Refused != 1 {
		t.Errorf("figures %+v", f)
	}
}

func TestThousandIdleConnectionsCostLittle(t *testing.T) {
	const n = 1000
	r := newRig(t, nil)
	before := heap()
	for range n {
		c := r.dial()
		c.send("*1\r\n")
	}
	waitFor(t, "all are open", func() bool { return r.Figures().BytesIn == n*4 })
	// The clients of this test are in it as well, 4 KiB each.
	if each := (heap() - before) / n; each > 40<<10 {
		t.Errorf("%d bytes a connection", each)
	}
	if got := r.dial().do("PING"); got != "+PONG" {
		t.Fatal(got)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// A client may send a long pipeline before it reads anything: its replies are kept, up to
// the bound; then it has to read, or is cut off.
func TestSlowReader(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.MaxOutputBytes, c.WriteTimeout = 1<<20, 300*time.Millisecond
	})
	c := r.dial()
	payload := strings.Repeat("x", 10_000)
	one := array("ECHO", payload)
	// As much as the bound and the kernel hold: no reply is read meanwhile.
	n := 60
	for range n {
		c.send(one)
	}
	for range n {
		if got := c.reply(); len(got) != len(payload)+1 {
			t.Fatalf("a reply of %d bytes", len(got))
		}
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(30 * time.Second))
	for {
		if _, err := io.WriteString(c.net, one); err != nil {
			var e net.Error
			if ok := isEnd(err); !ok {
				t.Fatalf("the slow reader is not cut off: %v %v", err, e)
			}
			break
		}
		if n := r.Figures().BufferBytes; n > 2<<20 {
			t.Fatalf("%d bytes are kept", n)
		}
	}
	waitFor(t, "the end", func() bool { return r.ends("slow_reader") == 1 })
	if got := r.dial().do("PING"); got != "+PONG" {
		t.Fatal(got)
	}
}

// The decoder gives the same commands whatever the pieces, and never more than was sent.
func FuzzDecoder(f *testing.F) {
	for _, seed := range []string{
		array("INCR", "k") + "PING\r\n", "*0\r\n*-1\r\n\r\nGET 'a\\'b' \"\\x41\\n\"\n", "*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "*1\r\n$-1\r\n", "*1\r$4\rPING\r\n",
		"POST x\r\n", "*1\r\n:1\r\n", "*3\r\n$3\r\nSET\r\n$1\r\n\r\r\n$1\r\n\n\r\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, sent []byte, piece uint8) {
		whole, wrong := decodeAll(sent, len(sent)+1)
		parts, again := decodeAll(sent, int(piece%16)+1)
		if fmt.Sprint(wrong) != fmt.Sprint(again) || !slicesEqual(whole, parts) {
			t.Fatalf("in one piece %q (%v), in pieces %q (%v)", whole, wrong, parts, again)
		}
		total := 0
		for _, cmd := range whole {
			if len(cmd) == 0 || len(cmd) > 64 {
				t.Fatalf("a command of %d arguments", len(cmd))
			}
			for _, a := range cmd {
				total += len(a)
			}
		}
		if total > len(sent) {
			t.Fatalf("%d bytes of arguments in %d bytes", total, len(sent))
		}
	})
}

func slicesEqual(a, b [][][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if len(a[i]) != len(b[i]) {
			return false
		}
		for j := range a[i] {
			if !bytes.Equal(a[i][j], b[i][j]) {
				return false
			}
		}
	}
	return true
}

func decodeAll(sent []byte, piece int) (cmds [][][]byte, err error) {
	d := newDecoder(64, 1<<16)
	for {
		for {
			args, ok, err := d.next()
			if err != nil {
				return cmds, err
			}
			if !ok {
				break
			}
			var cmd [][]byte
			for _, a := range args {
				cmd = append(cmd, bytes.Clone(a))
			}
			cmds = append(cmds, cmd)
		}
		if len(sent) == 0 {
			return cmds, nil
		}
		d.reclaim(256)
		n := copy(d.room(1), sent[:min(piece, len(sent))])
		d.filled(n)
		sent = sent[n:]
	}
}

// Whatever is sent, the port answers as many replies as it took commands, and lives on.
func FuzzCommands(f *testing.F) {
	var names []string
	for _, r := range table() {
		names = append(names, r.name)
	}
	f.Add([]byte("\x00\x01k\x015"))
	f.Add([]byte("\x05\x01k\x015\x02EX\x0210"))
	f.Add([]byte("\x2e\x06note:7\x05views\x011"))
	r := newRig(f, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		args := []string{names[int(b[0])%len(names)]}
		for b = b[1:]; len(b) > 0; {
			n := min(int(b[0]%16), len(b)-1)
			args = append(args, string(b[1:1+n]))
			b = b[1+n:]
		}
		if args[0] == "quit" {
			return
		}
		c := dial(t, r.Addr())
		c.send(array(args...) + array("RESET") + array("ECHO", "end"))
		c.reply()
		if got := c.reply(); got != "+RESET" {
			t.Fatalf("%q: then %s", args, got)
		}
		if got := c.reply(); got != "$end" {
			t.Fatalf("%q: then %s", args, got)
		}
		_ = c.net.Close()
	})
}
