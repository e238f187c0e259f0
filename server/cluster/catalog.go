package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

const catalogShard = catalog.CatalogShard

// catalogReplica is this node's replica of the catalog, where it has one.
type catalogReplica struct {
	node  *shard.Node
	store kv.Store

	mu      sync.Mutex
	machine *catalog.Machine
	raft    *shard.Shard
	broken  error // why the replica that is here cannot run
}

// start starts the replica; see shard.ShardConfig.Join. One whose stored data is damaged
// is set aside.
func (c *catalogReplica) start(join bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raft != nil {
		return nil
	}
	m, err := catalog.NewMachine(c.store)
	var s *shard.Shard
	if err == nil {
		s, err = c.node.StartShard(shard.ShardConfig{ID: catalogShard, Machine: m, Join: join})
	}
	switch {
	case err == nil:
		c.machine, c.raft, c.broken = m, s, nil
	case shard.Damaged(err):
		c.broken = err
		if !join {
			return nil
		}
	}
	return err
}

func (c *catalogReplica) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end()
}

// end is stop with c.mu held.
func (c *catalogReplica) end() error {
	if c.raft == nil {
		return nil
	}
	err := c.raft.Close()
	c.machine, c.raft, c.broken = nil, nil, err
	return err
}

// destroy removes the replica for good if it is the one that is meant.
func (c *catalogReplica) destroy(replica string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, err := c.node.ReplicaOf(catalogShard)
	if err != nil || have != replica {
		return err
	}
	if err := c.end(); err != nil {
		return fmt.Errorf("catalog: stop the replica %s: %w", replica, err)
	}
	if err := c.node.DestroyReplica(catalogShard, catalog.Parts()); err != nil {
		return err
	}
	c.broken = nil
	return nil
}

// damaged tells that what the store holds of a span is damaged.
func (c *catalogReplica) damaged(span kv.Span, err error) {
	s, _ := c.group()
	if s != nil && catalog.Parts().Data.Overlaps(span) && len(s.Members()) > 1 {
		s.Fail(err)
	}
}

// group returns the catalog's Raft group on this node.
func (c *catalogReplica) group() (*shard.Shard, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.raft != nil:
		return c.raft, nil
	case c.broken != nil:
		return nil, fmt.Errorf("catalog: %w: %w", shard.ErrFault, c.broken)
	}
	return nil, &graph.MovedError{Shard: catalogShard}
}

// board shows what the replica applies; nil where there is none.
func (c *catalogReplica) board() *catalog.Board {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machine == nil {
		return nil
	}
	return c.machine.Board()
}

// hears reports whether the replica knows its leader, and has heard of it lately.
func (c *catalogReplica) hears() bool {
	s, err := c.group()
	if err != nil {
		return false
	}
	leader, age := s.Leader()
	return leader != "" && age < aliveWithin
}

// leads reports whether this node leads the catalog.
func (c *catalogReplica) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine != nil && c.machine.Leading()
}

// propose has the catalog apply a command, where this node leads it.
func (c *catalogReplica) propose(ctx context.Context, cmd []byte) (catalog.Result, error) {
	s, err := c.group()
	if err != nil {
		return catalog.Result{}, err
	}
	res, err := s.Propose(ctx, cmd)
	if errors.Is(err, shard.ErrNotLeader) {
		leader, _ := s.Leader()
		return catalog.Result{}, fmt.Errorf("%w: %w", &graph.MovedError{Shard: catalogShard, Leader: leader}, err)
	}
	if err != nil {
		return catalog.Result{}, err
	}
	return res.(catalog.Result), nil
}

// refusals are the reasons of the catalog by their numbers in the protocol, from 1.
func refusals() []error {
	return []error{
		catalog.ErrRefused, catalog.ErrStale, catalog.ErrUnfounded, catalog.ErrUnknown, catalog.ErrWiped, catalog.ErrRemoved,
	}
}

// refusal is a reason that came from another node.
type refusal struct {
	text string
	is   error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.is }

func wireResult(r catalog.Result) *peerv1.ProposeResponse {
	out := &peerv1.ProposeResponse{MapVersion: r.Version, Changed: r.Changed}
	if r.Err == nil {
		return out
	}
	out.Refusal, out.Message = 1, r.Err.Error()
	for i, is := range refusals() {
		if errors.Is(r.Err, is) {
			out.Refusal = uint32(i + 1)
		}
	}
	return out
}

func result(r *peerv1.ProposeResponse) catalog.Result {
	out := catalog.Result{Version: r.GetMapVersion(), Changed: r.GetChanged()}
	if n := r.GetRefusal(); n > 0 {
		known := refusals()
		out.Err = &refusal{r.GetMessage(), known[min(int(n), len(known))-1]}
	}
	return out
}
