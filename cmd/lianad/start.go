package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/server"
)

// forcedError is an end with calls unanswered.
type forcedError struct{ error }

// start runs a node until a signal, or until it cannot go on.
func start(h host, cfg config, stdout, stderr io.Writer) error {
	schema, err := readSchema(cfg.Schema)
	if err != nil {
		return usageError{err}
	}
	// From here on a signal is an orderly end, also while the data is being opened.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	log := newLogger(cfg, stderr)
	redis.SetLogger(redisLog{log}) // of all clients: there is no other way
	// The ports first: when one is taken, no data directory is touched.
	srv, err := server.Listen(cfg.Config, log)
	if err != nil {
		return err
	}
	ports, err := listenPeers(cfg, srv, log)
	if err != nil {
		stopNow(srv)
		return err
	}
	log.Info("starting", "version", version, "data_dir", cfg.DataDir, "grpc", srv.GRPCAddr(), "http", srv.HTTPAddr(), "peer", ports.peerAddr())
	n, err := openUnlessStopped(cfg.StopTimeout, signals, log, func() (*node, error) {
		return openNode(h, cfg, schema, ports, log, func(err error) {
			log.Error("the process ends: an engine cannot go on", "error", err)
			os.Exit(exitFailed)
		})
	})
	if n == nil {
		stopNow(srv)
		return err
	}
	srv.Attach(n.attachment())
	cause := serve(srv, n, signals, stdout, log)
	return stop(srv, n, cause, signals, log)
}

// openUnlessStopped opens the node. A signal meanwhile is a stop: no node, and the
// error of the stop. Opening takes long where there is much to replay, and does not
// end at all while the disk is full.
func openUnlessStopped(limit time.Duration, signals <-chan os.Signal, log *slog.Logger, open func() (*node, error)) (*node, error) {
	type opened struct {
		n   *node
		err error
	}
	opening := make(chan opened, 1)
	go func() {
		n, err := open()
		opening <- opened{n, err}
	}()
	select {
	case o := <-opening:
		return o.n, o.err
	case s := <-signals:
		log.Info("stopping before the data is open", "signal", s.String())
	}
	done := make(chan error, 1)
	go func() {
		o := <-opening
		if o.n != nil {
			o.err = o.n.close()
		}
		done <- o.err
	}()
	return nil, finish(done, limit, signals, log)
}

// stopNow ends a server that never had anything to serve.
func stopNow(srv *server.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = srv.Stop(ctx) // no call is in flight: the error that counts is another
}

// notReadyInterval is the time between two log lines about a node that is not
// ready.
const notReadyInterval = 10 * time.Second

// serve announces the node when it is ready and returns when it is to stop: nil
// after a signal, else why it cannot go on.
func serve(srv *server.Server, n *node, signals <-chan os.Signal, stdout io.Writer, log *slog.Logger) error {
	ready := srv.Ready()
	waiting := time.NewTicker(notReadyInterval)
	defer waiting.Stop()
	for {
		select {
		case <-ready:
			ready = nil // announced once
			waiting.Stop()
			announce(srv, n, stdout)
		case <-waiting.C:
			log.Warn("not ready yet", "reason", srv.Readiness())
		case err := <-srv.Failed():
			return err
		case err := <-n.expelled:
			return err
		case s := <-signals:
			log.Info("stopping", "signal", s.String())
			return nil
		}
	}
}

// announce prints the one line that says that the node serves, and where.
func announce(srv *server.Server, n *node, stdout io.Writer) {
	id := n.dir.Identity()
	fmt.Fprintf(stdout, "liana ready grpc=%s http=%s resp=%s peer=%s data-dir=%s shards=%d pid=%d\n",
		srv.GRPCAddr(), srv.HTTPAddr(), srv.RESPAddr(), n.cluster.ports.peerAddr(), word(n.dir.Path()), id.Shards, os.Getpid())
	if !isTerminal(stdout) {
		return
	}
	addr := ""
	if srv.GRPCAddr() != server.Defaults().GRPCAddr {
		addr = " --addr " + srv.GRPCAddr()
	}
	fmt.Fprintf(stdout, "\n  Try:  liana edge add user:42 like note:7%s\n        liana edge list note:7 like --in%s\n  Look: http://%s/\n",
		addr, addr, srv.HTTPAddr())
}

// word quotes a value that a reader who splits at spaces would take for several.
func word(s string) string {
	if strings.ContainsFunc(s, unicode.IsSpace) {
		return strconv.Quote(s)
	}
	return s
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// stop ends the node within its stop timeout, whatever hangs: the log has all
// that was acknowledged. cause is why it stops.
func stop(srv *server.Server, n *node, cause error, signals <-chan os.Signal, log *slog.Logger) error {
	limit := n.cfg.StopTimeout
	// A fifth is left for closing what calls were using.
	ctx, cancel := context.WithTimeout(context.Background(), limit-limit/5)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		unanswered := srv.Stop(ctx)
		err := errors.Join(cause, n.close())
		if err == nil && unanswered != nil {
			log.Warn("stopped", "error", unanswered)
			err = forcedError{unanswered}
		}
		done <- err
	}()
	return finish(done, limit, signals, log)
}

// finish waits for the end of a stop, for so long, or until a second signal.
func finish(done <-chan error, limit time.Duration, signals <-chan os.Signal, log *slog.Logger) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	began := time.Now()
	for {
		select {
		case err := <-done:
			if err == nil {
				log.Info("stopped")
			}
			return err
		case s := <-signals:
			if time.Since(began) < signalEcho {
				continue
			}
			log.Warn("ending at once", "signal", s.String())
			return forcedError{errors.New("second signal")}
		case <-timeout.C:
			log.Error("ending: the stop took too long", "limit", limit)
			return forcedError{errors.New("stop timeout")}
		}
	}
}

// signalEcho: who signals a process and its group (timeout(1), a terminal behind
// a supervisor) is heard twice and means it once.
const signalEcho = 50 * time.Millisecond
