package graph

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
)

// CheckProgress tells how far a check has come.
type CheckProgress struct {
	Lists, Edges uint64
	ListsTotal   uint64 // an estimate
}

// CheckReport is what a check found.
type CheckReport struct {
	Lists, Edges, Counters uint64
	// Skipped counts what kept changing while it was looked at, is still on its way
	// in an outbox, or has its other end on another node; none of it is a fault.
	// Elsewhere are the last of these.
	Skipped, Elsewhere uint64

	Faults   uint64
	Findings []string // the first maxFindings of them
}

const maxFindings = 1000

// Check proves that every list is sound, that each edge has its inverse with
// the same time and properties and the other way round, and that derived counters
// are the sums they stand for. It runs beside reads and writes: what looks
// wrong is looked at again until it stands still. What lies on other nodes is
// not looked at.
func (g *Graph) Check(ctx context.Context, progress func(CheckProgress)) (CheckReport, error) {
	return newChecker(g, progress).run(ctx)
}

// CheckStore checks the shards in a store that no server has open. What is
// undelivered in an outbox is not a fault.
func CheckStore(ctx context.Context, store kv.Store, shards int, progress func(CheckProgress)) (CheckReport, error) {
	if shards < 1 || shards > MaxShards {
		return CheckReport{}, fmt.Errorf("check: %d shards: must be 1 to %d", shards, MaxShards)
	}
	ids, err := storedShards(store)
	if err != nil {
		return CheckReport{}, fmt.Errorf("check: %w", err)
	}
	founding := foundingOwners(shards)
	g := &Graph{
		cfg:   Config{Shards: shards, Replicas: ids, Store: store, Lists: edgelist.DefaultOptions()},
		cache: newPageCache(64 << 20),
	}
	g.owners.Store(&founding)
	defer g.closeMachines()
	if err := g.openReplicas(func(_ uint32, err error) error { return err }); err != nil {
		return CheckReport{}, err
	}
	c := newChecker(g, progress)
	c.still = true
	if err := c.loadPending(); err != nil {
		return CheckReport{}, err
	}
	return c.run(ctx)
}

// storedShards returns the shards that a store holds replicas of.
func storedShards(store kv.Store) ([]uint32, error) {
	it, err := store.NewIter(kv.PrefixSpan(binary.BigEndian.AppendUint16(nil, localPrefix)))
	if err != nil {
		return nil, err
	}
	ids := []uint32{}
	for ok := it.First(); ok; {
		id := binary.BigEndian.Uint32(it.Key()[2:])
		ids = append(ids, id)
		ok = it.SeekGE(appendLocal(nil, id+1, 0))
	}
	return ids, errors.Join(it.Error(), it.Close())
}

type checker struct {
	members  []*member // the replicas of this node
	progress func(CheckProgress)
	still    bool // nothing changes: no server has the store open
	// pending are the lists and counters that undelivered records will change.
	pending map[pendingKey]bool

	views sight  // what the scan sees
	found totals // edges met in the shard being scanned
	// families are the sums over shards that were one shard, by the founder.
	families map[uint32]*familySum
	ends     *endSums
	broken   map[ListKey]bool // lists that cannot be read, which were told
	report   CheckReport
	doubts   []doubt
	told     time.Time
}

func newChecker(g *Graph, progress func(CheckProgress)) *checker {
	return &checker{
		members: g.replicas(), progress: progress, ends: newEndSums(checkSeed()), broken: map[ListKey]bool{},
	}
}

type pendingKey struct {
	list ListKey
	peer uint64
	of   Metric // of a derived counter, whose vertex is the list's
}

func (c *checker) run(ctx context.Context) (CheckReport, error) {
	if err := c.views.take(c.members); err != nil {
		return c.report, err
	}
	err := c.proveLists(ctx)
	if err == nil && c.ends.differ() {
		err = c.compareEnds(ctx)
	}
	c.views.release()
	if err != nil {
		return c.report, err
	}
	return c.report, c.settleDoubts(ctx)
}

