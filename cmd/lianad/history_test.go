package main

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

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
	opAdd opKind = iota
	opDelete
	opHas
	opIncr
	opGet
)

func (k opKind) reads() bool { return k == opHas || k == opGet }

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
			case opGet:
				return out.value == n, n
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
	mu      sync.Mutex
	ops     []porcupine.Operation
	refused int // calls of which it is certain that they changed nothing
}

// run makes operations on few keys at a time, and on others every second: the search
// for an order is exponential in the calls of unknown outcome on one key.
func (h *history) run(f *fleet, client int, rng *rand.Rand, stop <-chan struct{}) {
	begun := time.Now()
	for {
		select {
		case <-stop:
			return
		default:
		}
		epoch := int(time.Since(begun) / time.Second)
		in := opInput{kind: opKind(rng.Intn(5)), key: fmt.Sprintf("edge %d", 12*epoch+rng.Intn(12))}
		if in.kind == opIncr || in.kind == opGet {
			in.key = fmt.Sprintf("counter %d", 4*epoch+rng.Intn(4))
		}
		// Most calls of a client go to one node, so that while that stands still the
		// others go on, and calls of any age wait for it.
		node := client % len(f.places)
		if rng.Intn(8) == 0 {
			node = rng.Intn(len(f.places))
		}
		h.record(client, in, f.node(node))
		time.Sleep(time.Duration(rng.Intn(4)) * time.Millisecond)
	}
}

func (h *history) record(client int, in opInput, d *daemon) {
	var p peer.Peer
	begun := time.Now()
	out, err := in.call(d, grpc.Peer(&p))
	end := time.Now().UnixNano()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch late, changed := inverseLate(err); {
	case late:
		out.yes = changed
	case err != nil && (in.kind.reads() || nothingChanged(err) || p.Addr == nil):
		h.refused++
		return
	case err != nil:
		out, end = opOutput{unknown: true}, math.MaxInt64
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: begun.UnixNano(), Output: out, Return: end})
}

func (in opInput) call(d *daemon, opt grpc.CallOption) (opOutput, error) {
	patience := 2 * time.Second
	if in.kind.reads() {
		patience = time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var id uint64
	_, _ = fmt.Sscanf(in.key, "edge %d", &id)
	e, exact := like(1000+id, 7*id+1), &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}
	switch in.kind {
	case opIncr:
		r, err := d.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: &pb.CounterRef{Key: in.key}, Delta: 1}}, opt)
		return opOutput{value: r.GetValue()}, err
	case opGet:
		r, err := d.counters.Get(ctx, &pb.GetCounterRequest{Counter: &pb.CounterRef{Key: in.key}, Consistency: exact}, opt)
		if err != nil || len(r.GetCounters()) == 0 {
			return opOutput{}, err
		}
		return opOutput{value: r.Counters[0].GetValue()}, nil
	case opAdd:
		r, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e}, opt)
		return opOutput{yes: r.GetChanged()}, err
	case opDelete:
		r, err := d.graph.DeleteEdge(ctx, &pb.DeleteEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst}, opt)
		return opOutput{yes: r.GetChanged()}, err
	}
	r, err := d.graph.HasEdge(ctx, &pb.HasEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst, Consistency: exact}, opt)
	return opOutput{yes: r.GetExists()}, err
}

// reasonOf is the reason that the server gave for an error; "": it came from elsewhere.
func reasonOf(err error) (reason string, meta map[string]string) {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason(), info.GetMetadata()
		}
	}
	return "", nil
}

// nothingChanged reports whether the server says that a write has had, and will have,
// no effect (docs/api.md). The histories take it at its word.
func nothingChanged(err error) bool {
	reason, _ := reasonOf(err)
	return slices.Contains([]string{
		"UNREACHABLE", "BACKLOGGED", "NOT_LEADER", "SHARD_FAILED", "NOT_READY", "STOPPING", "BUSY", "TOO_MANY_CALLS", "DEADLINE",
	}, reason)
}

// inverseLate reports whether an edge write was made and its inverse is on its way.
func inverseLate(err error) (late, changed bool) {
	reason, meta := reasonOf(err)
	return reason == "INVERSE_PENDING", meta["changed"] == "true"
}

