package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lianadb/liana/server/web"
)

// newHTTP serves the API as JSON, and what machines and people look at: health,
// metrics, profiles.
func (s *Server) newHTTP(reg *prometheus.Registry, door *web.Door) *http.Server {
	// What probes and scrapers ask for is there under any name of the server.
	root := http.NewServeMux()
	root.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	root.HandleFunc("GET /readyz", s.readyz)
	root.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))

	mux := http.NewServeMux()
	door.Mount(mux)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /{$}", front)
	root.Handle("/", door.Guard(mux))
	return &http.Server{
		Handler:           door.Handler(root),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

func (s *Server) newDoor() (*web.Door, error) {
	host, _, err := splitAddr(s.cfg.HTTPAddr)
	if err != nil {
		return nil, err
	}
	return web.New(web.Config{
		Conn: s.local, MaxBody: s.cfg.Limits.MaxMessageBytes, MaxTime: s.cfg.Limits.MaxCallTime,
		Hosts: append(s.cfg.HTTP.hosts(), host), Origins: s.cfg.HTTP.origins(),
	})
}

// readyBody is the answer of /readyz.
type readyBody struct {
	Ready  bool         `json:"ready"`
	Reason string       `json:"reason,omitempty"`
	Shards []readyShard `json:"shards"`
}

type readyShard struct {
	ID            uint32 `json:"id"`
	State         string `json:"state"`
	Leader        bool   `json:"leader"`
	Applied       uint64 `json:"applied"`
	Position      uint64 `json:"position"`
	OutboxPending uint64 `json:"outbox_pending"`
	Fault         string `json:"fault,omitempty"`
	Sick          string `json:"sick,omitempty"` // of the disk under it
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	body := readyBody{Ready: true, Shards: []readyShard{}}
	if err := s.Readiness(); err != nil {
		body.Ready, body.Reason = false, firstLine(err.Error())
	}
	if a := s.calls.attached.Load(); a != nil {
		for _, st := range a.Backend.Status() {
			body.Shards = append(body.Shards, readyShard{
				ID: st.ID, State: st.State, Leader: st.Leader, Applied: st.Applied, Position: st.Position,
				OutboxPending: st.OutboxPending, Fault: firstLine(st.Fault), Sick: st.Raft.Sick,
			})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if !body.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

// firstLine is what of a fault is for the outside: a bug's has a stack behind it,
// which is in the log.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return cut(line, maxErrorText)
}

const indexPage = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Liana</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}</style>
<h1>Liana</h1>
<p>A store for likes, follows and counters. Clients use the gRPC port, or JSON here.</p>
<ul>
<li><a href="/docs">/docs</a> the API as JSON, call by call
<li><a href="/openapi.json">/openapi.json</a> the same for machines
<li><a href="/healthz">/healthz</a> the process lives
<li><a href="/readyz">/readyz</a> every shard serves
<li><a href="/metrics">/metrics</a> figures for Prometheus
<li><a href="/debug/pprof/">/debug/pprof/</a> profiles of the running process
</ul>
</html>
`

func front(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, indexPage)
}
