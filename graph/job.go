package graph

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lianadb/liana/edgelist"
)

// Jobs on a vertex. A command marks the vertex; from then on all that comes to it shares
// its lot. Steps, each of some edges and each a command, pass its lists once: facts of the
// vertex itself are changed, for all others their shards are asked. A step names the place
// that it goes on from, and does nothing at another. When all lists are passed, and all
// asks applied by those they went to, a last command ends the job (RULES C1 to C3).

// maxStep bounds the edges of a step, and maxJobs the jobs at work in a shard.
const (
	maxStep = 512
	maxJobs = 1000
)

// markCommand asks for an operation on a vertex.
type markCommand struct {
	op     VertexOp
	vertex Vertex
}

func appendVertexArg(b []byte, v Vertex) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(v.Type)), v.ID)
}

func (d *decoder) vertex() Vertex { return Vertex{VertexType(d.uint16()), d.uvarint()} }

func (c markCommand) encode() []byte {
	return appendVertexArg([]byte{cmdMark, byte(c.op)}, c.vertex)
}

func decodeMarkCommand(b []byte) (markCommand, error) {
	d := decoder{b: b}
	c := markCommand{VertexOp(d.byte()), d.vertex()}
	if (c.op == VertexLook || c.op > VertexRestore) && d.err == nil {
		d.fail("mark: unknown operation %d", c.op)
	}
	return c, d.done()
}

// markResult answers a mark command. Refused is why nothing was changed, nil where
// the vertex is, or is becoming, what was asked for.
type markResult struct {
	job     VertexJob
	foreign bool // the shard does not own the vertex, or does not know its type
	refused error
}

// applyMark begins a job, unless it is at work already or was done.
func (m *Machine) applyMark(body []byte) (markResult, error) {
	c, err := decodeMarkCommand(body)
	if err != nil {
		return markResult{}, err
	}
	if _, known := m.schema.vertexByID[c.vertex.Type]; !known || !m.owns(SlotOf(c.vertex)) {
		return markResult{foreign: true}, nil
	}
	old := m.marks.of[c.vertex]
	next, refused := old.state.after(c.op)
	switch {
	case refused != nil:
		return markResult{job: old.describe(c.vertex), refused: fmt.Errorf("vertex %v: %w", c.vertex, refused)}, nil
	case next == old.state:
		return markResult{job: old.describe(c.vertex)}, nil
	case m.marks.jobs >= maxJobs && !(old.state != VertexPlain && old.running()):
		return markResult{refused: fmt.Errorf("%d in shard %d: %w", maxJobs, m.cfg.ID, ErrTooManyJobs)}, nil
	}
	m.pos++ // names the job; no list changes
	mk := mark{state: next, job: m.pos, began: m.entry.Now, asked: old.asked}
	for _, l := range m.jobLists(c.vertex, next) {
		o, err := m.open(l)
		if err != nil {
			return markResult{}, err
		}
		mk.total += o.w.Count()
	}
	if next == VertexDeleting {
		if err := m.removeMetrics(c.vertex); err != nil {
			return markResult{}, err
		}
	}
	m.marks.set(c.vertex, mk)
	return markResult{job: mk.describe(c.vertex)}, nil
}

// after is the state that an operation leads to from s.
func (s VertexState) after(op VertexOp) (VertexState, error) {
	switch {
	case op == VertexDelete:
		return VertexDeleting, nil
	case s == VertexDeleting:
		return s, ErrDeleting
	case op == VertexHide && !s.hides():
		return VertexHiding, nil
	case op == VertexRestore && s.hides():
		return VertexRestoring, nil
	}
	return s, nil
}

// removeMetrics removes the counters of a vertex that can be written. Those that are
// derived follow the facts (RULES C4).
func (m *Machine) removeMetrics(v Vertex) error {
	for _, def := range m.schema.Metrics(v.Type) {
		if def.Derived {
			continue
		}
		c := CounterRef{Vertex: v, Metric: def.ID}
		existed, err := m.counters.Delete(c.ref(), m.clock())
		if err != nil {
			return fmt.Errorf("counter %v metric %d: %w", v, def.ID, err)
		}
		if existed {
			m.changed.add(c)
		}
	}
	return nil
}

