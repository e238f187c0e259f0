package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// A replica that has stopped on its node stays so until the process is started again, and
// one whose stored data is damaged for good. It is removed from its group, destroyed, and
// another is made in its place from the leader's state: at once where it is damaged, else
// after the delay of dead nodes, since whoever looks after the node may start it again.

// place is a shard on a node.
type place struct {
	shard uint32
	node  string
}

// mending knows, on the node that leads the catalog, which replicas have stopped.
type mending struct {
	since map[string]time.Time // by replica: when it was first seen to have stopped
	given map[place]givenUp    // the last that was given up
}

type givenUp struct {
	replica string
	at      time.Time
}

func newMending() mending {
	return mending{since: map[string]time.Time{}, given: map[place]givenUp{}}
}

// look returns the replicas that are to be given up now, and what operators should know.
// dead is how many nodes are taken for dead, most how many may be dead or have replicas
// that have stopped at once: where there are more it is not single disks that fail.
func (m *mending) look(reports map[string]*peerv1.GetReplicasResponse, dead, most int, after time.Duration, now time.Time) (due map[string]bool, remarks []string) {
	stopped, nodes := stoppedReplicas(reports)
	since := map[string]time.Time{}
	for _, s := range stopped {
		if since[s.replica] = m.since[s.replica]; since[s.replica].IsZero() {
			since[s.replica] = now
		}
	}
	m.since = since
	if nodes+dead > most && nodes > 0 {
		remarks = append(remarks, fmt.Sprintf("replicas have failed on %d nodes and %d are dead, more than are replaced at once (cluster.max_dead: %d), "+
			"so none of these replicas is made anew: look for what they have in common", nodes, dead, most))
		most = -1
	}
	due = map[string]bool{}
	for _, s := range stopped {
		left := m.left(s, after, now)
		if due[s.replica] = left <= 0 && most >= 0; due[s.replica] {
			if m.given[s.place].replica != s.replica {
				m.given[s.place] = givenUp{s.replica, now}
			}
			left = 0
		}
		remarks = append(remarks, s.remark(left, most >= 0))
	}
	slices.Sort(remarks)
	return due, remarks
}

// left is how long a replica that has stopped is still waited for. A place where one was
// given up a short time ago likely has a cause that goes on.
func (m *mending) left(s stoppedReplica, after time.Duration, now time.Time) time.Duration {
	left := after - now.Sub(m.since[s.replica])
	if s.damaged {
		left = 0
	}
	if last, ok := m.given[s.place]; ok && last.replica != s.replica {
		left = max(left, after-now.Sub(last.at))
	}
	return left
}

// stoppedReplica is one that its node has told of.
type stoppedReplica struct {
	place
	replica string
	damaged bool
	why     string
}

// stoppedReplicas returns those that have stopped, and on how many nodes.
func stoppedReplicas(reports map[string]*peerv1.GetReplicasResponse) (out []stoppedReplica, nodes int) {
	for node, rep := range reports {
		before := len(out)
		for _, r := range rep.GetReplicas() {
			if r.GetFailed() && r.GetReplica() != "" {
				out = append(out, stoppedReplica{place{r.GetShard(), node}, r.GetReplica(), r.GetDamaged(), r.GetFault()})
			}
		}
		if len(out) > before {
			nodes++
		}
	}
	return out, nodes
}

func (s stoppedReplica) remark(left time.Duration, bounded bool) string {
	name, what := fmt.Sprintf("shard %d", s.shard), "has failed"
	if s.shard == catalogShard {
		name = "the catalog"
	}
	if s.damaged {
		what = "is damaged"
	}
	next := "another is made in its place"
	switch {
	case !bounded:
		next = "it stays so"
	case left > 0:
		next = fmt.Sprintf("after %v %s", left.Round(time.Second), next)
	}
	return fmt.Sprintf("%s: the replica on node %s %s, %s: %s", name, s.node, what, next, s.why)
}

// has reports whether a node tells of a replica of a shard.
func has(rep *peerv1.GetReplicasResponse, id uint32, replica string) bool {
	return slices.ContainsFunc(rep.GetReplicas(), func(r *peerv1.Replica) bool {
		return r.GetShard() == id && (r.GetReplica() == replica || r.GetReplica() == "")
	})
}

// failedOn reports whether a node tells that its replica of a shard has stopped.
func failedOn(rep *peerv1.GetReplicasResponse, id uint32) bool {
	return slices.ContainsFunc(rep.GetReplicas(), func(r *peerv1.Replica) bool { return r.GetShard() == id && r.GetFailed() })
}

// stops reports whether a replica has stopped on its node.
func stops(reports map[string]*peerv1.GetReplicasResponse, id uint32, replica string) bool {
	rep := reports[shard.NodeOf(replica)]
	return failedOn(rep, id) && has(rep, id, replica)
}
