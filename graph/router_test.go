package graph

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lianadb/liana/kv/shard"
)

// town is two nodes that share the shards of one store.
type town struct {
	nodes   [2]*world
	routers [2]*Router
	// fail, where set, is the error of the next calls between the nodes.
	fail atomic.Pointer[func() error]
}

// link is the way from a node to the other.
type link struct {
	Service
	town *town
	to   int
}

func (tn *town) failure() error {
	if f := tn.fail.Load(); f != nil {
		return (*f)()
	}
	return nil
}

func (l link) Mutate(ctx context.Context, ms []Mutation, wait Wait) ([]MutationResult, string, error) {
	err := l.town.failure()
	if errors.Is(err, ErrUnreachable) {
		return nil, "", err
	}
	res, token, done := l.Service.Mutate(ctx, ms, wait)
	if err != nil {
		return nil, "", err // the answer is lost
	}
	return res, token, done
}

func (l link) IncrPart(ctx context.Context, ins []Increment, ordinals []uint32, id string) ([]IncrResult, string, error) {
	res, token, done := l.Service.IncrPart(ctx, ins, ordinals, id)
	if err := l.town.failure(); err != nil {
		return nil, "", err
	}
	return res, token, done
}

func (l link) LastChanges(ctx context.Context, shard uint32, slots []Slot, at []uint64) (uint64, error) {
	if err := l.town.failure(); err != nil {
		return 0, err
	}
	return l.Service.LastChanges(ctx, shard, slots, at)
}

// Deliver implements Remote.
func (l link) Deliver(ctx context.Context, to uint32, delivery []byte) ([]byte, error) {
	if err := l.town.failure(); err != nil {
		return nil, err
	}
	return l.town.nodes[l.to].g.Deliver(ctx, to, delivery)
}

func newTown(t *testing.T, change ...func(node int, c *Config)) *town {
	tn := &town{}
	for i := range tn.nodes {
		tn.nodes[i] = newWorld(t, true, func(c *Config) {
			c.Replicas = []uint32{uint32(i), uint32(i + 2)}
			c.Remote = link{town: tn, to: 1 - i}
			for _, f := range change {
				f(i, c)
			}
		})
	}
	for i := range tn.routers {
		other := tn.nodes[1-i]
		tn.routers[i] = NewRouter(RouterConfig{
			Local: tn.nodes[i].g, Self: tn.nodes[i].node.ID(), Patience: 2 * time.Second,
			Replicas: func(id uint32) []string { return []string{tn.nodes[id%2].node.ID()} },
			Service: func(node string) (Service, error) {
				if node != other.node.ID() {
					return nil, fmt.Errorf("node %s: %w", node, ErrUnreachable)
				}
				return link{Service: other.g, town: tn, to: 1 - i}, nil
			},
		})
	}
	return tn
}

func TestRoutersAnswerLikeTheModel(t *testing.T) {
	tn := newTown(t)
	ctx := context.Background()
	rng := rand.New(rand.NewSource(5))
	like, follow := tn.nodes[0].edgeType("like"), tn.nodes[0].edgeType("follow")
	m, last := model{}, ""
	for step := range 80 {
		r := tn.routers[step%2]
		ms := make([]Mutation, 1+rng.Intn(30))
		want := make([]Outcome, len(ms))
		for i := range ms {
			ms[i] = randomMutation(rng, []EdgeType{like, follow})
			want[i] = m.apply(ms[i])
		}
		res, token, err := r.Mutate(ctx, ms, WaitBoth)
		must(t, err)
		for i := range res {
			if res[i].Outcome != want[i] || res[i].Err != nil {
				t.Fatalf("step %d, %+v: %+v, want %v", step, ms[i], res[i], want[i])
			}
		}
		last = token
		// The other router reads what was written, on both ends.
		ro := ReadOptions{Level: AtLeastAsFresh, Token: last}
		compareTown(t, tn.routers[1-step%2], m, ms, ro)
	}
}

// compareTown reads the ends of mutations and compares them with the model.
func compareTown(t *testing.T, r *Router, m model, ms []Mutation, ro ReadOptions) {
	t.Helper()
	ctx := context.Background()
	var lists []ListKey
	for _, mu := range ms {
		def, _ := r.cfg.Local.Schema().EdgeTypeByID(mu.Type)
		lists = append(lists, def.fact(mu.Src), def.inverse(mu.Dst))
		exists := make([]bool, 1)
		_, err := r.HasEdges(ctx, ro, mu.Type, []uint64{mu.Src}, []uint64{mu.Dst}, exists)
		must(t, err)
		if _, want := m[modelKey{mu.Type, mu.Src, mu.Dst}]; exists[0] != want {
			t.Fatalf("%+v: has is %v", mu, exists[0])
		}
	}
	counts := make([]uint64, len(lists))
	_, err := r.CountEdges(ctx, ro, lists, AllTime(), counts)
	must(t, err)
	for i, l := range lists {
		want := m.list(l)
		page, err := r.ListEdges(ctx, ro, ListQuery{List: l, Order: OldestFirst, PageSize: 1000, Window: AllTime()})
		must(t, err)
		if !sameEdges(page.Edges, want) || counts[i] != uint64(len(want)) {
			t.Fatalf("list %v: %d edges, counted %d, want %d", l, len(page.Edges), counts[i], len(want))
		}
	}
}

