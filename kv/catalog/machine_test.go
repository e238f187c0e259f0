package catalog

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// history applies random edits through a machine.
type history struct {
	t       *testing.T
	rng     *rand.Rand
	store   *kv.Mem
	machine *Machine
	entry   shard.Entry // the last one applied
	maps    []*Map      // every one published
	taken   int
	refused map[string]int
}

func newHistory(t *testing.T, rng *rand.Rand) *history {
	h := &history{t: t, rng: rng, store: kv.NewMem(nil), refused: map[string]int{}}
	t.Cleanup(func() { h.store.Close() })
	h.machine = mustMachine(t, h.store)
	h.apply(mustCommand(t, 0, Found{Map: firstOf(sample())}))
	return h
}

func mustMachine(t *testing.T, store kv.Reader) *Machine {
	t.Helper()
	m, err := NewMachine(store)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// apply applies commands as one entry, cuts and publishes, as kv/shard does.
func (h *history) apply(cmds ...[]byte) []Result {
	h.t.Helper()
	h.entry.Index++
	h.entry.Commands = cmds
	results := applyTo(h.t, h.machine, h.store, h.entry)
	if m := h.machine.Board().Map(); len(h.maps) == 0 || m != h.maps[len(h.maps)-1] {
		h.maps = append(h.maps, m)
	}
	return results
}

func applyTo(t *testing.T, m *Machine, store kv.Store, e shard.Entry) []Result {
	t.Helper()
	answers, err := m.Apply(e)
	if err != nil {
		t.Fatal(err)
	}
	b := store.NewBatch()
	defer b.Close()
	if err := errors.Join(m.Cut(b), b.Commit(kv.NoSync)); err != nil {
		t.Fatal(err)
	}
	m.Publish(e.Index)
	results := make([]Result, len(answers))
	for i, a := range answers {
		results[i] = a.(Result)
	}
	return results
}

// step applies an entry of one to three random edits.
func (h *history) step() {
	h.t.Helper()
	var cmds [][]byte
	now := h.machine.Board().Map()
	for range 1 + h.rng.Intn(3) {
		expected := uint64(AnyVersion)
		if h.rng.Intn(3) == 0 {
			expected = now.Version - uint64(h.rng.Intn(int(now.Version)))
		}
		cmds = append(cmds, mustCommand(h.t, expected, randomEdit(h.rng, now)))
	}
	for _, r := range h.apply(cmds...) {
		if r.Err == nil {
			h.taken++
			continue
		}
		if r.Changed {
			h.t.Fatalf("refused and changed: %+v", r)
		}
		for _, reason := range []error{ErrStale, ErrUnfounded, ErrUnknown, ErrRefused, ErrWiped, ErrRemoved} {
			if errors.Is(r.Err, reason) {
				h.refused[reason.Error()]++
			}
		}
	}
	if err := h.machine.Board().Map().Validate(); err != nil {
		h.t.Fatal(err)
	}
}

func randomEdit(rng *rand.Rand, m *Map) Edit {
	node := func() string { return fmt.Sprintf("n%d", rng.Intn(12)) }
	if rng.Intn(2) == 0 {
		node = func() string { return m.Nodes[rng.Intn(len(m.Nodes))].ID }
	}
	s := m.Shards[rng.Intn(len(m.Shards))]
	if rng.Intn(8) == 0 {
		s = m.Catalog
	}
	held := s.Replicas[rng.Intn(len(s.Replicas))].Node
	switch rng.Intn(13) {
	case 12:
		return RaiseLevel{Level: uint32(rng.Intn(3))}
	case 0, 1:
		return RegisterNode{
			ID: node(), Incarnation: uint64(rng.Intn(3)), PeerAddr: fmt.Sprint(rng.Intn(9)), Storage: rng.Intn(9) > 0, Gateway: rng.Intn(2) > 0,
			Level: uint32(2 + rng.Intn(9)),
		}
	case 2:
		return SetNodeState{ID: node(), State: NodeState(rng.Intn(5))}
	case 3:
		return SetReplicas{Shard: s.ID, Replicas: []Replica{{Node: node()}, {Node: node()}}}
	case 4, 5:
		n := held
		if s.Moving != nil && s.Moving.To != "" {
			n = s.Moving.To
		}
		return NameReplica{Shard: s.ID, Node: n, ID: ReplicaID(n, uint64(rng.Intn(2)))}
	case 6, 7:
		move := BeginMove{Shard: s.ID, From: held, To: node()}
		if rng.Intn(4) == 0 {
			move.From = ""
		} else if rng.Intn(4) == 0 {
			move.To = ""
		}
		return move
	case 8:
		return FinishMove{Shard: s.ID}
	case 9:
		return CancelMove{Shard: s.ID}
	case 10:
		if rng.Intn(2) == 0 {
			return SetSchema{Text: []byte(fmt.Sprint(rng.Intn(3)))}
		}
		return SetReplication{Copies: rng.Intn(MaxReplication + 1)}
	}
	return SplitShard{Shard: s.ID, At: uint16(rng.Intn(NumSlots)), New: uint32(rng.Intn(40))}
}

func TestRandomEditsKeepTheMapSoundAndTheStoreEqual(t *testing.T) {
	refused := map[string]int{}
	for seed := range int64(20) {
		h := newHistory(t, rand.New(rand.NewSource(seed)))
		twinStore := kv.NewMem(nil)
		twin := mustMachine(t, twinStore)
		applyTo(t, twin, twinStore, h.entry)
		for i := range 150 {
			h.step()
			applyTo(t, twin, twinStore, h.entry) // a replica that applies the same entries
			if i%10 == 0 {
				mustEqual(t, mustMachine(t, h.store).Board().Map().Encode(), h.machine.Board().Map().Encode())
			}
		}
		mustEqual(t, twin.Board().Map().Encode(), h.machine.Board().Map().Encode())
		mustEqual(t, dump(t, twinStore), dump(t, h.store))
		for reason, n := range h.refused {
			refused[reason] += n
		}
	}
	t.Log(refused)
	for _, reason := range []error{ErrStale, ErrUnknown, ErrRefused, ErrWiped, ErrRemoved} {
		if refused[reason.Error()] == 0 {
			t.Errorf("nothing was refused because: %v", reason)
		}
	}
}

func dump(t *testing.T, r kv.Reader) (rows []string) {
	each(t, r, func(k, v []byte) { rows = append(rows, fmt.Sprintf("%x=%x", k, v)) })
	return rows
}

// Maps that readers hold are never changed under them.
func TestPublishedMapsStayAsTheyWere(t *testing.T) {
	h := newHistory(t, rand.New(rand.NewSource(9)))
	var want [][]byte
	for range 200 {
		h.step()
		for _, m := range h.maps[len(want):] {
			want = append(want, m.Encode())
		}
	}
	for i, m := range h.maps {
		mustEqual(t, m.Encode(), want[i])
	}
}

// A cut writes what was changed, not the whole map.
func TestACutHasTheChangedRowsOnly(t *testing.T) {
	h := newHistory(t, rand.New(rand.NewSource(1)))
	for e, want := range map[Edit]int{
		SetNodeState{ID: "d", State: Draining}:   2,
		SetReplication{Copies: 2}:                2,
		CancelMove{Shard: 1}:                     2,
		SplitShard{Shard: 9, At: 1500, New: 100}: 3,
		SetReplication{Copies: 0}:                0, // refused
	} {
		if _, err := h.machine.Apply(shard.Entry{Commands: [][]byte{mustCommand(t, AnyVersion, e)}}); err != nil {
			t.Fatal(err)
		}
		b := h.store.NewBatch()
		if err := h.machine.Cut(b); err != nil || b.Count() != want {
			t.Errorf("%T: %d rows, want %d; %v", e, b.Count(), want, err)
		}
		if err := errors.Join(b.Commit(kv.NoSync), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnknownCommandsStopTheMachine(t *testing.T) {
	h := newHistory(t, rand.New(rand.NewSource(1)))
	good := mustCommand(t, AnyVersion, SetReplication{Copies: 1})
	for _, bad := range [][]byte{{}, {2}, {1, 12, 0}, append(slices.Clone(good), 0), good[:len(good)-1]} {
		m := mustMachine(t, h.store)
		if _, err := m.Apply(shard.Entry{Index: 5, Commands: [][]byte{good, bad}}); !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("%x: %v", bad, err)
		}
		if _, err := m.Apply(shard.Entry{Index: 6, Commands: [][]byte{good}}); err == nil {
			t.Errorf("%x: the machine went on", bad)
		}
		b := h.store.NewBatch()
		if m.Cut(b) == nil {
			t.Errorf("%x: half an entry was cut", bad)
		}
		b.Close()
	}
}

func TestAMachineRestoresFromItsStore(t *testing.T) {
	h := newHistory(t, rand.New(rand.NewSource(1)))
	own := kv.NewMem(nil)
	defer own.Close()
	behind := mustMachine(t, own)
	if behind.Board().Map().Version != 0 {
		t.Fatal("an empty store has a map")
	}
	for range 20 {
		h.step()
	}
	behind.store = h.store // a snapshot of another replica was installed
	newer := behind.Board().Newer(0)
	if err := behind.Restore(); err != nil {
		t.Fatal(err)
	}
	behind.Publish(1)
	<-newer
	mustEqual(t, behind.Board().Map().Encode(), h.machine.Board().Map().Encode())
	behind.Lead(true)
	if !behind.Leading() {
		t.Error("Leading")
	}
}

func TestDamagedRowsAreCorruption(t *testing.T) {
	h := newHistory(t, rand.New(rand.NewSource(1)))
	rows := map[string][]byte{rowSpace + "z": nil}
	each(t, h.store, func(k, v []byte) { rows[string(k)] = slices.Clone(v) })
	for key, value := range rows {
		for _, bad := range [][]byte{{}, {9}, value[:max(0, len(value)-1)], append(slices.Clone(value), 1)} {
			if strings.HasPrefix(key, rowSchema) && len(bad) > 1 {
				continue // any text will do
			}
			store := h.store.AfterKill()
			b := store.NewBatch()
			if err := errors.Join(b.Set([]byte(key), bad), b.Commit(kv.NoSync), b.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := NewMachine(store); !errors.Is(err, kv.ErrCorruption) {
				t.Errorf("row %q = %x: %v", key, bad, err)
			}
			store.Close()
		}
	}
}

func TestALostRowIsCorruption(t *testing.T) {
	h := newHistory(t, rand.New(rand.NewSource(1)))
	each(t, h.store.AfterKill(), func(k, _ []byte) {
		if string(k) == rowHead || string(k) == string(nodeKey("d")) || string(k) == string(nodeKey("e")) {
			return // without its head the catalog is new; d holds nothing before its move, e nothing at all
		}
		store := h.store.AfterKill()
		defer store.Close()
		b := store.NewBatch()
		if err := errors.Join(b.Delete(k), b.Commit(kv.NoSync), b.Close()); err != nil {
			t.Fatal(err)
		}
		if m, err := NewMachine(store); err == nil {
			t.Errorf("without row %q: %+v", k, m.Board().Map())
		}
	})
}

func TestTheRowsLieInTheirOwnSpace(t *testing.T) {
	h := newHistory(t, rand.New(rand.NewSource(1)))
	each(t, h.store, func(k, _ []byte) {
		if k[0] != 0xff || k[1] != 0xf1 {
			t.Errorf("row %x", k)
		}
	})
}
