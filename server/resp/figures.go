package resp

import (
	"slices"
	"sync/atomic"
	"time"
)

// figures are what the port counts.
type figures struct {
	accepted, refused, panics atomic.Uint64
	bytesIn, bytesOut         atomic.Uint64
	batches, batched          atomic.Uint64
	ends                      map[string]uint64 // guarded by Server.mu
}

// Figures are the figures of a port since its start.
type Figures struct {
	Connections       int    // open now
	BufferBytes       int64  // of all connections, beyond the few KiB that each has
	Accepted, Refused uint64 // connections
	Panics            uint64
	BytesIn, BytesOut uint64
	Batches           uint64
	// Ends counts the connections that the server ended, by reason.
	Ends     []Count
	Commands []CommandFigure // of all commands, in the order of the table
}

// Count is a figure with a name.
type Count struct {
	Name string
	N    uint64
}

// CommandFigure are the figures of a command.
type CommandFigure struct {
	Name          string
	Calls, Errors uint64
}

// Figures returns the figures.
func (s *Server) Figures() Figures {
	f := Figures{
		BufferBytes: s.buffers.used.Load(), Accepted: s.figures.accepted.Load(), Refused: s.figures.refused.Load(),
		Panics: s.figures.panics.Load(), BytesIn: s.figures.bytesIn.Load(), BytesOut: s.figures.bytesOut.Load(),
		Batches: s.figures.batches.Load(),
	}
	s.mu.Lock()
	f.Connections = len(s.conns)
	for _, why := range reasons() {
		f.Ends = append(f.Ends, Count{why, s.figures.ends[why]})
	}
	s.mu.Unlock()
	for _, c := range append(slices.Clone(s.catalog.all), s.catalog.unknown) {
		f.Commands = append(f.Commands, CommandFigure{c.name, c.calls.Load(), c.errors.Load()})
	}
	return f
}

func (s *Server) observe(took time.Duration, commands int) {
	s.figures.batches.Add(1)
	s.figures.batched.Add(uint64(commands))
	s.host.Observe(took, commands)
}
