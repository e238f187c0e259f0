package rediscache

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a redis-server of a test.
type server struct {
	t    testing.TB
	port int
	args []string
	cmd  *exec.Cmd
}

func (s *server) addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startServer starts a redis-server that ends with the test.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	s := &server{t: t, port: freePort(t)}
	s.args = append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir(),
	}, args...)
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1})
	defer c.Close()
	eventually(s.t, "redis-server answers", func() error { return c.Ping(context.Background()).Err() })
}

func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

func (s *server) pause()  { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *server) resume() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// client returns a client of the server; change may alter its options.
func (s *server) client(change ...func(*redis.UniversalOptions)) redis.UniversalClient {
	return newClient(s.t, redis.UniversalOptions{Addrs: []string{s.addr()}}, change...)
}

func newClient(t testing.TB, o redis.UniversalOptions, change ...func(*redis.UniversalOptions)) redis.UniversalClient {
	o = ReaderOptions(o)
	for _, f := range change {
		f(&o)
	}
	c := redis.NewUniversalClient(&o)
	t.Cleanup(func() { c.Close() })
	return c
}

func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// cluster is a Redis Cluster of three masters.
type cluster struct {
	servers []*server
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{}
	var bus []int
	for i := range 3 {
		b := freePort(t)
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(b), "--cluster-config-file", fmt.Sprintf("nodes-%d.conf", i), "--cluster-node-timeout", "2000")
		c.servers, bus = append(c.servers, s), append(bus, b)
	}
	ctx := context.Background()
	for i, s := range c.servers {
		one := redis.NewClient(&redis.Options{Addr: s.addr()})
		defer one.Close()
		must(t, one.ClusterAddSlotsRange(ctx, i*16384/3, (i+1)*16384/3-1).Err())
		for j, o := range c.servers {
			if j != i {
				must(t, one.Do(ctx, "cluster", "meet", "127.0.0.1", o.port, bus[j]).Err())
			}
		}
	}
	for _, s := range c.servers {
		one := redis.NewClient(&redis.Options{Addr: s.addr()})
		defer one.Close()
		eventually(t, "the cluster is whole", func() error {
			info, err := one.ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") || !strings.Contains(info, "cluster_size:3")) {
				err = fmt.Errorf("%s", info)
			}
			return err
		})
	}
	return c
}

func (c *cluster) options() redis.UniversalOptions {
	o := redis.UniversalOptions{IsClusterMode: true}
	for _, s := range c.servers {
		o.Addrs = append(o.Addrs, s.addr())
	}
	return o
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