// jobLists are the lists that a job which leads through a state passes, in its order:
// those of hidden edges of a type first, so that what it hides itself is not met again.
func (m *Machine) jobLists(v Vertex, state VertexState) (lists []ListKey) {
	for _, def := range m.schema.EdgeTypes() {
		l := ListKey{Vertex: v, Type: def.ID}
		from, to := def.From == v.Type, def.To == v.Type
		if from {
			lists = append(lists, l.with(hidden))
		}
		if to {
			lists = append(lists, l.with(hiddenIn))
		}
		if state == VertexRestoring {
			continue
		}
		if from {
			lists = append(lists, l.with(Out))
		}
		if to && !def.Symmetric {
			lists = append(lists, l.with(In))
		}
	}
	return lists
}

// jobOrder is the place of a list among those of its edge type, in the order of jobLists.
func jobOrder(d Direction) int { return (int(d) + 2) % 4 }

// before reports whether a job at p has yet to come to list l, or is in it.
func (p jobPlace) before(l ListKey) bool {
	if p.kind != l.Type {
		return p.kind < l.Type
	}
	return jobOrder(p.dir) <= jobOrder(l.Dir)
}

// stepCommand has a job pass edges, from a place on.
type stepCommand struct {
	vertex Vertex
	job    uint64
	from   jobPlace
	edges  uint64
}

