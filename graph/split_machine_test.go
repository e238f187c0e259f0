package graph

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"slices"
	"testing"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// shards are machines of one store with the deliveries between them in the hands of
// the test.
type shards struct {
	t        *testing.T
	store    kv.Store
	machines map[uint32]*Machine
	acked    map[[2]uint32]uint64 // what a sender knows of its receiver
	index    uint64
	model    model
	small    bool // lists are trees from a few edges on
}

func newShards(t *testing.T, founding int) *shards {
	s := &shards{t: t, store: kv.NewMem(Merger()), machines: map[uint32]*Machine{}, acked: map[[2]uint32]uint64{}, model: model{}}
	for i := range founding {
		s.machines[uint32(i)] = openTestMachine(t, s.store, uint32(i), uint32(founding))
	}
	t.Cleanup(func() {
		for _, m := range s.machines {
			m.Close()
		}
	})
	return s
}

// apply applies an entry and cuts, as a shard does, where the machine wants it or cut
// is set.
func (s *shards) apply(m *Machine, cut bool, cmds ...[]byte) []any {
	s.t.Helper()
	s.index++
	res, err := m.Apply(shard.Entry{Index: s.index, Term: 1, Now: int64(s.index), Elapsed: int64(s.index), Commands: cmds})
	must(s.t, err)
	due := m.AfterEntry()
	if cut || due.Cut {
		cutNow(s.t, m, s.index)
	}
	if due.Split {
		s.open(due.Child)
	}
	return res
}

func (s *shards) open(id uint32) {
	s.t.Helper()
	m, err := openMachine(MachineConfig{ID: id, Store: s.store, Lists: edgelist.DefaultOptions()}, newPageCache(1<<20))
	must(s.t, err)
	s.machines[id] = m
	s.shrink(m)
}

// shrink has a machine keep lists as trees from a few edges on, where all do.
func (s *shards) shrink(m *Machine) {
	if s.small {
		m.cfg.Lists.SplitEntries, m.cfg.Lists.Branch, m.cfg.Lists.MaxDeltas = 6, 4, 3
	}
}

// restart opens a machine as its last cut left it; a new leader knows of its receivers
// what was trimmed.
func (s *shards) restart(id uint32) {
	s.t.Helper()
	cutNow(s.t, s.machines[id], s.index)
	s.machines[id].Close()
	s.open(id)
	for k := range s.acked {
		if k[0] == id {
			s.acked[k] = s.machines[id].stream(k[1]).trimmed
		}
	}
}

// mutate applies a mutation where its fact is, and compares with the model.
func (s *shards) mutate(mu Mutation, cut bool) {
	s.t.Helper()
	def, _ := DefaultSchema().EdgeTypeByID(mu.Type)
	if def.Symmetric && mu.Src > mu.Dst {
		mu.Src, mu.Dst = mu.Dst, mu.Src
	}
	slot := SlotOf(def.fact(mu.Src).Vertex)
	want := s.model.apply(mu)
	owners := 0
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		m := s.machines[id]
		got := s.apply(m, cut, mutateCommand(mu))[0].(*mutateResult).outcomes[0]
		switch {
		case m.owns(slot):
			owners++
			if got != want {
				s.t.Fatalf("%+v: %v, want %v", mu, got, want)
			}
		case got != Failed:
			s.t.Fatalf("shard %d applied a command for slot %d, which it does not own", id, slot)
		}
	}
	if owners != 1 {
		s.t.Fatalf("slot %d has %d owners", slot, owners)
	}
}

// next is the delivery that a sender would send next, of at most n rows; nil: none.
func (s *shards) next(from, to uint32, n int) *delivery {
	s.t.Helper()
	m := s.machines[from]
	st, ok := (*m.streams.Load())[to]
	if !ok || st.last == 0 {
		return nil
	}
	v, err := m.acquire()
	must(s.t, err)
	defer v.release()
	acked := s.acked[[2]uint32{from, to}]
	rows, last, err := v.outboxRows(to, acked, st.last, deliveryBytes)
	must(s.t, err)
	d := &delivery{from: from, after: acked, rows: rows}
	if len(rows) > n {
		d.rows = rows[:n]
	}
	if len(rows) == 0 {
		if acked >= st.reach {
			return nil
		}
		d.upTo = st.reach
	}
	_ = last
	if acked < st.pred.base {
		d.pred = st.pred
	}
	return d
}

// deliver hands a delivery over. The answer's owners come to the sender where heed is set.
func (s *shards) deliver(to uint32, d *delivery, heed bool) deliverResult {
	s.t.Helper()
	cmd := d.encode()
	res := s.apply(s.machines[to], true, cmd)[0].(deliverResult)
	k := [2]uint32{d.from, to}
	s.acked[k] = max(s.acked[k], res.cursor)
	if heed && res.owners != nil {
		s.apply(s.machines[d.from], true, encodeClaims(res.owners))
	}
	return res
}

// owners are the newest claims of all.
func (s *shards) owners() owners {
	o := s.machines[0].owners
	for _, m := range s.machines {
		o = o.merge(m.owners)
	}
	return o
}

