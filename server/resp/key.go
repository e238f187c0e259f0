package resp

import (
	"bytes"
	"fmt"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
)

// Replies that several commands give. The texts are those of Redis.
const (
	errSyntax    = "ERR syntax error"
	errInteger   = "ERR value is not an integer or out of range"
	errOverflow  = "ERR increment or decrement would overflow"
	errWrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	errBounds    = "ERR the value would leave the bounds that the schema gives the metric"
	errNoVertex  = "ERR the key names no vertex of the schema: a hash is the metrics of a vertex, such as note:7"
)

// errKey is what Redis would take as a key and Liana does not.
var errKey = fmt.Sprintf("ERR invalid key (allowed: 1 to %d bytes)", graph.MaxCounterKey)

// key is what the first argument of a command names: a counter of its own, or a vertex with
// its metrics.
type key struct {
	ref    graph.CounterRef // where it is no vertex
	vertex graph.Vertex
	isHash bool
}

// key reads a key. "note:7" names vertex 7 where the schema has the type note; every other
// text is a key of its own, "note:07" too.
func (p *planner) key(b []byte) (key, string) {
	if len(b) == 0 || len(b) > graph.MaxCounterKey {
		return key{}, errKey
	}
	if v, ok := vertexOf(p.schema, b); ok {
		return key{vertex: v, isHash: true}, ""
	}
	return key{ref: graph.CounterRef{Key: string(b)}}, ""
}

func vertexOf(s *graph.Schema, b []byte) (graph.Vertex, bool) {
	i := bytes.LastIndexByte(b, ':')
	if i < 1 || i+1 == len(b) || b[i+1] == '0' {
		return graph.Vertex{}, false
	}
	id, ok := parseUint(b[i+1:])
	if !ok || id < graph.MinID || id > graph.MaxID {
		return graph.Vertex{}, false
	}
	t, ok := s.VertexType(string(b[:i]))
	return graph.Vertex{Type: t, ID: id}, ok
}

// number reads the key of a command on numbers.
func (p *planner) number(b []byte) (graph.CounterRef, string) {
	k, bad := p.key(b)
	if bad == "" && k.isHash {
		bad = errWrongType
	}
	return k.ref, bad
}

// look adds reads of all that a key holds.
func (p *planner) look(k key) { p.all(k, counter.Look, true) }

// all adds an edit of each counter of a key; derived ones only where asked for.
func (p *planner) all(k key, kind counter.EditKind, derived bool) {
	if !k.isHash {
		p.b.edit(graph.CounterEdit{Counter: k.ref, Kind: kind})
		return
	}
	first := true
	for _, m := range p.schema.Metrics(k.vertex.Type) {
		if m.Derived && !derived {
			continue
		}
		e := graph.CounterEdit{Counter: graph.CounterRef{Vertex: k.vertex, Metric: m.ID}, Kind: kind}
		if first {
			p.b.edit(e)
		} else {
			p.b.more(e)
		}
		first = false
	}
}
