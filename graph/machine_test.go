package graph

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// newTestMachine opens the machine of shard id of n on an in-memory store, and
// applies its init command.
func newTestMachine(t testing.TB, id, n uint32) *Machine {
	t.Helper()
	return openTestMachine(t, kv.NewMem(Merger()), id, n)
}

func openTestMachine(t testing.TB, store kv.Store, id, n uint32) *Machine {
	t.Helper()
	m, err := openMachine(MachineConfig{
		ID: id, Store: store, Lists: edgelist.DefaultOptions(),
	}, newPageCache(1<<20))
	must(t, err)
	if m.schema == nil {
		_, err = applyCommands(m, 0, encodeInit(77, DefaultSchema(), int(n)))
		must(t, err)
		cutNow(t, m, 1)
	}
	return m
}

func applyCommands(m *Machine, at int64, cmds ...[]byte) ([]any, error) {
	return m.Apply(shard.Entry{Index: 1, Term: 1, Now: at, Elapsed: at, Commands: cmds})
}

func cutNow(t testing.TB, m *Machine, index uint64) {
	t.Helper()
	b := m.cfg.Store.NewBatch()
	defer b.Close()
	must(t, m.Cut(b))
	must(t, b.Commit(kv.NoSync))
	m.Publish(index)
}

func mutateCommand(ms ...Mutation) []byte {
	pick := make([]int, len(ms))
	for i := range pick {
		pick[i] = i
	}
	return encodeMutate(ms, pick)
}

func (m *Machine) mustApply(t testing.TB, at int64, cmds ...[]byte) []any {
	t.Helper()
	res, err := applyCommands(m, at, cmds...)
	must(t, err)
	cutNow(t, m, uint64(at))
	return res
}

// contents are the rows of a store that say what the state is: lists as their
// edges, all else as bytes. The form of a list, and which lists are trees, is left out.
func contents(t testing.TB, m *Machine) string {
	t.Helper()
	v, err := m.acquire()
	must(t, err)
	defer v.release()
	var b bytes.Buffer
	it, err := v.snap.NewIter(kv.Span{})
	must(t, err)
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if l, page, ok := parseListKey(it.Key()); ok {
			if len(page) > 0 {
				continue
			}
			list, err := v.list(l)
			must(t, err)
			fmt.Fprintf(&b, "%v version %d:", l, list.Version())
			for i := list.Iter(edgelist.Query{Order: edgelist.ByTime}); i.Next(); {
				fmt.Fprintf(&b, " %+v", i.Edge())
			}
			b.WriteByte('\n')
			continue
		}
		if bytes.HasPrefix(it.Key(), appendLocal(nil, m.cfg.ID, localTree)) {
			continue
		}
		value, err := it.Value()
		must(t, err)
		fmt.Fprintf(&b, "%x = %x\n", it.Key(), value)
	}
	must(t, it.Error())
	return b.String()
}

// The same log gives the same state, however entries are grouped into cuts,
// whatever the thresholds and the cache, and with restarts in between (P11).
func TestStateDependsOnTheLogAlone(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	var log [][][]byte
	for range 150 {
		var cmds [][]byte
		for range 1 + rng.Intn(3) {
			ms := make([]Mutation, 1+rng.Intn(20))
			for i := range ms {
				ms[i] = randomMutation(rng, []EdgeType{1, 3, 4})
			}
			cmds = append(cmds, mutateCommand(ms...))
			inc := increments{requestID: fmt.Sprint(rng.Intn(40)), ordinals: []uint32{0}, items: []Increment{
				{Counter: CounterRef{Vertex: Vertex{2, uint64(1 + rng.Intn(5))}, Metric: 1}, Delta: int64(rng.Intn(9))},
			}}
			cmds = append(cmds, inc.encode())
		}
		log = append(log, cmds)
	}
	run := func(seed int64, small bool) string {
		rng := rand.New(rand.NewSource(seed))
		store := kv.NewMem(Merger())
		m := openTestMachine(t, store, 0, 1)
		defer func() { m.Close() }()
		if small {
			m.cfg.Lists.SplitEntries, m.cfg.Lists.Branch, m.cfg.Lists.MaxDeltas = 6, 4, 3
		}
		for i, cmds := range log {
			_, err := applyCommands(m, int64(i)*1000, cmds...)
			must(t, err)
			if seed == 0 || rng.Intn(5) == 0 || i == len(log)-1 {
				cutNow(t, m, uint64(i))
				if rng.Intn(10) == 0 {
					m.Close()
					m = openTestMachine(t, store, 0, 1)
				}
			}
		}
		d, err := follower(t, m).Digest(t.Context(), 0)
		must(t, err)
		return fmt.Sprintf("digest %x\n%s", d.Hash, contents(t, m))
	}
	want := run(0, false)
	for seed := int64(1); seed < 5; seed++ {
		if got := run(seed, seed%2 == 0); got != want {
			t.Fatalf("seed %d: the state differs:\n%s\nwant\n%s", seed, got, want)
		}
	}
}

