package main

import (
	"context"
	"fmt"
	"math/rand"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// redisCluster is a Redis Cluster whose masters are servers of a test.
type redisCluster struct {
	t       *testing.T
	servers []*redisServer
}

// startRedisNode starts a server that is in no cluster yet.
func startRedisNode(t *testing.T) *redisServer {
	t.Helper()
	_, bus, _ := strings.Cut(freeAddr(t), ":")
	return startRedis(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", "1500", "--cluster-require-full-coverage", "no")
}

// startRedisCluster starts three masters.
func startRedisCluster(t *testing.T) *redisCluster {
	t.Helper()
	return startRedisClusterOf(t, 3)
}

// startReplicatedRedisCluster starts three masters with a replica each.
func startReplicatedRedisCluster(t *testing.T) *redisCluster {
	t.Helper()
	return startRedisClusterOf(t, 6, "--cluster-replicas", "1")
}

func startRedisClusterOf(t *testing.T, servers int, how ...string) *redisCluster {
	t.Helper()
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Skip("redis-cli is not installed")
	}
	c := &redisCluster{t: t}
	args := []string{"create"}
	for range servers {
		s := startRedisNode(t)
		c.servers = append(c.servers, s)
		args = append(args, s.addr)
	}
	c.cli(append(args, how...)...)
	c.agree()
	return c
}

// cli runs a command of redis-cli --cluster.
func (c *redisCluster) cli(args ...string) {
	c.t.Helper()
	out, err := exec.Command("redis-cli", append(append([]string{"--cluster"}, args...), "--cluster-yes")...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("redis-cli --cluster %v: %v\n%s", args, err, out)
	}
}

// agree waits until all servers see all slots.
func (c *redisCluster) agree() {
	c.t.Helper()
	for _, s := range c.servers {
		one := s.client()
		waitFor(c.t, "the Redis Cluster is whole", func() bool {
			info, err := one.ClusterInfo(context.Background()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.servers)))
		})
		one.Close()
	}
}

// grow adds a master and gives it slots of the others.
func (c *redisCluster) grow() {
	c.t.Helper()
	s := startRedisNode(c.t)
	c.cli("add-node", s.addr, c.servers[0].addr)
	c.servers = append(c.servers, s)
	c.agree()
	one := s.client()
	defer one.Close()
	id, err := one.Do(context.Background(), "cluster", "myid").Text()
	if err != nil {
		c.t.Fatal(err)
	}
	c.cli("reshard", c.servers[0].addr, "--cluster-from", "all", "--cluster-to", id, "--cluster-slots", "2000")
}

func (c *redisCluster) addrs() string {
	var out []string
	for _, s := range c.servers {
		out = append(out, s.addr)
	}
	return strings.Join(out, ",")
}

func (c *redisCluster) hits() int {
	n := 0
	for _, s := range c.servers {
		if s.cmd != nil {
			n += s.stat("keyspace_hits")
		}
	}
	return n
}

// callers ask and write through gateways, each in its own part of the graph, and watch a
// counter that all of them raise.
type callers struct {
	t        *testing.T
	mu       sync.Mutex
	gateways []*daemon
	stop     chan struct{}
	done     sync.WaitGroup
	reads    atomic.Uint64

	raised []time.Time // when the counter's values were acknowledged, from 1 on
	begun  atomic.Int64
}

func (c *callers) use(d *daemon) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gateways = append(c.gateways, d)
}

func (c *callers) some(r *rand.Rand) []*daemon {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []*daemon{c.gateways[r.Intn(len(c.gateways))], c.gateways[r.Intn(len(c.gateways))]}
}

func (c *callers) running() bool {
	select {
	case <-c.stop:
		return false
	default:
		return !c.t.Failed()
	}
}