// A call that did not reach the other node is made again; one whose answer was lost
// is not, where it was a write without a request id (RULES B5).
func TestRuleB5_OnlyWhatIsSafeIsMadeAgain(t *testing.T) {
	tn := newTown(t)
	ctx := context.Background()
	like := tn.nodes[0].edgeType("like")
	src := sourceOf(tn, 1)
	var calls atomic.Int64 // deliveries go the same way
	unreachable := func() error {
		if calls.Add(1) <= 3 {
			return fmt.Errorf("refused: %w", ErrUnreachable)
		}
		return nil
	}
	tn.fail.Store(&unreachable)
	res, _, err := tn.routers[0].Mutate(ctx, []Mutation{{Op: OpAdd, Type: like, Src: src, Dst: 1}}, WaitForward)
	must(t, err)
	if res[0].Outcome != Changed || calls.Load() < 4 {
		t.Fatalf("%+v after %d calls", res[0], calls.Load())
	}
	lost := func() error { return ErrCut }
	tn.fail.Store(&lost)
	res, _, err = tn.routers[0].Mutate(ctx, []Mutation{{Op: OpAdd, Type: like, Src: src, Dst: 2}}, WaitForward)
	must(t, err)
	if res[0].Outcome != Unknown {
		t.Fatalf("%+v, want an unknown outcome", res[0])
	}
}

func TestIncrementsWithARequestIDCountOnceOverNodes(t *testing.T) {
	tn := newTown(t)
	ctx := context.Background()
	var ins []Increment
	for i := range 40 {
		ins = append(ins, Increment{Counter: CounterRef{Key: fmt.Sprint("k", i)}, Delta: 1})
	}
	var calls atomic.Int64
	flaky := func() error {
		if calls.Add(1) <= 2 {
			return ErrCut
		}
		return nil
	}
	tn.fail.Store(&flaky)
	res, _, err := tn.routers[0].IncrBy(ctx, ins, "id-1")
	must(t, err)
	again, _, err := tn.routers[1].IncrBy(ctx, ins, "id-1")
	must(t, err)
	for i := range ins {
		if res[i].Err != nil || res[i].Value != 1 || again[i].Value != 1 || again[i].Err != nil {
			t.Fatalf("%d: %+v, repeated %+v", i, res[i], again[i])
		}
	}
	if calls.Load() < 3 {
		t.Fatal("no answer was lost")
	}
}

// A shard without a leader is waited for, but no longer than the deadline.
func TestACallWithoutALeaderEnds(t *testing.T) {
	tn := newTown(t)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	gone := func() error { return fmt.Errorf("refused: %w", ErrUnreachable) }
	tn.fail.Store(&gone)
	_, _, err := tn.routers[0].Mutate(ctx, []Mutation{{Op: OpAdd, Type: tn.nodes[0].edgeType("like"), Src: sourceOf(tn, 1), Dst: 1}}, WaitForward)
	if !errors.Is(err, ErrUnreachable) {
		t.Fatalf("%v", err)
	}
	g := tn.nodes[0].g
	replica, err := g.cfg.Node.ReplicaOf(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.DestroyReplica(0, replica); err != nil {
		t.Fatal(err)
	}
	_, err = g.member(0)
	if !errors.Is(err, shard.ErrNotLeader) {
		t.Fatalf("%v", err)
	}
}

// sourceOf returns a user whose edges a node leads.
func sourceOf(tn *town, node int) uint64 {
	for id := uint64(1); ; id++ {
		if int(tn.nodes[0].g.shardOf(SlotOf(Vertex{1, id})))%2 == node {
			return id
		}
	}
}

// A replica that has not heard of its leader for longer than the bound answers nothing
// at the cheapest level, whoever asks it: routers ask whom they can reach.
func TestAReplicaThatIsTooOldRefusesCheapReads(t *testing.T) {
	m := newTestMachine(t, 0, 1)
	defer m.Close()
	m.mustApply(t, 1, mutateCommand(Mutation{Op: OpAdd, Type: 1, Src: 1, Dst: 2, Time: 3}))
	g := follower(t, m)
	founding := foundingOwners(1)
	g.owners.Store(&founding)
	g.schema.Store(DefaultSchema())
	g.cfg.Node = &shard.Node{}
	var exists [1]bool
	if _, err := g.HasEdges(t.Context(), ReadOptions{}, 1, []uint64{1}, []uint64{2}, exists[:]); !errors.Is(err, shard.ErrNotLeader) {
		t.Errorf("answered %v, %v", exists, err)
	}
	if _, err := g.HasEdges(t.Context(), ReadOptions{Level: AtLeastAsFresh}, 1, []uint64{1}, []uint64{2}, exists[:]); err != nil || !exists[0] {
		t.Errorf("with a token: %v, %v", exists, err)
	}
}

// Edges without a time get it where their shard is led: a router whose clock is an hour
// ahead gives none that the others would refuse.
func TestAWrongClockOfTheRouterIsNobodysMistake(t *testing.T) {
	tn := newTown(t, func(node int, c *Config) {
		if node == 0 {
			c.Now = func() time.Time { return time.Now().Add(time.Hour) }
		}
	})
	like := tn.nodes[0].edgeType("like")
	for src := range uint64(16) { // over all shards
		res, _, err := tn.routers[0].Mutate(t.Context(), []Mutation{{Op: OpAdd, Type: like, Src: src + 1, Dst: 1}}, WaitForward)
		must(t, err)
		if res[0].Outcome != Changed {
			t.Errorf("edge of %d: %+v", src+1, res[0])
		}
	}
}
