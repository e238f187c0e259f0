package main

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a redis-server of a test.
type redisServer struct {
	t    *testing.T
	addr string
	args []string
	cmd  *exec.Cmd
	// options are how the test reaches it.
	options redis.Options
}

// startRedis starts a redis-server that ends with the test.
func startRedis(t *testing.T, args ...string) *redisServer {
	t.Helper()
	s := newRedisServer(t)
	_, port, _ := net.SplitHostPort(s.addr)
	s.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()}, args...)
	s.start()
	return s
}

// newRedisServer is a server that is to be started, on an address of its own.
func newRedisServer(t *testing.T) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	s := &redisServer{t: t, addr: freeAddr(t)}
	t.Cleanup(s.kill)
	return s
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *redisServer) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := s.client()
	defer c.Close()
	for end := time.Now().Add(20 * time.Second); c.Ping(context.Background()).Err() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("redis-server does not answer")
		}
	}
}

func (s *redisServer) client() *redis.Client {
	o := s.options
	o.Addr, o.MaxRetries = s.addr, -1
	return redis.NewClient(&o)
}

func (s *redisServer) kill() {
	if s.cmd == nil {
		return
	}
	s.resume()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

func (s *redisServer) pause()  { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *redisServer) resume() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// stat is a number of INFO.
func (s *redisServer) stat(name string) int {
	s.t.Helper()
	c := s.client()
	defer c.Close()
	v := c.InfoMap(context.Background(), "stats").Item("Stats", name)
	n, err := strconv.Atoi(v)
	if err != nil {
		s.t.Fatalf("%s of redis: %q", name, v)
	}
	return n
}
