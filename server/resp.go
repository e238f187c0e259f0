package server

import (
	"context"
	"time"

	"github.com/lianadb/liana/server/resp"
)

// listenRESP binds the Redis-protocol port. It serves what is attached, with the errors of
// the one table.
func (s *Server) listenRESP(m *callMetrics) (*resp.Server, error) {
	p, err := resp.Listen(s.cfg.RESPAddr, s.cfg.RESP, resp.Host{
		Backend: s.respBackend, Explain: s.calls.respError,
		Observe: func(took time.Duration, _ int) { m.respSeconds.Observe(took.Seconds()) },
		Version: s.release, Log: s.log,
	})
	if err != nil {
		return nil, bindError("resp_addr", err)
	}
	return p, nil
}

func (s *Server) respBackend() resp.Backend {
	if a := s.calls.attached.Load(); a != nil {
		return a.Backend
	}
	return nil
}

// release is the version of the program, empty while the node starts.
func (s *Server) release() string {
	if a := s.calls.attached.Load(); a != nil {
		return a.Node.Version
	}
	return ""
}

// respError is an error on the Redis-protocol port: a prefix that says what a client may
// do, and the text. Clients repeat by themselves what begins with TRYAGAIN or LOADING: such
// an error says that nothing was changed (RULES B5).
func (c *calls) respError(err error) string {
	v := c.table.judge(err)
	prefix := v.resp
	switch {
	case prefix != "":
	case v.retry > 0:
		prefix = "TRYAGAIN"
	default:
		prefix = "ERR"
	}
	if ref := c.report(context.Background(), v, err, "method", "resp"); ref != "" {
		v.message += " (reference " + ref + " in the server's log)"
	}
	return prefix + " " + v.message
}

// resp sends the figures of the Redis-protocol port.
func (e emitter) resp(f resp.Figures) {
	e.gauge("liana_resp_connections", "Open connections of the Redis-protocol port.", float64(f.Connections))
	e.gauge("liana_resp_buffer_bytes", "Buffers of its connections, beyond the few KiB that each has.", float64(f.BufferBytes))
	e.counter("liana_resp_connections_total", "Connections accepted.", float64(f.Accepted))
	e.counter("liana_resp_connections_refused_total", "Connections refused: there were too many.", float64(f.Refused))
	e.counter("liana_resp_panics_total", "Commands that ended in a panic.", float64(f.Panics))
	e.counter("liana_resp_bytes_read_total", "Bytes of commands.", float64(f.BytesIn))
	e.counter("liana_resp_bytes_written_total", "Bytes of replies.", float64(f.BytesOut))
	e.counter("liana_resp_batches_total", "Batches in which commands were executed.", float64(f.Batches))
	for _, end := range f.Ends {
		e.counter("liana_resp_connections_cut_total", "Connections that the server ended, by reason.", float64(end.N), "reason", end.Name)
	}
	for _, c := range f.Commands {
		e.counter("liana_resp_commands_total", "Commands answered.", float64(c.Calls), "command", c.Name)
		e.counter("liana_resp_command_errors_total", "Commands answered with an error.", float64(c.Errors), "command", c.Name)
	}
}
