package shard

import (
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

func openTestLog(t *testing.T, store kv.Store) (*logStore, *atomic.Int64) {
	t.Helper()
	var total atomic.Int64
	l, err := openLogStore(store, 1, 42, &total, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return l, &total
}

// fill stores the entries from..to, of size bytes each, in one batch an entry.
func fill(t *testing.T, l *logStore, from, to uint64, size int) {
	t.Helper()
	for i := from; i <= to; i++ {
		if err := l.StoreLog(&raft.Log{Index: i, Term: i, Data: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
}

func wantBounds(t *testing.T, l *logStore, first, last uint64) {
	t.Helper()
	if f, la := l.bounds(); f != first || la != last {
		t.Fatalf("log holds %d to %d, want %d to %d", f, la, first, last)
	}
}

func TestLogKeepsEntriesAndBoundsAcrossReopen(t *testing.T) {
	store := kv.NewMem(nil)
	l, _ := openTestLog(t, store)
	wantBounds(t, l, 0, 0)
	other, err := openLogStore(store, 2, 42, new(atomic.Int64), func() {})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, other, 1, 3, 1)
	fill(t, l, 5, 9, 1)
	in := raft.Log{Index: 10, Term: 7, Type: raft.LogBarrier, Data: []byte("d"), Extensions: []byte("e")}
	if err := l.StoreLogs([]*raft.Log{&in}); err != nil {
		t.Fatal(err)
	}
	l, _ = openTestLog(t, store)
	wantBounds(t, l, 5, 10)
	var out raft.Log
	if err := l.GetLog(10, &out); err != nil || !reflect.DeepEqual(in, out) {
		t.Fatalf("%+v, %v", out, err)
	}
	if err := l.DeleteRange(8, 10); err != nil { // a tail that is replaced
		t.Fatal(err)
	}
	wantBounds(t, l, 5, 7)
	fill(t, l, 8, 8, 1)
	if err := l.DeleteRange(5, 6); err != nil {
		t.Fatal(err)
	}
	wantBounds(t, l, 7, 8)
	l, _ = openTestLog(t, store)
	wantBounds(t, l, 7, 8)
	if err := l.DeleteRange(7, 8); err != nil {
		t.Fatal(err)
	}
	wantBounds(t, l, 0, 0)
	wantBounds(t, other, 1, 3)
}

// RULES 14: Raft compares with ==.
func TestRule14_AMissingEntryIsExactlyErrLogNotFound(t *testing.T) {
	store := kv.NewMem(nil)
	l, _ := openTestLog(t, store)
	fill(t, l, 5, 9, 1)
	g := guardedLog{logStore: l, guard: newGuard(&Shard{fault: newFault(), node: &Node{disk: newDisk(time.Minute)}})}
	g.started.Store(true)
	var out raft.Log
	for _, i := range []uint64{0, 4, 10} {
		if err := g.GetLog(i, &out); err != raft.ErrLogNotFound {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	b := store.NewBatch()
	if err := errors.Join(b.Delete(l.key(7)), b.Commit(kv.Sync), b.Close()); err != nil {
		t.Fatal(err)
	}
	l.recent = recentLog{} // it is read from the store
	if err := l.GetLog(7, &out); !errors.Is(err, kv.ErrCorruption) {
		t.Errorf("a hole in the log: %v, want corruption", err)
	}
}

// afterCommit is a store that calls after once a batch is committed, before Commit returns.
type afterCommit struct {
	kv.Store
	after func()
}

func (s afterCommit) NewBatch() kv.Batch { return afterCommitBatch{s.Store.NewBatch(), s.after} }

type afterCommitBatch struct {
	kv.Batch
	after func()
}

func (b afterCommitBatch) Commit(d kv.Durability) error {
	err := b.Batch.Commit(d)
	b.after()
	return err
}

// A reader for a follower meets the truncation: an entry just deleted is not a hole.
func TestAnEntryDeletedUnderAReaderIsNotFound(t *testing.T) {
	l, _ := openTestLog(t, kv.NewMem(nil))
	fill(t, l, 1, 9, 1)
	read := 0
	l.store = afterCommit{l.store, func() {
		var out raft.Log
		if err := l.GetLog(3, &out); err != raft.ErrLogNotFound {
			t.Errorf("entry 3: %v", err)
		}
		read++
	}}
	if n, err := l.truncate(5, 0, 0); n != 5 || err != nil || read != 1 {
		t.Errorf("deleted %d, %v; read %d times", n, err, read)
	}
}

// RULES 14: Raft compares the text.
func TestRule14_AStableMissHasTheTextNotFound(t *testing.T) {
	r := memRig(t, nil)
	r.open()
	s := guardedStable{bolt: r.node.bolt, prefix: "x/", guard: newGuard(&Shard{fault: newFault(), node: &Node{disk: newDisk(time.Minute)}})}
	s.started.Store(true)
	if _, err := s.Get([]byte("absent")); err == nil || err.Error() != "not found" {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.GetUint64([]byte("absent")); err == nil || err.Error() != "not found" {
		t.Errorf("GetUint64: %v", err)
	}
	if err := s.fault.get(); err != nil {
		t.Errorf("a miss is no fault: %v", err)
	}
}

func TestLogRefusesWhatWouldEndTheProcess(t *testing.T) {
	for name, log := range map[string]raft.Log{
		"old kind of entry":     {Type: raft.LogAddPeerDeprecated, Term: 1},
		"unknown type":          {Type: 77, Term: 1},
		"no term":               {Type: raft.LogCommand},
		"configuration in ruin": {Type: raft.LogConfiguration, Term: 1, Data: []byte{0xc1, 2, 3}},
	} {
		var out raft.Log
		if err := decodeLog(appendLog(nil, &log), 1, &out); !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTruncationKeepsWhatIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		name               string
		durable, keep      uint64
		keepBytes          int64
		wantFirst, entries uint64
	}{
		{"not beyond what is durable", 40, 1, 1 << 30, 41, 100},
		{"at least the last entry", 100, 0, 0, 100, 100},
		{"so many entries", 100, 30, 1 << 30, 71, 100},
		{"all, if there are no more", 100, 1000, 1 << 30, 1, 100},
		{"fewer entries where they are large", 100, 1000, 3 << 20, 71, 100},
		{"nothing durable", 0, 1, 0, 1, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, total := openTestLog(t, kv.NewMem(nil))
			fill(t, l, 1, c.entries, 100<<10)
			deleted, err := l.truncate(c.durable, c.keep, c.keepBytes)
			if err != nil {
				t.Fatal(err)
			}
			first, last := l.bounds()
			slack := int64(0)
			if c.keepBytes == 3<<20 {
				slack = 3 // sizes are known in steps of three such entries
			}
			if d := int64(first) - int64(c.wantFirst); d < -slack || d > slack || last != c.entries {
				t.Errorf("log begins at %d, want %d", first, c.wantFirst)
			}
			if deleted != first-1 {
				t.Errorf("%d deleted, log begins at %d", deleted, first)
			}
			if left := l.bytes(); left != total.Load() || left > int64(last-first+5)*(101<<10) {
				t.Errorf("size of %d entries: %d, total %d", last-first+1, left, total.Load())
			}
			var out raft.Log
			if err := l.GetLog(first, &out); err != nil {
				t.Error(err)
			}
		})
	}
}
