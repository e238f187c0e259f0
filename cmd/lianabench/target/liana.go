package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// The calls that AddEdges can be made with.
const (
	APIMutate = "mutate" // MutateEdges, one batch a call
	APIStream = "stream" // StreamMutations, a stream for each caller
)

// LianaOptions say how lianad is started, or reached, and called.
type LianaOptions struct {
	Binary  string // path of lianad
	Addr    string // gRPC address of a running server; then none is started
	Shards  int
	Conns   int    // gRPC connections, shared by all callers
	API     string // APIMutate or APIStream
	Forward bool   // writes wait for the edge only, not for its inverse
	// Linearizable makes every read confirm the leader.
	Linearizable bool
}

type lianaServer struct {
	name        string
	dir         string
	opts        LianaOptions
	replication int      // of a cluster that it founds; 0: one voter a shard
	join        string   // peer address of a node whose cluster it joins; empty: it founds its own
	proc        *process // nil where the server is not ours
	addr        string
	resp        string // address of the Redis-protocol port
	peer        string // address for the other nodes
	conns       []*grpc.ClientConn
	nextOne     atomic.Uint64
}

// startTimeout bounds the time until the start-up line, recovery included.
const startTimeout = 60 * time.Second

func startLiana(ctx context.Context, name, dir string, o LianaOptions) (Server, error) {
	s := &lianaServer{name: name, dir: dir, opts: o}
	if o.Addr != "" {
		s.addr = o.Addr
		return s, s.connect()
	}
	if err := s.Restart(ctx); err != nil {
		return nil, err
	}
	if _, err := WaitReady(ctx, s, startTimeout, askAnything); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *lianaServer) Restart(ctx context.Context) error {
	if s.opts.Addr != "" {
		return errors.New("a server that was not started here is not restarted")
	}
	args := []string{"start", "--data-dir", s.data()}
	for _, port := range []string{"grpc", "http", "resp"} {
		args = append(args, "--"+port+"-addr", "127.0.0.1:0")
	}
	if s.peer == "" {
		s.peer = "127.0.0.1:0"
	}
	args = append(args, "--peer-addr", s.peer) // other nodes know the one it had before
	if s.join == "" {
		args = append(args, "--shards", strconv.Itoa(s.opts.Shards), "--replication", strconv.Itoa(max(s.replication, 1)))
	} else {
		args = append(args, "--join", s.join)
	}
	line := newLineWatch(regexp.MustCompile(`\bgrpc=([0-9.:\[\]a-f]+).*\bresp=([0-9.:\[\]a-f]+).*\bpeer=([0-9.:\[\]a-f]+|off)`))
	proc, err := startProcess(s.opts.Binary, args, nil, line)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("lianad is not there (make build, or --lianad PATH): %w", err)
	}
	if err != nil {
		return err
	}
	s.proc = proc
	select {
	case match := <-line.found:
		s.addr, s.resp, s.peer = match[1], match[2], match[3]
		return s.connect()
	case <-proc.exited:
		return fmt.Errorf("lianad ended: %s", proc.out)
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startTimeout):
		err = fmt.Errorf("lianad says no address after %v: %s", startTimeout, proc.out)
	}
	proc.kill()
	return err
}

func (s *lianaServer) data() string { return filepath.Join(s.dir, "data") }

func (s *lianaServer) connect() error {
	s.disconnect()
	for range max(s.opts.Conns, 1) {
		conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return fmt.Errorf("connect to %s: %w", s.addr, err)
		}
		s.conns = append(s.conns, conn)
	}
	return nil
}

func (s *lianaServer) disconnect() {
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

func (s *lianaServer) Name() string { return s.name }

func (s *lianaServer) Facts() []string {
	wait := "both directions durable before the answer"
	if s.opts.Forward {
		wait = "forward direction durable before the answer"
	}
	where := fmt.Sprintf("%d shards, one voter each", s.opts.Shards)
	if s.opts.Addr != "" {
		where = "a running server at " + s.opts.Addr
	}
	facts := []string{where, fmt.Sprintf("%s; gRPC over %d connections; batches by %s", wait, max(s.opts.Conns, 1), s.opts.API)}
	if s.opts.Linearizable {
		facts = append(facts, "linearizable reads")
	}
	return facts
}

func (s *lianaServer) PIDs() []int {
	if s.proc == nil {
		return nil
	}
	return []int{s.proc.pid()}
}

func (s *lianaServer) Crash() error {
	if s.proc == nil {
		return errors.New("a server that was not started here is not killed")
	}
	s.disconnect()
	s.proc.kill()
	return nil
}

func (s *lianaServer) Stop() error {
	s.disconnect()
	if s.proc == nil {
		return nil
	}
	return s.proc.stop(syscall.SIGTERM, 60*time.Second)
}

func (s *lianaServer) Session(context.Context) (Session, error) {
	if len(s.conns) == 0 {
		return nil, errors.New("liana: not connected")
	}
	conn := s.conns[s.nextOne.Add(1)%uint64(len(s.conns))]
	return newLianaSession(lianav1.NewGraphClient(conn), s.opts), nil
}

// lineWatch looks for a pattern in what a process prints.
type lineWatch struct {
	pattern *regexp.Regexp
	found   chan []string
	once    sync.Once
	buf     []byte
}

func newLineWatch(pattern *regexp.Regexp) *lineWatch {
	return &lineWatch{pattern: pattern, found: make(chan []string, 1)}
}

func (w *lineWatch) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	for {
		end := bytes.IndexByte(w.buf, '\n')
		if end < 0 {
			return len(p), nil
		}
		if match := w.pattern.FindStringSubmatch(string(w.buf[:end])); match != nil {
			w.once.Do(func() { w.found <- match })
		}
		w.buf = w.buf[end+1:]
	}
}
