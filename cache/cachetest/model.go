// Package cachetest holds a model of storage with its history, against which
// answers are checked, and the conformance suite that every stack of tiers runs.
package cachetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lianadb/liana/cache"
)

// Flaws are the rules of CACHE.md that a storage may break. They show that the
// tests would notice.
type Flaws struct {
	OneNumberAnEntry bool // V1: changes applied together share a number
	CounterFromOne   bool // V2: a split's child counts from 1
	TimelineKept     bool // V3: a restore keeps the timeline
}

// Model is a storage in memory: shards, positions, a change log, and every state
// that there ever was. Slots are id % Slots.
type Model struct {
	Flaws  Flaws
	Slots  int
	Record bool // keep the history, for Check
	Window int  // edges in a window
	// ChunkLeast is the number of edges below which a chunk is not given.
	ChunkLeast int

	mu       sync.Mutex
	timeline uint64
	shards   []*shard
	lists    map[cache.List]map[uint64]element
	metrics  map[cache.Vertex]map[uint16]cache.Field
	last     map[cache.Slot]uint64
	versions map[cache.List]uint64
	history  map[cache.List][]version
	values   map[metric][]version
	loads    int
	reads    int
}

type element struct {
	time  int64
	props bool
}

type shard struct {
	cache.Shard
	counter uint64
	log     []cache.Change
	floor   uint64 // changes at or below are trimmed
}

type metric struct {
	vertex cache.Vertex
	metric uint16
}

// version is a state of a list or metric, in force from a position and a time on.
type version struct {
	at    cache.Position
	since time.Time
	edges []cache.Edge // oldest first
	value cache.Field
}

// NewModel returns an empty storage of one shard.
func NewModel(slots int) *Model {
	m := &Model{
		Slots: slots, timeline: 1, Window: cache.WindowEdges, ChunkLeast: 2,
		lists: map[cache.List]map[uint64]element{}, metrics: map[cache.Vertex]map[uint16]cache.Field{},
		last: map[cache.Slot]uint64{}, versions: map[cache.List]uint64{}, history: map[cache.List][]version{}, values: map[metric][]version{},
	}
	m.shards = []*shard{{Shard: cache.Shard{ID: 1, Timeline: 1, Last: cache.Slot(slots - 1)}}}
	return m
}

// SlotOf is the slot of a vertex.
func (m *Model) SlotOf(v cache.Vertex) cache.Slot { return cache.Slot(v.ID % uint64(m.Slots)) }

func (m *Model) owner(s cache.Slot) *shard {
	for _, sh := range m.shards {
		if s >= sh.First && s <= sh.Last {
			return sh
		}
	}
	panic("bug: a slot without a shard")
}

// Apply applies changes as one log entry. Slots and numbers are filled in; edges to
// remove or move need no time. Changes that change nothing are left out. It
// returns those that were made.
func (m *Model) Apply(cs ...cache.Change) []cache.Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	var made []cache.Change
	entry := map[uint32]uint64{}
	for _, c := range cs {
		c.Slot = m.SlotOf(c.List.Vertex)
		if len(m.lists[c.List]) > 0 { // the head of an empty list is gone
			c.Prev = m.versions[c.List]
		}
		if !m.change(&c) {
			continue
		}
		sh := m.owner(c.Slot)
		if !m.Flaws.OneNumberAnEntry || entry[sh.ID] == 0 {
			sh.counter++
			entry[sh.ID] = sh.counter
		}
		c.Number = sh.counter
		sh.log = append(sh.log, c)
		m.note(&c)
		made = append(made, c)
	}
	return made
}

// change changes the state.
func (m *Model) change(c *cache.Change) bool {
	if c.Kind == cache.MetricSet || c.Kind == cache.MetricGone {
		row := m.metrics[c.List.Vertex]
		if row == nil {
			row = map[uint16]cache.Field{}
			m.metrics[c.List.Vertex] = row
		}
		if c.Kind == cache.MetricGone {
			_, had := row[c.Metric]
			delete(row, c.Metric)
			return had
		}
		row[c.Metric] = c.Value
		return true
	}
	l := m.lists[c.List]
	if l == nil {
		l = map[uint64]element{}
		m.lists[c.List] = l
	}
	old, had := l[c.Edge.Peer]
	if had != (c.Kind != cache.EdgeAdded) {
		return false
	}
	switch c.Kind {
	case cache.EdgeRemoved:
		c.Edge.Time = old.time
		delete(l, c.Edge.Peer)
	case cache.EdgeMoved:
		c.Old = cache.Edge{Time: old.time, Peer: c.Edge.Peer}
		l[c.Edge.Peer] = element{c.Edge.Time, c.Props}
	default:
		l[c.Edge.Peer] = element{c.Edge.Time, c.Props}
	}
	return true
}

