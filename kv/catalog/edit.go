package catalog

import (
	"errors"
	"fmt"
	"math"
)

// Reasons why the catalog refuses an edit. They are wrapped with the words for
// people; test with errors.Is. Nothing was changed.
var (
	// ErrStale: what the edit is about was changed since the version that the editor
	// has seen. Look again, and decide anew.
	ErrStale = errors.New("changed meanwhile")
	// ErrUnfounded: the cluster is not founded yet.
	ErrUnfounded = errors.New("the cluster is not founded")
	// ErrUnknown: there is no such node or shard.
	ErrUnknown = errors.New("not in the map")
	// ErrRefused: the edit is not possible now, or never.
	ErrRefused = errors.New("refused")
	// ErrWiped: a node's data is not what the catalog knows under its id.
	ErrWiped = errors.New("another node's data")
	// ErrRemoved: the node was removed from the cluster.
	ErrRemoved = errors.New("the node was removed")
)

// AnyVersion as the version expected makes an edit whatever was changed meanwhile.
const AnyVersion = math.MaxUint64

// Edit is a change of the map: one of the types of this file. Each edits one thing,
// a node, a shard or the settings.
type Edit interface {
	kind() editKind
	encode(e *encoder)
	// propose returns what the edit makes of w. It changes nothing.
	propose(w *working) (change, error)
	// seen is the version that changed last what the edit is about; 0 where that is new.
	seen(w *working) uint64
}

// editKind numbers the edits in commands. The numbers are stored in logs.
type editKind byte

const (
	kindFound editKind = iota + 1
	kindRegisterNode
	kindSetNodeState
	kindSetReplicas
	kindNameReplica
	kindBeginMove
	kindFinishMove
	kindCancelMove
	kindSetSchema
	kindSetReplication
	kindSplitShard
	kindRaiseLevel
	kindBeginSplit
)

// Found founds the cluster: it is the first edit of a catalog, and the only one that
// an unfounded catalog takes. Founding the same cluster again changes nothing, another
// one is refused: a founder that was wiped, or a flag left over, makes no second cluster.
type Found struct {
	// Map is the whole of the first map, of version 1.
	Map *Map
}

// RegisterNode makes a node known, or its new addresses, roles, zone and level. A node
// proposes it for itself at each start. The node's state stays as it is. A node whose
// level is below the cluster's is refused: it could not read what the others write.
type RegisterNode struct {
	ID                 string
	Incarnation        uint64 // 0: not known, and then not compared
	PeerAddr, GRPCAddr string
	Gateway, Storage   bool
	Zone               string
	Level              uint32
}

// SetNodeState begins or ends the draining of a node, or removes it for good. A node
// that holds copies of shards, or is about to, cannot be removed; it can be Leaving.
type SetNodeState struct {
	ID    string
	State NodeState
}

// SetReplicas says where the copies of a shard are, whatever the catalog thought: it
// is for Raft's configuration, the truth, when the two differ. It is refused while
// the shard moves.
type SetReplicas struct {
	Shard    uint32
	Replicas []Replica
}

// NameReplica records the id of the copy of a shard on a node, once it was made.
type NameReplica struct {
	Shard    uint32
	Node, ID string
}

// BeginMove records that a copy of a shard is to move; see Move. The node it moves to
// must be an active storage node.
type BeginMove struct {
	Shard    uint32
	From, To string
}

// FinishMove records that the move of a shard has been made. Its copy on To takes the
// place of the one on From.
type FinishMove struct{ Shard uint32 }

// CancelMove records that the move of a shard was given up.
type CancelMove struct{ Shard uint32 }

// SetSchema sets the schema. That the new one only adds to the old is the caller's to
// check, and the version expected makes the check safe.
type SetSchema struct{ Text []byte }

// SetReplication sets how many copies of each shard are wanted. More than there are
// storage nodes is no error: what is missing is made when nodes join.
type SetReplication struct{ Copies int }

// BeginSplit notes that the slots of a shard from At on are to become shard New. It is
// refused while the shard moves, and no move begins before SplitShard.
type BeginSplit struct {
	Shard uint32
	At    uint16
	New   uint32
}

// SplitShard gives the slots from At on to a new shard New, whose copies lie where
// those of Shard do. It is refused while the shard moves.
type SplitShard struct {
	Shard uint32
	At    uint16
	New   uint32
}

// RaiseLevel makes Level the level of the cluster, if no node of it is below. A level is
// never lowered: raising it to a lower one changes nothing.
type RaiseLevel struct{ Level uint32 }

func (Found) kind() editKind          { return kindFound }
func (RegisterNode) kind() editKind   { return kindRegisterNode }
func (SetNodeState) kind() editKind   { return kindSetNodeState }
func (SetReplicas) kind() editKind    { return kindSetReplicas }
func (NameReplica) kind() editKind    { return kindNameReplica }
func (BeginMove) kind() editKind      { return kindBeginMove }
func (FinishMove) kind() editKind     { return kindFinishMove }
func (CancelMove) kind() editKind     { return kindCancelMove }
func (SetSchema) kind() editKind      { return kindSetSchema }
func (SetReplication) kind() editKind { return kindSetReplication }
func (SplitShard) kind() editKind     { return kindSplitShard }
func (RaiseLevel) kind() editKind     { return kindRaiseLevel }
func (BeginSplit) kind() editKind     { return kindBeginSplit }

func (c Found) encode(e *encoder) { e.bytes(c.Map.Encode()) }

