package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
)

// redisConfig says where the Redis is that reads are cached in. Passwords are in files or
// in the environment, never here.
type redisConfig struct {
	// Addrs are host:port, with commas between: one server, several nodes of a Redis
	// Cluster, or the sentinels of SentinelMaster. Empty: there is no cache.
	Addrs string `yaml:"addrs"`
	// SentinelMaster is the name under which sentinels know the servers.
	SentinelMaster string `yaml:"sentinel_master"`
	// Cluster says that a single address is one of a Redis Cluster.
	Cluster bool `yaml:"cluster"`
	// Database is the number of the database; a Redis Cluster has only 0.
	Database int `yaml:"database"`
	// Username and the password of the file are those of an ACL.
	Username             string `yaml:"username"`
	PasswordFile         string `yaml:"password_file"`
	SentinelUsername     string `yaml:"sentinel_username"`
	SentinelPasswordFile string `yaml:"sentinel_password_file"`

	TLS redisTLSConfig `yaml:"tls"`
}

// redisTLSConfig names PEM files.
type redisTLSConfig struct {
	Enabled bool   `yaml:"enabled"`
	CA      string `yaml:"ca"`   // empty: the system's authorities
	Cert    string `yaml:"cert"` // with Key, where Redis asks for a certificate
	Key     string `yaml:"key"`
}

// cacheConfig bounds the caches before the storage. It counts where there is a Redis.
type cacheConfig struct {
	// Staleness is how old an answer may be that no token asks to be newer.
	Staleness time.Duration `yaml:"staleness"`
	// HotBytes bounds the copies of the most read entries in the process' memory.
	HotBytes uint64 `yaml:"hot_bytes"`
	// TTL is how long Redis keeps what is not read again.
	TTL time.Duration `yaml:"ttl"`
	// RedisTimeout bounds the wait for Redis in each step of a read.
	RedisTimeout time.Duration `yaml:"redis_timeout"`
	// FeedTimeout bounds the wait for Redis of a node that brings changes there.
	FeedTimeout time.Duration  `yaml:"feed_timeout"`
	Rebuilds    rebuildsConfig `yaml:"rebuilds"`
}

// rebuildsConfig bounds how often one entry is loaded from the storage to be cached.
type rebuildsConfig struct {
	// Loads is how often in any Window.
	Loads  int           `yaml:"loads"`
	Window time.Duration `yaml:"window"`
	// LeastPause and MostPause are the pauses of an entry that is wanted more often; each
	// is twice the one before.
	LeastPause time.Duration `yaml:"least_pause"`
	MostPause  time.Duration `yaml:"most_pause"`
}

func (r rebuildsConfig) limits() cache.RebuildLimits {
	return cache.RebuildLimits{Loads: r.Loads, Window: r.Window, Least: r.LeastPause, Most: r.MostPause}
}

func cacheDefaults() cacheConfig {
	l := cache.DefaultRebuildLimits()
	return cacheConfig{
		Staleness: time.Second, HotBytes: 64 << 20, TTL: time.Hour, RedisTimeout: 25 * time.Millisecond, FeedTimeout: 500 * time.Millisecond,
		Rebuilds: rebuildsConfig{Loads: l.Loads, Window: l.Window, LeastPause: l.Least, MostPause: l.Most},
	}
}

// Environment variables that hold passwords, where no file is named.
const (
	redisPasswordEnv    = "LIANA_REDIS_PASSWORD"
	sentinelPasswordEnv = "LIANA_REDIS_SENTINEL_PASSWORD"
)

func (c redisConfig) addrs() []string { return strings.Split(c.Addrs, ",") }

