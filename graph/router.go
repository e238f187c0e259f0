package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv/shard"
)

// Errors of another node, beside those that it passes on.
var (
	// ErrUnreachable: the call did not reach the node. Nothing was changed.
	ErrUnreachable = errors.New("node is unreachable, nothing was changed")
	// ErrCut: the connection was lost while the node was at work.
	ErrCut = errors.New("connection to the node was lost")
)

// Service is what a node answers for the shards that it has replicas of. Graph
// implements it for this node, a client of the peer protocol for another.
type Service interface {
	Mutate(ctx context.Context, ms []Mutation, wait Wait) ([]MutationResult, string, error)
	HasEdges(ctx context.Context, ro ReadOptions, t EdgeType, srcs, dsts []uint64, exists []bool) (string, error)
	GetEdge(ctx context.Context, ro ReadOptions, t EdgeType, src, dst uint64) (edgelist.Edge, string, error)
	CountEdges(ctx context.Context, ro ReadOptions, lists []ListKey, w Window, counts []uint64) (string, error)
	ListEdges(ctx context.Context, ro ReadOptions, q ListQuery) (ListPage, error)
	// What walks and sets of lists ask: many lists in one call.
	ReadLists(ctx context.Context, ro ReadOptions, reads []ListRead, runs []ListRun) (string, error)
	FindPeers(ctx context.Context, ro ReadOptions, lists []ListKey, peers []uint64, found []FoundPeers) (string, error)
	// IncrPart is a part of an IncrBy call: ordinals are the places of the increments
	// in the whole.
	IncrPart(ctx context.Context, ins []Increment, ordinals []uint32, requestID string) ([]IncrResult, string, error)
	GetCounters(ctx context.Context, ro ReadOptions, refs []CounterRef) ([]CounterValue, string, error)
	SetCounter(ctx context.Context, c CounterRef, value, expireAt int64) (string, error)
	DeleteCounter(ctx context.Context, c CounterRef) (bool, string, error)
	EditCounters(ctx context.Context, es []CounterEdit) ([]EditResult, error)
	// Operations on whole vertices, and what is at work in the background.
	VertexJob(ctx context.Context, op VertexOp, v Vertex) (VertexJob, error)
	ShardJobs(ctx context.Context, shard uint32) (ShardJobs, error)
	// ChangeRows reads the change log of a shard.
	ChangeRows(ctx context.Context, want ChangesWant) (ChangeRows, error)
	// What caches ask.
	LastChanges(ctx context.Context, shard uint32, slots []Slot, at []uint64) (timeline uint64, err error)
	Excerpts(ctx context.Context, wants []ExcerptWant, got []Excerpt) error
}

// MovedError says that a node does not lead a shard, and who does as far as it
// knows ("": it does not know). It is a shard.ErrNotLeader.
type MovedError struct {
	Shard  uint32
	Leader string // node id
	// Claims are those of the shard to all slots, where it does not own (any more) what it
	// was asked for. Their generations stand for the version of the map (RULES F1).
	Claims []Claim
}

func (e *MovedError) Error() string {
	if len(e.Claims) > 0 {
		return fmt.Sprintf("shard %d does not own the slot", e.Shard)
	}
	if e.Leader == "" {
		return fmt.Sprintf("shard %d has no leader now", e.Shard)
	}
	return fmt.Sprintf("shard %d is led by node %s", e.Shard, e.Leader)
}

// Unwrap makes it a shard.ErrNotLeader.
func (e *MovedError) Unwrap() error { return shard.ErrNotLeader }

// RouterConfig configures a Router.
type RouterConfig struct {
	Local *Graph
	Self  string // id of this node
	// Replicas returns the nodes that should have a replica of a shard.
	Replicas func(shard uint32) []string
	// Service returns the calls of another node.
	Service func(node string) (Service, error)
	// Patience is how long a call without a deadline looks for a leader. Default 10 s.
	Patience time.Duration
}

// Router answers calls for all shards of a cluster: each by the node that leads its
// shard, reads also by a replica on this node. Batches are spread over the nodes. A
// call that found no leader is repeated, within its deadline, where it is certain that
// nothing was changed (RULES B5). All methods may be called concurrently.
type Router struct {
	cfg     RouterConfig
	leaders [MaxShards]atomic.Pointer[string] // node that led a shard when last heard of
	feeds   *feeds
}

