package rediscache

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lianadb/liana/cache"
)

// ErrCorrupt marks bytes in Redis that no version of this package wrote.
var ErrCorrupt = errors.New("rediscache: corrupt")

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))
}

// Sizes of the layouts, see the package comment.
const (
	headSize      = 16
	numberSize    = 8
	windowHeader  = 33
	edgeSize      = 16
	flagProps     = 1
	windowOpSize  = 42
	rowOpSize     = 19
	chunkOpSize   = 11
	maxRowFields  = 8 << 10
	maxWindowSize = windowHeader + edgeSize*4*cache.WindowEdges
)

// head is p of a slot.
type head struct {
	gen gen
	h   uint64
}

func (p head) encode() string {
	var b [headSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(p.gen))
	binary.BigEndian.PutUint64(b[8:], p.h)
	return string(b[:])
}

func decodeHead(b []byte) (head, error) {
	if len(b) != headSize {
		return head{}, corruptf("p of %d bytes", len(b))
	}
	p := head{gen(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}
	if p.h > cache.MaxNumber {
		return head{}, corruptf("p at %d", p.h)
	}
	return p, nil
}

func encodeNumber(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

const signBit = 1 << 63

func appendEdge(b []byte, e cache.Edge) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time)^signBit)
	return binary.BigEndian.AppendUint64(b, e.Peer)
}

func decodeEdge(b []byte) cache.Edge {
	return cache.Edge{Time: int64(binary.BigEndian.Uint64(b) ^ signBit), Peer: binary.BigEndian.Uint64(b[8:])}
}

// encodeEntry returns an entry as it lies in Redis, with its own number.
func encodeEntry(e *cache.Entry) string {
	b := make([]byte, 0, windowHeader+cache.ChunkBytes)
	b = binary.BigEndian.AppendUint64(b, e.At.Number)
	switch {
	case e.Row != nil:
		for _, f := range e.Row.Fields {
			b = binary.BigEndian.AppendUint64(b, uint64(f))
		}
	case e.Window != nil:
		b = binary.BigEndian.AppendUint64(b, e.Window.Total)
		b = appendEdge(b, e.Window.Floor)
		b = append(b, 0)
		if e.Window.Props {
			b[len(b)-1] = flagProps
		}
		for _, edge := range e.Window.Edges {
			b = appendEdge(b, edge)
		}
	default:
		b = append(b, e.Chunk.Bits...)
	}
	return string(b)
}

// decodeEntry reads an entry of a kind. Its position is still its own.
func decodeEntry(k cache.Kind, b []byte) (e cache.Entry, err error) {
	if len(b) < numberSize {
		return e, corruptf("entry of %d bytes", len(b))
	}
	e.At.Number = binary.BigEndian.Uint64(b)
	if e.At.Number > cache.MaxNumber {
		return e, corruptf("entry at %d", e.At.Number)
	}
	switch k {
	case cache.KindRow:
		e.Row, err = decodeRow(b[numberSize:])
	case cache.KindWindow:
		e.Window, err = decodeWindow(b)
	case cache.KindChunk:
		if len(b) != numberSize+cache.ChunkBytes {
			return e, corruptf("chunk of %d bytes", len(b))
		}
		e.Chunk = &cache.Chunk{Bits: b[numberSize:]}
	default:
		err = corruptf("entry of kind %d", k)
	}
	return e, err
}

func decodeRow(b []byte) (*cache.Row, error) {
	if len(b)%8 != 0 || len(b)/8 > maxRowFields {
		return nil, corruptf("row of %d bytes", len(b))
	}
	r := &cache.Row{Fields: make([]cache.Field, len(b)/8)}
	for i := range r.Fields {
		r.Fields[i] = cache.Field(binary.BigEndian.Uint64(b[8*i:]))
	}
	return r, nil
}

func decodeWindow(b []byte) (*cache.Window, error) {
	if len(b) < windowHeader || len(b) > maxWindowSize || (len(b)-windowHeader)%edgeSize != 0 {
		return nil, corruptf("window of %d bytes", len(b))
	}
	w := &cache.Window{Total: binary.BigEndian.Uint64(b[8:]), Floor: decodeEdge(b[16:])}
	switch b[32] {
	case 0:
	case flagProps:
		w.Props = true
	default:
		return nil, corruptf("window with flags %#x", b[32])
	}
	b = b[windowHeader:]
	w.Edges = make([]cache.Edge, len(b)/edgeSize)
	for i := range w.Edges {
		w.Edges[i] = decodeEdge(b[edgeSize*i:])
		if i > 0 && w.Edges[i-1].Compare(w.Edges[i]) >= 0 {
			return nil, corruptf("window with its edge %d out of order", i)
		}
	}
	if n := uint64(len(w.Edges)); n > w.Total || w.Total > cache.MaxNumber {
		return nil, corruptf("window with %d edges of %d", n, w.Total)
	}
	if !w.Complete() && len(w.Edges) > 0 && w.Edges[0].Compare(w.Floor) < 0 {
		return nil, corruptf("window with an edge below its floor")
	}
	return w, nil
}

// Operations of PUSH.

const (
	opAdd    = 1
	opRemove = 2
	opMove   = 3

	rowSet = 0
	rowInc = 1
	rowDec = 2
)

func appendWindowOp(b []byte, c *cache.Change) []byte {
	b = binary.BigEndian.AppendUint64(b, c.Number)
	kind := byte(opAdd)
	switch c.Kind {
	case cache.EdgeRemoved:
		kind = opRemove
	case cache.EdgeMoved:
		kind = opMove
	}
	b = append(b, kind, 0)
	if c.Props {
		b[len(b)-1] = 1
	}
	return appendEdge(appendEdge(b, c.Edge), c.Old)
}

func appendRowOp(b []byte, c *cache.Change) []byte {
	b = binary.BigEndian.AppendUint64(b, c.Number)
	mode, field, value := byte(rowSet), cache.MetricField(c.Metric), c.Value
	switch c.Kind {
	case cache.EdgeAdded:
		mode, field = rowInc, cache.CountField(c.List)
	case cache.EdgeRemoved:
		mode, field = rowDec, cache.CountField(c.List)
	case cache.MetricGone:
		value = cache.Absent
	}
	b = append(b, mode)
	b = binary.BigEndian.AppendUint16(b, uint16(field))
	return binary.BigEndian.AppendUint64(b, uint64(value))
}

func appendChunkOp(b []byte, c *cache.Change) []byte {
	b = binary.BigEndian.AppendUint64(b, c.Number)
	b = binary.BigEndian.AppendUint16(b, uint16(c.Edge.Peer%cache.ChunkPeers))
	if c.Kind == cache.EdgeAdded {
		return append(b, 1)
	}
	return append(b, 0)
}
