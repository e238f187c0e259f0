package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
)

// Schema names the types of vertices and edges, the metrics and the derived
// counters. A Schema does not change once made: a new version is a new Schema.
type Schema struct {
	Version  uint64
	vertices []*VertexTypeDef
	edges    []*EdgeTypeDef
	derived  []*Derived

	vertexByName map[string]*VertexTypeDef
	vertexByID   map[VertexType]*VertexTypeDef
	edgeByName   map[string]*EdgeTypeDef
	edgeByID     map[EdgeType]*EdgeTypeDef
	sumsOf       map[EdgeType][]*Derived // by the edge type that is counted
	sumsOver     map[EdgeType][]*Derived // by the edge type that owns
}

// VertexTypeDef is a type of vertices.
type VertexTypeDef struct {
	ID      VertexType
	Name    string
	Dense   bool // ids are small and without great gaps
	Metrics []*MetricDef
}

// MetricDef is a named counter that each vertex of a type has. Its id is its
// place in the vertex's counter row.
type MetricDef struct {
	ID       Metric
	Name     string
	Min, Max int64 // caps of every increment
	Derived  bool
}

// EdgeTypeDef is a type of edges. The fact of a symmetric type lies at the
// smaller id, and both ends have it in their OUT list.
type EdgeTypeDef struct {
	ID        EdgeType
	Name      string
	From, To  VertexType
	Inverse   string
	Symmetric bool
}

// Derived is a counter that follows from edges: for each edge a -Over-> b,
// the metric of a holds the number of Sum edges that reach b.
type Derived struct {
	Vertex VertexType
	Metric Metric
	Sum    EdgeType
	Over   EdgeType
}

// Limits of a schema.
const (
	maxTypes    = 1024
	maxMetrics  = 64     // fields of a counter row
	maxTypeID   = 0xFEFF // the numbers above are used by the key layout
	maxNameSize = 63
)

// ErrSchema is returned for a schema that breaks a rule, or that would change
// what stored data means.
var ErrSchema = errors.New("schema")

// VertexType finds a vertex type by name.
func (s *Schema) VertexType(name string) (VertexType, bool) {
	d, ok := s.vertexByName[name]
	if !ok {
		return 0, false
	}
	return d.ID, true
}

// VertexTypeName returns the name of t, or its number where there is none.
func (s *Schema) VertexTypeName(t VertexType) string {
	if d, ok := s.vertexByID[t]; ok {
		return d.Name
	}
	return fmt.Sprintf("#%d", t)
}

// VertexTypes returns all vertex types by id.
func (s *Schema) VertexTypes() []*VertexTypeDef { return s.vertices }

// Dense reports whether the ids of a vertex type are said to be dense.
func (s *Schema) Dense(t VertexType) bool {
	d, ok := s.vertexByID[t]
	return ok && d.Dense
}

// EdgeType finds an edge type by name.
func (s *Schema) EdgeType(name string) (*EdgeTypeDef, bool) {
	d, ok := s.edgeByName[name]
	return d, ok
}

// EdgeTypeByID finds an edge type by number.
func (s *Schema) EdgeTypeByID(id EdgeType) (*EdgeTypeDef, bool) {
	d, ok := s.edgeByID[id]
	return d, ok
}

// EdgeTypes returns all edge types by id.
func (s *Schema) EdgeTypes() []*EdgeTypeDef { return s.edges }

// Metric finds a metric of a vertex type by name.
func (s *Schema) Metric(t VertexType, name string) (*MetricDef, bool) {
	for _, m := range s.Metrics(t) {
		if m.Name == name {
			return m, true
		}
	}
	return nil, false
}

// MetricByID finds a metric of a vertex type by number.
func (s *Schema) MetricByID(t VertexType, id Metric) (*MetricDef, bool) {
	for _, m := range s.Metrics(t) {
		if m.ID == id {
			return m, true
		}
	}
	return nil, false
}

// Metrics returns the metrics of a vertex type by id.
func (s *Schema) Metrics(t VertexType) []*MetricDef {
	if d, ok := s.vertexByID[t]; ok {
		return d.Metrics
	}
	return nil
}

// schemaDoc is the written form: YAML for people, JSON in the log.
type schemaDoc struct {
	Version  uint64      `yaml:"version,omitempty" json:"version,omitempty"`
	Vertices []vertexDoc `yaml:"vertices" json:"vertices"`
	Edges    []edgeDoc   `yaml:"edges" json:"edges"`
}

type vertexDoc struct {
	Name    string      `yaml:"name" json:"name"`
	ID      uint32      `yaml:"id" json:"id"`
	IDs     string      `yaml:"ids,omitempty" json:"ids,omitempty"`
	Metrics []metricDoc `yaml:"metrics,omitempty" json:"metrics,omitempty"`
}

