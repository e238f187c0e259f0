package graph

import (
	"maps"
	"slices"
	"testing"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// A replica that is sent the state of another goes on with its jobs: marks, places and
// backfills are as they are there, and what it had before is gone.
func TestAStateTransferTakesJobsAlong(t *testing.T) {
	s := newLots(t, 1)
	m := s.machines[0]
	for note := uint64(1); note <= 9; note++ {
		s.put(Mutation{Op: OpAdd, Type: 4, Src: 1, Dst: note, Time: 1}, true)
		s.put(Mutation{Op: OpAdd, Type: 2, Src: 2, Dst: note, Time: 1}, true)
	}
	next := *withFavorites(t)
	next.Version = 3
	s.apply(m, true, encodeInit(77, &next, 1))
	s.step(m, true, 3, 100)
	s.ask(VertexHide, Vertex{1, 2}, true)
	s.stepJob(m, 0, 4, true)
	s.ask(VertexDelete, Vertex{2, 5}, true)

	to, err := openMachine(MachineConfig{Store: kv.NewMem(Merger()), Lists: edgelist.DefaultOptions()}, newPageCache(1<<20))
	must(t, err)
	defer to.Close()
	_, err = applyCommands(to, 0, encodeInit(77, DefaultSchema(), 1))
	must(t, err)
	_, err = applyCommands(to, 1, markCommand{VertexHide, Vertex{1, 99}}.encode())
	must(t, err)
	cutNow(t, to, 1)
	replaceStore(t, to.cfg.Store, s.store)
	must(t, to.Restore())
	must(t, to.publishView())
	if !maps.Equal(to.marks.of, m.marks.of) || to.marks.jobs != 2 || !slices.Equal(to.backfills, m.backfills) || len(to.backfills) != 1 {
		t.Fatalf("marks %+v, backfills %+v; want %+v, %+v", to.marks.of, to.backfills, m.marks.of, m.backfills)
	}
	s.machines[0] = to
	m.Close()
	s.store = to.cfg.Store
	for s.step(to, true, 3, 100) {
	}
	s.finish()
	for _, c := range []struct {
		l    ListKey
		want uint64
	}{
		{ListKey{Vertex{1, 2}, 2, Out}, 0}, {ListKey{Vertex{1, 2}, 2, hidden}, 8}, {ListKey{Vertex{1, 1}, 4, Out}, 8}, {ListKey{Vertex{2, 5}, 4, In}, 0},
	} {
		if got := s.count(c.l); got != c.want {
			t.Errorf("list %v: %d edges, want %d", c.l, got, c.want)
		}
	}
	if got := s.value(CounterRef{Vertex: Vertex{1, 1}, Metric: 2}); got != 0 {
		t.Errorf("%d favourites of notes whose only fan is hidden", got)
	}
}

// replaceStore makes a store hold what another does.
func replaceStore(t *testing.T, to, from kv.Store) {
	t.Helper()
	b := to.NewBatch()
	defer b.Close()
	must(t, b.DeleteRange(kv.Span{Lower: []byte{0}, Upper: []byte{0xff, 0xff, 0xff}}))
	it, err := from.NewIter(kv.Span{})
	must(t, err)
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.Value()
		must(t, err)
		must(t, b.Set(it.Key(), v))
	}
	must(t, it.Error())
	must(t, b.Commit(kv.NoSync))
}