func (c RegisterNode) encode(e *encoder) {
	e.id(c.ID)
	e.uint64(c.Incarnation)
	e.roles(c.Gateway, c.Storage)
	e.uvarint(uint64(c.Level))
	e.string(c.PeerAddr)
	e.string(c.GRPCAddr)
	e.string(c.Zone)
}

func (c SetNodeState) encode(e *encoder) { e.id(c.ID); e.byte(byte(c.State)) }

func (c SetReplicas) encode(e *encoder) { e.uvarint(uint64(c.Shard)); e.replicas(c.Replicas) }

func (c NameReplica) encode(e *encoder) {
	e.uvarint(uint64(c.Shard))
	e.id(c.Node)
	e.number(c.Node, c.ID)
}

func (c BeginMove) encode(e *encoder) {
	e.uvarint(uint64(c.Shard))
	e.optional(c.From)
	e.optional(c.To)
}

func (c FinishMove) encode(e *encoder)     { e.uvarint(uint64(c.Shard)) }
func (c CancelMove) encode(e *encoder)     { e.uvarint(uint64(c.Shard)) }
func (c SetSchema) encode(e *encoder)      { e.bytes(c.Text) }
func (c SetReplication) encode(e *encoder) { e.uvarint(uint64(c.Copies)) }

func (c SplitShard) encode(e *encoder) {
	e.uvarint(uint64(c.Shard))
	e.uvarint(uint64(c.At))
	e.uvarint(uint64(c.New))
}

func (c BeginSplit) encode(e *encoder) { SplitShard(c).encode(e) }

func (c RaiseLevel) encode(e *encoder) { e.uvarint(uint64(c.Level)) }

// Command returns the bytes of an edit, to be proposed to the catalog's group. It is
// refused there (ErrStale) when what it edits was changed after the version expected,
// commonly that of the map which the editor has looked at.
//
// An edit that no catalog would take is an error here: ids of nodes and replicas that
// cannot be ones, figures out of bounds.
func Command(expected uint64, edit Edit) ([]byte, error) {
	e := newEncoder(formatVersion, byte(edit.kind()))
	e.uvarint(expected)
	if f, ok := edit.(Found); ok {
		if f.Map == nil {
			return nil, fmt.Errorf("%w: the first map is missing", ErrRefused)
		}
		if err := f.Map.Validate(); err != nil {
			return nil, fmt.Errorf("%w: the first map: %w", ErrRefused, err)
		}
	}
	edit.encode(e)
	if _, _, err := ParseCommand(e.b); err != nil || e.bad {
		return nil, fmt.Errorf("%w: %T %+v holds what an edit cannot", ErrRefused, edit, edit)
	}
	return e.b, nil
}

// ParseCommand reads what Command made. Anything else is an error marked
// kv.ErrCorruption. Whoever takes commands from another node parses them before
// proposing them: bytes that cannot be applied stop the catalog on every node.
func ParseCommand(b []byte) (expected uint64, edit Edit, err error) {
	d := newDecoder(b)
	if d.bad {
		return 0, nil, corruptf("command of %d bytes: unknown format", len(b))
	}
	kind := editKind(d.byte(math.MaxUint8))
	expected = d.uvarint(math.MaxUint64)
	edit, err = d.edit(kind)
	if err != nil {
		return 0, nil, err
	}
	return expected, edit, d.end("command", len(b))
}

func (d *decoder) edit(kind editKind) (Edit, error) {
	switch kind {
	case kindFound:
		m, err := DecodeMap(d.bytes(math.MaxInt32))
		if err != nil {
			return nil, err
		}
		return Found{Map: m}, nil
	case kindRegisterNode:
		c := RegisterNode{ID: d.id(), Incarnation: d.uint64()}
		c.Gateway, c.Storage = d.roles()
		c.Level = d.level()
		c.PeerAddr, c.GRPCAddr, c.Zone = d.string(MaxAddress), d.string(MaxAddress), d.string(MaxZone)
		return c, nil
	case kindSetNodeState:
		return SetNodeState{ID: d.id(), State: NodeState(d.byte(byte(Leaving)))}, nil
	case kindSetReplicas:
		return SetReplicas{Shard: d.shardID(), Replicas: d.replicas()}, nil
	case kindNameReplica:
		c := NameReplica{Shard: d.shardID(), Node: d.id()}
		c.ID = d.number(c.Node)
		return c, nil
	case kindBeginMove:
		return BeginMove{Shard: d.shardID(), From: d.optional(), To: d.optional()}, nil
	case kindFinishMove:
		return FinishMove{Shard: d.shardID()}, nil
	case kindCancelMove:
		return CancelMove{Shard: d.shardID()}, nil
	case kindSetSchema:
		return SetSchema{Text: d.bytes(MaxSchema)}, nil
	case kindSetReplication:
		return SetReplication{Copies: int(d.uvarint(MaxReplication))}, nil
	case kindSplitShard:
		return SplitShard{Shard: d.shardID(), At: uint16(d.uvarint(NumSlots - 1)), New: d.shardID()}, nil
	case kindBeginSplit:
		return BeginSplit{Shard: d.shardID(), At: uint16(d.uvarint(NumSlots - 1)), New: d.shardID()}, nil
	case kindRaiseLevel:
		return RaiseLevel{Level: uint32(d.uvarint(MaxLevel))}, nil
	}
	return nil, corruptf("command of unknown kind %d", kind)
}

func (d *decoder) shardID() uint32 { return uint32(d.uvarint(CatalogShard)) }
