package cache

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// audited is a storage whose entries, positions and answers are set by the test.
type audited struct {
	entry Entry
	last  atomic.Uint64
	load  func() // called in each load
}

func (s *audited) Load(_ context.Context, wants []Want, got []Entry) error {
	if s.load != nil {
		s.load()
	}
	for i := range wants {
		got[i] = s.entry
		got[i].At = Position{1, s.last.Load() + 5}
	}
	return nil
}

func (s *audited) Poll(_ context.Context, slots []Slot, tell func(Slot, Position)) error {
	for _, slot := range slots {
		tell(slot, Position{1, s.last.Load()})
	}
	return nil
}

// fixed is a tier that gives one entry.
type fixed struct{ entry Entry }

func (f *fixed) Load(_ context.Context, wants []Want, got []Entry) error {
	for i := range wants {
		got[i] = f.entry
	}
	return nil
}

func window(total int, floor Edge, edges ...Edge) Entry {
	return Entry{Window: &Window{Total: uint64(total), Floor: floor, Edges: edges}}
}

func row(fields ...Field) Entry { return Entry{Row: &Row{Fields: fields}} }

func chunkOf(peers ...uint64) Entry {
	c := &Chunk{Bits: make([]byte, ChunkBytes)}
	for _, p := range peers {
		c.Set(p)
	}
	return Entry{Chunk: c}
}

// An auditor finds every kind of wrong entry, and none that is right.
func TestAuditorFindsWrongEntries(t *testing.T) {
	a, b, c := Edge{1, 1}, Edge{2, 2}, Edge{3, 3}
	for name, k := range map[string]struct {
		cached, stored Entry
		wrong          bool
	}{
		"equal rows":                {row(1, Absent, 5), row(1, Absent, 5), false},
		"a count that is wrong":     {row(1, 2), row(1, 3), true},
		"a counter that is gone":    {row(1, 2), row(1, Absent), true},
		"a field not known here":    {row(1), row(1, 3), false},
		"a field not known there":   {row(1, 2), row(1, Unknown), false},
		"equal windows":             {window(2, Edge{}, a, b), window(2, Edge{}, a, b), false},
		"an edge too many":          {window(3, Edge{}, a, b, c), window(2, Edge{}, a, b), true},
		"another edge":              {window(2, Edge{}, a, c), window(2, Edge{}, a, b), true},
		"a shorter window":          {window(3, c, c), window(3, Edge{}, a, b, c), false},
		"a shorter window, a floor": {window(3, b, c), window(3, Edge{}, a, b, c), true},
		"a longer window":           {window(9, a, a, b, c), window(9, c, c), false},
		"a longer window, wrong":    {window(9, a, a, b), window(9, c, c), true},
		"an empty window":           {window(0, Edge{}), window(0, Edge{}), false},
		"an empty one with a floor": {window(1, b), window(1, Edge{}, c), true},
		"equal bits":                {chunkOf(1, 2), chunkOf(1, 2), false},
		"a bit too many":            {chunkOf(1, 2), chunkOf(1), true},
		"another kind":              {chunkOf(1, 2), row(1), true},
	} {
		t.Run(name, func(t *testing.T) {
			equal, wrong, skipped := audit(t, k.cached, 7, &audited{entry: k.stored}, 7)
			if skipped > 0 || wrong+equal == 0 || (wrong > 0) != k.wrong || (equal > 0) == k.wrong {
				t.Errorf("%d equal, %d wrong, %d skipped", equal, wrong, skipped)
			}
		})
	}
}

// A comparison of states that may differ says nothing.
func TestAuditorSkipsWhatHasChanged(t *testing.T) {
	moving := &audited{entry: row(2)}
	moving.load = func() { moving.last.Add(1) }
	for name, s := range map[string]*audited{"since the entry": {entry: row(2)}, "while it is asked": moving} {
		at := uint64(7)
		if s == moving {
			at = 1 << 40
		}
		equal, wrong, skipped := audit(t, row(1), at, s, 8)
		if equal+wrong > 0 || skipped == 0 {
			t.Errorf("%s: %d equal, %d wrong, %d skipped", name, equal, wrong, skipped)
		}
	}
}

// audit has an entry at a position audited for a second.
func audit(t *testing.T, cached Entry, at uint64, s *audited, last uint64) (equal, wrong, skipped uint64) {
	synctest.Test(t, func(t *testing.T) {
		s.last.Store(last)
		cached.At = Position{1, at}
		polls := NewPolls(time.Second)
		polls.tell(3, time.Now(), Position{1, 5})
		a := NewAuditor(&fixed{cached}, s, polls)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		told := atomic.Uint64{}
		go a.Run(ctx, func(k Key, err error) {
			told.Add(1)
			if k.Slot != 3 || err == nil {
				t.Errorf("told of %v: %v", k, err)
			}
		})
		for ctx.Err() == nil {
			if err := a.Load(ctx, []Want{{Key: RowKey(3, Vertex{1, 1}), Min: Position{1, 5}}}, make([]Entry, 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		st := a.Stats()
		equal, wrong, skipped = st.Equal.Load(), st.Wrong.Load(), st.Skipped.Load()
		n := equal + wrong + skipped
		if n < 15 || n > 22 || told.Load() != wrong {
			t.Errorf("%d samples in a second, %d told of %d wrong", n, told.Load(), wrong)
		}
		var aged uint64
		for i := range st.Ages {
			aged += st.Ages[i].Load()
		}
		if mean := time.Duration(st.AgeSum.Load() / n); aged != n || st.Ages[6].Load()+st.Ages[7].Load()+st.Ages[8].Load() > 0 || st.Ages[3].Load() < 4 || mean < 400*time.Millisecond || mean > 600*time.Millisecond {
			t.Errorf("ages of %d samples, %v on average; they are up to a second old", aged, mean)
		}
	})
	return equal, wrong, skipped
}
