package graph

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/pebblekv"
	"github.com/lianadb/liana/kv/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a graph with the stores under it, which can be closed and opened again.
type world struct {
	t        testing.TB
	dir      string
	storeDir string // of the stores, where it is not dir
	mem      bool
	cfg      Config

	fs         *pebblekv.CrashFS // where set, the stores lie on it
	state, log kv.Store
	node       *shard.Node
	flushed    atomic.Pointer[shard.Node] // node, as the store's callback sees it
	g          *Graph
}

var testKey = []byte("0123456789abcdef0123456789abcdef")

// newWorld opens a graph on Pebble in a temporary directory, or in memory.
func newWorld(t testing.TB, mem bool, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), mem: mem, cfg: Config{Timeline: 77, PageKey: testKey}}
	if change != nil {
		change(&w.cfg)
	}
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *world) open() {
	w.t.Helper()
	must(w.t, w.tryOpen())
	w.ready()
}

// tryOpen opens the graph, or returns why it will not open, with all closed.
func (w *world) tryOpen() error {
	w.t.Helper()
	w.openStores()
	var err error
	w.node, err = shard.OpenNode(shard.NodeConfig{
		State: w.state, Log: w.log, StablePath: filepath.Join(w.dir, "raft.db"), Heartbeat: 20 * time.Millisecond,
	})
	must(w.t, err)
	w.flushed.Store(w.node)
	cfg := w.cfg
	cfg.Node, cfg.Store = w.node, w.state
	if w.g, err = Open(cfg); err != nil {
		w.g = nil
		w.closeStores()
	}
	return err
}

func (w *world) openStores() {
	w.t.Helper()
	var err error
	if w.mem {
		if w.state == nil {
			w.state, w.log = kv.NewMem(Merger()), kv.NewMem(nil)
		}
	} else {
		w.state, err = pebblekv.Open(filepath.Join(w.stores(), "state"), pebblekv.Options{
			FS: w.files(), Profile: pebblekv.State, Merger: Merger(), CacheBytes: int64(w.memTable()), MemTableBytes: w.memTable(),
			OnFlush: func() {
				if n := w.flushed.Load(); n != nil {
					n.StateFlushed()
				}
			},
		})
		must(w.t, err)
		w.log, err = pebblekv.Open(filepath.Join(w.stores(), "log"), pebblekv.Options{FS: w.files(), Profile: pebblekv.Log})
		must(w.t, err)
	}
}

func (w *world) ready() {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for w.g.Ready() != nil {
		if time.Now().After(deadline) {
			w.t.Fatalf("not ready: %v", w.g.Ready())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *world) close() {
	if w.g == nil {
		return
	}
	w.g.Close()
	w.g = nil
	w.closeStores()
}

func (w *world) closeStores() {
	w.flushed.Store(nil)
	must(w.t, w.node.Close())
	w.node = nil
	if !w.mem {
		must(w.t, w.state.Close())
		must(w.t, w.log.Close())
	}
}

func (w *world) reopen() {
	w.close()
	w.open()
}

// check fails the test unless the audit is clean.
func (w *world) check() CheckReport {
	w.t.Helper()
	r, err := w.g.Check(context.Background(), nil)
	must(w.t, err)
	if r.Faults > 0 || r.Skipped > 0 {
		w.t.Fatalf("check: %d faults, %d skipped: %q", r.Faults, r.Skipped, r.Findings)
	}
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// edgeType finds an edge type of the default schema.
func (w *world) edgeType(name string) EdgeType {
	def, ok := w.g.Schema().EdgeType(name)
	if !ok {
		w.t.Fatalf("no edge type %s", name)
	}
	return def.ID
}

// mutate applies mutations and fails the test on any error.
func (w *world) mutate(ms ...Mutation) []MutationResult {
	w.t.Helper()
	res, _, err := w.g.Mutate(context.Background(), ms, WaitBoth)
	must(w.t, err)
	for _, r := range res {
		must(w.t, r.Err)
	}
	return res
}

func (w *world) add(t EdgeType, src, dst uint64, time int64) bool {
	w.t.Helper()
	return w.mutate(Mutation{Op: OpAdd, Type: t, Src: src, Dst: dst, Time: time})[0].Changed
}

func (w *world) delete(t EdgeType, src, dst uint64) bool {
	w.t.Helper()
	return w.mutate(Mutation{Op: OpDelete, Type: t, Src: src, Dst: dst})[0].Changed
}

func (w *world) has(t EdgeType, src, dst uint64) bool {
	w.t.Helper()
	var out [1]bool
	_, err := w.g.HasEdges(context.Background(), ReadOptions{}, t, []uint64{src}, []uint64{dst}, out[:])
	must(w.t, err)
	return out[0]
}

func (w *world) count(l ListKey, win Window) uint64 {
	w.t.Helper()
	var out [1]uint64
	_, err := w.g.CountEdges(context.Background(), ReadOptions{}, []ListKey{l}, win, out[:])
	must(w.t, err)
	return out[0]
}

// list reads a whole listing, page by page.
func (w *world) list(q ListQuery) []edgelist.Edge {
	w.t.Helper()
	var all []edgelist.Edge
	for calls := 0; ; calls++ {
		p, err := w.g.ListEdges(context.Background(), ReadOptions{}, q)
		must(w.t, err)
		all = append(all, p.Edges...)
		if p.Next == "" {
			return all
		}
		if calls > 1_000_000 {
			w.t.Fatal("a listing does not end")
		}
		q.PageToken, q.Skip = p.Next, 0
	}
}

func (w *world) counter(c CounterRef) int64 {
	w.t.Helper()
	v, _, err := w.g.GetCounters(context.Background(), ReadOptions{}, []CounterRef{c})
	must(w.t, err)
	return v[0].Value
}

// memTable is small in tests, so that flushes and truncation happen.
func (w *world) memTable() uint64 {
	if _, ok := w.t.(*testing.B); ok {
		return 32 << 20
	}
	return 1 << 20
}

func (w *world) files() pebblekv.FS {
	if w.fs == nil {
		return pebblekv.FS{}
	}
	return w.fs.FS()
}

func (w *world) stores() string {
	if w.storeDir != "" {
		return w.storeDir
	}
	return w.dir
}

// lastOf is the position of the last change of a slot by the shard that owns it.
func (g *Graph) lastOf(s Slot) uint64 { return g.lastChange(g.shardOf(s), s) }
