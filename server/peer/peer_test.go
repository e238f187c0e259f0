package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
	"github.com/lianadb/liana/kv/shard"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a Local whose answers are made of its arguments, and whose error is err.
type echo struct {
	err   error
	block chan struct{} // where set, calls wait for it or their context
	got   any
	// arrived, where set, is told of each call.
	arrived chan struct{}
}

func (e *echo) answer(ctx context.Context, got any) error {
	e.got = got
	if e.arrived != nil {
		e.arrived <- struct{}{}
	}
	if e.block != nil {
		select {
		case <-e.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return e.err
}

func (e *echo) Mutate(ctx context.Context, ms []graph.Mutation, wait graph.Wait) ([]graph.MutationResult, string, error) {
	res := make([]graph.MutationResult, len(ms))
	for i := range res {
		res[i] = graph.MutationResult{Outcome: graph.Unchanged}
	}
	res[0] = graph.MutationResult{Outcome: graph.Failed, Err: &graph.MovedError{Shard: 3, Leader: "b"}}
	return res, "token", e.answer(ctx, []any{ms, wait})
}

func (e *echo) HasEdges(ctx context.Context, ro graph.ReadOptions, t graph.EdgeType, srcs, dsts []uint64, exists []bool) (string, error) {
	exists[len(exists)-1] = true
	return "token", e.answer(ctx, []any{ro, t, srcs, dsts})
}

func (e *echo) GetEdge(ctx context.Context, ro graph.ReadOptions, t graph.EdgeType, src, dst uint64) (edgelist.Edge, string, error) {
	return edgelist.Edge{Peer: dst, Time: 5, Props: []byte("p")}, "token", e.answer(ctx, []any{ro, t, src, dst})
}

func (e *echo) CountEdges(ctx context.Context, ro graph.ReadOptions, lists []graph.ListKey, w graph.Window, counts []uint64) (string, error) {
	counts[0] = 9
	return "token", e.answer(ctx, []any{ro, lists, w})
}

func (e *echo) ListEdges(ctx context.Context, ro graph.ReadOptions, q graph.ListQuery) (graph.ListPage, error) {
	return graph.ListPage{Edges: []edgelist.Edge{{Peer: 1, Time: 2}}, Next: "n", Token: "token"}, e.answer(ctx, []any{ro, q})
}

func (e *echo) ReadLists(ctx context.Context, ro graph.ReadOptions, reads []graph.ListRead, runs []graph.ListRun) (string, error) {
	runs[0] = graph.ListRun{Peers: []uint64{7, 3}, Times: []int64{5, -9}, More: true, Done: true}
	return "token", e.answer(ctx, []any{ro, reads})
}

func (e *echo) FindPeers(ctx context.Context, ro graph.ReadOptions, lists []graph.ListKey, peers []uint64, found []graph.FoundPeers) (string, error) {
	found[0] = graph.FoundPeers{At: []uint32{0, 2}, Times: []int64{9, 4}}
	return "token", e.answer(ctx, []any{ro, lists, peers})
}

func (e *echo) ChangeRows(ctx context.Context, want graph.ChangesWant) (graph.ChangeRows, error) {
	return graph.ChangeRows{
		Timeline: 3, Owners: []graph.Claim{{First: 0, Last: 4095, Shard: 2, Gen: 1}}, Birth: &graph.Birth{Parent: 1, Base: 8},
		Floor: 5, Through: 9, Rows: [][]byte{{1, 2}},
	}, e.answer(ctx, []any{want})
}

func (e *echo) IncrPart(ctx context.Context, ins []graph.Increment, ordinals []uint32, id string) ([]graph.IncrResult, string, error) {
	return []graph.IncrResult{{Value: 4, Changed: true}, {Err: graph.ErrOverflow}}, "token", e.answer(ctx, []any{ins, ordinals, id})
}

func (e *echo) GetCounters(ctx context.Context, ro graph.ReadOptions, refs []graph.CounterRef) ([]graph.CounterValue, string, error) {
	return []graph.CounterValue{{Counter: refs[0], Value: 3, Exists: true, ExpireAt: 8}}, "token", e.answer(ctx, []any{ro, refs})
}

func (e *echo) SetCounter(ctx context.Context, c graph.CounterRef, value, expireAt int64) (string, error) {
	return "token", e.answer(ctx, []any{c, value, expireAt})
}

func (e *echo) EditCounters(ctx context.Context, es []graph.CounterEdit) ([]graph.EditResult, error) {
	res := make([]graph.EditResult, len(es))
	for i := range res {
		res[i].Edited = counter.Edited{
			Before: counter.Counter{Value: -1, Exists: true, ExpireAt: 9}, Value: int64(i), Outcome: counter.Held, Changed: i == 0,
		}
		res[i].Pos = 77
	}
	res[0].Err = &graph.MovedError{Shard: 3, Leader: "b"}
	return res, e.answer(ctx, []any{es})
}

func (e *echo) DeleteCounter(ctx context.Context, c graph.CounterRef) (bool, string, error) {
	return true, "token", e.answer(ctx, []any{c})
}

func (e *echo) LastChanges(ctx context.Context, shard uint32, slots []graph.Slot, at []uint64) (uint64, error) {
	copy(at, []uint64{5, 1 << 60})
	return 77, e.answer(ctx, []any{shard, slots})
}

// excerpts has one of each kind, and one that is left out.
func excerpts() []graph.Excerpt {
	note := graph.Vertex{Type: 2, ID: 9}
	bits := make([]byte, 2)
	bits[1] = 0x81
	return []graph.Excerpt{
		{
			Timeline: 77, Position: 5, Metrics: []graph.CounterValue{{Counter: graph.CounterRef{Vertex: note, Metric: 3}, Value: -4, Exists: true, ExpireAt: 8}},
			Counts: []graph.ListCount{{List: graph.ListKey{Vertex: note, Type: 1, Dir: graph.In}, Count: 12}},
		},
		{Timeline: 77, Position: 6, Total: 3, Props: true, Edges: []edgelist.Edge{{Peer: 1 << 63, Time: 9}, {Peer: 3, Time: -2}}},
		{Timeline: 77, Position: 7, Bits: bits},
		{},
	}
}

func (e *echo) Excerpts(ctx context.Context, wants []graph.ExcerptWant, got []graph.Excerpt) error {
	copy(got, excerpts())
	return e.answer(ctx, []any{wants})
}

func (e *echo) VertexJob(ctx context.Context, op graph.VertexOp, v graph.Vertex) (graph.VertexJob, error) {
	return graph.VertexJob{Vertex: v, State: graph.VertexHiding, Began: 5, Total: 1 << 40, Done: 6}, e.answer(ctx, []any{op, v})
}

func (e *echo) ShardJobs(ctx context.Context, shard uint32) (graph.ShardJobs, error) {
	return graph.ShardJobs{
		Shard: shard, Vertices: []graph.VertexJob{{Vertex: graph.Vertex{Type: 1, ID: 2}, State: graph.VertexDeleting}},
		Backfills: []graph.Backfill{{Vertex: 1, Metric: 3, Done: 0.5}},
	}, e.answer(ctx, []any{shard})
}

func (e *echo) Deliver(ctx context.Context, to uint32, delivery []byte) ([]byte, error) {
	return []byte("answer"), e.answer(ctx, []any{to, delivery})
}

type noCluster struct {
	peerv1.UnimplementedClusterServer
}

// serve opens a port and a client of it.
func serve(t *testing.T, local Local, streams func(net.Conn)) (*Port, *Client) {
	t.Helper()
	p, err := Listen("127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.Serve(Services{NodeID: "b", Local: local, Cluster: noCluster{}, Streams: streams})
	t.Cleanup(p.Stop)
	return p, clientOf(t, p, "b")
}

// clientOf returns a client of a node that is said to be at the port's address.
func clientOf(t *testing.T, p *Port, node string) *Client {
	t.Helper()
	pool := NewPool(func(string) string { return p.Addr() }, nil, nil)
	t.Cleanup(func() { _ = pool.Close() })
	c, err := pool.Client(node)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A node that has taken over another's address does not answer for it, and nothing is
// changed by who meant the other (CASES 44, RULES 11).
func TestCallsAreAnsweredByTheNodeThatIsMeant(t *testing.T) {
	e := &echo{}
	p, _ := serve(t, e, nil)
	gone := clientOf(t, p, "a")
	ctx := testCtx(t)
	_, err := gone.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0)
	if !errors.Is(err, graph.ErrUnreachable) || errors.Is(err, shard.ErrOutcomeUnknown) || e.got != nil {
		t.Errorf("a write: %v, arrived: %v", err, e.got)
	}
	err = gone.WatchMap(ctx, 0, func([]byte) error { return nil })
	if !errors.Is(err, graph.ErrUnreachable) {
		t.Errorf("a stream: %v", err)
	}
	// Whoever asks an address which node is there names none.
	anyone, err := DialClient(p.Addr(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer anyone.Close()
	if _, err := anyone.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0); err != nil {
		t.Errorf("without a name: %v", err)
	}
}

func testCtx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Each call arrives as it was made, and its answer comes back.
func TestCallsArriveAsTheyWereMade(t *testing.T) {
	e := &echo{}
	_, c := serve(t, e, nil)
	ctx := testCtx(t)
	ro := graph.ReadOptions{Level: graph.Linearizable, Token: "t"}
	list := graph.ListKey{Vertex: graph.Vertex{Type: 2, ID: 1 << 63}, Type: 3, Dir: graph.In}
	key := graph.CounterRef{Key: "k"}
	metric := graph.CounterRef{Vertex: graph.Vertex{Type: 2, ID: 7}, Metric: 4}
	ms := []graph.Mutation{
		{Op: graph.OpAdd, Type: 1, Src: 1, Dst: 1<<64 - 2, Time: 7, Props: []byte("x")},
		{Op: graph.OpDelete, Type: 2, Src: 3, Dst: 4},
	}
	edits := []graph.CounterEdit{
		{Counter: graph.CounterRef{Key: "\xff\x00"}, Kind: counter.Put, If: counter.IfAbsent, Value: -3, ExpireAt: 8, Keep: true},
		{Counter: metric, Kind: counter.Look},
	}
	ins := []graph.Increment{
		{Counter: key, Delta: -3, Min: -9, HasMin: true, ExpireAt: 6},
		{Counter: metric, Delta: 1, Max: 0, HasMax: true},
	}
	wants := []graph.ExcerptWant{
		{Kind: graph.ExcerptCounts, List: graph.ListKey{Vertex: graph.Vertex{Type: 2, ID: 9}}, Min: 4},
		{Kind: graph.ExcerptNewest, List: list, Edges: 7}, {Kind: graph.ExcerptPeers, List: list, First: 1 << 63, Span: 16, Least: 2},
		{Kind: graph.ExcerptPeers, List: list, Span: 16, Least: 9},
	}
	vertex := graph.Vertex{Type: 2, ID: 1 << 63}
	reads := []graph.ListRead{
		{List: list, Order: graph.OldestFirst, Window: graph.Window{Since: -1, Until: 3}, From: &edgelist.Key{Time: -4, ID: 8}, Limit: 5},
		{List: list, Window: graph.AllTime(), Limit: 1},
	}
	query := graph.ListQuery{List: list, Order: graph.IDAscending, PageSize: 5, PageToken: "p", Skip: 8, Window: graph.AllTime()}
	for _, call := range []struct {
		name string
		make func() ([]any, error)
		got  []any
		want []any
	}{
		{"Mutate", func() ([]any, error) {
			res, token, err := c.Mutate(ctx, ms, graph.WaitForward)
			return []any{res, token}, err
		}, []any{ms, graph.WaitForward}, []any{[]graph.MutationResult{
			{Outcome: graph.Failed, Err: &graph.MovedError{Shard: 3, Leader: "b"}}, {Outcome: graph.Unchanged}}, "token"}},
		{"HasEdges", func() ([]any, error) {
			exists := make([]bool, 2)
			token, err := c.HasEdges(ctx, ro, 3, []uint64{1}, []uint64{2, 3}, exists)
			return []any{exists, token}, err
		}, []any{ro, graph.EdgeType(3), []uint64{1}, []uint64{2, 3}}, []any{[]bool{false, true}, "token"}},
		{"GetEdge", func() ([]any, error) {
			edge, token, err := c.GetEdge(ctx, ro, 3, 1, 2)
			return []any{edge, token}, err
		}, []any{ro, graph.EdgeType(3), uint64(1), uint64(2)}, []any{edgelist.Edge{Peer: 2, Time: 5, Props: []byte("p")}, "token"}},
		{"CountEdges", func() ([]any, error) {
			counts := make([]uint64, 1)
			token, err := c.CountEdges(ctx, ro, []graph.ListKey{list}, graph.Window{Since: -1, Until: 3}, counts)
			return []any{counts, token}, err
		}, []any{ro, []graph.ListKey{list}, graph.Window{Since: -1, Until: 3}}, []any{[]uint64{9}, "token"}},
		{"ListEdges", func() ([]any, error) {
			page, err := c.ListEdges(ctx, ro, query)
			return []any{page}, err
		}, []any{ro, query}, []any{graph.ListPage{Edges: []edgelist.Edge{{Peer: 1, Time: 2}}, Next: "n", Token: "token"}}},
		{"ReadLists", func() ([]any, error) {
			runs := make([]graph.ListRun, len(reads))
			token, err := c.ReadLists(ctx, ro, reads, runs)
			return []any{runs, token}, err
		}, []any{ro, reads}, []any{[]graph.ListRun{{Peers: []uint64{7, 3}, Times: []int64{5, -9}, More: true, Done: true}, {}}, "token"}},
		{"FindPeers", func() ([]any, error) {
			found := make([]graph.FoundPeers, 2)
			token, err := c.FindPeers(ctx, ro, []graph.ListKey{list, list}, []uint64{1, 2, 3}, found)
			return []any{found, token}, err
		}, []any{ro, []graph.ListKey{list, list}, []uint64{1, 2, 3}}, []any{[]graph.FoundPeers{{At: []uint32{0, 2}, Times: []int64{9, 4}}, {}}, "token"}},
		{"ChangeRows", func() ([]any, error) {
			rows, err := c.ChangeRows(ctx, graph.ChangesWant{Shard: 7, Past: graph.ChangesNow, Wait: time.Second})
			return []any{rows}, err
		}, []any{graph.ChangesWant{Shard: 7, Past: graph.ChangesNow, Wait: time.Second}}, []any{graph.ChangeRows{
			Timeline: 3, Owners: []graph.Claim{{First: 0, Last: 4095, Shard: 2, Gen: 1}}, Birth: &graph.Birth{Parent: 1, Base: 8},
			Floor: 5, Through: 9, Rows: [][]byte{{1, 2}},
		}}},
		{"IncrPart", func() ([]any, error) {
			res, token, err := c.IncrPart(ctx, ins, []uint32{4, 9}, "id")
			if !errors.Is(res[1].Err, graph.ErrOverflow) {
				t.Errorf("IncrPart: %v", res[1].Err)
			}
			return []any{res[0], token}, err
		}, []any{ins, []uint32{4, 9}, "id"}, []any{graph.IncrResult{Value: 4, Changed: true}, "token"}},
		{"GetCounters", func() ([]any, error) {
			v, token, err := c.GetCounters(ctx, ro, []graph.CounterRef{metric})
			return []any{v, token}, err
		}, []any{ro, []graph.CounterRef{metric}}, []any{[]graph.CounterValue{{Counter: metric, Value: 3, Exists: true, ExpireAt: 8}}, "token"}},
		{"SetCounter", func() ([]any, error) {
			token, err := c.SetCounter(ctx, key, -5, 6)
			return []any{token}, err
		}, []any{key, int64(-5), int64(6)}, []any{"token"}},
		{"DeleteCounter", func() ([]any, error) {
			ok, token, err := c.DeleteCounter(ctx, key)
			return []any{ok, token}, err
		}, []any{key}, []any{true, "token"}},
		{"EditCounters", func() ([]any, error) {
			res, err := c.EditCounters(ctx, edits)
			var moved *graph.MovedError
			if !errors.As(res[0].Err, &moved) || moved.Leader != "b" {
				t.Errorf("EditCounters: %v", res[0].Err)
			}
			return []any{res[1]}, err
		}, []any{edits}, []any{graph.EditResult{Pos: 77, Edited: counter.Edited{
			Before: counter.Counter{Value: -1, Exists: true, ExpireAt: 9}, Value: 1, Outcome: counter.Held,
		}}}},
		{"LastChanges", func() ([]any, error) {
			at := make([]uint64, 2)
			timeline, err := c.LastChanges(ctx, 3, []graph.Slot{0, 4095}, at)
			return []any{timeline, at}, err
		}, []any{uint32(3), []graph.Slot{0, 4095}}, []any{uint64(77), []uint64{5, 1 << 60}}},
		{"VertexJob", func() ([]any, error) {
			job, err := c.VertexJob(ctx, graph.VertexHide, vertex)
			return []any{job}, err
		}, []any{graph.VertexHide, vertex}, []any{graph.VertexJob{Vertex: vertex, State: graph.VertexHiding, Began: 5, Total: 1 << 40, Done: 6}}},
		{"ShardJobs", func() ([]any, error) {
			jobs, err := c.ShardJobs(ctx, 9)
			return []any{jobs}, err
		}, []any{uint32(9)}, []any{graph.ShardJobs{
			Shard: 9, Vertices: []graph.VertexJob{{Vertex: graph.Vertex{Type: 1, ID: 2}, State: graph.VertexDeleting}},
			Backfills: []graph.Backfill{{Vertex: 1, Metric: 3, Done: 0.5}},
		}}},
		{"Excerpts", func() ([]any, error) {
			got := make([]graph.Excerpt, len(wants))
			err := c.Excerpts(ctx, wants, got)
			return []any{got}, err
		}, []any{wants}, []any{excerpts()}},
		{"Deliver", func() ([]any, error) {
			b, err := c.Deliver(ctx, 3, []byte("d"))
			return []any{b}, err
		}, []any{uint32(3), []byte("d")}, []any{[]byte("answer")}},
	} {
		out, err := call.make()
		if err != nil || !reflect.DeepEqual(out, call.want) {
			t.Errorf("%s: %+v, %v; want %+v", call.name, out, err, call.want)
		}
		if !reflect.DeepEqual(e.got, call.got) {
			t.Errorf("%s arrived as %+v, made as %+v", call.name, e.got, call.got)
		}
	}
}

// An error means to the caller what it meant to the node.
func TestErrorsKeepTheirMeaning(t *testing.T) {
	e := &echo{}
	_, c := serve(t, e, nil)
	ctx := testCtx(t)
	for _, k := range kinds() {
		e.err = fmt.Errorf("shard 7: %w", k.is)
		_, err := c.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0)
		if !errors.Is(err, k.is) {
			t.Errorf("%v came back as %v", e.err, err)
		}
	}
	e.err = &graph.InvalidError{Field: "f", Limit: "l", Msg: "m"}
	_, _, got := c.DeleteCounter(ctx, graph.CounterRef{Key: "k"})
	var bad *graph.InvalidError
	if !errors.As(got, &bad) || *bad != *e.err.(*graph.InvalidError) {
		t.Errorf("%v came back as %v", e.err, got)
	}
	e.err = fmt.Errorf("%w: %w", &graph.MovedError{Shard: 9, Leader: "c"}, shard.ErrNotLeader)
	_, got = c.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0)
	var moved *graph.MovedError
	if !errors.As(got, &moved) || moved.Shard != 9 || moved.Leader != "c" {
		t.Errorf("%v came back as %v", e.err, got)
	}
	e.err = errors.New("something else")
	if _, got = c.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0); got == nil || errors.Is(got, graph.ErrCut) {
		t.Errorf("%v came back as %v", e.err, got)
	}
}

// What certainly did not arrive is told from what may have been done (RULES B5).
func TestRuleB5_UnsentIsToldFromUnknown(t *testing.T) {
	e := &echo{block: make(chan struct{}), arrived: make(chan struct{}, 1)}
	p, c := serve(t, e, nil)
	ctx := testCtx(t)

	done := make(chan error, 1)
	go func() {
		_, err := c.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0)
		done <- err
	}()
	<-e.arrived
	p.grpc.Stop() // cuts the connection while the call is at work
	if err := <-done; !errors.Is(err, shard.ErrOutcomeUnknown) || errors.Is(err, graph.ErrUnreachable) {
		t.Errorf("a write that was cut: %v", err)
	}
	p.Stop()
	if _, err := c.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0); !errors.Is(err, graph.ErrUnreachable) || errors.Is(err, shard.ErrOutcomeUnknown) {
		t.Errorf("a write that was not sent: %v", err)
	}
	if _, _, err := c.GetEdge(ctx, graph.ReadOptions{}, 1, 1, 1); !errors.Is(err, graph.ErrUnreachable) {
		t.Errorf("a read that was not sent: %v", err)
	}
}

