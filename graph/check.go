package graph

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
	// Skipped counts what kept changing while it was looked at, or is still on
	// its way in an outbox; neither is a fault.
	Skipped  uint64
	Faults   uint64
	Findings []string // the first maxFindings of them
}

const maxFindings = 1000

// Check proves that every list is sound, that each edge has its inverse with
// the same time and properties and the other way round, and that derived counters
// are the sums they stand for. It runs beside reads and writes: what looks
// wrong is looked at again until it stands still.
func (g *Graph) Check(ctx context.Context, progress func(CheckProgress)) (CheckReport, error) {
	c := &checker{shards: g.replicas(), owner: &g.owner, progress: progress, settle: g.settle}
	return c.run(ctx)
}

// CheckStore checks the shards in a store that no server has open. What is
// undelivered in an outbox is not a fault.
func CheckStore(ctx context.Context, store kv.Store, shards int, progress func(CheckProgress)) (CheckReport, error) {
	if shards < 1 || shards > MaxShards {
		return CheckReport{}, fmt.Errorf("check: %d shards: must be 1 to %d", shards, MaxShards)
	}
	g := &Graph{cfg: Config{Shards: shards, Store: store, Lists: edgelist.DefaultOptions()}, cache: newPageCache(64 << 20)}
	g.assignSlots()
	defer g.closeMachines()
	if err := g.openReplicas(); err != nil {
		return CheckReport{}, err
	}
	c := &checker{shards: g.replicas(), owner: &g.owner, progress: progress}
	if err := c.loadPending(); err != nil {
		return CheckReport{}, err
	}
	return c.run(ctx)
}

type checker struct {
	shards   []*member
	owner    *[NumSlots]uint8
	progress func(CheckProgress)
	// settle waits until what shard from owes shard to is delivered. nil: the
	// store stands still.
	settle func(ctx context.Context, from, to uint8) error
	// pending are the lists and counters that undelivered records will change.
	pending map[pendingKey]bool

	views  []*view
	found  totals // edges met in the shard being scanned
	report CheckReport
	doubts []doubt
	told   time.Time
}

type pendingKey struct {
	list ListKey
	peer uint64
	of   Metric // of a derived counter, whose vertex is the list's
}

// doubt is a disagreement to look at again: of an edge in two lists, or of a
// derived counter.
type doubt struct {
	list    ListKey // the list that has the edge
	peer    uint64
	other   ListKey // the list that should have it, with list's vertex as peer
	derived *Derived
	what    string
}

func (c *checker) run(ctx context.Context) (CheckReport, error) {
	if err := c.acquire(); err != nil {
		return c.report, err
	}
	for _, v := range c.views {
		if v.schema == nil {
			continue // nothing was ever written
		}
		c.found = nil
		err := v.scan(ctx, func(r *storedRow) error {
			switch r.kind {
			case familyList:
				c.estimate(r.key)
				return c.list(ctx, v, r)
			case familyCounter:
				return c.counterRow(v, r)
			}
			return nil
		})
		if err == nil {
			err = c.counterSlots(v)
		}
		if err != nil {
			c.release()
			return c.report, err
		}
		c.compareTotals(v)
	}
	c.release()
	return c.report, c.settleDoubts(ctx)
}

func (c *checker) acquire() error {
	for _, mb := range c.shards {
		v, err := mb.machine.acquire()
		if err != nil {
			c.release()
			return err
		}
		c.views = append(c.views, v)
	}
	return nil
}

func (c *checker) release() {
	for _, v := range c.views {
		v.release()
	}
	c.views = nil
}

// estimate tells progress: keys come in the order of slots, which are hashes.
func (c *checker) estimate(key []byte) {
	if c.progress == nil || time.Since(c.told) < 100*time.Millisecond {
		return
	}
	c.told = time.Now()
	slots := uint64(key[0])<<8 | uint64(key[1]) + 1
	c.progress(CheckProgress{Lists: c.report.Lists, Edges: c.report.Edges, ListsTotal: c.report.Lists * NumSlots / slots})
}

func (c *checker) fault(format string, args ...any) {
	c.report.Faults++
	if len(c.report.Findings) < maxFindings {
		c.report.Findings = append(c.report.Findings, fmt.Sprintf(format, args...))
	}
}

// compareTotals compares what the shard says it holds with what was met.
func (c *checker) compareTotals(v *view) {
	for _, want := range v.totals {
		if got := c.found.of(want.t); *got != want {
			c.fault("shard %d: %d OUT and %d IN edges of type %d, counted %d and %d",
				v.m.cfg.ID, want.n[Out], want.n[In], want.t, got.n[Out], got.n[In])
		}
	}
}

