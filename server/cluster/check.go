package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/shard"
	"github.com/lianadb/liana/server/peer"
)

// Patience of a check.
const (
	digestTries = 10 // looks at replicas that do not stand at the same entry
	digestPause = 200 * time.Millisecond
	endsTries   = 50 // looks at ends that differ and do not stand still
	endsPause   = 50 * time.Millisecond
	// looks at derived counters that differ, each of which reads all of them
	derivedTries = 10
	maxFindings  = 1000
)

// Check implements server.Cluster. Every node proves what it has replicas of, then the
// replicas of each shard are compared, then edges whose ends no node has both of.
func (m *Member) Check(ctx context.Context, progress func(graph.CheckProgress)) (graph.CheckReport, error) {
	mp := m.Map()
	c := &clusterCheck{m: m, mp: mp, seed: rand.Uint64(), nodes: map[uint32][]string{}, leads: map[uint32]string{}, told: map[derivedName]bool{}, at: m.auditor}
	reports := m.ask(ctx, mp)
	for _, n := range mp.Nodes {
		if n.State != catalog.Removed && reports[n.ID] == nil {
			return c.report, fmt.Errorf("node %s does not answer: %w", n.ID, graph.ErrUnreachable)
		}
	}
	// What is left over of a replica that was moved away is none of the shard's.
	seen := observe(reports)
	for _, s := range mp.Shards {
		view, ok := seen[s.ID]
		if !ok {
			return c.report, fmt.Errorf("shard %d has no leader: %w", s.ID, shard.ErrNotLeader)
		}
		c.leads[s.ID] = view.leader
		for _, m := range view.members {
			c.nodes[s.ID] = append(c.nodes[s.ID], m.node)
		}
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return c.eachNode(ctx, progress) }, c.replicas, c.ends, c.derived,
	} {
		if err := step(ctx); err != nil {
			return c.report, err
		}
	}
	return c.report, nil
}

// clusterCheck is one check of the cluster.
type clusterCheck struct {
	m         *Member
	mp        *catalog.Map
	seed      uint64
	nodes     map[uint32][]string // with a replica, by shard
	leads     map[uint32]string
	elsewhere uint64
	told      map[derivedName]bool // derived counters that are faults
	at        func(node string) (peer.Auditor, error)

	mu     sync.Mutex
	report graph.CheckReport
}

// auditor is a node as it answers in a check.
func (m *Member) auditor(node string) (peer.Auditor, error) {
	if node == m.cfg.Self.ID {
		return m.replicas.shards, nil
	}
	return m.cfg.Pool.Client(node)
}

func (c *clusterCheck) fault(format string, args ...any) {
	c.report.Faults++
	if len(c.report.Findings) < maxFindings {
		c.report.Findings = append(c.report.Findings, fmt.Sprintf(format, args...))
	}
}

// eachNode has all nodes check what they have; progress tells of this one.
func (c *clusterCheck) eachNode(ctx context.Context, progress func(graph.CheckProgress)) error {
	var wg sync.WaitGroup
	errs := make([]error, len(c.mp.Nodes))
	for i, n := range c.mp.Nodes {
		if n.State == catalog.Removed {
			continue
		}
		wg.Go(func() {
			a, err := c.at(n.ID)
			var r graph.CheckReport
			if err == nil {
				r, err = a.Check(ctx, progress)
			}
			if err != nil {
				errs[i] = fmt.Errorf("node %s: %w", n.ID, err)
				return
			}
			c.add(n.ID, r)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// add adds what a node has found.
func (c *clusterCheck) add(node string, r graph.CheckReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Lists += r.Lists
	c.report.Edges += r.Edges
	c.report.Counters += r.Counters
	c.report.Skipped += r.Skipped - min(r.Skipped, r.Elsewhere)
	c.elsewhere += r.Elsewhere
	for _, f := range r.Findings {
		c.fault("node %s: %s", node, f)
	}
	c.report.Faults += r.Faults - uint64(len(r.Findings))
}

// shards returns the shards that have replicas, in order.
func (c *clusterCheck) shards() []uint32 {
	var out []uint32
	for id := range c.nodes {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// replicas compares the replicas of each shard.
func (c *clusterCheck) replicas(ctx context.Context) error {
	for _, id := range c.shards() {
		if err := c.compareReplicas(ctx, id); err != nil {
			return fmt.Errorf("shard %d: %w", id, err)
		}
	}
	return nil
}

// compareReplicas compares the replicas of a shard with one of them, each as both stood
// at the same entry of the log. One that differs is looked at again: what it says means
// nothing while it is sent the state of another.
func (c *clusterCheck) compareReplicas(ctx context.Context, id uint32) error {
	model := cmp.Or(c.leads[id], c.nodes[id][0])
	open := slices.DeleteFunc(slices.Clone(c.nodes[id]), func(n string) bool { return n == model })
	said := saidOf{}
	for try := 0; len(open) > 0; try++ {
		if try == digestTries {
			c.report.Skipped += uint64(len(open))
			return nil
		}
		if try > 0 {
			sleep(ctx, digestPause)
		}
		for _, node := range append([]string{model}, open...) {
			d, err := c.digest(ctx, node, id)
			if err != nil {
				return fmt.Errorf("node %s: %w", node, err)
			}
			said.add(node, d)
		}
		open = slices.DeleteFunc(open, func(node string) bool {
			entry, same, met := said.compare(model, node)
			if met && !same {
				said.forget(node)
				if said[node].differed++; said[node].differed < 2 {
					return false
				}
				c.fault("shard %d: at entry %d the replicas of nodes %s and %s say different things", id, entry, model, node)
			}
			return met
		})
	}
	return ctx.Err()
}

// saidOf are the digests of replicas by node.
type saidOf map[string]*said

// said is what one replica said: hashes by entry, and how often it differed.
type said struct {
	at       map[uint64]uint64
	differed int
}

func (s saidOf) add(node string, d graph.Digest) {
	if s[node] == nil {
		s[node] = &said{at: map[uint64]uint64{}}
	}
	s[node].at[d.Applied] = d.Hash
}

func (s saidOf) forget(node string) { clear(s[node].at) }

// compare compares what two replicas said at the newest entry at which both were seen.
func (s saidOf) compare(one, other string) (entry uint64, same, met bool) {
	for at := range s[other].at { // any order: the highest counts
		if _, both := s[one].at[at]; both && at >= entry {
			entry, met = at, true
		}
	}
	return entry, met && s[one].at[entry] == s[other].at[entry], met
}

func (c *clusterCheck) digest(ctx context.Context, node string, id uint32) (graph.Digest, error) {
	a, err := c.at(node)
	if err != nil {
		return graph.Digest{}, err
	}
	return a.Digest(ctx, id)
}