// start has callers work until end. Their calls fail the test, not the goroutine's own.
func (c *callers) start(seed int64) {
	c.stop = make(chan struct{})
	for i := range 3 {
		c.done.Go(func() {
			r, s := rand.New(rand.NewSource(seed+int64(i))), &seen{t: c.t, base: uint64(i+1) * 1000}
			for c.running() {
				ask(c.t, c.some(r), r, s, 50*time.Millisecond)
				c.reads.Add(1)
			}
		})
	}
	c.done.Go(func() { c.raise(rand.New(rand.NewSource(seed + 10))) })
	c.done.Go(func() { c.watch(rand.New(rand.NewSource(seed + 11))) })
}

func (c *callers) end() {
	c.t.Helper()
	close(c.stop)
	c.done.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// watched is the counter that grows by one at a time.
func watched() *pb.CounterRef { return &pb.CounterRef{Vertex: note(1), Metric: "shares"} }

func (c *callers) raise(r *rand.Rand) {
	for c.running() {
		c.begun.Add(1)
		if _, err := c.some(r)[0].counters.IncrBy(testCtx(c.t), &pb.IncrByRequest{Increment: &pb.Increment{Counter: watched(), Delta: 1}}); err != nil {
			c.t.Errorf("increment: %v", err)
			return
		}
		c.mu.Lock()
		c.raised = append(c.raised, time.Now())
		c.mu.Unlock()
		time.Sleep(time.Duration(r.Intn(20)) * time.Millisecond) // it is a rate, nothing is waited for
	}
}

// watch reads the counter without a token: it is at most a second old, and no value that it
// never had.
func (c *callers) watch(r *rand.Rand) {
	for c.running() {
		asked, least := time.Now(), int64(0)
		c.mu.Lock()
		for i, at := range c.raised {
			if asked.Sub(at) > time.Second {
				least = int64(i + 1)
			}
		}
		c.mu.Unlock()
		resp, err := c.some(r)[0].counters.Get(testCtx(c.t), &pb.GetCounterRequest{Counter: watched()})
		if err != nil {
			c.t.Errorf("read: %v", err)
			return
		}
		if got := resp.GetCounters()[0].GetValue(); got < least || got > c.begun.Load() {
			c.t.Errorf("the counter was read as %d; it was %d a second before, and is %d at most", got, least, c.begun.Load())
		}
	}
}

// The tiers grow and shrink apart, under load: gateways, Redis, storage. No answer is wrong,
// and no call fails.
func TestTiersScaleApart(t *testing.T) {
	rc := startRedisCluster(t)
	f := newFleetOf(t, 1, 1, "--redis", rc.addrs())
	join := func(role string) *daemon { return f.add("--join", f.places[0].peer, "--roles", role).daemon() }
	c := &callers{t: t, gateways: []*daemon{join("gateway"), join("gateway")}}
	c.start(time.Now().UnixNano())
	pass := func(what string) { // some load, with the cache in use
		t.Helper()
		reads, hits := c.reads.Load(), rc.hits()
		waitFor(t, "reads by Redis "+what, func() bool {
			return t.Failed() || c.reads.Load() > reads+40 && rc.hits() > hits+500
		})
	}
	pass("at the beginning")
	c.use(join("gateway"))
	pass("with one more gateway")
	rc.grow()
	pass("with one more Redis")
	rc.servers[1].kill()
	pass("with one Redis less")
	join("storage")
	pass("with more storage")
	f.settled()
	c.end()
	stats, err := c.gateways[0].cache.GetCacheStats(testCtx(t), &pb.GetCacheStatsRequest{})
	if err != nil || len(stats.GetUnanswered()) > 0 {
		t.Fatalf("%v, %v", stats, err)
	}
	for _, n := range stats.GetNodes() {
		for _, fig := range n.GetFigures() {
			if fig.GetTier() == "audit" && fig.GetName() == "wrong_total" && fig.GetValue() > 0 {
				t.Errorf("node %s: %v entries were not what the storage holds", n.GetNode(), fig.GetValue())
			}
		}
	}
}
