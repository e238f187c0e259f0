package main

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// trio is a cluster of three processes.
type trio struct {
	t     *testing.T
	dirs  [3]string
	peers [3]string // peer addresses, kept over restarts
	mu    sync.Mutex
	nodes [3]*daemon
}

// newTrio starts a cluster and waits until every shard has three voters.
func newTrio(t *testing.T) *trio {
	t.Helper()
	tr := &trio{t: t}
	for i := range tr.dirs {
		tr.dirs[i] = filepath.Join(t.TempDir(), "data")
		if i == 0 {
			tr.nodes[i] = startDaemon(t, tr.dirs[i], "--replication", "3")
		} else {
			tr.nodes[i] = startDaemon(t, tr.dirs[i], "--join", tr.peers[0])
		}
		tr.peers[i] = tr.nodes[i].ready["peer"]
	}
	tr.settled()
	return tr
}

func (tr *trio) node(i int) *daemon {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.nodes[i]
}

// restart starts a node again on its data and under its addresses.
func (tr *trio) restart(i int) {
	tr.t.Helper()
	d := startDaemon(tr.t, tr.dirs[i], "--peer-addr", tr.peers[i])
	tr.mu.Lock()
	tr.nodes[i] = d
	tr.mu.Unlock()
}

func (tr *trio) overview() *pb.GetClusterResponse {
	tr.t.Helper()
	conn, err := grpc.NewClient(tr.node(0).ready["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tr.t.Fatal(err)
	}
	defer conn.Close()
	resp, err := pb.NewClusterClient(conn).GetCluster(testCtx(tr.t), &pb.GetClusterRequest{})
	if err != nil {
		tr.t.Fatal(err)
	}
	return resp
}

// settled waits until every shard, and the catalog, has a leader and three voters that
// are well, and nothing moves.
func (tr *trio) settled() {
	tr.t.Helper()
	var last *pb.GetClusterResponse
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		last = tr.overview()
		if atRest(last) {
			return
		}
	}
	tr.t.Fatalf("not at rest: %v", last)
}

func atRest(a *pb.GetClusterResponse) bool {
	for _, s := range a.GetShards() {
		if s.GetLeader() == "" || s.GetMovingTo()+s.GetMovingFrom() != "" || len(s.GetReplicas()) != 3 {
			return false
		}
		for _, r := range s.GetReplicas() {
			if !r.GetVoter() || r.GetFault() != "" {
				return false
			}
		}
	}
	return len(a.GetShards()) > 1
}

// leaderOfMost is the node that leads most shards.
func (tr *trio) leaderOfMost() int {
	count := map[string]int{}
	for _, s := range tr.overview().GetShards() {
		count[s.GetLeader()]++
	}
	best := 0
	for i := range tr.nodes {
		if count[tr.id(i)] > count[tr.id(best)] {
			best = i
		}
	}
	return best
}

func (tr *trio) id(i int) string {
	for _, n := range tr.overview().GetNodes() {
		if n.GetPeerAddr() == tr.peers[i] {
			return n.GetId()
		}
	}
	return ""
}

func TestThreeNodesAnswerForEachOther(t *testing.T) {
	tr := newTrio(t)
	for i := range uint64(60) {
		tr.node(int(i%3)).add(i+1, i%7+1)
	}
	for i := range tr.nodes {
		for note := range uint64(7) {
			if got, want := tr.node(i).countIn(note+1), uint64((60-note+6)/7); got != want {
				t.Errorf("node %d counts %d likes of note %d, want %d", i, got, note+1, want)
			}
		}
		srcs, dsts := make([]uint64, 60), make([]uint64, 60)
		for j := range srcs {
			srcs[j], dsts[j] = uint64(j)+1, uint64(j)%7+1
		}
		resp, err := tr.node(i).graph.HasEdges(testCtx(t), &pb.HasEdgesRequest{Type: "like", SrcIds: srcs, DstIds: dsts,
			Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}})
		if err != nil {
			t.Fatal(err)
		}
		for j, ok := range resp.GetExists() {
			if !ok {
				t.Errorf("node %d does not see edge %d", i, j)
			}
		}
	}
}

// The shards of a node that is killed accept writes again soon.
func TestShardsFailOver(t *testing.T) {
	tr := newTrio(t)
	at := tr.leaderOfMost()
	tr.node(at).add(1, 1)
	tr.node(at).signal(syscall.SIGKILL)
	begun := time.Now()
	other := tr.node((at + 1) % 3)
	for i := range uint64(40) { // over all shards
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		for {
			_, err := other.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(100+i, i+1)})
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("no write came through within 10 s: %v", err)
			}
		}
		cancel()
	}
	t.Logf("all shards took writes %v after the kill", time.Since(begun))
	tr.restart(at)
	tr.settled()
	if got := tr.node(at).countIn(1); got != 2 {
		t.Errorf("note 1 has %d likes, want 2", got)
	}
}

