package edgelist

import (
	"runtime"
	"testing"
)

// TestMemSize compares what pages say of themselves with what the heap says.
func TestMemSize(t *testing.T) {
	for _, n := range []int{1, 10, 300} {
		var rows table
		rows.reset(kindPacked)
		for i := range n {
			rows.append(&row{id: scattered(1) + uint64(i)<<40, time: arrival(i)})
		}
		value := appendPage(nil, 0, 1, &rows)
		const pages = 2000
		kept := make([]*Page, pages)
		claimed := 0
		before := heap()
		for i := range kept {
			p, err := DecodePage(append(make([]byte, 0, len(value)), value...))
			if err != nil {
				t.Fatal(err)
			}
			p = p.clone()
			for j := range n / 4 {
				p.put(p.find(Key{ID: uint64(j)}), row{id: uint64(j)})
			}
			kept[i] = p
			claimed += p.MemSize()
		}
		used := int(heap() - before)
		runtime.KeepAlive(kept)
		t.Logf("%d edges: %d bytes stored, %d claimed, %d used", n, len(value), claimed/pages, used/pages)
		if claimed < used*8/10 || claimed > used*11/10 {
			t.Errorf("%d edges: a page claims %d bytes, the heap has %d", n, claimed/pages, used/pages)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
