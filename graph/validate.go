package graph

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

const idLimit = "1 to 18446744073709551614"

func checkID(field string, id uint64) error {
	if id < MinID || id > MaxID {
		return invalid(field, idLimit, "id %d", id)
	}
	return nil
}

// checkTime refuses times that a client cannot mean. now is the server's clock, µs.
func checkTime(field string, t, now int64) error {
	if t < 0 || t > now+MaxClockAhead {
		return invalid(field, "0 (now) or 1970 to 5 minutes ahead of the server, in microseconds", "time %d", t)
	}
	return nil
}

// normalizeAll checks the mutations of a call.
func (g *Graph) normalizeAll(s *Schema, ms []Mutation) error {
	if err := checkBatch("mutations", len(ms)); err != nil {
		return err
	}
	now := g.now()
	for i := range ms {
		field := func(name string) string { return fmt.Sprintf("mutations[%d].%s", i, name) }
		if err := g.normalize(s, field, &ms[i], now); err != nil {
			return err
		}
	}
	return nil
}

// normalize checks a mutation and turns an edge of a symmetric type so that its
// fact lies at the smaller id. field is the path of the mutation in the request.
func (g *Graph) normalize(s *Schema, field func(string) string, m *Mutation, now int64) error {
	def, ok := s.EdgeTypeByID(m.Type)
	if !ok {
		return invalid(field("type"), "an edge type of the schema", "edge type %d", m.Type)
	}
	if err := checkID(field("src_id"), m.Src); err != nil {
		return err
	}
	if err := checkID(field("dst_id"), m.Dst); err != nil {
		return err
	}
	if def.Symmetric {
		if m.Src == m.Dst {
			return invalid(field("dst_id"), "another vertex than the source", "a %s edge joins two vertices", def.Name)
		}
		m.Src, m.Dst = min(m.Src, m.Dst), max(m.Src, m.Dst)
	}
	switch m.Op {
	case OpAdd, OpUpdate:
		if err := checkTime(field("time"), m.Time, now); err != nil {
			return err
		}
	case OpDelete:
		m.Time, m.Props = 0, nil
	default:
		return invalid(field("op"), "ADD, DELETE or UPDATE", "operation %d", m.Op)
	}
	if len(m.Props) > MaxProps {
		return invalid(field("properties"), fmt.Sprintf("at most %d bytes encoded", MaxProps), "%d bytes", len(m.Props))
	}
	return nil
}

// stamped returns the mutations with a time for each edge that came without one. The
// node that leads gives it: a time from another, whose clock may be wrong, would have to
// be checked like a client's.
func (g *Graph) stamped(ms []Mutation) []Mutation {
	own := false
	for i := range ms {
		if ms[i].Op == OpDelete || ms[i].Time != 0 {
			continue
		}
		if !own { // the caller may have to ask another node
			ms, own = slices.Clone(ms), true
		}
		ms[i].Time = g.stamp(g.now())
	}
	return ms
}

// stampAhead is how far stamps may lie ahead of the clock, in µs.
const stampAhead = int64(time.Second / time.Microsecond)

// stamp returns a time for an edge that came without one: now, but later than
// the last such time, so that edges without a time keep their order of arrival. Where
// that lies far ahead, the clock was ahead and has been set right: stamps do not stay
// where it was until it comes there again.
func (g *Graph) stamp(now int64) int64 {
	for {
		last := g.lastStamp.Load()
		t := max(now, last+1)
		if t-now > stampAhead {
			t = now
		}
		if g.lastStamp.CompareAndSwap(last, t) {
			return t
		}
	}
}

func checkBatch(field string, n int) error {
	if n == 0 || n > MaxBatch {
		return invalid(field, "1 to "+strconv.Itoa(MaxBatch), "%d items", n)
	}
	return nil
}

// Resolve checks a list key, and turns both directions of a symmetric type into its one
// list.
func (s *Schema) Resolve(l ListKey) (ListKey, error) { return resolveList(s, l) }

// Fact returns the list in which the edge of two vertices is a fact, and the peer in it.
func (d *EdgeTypeDef) Fact(src, dst uint64) (ListKey, uint64) {
	if d.Symmetric && src > dst {
		src, dst = dst, src
	}
	return d.fact(src), dst
}

// resolveList checks a list key, and turns both directions of a symmetric
// type into its one list.
func resolveList(s *Schema, l ListKey) (ListKey, error) {
	def, ok := s.EdgeTypeByID(l.Type)
	if !ok {
		return l, invalid("type", "an edge type of the schema", "edge type %d", l.Type)
	}
	if err := checkID("vertex.id", l.Vertex.ID); err != nil {
		return l, err
	}
	if l.Dir > In {
		return l, invalid("direction", "OUT or IN", "direction %d", l.Dir)
	}
	want := def.From
	if l.Dir == In {
		want = def.To
	}
	if l.Vertex.Type != want {
		return l, invalid("vertex.type", s.VertexTypeName(want), "%s edges (%s) do not belong to %s",
			def.Name, l.Dir, s.VertexTypeName(l.Vertex.Type))
	}
	if def.Symmetric {
		l.Dir = Out
	}
	return l, nil
}

func checkWindow(w Window) error {
	if w.Since > w.Until {
		return invalid("window.until", "at least window.since", "%d, before %d", w.Until, w.Since)
	}
	return nil
}

func (g *Graph) checkCounter(s *Schema, field string, c *CounterRef, write bool) error {
	if c.Key != "" {
		if len(c.Key) > MaxCounterKey || c.Vertex != (Vertex{}) || c.Metric != 0 {
			return invalid(field+".key", fmt.Sprintf("1 to %d bytes, and no vertex beside it", MaxCounterKey), "%d bytes", len(c.Key))
		}
		return nil
	}
	if err := checkID(field+".vertex.id", c.Vertex.ID); err != nil {
		return err
	}
	def, ok := s.MetricByID(c.Vertex.Type, c.Metric)
	if !ok {
		return invalid(field+".metric", "a metric of the vertex type", "metric %d of %s", c.Metric, s.VertexTypeName(c.Vertex.Type))
	}
	if write && def.Derived {
		return fmt.Errorf("%s: %s: %w", field+".metric", def.Name, ErrDerived)
	}
	return nil
}
