package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

const rowVersion = 1

// First bytes of the rows; doc.go draws them.
const (
	stateSpace = 0xfe // first byte of every row of this package in the state

	stateStamp   = 0x00
	stateReplica = 0x01
	stateApplied = 0x02
	// stateInstalled stands while a log may still hold what an installed snapshot
	// made void (RULES A4).
	stateInstalled = 0x03

	logStamp   = 0x00
	logEntries = 0x01
)

func stateStampKey() []byte { return []byte{stateSpace, stateStamp} }

func stateRowKey(row byte, shard uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{stateSpace, row}, shard)
}

// shardOfRow is the shard in a key that stateRowKey has made.
func shardOfRow(key []byte) uint32 { return binary.BigEndian.Uint32(key[2:]) }

func logStampKey() []byte { return []byte{logStamp} }

func logPrefix(shard uint32, replica uint64) []byte {
	b := binary.BigEndian.AppendUint32([]byte{logEntries}, shard)
	return binary.BigEndian.AppendUint64(b, replica)
}

// position is the content of a shard's applied row: how far the state has
// come in the log, and all that Raft and the clocks need to go on from there.
// The zero position stands before the first entry.
type position struct {
	index, term uint64
	now         int64 // log time, µs
	elapsed     int64 // dedupe clock, µs
	termBase    int64 // dedupe clock when the current term opened, µs

	// configuration is the newest of the group, as raft.EncodeConfiguration
	// gives it and the log holds it; empty before the first.
	configuration      []byte
	configurationIndex uint64
}

func (p position) encode() []byte {
	b := append(make([]byte, 0, 49+len(p.configuration)), rowVersion)
	for _, v := range []uint64{
		p.index, p.term, uint64(p.now), uint64(p.elapsed), uint64(p.termBase), p.configurationIndex,
	} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return append(b, p.configuration...)
}

func decodePosition(b []byte) (position, error) {
	if len(b) == 0 || b[0] != rowVersion {
		return position{}, kv.Corruptionf("applied row of %d bytes: unknown version", len(b))
	}
	d := decoder{rest: b[1:]}
	p := position{index: d.uint64(), term: d.uint64()}
	p.now, p.elapsed, p.termBase = int64(d.uint64()), int64(d.uint64()), int64(d.uint64())
	p.configurationIndex = d.uint64()
	if d.bad || min(p.now, p.elapsed, p.termBase) < 0 {
		return position{}, kv.Corruptionf("applied row of %d bytes: fields out of range", len(b))
	}
	p.configuration = d.rest
	_, err := decodeConfiguration(p.configuration)
	return p, err
}

// decodeConfiguration is raft.DecodeConfiguration with an error for bad bytes,
// where that one panics, and no servers for no bytes.
func decodeConfiguration(b []byte) (c raft.Configuration, err error) {
	if len(b) == 0 {
		return c, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = kv.Corruptionf("configuration of %d bytes: %v", len(b), p)
		}
	}()
	return raft.DecodeConfiguration(b), nil
}

// Applied says how far the state of a shard has come.
type Applied struct {
	Index, Term uint64
	Now         int64 // log time of the last entry, µs since 1970
	Elapsed     int64 // dedupe clock at the last entry, µs
}

// ReadApplied returns the applied row of a shard as r shows it; zero where the
// shard has applied nothing yet.
func ReadApplied(r kv.Reader, shard uint32) (Applied, error) {
	p, err := readPosition(r.Get, shard)
	return Applied{Index: p.index, Term: p.term, Now: p.now, Elapsed: p.elapsed}, err
}

// readPosition reads an applied row by get, a Get or a GetDurable.
func readPosition(get func(dst, key []byte) ([]byte, error), shard uint32) (position, error) {
	b, err := get(nil, stateRowKey(stateApplied, shard))
	if errors.Is(err, kv.ErrNotFound) {
		return position{}, nil
	}
	if err != nil {
		return position{}, fmt.Errorf("shard %d: applied row: %w", shard, err)
	}
	p, err := decodePosition(b)
	if err != nil {
		return position{}, fmt.Errorf("shard %d: %w", shard, err)
	}
	return p, nil
}

// replicaRow names the replica of a shard on this node.
type replicaRow struct {
	form   replicaForm
	number uint64
}

// replicaForm is how a replica came to be.
type replicaForm byte

const (
	replicaFounding replicaForm = 1 // its founding was cut off, if it is found so
	replicaFounded  replicaForm = 2 // the group's first configuration is in its log
	replicaJoined   replicaForm = 3 // it waits, or waited, for a leader to add it
)

func (r replicaRow) encode() []byte {
	return binary.BigEndian.AppendUint64([]byte{rowVersion, byte(r.form)}, r.number)
}

func decodeReplicaRow(b []byte) (replicaRow, error) {
	if len(b) != 10 || b[0] != rowVersion || b[1] < byte(replicaFounding) || b[1] > byte(replicaJoined) {
		return replicaRow{}, kv.Corruptionf("replica row of %d bytes: unknown form", len(b))
	}
	return replicaRow{form: replicaForm(b[1]), number: binary.BigEndian.Uint64(b[2:])}, nil
}

// stamp ties the three stores of a node together.
type stamp struct {
	incarnation [8]byte // random, made when the node was founded
	nodeID      string
}

func (s stamp) encode() []byte {
	return append(append([]byte{rowVersion}, s.incarnation[:]...), s.nodeID...)
}

func decodeStamp(b []byte) (stamp, error) {
	if len(b) < 10 || b[0] != rowVersion {
		return stamp{}, kv.Corruptionf("stamp of %d bytes: unknown version", len(b))
	}
	s := stamp{nodeID: string(b[9:])}
	copy(s.incarnation[:], b[1:])
	return s, nil
}

// holdsOnly reports whether store holds no key but, perhaps, key.
func holdsOnly(store kv.Store, key []byte) (bool, error) {
	it, err := store.NewIter(kv.Span{})
	if err != nil {
		return false, err
	}
	only := true
	for ok := it.First(); ok && only; ok = it.Next() {
		only = bytes.Equal(it.Key(), key)
	}
	return only, errors.Join(it.Error(), it.Close())
}
