package cache_test

import (
	"testing"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

func TestWarmLoadsWhatItIsGiven(t *testing.T) {
	m := cachetest.NewModel(4)
	h, err := cache.NewHot(m, cache.NewTopK(512, 1), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var keys []cache.Key
	for id := range uint64(300) {
		l := cachetest.Like(id)
		m.Apply(cachetest.Add(l, 1, 1))
		keys = append(keys, cache.WindowKey(m.SlotOf(l.Vertex), l))
	}
	// A chunk that storage does not find worth an entry.
	keys = append(keys, cache.ChunkKey(1, cachetest.Like(1), 7))
	n, err := cache.Warm(t.Context(), m, h, keys)
	if err != nil || n != 300 {
		t.Fatalf("%d entries are warm, %v; want 300", n, err)
	}
	before, _ := m.Calls()
	got := make([]cache.Entry, 1)
	for _, k := range keys[:300] {
		if err := h.Load(t.Context(), []cache.Want{{Key: k, Min: m.Last(k.Slot)}}, got); err != nil {
			t.Fatal(err)
		}
	}
	if after, _ := m.Calls(); after-before > 50 {
		t.Errorf("%d of 300 entries were loaded again after Warm", after-before)
	}
}

func TestHotTellsItsKeysAndCounts(t *testing.T) {
	m := cachetest.NewModel(4)
	h, err := cache.NewHot(m, cache.NewTopK(64, 3), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	load := func(id uint64, times int) {
		k := cache.RowKey(cache.Slot(id), cachetest.Like(id).Vertex)
		for range times {
			if err := h.Load(t.Context(), []cache.Want{{Key: k, Min: m.Last(k.Slot)}}, make([]cache.Entry, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	load(1, 9)
	load(2, 5)
	load(3, 1)
	m.Apply(cachetest.Add(cachetest.Like(1), 1, 1))
	load(1, 1)
	top := h.Top(2)
	if len(top) != 2 || top[0].Key.Vertex.ID != 1 || top[0].Touches != 10 || top[1].Key.Vertex.ID != 2 {
		t.Errorf("the hottest are %+v", top)
	}
	s := h.Stats()
	if s.Hits.Load() != 6+2 || s.Absent.Load() != 3+3+1 || s.Stale.Load() != 1 {
		t.Errorf("%d hits, %d absent, %d stale; want 8, 7, 1", s.Hits.Load(), s.Absent.Load(), s.Stale.Load())
	}
	before := h.Bytes()
	h.Drop(cachetest.Like(1).Vertex)
	if h.Bytes() >= before || before == 0 {
		t.Errorf("%d bytes before a drop, %d after", before, h.Bytes())
	}
}
