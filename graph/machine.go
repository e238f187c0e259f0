package graph

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
	"github.com/lianadb/liana/kv/shard"
)

// Machine is the state machine of one shard: its edge lists, counters, change
// log, outbox and cursors. It implements shard.Machine. Apply, Cut, Publish and
// Lead are never called concurrently; everything readers touch is behind view,
// last and cache.
//
// Invariant: between Cut and the next Apply, the store holds all of the state and
// the working set (lists, rows, trims, dirty streams) is empty.
type Machine struct {
	cfg   MachineConfig
	cache *pageCache

	// State, as the last applied entry left it.
	timeline    uint64
	schema      *Schema // nil before the first init command
	pos         uint64  // of the last change
	totals      totals
	family      *family // nil: never split
	birth       *Birth  // nil: not split off
	changeFloor uint64  // changes at or below are trimmed from the change log
	streams     atomic.Pointer[map[uint32]*stream]
	recoveries  uint64         // how often the majority was lost
	owners      owners         // nil before the first init command
	own         *Claim         // of this shard in owners; nil: none
	counters    *counter.State // nil without slots
	rowKey      []byte         // of refOf
	backfills   backfills
	marks       marks

	// Working set since the last cut.
	lists     map[ListKey]*openList
	rows      []row
	trims     []trim
	touched   []SlotPosition // slots changed, for last
	schemaNew bool
	recovered bool // recoveries is to be cut
	ownersNew bool // to be cut
	// backfills are to be cut
	backfillsNew bool
	ownersTold   bool  // to cfg.Learn
	rewrites     []row // of outboxes; without a value: to be deleted
	child        *child
	treesNoted   map[string]bool // heads of lists that became trees, or are none any more
	floorCut     uint64          // changeFloor as the last cut wrote it

	// Of the entry being applied.
	entry   shard.Entry
	changes rowWriter
	derived derivedSums
	ends    pendingSplits
	due     shard.Due
	changed changedCounters

	// For readers.
	view     atomic.Pointer[view]
	cutBegun atomic.Uint64
	last     *[NumSlots]atomic.Uint64 // position of each slot's last change
	moved    notifier                 // a view was published
	routes   atomic.Pointer[routes]   // nil before the first init command
	fault    atomic.Pointer[error]
	stopped  atomic.Bool // the shard was, for the fault
	closed   atomic.Bool

	withheld atomic.Uint32 // reads of slots from here on wait
	leads    atomic.Bool   // as the last Lead said
	outbox   *outbox
	blind    blind
	scratch  edgelist.Scratch

	// What the last Cut wrote, for the cache.
	keys    []pageKey
	written []*edgelist.Page
	stale   []pageKey // written without being read
}

// MachineConfig configures the state machine of a shard. Retain must be the same on all
// replicas.
type MachineConfig struct {
	ID uint32
	// Founding is the number of shards of the founding, for states from before that was
	// part of them.
	Founding int
	Store    kv.Store
	Lists    edgelist.Options
	// Retain is how many changes the change log keeps. Default 1,048,576.
	Retain uint64
	// Learn, where set, is told whom the state calls the owners of slots, and Born that a
	// shard was split off. They must not wait.
	Learn func(owners)
	Born  func(child uint32)
	// Damaged, where set, is told once of the first fault, and whether it stops the shard on
	// this node. It must not wait.
	Damaged func(error) (stops bool)
	// Others, where set, returns the claims of the other replicas on this node.
	Others func(own uint32) []Claim
	// CounterRows bounds the counter rows kept decoded; 0: as kv/counter does. It changes
	// speed only.
	CounterRows int
}

// counterConfig is the configuration of the counters of this shard.
func (m *Machine) counterConfig(own *Claim) counter.Config {
	c := counterConfig(own)
	c.CacheRows = m.cfg.CounterRows
	return c
}

// counterConfig is the configuration of the counters of a range of slots.
func counterConfig(own *Claim) counter.Config {
	return counter.Config{
		Prefix: func(dst []byte, slot uint16) []byte {
			return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(dst, slot), typeDedupe)
		},
		FirstSlot: uint16(own.First), EndSlot: uint16(own.Last) + 1,
	}
}

// row is a change or outbox row on its way into the next cut. An outbox row
// names its stream.
type row struct {
	key, value []byte
	last       uint64
	to         *stream
}

// openList is an edge list in the working set.
type openList struct {
	key     ListKey
	w       *edgelist.Writer // nil: not read
	wasTree bool             // when it was read
	unread  []edgelist.Edge  // adds to a list that is not read
	version uint64           // of the last of them
}