type metricDoc struct {
	Name    string      `yaml:"name" json:"name"`
	ID      uint32      `yaml:"id" json:"id"`
	Min     *int64      `yaml:"min,omitempty" json:"min,omitempty"`
	Max     *int64      `yaml:"max,omitempty" json:"max,omitempty"`
	Derived *derivedDoc `yaml:"derived,omitempty" json:"derived,omitempty"`
}

type derivedDoc struct {
	Sum  string `yaml:"sum" json:"sum"`
	Over string `yaml:"over" json:"over"`
}

type edgeDoc struct {
	Name      string `yaml:"name" json:"name"`
	ID        uint32 `yaml:"id" json:"id"`
	From      string `yaml:"from" json:"from"`
	To        string `yaml:"to" json:"to"`
	Inverse   string `yaml:"inverse,omitempty" json:"inverse,omitempty"`
	Symmetric bool   `yaml:"symmetric,omitempty" json:"symmetric,omitempty"`
}

func defaultDoc() schemaDoc {
	return schemaDoc{
		Version: 1,
		Vertices: []vertexDoc{
			{Name: "user", ID: 1, Metrics: []metricDoc{
				{Name: "likes_received", ID: 1, Derived: &derivedDoc{Sum: "like", Over: "published"}},
			}},
			{Name: "note", ID: 2, Metrics: []metricDoc{
				{Name: "views", ID: 1}, {Name: "replies", ID: 2}, {Name: "shares", ID: 3},
			}},
			{Name: "comment", ID: 3},
		},
		Edges: []edgeDoc{
			{Name: "like", ID: 1, From: "user", To: "note", Inverse: "liked_by"},
			{Name: "favorite", ID: 2, From: "user", To: "note", Inverse: "favorited_by"},
			{Name: "follow", ID: 3, From: "user", To: "user", Inverse: "followed_by"},
			{Name: "published", ID: 4, From: "user", To: "note", Inverse: "published_by"},
		},
	}
}

// DefaultSchema is the schema of a server that was given none.
func DefaultSchema() *Schema {
	s, err := newSchema(defaultDoc())
	if err != nil {
		panic("bug: the default schema is refused: " + err.Error())
	}
	return s
}

func newSchema(doc schemaDoc) (*Schema, error) {
	s := &Schema{
		Version:      max(doc.Version, 1),
		vertexByName: map[string]*VertexTypeDef{}, vertexByID: map[VertexType]*VertexTypeDef{},
		edgeByName: map[string]*EdgeTypeDef{}, edgeByID: map[EdgeType]*EdgeTypeDef{},
		sumsOf: map[EdgeType][]*Derived{}, sumsOver: map[EdgeType][]*Derived{},
	}
	if len(doc.Vertices) == 0 || len(doc.Edges) == 0 {
		return nil, fmt.Errorf("%w: vertices and edges must each name at least one type", ErrSchema)
	}
	if len(doc.Vertices) > maxTypes || len(doc.Edges) > maxTypes {
		return nil, fmt.Errorf("%w: more than %d types", ErrSchema, maxTypes)
	}
	for _, v := range doc.Vertices {
		if err := s.addVertexType(v); err != nil {
			return nil, err
		}
	}
	for _, e := range doc.Edges {
		if err := s.addEdgeType(e); err != nil {
			return nil, err
		}
	}
	for _, v := range doc.Vertices {
		for _, m := range v.Metrics {
			if err := s.addDerived(v, m); err != nil {
				return nil, err
			}
		}
	}
	sort.Slice(s.vertices, func(i, j int) bool { return s.vertices[i].ID < s.vertices[j].ID })
	sort.Slice(s.edges, func(i, j int) bool { return s.edges[i].ID < s.edges[j].ID })
	return s, nil
}

func (s *Schema) addVertexType(v vertexDoc) error {
	where := fmt.Sprintf("vertices[%s]", v.Name)
	if err := checkName(where, v.Name, v.ID); err != nil {
		return err
	}
	if s.vertexByName[v.Name] != nil || s.vertexByID[VertexType(v.ID)] != nil {
		return fmt.Errorf("%w: %s: name or id %d is used twice", ErrSchema, where, v.ID)
	}
	if v.IDs != "" && v.IDs != "dense" && v.IDs != "sparse" {
		return fmt.Errorf("%w: %s.ids: %q (allowed: dense, sparse)", ErrSchema, where, v.IDs)
	}
	d := &VertexTypeDef{ID: VertexType(v.ID), Name: v.Name, Dense: v.IDs == "dense"}
	for _, m := range v.Metrics {
		md, err := newMetric(where, d, m)
		if err != nil {
			return err
		}
		d.Metrics = append(d.Metrics, md)
	}
	sort.Slice(d.Metrics, func(i, j int) bool { return d.Metrics[i].ID < d.Metrics[j].ID })
	s.vertices = append(s.vertices, d)
	s.vertexByName[d.Name], s.vertexByID[d.ID] = d, d
	return nil
}

