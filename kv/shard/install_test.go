package shard

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// copyOf sends the state of a shard to another machine as Raft does, with the bytes
// changed by change.
func copyOf(t *testing.T, from *fsm, to *fsm, change func([]byte) []byte) error {
	t.Helper()
	sender, receiver := snapshotsOf(from), snapshotsOf(to)
	meta, r, err := sender.Open(snapshotID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	near, b := newPipe(t)
	a := newEager(near)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer a.Close()
	wg.Go(func() {
		_ = to.receive(b, func() uint64 { return meta.Term }) // the sender hears why not
		b.Close()
	})
	ticket, err := r.(*outgoing).send(&changing{Conn: a, change: change}, meta.Term)
	if err != nil {
		return err
	}
	sink, err := receiver.Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(ticket.encode()); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	got, in, err := receiver.Open(sink.ID())
	if err != nil || got.Index != meta.Index || got.Size != int64(len(ticket.encode())) {
		t.Fatalf("%+v, %v", got, err)
	}
	return to.Restore(in)
}

// eager lets its writer go on before what it wrote is read, as a socket does: who refuses
// a state in its middle does not read the rest of it.
type eager struct {
	net.Conn
	rest chan []byte
	end  chan struct{}
	once sync.Once
}

func newEager(c net.Conn) *eager {
	e := &eager{Conn: c, rest: make(chan []byte, 64), end: make(chan struct{})}
	go func() {
		for {
			select {
			case b := <-e.rest:
				_, _ = c.Write(b) // who is to read it may be gone
			case <-e.end:
				return
			}
		}
	}()
	return e
}

func (e *eager) Write(b []byte) (int, error) {
	select {
	case <-e.end:
		return 0, net.ErrClosed
	case e.rest <- bytes.Clone(b):
		return len(b), nil
	}
}

func (e *eager) Close() error {
	e.once.Do(func() { close(e.end) })
	return e.Conn.Close()
}

// changing changes the first block of rows.
type changing struct {
	net.Conn
	writes int
	change func([]byte) []byte
}

func (c *changing) Write(b []byte) (int, error) {
	if c.writes++; c.writes != 2 || c.change == nil {
		return c.Conn.Write(b)
	}
	changed := c.change(bytes.Clone(b))
	n, err := c.Conn.Write(changed)
	if len(changed) < len(b) && err == nil {
		err = c.Close()
	}
	return n, err
}

func snapshotsOf(s *fsm) *snapshots {
	return &snapshots{fsm: s, pins: new(pins), behind: func() bool { return false }}
}

func filled(t *testing.T, entries uint64) (*fsm, *sums) {
	s, m := testFSM(t, kv.NewMem(nil))
	s.ApplyBatch([]*raft.Log{configLog(1, 1, "x", "y")})
	for i := uint64(2); i <= entries; i++ {
		s.ApplyBatch([]*raft.Log{commandLog(i, 1, names(7)[i%7])})
	}
	return s, m
}

func TestRuleA6_AnInstalledStateIsThatOfItsSender(t *testing.T) {
	from, want := filled(t, 40)
	to, got := filled(t, 9)
	installs := []installedRow{}
	to.installed = func(r installedRow) error { installs = append(installs, r); return nil }
	if err := copyOf(t, from, to, nil); err != nil {
		t.Fatal(err)
	}
	if to.applied.index != 40 || !maps.Equal(got.values, want.values) || !maps.Equal(got.published, want.values) {
		t.Fatalf("applied %d, %v; want %v", to.applied.index, got.values, want.values)
	}
	if !bytes.Equal(to.applied.encode(), from.applied.encode()) {
		t.Errorf("position %+v, want %+v", to.applied, from.applied)
	}
	if len(installs) != 1 || installs[0] != (installedRow{40, 1}) {
		t.Errorf("installs %v", installs)
	}
	if row, err := readInstalled(to.store, 1); err != nil || row != (installedRow{40, 1}) {
		t.Errorf("installed row %v, %v", row, err)
	}
	// The next entry goes on from there, and a restart too.
	to.ApplyBatch([]*raft.Log{commandLog(41, 1, "c0")})
	again, m := testFSM(t, to.store)
	if again.applied.index != 41 || m.values["c0"] != want.values["c0"]+1 {
		t.Errorf("after a restart: applied %d, %v", again.applied.index, m.values)
	}
}

// RULES 4: a late snapshot must not take the state back.
func TestRuleA5_ALateSnapshotIsRefused(t *testing.T) {
	from, _ := filled(t, 20)
	to, m := filled(t, 30)
	before := maps.Clone(m.values)
	to.installed = func(installedRow) error { t.Error("installed"); return nil }
	if err := copyOf(t, from, to, nil); err == nil {
		t.Error("taken")
	}
	same, _ := filled(t, 30)
	if err := copyOf(t, same, to, nil); err != nil {
		t.Errorf("one as old as the state: %v", err)
	}
	if to.applied.index != 30 || !maps.Equal(m.values, before) || to.fault.get() != nil {
		t.Errorf("applied %d, %v, %v", to.applied.index, m.values, to.fault.get())
	}
}

func TestDamagedSnapshotsChangeNothing(t *testing.T) {
	from, _ := filled(t, 40)
	for name, change := range map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)-9] },
		"altered": func(b []byte) []byte { b[len(b)-12] ^= 1; return b },
		"empty":   func(b []byte) []byte { return b[:1] },
	} {
		to, m := filled(t, 9)
		before := maps.Clone(m.values)
		if err := copyOf(t, from, to, change); err == nil {
			t.Errorf("%s: taken", name)
		}
		if to.applied.index != 9 || !maps.Equal(m.values, before) || to.fault.get() != nil {
			t.Errorf("%s: applied %d, fault %v", name, to.applied.index, to.fault.get())
		}
		if reread, _ := testFSM(t, to.store); reread.applied.index != 9 {
			t.Errorf("%s: the store stands at %d", name, reread.applied.index)
		}
	}
}