func (s *shards) ids() []uint32 { return slices.Sorted(maps.Keys(s.machines)) }

// settle delivers until nothing is left, and tells everybody who owns what.
func (s *shards) settle() {
	s.t.Helper()
	for _, id := range s.ids() {
		cutNow(s.t, s.machines[id], s.index)
	}
	for round := 0; ; round++ {
		moved := false
		for _, id := range s.ids() { // as the map does in the end
			s.apply(s.machines[id], true, encodeClaims(s.owners()))
		}
		for _, from := range s.ids() {
			for _, to := range s.ids() {
				if d := s.next(from, to, 100); d != nil && from != to {
					before := s.acked[[2]uint32{from, to}]
					res := s.deliver(to, d, true)
					moved = moved || res.cursor > before || res.owners != nil
				}
			}
		}
		if !moved {
			break
		}
		if round > 1000 {
			s.t.Fatal("deliveries do not end")
		}
	}
	for _, from := range s.ids() {
		for _, to := range s.ids() {
			if d := s.next(from, to, 100); d != nil && from != to {
				s.t.Fatalf("shard %d cannot deliver to %d: %+v: %+v", from, to, d, s.deliver(to, d, false))
			}
		}
	}
}

// check compares all edges with the model, and proves the store.
func (s *shards) check() {
	s.t.Helper()
	for _, id := range s.ids() {
		s.restart(id)
	}
	r, err := CheckStore(context.Background(), s.store, 4, nil)
	must(s.t, err)
	if r.Faults > 0 || r.Skipped > 0 {
		s.t.Fatalf("check: %+v", r)
	}
	for k, e := range s.model {
		def, _ := DefaultSchema().EdgeTypeByID(k.t)
		for _, end := range []struct {
			l    ListKey
			peer uint64
		}{{def.fact(k.src), k.dst}, {def.inverse(k.dst), k.src}} {
			list, err := s.view(end.l).list(end.l)
			must(s.t, err)
			if got, ok, err := list.Get(end.peer); err != nil || !ok || got.Time != e.Time {
				s.t.Errorf("edge %+v at %v: %+v, %v, %v", k, end.l, got, ok, err)
			}
		}
	}
	edges := uint64(2 * len(s.model))
	if r.Edges != edges {
		s.t.Errorf("%d ends of edges, the model has %d", r.Edges, edges)
	}
}

// view is the view of the shard that owns a list. It is not released: the test is short.
func (s *shards) view(l ListKey) *view {
	s.t.Helper()
	for _, m := range s.machines {
		if m.owns(SlotOf(l.Vertex)) {
			return m.view.Load()
		}
	}
	s.t.Fatalf("nobody owns %v", l)
	return nil
}

// Shards are split at random moments, with deliveries delayed, repeated and out of order
// between streams, claims that arrive late or never, trims and restarts: at the end both
// ends of all edges agree, and totals and derived counters are right.
func TestMachinesSplitAtRandomAgreeWithTheModel(t *testing.T) {
	seeds := int64(50)
	if os.Getenv("LIANA_LONG") != "" {
		seeds = 2000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { splitAtRandom(t, seed) })
	}
}

func splitAtRandom(t *testing.T, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	s := newShards(t, 1+rng.Intn(3))
	type sent struct {
		to uint32
		d  *delivery
	}
	var old []sent
	pick := func() uint32 { ids := s.ids(); return ids[rng.Intn(len(ids))] }
	next := uint32(len(s.machines))
	types := []EdgeType{1, 2, 3, 4}
	for range 300 {
		switch n := rng.Intn(20); {
		case n < 9:
			s.mutate(randomMutation(rng, types), rng.Intn(2) == 0)
		case n < 14:
			from, to := pick(), pick()
			if d := s.next(from, to, 1+rng.Intn(3)); d != nil && from != to {
				s.deliver(to, d, rng.Intn(2) == 0)
				old = append(old, sent{to, d})
			}
		case n == 14 && len(old) > 0:
			o := old[rng.Intn(len(old))]
			s.deliver(o.to, o.d, false)
		case n == 15:
			from, to := pick(), pick()
			s.apply(s.machines[from], true, trim{to: to, pos: s.acked[[2]uint32{from, to}]}.encode())
		case n == 16:
			s.apply(s.machines[pick()], true, encodeClaims(s.machines[pick()].owners))
		case n == 17 && rng.Intn(3) == 0:
			s.restart(pick())
		case n == 18 && len(s.machines) < 8:
			m := s.machines[pick()]
			if m.own.First == m.own.Last {
				continue
			}
			at := m.own.First + 1 + Slot(rng.Intn(int(m.own.Last-m.own.First)))
			if rng.Intn(2) == 0 { // near a vertex that is used
				at = max(m.own.First+1, min(m.own.Last, SlotOf(Vertex{1, uint64(1 + rng.Intn(30))})))
			}
			s.apply(m, false, split{next, at}.encode())
			next++
		}
	}
	s.settle()
	s.check()
}
