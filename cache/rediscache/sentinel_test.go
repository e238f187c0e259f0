package rediscache

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

const sentinelMaster = "liana"

// startSentinels starts a master, its replica and three sentinels that watch them.
func startSentinels(t *testing.T) (pair [2]*server, o redis.UniversalOptions) {
	t.Helper()
	pair[0] = startServer(t)
	pair[1] = startServer(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(pair[0].port), "--repl-diskless-sync-delay", "0")
	o.MasterName = sentinelMaster
	for range 3 {
		s := &server{t: t, port: freePort(t)}
		dir := t.TempDir()
		conf := filepath.Join(dir, "sentinel.conf")
		must(t, os.WriteFile(conf, fmt.Appendf(nil, `port %d
bind 127.0.0.1
dir %s
sentinel monitor %s 127.0.0.1 %d 2
sentinel down-after-milliseconds %s 500
sentinel failover-timeout %s 3000
`, s.port, dir, sentinelMaster, pair[0].port, sentinelMaster, sentinelMaster), 0o600))
		s.args = []string{conf, "--sentinel"}
		s.start()
		t.Cleanup(s.kill)
		o.Addrs = append(o.Addrs, s.addr())
	}
	watch := redis.NewSentinelClient(&redis.Options{Addr: o.Addrs[0]})
	t.Cleanup(func() { watch.Close() })
	eventually(t, "the sentinels know each other and the replica", func() error {
		replicas, err := watch.Replicas(context.Background(), sentinelMaster).Result()
		if err != nil {
			return err
		}
		others, err := watch.Sentinels(context.Background(), sentinelMaster).Result()
		if err == nil && (len(replicas) != 1 || replicas[0]["master-link-status"] != "ok" || len(others) != 2) {
			err = fmt.Errorf("%d replicas, %d other sentinels", len(replicas), len(others))
		}
		return err
	})
	return pair, o
}

// isMaster reports whether the sentinels have made a server the master.
func isMaster(s *server, o redis.UniversalOptions) error {
	watch := redis.NewSentinelClient(&redis.Options{Addr: o.Addrs[1]})
	defer watch.Close()
	at, err := watch.GetMasterAddrByName(context.Background(), sentinelMaster).Result()
	if err == nil && net.JoinHostPort(at[0], at[1]) != s.addr() {
		err = fmt.Errorf("the master is %v", at)
	}
	return err
}

// Sentinel replaces a master that hangs, which comes back as the master it was and is
// told that it is none, and then one that dies. No answer is wrong on the way, and
// Redis is used again after each.
func TestOracleOnSentinelFailovers(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	pair, opts := startSentinels(t)
	dial := func(change ...func(*redis.UniversalOptions)) redis.UniversalClient {
		return newClient(t, opts, change...)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running, clients sync.WaitGroup
	defer running.Wait()
	defer stop()
	o := startOracle(t, ctx, &running, dial)
	working, end := context.WithCancel(ctx)
	defer clients.Wait()
	defer end()
	for i := range uint64(4) {
		clients.Go(func() { o.client(working, i) })
	}
	used := func(what string) {
		t.Helper()
		from := make([]uint64, len(o.tiers))
		for i, tier := range o.tiers {
			from[i] = tier.Stats().Hits.Load()
		}
		eventually(t, what, func() error {
			for i, tier := range o.tiers {
				if n := tier.Stats().Hits.Load() - from[i]; n < 50 {
					return fmt.Errorf("gateway %d: %d hits", i, n)
				}
			}
			return nil
		})
	}
	used("Redis is used")
	pair[0].pause()
	eventually(t, "the replica is made master", func() error { return isMaster(pair[1], opts) })
	used("Redis is used after the failover")
	pair[0].resume()
	old := pair[0].client()
	eventually(t, "the old master is made a replica", func() error {
		role, err := old.Do(ctx, "role").Slice()
		if err == nil && (role[0] != "slave" || role[3] != "connected") {
			err = fmt.Errorf("it is %v", role)
		}
		return err
	})
	used("Redis is used with the old master back")
	pair[1].kill()
	eventually(t, "the old master is made master again", func() error { return isMaster(pair[0], opts) })
	used("Redis is used after the second failover")
	end()
	clients.Wait()
	if t.Failed() {
		return
	}
	o.atRest(ctx, dial())
	if _, _, failed, _ := o.sums(); failed == 0 {
		t.Error("the test did not test what it was made for")
	}
}