var _ Service = (*Graph)(nil)

// NewRouter returns a router.
func NewRouter(cfg RouterConfig) *Router {
	if cfg.Patience == 0 {
		cfg.Patience = 10 * time.Second
	}
	r := &Router{cfg: cfg}
	r.feeds = newFeeds(cfg.Local, r.ChangeRows)
	return r
}

// Pauses between attempts.
const (
	attemptFirst = 2 * time.Millisecond
	attemptLast  = 100 * time.Millisecond
)

// purpose says which replicas may answer.
type purpose uint8

const (
	toWrite purpose = iota
	toReadHere
	toReadLeader
)

func purposeOf(ro ReadOptions) purpose {
	if ro.Level == Linearizable {
		return toReadLeader
	}
	return toReadHere
}

// alone reports whether this node leads all shards: then nothing is routed.
func (r *Router) alone() bool {
	g := r.cfg.Local
	for _, c := range *g.owners.Load() {
		if !g.leads(c.Shard) {
			return false
		}
	}
	return true
}

// choose returns the node to ask for a shard. Only the first attempt of a read may
// be answered by a replica that follows.
func (r *Router) choose(id uint32, attempt int, p purpose) string {
	g := r.cfg.Local
	if g.leads(id) || attempt == 0 && p == toReadHere && g.follows(id) {
		return r.cfg.Self
	}
	if l := r.leaders[id].Load(); l != nil {
		return *l
	}
	if l := g.leaderOf(id); l != "" && l != r.cfg.Self {
		return l
	}
	nodes := r.cfg.Replicas(id)
	if len(nodes) == 0 {
		return r.cfg.Self
	}
	return nodes[attempt%len(nodes)]
}

func (r *Router) service(node string) (Service, error) {
	if node == r.cfg.Self {
		return r.cfg.Local, nil
	}
	return r.cfg.Service(node)
}

// learn takes what the answer of a node says about the leader of a shard.
func (r *Router) learn(id uint32, node string, err error) {
	r.heed(err)
	var moved *MovedError
	switch {
	case errors.As(err, &moved) && moved.Shard == id && moved.Leader != "" && moved.Leader != node:
		r.leaders[id].Store(&moved.Leader)
	case err != nil:
		r.leaders[id].Store(nil)
	case node != r.cfg.Self:
		if old := r.leaders[id].Load(); old == nil || *old != node {
			r.leaders[id].Store(&node)
		}
	}
}

// heed takes what an error says about the owners of slots.
func (r *Router) heed(err error) {
	var moved *MovedError
	if errors.As(err, &moved) && len(moved.Claims) > 0 {
		_ = r.cfg.Local.Learn(moved.Claims) // of another version of the program, at worst
	}
}

// again reports whether a call that ended with err may be made anew: it is certain
// that it changed nothing, or it was a read.
func again(err error, p purpose) bool {
	if err == nil {
		return false
	}
	if elsewhere(err) || errors.Is(err, ErrUnreachable) {
		return true
	}
	return p != toWrite && (errors.Is(err, ErrCut) || errors.Is(err, ErrTooFresh))
}