// picky is a sums that does not know the counters c5.
type picky struct{ *sums }

func (picky) Reads(key []byte) error {
	if bytes.HasSuffix(key, []byte("c5")) {
		return kv.Corruptionf("counter %q", key)
	}
	return nil
}

// CASES 46: a state with a row in its middle that this program cannot read is refused as
// a whole, and the shard stops here and says why. One without is taken.
func TestCase46_AStateWithUnknownRowsIsRefusedAndMarked(t *testing.T) {
	from, want := filled(t, 40)
	to, m := filled(t, 3)
	to.machine = picky{m}
	before := maps.Clone(m.values)
	err := copyOf(t, from, to, nil)
	if !errors.Is(err, errTransfer) || !strings.Contains(err.Error(), "cannot read") {
		t.Errorf("the sender hears %v", err)
	}
	if to.applied.index != 3 || !maps.Equal(m.values, before) {
		t.Errorf("applied %d, %v", to.applied.index, m.values)
	}
	if err := to.fault.get(); !errors.Is(err, errUnknownRow) || !errors.Is(err, kv.ErrCorruption) {
		t.Errorf("fault %v", err)
	}
	again, m := testFSM(t, to.store) // a program that knows them goes on
	if again.applied.index != 3 || !maps.Equal(m.values, before) {
		t.Fatalf("after a restart: applied %d, %v", again.applied.index, m.values)
	}
	again.installed = func(installedRow) error { return nil }
	if err := copyOf(t, from, again, nil); err != nil || !maps.Equal(m.values, want.values) {
		t.Errorf("%v, %v", err, m.values)
	}
}

// RULES 2: what a log holds of another branch, behind or past a snapshot, is void.
func TestRuleA4_AStaleLogIsDiscarded(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, last uint64
		term        uint64
		discarded   bool
	}{
		{"nothing", 0, 0, 1, false},
		{"what follows", 41, 45, 2, false},
		{"the same branch", 30, 45, 2, false},
		{"another branch", 30, 45, 1, true},
		{"another branch that ends before", 30, 35, 2, true},
	} {
		l, _ := openTestLog(t, kv.NewMem(nil))
		for i := c.first; i > 0 && i <= c.last; i++ {
			if err := l.StoreLog(&raft.Log{Index: i, Term: c.term, Type: raft.LogCommand}); err != nil {
				t.Fatal(err)
			}
		}
		got, _, err := l.discardStale(installedRow{40, 2})
		if err != nil || got != c.discarded {
			t.Errorf("%s: discarded %v, %v", c.name, got, err)
		}
		if _, last := l.bounds(); (last == 0) != (c.discarded || c.last == 0) {
			t.Errorf("%s: the log ends at %d", c.name, last)
		}
	}
}
