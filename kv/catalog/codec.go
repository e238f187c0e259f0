package catalog

import (
	"encoding/binary"
	"fmt"

	"github.com/lianadb/liana/kv"
)

// maxVersion bounds the versions in a document, so that none can run over.
const maxVersion = 1<<62 - 1

// maxGen bounds generations: each split halves a range of slots at best by one.
const maxGen = NumSlots

// encoder writes a document. Node ids are written in full where they come first and
// by their number after that: a map of many shards names each node often.
type encoder struct {
	b   []byte
	ids map[string]uint64 // number of each id, from 1
	bad bool              // a replica id cannot be one
}

func newEncoder(head ...byte) *encoder {
	return &encoder{b: head, ids: make(map[string]uint64)}
}

func (e *encoder) byte(v byte)       { e.b = append(e.b, v) }
func (e *encoder) uvarint(v uint64)  { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) uint64(v uint64)   { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) bytes(v []byte)    { e.uvarint(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) string(v string)   { e.uvarint(uint64(len(v))); e.b = append(e.b, v...) }
func (e *encoder) replica(r Replica) { e.id(r.Node); e.number(r.Node, r.ID) }
func (e *encoder) replicas(rs []Replica) {
	e.uvarint(uint64(len(rs)))
	for _, r := range rs {
		e.replica(r)
	}
}

func (e *encoder) id(v string) {
	if n, ok := e.ids[v]; ok {
		e.uvarint(n)
		return
	}
	e.ids[v] = uint64(len(e.ids)) + 1
	e.uvarint(0)
	e.string(v)
}

func (e *encoder) optional(id string) {
	if id == "" {
		e.byte(0)
		return
	}
	e.byte(1)
	e.id(id)
}

// number writes the replica id of a copy on node.
func (e *encoder) number(node, id string) {
	n, ok := replicaNumber(node, id)
	if !ok {
		e.bad = e.bad || id != ""
		e.byte(0)
		return
	}
	e.byte(1)
	e.uint64(n)
}

func (e *encoder) node(n *Node) {
	e.id(n.ID)
	e.uvarint(n.Changed)
	e.uint64(n.Incarnation)
	e.roles(n.Gateway, n.Storage)
	e.byte(byte(n.State))
	e.uvarint(uint64(n.Level))
	e.string(n.PeerAddr)
	e.string(n.GRPCAddr)
	e.string(n.Zone)
}

func (e *encoder) roles(gateway, storage bool) {
	var roles byte
	if gateway {
		roles |= 1
	}
	if storage {
		roles |= 2
	}
	e.byte(roles)
}

func (e *encoder) shard(s *Shard) {
	e.uvarint(uint64(s.ID))
	e.uvarint(s.Changed)
	e.uvarint(uint64(s.First))
	e.uvarint(uint64(s.Last))
	e.replicas(s.Replicas)
	var has byte
	if s.Moving != nil {
		has |= shardMoves
	}
	if s.Splitting != nil {
		has |= shardSplits
	}
	if s.Gen > 0 {
		has |= shardGen
	}
	e.byte(has)
	if s.Moving != nil {
		e.optional(s.Moving.From)
		e.optional(s.Moving.To)
		e.number(s.Moving.To, s.Moving.ID)
	}
	if s.Splitting != nil {
		e.uvarint(uint64(s.Splitting.At))
		e.uvarint(uint64(s.Splitting.New))
	}
	if s.Gen > 0 {
		e.uvarint(uint64(s.Gen))
	}
}

// What a shard has beside its copies. Only nodes of SplitLevel read the last two.
const (
	shardMoves  = 1
	shardSplits = 2
	shardGen    = 4
)

// decoder reads what an encoder wrote. After the first field that does not fit it is
// bad and yields zeros. Nothing that it yields shares memory with its bytes.
type decoder struct {
	rest   []byte
	format byte
	ids    []string
	met    map[string]bool
	bad    bool
}

// newDecoder reads the format, with which every document begins.
func newDecoder(b []byte) *decoder {
	d := &decoder{rest: b, met: make(map[string]bool)}
	d.format = d.byte(formatVersion)
	d.bad = d.bad || d.format == 0
	return d
}

// level reads a feature level. Format 1 has none: what wrote it is of the first.
func (d *decoder) level() uint32 {
	if d.format < formatLevels {
		return FirstLevel
	}
	return uint32(d.uvarint(MaxLevel))
}

// end returns the error of a document that is bad or does not end here.
func (d *decoder) end(what string, size int) error {
	if d.bad || len(d.rest) != 0 {
		return corruptf("%s of %d bytes: fields do not fit", what, size)
	}
	return nil
}

func corruptf(format string, args ...any) error { return corrupt(fmt.Errorf(format, args...)) }

func corrupt(err error) error { return kv.Corruptionf("catalog: %w", err) }

func (d *decoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte(most byte) byte {
	b := d.take(1)
	if d.bad || b[0] > most {
		d.bad = true
		return 0
	}
	return b[0]
}

// uvarint reads a number of at most limit in its shortest form.
func (d *decoder) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.bad || n <= 0 || v > limit || n > 1 && d.rest[n-1] == 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) uint64() uint64 {
	b := d.take(8)
	if d.bad {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// bytes returns nil for no bytes.
func (d *decoder) bytes(limit uint64) []byte {
	return append([]byte(nil), d.take(d.uvarint(limit))...)
}

func (d *decoder) string(limit uint64) string { return string(d.take(d.uvarint(limit))) }

func (d *decoder) id() string {
	n := d.uvarint(uint64(len(d.ids)))
	if n > 0 {
		return d.ids[n-1]
	}
	id := d.string(MaxNodeID)
	if d.bad || id == "" || d.met[id] {
		d.bad = true
		return ""
	}
	d.met[id] = true
	d.ids = append(d.ids, id)
	return id
}

func (d *decoder) optional() string {
	if d.byte(1) == 0 {
		return ""
	}
	return d.id()
}

func (d *decoder) number(node string) string {
	if d.byte(1) == 0 {
		return ""
	}
	n := d.uint64()
	if d.bad || node == "" {
		d.bad = true
		return ""
	}
	return ReplicaID(node, n)
}

func (d *decoder) replicas() []Replica {
	n := d.uvarint(MaxReplication)
	if n == 0 {
		return nil
	}
	rs := make([]Replica, n)
	for i := range rs {
		rs[i].Node = d.id()
		rs[i].ID = d.number(rs[i].Node)
	}
	return rs
}

func (d *decoder) node() Node {
	n := Node{ID: d.id(), Changed: d.uvarint(maxVersion), Incarnation: d.uint64()}
	n.Gateway, n.Storage = d.roles()
	n.State = NodeState(d.byte(byte(Leaving)))
	n.Level = d.level()
	n.PeerAddr, n.GRPCAddr, n.Zone = d.string(MaxAddress), d.string(MaxAddress), d.string(MaxZone)
	return n
}

func (d *decoder) roles() (gateway, storage bool) {
	roles := d.byte(3)
	return roles&1 != 0, roles&2 != 0
}

func (d *decoder) shard() Shard {
	s := Shard{ID: d.shardID(), Changed: d.uvarint(maxVersion)}
	s.First, s.Last = uint16(d.uvarint(NumSlots-1)), uint16(d.uvarint(NumSlots-1))
	s.Replicas = d.replicas()
	has := d.byte(shardMoves | shardSplits | shardGen)
	if has&shardMoves != 0 {
		v := Move{From: d.optional(), To: d.optional()}
		v.ID = d.number(v.To)
		s.Moving = &v
	}
	if has&shardSplits != 0 {
		s.Splitting = &Split{At: uint16(d.uvarint(NumSlots - 1)), New: uint32(d.uvarint(NumSlots - 1))}
	}
	if has&shardGen != 0 {
		if s.Gen = uint32(d.uvarint(maxGen)); s.Gen == 0 {
			d.bad = true // it has one encoding
		}
	}
	return s
}
