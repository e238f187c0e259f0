package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// Split has a shard that this node leads give its slots from at on to a new shard. It
// returns once the split is applied here; made again, it does nothing. The child serves
// when its replicas have elected a leader.
func (g *Graph) Split(ctx context.Context, id, child uint32, at Slot) error {
	mb, err := g.memberAt(id)
	if err != nil {
		return err
	}
	s, err := mb.running()
	if err != nil {
		return g.moved(id, err)
	}
	// From the proposal on, followers may have a leader of the child that acknowledges
	// writes, before this node has applied the split: its own reads of these slots wait.
	mb.machine.withhold(at)
	p, err := s.ProposeAsync(split{child, at}.encode(), shard.System)
	if err != nil {
		mb.machine.withhold(noSlot)
		return g.moved(id, err)
	}
	g.done.Go(func() {
		<-p.Done()
		mb.machine.withhold(noSlot)
	})
	res, err := p.Wait(ctx)
	if err != nil {
		return g.moved(id, err)
	}
	if why := res.(splitResult).refused; why != "" {
		return fmt.Errorf("shard %d: %w: %s", id, ErrNoSplit, why)
	}
	return nil
}

// SplitPoint returns the slot that parts the data of a shard into halves of about one
// size, as this node's store estimates it.
func (g *Graph) SplitPoint(id uint32) (Slot, error) {
	v, err := g.viewOf(id)
	if err != nil {
		return 0, err
	}
	defer v.release()
	if v.own == nil || v.own.First == v.own.Last {
		return 0, fmt.Errorf("shard %d: %w: it has fewer than two slots", id, ErrNoSplit)
	}
	size := func(first, last Slot) (uint64, error) {
		return g.cfg.Store.EstimateDiskUsage(dataSpan(&Claim{First: first, Last: last}))
	}
	all, err := size(v.own.First, v.own.Last)
	if err != nil {
		return 0, err
	}
	middle := v.own.First + (v.own.Last-v.own.First+1)/2
	if all < splitBytes {
		return middle, nil // too little to tell halves apart
	}
	lo, hi := v.own.First+1, v.own.Last // the least at with half of the data before it
	for lo < hi {
		at := lo + (hi-lo)/2
		before, err := size(v.own.First, at-1)
		if err != nil {
			return 0, err
		}
		if before < all/2 {
			lo = at + 1
		} else {
			hi = at
		}
	}
	return lo, nil
}

// splitBytes is the size below which a shard is parted by its slots, which are hashes.
const splitBytes = 64 << 20

// noSlot is past all slots.
const noSlot = NumSlots

// withhold makes reads of slots from at on wait. It ends with noSlot.
func (m *Machine) withhold(at Slot) {
	m.withheld.Store(uint32(at))
	if at == noSlot {
		m.moved.wake()
	}
}

// atHand waits until reads of a slot are not withheld.
func (m *Machine) atHand(ctx context.Context, slot Slot) error {
	for uint32(slot) >= m.withheld.Load() {
		moved := m.moved.wait()
		if uint32(slot) < m.withheld.Load() {
			break
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("shard %d: waiting for its split: %w", m.cfg.ID, ctx.Err())
		}
	}
	return nil
}

// memberAt is member for any number.
func (g *Graph) memberAt(id uint32) (*member, error) {
	if id >= MaxShards {
		return nil, fmt.Errorf("shard %d: numbers are below %d: %w", id, MaxShards, shard.ErrNotLeader)
	}
	mb, err := g.member(id)
	return mb, g.moved(id, err)
}

// viewOf returns a view of this node's replica of a shard of any number.
func (g *Graph) viewOf(id uint32) (*view, error) {
	mb, err := g.memberAt(id)
	if err != nil {
		return nil, err
	}
	v, err := mb.machine.acquire()
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", id, err)
	}
	return v, nil
}

// birth is a replica that a split has made on this node.
type birth struct {
	child uint32
	leads bool // this node led the parent: it is to lead the child
}

// born notes a birth. It never waits.
func (g *Graph) born(b birth) {
	g.birthsMu.Lock()
	g.births = append(g.births, b)
	g.birthsMu.Unlock()
	g.tend1()
}

// tend1 has tend look at once.
func (g *Graph) tend1() {
	select {
	case g.tending <- struct{}{}:
	default:
	}
}

// startBorn starts replicas that splits have made here, and reports whether all run.
func (g *Graph) startBorn(ctx context.Context) bool {
	g.birthsMu.Lock()
	births := slices.Clone(g.births)
	g.birthsMu.Unlock()
	all := true
	for _, b := range births {
		err := g.StartReplica(b.child, true)
		if err != nil && !errors.Is(err, kv.ErrClosed) && !errors.Is(err, shard.ErrNoReplica) {
			g.cfg.Logger.Error("a shard that was split off does not start", "shard", b.child, "error", err)
			all = false
			continue
		}
		if err == nil && b.leads {
			g.hasten(ctx, b.child)
		}
		g.birthsMu.Lock()
		g.births = slices.DeleteFunc(g.births, func(other birth) bool { return other == b })
		g.birthsMu.Unlock()
	}
	return all
}

// hastenTime is how long a child's first leader is hastened: an election comes by itself
// after that.
const hastenTime = time.Second

// hasten has this node's replica of a child stand for election as soon as others are born
// that can elect it. Until the child has a leader calls for its slots wait.
func (g *Graph) hasten(ctx context.Context, child uint32) {
	s, err := g.running(child)
	if err != nil {
		return // stopped again
	}
	g.done.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, hastenTime)
		defer cancel()
		s.Stand(ctx)
	})
}

// claimsHere are the claims of the replicas on this node but one, as they were cut.
func (g *Graph) claimsHere(but uint32) []Claim {
	var out []Claim
	for _, mb := range g.replicas() {
		if mb.machine.cfg.ID == but {
			continue
		}
		if v, err := mb.machine.acquire(); err == nil {
			if v.own != nil {
				out = append(out, *v.own)
			}
			v.release()
		}
	}
	return out
}

// putClaims tells a shard that this node leads who owns slots, where it does not know.
func (g *Graph) putClaims(mb *member) {
	r, o := mb.machine.routes.Load(), *g.owners.Load()
	if r == nil || !mb.machine.leads.Load() || !r.older(o) {
		return
	}
	if s := mb.group.Load(); s != nil {
		// A refused one is made good at the next look.
		_, _ = s.ProposeAsync(encodeClaims(o), shard.System)
	}
}
