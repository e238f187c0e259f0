package cache

import "math"

// Row holds the counts and metrics of a vertex. A field past its end is unknown: the
// row is older than the schema that gave the field.
type Row struct {
	Fields []Field
}

// Field is the value of a counter. The two lowest values have meanings of their
// own; a counter that stands at one of them is Unknown to caches.
type Field int64

// The fields that are no values.
const (
	Unknown Field = math.MinInt64     // ask storage, e.g. because it expires
	Absent  Field = math.MinInt64 + 1 // the counter does not exist, and reads as 0
)

// FieldOf is the field of a counter that has a value.
func FieldOf(value int64) Field {
	if Field(value) <= Absent {
		return Unknown
	}
	return Field(value)
}

// MetricField is the place of a metric in its vertex's row, CountField that of
// the length of a list. Numbers of the schema are never used twice, so neither
// are places.
func MetricField(metric uint16) int { return 3 * int(metric) }

// CountField is described at MetricField.
func CountField(l List) int {
	if l.In {
		return 3*int(l.Edge) + 2
	}
	return 3*int(l.Edge) + 1
}

// field returns a field of the row, Unknown past its end.
func (r *Row) field(i int) Field {
	if i >= len(r.Fields) {
		return Unknown
	}
	return r.Fields[i]
}

// ChunkPeers is the number of peers that a chunk covers, ChunkBytes its size, and
// ChunkLeast how many edges it must hold to be worth its memory. A chunk is small
// enough to be read whole for one of its bits.
const (
	ChunkPeers = 2048
	ChunkBytes = ChunkPeers / 8
	ChunkLeast = 20
)

// Chunk tells for ChunkPeers adjacent peers which of them are in a list: bit i
// from the highest of the first byte on is peer Key.Chunk*ChunkPeers + i.
type Chunk struct {
	Bits []byte // ChunkBytes of them
}

func (c *Chunk) has(peer uint64) bool {
	i := peer % ChunkPeers
	return c.Bits[i/8]&(0x80>>(i%8)) != 0
}

// Set adds a peer to a chunk that is being built.
func (c *Chunk) Set(peer uint64) {
	i := peer % ChunkPeers
	c.Bits[i/8] |= 0x80 >> (i % 8)
}