// note writes the state after a change into the history.
func (m *Model) note(c *cache.Change) {
	m.last[c.Slot] = c.Number
	m.versions[c.List] = c.Number
	if !m.Record {
		return
	}
	at := cache.Position{Timeline: m.timeline, Number: c.Number}
	now := time.Now()
	if c.Kind == cache.MetricSet || c.Kind == cache.MetricGone {
		k := metric{c.List.Vertex, c.Metric}
		v := cache.Absent
		if c.Kind == cache.MetricSet {
			v = c.Value
		}
		m.values[k] = append(m.values[k], version{at: at, since: now, value: v})
		return
	}
	m.history[c.List] = append(m.history[c.List], version{at: at, since: now, edges: m.edges(c.List)})
}

// edges returns a list as it stands, oldest first.
func (m *Model) edges(l cache.List) []cache.Edge {
	var out []cache.Edge
	for peer, e := range m.lists[l] {
		out = append(out, cache.Edge{Time: e.time, Peer: peer})
	}
	slices.SortFunc(out, cache.Edge.Compare)
	return out
}

// Last is the position of the last change of a slot.
func (m *Model) Last(s cache.Slot) cache.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cache.Position{Timeline: m.timeline, Number: m.last[s]}
}

// Calls returns how many entries were loaded, and how many queries were asked.
func (m *Model) Calls() (loads, reads int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loads, m.reads
}

// Poll implements cache.Leaders.
func (m *Model) Poll(_ context.Context, slots []cache.Slot, tell func(cache.Slot, cache.Position)) error {
	for _, s := range slots {
		tell(s, m.Last(s))
	}
	return nil
}

// Load implements cache.Source.
func (m *Model) Load(_ context.Context, wants []cache.Want, got []cache.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range wants {
		m.loads++
		k := &wants[i].Key
		got[i] = m.entry(k)
	}
	return nil
}

// Entry is an entry as it would be loaded now.
func (m *Model) Entry(k *cache.Key) cache.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(k)
}

func (m *Model) entry(k *cache.Key) cache.Entry {
	e := cache.Entry{At: cache.Position{Timeline: m.timeline, Number: m.owner(k.Slot).counter}}
	switch k.Kind {
	case cache.KindRow:
		e.Row = m.row(k.Vertex)
	case cache.KindWindow:
		e.Window = m.window(k.List())
	case cache.KindChunk:
		c, n := &cache.Chunk{Bits: make([]byte, cache.ChunkBytes)}, 0
		for peer := range m.lists[k.List()] {
			if peer/cache.ChunkPeers == k.Chunk {
				c.Set(peer)
				n++
			}
		}
		if n >= m.ChunkLeast {
			e.Chunk = c
		}
	}
	return e
}

// The schema of the model.
const (
	Metrics   = 4
	EdgeTypes = 4
)

func (m *Model) row(v cache.Vertex) *cache.Row {
	r := &cache.Row{Fields: make([]cache.Field, 3*max(Metrics, EdgeTypes))}
	for i := range Metrics {
		r.Fields[cache.MetricField(uint16(i))] = cache.Absent
		if f, ok := m.metrics[v][uint16(i)]; ok {
			r.Fields[cache.MetricField(uint16(i))] = f
		}
	}
	for e := range EdgeTypes {
		for _, in := range []bool{false, true} {
			l := cache.List{Vertex: v, Edge: uint16(e), In: in}
			r.Fields[cache.CountField(l)] = cache.Field(len(m.lists[l]))
		}
	}
	return r
}

func (m *Model) window(l cache.List) *cache.Window {
	w := &cache.Window{Edges: m.edges(l)}
	w.Total = uint64(len(w.Edges))
	if n := len(w.Edges) - m.Window; n > 0 {
		w.Edges = w.Edges[n:]
		w.Floor = w.Edges[0]
	}
	for _, e := range w.Edges {
		w.Props = w.Props || m.lists[l][e.Peer].props
	}
	return w
}

// ErrOldTimeline is the answer to a token from before a restore.
var ErrOldTimeline = fmt.Errorf("token is from before a restore")

// Read implements cache.Storage.
func (m *Model) Read(_ context.Context, opt cache.Options, qs []cache.Query, as []cache.Answer) (cache.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if opt.Token.Timeline != 0 && opt.Token.Timeline != m.timeline {
		return cache.Token{}, ErrOldTimeline
	}
	t := opt.Token
	t.Seen = slices.Clone(t.Seen)
	for i := range qs {
		m.reads++
		q := &qs[i]
		as[i] = answer(q, m.edges(q.List), m.value(q))
		t.See(q.Slot, cache.Position{Timeline: m.timeline, Number: m.last[q.Slot]})
	}
	return t, nil
}

