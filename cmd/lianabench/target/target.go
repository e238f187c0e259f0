// Package target holds the systems under test: Liana, Redis and PostgreSQL,
// each as a private server that is started on 127.0.0.1 in a directory of its
// own and stopped with it, behind one small interface. A running Liana can be
// named instead; then nothing is started or stopped.
package target

import (
	"context"
	"fmt"
	"time"

	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// Server is a system under test that runs.
type Server interface {
	Name() string
	// Facts are lines for the report: version, configuration that matters.
	Facts() []string
	// Session opens what one caller needs. Sessions are independent.
	Session(ctx context.Context) (Session, error)
	// PIDs are the server's first processes; none where they are not ours to look at.
	PIDs() []int
	// Crash ends the server as kill -9 does. Sessions are broken after it.
	Crash() error
	// Restart starts the server again on its data, after Crash or Stop, and
	// returns once its process runs; whether it serves is for sessions to find out.
	Restart(ctx context.Context) error
	// DiskUsage brings the data on disk into its settled form (compaction,
	// vacuum, log rewrite) and returns the parts it takes. The server may be
	// stopped for it and runs again afterwards.
	DiskUsage(ctx context.Context) ([]DiskPart, error)
	// Stop ends the server and waits for it. It may be called twice.
	Stop() error
}

// DiskPart is a part of the space on disk, in bytes.
type DiskPart struct {
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"`
	// Apart parts are shown and not summed: what a deployment may switch off
	// or bound by itself.
	Apart bool `json:"apart,omitempty"`
}

// Session is a caller's connection. It is used by one goroutine.
type Session interface {
	// AddEdge stores a like; false where it was there already.
	AddEdge(ctx context.Context, e workload.Edge) (bool, error)
	// AddEdges stores likes, each durable when it returns, in the fastest way the
	// system has for that; it returns how many are new.
	AddEdges(ctx context.Context, edges []workload.Edge) (int, error)
	// DeleteEdge and UpdateEdge (a new time) are false where there is no such edge.
	DeleteEdge(ctx context.Context, e workload.Edge) (bool, error)
	UpdateEdge(ctx context.Context, e workload.Edge) (bool, error)
	// HasEdges fills exists, one for each of dsts.
	HasEdges(ctx context.Context, src uint64, dsts []uint64, exists []bool) error
	// CountEdges fills counts, one for each of ids: likes of notes (in) or of users.
	CountEdges(ctx context.Context, in bool, ids []uint64, counts []uint64) error
	// ListNewest appends to page up to limit edges of a list, newest first,
	// after passing over skip.
	ListNewest(ctx context.Context, l List, skip, limit int, page []Peer) ([]Peer, error)
	// CountWindow counts the edges of a list with since <= time < until.
	CountWindow(ctx context.Context, l List, since, until int64) (uint64, error)
	Close() error
}

// List names an edge list: the likes that a note got (In) or a user gave.
type List struct {
	Vertex uint64
	In     bool
}

// Peer is the far end of an edge of a list. Time is in microseconds since 1970.
type Peer struct {
	ID   uint64
	Time int64
}

// Options say how a server is started.
type Options struct {
	// Lists asks for lists by time; systems that do not keep them anyway then
	// keep a further structure. Without it, listing is an error.
	Lists bool
	// Liana tells how that server is started or reached.
	Liana LianaOptions
}

// Names lists the systems that Start knows.
func Names() []string {
	return []string{"liana", "liana-stream", "redis-fsync", "redis", "redis-bitmap", "postgres"}
}

// Start starts the system called name within dir, a directory made for it.
func Start(ctx context.Context, name, dir string, o Options) (Server, error) {
	var s Server
	var err error
	switch name {
	case "liana":
		s, err = startLiana(ctx, name, dir, o.Liana)
	case "liana-stream":
		o.Liana.API = APIStream
		s, err = startLiana(ctx, name, dir, o.Liana)
	case "redis-fsync":
		s, err = startRedis(ctx, name, dir, redisMode{fsync: true, lists: o.Lists})
	case "redis":
		s, err = startRedis(ctx, name, dir, redisMode{lists: o.Lists})
	case "redis-bitmap":
		s, err = startRedis(ctx, name, dir, redisMode{bitmap: true})
	case "postgres":
		s, err = startPostgres(ctx, dir, o.Lists)
	default:
		return nil, fmt.Errorf("target %q is none of %v", name, Names())
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return s, nil
}

// WaitReady tries until a session of the server answers a question, and
// returns how long that took.
func WaitReady(ctx context.Context, s Server, within time.Duration, ask func(context.Context, Session) error) (time.Duration, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := tryOnce(ctx, s, ask)
		if err == nil {
			return time.Since(start), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s does not serve after %v: %w", s.Name(), within, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func tryOnce(ctx context.Context, s Server, ask func(context.Context, Session) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	session, err := s.Session(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	return ask(ctx, session)
}

// askAnything is a question that every ready server answers.
func askAnything(ctx context.Context, s Session) error {
	return s.HasEdges(ctx, 1, []uint64{1}, make([]bool, 1))
}