// Operations on one counter or one edge, and what was seen of them.
type (
	opInput struct {
		key  string
		kind opKind
	}
	opOutput struct {
		value   int64
		yes     bool
		unknown bool // the call failed: it may take effect at any later time, or never
	}
	opKind uint8
)

const (
	opIncr opKind = iota
	opAdd
	opDelete
	opHas
)

func registers() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			by := map[string][]porcupine.Operation{}
			for _, op := range history {
				k := op.Input.(opInput).key
				by[k] = append(by[k], op)
			}
			var out [][]porcupine.Operation
			for _, ops := range by {
				out = append(out, ops)
			}
			return out
		},
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			n, in, out := state.(int64), input.(opInput), output.(opOutput)
			switch in.kind {
			case opIncr:
				return out.unknown || out.value == n+1, n + 1
			case opAdd:
				return out.unknown || out.yes == (n == 0), int64(1)
			case opDelete:
				return out.unknown || out.yes == (n == 1), int64(0)
			}
			return out.yes == (n == 1), n
		},
	}
}

// history records operations. Times are of one clock: all callers are in this process.
type history struct {
	mu  sync.Mutex
	ops []porcupine.Operation
}

// run makes operations on few keys at a time, and on others every second: the search
// for an order is exponential in the calls of unknown outcome on one key.
func (h *history) run(tr *trio, client int, rng *rand.Rand, stop <-chan struct{}) {
	begun := time.Now()
	for {
		select {
		case <-stop:
			return
		default:
		}
		epoch := int(time.Since(begun) / time.Second)
		in := opInput{kind: opKind(rng.Intn(4)), key: fmt.Sprintf("edge %d", 12*epoch+rng.Intn(12))}
		if in.kind == opIncr {
			in.key = fmt.Sprintf("counter %d", 4*epoch+rng.Intn(4))
		}
		call := time.Now()
		out, err := h.call(tr.node(rng.Intn(3)), in)
		end := time.Now().UnixNano()
		if err != nil {
			if in.kind == opHas {
				continue
			}
			out, end = opOutput{unknown: true}, math.MaxInt64
		}
		h.mu.Lock()
		h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call.UnixNano(), Output: out, Return: end})
		h.mu.Unlock()
		time.Sleep(time.Duration(rng.Intn(4)) * time.Millisecond)
	}
}

func (h *history) call(d *daemon, in opInput) (opOutput, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var id uint64
	_, _ = fmt.Sscanf(in.key, "edge %d", &id)
	e := like(1000+id, 7*id+1)
	switch in.kind {
	case opIncr:
		r, err := d.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: &pb.CounterRef{Key: in.key}, Delta: 1}})
		return opOutput{value: r.GetValue()}, err
	case opAdd:
		r, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e})
		return opOutput{yes: r.GetChanged()}, err
	case opDelete:
		r, err := d.graph.DeleteEdge(ctx, &pb.DeleteEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst})
		return opOutput{yes: r.GetChanged()}, err
	}
	r, err := d.graph.HasEdge(ctx, &pb.HasEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst,
		Consistency: &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}})
	return opOutput{yes: r.GetExists()}, err
}

// faults kills, and stops and continues, one node after the other.
func (tr *trio) faults(rng *rand.Rand, until time.Time) {
	for time.Now().Before(until) {
		i := rng.Intn(3)
		if rng.Intn(2) == 0 {
			tr.node(i).signal(syscall.SIGKILL)
			tr.node(i).wait()
			time.Sleep(time.Duration(500+rng.Intn(1500)) * time.Millisecond)
			tr.restart(i)
		} else {
			tr.node(i).signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(300+rng.Intn(2500)) * time.Millisecond)
			tr.node(i).signal(syscall.SIGCONT)
		}
		time.Sleep(time.Duration(500+rng.Intn(1500)) * time.Millisecond)
	}
}

// Whatever happens to the nodes, callers see each edge and each counter as if there
// were one copy of it.
func TestOperationsAreLinearizableUnderFaults(t *testing.T) {
	length := 20 * time.Second
	if os.Getenv("LIANA_LONG") != "" {
		length = 10 * time.Minute
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	tr := newTrio(t)
	h, stop := &history{}, make(chan struct{})
	var wg sync.WaitGroup
	for c := range 8 {
		r := rand.New(rand.NewSource(rng.Int63()))
		wg.Go(func() { h.run(tr, c, r, stop) })
	}
	tr.faults(rng, time.Now().Add(length))
	close(stop)
	wg.Wait()
	tr.settled()
	unknown := 0
	for _, op := range h.ops {
		if op.Output.(opOutput).unknown {
			unknown++
		}
	}
	t.Logf("%d operations, %d of unknown outcome", len(h.ops), unknown)
	if len(h.ops) < 500 {
		t.Errorf("only %d operations", len(h.ops))
	}
	if got := porcupine.CheckOperationsTimeout(registers(), h.ops, 2*time.Minute); got != porcupine.Ok {
		t.Errorf("the history is not linearizable: %v", got)
	}
}
