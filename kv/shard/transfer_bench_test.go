package shard

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/pebblekv"
)

// still is a Machine whose state lies in the store and never changes.
type still struct{ shard uint32 }

func (m still) span() kv.Span {
	return kv.PrefixSpan(binary.BigEndian.AppendUint32([]byte{2}, m.shard))
}
func (m still) Apply(e Entry) ([]any, error) { return make([]any, len(e.Commands)), nil }
func (m still) Cut(kv.Batch) error           { return nil }
func (m still) Publish(uint64)               {}
func (m still) Parts() kv.Parts              { return kv.Parts{Data: m.span()} }
func (m still) Restore() error               { return nil }
func (m still) Lead(bool)                    {}

// fillLikes writes rows as a shard of likes holds them, until they have the given size:
// nine small lists in ten, of 2 to 20 edges, and pages of 100 to 512 edges; an edge is
// 8 scattered bytes of id and 5 of time.
func fillLikes(t testing.TB, store kv.Store, span kv.Span, size int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 0, 8<<10)
	for n := uint64(0); size > 0; {
		b := store.NewBatch()
		for range 1000 {
			edges := 2 + rng.IntN(19)
			if rng.IntN(10) == 0 {
				edges = 100 + rng.IntN(413)
			}
			value = append(value[:0], 1, byte(edges), byte(edges>>8))
			for range edges {
				value = binary.BigEndian.AppendUint64(value, rng.Uint64()>>2)
			}
			for range edges {
				value = append(value, 0, byte(rng.IntN(40)), byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()))
			}
			n++
			key := binary.BigEndian.AppendUint16(slices.Clone(span.Lower), uint16(n%4096))
			key = binary.BigEndian.AppendUint64(append(key, 0, 1), n*0x9e3779b97f4a7c15)
			if err := b.Set(append(key, 0, 1, 0), value); err != nil {
				t.Fatal(err)
			}
			size -= len(key) + 3 + len(value)
		}
		if err := b.Commit(kv.NoSync); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := store.Compact(span); err != nil {
		t.Fatal(err)
	}
}

// copyTables copies the tables of a store to new files, synced, and returns their size.
func copyTables(t testing.TB, from, to string) (size int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.sst"))
	if err != nil || len(files) == 0 {
		t.Fatal("no tables", err)
	}
	for _, name := range files {
		in, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(filepath.Join(to, filepath.Base(name)))
		if err != nil {
			t.Fatal(err)
		}
		// Not io.Copy of the files themselves, which may let the file system share blocks.
		n, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, 1<<20))
		if err == nil {
			err = out.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
		size += n
		in.Close()
		out.Close()
	}
	return size
}

// BenchmarkTransfer sends the state of a shard to a new replica on another node, on
// Pebble and over TCP, beside a plain, synced copy of the sender's tables. Each
// iteration does both. LIANA_TRANSFER_MB sets the size (256).
func BenchmarkTransfer(b *testing.B) {
	mb := 256
	if s := os.Getenv("LIANA_TRANSFER_MB"); s != "" {
		mb, _ = strconv.Atoi(s)
	}
	p := newPair(b, mb<<20)
	var copied, sent time.Duration
	var size int64
	for range b.N {
		dir := b.TempDir()
		begun := time.Now()
		size = copyTables(b, filepath.Join(p.dir, "n1", "state"), dir)
		copied += time.Since(begun)
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
		sent += p.transfer()
	}
	b.ReportMetric(float64(size)/(1<<20), "MiB")
	rate := func(d time.Duration) float64 { return float64(size) * float64(b.N) / d.Seconds() / 1e6 }
	b.ReportMetric(rate(copied), "copy-MB/s")
	b.ReportMetric(rate(sent), "transfer-MB/s")
	b.ReportMetric(copied.Seconds()/sent.Seconds(), "of-a-copy")
}

// pair is a node with a shard, and what the second needs to be sent it again and again.
type pair struct {
	b      testing.TB
	dir    string
	leader *Node
	shard  *Shard
	rounds int
	nodes  map[string]func(context.Context) (net.Conn, error)
}

func newPair(b testing.TB, size int) *pair {
	p := &pair{b: b, dir: b.TempDir(), nodes: map[string]func(context.Context) (net.Conn, error){}}
	var state kv.Store
	p.leader, state = p.node("n1")
	fillLikes(b, state, still{1}.span(), size)
	s, err := p.leader.StartShard(ShardConfig{ID: 1, Machine: still{1}})
	p.must(err)
	p.shard = s
	p.must(s.Ready(ctx(b)))
	for range 10 {
		_, err := s.Propose(ctx(b), []byte("x"))
		p.must(err)
	}
	p.must(p.leader.Truncate(true))
	return p
}

func (p *pair) must(err error) {
	p.b.Helper()
	if err != nil {
		p.b.Fatal(err)
	}
}

// node opens a node that listens.
func (p *pair) node(id string) (*Node, kv.Store) {
	dir := filepath.Join(p.dir, id)
	state, err := pebblekv.Open(filepath.Join(dir, "state"), pebblekv.Options{})
	p.must(err)
	log, err := pebblekv.Open(filepath.Join(dir, "log"), pebblekv.Options{Profile: pebblekv.Log})
	p.must(err)
	n, err := OpenNode(NodeConfig{
		State: state, Log: log, StablePath: filepath.Join(dir, "raft.db"), NodeID: id, ClusterID: "one",
		Limits: Limits{KeepEntries: 1, KeepBytes: 1},
		Dial:   func(c context.Context, to string) (net.Conn, error) { return p.nodes[to](c) },
	})
	p.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	p.must(err)
	p.nodes[id] = func(c context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(c, "tcp", l.Addr().String())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.Accept(c)
		}
	}()
	p.b.Cleanup(func() {
		p.must(n.Close())
		l.Close()
		<-done
		p.must(state.Close())
		p.must(log.Close())
		if id != "n1" {
			p.must(os.RemoveAll(dir))
		}
	})
	return n, state
}

// transfer adds a replica on a new node and takes the time until it has the state.
func (p *pair) transfer() time.Duration {
	p.rounds++
	id := "m" + strconv.Itoa(p.rounds)
	n, state := p.node(id)
	replica, err := n.NewReplica(1)
	p.must(err)
	s, err := n.StartShard(ShardConfig{ID: 1, Machine: still{1}, Join: true})
	p.must(err)
	begun := time.Now()
	p.must(p.shard.AddLearner(ctx(p.b), replica))
	for s.Status().Installs == 0 {
		if time.Since(begun) > 5*time.Minute {
			p.b.Fatal("no snapshot after 5 minutes")
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(begun)
	it, err := state.NewIter(still{1}.span())
	p.must(err)
	if !it.First() {
		p.b.Error("nothing arrived")
	}
	p.must(it.Close())
	p.must(p.shard.RemoveReplica(ctx(p.b), replica))
	p.must(s.Close())
	if left, err := filepath.Glob(filepath.Join(p.dir, "*", "snapshot-*")); err != nil || len(left) > 0 {
		p.b.Error("left over:", strings.Join(left, " "), err)
	}
	return took
}
