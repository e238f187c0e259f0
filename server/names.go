package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// names turns the names of requests into the schema's numbers. A name that the
// schema does not have is an error that says which there are.
type names struct {
	*graph.Schema
}

func (n names) edgeType(field, name string) (*graph.EdgeTypeDef, error) {
	def, ok := n.EdgeType(name)
	if ok {
		return def, nil
	}
	var known []string
	for _, d := range n.EdgeTypes() {
		known = append(known, d.Name)
	}
	return nil, unknownName(field, name, "edge type", known)
}

func (n names) vertex(field string, v *pb.Vertex) (graph.Vertex, error) {
	t, ok := n.VertexType(v.GetType())
	if ok {
		return graph.Vertex{Type: t, ID: v.GetId()}, nil
	}
	var known []string
	for _, d := range n.VertexTypes() {
		known = append(known, d.Name)
	}
	return graph.Vertex{}, unknownName(field+".type", v.GetType(), "vertex type", known)
}

// end is the id of one end of an edge, whose type must be the one that the
// edge's type gives it.
func (n names) end(field string, v *pb.Vertex, def *graph.EdgeTypeDef, want graph.VertexType) (uint64, error) {
	if t, ok := n.VertexType(v.GetType()); ok && t == want {
		return v.GetId(), nil
	}
	allowed := n.VertexTypeName(want)
	if v.GetType() == "" {
		return 0, invalid(field+".type", allowed, "is missing")
	}
	return 0, invalid(field+".type", allowed, "%q is no end of %s here", v.GetType(), def.Name)
}

// ends are the ids of both ends of an edge.
func (n names) ends(prefix, name string, src, dst *pb.Vertex) (def *graph.EdgeTypeDef, s, d uint64, err error) {
	if def, err = n.edgeType(prefix+"type", name); err != nil {
		return nil, 0, 0, err
	}
	if s, err = n.end(prefix+"src", src, def, def.From); err != nil {
		return nil, 0, 0, err
	}
	d, err = n.end(prefix+"dst", dst, def, def.To)
	return def, s, d, err
}

// list names an edge list. An edge type that cannot leave (or reach) vertices of
// this type is an error, not an empty list.
func (n names) list(field string, v graph.Vertex, def *graph.EdgeTypeDef, dir graph.Direction) (graph.ListKey, error) {
	want, how := def.From, "leave"
	if dir == graph.In {
		want, how = def.To, "reach"
	}
	if v.Type != want {
		return graph.ListKey{}, invalid(field+".type", n.VertexTypeName(want),
			"edges of type %s do not %s a %s", def.Name, how, n.VertexTypeName(v.Type))
	}
	return graph.ListKey{Vertex: v, Type: def.ID, Dir: dir}, nil
}

func (n names) counter(field string, ref *pb.CounterRef) (graph.CounterRef, error) {
	if ref.GetKey() != "" {
		if ref.GetVertex() != nil || ref.GetMetric() != "" {
			return graph.CounterRef{}, invalid(field, "vertex and metric, or key", "it has both a key and a vertex")
		}
		return graph.CounterRef{Key: ref.GetKey()}, nil
	}
	if ref.GetVertex() == nil {
		return graph.CounterRef{}, invalid(field, "vertex and metric, or key", "it names no counter")
	}
	v, err := n.vertex(field+".vertex", ref.GetVertex())
	if err != nil {
		return graph.CounterRef{}, err
	}
	m, err := n.metric(field+".metric", v.Type, ref.GetMetric())
	return graph.CounterRef{Vertex: v, Metric: m}, err
}

// writable is counter for a write: derived metrics follow from edges alone.
func (n names) writable(field string, ref *pb.CounterRef) (graph.CounterRef, error) {
	r, err := n.counter(field, ref)
	if err != nil || r.Key != "" {
		return r, err
	}
	if def, ok := n.MetricByID(r.Vertex.Type, r.Metric); ok && def.Derived {
		field += ".metric"
		return r, annotate(fmt.Errorf("%s: %s: %w", field, def.Name, graph.ErrDerived), "field", field)
	}
	return r, nil
}

func (n names) metric(field string, t graph.VertexType, name string) (graph.Metric, error) {
	if def, ok := n.Metric(t, name); ok {
		return def.ID, nil
	}
	var known []string
	for _, d := range n.Metrics(t) {
		known = append(known, d.Name)
	}
	return 0, unknownName(field, name, n.VertexTypeName(t)+" metric", known)
}

// maxKnownNames bounds the names that an error lists.
const maxKnownNames = 8

func unknownName(field, name, kind string, known []string) error {
	limit := "none"
	if len(known) > 0 {
		limit = strings.Join(known[:min(len(known), maxKnownNames)], ", ")
	}
	if len(known) > maxKnownNames {
		limit += ", ..."
	}
	if name == "" {
		return invalid(field, limit, "is missing")
	}
	return invalid(field, limit, "no %s %q", kind, cut(name, 64))
}

// paths renames the fields of the domain's errors, which speak of its own
// arguments, to those of the request: pairs of from and to. A path also renames
// what lies below it.
type paths []string

func (p paths) rename(err error) error {
	bad, ok := asInvalid(err)
	if !ok {
		return err
	}
	for i := 0; i+1 < len(p); i += 2 {
		rest, ok := strings.CutPrefix(bad.Field, p[i])
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return &graph.InvalidError{Field: p[i+1] + rest, Limit: bad.Limit, Msg: bad.Msg}
		}
	}
	return err
}

// below puts the field of a mistake under a path.
func below(path string, err error) error {
	bad, ok := asInvalid(err)
	if !ok {
		return err
	}
	return &graph.InvalidError{Field: path + "." + bad.Field, Limit: bad.Limit, Msg: bad.Msg}
}

func asInvalid(err error) (*graph.InvalidError, bool) {
	var bad *graph.InvalidError
	return bad, errors.As(err, &bad)
}

func checkID(field string, id uint64) error {
	if id < graph.MinID || id > graph.MaxID {
		return invalid(field, "1 to 18446744073709551614", "id %d", id)
	}
	return nil
}

// batchSize is the mistake of an empty or too large batch.
func batchSize(field string, n int) error {
	return invalid(field, fmt.Sprintf("1 to %d", graph.MaxBatch), "%d elements", n)
}

// index is the path of one element of a repeated field.
func index(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