func newMetric(where string, d *VertexTypeDef, m metricDoc) (*MetricDef, error) {
	where += ".metrics[" + m.Name + "]"
	if err := checkName(where, m.Name, m.ID); err != nil {
		return nil, err
	}
	if m.ID > maxMetrics {
		return nil, fmt.Errorf("%w: %s.id: %d (allowed: 1 to %d)", ErrSchema, where, m.ID, maxMetrics)
	}
	for _, o := range d.Metrics {
		if o.Name == m.Name || o.ID == Metric(m.ID) {
			return nil, fmt.Errorf("%w: %s: name or id %d is used twice", ErrSchema, where, m.ID)
		}
	}
	md := &MetricDef{ID: Metric(m.ID), Name: m.Name, Min: math.MinInt64, Max: math.MaxInt64, Derived: m.Derived != nil}
	if m.Min != nil {
		md.Min = *m.Min
	}
	if m.Max != nil {
		md.Max = *m.Max
	}
	if md.Min > 0 || md.Max < 0 || (md.Derived && (m.Min != nil || m.Max != nil)) {
		return nil, fmt.Errorf("%w: %s: min must be <= 0 <= max, and a derived metric has neither", ErrSchema, where)
	}
	return md, nil
}

func (s *Schema) addEdgeType(e edgeDoc) error {
	where := fmt.Sprintf("edges[%s]", e.Name)
	if err := checkName(where, e.Name, e.ID); err != nil {
		return err
	}
	if s.edgeByName[e.Name] != nil || s.edgeByID[EdgeType(e.ID)] != nil {
		return fmt.Errorf("%w: %s: name or id %d is used twice", ErrSchema, where, e.ID)
	}
	from, ok := s.vertexByName[e.From]
	if !ok {
		return fmt.Errorf("%w: %s.from: no vertex type %q", ErrSchema, where, e.From)
	}
	to, ok := s.vertexByName[e.To]
	if !ok {
		return fmt.Errorf("%w: %s.to: no vertex type %q", ErrSchema, where, e.To)
	}
	if e.Symmetric && from != to {
		return fmt.Errorf("%w: %s: a symmetric type joins vertices of one type", ErrSchema, where)
	}
	d := &EdgeTypeDef{ID: EdgeType(e.ID), Name: e.Name, From: from.ID, To: to.ID, Inverse: e.Inverse, Symmetric: e.Symmetric}
	s.edges = append(s.edges, d)
	s.edgeByName[d.Name], s.edgeByID[d.ID] = d, d
	return nil
}

func (s *Schema) addDerived(v vertexDoc, m metricDoc) error {
	if m.Derived == nil {
		return nil
	}
	where := fmt.Sprintf("vertices[%s].metrics[%s].derived", v.Name, m.Name)
	sum, over := s.edgeByName[m.Derived.Sum], s.edgeByName[m.Derived.Over]
	switch {
	case sum == nil || over == nil:
		return fmt.Errorf("%w: %s: sum and over must name edge types", ErrSchema, where)
	case sum.Symmetric || over.Symmetric:
		return fmt.Errorf("%w: %s: symmetric edge types cannot be summed", ErrSchema, where)
	case sum == over:
		return fmt.Errorf("%w: %s: sum and over must differ", ErrSchema, where)
	case over.From != VertexType(v.ID) || sum.To != over.To:
		return fmt.Errorf("%w: %s: over must lead from %s to the type that sum reaches", ErrSchema, where, v.Name)
	}
	d := &Derived{Vertex: VertexType(v.ID), Metric: Metric(m.ID), Sum: sum.ID, Over: over.ID}
	s.derived = append(s.derived, d)
	s.sumsOf[sum.ID] = append(s.sumsOf[sum.ID], d)
	s.sumsOver[over.ID] = append(s.sumsOver[over.ID], d)
	return nil
}

func checkName(where, name string, id uint32) error {
	ok := len(name) > 0 && len(name) <= maxNameSize && name[0] >= 'a' && name[0] <= 'z'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_')
	}
	if !ok {
		return fmt.Errorf("%w: %s.name: want a-z, 0-9 and _, beginning with a letter, at most %d", ErrSchema, where, maxNameSize)
	}
	if id == 0 || id > maxTypeID {
		return fmt.Errorf("%w: %s.id: %d (allowed: 1 to %d)", ErrSchema, where, id, maxTypeID)
	}
	return nil
}

// encode is the form in the log and the store: JSON of a fixed struct, which
// has one order of fields and none of maps.
func (s *Schema) encode() []byte {
	b, err := json.Marshal(s.doc())
	if err != nil {
		panic("bug: a schema does not encode: " + err.Error())
	}
	return b
}

func decodeSchema(b []byte) (*Schema, error) {
	var doc schemaDoc
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	return newSchema(doc)
}

func (d *MetricDef) hasMin() bool { return d.Min != math.MinInt64 }
func (d *MetricDef) hasMax() bool { return d.Max != math.MaxInt64 }