// openMachine reads the state of a shard, or begins an empty one.
func openMachine(cfg MachineConfig, cache *pageCache) (*Machine, error) {
	if cfg.Retain == 0 {
		cfg.Retain = 1 << 20
	}
	m := &Machine{
		cfg: cfg, cache: cache, marks: newMarks(),
		lists: map[ListKey]*openList{}, blind: newBlind(), treesNoted: map[string]bool{},
		changes: rowWriter{withPrev: true},
		derived: derivedSums{sums: map[CounterRef]int64{}},
		changed: changedCounters{known: map[CounterRef]struct{}{}},
		last:    new([NumSlots]atomic.Uint64),
	}
	m.streams.Store(&map[uint32]*stream{})
	m.withheld.Store(noSlot)
	if err := m.load(); err != nil {
		return nil, fmt.Errorf("shard %d: %w", cfg.ID, markDamage(err))
	}
	m.outbox = newOutbox(m)
	return m, m.publishView()
}

// Close releases the view. Readers still at work keep theirs.
func (m *Machine) Close() {
	m.outbox.close()
	m.closed.Store(true)
	m.dropView()
	m.moved.wake()
}

func (m *Machine) dropView() {
	if v := m.view.Swap(nil); v != nil {
		v.release()
	}
}

// Apply implements shard.Machine.
func (m *Machine) Apply(e shard.Entry) ([]any, error) {
	m.entry = e
	results := make([]any, len(e.Commands))
	for i, cmd := range e.Commands {
		res, err := m.command(cmd)
		if err != nil {
			return nil, m.failed(fmt.Errorf("shard %d: entry %d, command %d: %w", m.cfg.ID, e.Index, i, err))
		}
		results[i] = res
	}
	if err := m.endEntry(); err != nil {
		return nil, m.failed(fmt.Errorf("shard %d: entry %d: %w", m.cfg.ID, e.Index, err))
	}
	return results, nil
}

func (m *Machine) command(cmd []byte) (any, error) {
	if len(cmd) == 0 {
		return nil, kv.Corruptionf("empty command")
	}
	kind, body := cmd[0], cmd[1:]
	if m.schema == nil && kind != cmdInit && kind != cmdRecover {
		return nil, fmt.Errorf("command kind %d before init: %w", kind, kv.ErrCorruption)
	}
	switch kind {
	case cmdInit:
		return nil, m.applyInit(body)
	case cmdMutate:
		return m.applyMutate(body)
	case cmdDeliver, cmdConvey:
		return m.applyDeliver(kind, body)
	case cmdClaims:
		return nil, m.applyClaims(body)
	case cmdSplit:
		return m.applySplit(body)
	case cmdTrim:
		return nil, m.applyTrim(body)
	case cmdIncrement:
		return m.applyIncrement(body)
	case cmdSetCounter:
		return m.applySetCounter(body)
	case cmdRemoveCounter:
		return m.applyRemoveCounter(body)
	case cmdEdit:
		return m.applyEdits(body)
	case cmdExpire:
		_, err := m.counters.Sweep(m.clock(), sweepLimit)
		return nil, err
	case cmdBackfill:
		return nil, m.applyBackfill(body)
	case cmdMark:
		return m.applyMark(body)
	case cmdStep:
		return nil, m.applyStep(body)
	case cmdEnd:
		return nil, m.applyEnd(body)
	case cmdGiven:
		return m.applyGiven(body)
	case cmdRecover:
		return nil, m.applyRecover()
	case cmdSkip:
		return m.applySkip(body)
	}
	return nil, errUnknownCommand(kind)
}

// applyInit sets the timeline and a schema. It is the first command of a shard
// and comes again with each newer schema.
func (m *Machine) applyInit(body []byte) error {
	timeline, s, shards, err := decodeInit(body)
	if err != nil {
		return err
	}
	if m.schema != nil && s.Version <= m.schema.Version {
		return nil // proposed twice
	}
	if m.schema == nil {
		m.timeline = timeline
		if shards == 0 { // of a version before owners were part of the state
			shards = m.cfg.Founding
		}
		if err := m.found(shards); err != nil {
			return err
		}
	}
	old := m.schema
	m.schema, m.schemaNew = s, true
	if old != nil {
		m.beginBackfills(old)
	}
	return nil
}

// found gives the shard its slots of the founding. A replica that joins a shard that was
// split is sent the state, and does not come here. Where it does, since its leader has not
// applied the split yet, and the child is on this node, it stops: what it would write is
// the child's.
func (m *Machine) found(shards int) error {
	o := foundingOwners(shards)
	own := o.own(m.cfg.ID)
	if own == nil {
		return kv.Corruptionf("shard %d at the founding of %d", m.cfg.ID, shards)
	}
	for _, c := range m.others() {
		if c.First <= own.Last && c.Last >= own.First {
			return fmt.Errorf("slots %d to %d are shard %d's on this node: the log begins before a split", c.First, c.Last, c.Shard)
		}
	}
	m.ownersNew = true
	return m.setOwners(o)
}