func (c stepCommand) encode() []byte {
	b := appendVertexArg([]byte{cmdStep}, c.vertex)
	for _, n := range []uint64{c.job, uint64(c.from.kind), uint64(c.from.dir), c.from.peer, c.edges} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func decodeStep(b []byte) (stepCommand, error) {
	d := decoder{b: b}
	c := stepCommand{vertex: d.vertex(), job: d.uvarint()}
	c.from = jobPlace{EdgeType(d.uint16()), Direction(d.uint16()), d.uvarint()}
	c.edges = d.uvarint()
	return c, d.done()
}

// applyStep passes the next edges of a job.
func (m *Machine) applyStep(body []byte) error {
	c, err := decodeStep(body)
	if err != nil {
		return err
	}
	mk, ok := m.marks.of[c.vertex]
	if !ok || mk.job != c.job || mk.at != c.from || mk.through || !mk.running() {
		return nil
	}
	at, left, through := mk.at, int(min(c.edges, maxStep)), true
	for _, l := range m.jobLists(c.vertex, mk.state) {
		if !at.before(l) {
			continue
		}
		if at.kind != l.Type || at.dir != l.Dir {
			at = jobPlace{kind: l.Type, dir: l.Dir}
		}
		peers, err := m.peersPast(l, at.peer, left)
		if err != nil {
			return err
		}
		for _, peer := range peers {
			if err := m.pass(l, peer, mk.state); err != nil {
				return fmt.Errorf("list %v, peer %d: %w", l, peer, err)
			}
			at.peer = peer
		}
		if left -= len(peers); left == 0 {
			through = false
			break
		}
	}
	done := mk.done + min(c.edges, maxStep) - uint64(left)
	mk = m.marks.of[c.vertex] // with the asks that were sent
	mk.at, mk.through, mk.done = at, through, done
	m.marks.set(c.vertex, mk)
	return nil
}

// peersPast returns up to n peers of a list, ascending, past one.
func (m *Machine) peersPast(l ListKey, past uint64, n int) (peers []uint64, err error) {
	o, err := m.open(l)
	if err != nil {
		return nil, err
	}
	q := edgelist.Query{Order: edgelist.ByID}
	if past > 0 {
		q.From = &edgelist.Key{ID: past}
	}
	it := o.w.Iter(q)
	for len(peers) < n && it.Next() {
		peers = append(peers, it.Edge().Peer)
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("list %v: %w", l, err)
	}
	return peers, nil
}

// pass does with an edge of a vertex what its state asks for.
func (m *Machine) pass(l ListKey, peer uint64, state VertexState) error {
	def, _ := m.schema.EdgeTypeByID(l.Type)
	own := l.Dir == Out || l.Dir == hidden
	if def.Symmetric && l.Dir == Out {
		own = l.Vertex.ID < peer
	}
	f := fact{def, l.Vertex.ID, peer}
	switch {
	case own && state == VertexDeleting:
		_, err := m.deleteFact(f)
		return err
	case own && state == VertexHiding:
		return m.setBits(f, bySource, 0)
	case own:
		return m.setBits(f, 0, bySource)
	case state == VertexDeleting:
		return m.ask(recAskDelete, l, peer)
	case state == VertexHiding:
		return m.ask(recAskHide, l, peer)
	}
	return m.ask(recAskShow, l, peer)
}

// endCommand ends a job that has passed everything.
type endCommand struct {
	vertex Vertex
	job    uint64
}

func (c endCommand) encode() []byte {
	return binary.AppendUvarint(appendVertexArg([]byte{cmdEnd}, c.vertex), c.job)
}

func decodeEnd(b []byte) (endCommand, error) {
	d := decoder{b: b}
	c := endCommand{d.vertex(), d.uvarint()}
	return c, d.done()
}

// applyEnd ends a job whose lists are passed and whose asks have been applied. Until a
// vertex that is deleted has no edges any more, it is not plain; nor hidden, while one is
// to be seen: what comes late has been asked for anew.
func (m *Machine) applyEnd(body []byte) error {
	c, err := decodeEnd(body)
	if err != nil {
		return err
	}
	mk, ok := m.marks.of[c.vertex]
	if !ok || mk.job != c.job || !mk.through || !m.acked(mk.asked) {
		return nil
	}
	for _, l := range m.jobLists(c.vertex, mk.state) {
		if mk.state == VertexRestoring || mk.state == VertexHiding && l.Dir > In {
			continue
		}
		o, err := m.open(l)
		if err != nil {
			return err
		}
		if o.w.Count() > 0 {
			return nil
		}
	}
	switch mk.state {
	case VertexHiding:
		mk.state = VertexHidden
		m.marks.set(c.vertex, mk)
		return nil
	case VertexDeleting:
		if err := m.removeMetrics(c.vertex); err != nil {
			return err
		}
	}
	m.marks.set(c.vertex, mark{})
	return nil
}

// acked reports whether all that was sent up to a position has been applied by those it
// went to, as this shard's log knows: by what is trimmed.
func (m *Machine) acked(pos uint64) bool {
	for _, s := range *m.streams.Load() { // any order: all count
		if s.last > 0 && s.trimmed < min(pos, s.last) {
			return false
		}
	}
	return true
}

// runningJobs returns the vertices that jobs are at work on, in order.
func (m *marks) runningJobs() []runningJob {
	if m.jobs == 0 {
		return nil
	}
	out := make([]runningJob, 0, m.jobs)
	for v, mk := range m.of {
		if mk.running() {
			out = append(out, runningJob{v, mk})
		}
	}
	slices.SortFunc(out, func(a, b runningJob) int { return placeOf(a.vertex).compare(placeOf(b.vertex)) })
	return out
}

// runningJob is a job as a view shows it.
type runningJob struct {
	vertex Vertex
	mark
}

// A question to a shard is a command too, so that the answer is of its log: how far the
// stream has come on which it sends what is for a slot. What it had acknowledged before it
// was asked lies up to there.

func encodeGiven(slot Slot) []byte {
	return binary.AppendUvarint([]byte{cmdGiven}, uint64(slot))
}

func decodeGiven(b []byte) (Slot, error) {
	d := decoder{b: b}
	slot := d.slot()
	return slot, d.done()
}

func (m *Machine) applyGiven(body []byte) (deliverResult, error) {
	slot, err := decodeGiven(body)
	if err != nil {
		return deliverResult{}, err
	}
	r := deliverResult{owners: m.owners}
	if s, ok := (*m.streams.Load())[m.owners.of(slot).Shard]; ok {
		r.cursor = s.last
	}
	return r, nil
}
