package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// tool runs a program of Redis against a port.
func tool(t *testing.T, addr, stdin string, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(name + " is not installed")
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, append([]string{"-p", port}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// CASES.md 34: clients of Redis with their default options.
func TestClientsOfRedis(t *testing.T) {
	d := startDaemon(t, filepath.Join(t.TempDir(), "data"))
	addr := d.ready["resp"]
	ctx := testCtx(t)

	t.Run("redis-cli", func(t *testing.T) {
		for _, s := range []struct{ args, want string }{
			{"incrby cli 3", "3\n"}, {"-3 hincrby note:7 views 2", "2\n"}, {"-3 hgetall note:7", "views 2\n"}, {"get none", "\n"}, {"ping", "PONG\n"},
			{"nosuch", "ERR unknown command 'nosuch', with args beginning with: \n\n"},
		} {
			if got := tool(t, addr, "", "redis-cli", strings.Fields(s.args)...); got != s.want {
				t.Errorf("%s: %q, want %q", s.args, got, s.want)
			}
		}
	})
	t.Run("redis-cli --pipe", func(t *testing.T) {
		n := 100_000
		if os.Getenv("LIANA_LONG") != "" {
			n = 1_000_000
		}
		out := tool(t, addr, strings.Repeat("*2\r\n$4\r\nINCR\r\n$4\r\npipe\r\n", n), "redis-cli", "--pipe")
		if want := fmt.Sprintf("errors: 0, replies: %d", n); !strings.Contains(out, want) {
			t.Errorf("%s\nwant %s", out, want)
		}
		if got := d.counter("pipe"); got != int64(n) {
			t.Errorf("counted %d of %d", got, n)
		}
	})
	t.Run("redis-benchmark", func(t *testing.T) {
		out := tool(t, addr, "", "redis-benchmark", "-t", "incr", "-q", "-n", "5000")
		if !strings.Contains(out, "requests per second") || strings.Contains(out, "WARNING") {
			t.Error(out)
		}
		if got := d.counter("counter:__rand_int__"); got != 5000 {
			t.Errorf("counted %d", got)
		}
	})
	t.Run("go-redis", func(t *testing.T) {
		c := redis.NewClient(&redis.Options{Addr: addr})
		defer c.Close()
		if n, err := c.IncrBy(ctx, "go", 5).Result(); n != 5 || err != nil {
			t.Error(n, err)
		}
		if _, err := c.Get(ctx, "none").Result(); !errors.Is(err, redis.Nil) {
			t.Error(err)
		}
		if m, err := c.HGetAll(ctx, "note:7").Result(); err != nil || m["views"] != "2" {
			t.Error(m, err)
		}
		cmds, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Incr(ctx, "go")
			p.Expire(ctx, "go", time.Hour)
			return nil
		})
		if err != nil || cmds[0].(*redis.IntCmd).Val() != 6 {
			t.Error(cmds, err)
		}
		if ttl, err := c.TTL(ctx, "go").Result(); err != nil || ttl != time.Hour {
			t.Error(ttl, err)
		}
		cmds, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 10_000 {
				p.Incr(ctx, "piped")
			}
			return nil
		})
		if err != nil || cmds[9_999].(*redis.IntCmd).Val() != 10_000 {
			t.Error(err)
		}
	})
	t.Run("ioredis", func(t *testing.T) {
		modules := os.Getenv("LIANA_NODE_MODULES") // a directory with ioredis in it
		if modules == "" {
			t.Skip("LIANA_NODE_MODULES is not set")
		}
		_, port, _ := net.SplitHostPort(addr)
		cmd := exec.Command("node", "-e", ioredisProgram, port)
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "1 2 10000 3600 null" {
			t.Errorf("%v: %s", err, out)
		}
	})
}

const ioredisProgram = `
const Redis = require("ioredis");
const r = new Redis(Number(process.argv[1]));
(async () => {
  const one = await r.incr("io");
  const views = await r.hget("note:7", "views");
  const p = r.pipeline();
  for (let i = 0; i < 10000; i++) p.incr("iopiped");
  const all = await p.exec();
  const tx = await r.multi().incr("io").expire("io", 3600).ttl("io").exec();
  console.log(one, views, all[9999][1], tx[2][1], await r.get("none"));
  r.disconnect();
})().catch(e => { console.error(e); process.exit(1); });`