// A shard that went down between the entry that opened its first term and its init
// command comes up empty, and takes the init command then.
func TestShardCutBeforeInitComesUp(t *testing.T) {
	store := kv.NewMem(Merger())
	cfg := MachineConfig{Store: store, Lists: edgelist.DefaultOptions()}
	m, err := openMachine(cfg, newPageCache(1<<20))
	must(t, err)
	_, err = m.Apply(shard.Entry{Index: 1, Term: 1, Now: 5})
	must(t, err)
	cutNow(t, m, 1)
	m.Close()
	m = openTestMachine(t, store, 0, 1)
	defer m.Close()
	m.mustApply(t, 10, mutateCommand(Mutation{Op: OpAdd, Type: 1, Src: 1, Dst: 2, Time: 3}))
	if m.schema == nil || m.timeline != 77 {
		t.Errorf("schema %v, timeline %d", m.schema, m.timeline)
	}
}

func TestForeignCommandsStopTheShard(t *testing.T) {
	m := newTestMachine(t, 0, 1)
	defer m.Close()
	for _, cmd := range [][]byte{{}, {200}, {cmdMutate}, {cmdMutate, 1, 9}, {cmdDeliver, 1}, {cmdInit, 1}} {
		_, err := applyCommands(m, 1, cmd)
		if !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("command %x: %v, want corruption", cmd, err)
		}
	}
	if m.fault.Load() == nil {
		t.Error("the fault is not remembered")
	}
}

// neighbours returns a source in shard 0 of 2 and a destination in shard 1.
func neighbours() (src, dst uint64) {
	for src = 1; SlotOf(Vertex{1, src}) >= NumSlots/2; src++ {
	}
	for dst = 1; SlotOf(Vertex{2, dst}) < NumSlots/2; dst++ {
	}
	return src, dst
}

// outboxTo returns the rows of the outbox to a shard.
func outboxTo(t *testing.T, m *Machine, to uint32) [][]byte {
	t.Helper()
	v, err := m.acquire()
	must(t, err)
	defer v.release()
	rows, _, err := v.outboxRows(to, 0, 1<<62, deliveryBytes)
	must(t, err)
	return rows
}

// RULES 23 and B1: deliveries that overlap, repeat or leave a gap.
func TestRuleB1DeliveriesApplyOnceAndInOrder(t *testing.T) {
	a, b := newTestMachine(t, 0, 2), newTestMachine(t, 1, 2)
	defer a.Close()
	defer b.Close()
	src, dst := neighbours()
	for i := range 6 {
		op := OpAdd
		if i%2 == 1 {
			op = OpDelete
		}
		a.mustApply(t, int64(i+1), mutateCommand(Mutation{Op: op, Type: 1, Src: src, Dst: dst, Time: int64(i + 1)}))
	}
	rows := outboxTo(t, a, 1)
	if len(rows) != 6 {
		t.Fatalf("%d rows in the outbox, want 6", len(rows))
	}
	last := func(row []byte) uint64 {
		r := readRow(row)
		for r.next() {
		}
		return r.rec.pos
	}
	send := func(from, to int, after uint64) deliverResult {
		t.Helper()
		d := delivery{from: 0, after: after, version: 1, rows: rows[from:to]}
		return b.mustApply(t, 10, d.encode())[0].(deliverResult)
	}
	if r := send(1, 3, last(rows[0])); r.refused == "" || r.cursor != 0 {
		t.Errorf("a delivery with a gap before it: %+v", r)
	}
	if r := send(0, 3, 0); r.refused != "" || r.cursor != last(rows[2]) {
		t.Errorf("the first delivery: %+v", r)
	}
	before := contents(t, b)
	if r := send(0, 2, 0); r.refused != "" || r.cursor != last(rows[2]) {
		t.Errorf("a repeated delivery: %+v", r)
	}
	if got := contents(t, b); got != before {
		t.Error("a repeated delivery changed something")
	}
	if r := send(1, 6, last(rows[0])); r.refused != "" || r.cursor != last(rows[5]) {
		t.Errorf("an overlapping delivery: %+v", r)
	}
	d := delivery{from: 0, epoch: 9, version: 1, rows: rows}
	if r := b.mustApply(t, 11, d.encode())[0].(deliverResult); r.refused == "" {
		t.Error("a delivery of another epoch was taken")
	}
	v, err := b.acquire()
	must(t, err)
	defer v.release()
	list, err := v.list(ListKey{Vertex: Vertex{2, dst}, Type: 1, Dir: In})
	must(t, err)
	if list.Count() != 0 {
		t.Errorf("%d inverse edges after add, delete, …, delete", list.Count())
	}
}