// pause waits before the next attempt; false: the deadline or the patience ends.
func (r *Router) pause(ctx context.Context, begun time.Time, attempt int) bool {
	d := min(attemptFirst<<min(attempt, 10), attemptLast)
	if _, bounded := ctx.Deadline(); !bounded && time.Since(begun) > r.cfg.Patience {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// unknown reports whether nobody knows what became of a write.
func unknown(err error) bool {
	return errors.Is(err, shard.ErrOutcomeUnknown) || errors.Is(err, ErrCut)
}

// readAttempt is how long one node may take over a read before another is asked: it
// may hang, or be cut off.
const readAttempt = 3 * time.Second

// errSlowRead: a node took longer than readAttempt.
var errSlowRead = fmt.Errorf("%w: no answer within %v", ErrCut, readAttempt)

// attemptOf makes one attempt of a call.
func attemptOf(ctx context.Context, p purpose, call func(context.Context) error) error {
	if p == toWrite {
		return call(ctx)
	}
	short, cancel := context.WithTimeoutCause(ctx, readAttempt, errSlowRead)
	defer cancel()
	err := call(short)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return errSlowRead
	}
	return err
}

// one makes a call that concerns one shard.
func (r *Router) one(ctx context.Context, slot Slot, p purpose, call func(context.Context, Service) error) error {
	begun := time.Now()
	for attempt := 0; ; attempt++ {
		id := r.cfg.Local.shardOf(slot)
		node := r.choose(id, attempt, p)
		s, err := r.service(node)
		if err == nil {
			err = attemptOf(ctx, p, func(ctx context.Context) error { return call(ctx, s) })
		}
		if !again(err, p) {
			if p != toReadHere {
				r.learn(id, node, err)
			}
			return err
		}
		r.learn(id, node, err)
		if !r.pause(ctx, begun, attempt) {
			return err
		}
	}
}

// share is the part of a batch that one node is asked for.
type share struct {
	node   string
	pick   []int // indexes of the items
	shards []uint32
	token  string
	retry  []int // items to be asked for anew
	err    error
}

// batch spreads items over the nodes that lead their shards. call asks a node for
// the items of pick, and returns those that are to be asked for again. A call that
// fails as a whole where nothing was changed is made again as well. left are the items
// that found no leader in time, err says why; without left, an error ends the batch.
func (r *Router) batch(ctx context.Context, n int, p purpose, shardOf func(i int) uint32,
	call func(ctx context.Context, s Service, pick []int) (token string, retry []int, err error),
) (token string, left []int, err error) {
	left = make([]int, n)
	for i := range left {
		left[i] = i
	}
	var tokens []string
	begun := time.Now()
	for attempt := 0; ; attempt++ {
		shares := r.divide(left, attempt, p, shardOf)
		r.ask(ctx, shares, p, call)
		left, err = nil, nil
		for i := range shares {
			s := &shares[i]
			for _, id := range s.shards {
				r.learn(id, s.node, s.err)
			}
			switch {
			case again(s.err, p):
				left, err = append(left, s.pick...), s.err
			case s.err != nil:
				return "", nil, s.err
			default:
				tokens = append(tokens, s.token)
				left = append(left, s.retry...)
				for _, i := range s.retry {
					r.leaders[shardOf(i)].Store(nil)
				}
			}
		}
		if len(left) == 0 || !r.pause(ctx, begun, attempt) {
			break
		}
		slices.Sort(left) // mutations of one source keep their order
	}
	token, bad := mergeTokens(r.cfg.Local.cfg.Timeline, tokens)
	if bad != nil {
		return "", nil, bad
	}
	return token, left, err
}

// divide gives each item to a node.
func (r *Router) divide(items []int, attempt int, p purpose, shardOf func(i int) uint32) []share {
	var shares []share
	of := map[uint32]int{} // 1 + index of the share of a shard
	for _, i := range items {
		id := shardOf(i)
		if of[id] == 0 {
			node := r.choose(id, attempt, p)
			at := slices.IndexFunc(shares, func(s share) bool { return s.node == node })
			if at < 0 {
				at = len(shares)
				shares = append(shares, share{node: node})
			}
			shares[at].shards = append(shares[at].shards, id)
			of[id] = at + 1
		}
		s := &shares[of[id]-1]
		s.pick = append(s.pick, i)
	}
	return shares
}

func (r *Router) ask(ctx context.Context, shares []share, p purpose,
	call func(ctx context.Context, s Service, pick []int) (string, []int, error),
) {
	var wg sync.WaitGroup
	for i := range shares {
		s := &shares[i]
		do := func() {
			svc, err := r.service(s.node)
			if err != nil {
				s.err = err
				return
			}
			s.err = attemptOf(ctx, p, func(ctx context.Context) (err error) {
				s.token, s.retry, err = call(ctx, svc, s.pick)
				return err
			})
		}
		if i == len(shares)-1 {
			do()
		} else {
			wg.Go(do)
		}
	}
	wg.Wait()
}

// pickOf returns the items that pick names.
func pickOf[T any](items []T, pick []int) []T {
	if len(pick) == len(items) {
		return items // in order: they are all
	}
	out := make([]T, len(pick))
	for i, j := range pick {
		out[i] = items[j]
	}
	return out
}
