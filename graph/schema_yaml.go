package graph

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"go.yaml.in/yaml/v3"
)

// ParseSchema reads the YAML form of a schema. Unknown keys are an error.
func ParseSchema(text []byte) (*Schema, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	var doc schemaDoc
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: the file is empty", ErrSchema)
		}
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	return newSchema(doc)
}

// YAML is the form that ParseSchema reads.
func (s *Schema) YAML() string {
	b, err := yaml.Marshal(s.doc())
	if err != nil {
		panic("bug: a schema does not encode: " + err.Error())
	}
	return string(b)
}

func (s *Schema) doc() schemaDoc {
	doc := schemaDoc{Version: s.Version}
	for _, v := range s.vertices {
		vd := vertexDoc{Name: v.Name, ID: uint32(v.ID)}
		if v.Dense {
			vd.IDs = "dense"
		}
		for _, m := range v.Metrics {
			vd.Metrics = append(vd.Metrics, s.metricDoc(v, m))
		}
		doc.Vertices = append(doc.Vertices, vd)
	}
	for _, e := range s.edges {
		doc.Edges = append(doc.Edges, edgeDoc{
			Name: e.Name, ID: uint32(e.ID), From: s.VertexTypeName(e.From), To: s.VertexTypeName(e.To),
			Inverse: e.Inverse, Symmetric: e.Symmetric,
		})
	}
	return doc
}

func (s *Schema) metricDoc(v *VertexTypeDef, m *MetricDef) metricDoc {
	md := metricDoc{Name: m.Name, ID: uint32(m.ID)}
	if m.Min != math.MinInt64 {
		md.Min = &m.Min
	}
	if m.Max != math.MaxInt64 {
		md.Max = &m.Max
	}
	for _, d := range s.derived {
		if d.Vertex == v.ID && d.Metric == m.ID {
			md.Derived = &derivedDoc{Sum: s.edgeByID[d.Sum].Name, Over: s.edgeByID[d.Over].Name}
		}
	}
	return md
}

// Successor returns what next becomes as the schema after s: s itself where both say the
// same, else next with the version after that of s. Where next does not extend s, that is
// an error.
func (s *Schema) Successor(next *Schema) (*Schema, error) {
	same := *next
	same.Version = s.Version
	if bytes.Equal(same.encode(), s.encode()) {
		return s, nil
	}
	if err := next.Extends(s); err != nil {
		return nil, err
	}
	same.Version = s.Version + 1
	return &same, nil
}

// Extends reports whether s may follow old: every type and metric of old is
// still there, under its number, and means the same. The error says what is not.
func (s *Schema) Extends(old *Schema) error {
	for _, v := range old.vertices {
		n, ok := s.vertexByID[v.ID]
		if !ok || n.Name != v.Name {
			return fmt.Errorf("%w: vertex type %s (id %d) may not be removed, renamed or renumbered", ErrSchema, v.Name, v.ID)
		}
		for _, m := range v.Metrics {
			nm, ok := s.MetricByID(v.ID, m.ID)
			if !ok || nm.Name != m.Name || nm.Derived != m.Derived {
				return fmt.Errorf("%w: metric %s of %s (id %d) may not be removed, renamed, renumbered or turned", ErrSchema, m.Name, v.Name, m.ID)
			}
		}
	}
	for _, e := range old.edges {
		n, ok := s.edgeByID[e.ID]
		if !ok || n.Name != e.Name || n.From != e.From || n.To != e.To || n.Symmetric != e.Symmetric {
			return fmt.Errorf("%w: edge type %s (id %d) may not be removed, renamed, renumbered or turned", ErrSchema, e.Name, e.ID)
		}
	}
	for _, d := range old.derived {
		if n := s.derivedCounter(d.name()); n == nil || *n != *d {
			return fmt.Errorf("%w: a derived metric may not be removed or turned", ErrSchema)
		}
	}
	return nil
}
