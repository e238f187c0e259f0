package sink

import (
	"encoding/json"
	"strconv"

	"github.com/lianadb/liana/graph"
)

// names turns the numbers of changes into the names of the schema.
type names struct{ *graph.Schema }

// kinds are the names of the kinds of changes.
func kindName(k graph.ChangeKind) string {
	switch k {
	case graph.EdgeAdded:
		return "EDGE_ADDED"
	case graph.EdgeDeleted:
		return "EDGE_DELETED"
	case graph.EdgeUpdated:
		return "EDGE_UPDATED"
	case graph.CounterChanged:
		return "COUNTER_CHANGED"
	}
	return "SLOTS_MOVED"
}

func (n names) vertex(v graph.Vertex) string {
	return n.VertexTypeName(v.Type) + ":" + strconv.FormatUint(v.ID, 10)
}

// fields are the fields and values of a change.
func (n names) fields(c *graph.Change) ([]any, error) {
	out := []any{"kind", kindName(c.Kind), "slot", int(c.Slot())}
	switch c.Kind {
	case graph.SlotsMoved:
		return append(out, "shard", uint64(c.Child)), nil
	case graph.CounterChanged:
		return n.counter(out, c), nil
	}
	dst := graph.Vertex{ID: c.Edge.Peer}
	name := ""
	if def, ok := n.EdgeTypeByID(c.List.Type); ok {
		dst.Type, name = def.To, def.Name
	}
	out = append(out, "src", n.vertex(c.List.Vertex), "type", name, "dst", n.vertex(dst), "time", c.Edge.Time)
	if c.Kind == graph.EdgeUpdated {
		out = append(out, "old_time", c.OldTime)
	}
	props, err := graph.DecodeProps(c.Edge.Props)
	if err != nil || len(props) == 0 {
		return out, err
	}
	text, err := json.Marshal(props)
	return append(out, "properties", text), err
}

func (n names) counter(out []any, c *graph.Change) []any {
	if c.Counter.Key != "" {
		out = append(out, "key", c.Counter.Key)
	} else {
		name := ""
		if def, ok := n.MetricByID(c.Counter.Vertex.Type, c.Counter.Metric); ok {
			name = def.Name
		}
		out = append(out, "vertex", n.vertex(c.Counter.Vertex), "metric", name)
	}
	out = append(out, "value", c.Value)
	if c.Gone {
		out = append(out, "gone", 1)
	}
	if c.Expires {
		out = append(out, "expires", 1)
	}
	return out
}