// CASES.md 9: the doors refuse an overflow alike, and the value stays.
func TestCase9OverflowOnEveryDoor(t *testing.T) {
	d := startDaemon(t, filepath.Join(t.TempDir(), "data"))
	c := dialRESP(t, d.ready["resp"])
	do := func(args ...string) respReply {
		t.Helper()
		r, err := c.do(args...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	do("SET", "top", "9223372036854775800")
	do("HSET", "note:1", "views", "9223372036854775800")
	for _, args := range [][]string{{"INCRBY", "top", "100"}, {"HINCRBY", "note:1", "views", "100"}} {
		if r := do(args...); r.kind != '-' || !strings.HasPrefix(r.text, "ERR increment or decrement would overflow") {
			t.Errorf("%q: %v", args, r)
		}
	}
	_, err := d.counters.IncrBy(testCtx(t), &pb.IncrByRequest{Increment: &pb.Increment{Counter: &pb.CounterRef{Key: "top"}, Delta: 100}})
	if err == nil || !strings.Contains(err.Error(), "OutOfRange") {
		t.Errorf("by gRPC: %v", err)
	}
	if got := d.counter("top"); got != 9223372036854775800 {
		t.Errorf("the counter is %d", got)
	}
	if r := do("HGET", "note:1", "views"); r.text != "9223372036854775800" {
		t.Errorf("the metric is %v", r)
	}
	do("SET", "low", "-9223372036854775808")
	if r := do("DECR", "low"); r.kind != '-' || do("GET", "low").text != "-9223372036854775808" {
		t.Errorf("below the least: %v", r)
	}
	for _, n := range []string{"3000000000", "17179869184"} {
		do("DEL", "wide")
		if r := do("DECRBY", "wide", n); r.text != "-"+n {
			t.Errorf("DECRBY %s: %v", n, r)
		}
	}
}

func TestRESPOnACluster(t *testing.T) {
	f := newTrio(t)
	t.Run("one store", func(t *testing.T) { shareStore(t, f) })
	t.Run("failover", func(t *testing.T) { failOver(t, f) })
}

// shareStore: what is written by one door is read by the other, with tokens; binary keys
// among it.
func shareStore(t *testing.T, f *fleet) {
	a, b := f.node(0), f.node(1)
	ca, cb := dialRESP(t, a.ready["resp"]), dialRESP(t, b.ready["resp"])
	for i := range 40 {
		key := fmt.Sprintf("shared %d", i)
		if i%4 == 0 {
			key = fmt.Sprintf("\xff\x00%d\r\n", i)
		}
		if r, err := ca.do("SET", key, fmt.Sprint(i), "EX", "1000"); err != nil || r.text != "OK" {
			t.Fatal(r, err)
		}
		if r, err := ca.do("GET", key); err != nil || r.text != fmt.Sprint(i) {
			t.Fatalf("own write: %v, %v", r, err)
		}
		token, err := ca.do("LIANA.TOKEN")
		if err != nil {
			t.Fatal(err)
		}
		if r, err := cb.do("LIANA.TOKEN", token.text); err != nil || r.text != "OK" {
			t.Fatal(r, err)
		}
		if r, err := cb.do("GET", key); err != nil || r.text != fmt.Sprint(i) {
			t.Fatalf("with a token, by another node: %v, %v", r, err)
		}
		if r, err := cb.do("INCRBY", key, "5"); err != nil || r.text != fmt.Sprint(i+5) {
			t.Fatalf("by another node: %v, %v", r, err)
		}
		if i%4 == 0 {
			continue
		}
		resp, err := a.counters.Get(testCtx(t), &pb.GetCounterRequest{
			Counter: &pb.CounterRef{Key: key}, Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE},
		})
		if err != nil || resp.Counters[0].Value != int64(i+5) || resp.Counters[0].ExpireAt == 0 {
			t.Fatalf("by gRPC: %v, %v", resp, err)
		}
	}
}

// tally is a writer of one key that knows what was acknowledged.
type tally struct {
	key              string
	least, most      int64 // what the key may hold
	connection, told int   // outcomes that are not known: by a connection that ended, and by an error
}

// run increments in pipelines until stop is closed; the node that it writes by may go.
func (w *tally) run(addr func() string, rng *rand.Rand, stop <-chan struct{}) error {
	var c *respClient
	defer func() {
		if c != nil {
			_ = c.net.Close()
		}
	}()
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if c == nil {
			var err error
			if c, err = openRESP(addr()); err != nil {
				time.Sleep(5 * time.Millisecond)
				continue
			}
		}
		n := 1 + rng.Intn(20)
		w.most += int64(n)
		if _, err := c.net.Write(bytes.Repeat([]byte(fmt.Sprintf("*2\r\n$4\r\nINCR\r\n$%d\r\n%s\r\n", len(w.key), w.key)), n)); err != nil {
			_ = c.net.Close()
			c, w.connection = nil, w.connection+1
			continue
		}
		if err := w.replies(c, n); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return err
			}
			_ = c.net.Close()
			c, w.connection = nil, w.connection+1
		}
	}
}

