package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/datadir"
	"github.com/lianadb/liana/kv/pebblekv"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// bigLike is a like with a text, so that few of them fill blocks of tables.
func bigLike(src, dst uint64) *pb.Edge {
	e := like(src, dst)
	e.Properties = map[string]string{"text": textOf(src)}
	return e
}

// textOf is of 800 letters that no compression of repeats makes smaller.
func textOf(src uint64) string {
	rng, b := rand.New(rand.NewSource(int64(src))), make([]byte, 800)
	for i := range b {
		b[i] = byte('a' + rng.Intn(26))
	}
	return string(b)
}

// stores opens the stores of a node that is down.
func (p *place) stores(do func(state, log *pebblekv.Store)) {
	t := p.f.t
	t.Helper()
	dd, err := datadir.Open(p.dir, datadir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dd.Close()
	state, err := pebblekv.Open(dd.StatePath(), pebblekv.Options{Profile: pebblekv.State, Merger: graph.Merger()})
	if err != nil {
		t.Fatal(err)
	}
	log, err := pebblekv.Open(dd.LogPath(), pebblekv.Options{Profile: pebblekv.Log})
	if err != nil {
		t.Fatal(err)
	}
	do(state, log)
	if err := errors.Join(log.Close(), state.Close()); err != nil {
		t.Fatal(err)
	}
}

// stop ends a node in order.
func (p *place) stop() {
	d := p.down()
	d.signal(syscall.SIGTERM)
	d.wait()
}

// spoilMeta makes the first row that a shard's machine reads another one.
func spoilMeta(t *testing.T, state kv.Store, shard uint32) {
	t.Helper()
	key := append(binary.BigEndian.AppendUint32([]byte{0xff, 0xf0}, shard), 'm')
	b := state.NewBatch()
	if _, err := state.Get(nil, key); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Set(key, []byte("bad")), b.Commit(kv.Sync), b.Close()); err != nil {
		t.Fatal(err)
	}
}

// spoilList makes the list of what a user likes another one.
func spoilList(t *testing.T, state kv.Store, user uint64) {
	t.Helper()
	prefix := binary.BigEndian.AppendUint16(nil, uint16(graph.SlotOf(graph.Vertex{Type: 1, ID: user})))
	prefix = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(prefix, 1), user)
	it, err := state.NewIter(kv.PrefixSpan(prefix))
	if err != nil {
		t.Fatal(err)
	}
	b := state.NewBatch()
	for ok := it.First(); ok; ok = it.Next() {
		if k := it.Key(); len(k) >= 16 && k[12] == 0x10 {
			err = errors.Join(err, b.Set(k, []byte("bad")))
		}
	}
	if n := b.Count(); n == 0 {
		t.Fatal("the user likes nothing")
	}
	if err := errors.Join(err, it.Close(), b.Commit(kv.Sync), b.Close()); err != nil {
		t.Fatal(err)
	}
}