// proveLists proves each list and counter row by itself, and sums up the ends of
// all edges.
func (c *checker) proveLists(ctx context.Context) error {
	for _, v := range c.views.views {
		if v.schema == nil { // nothing was ever written
			continue
		}
		c.found = nil
		err := v.scan(ctx, func(r *storedRow) error {
			switch r.kind {
			case familyList:
				c.report.Lists++
				c.estimate(r.key)
				return c.list(ctx, v, r)
			case familyCounter:
				return c.counterRow(ctx, v, r)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := c.counterSlots(v); err != nil {
			return err
		}
		c.compareTotals(v)
	}
	c.compareFamilies()
	return nil
}

// compareEnds looks for the edges whose ends made the sums differ.
func (c *checker) compareEnds(ctx context.Context) error {
	for _, v := range c.views.views {
		if v.schema == nil {
			continue
		}
		err := v.scan(ctx, func(r *storedRow) error {
			if r.kind != familyList || c.broken[r.list] {
				return nil
			}
			c.tell(c.report.Lists)
			return c.suspects(ctx, v, r.list)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) suspects(ctx context.Context, v *view, l ListKey) error {
	def, _ := v.schema.EdgeTypeByID(l.Type)
	list, err := edgelist.Open(&proofSource{key: l, read: v.snap})
	if err != nil {
		return err
	}
	return each(ctx, list, func(e *edgelist.Edge) error {
		if !c.ends.suspects(def, l, e.Peer) {
			return nil
		}
		return c.compare(ctx, def, l, e)
	})
}

// each calls do with the edges of a list.
func each(ctx context.Context, list *edgelist.List, do func(*edgelist.Edge) error) error {
	it := list.Iter(edgelist.Query{Order: edgelist.ByID})
	for n := 0; it.Next(); n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e := it.Edge()
		if err := do(&e); err != nil {
			return err
		}
	}
	return it.Err()
}

// estimate tells progress: keys come in the order of slots, which are hashes.
func (c *checker) estimate(key []byte) {
	slots := uint64(key[0])<<8 | uint64(key[1]) + 1
	c.tell(c.report.Lists * NumSlots / slots)
}

// tell reports progress now and then.
func (c *checker) tell(total uint64) {
	if c.progress == nil || time.Since(c.told) < 100*time.Millisecond {
		return
	}
	c.told = time.Now()
	c.progress(CheckProgress{Lists: c.report.Lists, Edges: c.report.Edges, ListsTotal: total})
}

func (c *checker) fault(format string, args ...any) {
	c.report.Faults++
	if len(c.report.Findings) < maxFindings {
		c.report.Findings = append(c.report.Findings, fmt.Sprintf(format, args...))
	}
}

// compareTotals compares what the shard says it holds with what was met.
func (c *checker) compareTotals(v *view) {
	if v.family != nil {
		c.addToFamily(v)
		return
	}
	for _, want := range v.totals {
		if got := c.found.of(want.t); *got != want {
			c.fault("shard %d: %d OUT and %d IN edges of type %d, counted %d and %d; hidden %d and %d, counted %d and %d",
				v.m.cfg.ID, want.n[Out], want.n[In], want.t, got.n[Out], got.n[In], want.n[hidden], want.n[hiddenIn], got.n[hidden], got.n[hiddenIn])
		}
	}
}

// familySum compares the totals of a family with what was met in its shards.
type familySum struct {
	slots int
	of    *family
	// odds are edges that were met less those that the totals tell.
	odds map[EdgeType][4]int64
}

func (c *checker) addToFamily(v *view) {
	if c.families == nil {
		c.families = map[uint32]*familySum{}
	}
	f := c.families[v.family.founder]
	if f == nil {
		f = &familySum{of: v.family, odds: map[EdgeType][4]int64{}}
		c.families[v.family.founder] = f
	}
	f.slots += int(v.own.Last-v.own.First) + 1
	add := func(ts totals, sign int64) {
		for _, t := range ts {
			odds := f.odds[t.t]
			for d := range odds {
				odds[d] += sign * int64(t.n[d])
			}
			f.odds[t.t] = odds
		}
	}
	add(c.found, 1)
	add(v.totals, -1)
	add(v.family.base, 1)
}

// compareFamilies tells of families whose shards were all met, each once.
func (c *checker) compareFamilies() {
	for _, id := range slices.Sorted(maps.Keys(c.families)) {
		f := c.families[id]
		if f.slots != int(f.of.last-f.of.first)+1 {
			continue
		}
		for _, t := range slices.Sorted(maps.Keys(f.odds)) {
			if odds := f.odds[t]; odds != [4]int64{} {
				c.fault("shards that came from shard %d: edges of type %d counted less those told: %d OUT, IN, hidden and hidden IN", id, t, odds)
			}
		}
	}
}

// counterSlots checks what lies beside the counters of the shard's slots.
func (c *checker) counterSlots(v *view) error {
	for slot := v.own.First; slot <= v.own.Last; slot++ {
		if err := counter.CheckSlot(counterConfig(v.own), v.snap, uint16(slot), c.faulty); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) faulty(err error) { c.fault("%v", err) }

// list proves one list by itself, and sums up the ends of its edges.
func (c *checker) list(ctx context.Context, v *view, r *storedRow) error {
	err := c.proveList(ctx, v, r)
	if errors.Is(err, edgelist.ErrCorrupt) {
		c.broken[r.list] = true
		c.fault("list %v: %v", r.list, err)
		return nil
	}
	return err
}

func (c *checker) proveList(ctx context.Context, v *view, r *storedRow) error {
	def, ok := v.schema.EdgeTypeByID(r.list.Type)
	if !ok || !r.head {
		return fmt.Errorf("%w: pages without a head, or of an unknown edge type", edgelist.ErrCorrupt)
	}
	src := &proofSource{key: r.list, read: v.snap}
	stats, err := edgelist.Check(src, func() ([]edgelist.PageID, error) { return r.pages, nil })
	if err != nil {
		return err
	}
	if r.list.Dir == In {
		marked, err := v.isTree(r.list)
		if err != nil {
			return err
		}
		if marked != stats.Tree {
			c.fault("list %v: in tree form %v, noted as such %v", r.list, stats.Tree, marked)
		}
	}
	for _, d := range v.schema.derived {
		if d.Over == r.list.Type && r.list.Dir == Out {
			if err := c.derived(ctx, r.list.Vertex, d); err != nil {
				return err
			}
		}
	}
	list, err := edgelist.Open(src)
	if err != nil {
		return err
	}
	return each(ctx, list, func(e *edgelist.Edge) error {
		c.report.Edges++
		c.found.of(r.list.Type).n[r.list.Dir]++
		if c.views.of(def.otherEnd(r.list, e.Peer).Vertex) == nil {
			c.report.Skipped++
			c.report.Elsewhere++
			return nil
		}
		c.ends.add(def, r.list, e)
		return nil
	})
}

// otherEnd is the list in which the edge of list l to peer is seen from peer.
func (d *EdgeTypeDef) otherEnd(l ListKey, peer uint64) ListKey {
	switch l.Dir {
	case In:
		return d.fact(peer)
	case hidden:
		return d.inverse(peer).with(hiddenIn)
	case hiddenIn:
		return d.fact(peer).with(hidden)
	}
	if d.Symmetric {
		return ListKey{Vertex: Vertex{d.From, peer}, Type: d.ID, Dir: Out}
	}
	return d.inverse(peer)
}

// compare notes a doubt where the other end of the edge e of list l differs.
func (c *checker) compare(ctx context.Context, def *EdgeTypeDef, l ListKey, e *edgelist.Edge) error {
	other := def.otherEnd(l, e.Peer)
	if c.broken[other] || c.views.of(other.Vertex) == nil {
		return nil
	}
	what, err := c.views.disagree(other, l.Vertex.ID, e)
	if err != nil || what == "" {
		return err
	}
	return c.doubt(ctx, doubt{list: l, peer: e.Peer, other: other, what: what})
}

func (c *checker) counterRow(ctx context.Context, v *view, r *storedRow) error {
	c.report.Counters++
	err := counter.CheckRow(counterConfig(v.own), v.snap, binary.BigEndian.Uint16(r.key), r.key, r.value, c.faulty)
	if err != nil {
		return err
	}
	row, err := counter.ParseRow(r.value)
	if err != nil || r.owner.Type > maxTypeID {
		return nil // told already, or a free-form counter
	}
	for _, d := range v.schema.derived {
		if d.Vertex != r.owner.Type || row.Get(uint16(d.Metric)-1, v.now).Value == 0 {
			continue
		}
		if err := c.derived(ctx, r.owner, d); err != nil {
			return err
		}
	}
	return nil
}

// derived compares a derived counter with the sum it stands for.
func (c *checker) derived(ctx context.Context, owner Vertex, d *Derived) error {
	what, err := c.views.sumDiffers(owner, d)
	if err != nil || what == "" {
		return err
	}
	return c.doubt(ctx, doubt{list: ListKey{Vertex: owner}, derived: d, what: what})
}