func (w *tally) replies(c *respClient, n int) error {
	last := int64(0)
	for range n {
		r, err := c.reply()
		if err != nil {
			return err
		}
		switch {
		case r.kind == ':':
			var v int64
			if _, err := fmt.Sscan(r.text, &v); err != nil || v <= last || v < w.least+1 || v > w.most {
				return fmt.Errorf("%s: answered %s, at least %d and at most %d", w.key, r.text, w.least+1, w.most)
			}
			last = v
			w.least++
		case r.prefix() == "UNKNOWNOUTCOME":
			w.told++
		case slices.Contains([]string{"TRYAGAIN", "LOADING", "TIMEOUT"}, r.prefix()):
			w.most-- // refused: it was not done
		default:
			return fmt.Errorf("%s: %v", w.key, r)
		}
	}
	return nil
}

// kill -9 under load: what was acknowledged is there, and what was refused is not.
func TestRESPKillsLoseNothingThatWasAcknowledged(t *testing.T) {
	kills := 4
	if os.Getenv("LIANA_LONG") != "" {
		kills = 100
	}
	dir := filepath.Join(t.TempDir(), "data")
	rng := rand.New(rand.NewSource(time.Now().UnixNano()))
	var addr atomic.Pointer[string]
	d := startDaemon(t, dir)
	at := d.ready["resp"]
	addr.Store(&at)
	stop := make(chan struct{})
	tallies := make([]tally, 8)
	var wg sync.WaitGroup
	for i := range tallies {
		w, r := &tallies[i], rand.New(rand.NewSource(rng.Int63()))
		w.key = fmt.Sprintf("ledger:%d", i)
		wg.Go(func() {
			if err := w.run(func() string { return *addr.Load() }, r, stop); err != nil {
				t.Error(err)
			}
		})
	}
	for range kills {
		time.Sleep(time.Duration(50+rng.Intn(300)) * time.Millisecond)
		d.signal(syscall.SIGKILL)
		d.wait()
		d = startDaemon(t, dir)
		at := d.ready["resp"]
		addr.Store(&at)
	}
	time.Sleep(100 * time.Millisecond)
	close(stop)
	wg.Wait()
	total := int64(0)
	for i := range tallies {
		w := &tallies[i]
		got := d.counter(w.key)
		if got < w.least || got > w.most || w.least == 0 {
			t.Errorf("%s is %d, acknowledged %d, at most %d", w.key, got, w.least, w.most)
		}
		total += w.least
	}
	d.check()
	t.Logf("%d kills, %d increments acknowledged", kills, total)
}

// failOver: a node is killed under load by gateways that stay. Errors tell what was not done
// and what nobody knows, and the counts fit.
func failOver(t *testing.T, f *fleet) {
	stop := make(chan struct{})
	tallies := make([]tally, 6)
	var wg sync.WaitGroup
	for i := range tallies {
		w, r := &tallies[i], rand.New(rand.NewSource(int64(i)))
		w.key = fmt.Sprintf("failover:%d", i)
		addr := f.node(i % 2).ready["resp"] // the third node goes
		wg.Go(func() {
			if err := w.run(func() string { return addr }, r, stop); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	f.node(2).signal(syscall.SIGKILL)
	f.node(2).wait()
	time.Sleep(4 * time.Second)
	close(stop)
	wg.Wait()
	told := 0
	for i := range tallies {
		w := &tallies[i]
		resp, err := f.node(0).counters.Get(testCtx(t), &pb.GetCounterRequest{
			Counter: &pb.CounterRef{Key: w.key}, Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.Counters[0].Value; got < w.least || got > w.most || w.connection > 0 || w.least == 0 {
			t.Errorf("%s is %d, acknowledged %d, at most %d; %d connections ended", w.key, got, w.least, w.most, w.connection)
		}
		told += w.told
	}
	t.Logf("%d unknown outcomes were told", told)
}