func TestADeadlineLeavesAWriteUnknown(t *testing.T) {
	e := &echo{block: make(chan struct{})}
	_, c := serve(t, e, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := c.SetCounter(ctx, graph.CounterRef{Key: "k"}, 1, 0)
	if !errors.Is(err, shard.ErrOutcomeUnknown) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// Raft's streams and calls share the port; a connection that says nothing is closed.
func TestStreamsAndCallsShareThePort(t *testing.T) {
	streams := make(chan net.Conn, 1)
	p, c := serve(t, &echo{}, func(conn net.Conn) { streams <- conn })
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(shard.HelloMagic + "rest")); err != nil {
		t.Fatal(err)
	}
	got := <-streams
	defer got.Close()
	b := make([]byte, len(shard.HelloMagic)+4)
	if _, err := io.ReadFull(got, b); err != nil || string(b) != shard.HelloMagic+"rest" {
		t.Errorf("the stream begins with %q, %v", b, err)
	}
	if _, _, err := c.DeleteCounter(testCtx(t), graph.CounterRef{Key: "k"}); err != nil {
		t.Errorf("a call beside the stream: %v", err)
	}
}

// A client follows its node to another address.
func TestAPoolFollowsChangedAddresses(t *testing.T) {
	first, _ := serve(t, &echo{}, nil)
	second, _ := serve(t, &echo{}, nil)
	addr := first.Addr()
	pool := NewPool(func(string) string { return addr }, nil, nil)
	defer pool.Close()
	for _, p := range []*Port{first, second} {
		addr = p.Addr()
		c, err := pool.Client("b")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Deliver(testCtx(t), 1, nil); err != nil {
			t.Errorf("at %s: %v", addr, err)
		}
		p.Stop()
	}
	addr = ""
	if _, err := pool.Client("b"); !errors.Is(err, graph.ErrUnreachable) {
		t.Errorf("without an address: %v", err)
	}
}

func (e *echo) Check(ctx context.Context, _ func(graph.CheckProgress)) (graph.CheckReport, error) {
	return graph.CheckReport{Lists: 1, Edges: 2, Counters: 3, Skipped: 4, Elsewhere: 5, Faults: 6, Findings: []string{"a", "b"}}, e.answer(ctx, nil)
}

func (e *echo) Digest(ctx context.Context, shard uint32) (graph.Digest, error) {
	return graph.Digest{Shard: shard, Applied: 4, Hash: 1<<64 - 1}, e.answer(ctx, []any{shard})
}

func (e *echo) SumEnds(ctx context.Context, shard uint32, seed uint64) ([]uint64, error) {
	return []uint64{0, 7, 1 << 63}, e.answer(ctx, []any{shard, seed})
}

func (e *echo) FindEnds(ctx context.Context, shard uint32, seed uint64, sums []uint32) ([]graph.EdgeEnd, error) {
	return testEnds(), e.answer(ctx, []any{shard, seed, sums})
}

func (e *echo) LookAtEnds(ctx context.Context, shard uint32, seed uint64, ends []graph.EdgeEnd) (*graph.SeenEnds, error) {
	return testSeen(), e.answer(ctx, []any{shard, seed, ends})
}

func (e *echo) SumDerived(ctx context.Context, shard uint32, seed uint64) ([]uint64, error) {
	return []uint64{1 << 63, 3}, e.answer(ctx, []any{shard, seed})
}

func (e *echo) FindDerived(ctx context.Context, shard uint32, seed uint64, sums []uint32) (*graph.DerivedParts, error) {
	return testParts(), e.answer(ctx, []any{shard, seed, sums})
}

func testParts() *graph.DerivedParts {
	return &graph.DerivedParts{
		Parts: []graph.DerivedPart{{Owner: graph.Vertex{Type: 1, ID: 1 << 63}, Metric: 2, Sum: -3, Value: 4}},
		Given: map[uint32]uint64{1: 2}, Received: map[uint32]uint64{4: 5, 6: 7},
	}
}

func testEnds() []graph.EdgeEnd {
	return []graph.EdgeEnd{
		{EdgeName: graph.EdgeName{Type: 3, Src: 1 << 63, Dst: 2}, AtSource: true, Content: 9},
		{EdgeName: graph.EdgeName{Type: 4, Src: 1, Dst: 1<<64 - 2, Hidden: true}},
	}
}

func testSeen() *graph.SeenEnds {
	return &graph.SeenEnds{
		Ends:  []graph.SeenEnd{{Content: 1 << 63, Before: 2, After: 3}, {Away: true}},
		Given: map[uint32]uint64{1: 2}, Received: map[uint32]uint64{4: 5, 6: 7},
	}
}

// What a check of the cluster asks arrives as it was asked, and its answer comes back.
func TestAuditCallsArriveAsTheyWereMade(t *testing.T) {
	e := &echo{}
	_, c := serve(t, e, nil)
	ctx := testCtx(t)
	for name, call := range map[string]struct {
		make func() (any, error)
		got  any
		want any
	}{
		"Check": {func() (any, error) { return c.Check(ctx, nil) }, nil,
			graph.CheckReport{Lists: 1, Edges: 2, Counters: 3, Skipped: 4, Elsewhere: 5, Faults: 6, Findings: []string{"a", "b"}}},
		"Digest": {func() (any, error) { return c.Digest(ctx, 8) }, []any{uint32(8)},
			graph.Digest{Shard: 8, Applied: 4, Hash: 1<<64 - 1}},
		"SumEnds": {func() (any, error) { return c.SumEnds(ctx, 8, 1<<63) }, []any{uint32(8), uint64(1 << 63)},
			[]uint64{0, 7, 1 << 63}},
		"FindEnds": {func() (any, error) { return c.FindEnds(ctx, 8, 6, []uint32{1, 2}) }, []any{uint32(8), uint64(6), []uint32{1, 2}},
			testEnds()},
		"SumDerived": {func() (any, error) { return c.SumDerived(ctx, 8, 1<<63) }, []any{uint32(8), uint64(1 << 63)},
			[]uint64{1 << 63, 3}},
		"FindDerived": {func() (any, error) { return c.FindDerived(ctx, 8, 6, []uint32{1, 2}) }, []any{uint32(8), uint64(6), []uint32{1, 2}},
			testParts()},
		"LookAtEnds": {func() (any, error) { return c.LookAtEnds(ctx, 8, 6, testEnds()) }, []any{uint32(8), uint64(6), testEnds()},
			testSeen()},
	} {
		got, err := call.make()
		if err != nil || !reflect.DeepEqual(got, call.want) {
			t.Errorf("%s answered %+v, %v, want %+v", name, got, err, call.want)
		}
		if call.got != nil && !reflect.DeepEqual(e.got, call.got) {
			t.Errorf("%s arrived as %+v, want %+v", name, e.got, call.got)
		}
		e.err = kv.ErrCorruption
		if _, err := call.make(); !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("%s: %v, want the other node's error", name, err)
		}
		e.err = nil
	}
}