func (c redisConfig) validate() error {
	if c.Addrs == "" {
		if c != (redisConfig{}) {
			return errors.New("redis.addrs: is empty, but other settings of redis are not; name the servers, or leave all out")
		}
		return nil
	}
	var errs []error
	for _, addr := range c.addrs() {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			errs = append(errs, fmt.Errorf("redis.addrs: %q is not host:port, such as 127.0.0.1:6379", addr))
		}
	}
	if c.SentinelMaster != "" && c.Cluster {
		errs = append(errs, errors.New("redis.cluster: a Redis Cluster has no sentinels; leave out cluster or sentinel_master"))
	}
	isCluster := c.Cluster || c.SentinelMaster == "" && len(c.addrs()) > 1
	if c.Database < 0 || isCluster && c.Database != 0 {
		errs = append(errs, fmt.Errorf("redis.database: %d (allowed: 0 or more; only 0 in a Redis Cluster, which several addresses are)", c.Database))
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		errs = append(errs, errors.New("redis.tls: cert and key belong together: name both, or none"))
	}
	if !c.TLS.Enabled && c.TLS != (redisTLSConfig{}) {
		errs = append(errs, errors.New("redis.tls.enabled: is false, but files are named; set it to true, or leave them out"))
	}
	return errors.Join(errs...)
}

func (c cacheConfig) validate() error {
	var errs []error
	bound := func(field string, d, least, most time.Duration) {
		if d < least || d > most {
			errs = append(errs, fmt.Errorf("cache.%s: %v (allowed: %v to %v)", field, d, least, most))
		}
	}
	bound("staleness", c.Staleness, 100*time.Millisecond, time.Minute)
	bound("ttl", c.TTL, time.Minute, 30*24*time.Hour)
	bound("redis_timeout", c.RedisTimeout, time.Millisecond, time.Second)
	bound("feed_timeout", c.FeedTimeout, 10*time.Millisecond, 10*time.Second)
	bound("rebuilds.window", c.Rebuilds.Window, time.Millisecond, time.Hour)
	bound("rebuilds.least_pause", c.Rebuilds.LeastPause, time.Millisecond, time.Hour)
	bound("rebuilds.most_pause", c.Rebuilds.MostPause, c.Rebuilds.LeastPause, time.Hour)
	if c.Rebuilds.Loads < 1 || c.Rebuilds.Loads > 1000 {
		errs = append(errs, fmt.Errorf("cache.rebuilds.loads: %d (allowed: 1 to 1000)", c.Rebuilds.Loads))
	}
	if c.HotBytes < 1<<20 || c.HotBytes > 1<<40 {
		errs = append(errs, fmt.Errorf("cache.hot_bytes: %d (allowed: %d to %d)", c.HotBytes, 1<<20, 1<<40))
	}
	return errors.Join(errs...)
}

// options are how the servers are reached.
func (c redisConfig) options() (redis.UniversalOptions, error) {
	o := redis.UniversalOptions{
		Addrs: c.addrs(), MasterName: c.SentinelMaster, IsClusterMode: c.Cluster, DB: c.Database,
		Username: c.Username, SentinelUsername: c.SentinelUsername, ClientName: "liana",
		DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
	}
	var err error
	if o.Password, err = secret("redis.password_file", c.PasswordFile, redisPasswordEnv); err != nil {
		return o, err
	}
	if o.SentinelPassword, err = secret("redis.sentinel_password_file", c.SentinelPasswordFile, sentinelPasswordEnv); err != nil {
		return o, err
	}
	o.TLSConfig, err = c.TLS.read()
	return o, err
}

// secret is the first line of a file, or what the environment holds.
func secret(field, path, env string) (string, error) {
	if path == "" {
		return os.Getenv(env), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", usageError{fmt.Errorf("%s: %w", field, err)}
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", usageError{fmt.Errorf("%s: the first line of %s is empty", field, path)}
	}
	return line, nil
}

func (c redisTLSConfig) read() (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, usageError{fmt.Errorf("redis.tls.ca: %w", err)}
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usageError{fmt.Errorf("redis.tls.ca: %s holds no certificate", c.CA)}
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, usageError{fmt.Errorf("redis.tls: %w", err)}
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// redisLog takes what the client of Redis says, which is about connections: what fails
// shows in the figures of the cache.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug("redis client", "says", fmt.Sprintf(format, args...))
}
