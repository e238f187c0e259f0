package graph

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lianadb/liana/kv"
)

// Claim says that a shard owns a range of slots. Gen counts the splits that led to
// it: of two claims to a slot the one with the higher generation is the newer, and
// there are no two of one generation. So claims may come from anywhere, in any order.
type Claim struct {
	First, Last Slot // both included
	Shard       uint32
	Gen         uint32 // 0 at the founding
}

func (c *Claim) owns(s Slot) bool { return c != nil && s >= c.First && s <= c.Last }

// owners are the claims to all slots, ascending. A value that others can see is never
// changed.
//
//	row: version [1] | n × (first slot, shard, generation) (uvarint)
type owners []Claim

const ownersVersion = 1

// slotRange is the range of slots of shard id of n of a cluster that is being founded.
func slotRange(id, n uint32) (first, last Slot) {
	return Slot((id*NumSlots + n - 1) / n), Slot(((id+1)*NumSlots+n-1)/n - 1)
}

func foundingOwners(shards int) owners {
	o := make(owners, shards)
	for i := range o {
		o[i].Shard = uint32(i)
		o[i].First, o[i].Last = slotRange(uint32(i), uint32(shards))
	}
	return o
}

// of returns the claim to a slot.
func (o owners) of(s Slot) *Claim {
	i, found := slices.BinarySearchFunc(o, s, func(c Claim, s Slot) int { return int(c.First) - int(s) })
	if !found {
		i--
	}
	return &o[i]
}

// own returns the claim of a shard, nil where it has none.
func (o owners) own(shard uint32) *Claim {
	i := slices.IndexFunc(o, func(c Claim) bool { return c.Shard == shard })
	if i < 0 {
		return nil
	}
	return &o[i]
}

// merge returns the owners that o become with newer claims; o itself where none is.
func (o owners) merge(claims []Claim) owners {
	if !o.older(claims) {
		return o
	}
	var all [NumSlots]*Claim
	put := func(c *Claim) {
		for s := c.First; s <= c.Last; s++ {
			if all[s] == nil || all[s].Gen < c.Gen {
				all[s] = c
			}
		}
	}
	for i := range o {
		put(&o[i])
	}
	for i := range claims {
		put(&claims[i])
	}
	var out owners
	for s, c := range all {
		if n := len(out); n > 0 && out[n-1].Shard == c.Shard && out[n-1].Gen == c.Gen {
			out[n-1].Last = Slot(s)
			continue
		}
		out = append(out, Claim{First: Slot(s), Last: Slot(s), Shard: c.Shard, Gen: c.Gen})
	}
	return out
}

// older reports whether one of the claims is newer than what o has.
func (o owners) older(claims []Claim) bool {
	for i := range claims {
		c := &claims[i]
		for s := int(c.First); s <= int(c.Last); {
			have := o.of(Slot(s))
			if have.Gen < c.Gen {
				return true
			}
			s = int(have.Last) + 1
		}
	}
	return false
}

func (o owners) encode() []byte {
	b := []byte{ownersVersion}
	for _, c := range o {
		b = binary.AppendUvarint(b, uint64(c.First))
		b = binary.AppendUvarint(b, uint64(c.Shard))
		b = binary.AppendUvarint(b, uint64(c.Gen))
	}
	return b
}

// decodeOwners reads what encode wrote.
func decodeOwners(b []byte) (owners, error) {
	d := decoder{b: b}
	if v := d.byte(); v != ownersVersion && d.err == nil {
		d.fail("owners: version %d", v)
	}
	var o owners
	for len(d.b) > 0 {
		c := Claim{First: d.slot(), Last: NumSlots - 1, Shard: d.uint32(), Gen: d.uint32()}
		if n := len(o); d.err == nil && n > 0 && o[n-1].First >= c.First || c.Shard >= MaxShards {
			d.fail("owners: out of order, or of shard %d", c.Shard)
		} else if n > 0 {
			o[n-1].Last = c.First - 1
		}
		o = append(o, c)
	}
	if d.err == nil && (len(o) == 0 || o[0].First != 0) {
		d.fail("owners: not of all slots")
	}
	if d.err != nil {
		return nil, d.err
	}
	return o, nil
}

// checkClaims says what is wrong with claims that come from elsewhere.
func checkClaims(claims []Claim) error {
	for _, c := range claims {
		if c.First > c.Last || c.Last >= NumSlots || c.Shard >= MaxShards {
			return fmt.Errorf("claim of shard %d to slots %d to %d: %w", c.Shard, c.First, c.Last, kv.ErrCorruption)
		}
	}
	return nil
}

// shardOf returns the shard that owns a slot, as far as this node knows.
func (g *Graph) shardOf(s Slot) uint32 { return g.owners.Load().of(s).Shard }

// learn is Learn for what a shard's state says.
func (g *Graph) learn(o owners) {
	_ = g.Learn(o) // claims of a state are sound
}

// Learn tells this node who owns slots. Older claims than it knows change nothing.
func (g *Graph) Learn(claims []Claim) error {
	if err := checkClaims(claims); err != nil {
		return err
	}
	for {
		old := g.owners.Load()
		next := old.merge(claims)
		if len(next) == len(*old) && &next[0] == &(*old)[0] || g.owners.CompareAndSwap(old, &next) {
			return nil
		}
	}
}
