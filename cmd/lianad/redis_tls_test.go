package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// securedRedis makes servers that speak TLS only, ask for a certificate, and know a user.
type securedRedis struct {
	t    *testing.T
	a    *authority
	tls  redisTLSConfig
	pass string // file
}

const (
	redisUser   = "liana"
	redisSecret = "opensesame"
	// redisRights is what a user of Liana may do, as docs/cache.md has it.
	redisRights = "~l1:* resetchannels -@all +@read +@write +@scripting +@connection +cluster +role"
	// sentinelRights is what it may do at a sentinel.
	sentinelRights = "allchannels -@all +@connection +@pubsub +sentinel"
)

func newSecuredRedis(t *testing.T) *securedRedis {
	t.Helper()
	a := newAuthority(t)
	a.issue("redis", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	a.issue("client", &x509.Certificate{})
	return &securedRedis{
		t: t, a: a, pass: writeFile(t, "password", redisSecret+"\n"),
		tls: redisTLSConfig{Enabled: true, CA: a.file("ca.pem"), Cert: a.file("client.pem"), Key: a.file("client.key")},
	}
}

// start starts a server, with more lines in its configuration.
func (r *securedRedis) start(rights string, args []string, lines ...string) *redisServer {
	r.t.Helper()
	s := newRedisServer(r.t)
	_, port, _ := net.SplitHostPort(s.addr)
	lines = append(lines, "port 0", "tls-port "+port, "bind 127.0.0.1", `save ""`, "dir "+r.t.TempDir(), "tls-replication yes",
		"tls-cert-file "+r.a.file("redis.pem"), "tls-key-file "+r.a.file("redis.key"), "tls-ca-cert-file "+r.a.file("ca.pem"),
		"user default on >"+redisSecret+" ~* &* +@all", fmt.Sprintf("user %s on >%s %s", redisUser, redisSecret, rights))
	conf := filepath.Join(r.t.TempDir(), "redis.conf")
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	s.args = append([]string{conf}, args...)
	tls, err := r.tls.read()
	if err != nil {
		r.t.Fatal(err)
	}
	s.options = redis.Options{TLSConfig: tls, Password: redisSecret}
	s.start()
	return s
}

// config is a configuration file of a node that uses it.
func (r *securedRedis) config(c redisConfig) string {
	r.t.Helper()
	return writeFile(r.t, "liana.yaml", fmt.Sprintf(`redis:
  addrs: %s
  sentinel_master: %q
  username: %s
  password_file: %s
  sentinel_username: %q
  sentinel_password_file: %q
  tls: {enabled: %t, ca: %q, cert: %q, key: %q}
`, c.Addrs, c.SentinelMaster, c.Username, c.PasswordFile, c.SentinelUsername, c.SentinelPasswordFile, c.TLS.Enabled, c.TLS.CA, c.TLS.Cert, c.TLS.Key))
}

// A Redis is used over TLS, by a user that may do no more than is needed. What is wrong with
// the way there leaves the node without a cache and fails no call.
func TestARedisWithTLSAndAUser(t *testing.T) {
	r := newSecuredRedis(t)
	s := r.start(redisRights, nil)
	good := redisConfig{Addrs: s.addr, Username: redisUser, PasswordFile: r.pass, TLS: r.tls}
	for name, c := range map[string]struct {
		change func(*redisConfig)
		used   bool
	}{
		"as it should be":       {func(*redisConfig) {}, true},
		"another password":      {func(c *redisConfig) { c.PasswordFile = writeFile(t, "other", "guess\n") }, false},
		"no certificate":        {func(c *redisConfig) { c.TLS.Cert, c.TLS.Key = "", "" }, false},
		"an authority unknown":  {func(c *redisConfig) { c.TLS.CA = newAuthority(t).file("ca.pem") }, false},
		"in the clear":          {func(c *redisConfig) { c.TLS = redisTLSConfig{} }, false},
		"the user of all nodes": {func(c *redisConfig) { c.Username = "" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			conf := good
			c.change(&conf)
			d := startDaemon(t, t.TempDir(), "--config", r.config(conf))
			rng, all := rand.New(rand.NewSource(3)), &seen{t: t}
			some := func() { ask(t, []*daemon{d}, rng, all, 300*time.Millisecond) }
			some()
			if !c.used {
				some()
				if hits := d.figure("redis", "hits_total", ""); hits > 0 {
					t.Errorf("%v hits", hits)
				}
				waitFor(t, "the log tells of it", func() bool { return strings.Contains(d.stderr.String(), "changes do not come to Redis") })
			} else {
				waitFor(t, "Redis answers", func() bool {
					some()
					return d.figure("redis", "hits_total", "") > 20
				})
				if faults := d.figure("feeder", "faults_total", ""); faults > 0 {
					t.Errorf("%v calls of the feeder failed:\n%s", faults, d.stderr)
				}
			}
			d.signal(syscall.SIGTERM)
			d.wantEnd(exitOK)
			if strings.Contains(d.stderr.String(), redisSecret) {
				t.Error("the log holds the password")
			}
		})
	}
}

// Sentinels are asked over TLS, by a user of their own, where the master is, and again when
// it has failed over.
func TestARedisBehindSentinelsWithTLS(t *testing.T) {
	r := newSecuredRedis(t)
	repl := []string{"masterauth " + redisSecret, "repl-diskless-sync-delay 0"}
	master := r.start(redisRights, nil, repl...)
	_, port, _ := net.SplitHostPort(master.addr)
	r.start(redisRights, nil, append(repl, "replicaof 127.0.0.1 "+port)...)
	c := redisConfig{SentinelMaster: "liana", Username: redisUser, PasswordFile: r.pass, SentinelUsername: redisUser, SentinelPasswordFile: r.pass, TLS: r.tls}
	var sentinels []*redisServer
	for range 3 {
		s := r.start(sentinelRights, []string{"--sentinel"}, "sentinel monitor liana 127.0.0.1 "+port+" 2", "sentinel auth-pass liana "+redisSecret,
			"sentinel sentinel-pass "+redisSecret, "sentinel down-after-milliseconds liana 500", "sentinel failover-timeout liana 3000")
		sentinels = append(sentinels, s)
		c.Addrs = strings.TrimPrefix(c.Addrs+","+s.addr, ",")
	}
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: sentinels[0].addr, TLSConfig: master.options.TLSConfig, Password: redisSecret})
	defer sentinel.Close()
	waitFor(t, "the sentinels know each other and the replica", func() bool {
		replicas, err := sentinel.Replicas(context.Background(), "liana").Result()
		others, other := sentinel.Sentinels(context.Background(), "liana").Result()
		return err == nil && other == nil && len(others) == 2 && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
	d := startDaemon(t, t.TempDir(), "--config", r.config(c))
	rng, all := rand.New(rand.NewSource(4)), &seen{t: t}
	used := func(when string) {
		t.Helper()
		from := d.figure("redis", "hits_total", "")
		waitFor(t, "Redis answers "+when, func() bool {
			ask(t, []*daemon{d}, rng, all, 200*time.Millisecond)
			return d.figure("redis", "hits_total", "") > from+20
		})
	}
	used("at first")
	master.kill()
	used("after the failover")
}