// RULES B7: a delivery that needs a newer schema than the shard has is refused,
// and taken once the schema is there.
func TestRuleB7DeliveryWaitsForItsSchema(t *testing.T) {
	m := newTestMachine(t, 1, 2)
	defer m.Close()
	_, dst := neighbours()
	w := rowWriter{}
	w.add(&record{pos: 5, kind: recAdd, list: ListKey{Vertex: Vertex{2, dst}, Type: 1, Dir: In}, peer: 1, time: 1})
	d := delivery{from: 0, version: 2, rows: [][]byte{w.buf}}
	if r := m.mustApply(t, 1, d.encode())[0].(deliverResult); r.refused == "" || r.cursor != 0 {
		t.Fatalf("%+v, want a refusal", r)
	}
	s := *DefaultSchema()
	s.Version = 2
	m.mustApply(t, 2, encodeInit(77, &s, 1))
	if r := m.mustApply(t, 3, d.encode())[0].(deliverResult); r.refused != "" || r.cursor != 5 {
		t.Fatalf("%+v, want cursor 5", r)
	}
}

// RULES F1: ownership is checked where a command is applied.
func TestRuleF1ForeignSlotsAreRefusedAtApply(t *testing.T) {
	m := newTestMachine(t, 0, 2)
	defer m.Close()
	src, dst := neighbours()
	res := m.mustApply(t, 1, mutateCommand(Mutation{Op: OpAdd, Type: 1, Src: foreignUser(), Dst: dst, Time: 1}))
	if out := res[0].(*mutateResult).outcomes[0]; out != Failed {
		t.Errorf("a mutation of a foreign vertex: outcome %d", out)
	}
	w := rowWriter{}
	w.add(&record{pos: 5, kind: recAdd, list: ListKey{Vertex: Vertex{2, dst}, Type: 1, Dir: In}, peer: src, time: 1})
	d := delivery{from: 1, version: 1, rows: [][]byte{w.buf}}
	if r := m.mustApply(t, 2, d.encode())[0].(deliverResult); r.refused == "" || r.cursor != 0 {
		t.Errorf("a delivery to a foreign vertex: %+v", r)
	}
}

func foreignUser() uint64 {
	id := uint64(1)
	for SlotOf(Vertex{1, id}) < NumSlots/2 {
		id++
	}
	return id
}

// RULES 26a and 26b, C4: operations of one entry act in order on derived
// counters, however they are gathered.
func TestRuleC4DerivedCountersSeeEarlierOperationsOfTheEntry(t *testing.T) {
	like, publish := EdgeType(1), EdgeType(4)
	note := uint64(7)
	author := Vertex{1, 500}
	ops := []Mutation{
		{Op: OpAdd, Type: like, Src: 1, Dst: note, Time: 1},
		{Op: OpAdd, Type: publish, Src: author.ID, Dst: note, Time: 2},
		{Op: OpAdd, Type: like, Src: 2, Dst: note, Time: 3},
		{Op: OpDelete, Type: like, Src: 1, Dst: note},
		{Op: OpDelete, Type: publish, Src: author.ID, Dst: note},
		{Op: OpAdd, Type: like, Src: 3, Dst: note, Time: 4},
		{Op: OpAdd, Type: publish, Src: author.ID, Dst: note, Time: 5},
	}
	want := []int64{0, 1, 2, 1, 0, 0, 2}
	ref := CounterRef{Vertex: author, Metric: 1}
	value := func(m *Machine) int64 {
		v, err := m.acquire()
		must(t, err)
		defer v.release()
		c, err := v.counter(&ref)
		must(t, err)
		return c.Value
	}
	for size := 1; size <= len(ops); size++ {
		m := newTestMachine(t, 0, 1)
		done := 0
		for chunk := range slices.Chunk(ops, size) {
			m.mustApply(t, 1, mutateCommand(chunk...))
			done += len(chunk)
			if got := value(m); got != want[done-1] {
				t.Errorf("entries of %d: after %d operations likes_received is %d, want %d", size, done, got, want[done-1])
			}
		}
		m.Close()
	}
}

// The change log keeps at least Retain changes, in order, each with a number of
// its own (CACHE.md V1), and trims the rest.
func TestChangeLogIsNumberedAndTrimmed(t *testing.T) {
	m := newTestMachine(t, 0, 1)
	defer m.Close()
	m.cfg.Retain = 100
	n := uint64(0)
	for round := range 40 {
		ms := make([]Mutation, 2000)
		for i := range ms {
			n++
			ms[i] = Mutation{Op: OpAdd, Type: 1, Src: 1 + n%50, Dst: n, Time: 1}
		}
		m.mustApply(t, int64(round+1), mutateCommand(ms...))
	}
	v, err := m.acquire()
	must(t, err)
	defer v.release()
	it, err := v.snap.NewIter(kv.PrefixSpan(appendLocal(nil, 0, localChange)))
	must(t, err)
	defer it.Close()
	last, count := uint64(0), uint64(0)
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.Value()
		must(t, err)
		for r := readRow(value); r.next(); {
			if last != 0 && r.rec.pos != last+1 {
				t.Fatalf("change %d follows %d", r.rec.pos, last)
			}
			last = r.rec.pos
			count++
		}
	}
	if last != v.position || count < 100 || count > 100+retainSlack+4000 {
		t.Errorf("%d changes up to %d, position %d", count, last, v.position)
	}
}
