package target

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pipelineDepth is how many commands are under way on a connection in the batch
// forms of Redis.
const pipelineDepth = 50

// redisMode says what a like is in Redis and what survives a crash.
type redisMode struct {
	fsync  bool // append-only file, synced before each answer; else nothing on disk
	bitmap bool // one bitmap a note (dense ids only) instead of one set a user
	lists  bool // sorted sets by time on both sides too
}

type redisServer struct {
	name    string
	dir     string
	mode    redisMode
	binary  string
	version string
	addr    string
	proc    *process
	script  redisScripts
}

// redisScripts are the SHA1 names of the loaded scripts.
type redisScripts struct {
	add, del, update string
}

func startRedis(ctx context.Context, name, dir string, mode redisMode) (Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server is not installed: %w", err)
	}
	version, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("ask redis-server for its version: %w", err)
	}
	r := &redisServer{name: name, dir: dir, mode: mode, binary: binary, version: firstWords(string(version), 3)}
	if err := r.Restart(ctx); err != nil {
		return nil, err
	}
	if err := r.loadScripts(ctx); err != nil {
		_ = r.Stop()
		return nil, err
	}
	return r, nil
}

// args are the server's arguments. Nothing is rewritten or dumped behind the
// measurement's back.
func (r *redisServer) args(port int) []string {
	args := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", r.dir,
		"--save", "", "--auto-aof-rewrite-percentage", "0", "--loglevel", "warning", "--daemonize", "no"}
	if r.mode.fsync {
		return append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	return append(args, "--appendonly", "no")
}

func (r *redisServer) Restart(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	r.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if r.proc, err = startProcess(r.binary, r.args(port), nil, nil); err != nil {
		return err
	}
	return r.reachable(ctx)
}

// reachable waits until the port answers; that may be long before data is loaded.
func (r *redisServer) reachable(ctx context.Context) error {
	for {
		c, err := dialRESP(ctx, r.addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-r.proc.exited:
			return fmt.Errorf("redis-server ended: %s", r.proc.out)
		case <-ctx.Done():
			return fmt.Errorf("redis-server is not reachable: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (r *redisServer) loadScripts(ctx context.Context) error {
	c, err := dialRESP(ctx, r.addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	add, del, update := r.mode.scripts()
	for text, sha := range map[string]*string{add: &r.script.add, del: &r.script.del, update: &r.script.update} {
		if *sha, err = c.call(ctx, "SCRIPT", "LOAD", text); err != nil {
			return fmt.Errorf("load a script: %w", err)
		}
	}
	return nil
}

func (r *redisServer) Name() string { return r.name }

func (r *redisServer) Facts() []string {
	durability := "appendonly no"
	if r.mode.fsync {
		durability = "appendonly yes, appendfsync always"
	}
	form := "a like: one script of SISMEMBER, SADD (set of the user), INCR (count of the note)"
	if r.mode.bitmap {
		form = "a like: one script of SETBIT (bitmap of the note), INCR (count of the note)"
	}
	if r.mode.lists {
		form += ", ZADD on both sides"
	}
	return []string{r.version, durability, form}
}

func (r *redisServer) PIDs() []int { return []int{r.proc.pid()} }

func (r *redisServer) Crash() error {
	r.proc.kill()
	return nil
}

func (r *redisServer) Stop() error { return r.proc.stop(syscall.SIGTERM, 20*time.Second) }

func (r *redisServer) Session(ctx context.Context) (Session, error) {
	c, err := dialRESP(ctx, r.addr)
	if err != nil {
		return nil, err
	}
	return &redisSession{conn: c, mode: r.mode, script: r.script}, nil
}

// DiskUsage rewrites the append-only file and returns its size. Without one,
// there is nothing on disk.
func (r *redisServer) DiskUsage(ctx context.Context) ([]DiskPart, error) {
	c, err := dialRESP(ctx, r.addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if r.mode.fsync {
		if err := rewriteAOF(ctx, c); err != nil {
			return nil, err
		}
	}
	size, err := dirBytes(filepath.Join(r.dir, "appendonlydir"))
	if err != nil {
		return nil, err
	}
	return []DiskPart{{Name: "append-only file, rewritten", Bytes: size}}, nil
}

func rewriteAOF(ctx context.Context, c *respConn) error {
	if _, err := c.call(ctx, "BGREWRITEAOF"); err != nil {
		return fmt.Errorf("rewrite the append-only file: %w", err)
	}
	for {
		info, err := c.call(ctx, "INFO", "persistence")
		if err != nil {
			return err
		}
		if strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// firstWords returns the first n words of s.
func firstWords(s string, n int) string {
	words := strings.Fields(s)
	return strings.Join(words[:min(n, len(words))], " ")
}
