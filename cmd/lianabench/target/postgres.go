package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

type postgresServer struct {
	dir     string // holds data/, owned by account
	lists   bool
	bin     string // directory of the programs
	version string
	account *syscall.Credential
	port    int
	proc    *process
}

// postgresSettings are what differs from the defaults: room for the callers and
// a working set in memory. Every commit is synced, as by default.
func postgresSettings() []string {
	return []string{"fsync=on", "synchronous_commit=on", "shared_buffers=512MB", "max_connections=300",
		"max_wal_size=4GB", "listen_addresses=127.0.0.1", "unix_socket_directories="}
}

// postgresTables: the unique key is the fact, the counts are kept beside it in
// the same statement.
const postgresTables = `
CREATE TABLE likes (user_id bigint NOT NULL, note_id bigint NOT NULL, created_at timestamptz NOT NULL,
	PRIMARY KEY (user_id, note_id));
CREATE TABLE note_counts (note_id bigint PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50);`

// postgresLists are the indexes that pages by time need, one a side.
const postgresLists = `
CREATE INDEX likes_by_user ON likes (user_id, created_at DESC, note_id);
CREATE INDEX likes_by_note ON likes (note_id, created_at DESC, user_id);`

func startPostgres(ctx context.Context, dir string, lists bool) (Server, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("ask postgres for its version: %w", err)
	}
	account, err := unprivileged("postgres", "nobody")
	if err != nil {
		return nil, err
	}
	p := &postgresServer{dir: dir, lists: lists, bin: bin, account: account, version: strings.TrimSpace(string(version))}
	if err := p.initialise(ctx); err != nil {
		return nil, err
	}
	if err := p.Restart(ctx); err != nil {
		return nil, err
	}
	if err := p.createTables(ctx); err != nil {
		_ = p.Stop()
		return nil, err
	}
	return p, nil
}

// postgresBin finds the directory of initdb and postgres: distributions keep
// it out of PATH.
func postgresBin() (string, error) {
	if config, err := exec.LookPath("pg_config"); err == nil {
		if out, err := exec.Command(config, "--bindir").Output(); err == nil {
			dir := strings.TrimSpace(string(out))
			if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
				return dir, nil
			}
		}
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	if initdb, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(initdb), nil
	}
	return "", errors.New("PostgreSQL is not installed: initdb not found")
}

func (p *postgresServer) data() string { return filepath.Join(p.dir, "data") }

// initialise makes the data directory, as the account that the server runs under.
func (p *postgresServer) initialise(ctx context.Context) error {
	if err := os.Mkdir(p.data(), 0o700); err != nil {
		return err
	}
	if p.account != nil {
		if err := os.Chown(p.data(), int(p.account.Uid), int(p.account.Gid)); err != nil {
			return err
		}
	}
	initdb, err := startProcess(filepath.Join(p.bin, "initdb"),
		[]string{"-D", p.data(), "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"}, p.account, nil)
	if err != nil {
		return err
	}
	select {
	case <-initdb.exited:
	case <-ctx.Done():
		initdb.kill()
		return ctx.Err()
	}
	if !initdb.cmd.ProcessState.Success() {
		return fmt.Errorf("initdb failed: %s", initdb.out)
	}
	return nil
}

func (p *postgresServer) Restart(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	p.port = port
	args := []string{"-D", p.data(), "-p", strconv.Itoa(port)}
	for _, s := range postgresSettings() {
		args = append(args, "-c", s)
	}
	p.proc, err = startProcess(filepath.Join(p.bin, "postgres"), args, p.account, nil)
	return err
}

func (p *postgresServer) createTables(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		conn, err := p.connect(ctx)
		if err == nil {
			defer func() { _ = conn.Close(ctx) }()
			tables := postgresTables
			if p.lists {
				tables += postgresLists
			}
			_, err = conn.Exec(ctx, tables)
			return err
		}
		select {
		case <-p.proc.exited:
			return fmt.Errorf("postgres ended: %s", p.proc.out)
		case <-ctx.Done():
			return fmt.Errorf("postgres is not reachable: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *postgresServer) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, fmt.Sprintf("postgres://bench@127.0.0.1:%d/postgres?sslmode=disable", p.port))
}

func (p *postgresServer) Name() string { return "postgres" }

func (p *postgresServer) Facts() []string {
	form := "a like: INSERT … ON CONFLICT DO NOTHING with the count's update in one statement, prepared"
	if p.lists {
		form += "; an index by time on both sides"
	}
	return []string{p.version, strings.Join(postgresSettings()[:5], ", "), form}
}

func (p *postgresServer) PIDs() []int { return []int{p.proc.pid()} }

// Crash kills the first process; the others see its end and leave.
func (p *postgresServer) Crash() error {
	children := childProcesses(p.proc.pid())
	p.proc.kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return nil
}

// Stop ends the server in its fast way: sessions are cut, data is safe.
func (p *postgresServer) Stop() error { return p.proc.stop(syscall.SIGINT, 60*time.Second) }

func (p *postgresServer) Session(ctx context.Context) (Session, error) {
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	return newPostgresSession(ctx, conn, p.lists)
}

// DiskUsage vacuums fully and returns the size of tables and indexes.
func (p *postgresServer) DiskUsage(ctx context.Context) ([]DiskPart, error) {
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "VACUUM (FULL, ANALYZE) likes"); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "VACUUM (FULL, ANALYZE) note_counts"); err != nil {
		return nil, err
	}
	var parts []DiskPart
	for _, q := range []struct{ name, sql string }{
		{"likes", "SELECT pg_table_size('likes')"},
		{"likes, indexes", "SELECT pg_indexes_size('likes')"},
		{"counts", "SELECT pg_total_relation_size('note_counts')"},
	} {
		var bytes int64
		if err := conn.QueryRow(ctx, q.sql).Scan(&bytes); err != nil {
			return nil, err
		}
		parts = append(parts, DiskPart{Name: q.name, Bytes: uint64(bytes)})
	}
	return parts, nil
}

// childProcesses returns the ids of the direct children of a process.
func childProcesses(pid int) []int {
	var children []int
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range threads {
		list, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(list)) {
			if child, err := strconv.Atoi(word); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
