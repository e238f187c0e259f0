package main

import (
	"errors"
	"strings"
	"testing"
)

func TestMistakesInTheConfigurationOfRedis(t *testing.T) {
	good := defaults()
	good.Redis.Addrs = "127.0.0.1:6379"
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(c *config){
		`redis.addrs: "localhost" is not host:port`:    func(c *config) { c.Redis.Addrs = "127.0.0.1:1,localhost" },
		"redis.addrs: is empty, but":                   func(c *config) { c.Redis.Addrs, c.Redis.Username = "", "u" },
		"redis.cluster: a Redis Cluster has no":        func(c *config) { c.Redis.Cluster, c.Redis.SentinelMaster = true, "m" },
		"redis.database: 3 (allowed":                   func(c *config) { c.Redis.Addrs, c.Redis.Database = "a:1,b:1", 3 },
		"redis.tls: cert and key belong together":      func(c *config) { c.Redis.TLS = redisTLSConfig{Enabled: true, Cert: "c"} },
		"redis.tls.enabled: is false, but":             func(c *config) { c.Redis.TLS.CA = "ca.pem" },
		"cache.staleness: 1ms (allowed: 100ms to 1m":   func(c *config) { c.Cache.Staleness = 1e6 },
		"cache.ttl: 1s (allowed":                       func(c *config) { c.Cache.TTL = 1e9 },
		"cache.redis_timeout: 0s (allowed":             func(c *config) { c.Cache.RedisTimeout = 0 },
		"cache.feed_timeout: 1m0s (allowed":            func(c *config) { c.Cache.FeedTimeout = 60e9 },
		"cache.rebuilds.loads: 0 (allowed":             func(c *config) { c.Cache.Rebuilds.Loads = 0 },
		"cache.rebuilds.window: 0s (allowed":           func(c *config) { c.Cache.Rebuilds.Window = 0 },
		"cache.rebuilds.most_pause: 1ms (allowed: 500": func(c *config) { c.Cache.Rebuilds.MostPause = 1e6 },
		"cache.hot_bytes: 5 (allowed: 1048576 to 1099": func(c *config) { c.Cache.HotBytes = 5 },
	} {
		c := good
		change(&c)
		if err := c.validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// Passwords come from files or the environment, and the configuration shows neither.
func TestThePasswordOfRedis(t *testing.T) {
	t.Setenv(redisPasswordEnv, "from-env")
	c := redisConfig{Addrs: "127.0.0.1:1"}
	o, err := c.options()
	if err != nil || o.Password != "from-env" {
		t.Errorf("%q, %v", o.Password, err)
	}
	c.PasswordFile = writeFile(t, "password", "from file\r\nsecond line\n")
	if o, err = c.options(); err != nil || o.Password != "from file" {
		t.Errorf("%q, %v", o.Password, err)
	}
	c.PasswordFile = writeFile(t, "password", "\n")
	var usage usageError
	if _, err = c.options(); !errors.As(err, &usage) || !strings.Contains(err.Error(), "redis.password_file: the first line") {
		t.Errorf("an empty file: %v", err)
	}
	code, out, _ := silent("config", "--redis", "127.0.0.1:1")
	if code != exitOK || strings.Contains(out, "from-env") || !strings.Contains(out, "addrs: 127.0.0.1:1") {
		t.Errorf("code %d:\n%s", code, out)
	}
}
