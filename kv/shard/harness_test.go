package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lianadb/liana/kv"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDirEnv); dir != "" {
		serveUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

// sums is a Machine of counters: the command "name", or "name ballast", adds 1
// to name and returns the new value; "seq n" must come as the n-th. Two names are special: "corrupt" is an unknown command,
// "panic" a bug.
type sums struct {
	shard uint32
	store kv.Store
	block chan struct{} // when not nil, Apply waits for it to be closed

	values, dirty map[string]int64
	trail         []Entry // what Apply saw, without the commands

	mu        sync.Mutex
	published map[string]int64
	at        uint64
	leads     []bool
}

// newSums loads a machine from a state store.
func newSums(t testing.TB, state kv.Store, shard uint32) *sums {
	t.Helper()
	m := &sums{shard: shard, store: state, values: map[string]int64{}, dirty: map[string]int64{}}
	if err := m.load(state); err != nil {
		t.Fatal(err)
	}
	m.published = maps.Clone(m.values)
	return m
}

func (m *sums) prefix() []byte { return binary.BigEndian.AppendUint32([]byte{1}, m.shard) }

func (m *sums) load(state kv.Store) error {
	it, err := state.NewIter(kv.PrefixSpan(m.prefix()))
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.Value()
		if err != nil {
			return errors.Join(err, it.Close())
		}
		m.values[string(it.Key()[5:])] = int64(binary.BigEndian.Uint64(v))
	}
	return errors.Join(it.Error(), it.Close())
}

func (m *sums) Apply(e Entry) ([]any, error) {
	if m.block != nil {
		<-m.block
	}
	var results []any
	for _, c := range e.Commands {
		switch string(c) {
		case "corrupt":
			return nil, kv.Corruptionf("unknown command")
		case "panic":
			panic("as told")
		}
		name, rest, _ := strings.Cut(string(c), " ")
		if name == "seq" {
			number, _, _ := strings.Cut(rest, " ")
			if number != strconv.FormatInt(m.values[name]+1, 10) {
				return nil, kv.Corruptionf("command %s after %d: lost or applied twice", number, m.values[name])
			}
		}
		m.values[name]++
		m.dirty[name] = m.values[name]
		results = append(results, m.values[name])
	}
	e.Commands = nil
	m.trail = append(m.trail, e)
	return results, nil
}

func (m *sums) Cut(b kv.Batch) error {
	for name, v := range m.dirty {
		if err := b.Set(append(m.prefix(), name...), binary.BigEndian.AppendUint64(nil, uint64(v))); err != nil {
			return err
		}
	}
	return nil
}

func (m *sums) Publish(applied uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.published, m.dirty)
	clear(m.dirty)
	m.at = applied
}

func (m *sums) Parts() kv.Parts { return kv.Parts{Data: kv.PrefixSpan(m.prefix())} }

func (m *sums) Restore() error {
	m.values, m.dirty = map[string]int64{}, map[string]int64{}
	if err := m.load(m.store); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.published = maps.Clone(m.values)
	return nil
}

func (m *sums) Lead(leading bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leads = append(m.leads, leading)
}

func (m *sums) get(name string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.published[name]
}

// rig is a node on stores that survive its crashes.
type rig struct {
	t          testing.TB
	state, log kv.Store
	stable     string
	cfg        func(*NodeConfig)

	node     *Node
	shards   map[uint32]*Shard
	machines map[uint32]*sums
}

func newRig(t testing.TB, state, log kv.Store, cfg func(*NodeConfig)) *rig {
	t.Helper()
	r := &rig{t: t, state: state, log: log, stable: filepath.Join(t.TempDir(), "raft.db"), cfg: cfg}
	t.Cleanup(r.close)
	return r
}

func memRig(t testing.TB, cfg func(*NodeConfig)) *rig {
	t.Helper()
	return newRig(t, kv.NewMem(nil), kv.NewMem(nil), cfg)
}

func (r *rig) config() NodeConfig {
	cfg := NodeConfig{State: r.state, Log: r.log, StablePath: r.stable, NodeID: "n1", Heartbeat: 10 * time.Millisecond}
	if r.cfg != nil {
		r.cfg(&cfg)
	}
	return cfg
}