func (m *Model) value(q *cache.Query) cache.Field {
	if f, ok := m.metrics[q.List.Vertex][q.Metric]; ok {
		return f
	}
	return cache.Absent
}

// Led implements cache.Log.
func (m *Model) Led() []cache.Shard {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []cache.Shard
	for _, sh := range m.shards {
		out = append(out, sh.Shard)
	}
	return out
}

func (m *Model) shard(id uint32) (*shard, error) {
	for _, sh := range m.shards {
		if sh.ID == id {
			return sh, nil
		}
	}
	return nil, fmt.Errorf("no shard %d", id)
}

// Bounds implements cache.Log.
func (m *Model) Bounds(id uint32) (cache.Bounds, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sh, err := m.shard(id)
	if err != nil {
		return cache.Bounds{}, err
	}
	return cache.Bounds{First: sh.floor + 1, Last: sh.counter}, nil
}

// Changes implements cache.Log.
func (m *Model) Changes(_ context.Context, id uint32, after uint64, limit int, tell func(*cache.Change)) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sh, err := m.shard(id)
	if err != nil {
		return 0, err
	}
	if after < sh.floor {
		return 0, fmt.Errorf("changes past %d are trimmed up to %d", after, sh.floor)
	}
	told, through := 0, after
	for i := range sh.log {
		c := sh.log[i]
		if c.Number <= after {
			continue
		}
		if told >= limit && c.Number > through {
			return through, nil
		}
		tell(&c)
		told, through = told+1, c.Number
	}
	return sh.counter, nil
}

// Frozen is the storage as a leader sees it that has lost its quorum now: it goes
// on to tell what it knows.
func (m *Model) Frozen() *Model {
	b := m.Backup().m
	m.mu.Lock()
	defer m.mu.Unlock()
	b.Slots, b.Window, b.ChunkLeast, b.timeline = m.Slots, m.Window, m.ChunkLeast, m.timeline
	return b
}

// Trim forgets the changes of all shards but the newest.
func (m *Model) Trim(keep uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, sh := range m.shards {
		if sh.counter > keep {
			sh.floor = max(sh.floor, sh.counter-keep)
		}
		sh.log = slices.DeleteFunc(sh.log, func(c cache.Change) bool { return c.Number <= sh.floor })
	}
}

// Split gives the slots from at on to a new shard.
func (m *Model) Split(at cache.Slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent := m.owner(at)
	if at <= parent.First {
		return
	}
	child := &shard{Shard: parent.Shard, counter: parent.counter, floor: parent.counter}
	child.ID = uint32(len(m.shards) + 1)
	child.First, parent.Last = at, at-1
	if m.Flaws.CounterFromOne {
		child.counter, child.floor = 0, 0
	}
	m.shards = append(m.shards, child)
	if m.Flaws.CounterFromOne {
		return
	}
	child.counter++ // the split is a change of the slots that moved
	child.floor = child.counter
	for s := child.First; s <= child.Last; s++ {
		m.last[s] = child.counter
	}
}

// Backup is a state to restore.
type Backup struct{ m *Model }

// Backup returns the state as it is.
func (m *Model) Backup() Backup {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &Model{last: maps.Clone(m.last), versions: maps.Clone(m.versions), lists: map[cache.List]map[uint64]element{}, metrics: map[cache.Vertex]map[uint16]cache.Field{}}
	for l, s := range m.lists {
		b.lists[l] = maps.Clone(s)
	}
	for v, r := range m.metrics {
		b.metrics[v] = maps.Clone(r)
	}
	for _, sh := range m.shards {
		c := *sh
		c.log = slices.Clone(sh.log)
		b.shards = append(b.shards, &c)
	}
	return Backup{b}
}

// Restore brings a state back, on a timeline of its own.
func (m *Model) Restore(b Backup, r *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.Flaws.TimelineKept {
		m.timeline = r.Uint64() | 1
	}
	m.lists, m.metrics, m.last, m.versions, m.shards = b.m.lists, b.m.metrics, b.m.last, b.m.versions, b.m.shards
	for _, sh := range m.shards {
		sh.Timeline = m.timeline
	}
	now := time.Now()
	for l := range m.history {
		at := cache.Position{Timeline: m.timeline, Number: m.last[m.SlotOf(l.Vertex)]}
		m.history[l] = append(m.history[l], version{at: at, since: now, edges: m.edges(l)})
	}
	for k := range m.values {
		v := cache.Absent
		if f, ok := m.metrics[k.vertex][k.metric]; ok {
			v = f
		}
		at := cache.Position{Timeline: m.timeline, Number: m.last[m.SlotOf(k.vertex)]}
		m.values[k] = append(m.values[k], version{at: at, since: now, value: v})
	}
}