// endEntry turns what the entry changed into rows.
func (m *Machine) endEntry() error {
	if err := m.flushDerived(); err != nil {
		return err
	}
	if err := m.flushChangedCounters(); err != nil {
		return err
	}
	if !m.changes.empty() {
		m.rows = append(m.rows, row{
			key: changeKey(nil, m.cfg.ID, m.changes.pos), value: bytes.Clone(m.changes.buf), last: m.changes.pos,
		})
		m.changes.reset()
	}
	for _, s := range m.sortedStreams() {
		if s.open.empty() {
			continue
		}
		m.rows = append(m.rows, row{
			key: outboxKey(nil, m.cfg.ID, s.peer, s.open.pos), value: bytes.Clone(s.open.buf), last: s.open.pos, to: s,
		})
		s.open.reset()
	}
	m.trimChanges()
	return m.endSplits()
}

// retainSlack is how many changes past Retain gather before they are deleted,
// so that one range tombstone covers many.
const retainSlack = 1 << 16

func (m *Machine) trimChanges() {
	if m.pos-m.changeFloor > m.cfg.Retain+retainSlack {
		m.changeFloor = m.pos - m.cfg.Retain
	}
}

// next gives a change of slot its position.
func (m *Machine) next(slot Slot) uint64 {
	m.pos++
	if n := len(m.touched); n > 0 && m.touched[n-1].Slot == slot {
		m.touched[n-1].Pos = m.pos
	} else {
		m.touched = append(m.touched, SlotPosition{slot, m.pos})
	}
	return m.pos
}

func (m *Machine) owns(s Slot) bool { return m.own.owns(s) }

func (m *Machine) clock() counter.Clock {
	return counter.Clock{Now: m.entry.Now, Elapsed: m.entry.Elapsed}
}

// open returns the list l of the working set, read.
func (m *Machine) open(l ListKey) (*openList, error) {
	o, ok := m.lists[l]
	if ok && o.w != nil {
		return o, nil
	}
	if !ok {
		o = &openList{key: l}
	}
	if err := m.readNow(o); err != nil {
		return nil, err
	}
	m.lists[l] = o
	return o, nil
}

func (m *Machine) openWriter(l ListKey) (*edgelist.Writer, error) {
	w, err := m.scratch.OpenWriter(&pageSource{
		key: l, cache: m.cache, read: m.cfg.Store, cut: m.cutBegun.Load(), begun: &m.cutBegun,
	}, &m.cfg.Lists)
	if err != nil {
		return nil, fmt.Errorf("list %v: %w", l, err)
	}
	return w, nil
}

// Cut implements shard.Machine.
func (m *Machine) Cut(b kv.Batch) error {
	// From here on, what a reader fetched under the last cut may be out of date.
	m.cutBegun.Add(1)
	if err := m.cutAll(b); err != nil {
		return m.failed(fmt.Errorf("shard %d: cut: %w", m.cfg.ID, err))
	}
	return nil
}

func (m *Machine) cutAll(b kv.Batch) error {
	lists := make([]*openList, 0, len(m.lists))
	for _, o := range m.lists {
		lists = append(lists, o)
	}
	slices.SortFunc(lists, func(a, b *openList) int { return compareLists(&a.key, &b.key) })
	for _, o := range lists {
		if err := m.flushList(b, o); err != nil {
			return fmt.Errorf("list %v: %w", o.key, err)
		}
	}
	if m.counters != nil {
		if err := m.counters.Cut(b); err != nil {
			return err
		}
	}
	if err := m.marks.cut(b); err != nil {
		return err
	}
	for i := range m.rows {
		if err := b.Set(m.rows[i].key, m.rows[i].value); err != nil {
			return err
		}
	}
	if err := m.cutLocal(b); err != nil {
		return err
	}
	return m.cutSplits(b)
}

func (m *Machine) flushList(b kv.Batch, o *openList) error {
	if o.w == nil {
		return m.flushBlind(b, o)
	}
	if err := o.w.Flush(&listSink{m: m, b: b, key: o.key}); err != nil {
		return err
	}
	return m.noteForm(b, o)
}

// compareLists orders lists as their keys are.
func compareLists(a, b *ListKey) int {
	var x, y [headSize]byte
	return bytes.Compare(appendHeadKey(x[:0], *a), appendHeadKey(y[:0], *b))
}

