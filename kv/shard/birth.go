package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// Splitter is what a Machine is beside whose shard can be split in two. The child
// begins on every node that has a replica of the parent, as that one applies the entry
// that splits (RULES D2, F2).
type Splitter interface {
	Machine
	// AfterEntry is called after each entry: what it asks of the shard.
	AfterEntry() Due
	// WasSplit reports whether the state is of after a split. It is called between
	// entries.
	WasSplit() bool
	// Replaces returns what gives way to a state with these parts that is to be
	// installed, or why it may not be installed now.
	Replaces(in kv.Parts) (kv.Parts, error)
}

// Due is what an entry asks of its shard.
type Due struct {
	// Cut: what was applied is cut before the next entry.
	Cut bool
	// Split: Child was split off. The batch of the cut has its state, and the shard
	// adds what the replica of Child on this node needs to begin. It implies Cut.
	Split bool
	Child uint32
}

// birth is a replica of a child to be written with the next cut.
type birth struct {
	child uint32
	at    position
}

// due does what the entry just applied asks for.
func (s *fsm) due() error {
	sp, ok := s.machine.(Splitter)
	if !ok {
		return nil
	}
	d := sp.AfterEntry()
	if d.Split {
		s.births = append(s.births, birth{d.Child, s.applied})
	}
	if !d.Cut && !d.Split {
		return nil
	}
	return s.cutNow()
}

// wholeLog reports whether a replica that joins may be sent the log from its first entry.
// Of a shard that was split it is sent the state: what the log says of slots which the
// child has would be written over the child's rows, where the node has a replica of it.
// A leader that has not applied all that was there before its term does not know yet
// whether it was split, and sends neither (behindItsTerm).
func (s *Shard) wholeLog() bool { return !s.fsm.split.Load() && !s.behindItsTerm() }

// behindItsTerm reports whether this replica leads and has not applied all that the log
// held when it was elected.
func (s *Shard) behindItsTerm() bool {
	i := s.instance.Load()
	return i != nil && s.fsm.reached.Load() > 0 && i.raft.State() == raft.Leader && s.proposer.openTerm.Load() == 0
}

// noteSplit looks whether the shard was split.
func (s *fsm) noteSplit() {
	if sp, ok := s.machine.(Splitter); ok {
		s.split.Store(sp.WasSplit())
	}
}

// bear writes the rows of a child's replica on this node: where the parent stands, with
// the parent's members under the ids that they have in the child. They lie in the batch
// of the split. The row `installed` says that no log leads here (RULES A4).
func (s *fsm) bear(b kv.Batch, c birth) error {
	number, err := numberOf(s.replica)
	if err != nil {
		return fmt.Errorf("shard %d: %w", s.shard, err)
	}
	at := c.at
	if at.configuration, err = childConfiguration(at.configuration, c.child); err != nil {
		return fmt.Errorf("shard %d: child %d: %w", s.shard, c.child, err)
	}
	for _, row := range []kv.Row{
		{Key: stateRowKey(stateReplica, c.child), Value: replicaRow{replicaJoined, childNumber(number, c.child)}.encode()},
		{Key: stateRowKey(stateApplied, c.child), Value: at.encode()},
		{Key: stateRowKey(stateInstalled, c.child), Value: installedRow{at.index, at.term}.encode()},
	} {
		if err := b.Set(row.Key, row.Value); err != nil {
			return fmt.Errorf("shard %d: child %d: %w", s.shard, c.child, err)
		}
	}
	return nil
}

// childNumber is the number of the replica of a child beside that of its parent. All
// replicas of the parent know it of each other, and nobody else draws it.
func childNumber(parent uint64, child uint32) uint64 {
	b := binary.BigEndian.AppendUint64([]byte("child"), parent)
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(b, child))
	return binary.BigEndian.Uint64(sum[:])
}

// childConfiguration has the members of a configuration under their ids in a child.
func childConfiguration(b []byte, child uint32) ([]byte, error) {
	c, err := decodeConfiguration(b)
	if err != nil {
		return nil, err
	}
	out := raft.Configuration{Servers: make([]raft.Server, len(c.Servers))}
	for i, s := range c.Servers {
		number, err := numberOf(string(s.ID))
		if err != nil {
			return nil, err
		}
		id := replicaID(NodeOf(string(s.ID)), childNumber(number, child))
		out.Servers[i] = raft.Server{Suffrage: s.Suffrage, ID: raft.ServerID(id), Address: raft.ServerAddress(id)}
	}
	return raft.EncodeConfiguration(out), nil
}

// numberOf returns the number in a replica id.
func numberOf(replica string) (uint64, error) {
	n, err := strconv.ParseUint(replica[strings.LastIndexByte(replica, '-')+1:], 16, 64)
	if err != nil {
		return 0, kv.Corruptionf("replica id %q", replica)
	}
	return n, nil
}

// raiseTerm makes sure that a replica knows the term its state was made in before Raft
// reads it. A child's first replica has it from its parent.
func raiseTerm(stable raft.StableStore, term uint64) error {
	key := []byte("CurrentTerm") // as Raft calls it
	now, err := stable.GetUint64(key)
	if err != nil && err.Error() != "not found" {
		return err
	}
	if now >= term {
		return nil
	}
	return stable.SetUint64(key, term)
}

// replaces is what gives way to an installed state whose data lies in a span; s.mu is
// held.
func (s *fsm) replaces(data kv.Span) (kv.Parts, error) {
	own := s.machine.Parts()
	sp, ok := s.machine.(Splitter)
	if !ok {
		return own, nil
	}
	return sp.Replaces(kv.Parts{Data: data, Local: own.Local})
}