// open opens the node without shards.
func (r *rig) open() {
	r.t.Helper()
	n, err := OpenNode(r.config())
	if err != nil {
		r.t.Fatal(err)
	}
	r.node, r.shards, r.machines = n, map[uint32]*Shard{}, map[uint32]*sums{}
}

// start opens the node with shards 1..n and waits until they lead.
func (r *rig) start(n uint32) *rig {
	r.t.Helper()
	r.open()
	for id := uint32(1); id <= n; id++ {
		r.startShard(id)
	}
	for _, s := range r.shards {
		if err := s.Ready(ctx(r.t)); err != nil {
			r.t.Fatal(err)
		}
	}
	return r
}

func (r *rig) startShard(id uint32) {
	r.t.Helper()
	m := newSums(r.t, r.state, id)
	s, err := r.node.StartShard(ShardConfig{ID: id, Machine: m})
	if err != nil {
		r.t.Fatal(err)
	}
	r.shards[id], r.machines[id] = s, m
}

func (r *rig) replicas() []uint32 {
	r.t.Helper()
	ids, err := r.node.Replicas()
	if err != nil {
		r.t.Fatal(err)
	}
	return ids
}

func (r *rig) close() {
	if r.node != nil {
		if err := r.node.Close(); err != nil {
			r.t.Error(err)
		}
		r.node = nil
	}
}

// crash takes the stores as after gives them and a copy of the bolt file, all
// at this moment, and leaves the running node to its fate.
func (r *rig) crash(after func(kv.Store) kv.Store) {
	r.t.Helper()
	// The order state, log keeps state ≤ log although the node goes on.
	state := after(r.state)
	log := after(r.log)
	b, err := os.ReadFile(r.stable)
	if err != nil {
		r.t.Fatal(err)
	}
	r.close()
	r.stable = filepath.Join(r.t.TempDir(), "raft.db")
	if err := os.WriteFile(r.stable, b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.state, r.log = state, log
}

func powerLoss(s kv.Store) kv.Store { return s.(*kv.Mem).AfterPowerLoss() }

func (r *rig) add(shard uint32, name string) int64 {
	r.t.Helper()
	v, err := r.shards[shard].Propose(ctx(r.t), []byte(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return v.(int64)
}

// ctx is a context for what should take milliseconds.
func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return c
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	eventuallyIn(t, 10*time.Second, what, ok)
}

func eventuallyIn(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// faulty is a Store that can be told to fail.
type faulty struct {
	kv.Store
	mu      sync.Mutex
	prefix  []byte        // keys the failures are for
	getErr  error         // of Get
	setErr  error         // of a commit that sets such a key
	setWait chan struct{} // a commit that sets such a key waits for it
	setTime time.Duration // it takes that long
}

func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faulty) Get(dst, key []byte) ([]byte, error) {
	f.mu.Lock()
	err := f.getErr
	hit := bytes.HasPrefix(key, f.prefix)
	f.mu.Unlock()
	if err != nil && hit {
		return dst, err
	}
	return f.Store.Get(dst, key)
}

func (f *faulty) NewBatch() kv.Batch { return &faultyBatch{Batch: f.Store.NewBatch(), store: f} }

type faultyBatch struct {
	kv.Batch
	store *faulty
	hit   bool
}

func (b *faultyBatch) Set(key, value []byte) error {
	b.store.mu.Lock()
	b.hit = b.hit || bytes.HasPrefix(key, b.store.prefix)
	b.store.mu.Unlock()
	return b.Batch.Set(key, value)
}

func (b *faultyBatch) Commit(d kv.Durability) error {
	if b.hit {
		b.store.mu.Lock()
		err, wait, took := b.store.setErr, b.store.setWait, b.store.setTime
		b.store.mu.Unlock()
		time.Sleep(took)
		if wait != nil {
			<-wait
		}
		if err != nil {
			return err
		}
	}
	return b.Batch.Commit(d)
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("c%d", i)
	}
	return out
}

func testContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}