// cutLog takes the newest half of a shard's log away.
func cutLog(t *testing.T, log kv.Store, shard uint32) {
	t.Helper()
	it, err := log.NewIter(kv.PrefixSpan(binary.BigEndian.AppendUint32([]byte{1}, shard)))
	if err != nil {
		t.Fatal(err)
	}
	var keys [][]byte
	for ok := it.First(); ok; ok = it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	b := log.NewBatch()
	for _, k := range keys[len(keys)/2:] {
		if err := b.Delete(k); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(it.Close(), b.Commit(kv.Sync), b.Close()); err != nil || len(keys) < 2 {
		t.Fatalf("%d entries, %v", len(keys), err)
	}
}

// flip changes a byte of a text, as it lies in a table.
func flip(t *testing.T, dir, text string) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tables {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(b, []byte(text[100:140])); at >= 0 {
			b[at] ^= 1
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("none of %d tables has the text", len(tables))
}

// CASES 23: data of a replica is damaged while its node is down, each of four shards in
// another way. The node starts and serves the rest; who reads gets right answers; the replicas are
// made anew from others, without anybody's help, and all are alike then.
func TestCase23_DamagedReplicasAreMadeAnew(t *testing.T) {
	f := newTrio(t)
	const likes = 400
	f.addAll(likes, func(i uint64) *pb.Edge { return bigLike(i+1, i%20+1) })
	const victim = 1
	p := f.places[victim]
	before := replicasOn(f.overview(), f.id(victim))
	p.stop()
	firstOf := func(shard uint32) uint64 {
		src := uint64(1)
		for shardOf(src) != shard {
			src++
		}
		return src
	}
	p.stores(func(state, log *pebblekv.Store) {
		spoilMeta(t, state, 1)
		cutLog(t, log, 2)
		spoilList(t, state, firstOf(3))
		if err := state.Compact(kv.Span{}); err != nil {
			t.Fatal(err)
		}
	})
	flip(t, filepath.Join(p.dir, "state"), textOf(firstOf(0)))
	// What was to be a new state when the node went down, and never became one.
	left := filepath.Join(p.dir, "state.incoming", "half")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "000001.sst"), []byte("half a table"), 0o600); err != nil {
		t.Fatal(err)
	}

	node := launchWith(t, f.board.env(p.name), startArgs(p.dir, "--peer-addr", p.peer)...)
	a := f.await("it tells of damage", func(a *pb.GetClusterResponse) bool { return remarked(a, "is damaged, another is made in its place") })
	t.Logf("remarks: %q", a.GetRemarks())
	p.mu.Lock()
	p.d, p.up = node.daemon(), true
	p.mu.Unlock()
	// Reads find the rest of the damage, and are answered.
	for i := range uint64(likes) {
		r, err := p.d.graph.HasEdge(testCtx(t), &pb.HasEdgeRequest{Src: like(i+1, 1).Src, Type: "like", Dst: like(1, i%20+1).Dst})
		if err != nil || !r.GetExists() {
			t.Fatalf("edge %d: %v, %v", i, r.GetExists(), err)
		}
	}
	a = f.await("all replicas are made anew", func(a *pb.GetClusterResponse) bool {
		after := replicasOn(a, f.id(victim))
		return atRest(a) && after[0] != before[0] && after[1] != before[1] && after[2] != before[2] && after[3] != before[3]
	})
	if len(a.GetRemarks()) > 0 {
		t.Errorf("remarks that are left: %q", a.GetRemarks())
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half state is still there: %v", err)
	}
	f.converged()
	if text := p.d.stderr.String(); strings.Contains(text, "panic") {
		t.Error("a panic")
	}
	reseed(t, f, victim)
}

// reseed damages a node's store as a whole. Its process ends and says what to do, which is
// done.
func reseed(t *testing.T, f *fleet, victim int) {
	t.Helper()
	p, lost := f.places[victim], f.id(victim)
	p.stop()
	manifests, err := filepath.Glob(filepath.Join(p.dir, "state", "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("manifests %q, %v", manifests, err)
	}
	for _, path := range manifests {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0xff
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	launchWith(t, f.board.env(p.name), startArgs(p.dir, "--peer-addr", p.peer)...).
		wantEnd(exitFailed, "the data of this node cannot be used any more", "remove-node "+lost)
	if err := os.RemoveAll(p.dir); err != nil {
		t.Fatal(err)
	}
	p.start("--join", f.places[0].peer, "--peer-addr", p.peer)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := f.node(0).cluster.RemoveNode(ctx, &pb.RemoveNodeRequest{Node: lost}); err != nil {
		t.Fatal(err)
	}
	f.await("another node has its place", func(a *pb.GetClusterResponse) bool {
		return without(a, lost) && nodeState(a, lost) == "removed" && atRest(a)
	})
	f.converged()
}

// replicasOn are the ids of a node's replicas, by shard.
func replicasOn(a *pb.GetClusterResponse, node string) map[uint32]string {
	out := map[uint32]string{}
	for _, s := range a.GetShards() {
		for _, r := range s.GetReplicas() {
			if r.GetNode() == node && !s.GetCatalog() {
				out[s.GetId()] = r.GetReplica()
			}
		}
	}
	return out
}

// shardOf is the shard of a user, of the four that a cluster begins with.
func shardOf(user uint64) uint32 { return shardOfVertex(1, user) }

func shardOfNote(note uint64) uint32 { return shardOfVertex(2, note) }

func shardOfVertex(t graph.VertexType, id uint64) uint32 {
	return uint32(graph.SlotOf(graph.Vertex{Type: t, ID: id})) / (graph.NumSlots / 4)
}