// verify fails the test unless there is an order of all operations that explains what
// was seen of them.
func (h *history) verify(t *testing.T, least int) {
	t.Helper()
	unknown := 0
	for _, op := range h.ops {
		if op.Output.(opOutput).unknown {
			unknown++
		}
	}
	t.Logf("%d operations, %d of unknown outcome; %d others were refused", len(h.ops), unknown, h.refused)
	if len(h.ops) < least {
		t.Errorf("only %d operations", len(h.ops))
	}
	if got := porcupine.CheckOperationsTimeout(registers(), h.ops, 2*time.Minute); got != porcupine.Ok {
		t.Errorf("the history is not linearizable: %v", got)
	}
}

// ledger is a writer of increments and edges of its own that repeats each until it is
// acknowledged, increments under their request id.
type ledger struct {
	id   uint64
	done uint64 // acknowledged of both
}

const ledgerNotes = 5 // that edges of ledgers end at

func (l *ledger) counter() *pb.CounterRef { return &pb.CounterRef{Key: fmt.Sprintf("ledger %d", l.id)} }

func (l *ledger) edge(n uint64) *pb.Edge {
	return like(1_000_000*(l.id+1)+n, 900_000+n%ledgerNotes)
}

// run writes until stop, and then ends the item that it is at.
func (l *ledger) run(t *testing.T, f *fleet, rng *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		n := l.done + 1
		until(t, f, rng, func(ctx context.Context, d *daemon) error {
			r, err := d.counters.IncrBy(ctx, &pb.IncrByRequest{
				Increment: &pb.Increment{Counter: l.counter(), Delta: 1}, RequestId: fmt.Sprintf("ledger-%d-%d", l.id, n),
			})
			if err == nil && r.GetValue() != int64(n) {
				t.Errorf("ledger %d: increment %d answered %d", l.id, n, r.GetValue())
			}
			return err
		})
		until(t, f, rng, func(ctx context.Context, d *daemon) error {
			_, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: l.edge(n)})
			return err
		})
		l.done = n
		time.Sleep(time.Duration(rng.Intn(20)) * time.Millisecond)
	}
}

// until repeats a call at any node until it succeeds. rng may be nil.
func until(t *testing.T, f *fleet, rng *rand.Rand, call func(context.Context, *daemon) error) {
	var err error
	for turn, end := 0, time.Now().Add(2*time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		turn++
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		at := turn % len(f.places)
		if rng != nil {
			at = rng.Intn(len(f.places))
		}
		err = call(ctx, f.node(at))
		cancel()
		if err == nil {
			return
		}
	}
	t.Errorf("not acknowledged within two minutes: %v", err)
}

// verify looks at every node for what was acknowledged, and that nothing counted twice.
func (l *ledger) verify(f *fleet) {
	f.t.Helper()
	for i := range f.places {
		d, exact := f.node(i), &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}
		r, err := d.counters.Get(testCtx(f.t), &pb.GetCounterRequest{Counter: l.counter(), Consistency: exact})
		if err != nil {
			f.t.Fatal(err)
		}
		if got := r.GetCounters()[0].GetValue(); got != int64(l.done) {
			f.t.Errorf("node %d: ledger %d has counted %d, acknowledged were %d", i, l.id, got, l.done)
		}
		var srcs, dsts []uint64
		for n := range l.done {
			e := l.edge(n + 1)
			srcs, dsts = append(srcs, e.Src.Id), append(dsts, e.Dst.Id)
		}
		if len(srcs) == 0 {
			continue
		}
		has, err := d.graph.HasEdges(testCtx(f.t), &pb.HasEdgesRequest{Type: "like", SrcIds: srcs, DstIds: dsts, Consistency: exact})
		if err != nil {
			f.t.Fatal(err)
		}
		for j, there := range has.GetExists() {
			if !there {
				f.t.Errorf("node %d: edge %d of ledger %d is lost", i, j+1, l.id)
			}
		}
	}
}

// verifyLedgers verifies each, and counts the inverses of their edges.
func verifyLedgers(f *fleet, ledgers []*ledger) {
	f.t.Helper()
	want, total := make([]uint64, ledgerNotes), uint64(0)
	for _, l := range ledgers {
		l.verify(f)
		for n := range l.done {
			want[(n+1)%ledgerNotes]++
		}
		total += l.done
	}
	for i := range f.places {
		for n := range uint64(ledgerNotes) {
			if got := f.node(i).countIn(900_000 + n); got != want[n] {
				f.t.Errorf("node %d counts %d likes of note %d, want %d", i, got, 900_000+n, want[n])
			}
		}
	}
	f.t.Logf("%d increments with request ids and %d edges acknowledged: all are there, once", total, total)
}