// Publish implements shard.Machine.
func (m *Machine) Publish(uint64) {
	cut := m.cutBegun.Load()
	for i, k := range m.keys {
		m.cache.replace(k, m.written[i], cut)
	}
	for _, k := range m.stale {
		m.cache.drop(k)
	}
	for _, t := range m.touched {
		m.last[t.Slot].Store(t.Pos)
	}
	if m.counters != nil {
		m.counters.Published(m.cfg.Store)
	}
	err := m.publishSplits()
	if err == nil {
		err = m.publishView()
	}
	if err != nil {
		// Readers keep the view before this one; the shard is told at its next cut.
		_ = m.failed(fmt.Errorf("shard %d: after a cut: %w", m.cfg.ID, err))
	}
	for _, s := range *m.streams.Load() { // any order: each is stored for itself
		s.delivered.Store(s.cursor)
	}
	m.outbox.published(m.rows)
	m.renewStreams()
	clear(m.lists)
	clear(m.written)
	clear(m.marks.dirty)
	m.rows, m.trims, m.touched = m.rows[:0], m.trims[:0], m.touched[:0]
	m.keys, m.written, m.stale = m.keys[:0], m.written[:0], m.stale[:0]
	m.schemaNew, m.ownersNew, m.backfillsNew = false, false, false
	m.moved.wake()
}

func (m *Machine) publishView() error {
	snap, err := m.cfg.Store.NewSnapshot()
	if err != nil {
		return err
	}
	v := &view{
		m: m, snap: snap, cut: m.cutBegun.Load(), position: m.pos, totals: slices.Clone(m.totals),
		now: m.entry.Now, elapsed: m.entry.Elapsed, schema: m.schema, timeline: m.timeline,
		changeFloor: m.changeFloor, owners: m.owners, own: m.own, family: m.family, birth: m.birth, backfills: m.backfills, nextExpiry: counter.Never, nextForget: counter.Never,
	}
	if m.counters != nil {
		v.marked, v.jobs = len(m.marks.of), m.marks.runningJobs()
		v.nextExpiry, v.nextForget = m.counters.NextExpiry(), m.counters.NextForget()
	}
	v.refs.Store(1)
	if old := m.view.Swap(v); old != nil {
		old.release()
	}
	if m.closed.Load() { // a call that was left behind when the replica was stopped
		m.dropView()
	}
	if !m.ownersTold && m.owners != nil {
		m.ownersTold = true
		m.tellOwners()
	}
	return nil
}

// tellOwners makes newer claims known to the node, and to writes that wait for inverses.
func (m *Machine) tellOwners() {
	n := uint64(1)
	if old := m.routes.Load(); old != nil {
		n = old.n + 1
	}
	m.routes.Store(&routes{m.owners, n})
	if m.cfg.Learn != nil {
		m.cfg.Learn(m.owners)
	}
}

// Parts implements shard.Machine.
func (m *Machine) Parts() kv.Parts {
	var own *Claim
	if v := m.view.Load(); v != nil {
		own = v.own
	}
	return partsOf(m.cfg.ID, own)
}

// Restore implements shard.Machine.
func (m *Machine) Restore() error {
	// What readers fetched before may be of another state.
	m.cutBegun.Add(1)
	m.cache.forget()
	m.schema, m.totals, m.pos, m.changeFloor, m.floorCut = nil, totals{}, 0, 0, 0
	m.recoveries, m.recovered = 0, false
	m.backfills, m.backfillsNew, m.marks = nil, false, newMarks()
	m.owners, m.own, m.counters, m.family, m.birth, m.child, m.rewrites = nil, nil, nil, nil, nil, nil, nil
	clear(m.treesNoted)
	m.blind = newBlind()
	m.streams.Store(&map[uint32]*stream{})
	clear(m.lists)
	m.rows, m.trims, m.touched, m.schemaNew, m.ownersNew = nil, nil, nil, false, false
	if err := m.load(); err != nil {
		return m.failed(fmt.Errorf("shard %d: %w", m.cfg.ID, err))
	}
	return nil
}

// Lead implements shard.Machine.
func (m *Machine) Lead(leading bool) {
	m.leads.Store(leading)
	m.outbox.lead(leading)
}

// failed remembers the first fault, for health and readers.
func (m *Machine) failed(err error) error {
	err = markDamage(err)
	if m.fault.CompareAndSwap(nil, &err) && m.cfg.Damaged != nil && m.cfg.Damaged(err) {
		m.stopped.Store(true)
	}
	return err
}

// faultOf adds the list to an error of a read, and marks corruption as such.
func (m *Machine) faultOf(err error, l ListKey) error {
	if err == nil {
		return nil
	}
	err = markDamage(fmt.Errorf("shard %d: list %v: %w", m.cfg.ID, l, err))
	if !errors.Is(err, kv.ErrCorruption) {
		return err
	}
	if err = m.failed(err); m.stopped.Load() {
		return fmt.Errorf("%w: %w", shard.ErrFault, err) // another replica answers
	}
	return err
}

// notifier wakes goroutines that wait for something to move.
type notifier struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next wake closes. Look at what is awaited
// after calling it.
func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notifier) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}
