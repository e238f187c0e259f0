package edgelist

import (
	"bytes"
	"testing"
)

// A list that edges were added to without being read is the list that a Writer
// would have made, and is split once it is read and changed.
func TestAppendInsertAddsWithoutReading(t *testing.T) {
	opt := DefaultOptions()
	opt.SplitEntries = 8
	kv := newStore(1, 0)
	kv.pages[PageID{}] = &chain{} // no value below the operands
	var want []Edge
	for i := range 40 {
		batch := []Edge{
			{Peer: uint64(1000 - i), Time: int64(i)},
			{Peer: uint64(i + 1), Time: -int64(i), Props: bytes.Repeat([]byte{'p'}, i%3)},
		}
		want = append(want, batch...)
		op, err := AppendInsert(nil, uint64(i+1), batch)
		if err != nil {
			t.Fatal(err)
		}
		kv.pages[PageID{}].operands = append(kv.pages[PageID{}].operands, op)
	}
	l, err := Open(kv)
	if err != nil {
		t.Fatal(err)
	}
	if l.Count() != uint64(len(want)) || l.Version() != 40 || l.Tree() {
		t.Fatalf("count %d, version %d, tree %v", l.Count(), l.Version(), l.Tree())
	}
	for _, e := range want {
		got, ok, err := l.Get(e.Peer)
		if err != nil || !ok || got.Time != e.Time || !bytes.Equal(got.Props, e.Props) {
			t.Fatalf("edge %d: %+v, %v, %v", e.Peer, got, ok, err)
		}
	}
	w, err := OpenWriter(kv, &opt)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := w.Insert(Edge{Peer: 500, Time: 1}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := w.Flush(kv); err != nil {
		t.Fatal(err)
	}
	if !w.Tree() || w.Count() != uint64(len(want))+1 {
		t.Fatalf("after a change: tree %v, count %d", w.Tree(), w.Count())
	}
	if _, err := Check(kv, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := AppendInsert(nil, 1, []Edge{{Peer: 1}, {Peer: 1}}); err == nil {
		t.Fatal("one peer twice was taken")
	}
}