// counterSlots checks what lies beside the counters of the shard's slots.
func (c *checker) counterSlots(v *view) error {
	for slot := int(v.m.cfg.First); slot <= int(v.m.cfg.Last); slot++ {
		if err := counter.CheckSlot(v.m.cfg.counters(), v.snap, uint16(slot), c.faulty); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) faulty(err error) { c.fault("%v", err) }

func (c *checker) viewOf(v Vertex) *view { return c.views[c.owner[SlotOf(v)]] }

// list checks one list by itself and against the other ends of its edges.
func (c *checker) list(ctx context.Context, v *view, r *storedRow) error {
	c.report.Lists++
	def, ok := v.schema.EdgeTypeByID(r.list.Type)
	if !ok || !r.head {
		c.fault("list %v: pages without a head, or of an unknown edge type", r.list)
		return nil
	}
	src := &pageSource{key: r.list, cache: c.shards[0].machine.cache, read: v.snap, cut: v.cut, begun: &v.m.cutBegun}
	stats, err := edgelist.Check(src, func() ([]edgelist.PageID, error) { return r.pages, nil })
	if errors.Is(err, edgelist.ErrCorrupt) {
		c.fault("list %v: %v", r.list, err)
		return nil
	}
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
	list, err := edgelist.Open(src)
	if err != nil {
		return err
	}
	for _, d := range v.schema.derived {
		if d.Over == r.list.Type && r.list.Dir == Out {
			if err := c.derived(r.list.Vertex, d); err != nil {
				return err
			}
		}
	}
	it := list.Iter(edgelist.Query{Order: edgelist.ByID})
	for n := 0; it.Next(); n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		c.report.Edges++
		c.found.of(r.list.Type).n[r.list.Dir]++
		if err := c.edge(def, r.list, it.Edge()); err != nil {
			return err
		}
	}
	return it.Err()
}

// otherEnd is the list in which the edge of list l to peer is seen from peer.
func (d *EdgeTypeDef) otherEnd(l ListKey, peer uint64) ListKey {
	if l.Dir == In {
		return d.fact(peer)
	}
	if d.Symmetric {
		return ListKey{Vertex: Vertex{d.From, peer}, Type: d.ID, Dir: Out}
	}
	return d.inverse(peer)
}

func (c *checker) edge(def *EdgeTypeDef, l ListKey, e edgelist.Edge) error {
	other := def.otherEnd(l, e.Peer)
	what, err := c.disagree(other, l.Vertex.ID, e)
	if err != nil || what == "" {
		return err
	}
	c.doubts = append(c.doubts, doubt{list: l, peer: e.Peer, other: other, what: what})
	return nil
}

// disagree says how the list other differs from the edge e that its peer has.
func (c *checker) disagree(other ListKey, peer uint64, e edgelist.Edge) (string, error) {
	list, err := c.viewOf(other.Vertex).list(other)
	if err != nil {
		return "", err
	}
	got, ok, err := list.Get(peer)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "the other end lacks it", nil
	case got.Time != e.Time:
		return fmt.Sprintf("time %d here, %d at the other end", e.Time, got.Time), nil
	case !bytes.Equal(got.Props, e.Props):
		return "other properties at the other end", nil
	}
	return "", nil
}

func (c *checker) counterRow(v *view, r *storedRow) error {
	c.report.Counters++
	err := counter.CheckRow(v.m.cfg.counters(), v.snap, binary.BigEndian.Uint16(r.key), r.key, r.value, c.faulty)
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
		if err := c.derived(r.owner, d); err != nil {
			return err
		}
	}
	return nil
}

// derived compares a derived counter with the sum it stands for.
func (c *checker) derived(owner Vertex, d *Derived) error {
	what, err := c.sumDiffers(owner, d)
	if err != nil || what == "" {
		return err
	}
	c.doubts = append(c.doubts, doubt{list: ListKey{Vertex: owner}, derived: d, what: what})
	return nil
}

func (c *checker) sumDiffers(owner Vertex, d *Derived) (string, error) {
	v := c.viewOf(owner)
	over, err := v.list(ListKey{Vertex: owner, Type: d.Over, Dir: Out})
	if err != nil {
		return "", err
	}
	def, _ := v.schema.EdgeTypeByID(d.Over)
	var sum int64
	it := over.Iter(edgelist.Query{Order: edgelist.ByID})
	for it.Next() {
		target := Vertex{def.To, it.Edge().Peer}
		counted, err := c.viewOf(target).list(ListKey{Vertex: target, Type: d.Sum, Dir: In})
		if err != nil {
			return "", err
		}
		sum += int64(counted.Count())
	}
	if err := it.Err(); err != nil {
		return "", err
	}
	ref := CounterRef{Vertex: owner, Metric: d.Metric}
	got, err := v.counter(&ref)
	if err != nil || got.Value == sum {
		return "", err
	}
	return fmt.Sprintf("derived counter is %d, the sum %d", got.Value, sum), nil
}
