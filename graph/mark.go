package graph

import (
	"encoding/binary"
	"fmt"

	"github.com/lianadb/liana/kv"
)

// VertexState says what is being done to a vertex, or was.
type VertexState uint8

// The states.
const (
	VertexPlain     VertexState = iota // nothing
	VertexDeleting                     // its edges are being deleted
	VertexHiding                       // its edges are being hidden
	VertexHidden                       // its edges are hidden
	VertexRestoring                    // its edges are coming back
)

func (s VertexState) String() string {
	return [...]string{"plain", "deleting", "hiding", "hidden", "restoring"}[min(s, VertexRestoring)]
}

// hides reports whether edges of a vertex in this state are not to be seen.
func (s VertexState) hides() bool { return s == VertexHiding || s == VertexHidden }

// VertexOp is what is asked for a vertex.
type VertexOp uint8

// The operations.
const (
	VertexLook VertexOp = iota // only tell the state
	VertexDelete
	VertexHide
	VertexRestore
)

// VertexJob tells the state of a vertex, and how far the job has come that changes it.
type VertexJob struct {
	Vertex Vertex
	State  VertexState
	Began  int64 // log time, µs
	// Total are the edges that the vertex had when the job began, Done those that the job
	// has passed. More may come while it runs.
	Total, Done uint64
}

// mark is what a shard notes of a vertex that is not plain. It lies under the vertex's
// slot:
//
//	row: version [1] state [1] through [1] | job, began, total, done, asked (uvarint)
//	     | edge type, direction, peer (uvarint): where the job has come to
type mark struct {
	state VertexState
	// job is the position at which it began, and names it.
	job         uint64
	began       int64
	total, done uint64
	// asked is the position of the last ask that the job has sent; 0: none.
	asked   uint64
	at      jobPlace
	through bool // all lists were passed
}

// jobPlace is the last edge that a job has passed.
type jobPlace struct {
	kind EdgeType
	dir  Direction
	peer uint64
}

const markVersion = 1

func markKey(b []byte, v Vertex) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(SlotOf(v)))
	b = binary.BigEndian.AppendUint16(b, typeMark)
	b = binary.BigEndian.AppendUint16(b, uint16(v.Type))
	return binary.BigEndian.AppendUint64(b, v.ID)
}

// parseMarkKey reads a key, and reports whether it is that of a mark.
func parseMarkKey(k []byte) (Vertex, bool) {
	if len(k) != 14 || binary.BigEndian.Uint16(k[2:]) != typeMark {
		return Vertex{}, false
	}
	return Vertex{VertexType(binary.BigEndian.Uint16(k[4:])), binary.BigEndian.Uint64(k[6:])}, true
}

func (m *mark) encode() []byte {
	b := []byte{markVersion, byte(m.state), flagOf(m.through)}
	for _, n := range []uint64{m.job, uint64(m.began), m.total, m.done, m.asked, uint64(m.at.kind), uint64(m.at.dir), m.at.peer} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func flagOf(is bool) byte {
	if is {
		return 1
	}
	return 0
}

func decodeMark(row []byte) (mark, error) {
	d := decoder{b: row}
	if v := d.byte(); v != markVersion && d.err == nil {
		d.fail("mark: version %d", v)
	}
	m := mark{state: VertexState(d.byte()), through: d.byte() != 0}
	m.job, m.began, m.total, m.done, m.asked = d.uvarint(), int64(d.uvarint()), d.uvarint(), d.uvarint(), d.uvarint()
	m.at = jobPlace{EdgeType(d.uint16()), Direction(d.uint16()), d.uvarint()}
	if (m.state == VertexPlain || m.state > VertexRestoring || m.at.dir > hiddenIn) && d.err == nil {
		d.fail("mark: state %d, direction %d", m.state, m.at.dir)
	}
	return m, d.done()
}

func (m *mark) describe(v Vertex) VertexJob {
	return VertexJob{Vertex: v, State: m.state, Began: m.began, Total: m.total, Done: m.done}
}

// running reports whether a job is at work.
func (m *mark) running() bool { return m.state != VertexHidden }

// marks are those of a shard's vertices, with what is to be cut of them.
type marks struct {
	of    map[Vertex]mark
	dirty map[Vertex]struct{}
	jobs  int // of of, those with a job at work
}

func newMarks() marks { return marks{of: map[Vertex]mark{}, dirty: map[Vertex]struct{}{}} }

func (m *marks) state(v Vertex) VertexState {
	if len(m.of) == 0 {
		return VertexPlain
	}
	return m.of[v].state
}

// set gives a vertex its mark; one that is plain takes it away.
func (m *marks) set(v Vertex, mk mark) {
	if old, ok := m.of[v]; ok && old.running() {
		m.jobs--
	}
	m.dirty[v] = struct{}{}
	if mk.state == VertexPlain {
		delete(m.of, v)
		return
	}
	if m.of[v] = mk; mk.running() {
		m.jobs++
	}
}

// cut writes what was changed. The order does not matter to a batch of single rows.
func (m *marks) cut(b kv.Batch) error {
	for v := range m.dirty {
		mk, ok := m.of[v]
		var err error
		if ok {
			err = b.Set(markKey(nil, v), mk.encode())
		} else {
			err = b.Delete(markKey(nil, v))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// loadMarks reads the marks of a range of slots.
func loadMarks(r kv.Reader, own *Claim) (m marks, err error) {
	m = newMarks()
	it, err := r.NewIter(dataSpan(own))
	if err != nil {
		return m, err
	}
	defer it.Close()
	for slot := own.First; slot <= own.Last; slot++ {
		key := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(slot)), typeMark)
		for ok := it.SeekGE(key); ok; ok = it.Next() {
			v, is := parseMarkKey(it.Key())
			if !is || SlotOf(v) != slot {
				break
			}
			row, err := it.Value()
			if err != nil {
				return m, err
			}
			mk, err := decodeMark(row)
			if err != nil {
				return m, fmt.Errorf("mark of vertex %v: %w", v, err)
			}
			m.set(v, mk)
		}
	}
	clear(m.dirty)
	return m, it.Error()
}

// drop forgets the marks of slots that are another shard's now.
func (m *marks) drop(own *Claim) {
	for v, mk := range m.of {
		if own.owns(SlotOf(v)) {
			continue
		}
		delete(m.of, v)
		if mk.running() {
			m.jobs--
		}
	}
}
