package shard

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// Recovery is for groups whose majority is lost for good. What is left of one is
// compared while its nodes are stopped (Remains); the replica with the newest log is
// made the only voter of the group (Recover) and goes on by itself; the others are
// destroyed. Entries that only the lost replicas had are lost, and entries at the end
// of the log that no majority ever had are applied: their callers never knew.

// Remain is what a stopped node has of a shard.
type Remain struct {
	Shard   uint32
	Replica string
	// Term and Last are of the last entry in its log, or where that is empty of the
	// last one applied. The replica for which they are greatest has the newest log.
	Term, Last uint64
	Applied    Applied
	// Members are those of the newest configuration in the log.
	Members []Member
}

// Remains tells what the node has of its shards, none of which may run. A replica whose
// log lost entries is ErrLogLost.
func (n *Node) Remains() ([]Remain, error) {
	ids, err := n.Replicas()
	if err != nil {
		return nil, err
	}
	var out []Remain
	for _, id := range ids {
		r, err := n.openRemains(id)
		if errors.Is(err, ErrNoReplica) {
			continue // its founding was cut off
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r.Remain)
	}
	return out, nil
}

// remains is a Remain with what it was read from.
type remains struct {
	Remain
	log       *logStore
	installed installedRow
}

func (n *Node) openRemains(id uint32) (*remains, error) {
	n.mu.Lock()
	running := n.shards[id] != nil
	n.mu.Unlock()
	if running {
		return nil, fmt.Errorf("shard %d: its replica runs", id)
	}
	row, err := n.replica(id, true)
	if err != nil {
		return nil, err
	}
	at, err := readPosition(n.cfg.State.Get, id)
	if err != nil {
		return nil, err
	}
	r := &remains{}
	if r.installed, err = readInstalled(n.cfg.State, id); err != nil {
		return nil, err
	}
	if r.log, err = openLogStore(n.cfg.Log, id, row.number, new(atomic.Int64), func() {}); err != nil {
		return nil, err
	}
	if _, _, err := r.log.discardStale(r.installed); err != nil { // as a start does
		return nil, err
	}
	if err := checkLog(id, r.log, row.form, at, r.installed); err != nil {
		return nil, err
	}
	r.Remain = Remain{
		Shard: id, Replica: replicaID(n.stamp.nodeID, row.number), Term: at.term, Last: at.index,
		Applied: Applied{Index: at.index, Term: at.term, Now: at.now, Elapsed: at.elapsed},
	}
	return r, r.readLog(at)
}

// readLog reads what follows the applied state: the last entry, and configurations.
func (r *remains) readLog(at position) error {
	newest := at.configuration
	first, last := r.log.bounds()
	for i := max(first, at.index+1); i <= last && last > 0; i++ {
		var entry raft.Log
		if err := r.log.GetLog(i, &entry); err != nil {
			return err
		}
		r.Term, r.Last = entry.Term, entry.Index
		if entry.Type == raft.LogConfiguration {
			newest = entry.Data
		}
	}
	c, err := decodeConfiguration(newest)
	r.Members = membersOf(c)
	return err
}

// Recover makes this node's replica of a shard, which must not run, the only member of
// its group, and has it apply commands before any other. It reports false where the
// replica is the only member already, and does nothing then.
func (n *Node) Recover(id uint32, commands [][]byte) (bool, error) {
	r, err := n.openRemains(id)
	if err != nil {
		return false, err
	}
	if len(r.Members) == 1 && r.Members[0].Replica == r.Replica {
		return false, nil
	}
	if r.Last == 0 {
		return false, fmt.Errorf("shard %d: replica %s has nothing to go on from", id, r.Replica)
	}
	self := raft.Server{ID: raft.ServerID(r.Replica), Address: raft.ServerAddress(r.Replica)}
	logs := []*raft.Log{{
		Index: r.Last + 1, Term: r.Term, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{self}}),
	}}
	if len(commands) > 0 {
		// Of no term: the clocks stand still.
		e := logEntry{kind: kindCommands, wall: r.Applied.Now, commands: commands}
		logs = append(logs, &raft.Log{Index: r.Last + 2, Term: r.Term, Type: raft.LogCommand, Data: e.encode()})
	}
	// The row first: with it the start would take what follows for a stale log.
	if err := n.forgetInstall(id, r); err != nil {
		return false, err
	}
	return true, r.log.StoreLogs(logs)
}

// forgetInstall removes the row of an installed snapshot, which the log follows.
func (n *Node) forgetInstall(id uint32, r *remains) error {
	if r.installed == (installedRow{}) {
		return nil
	}
	b := n.cfg.State.NewBatch()
	defer b.Close()
	if err := errors.Join(b.Delete(stateRowKey(stateInstalled, id)), b.Commit(kv.Sync)); err != nil {
		return fmt.Errorf("shard %d: installed row: %w", id, err)
	}
	return nil
}

func membersOf(c raft.Configuration) []Member {
	var out []Member
	for _, srv := range c.Servers {
		out = append(out, Member{
			Replica: string(srv.ID), Node: NodeOf(string(srv.ID)), Voter: srv.Suffrage == raft.Voter,
		})
	}
	return out
}

// MajorityOf reports whether some nodes are a majority of the voters among members.
func MajorityOf(members []Member, nodes []string) bool {
	voters, there := 0, 0
	for _, m := range members {
		if !m.Voter {
			continue
		}
		voters++
		if slices.Contains(nodes, m.Node) {
			there++
		}
	}
	return there > voters/2
}
