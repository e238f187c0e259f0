package catalog

import (
	"encoding/hex"
	"errors"
	"flag"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
)

var writeGolden = flag.Bool("write-golden", false, "write missing golden files; existing ones are never changed")

// The bytes of format 2. If this test fails, nodes cannot read what others or they
// themselves wrote before: raise the format instead of changing the golden file.
func TestTheFormatIsFrozen(t *testing.T) {
	for name, got := range map[string][]byte{
		"map.v2": sample().Encode(), "delta.v2": sample().Since(850).Encode(), "commands.v2": goldenCommands(t), "rows.v2": goldenRows(t),
	} {
		path := filepath.Join("testdata", name)
		text := hex.Dump(got)
		golden, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) && *writeGolden {
			golden, err = []byte(text), os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if text != string(golden) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, text, golden)
		}
	}
}

// goldenBytes reads a file of hex.Dump.
func goldenBytes(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range strings.Lines(string(text)) {
		fields, _, _ := strings.Cut(line[8:], "|")
		b, err := hex.DecodeString(strings.Join(strings.Fields(fields), ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// What format 1 wrote is read: its nodes and its cluster are of the first level.
func TestFormatOneIsRead(t *testing.T) {
	want := sample()
	want.Level = 1
	for i := range want.Nodes {
		want.Nodes[i].Level = 1
	}
	m, err := DecodeMap(goldenBytes(t, "map.v1"))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, m, want)

	d, err := DecodeDelta(goldenBytes(t, "delta.v1"))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, d, want.Since(850))

	edits := goldenEdits()
	for i, rest := 0, goldenBytes(t, "commands.v1"); len(rest) > 0; i++ {
		n := int(rest[0])
		if i == 0 {
			n += 256 // the first is longer than its one byte says
		}
		_, got, err := ParseCommand(rest[1 : 1+n])
		if err != nil {
			t.Fatalf("%T: %v", edits[i], err)
		}
		switch e := edits[i].(type) {
		case Found:
			edits[i] = Found{Map: firstOf(want)}
		case RegisterNode:
			e.Level = 1
			edits[i] = e
		}
		mustEqual(t, got, edits[i])
		rest = rest[1+n:]
	}

	store := kv.NewMem(nil)
	defer store.Close()
	b := store.NewBatch()
	defer b.Close()
	for rest := goldenBytes(t, "rows.v1"); len(rest) > 0; {
		key, more := rest[1:1+rest[0]], rest[1+rest[0]:]
		if err := b.Set(key, more[1:1+more[0]]); err != nil {
			t.Fatal(err)
		}
		rest = more[1+more[0]:]
	}
	if err := b.Commit(kv.Sync); err != nil {
		t.Fatal(err)
	}
	if m, err = load(store); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, m, want)
}

// goldenEdits has one of each kind.
func goldenEdits() []Edit {
	return []Edit{
		Found{Map: firstOf(sample())},
		RegisterNode{ID: "a", Incarnation: 1, PeerAddr: "p:1", GRPCAddr: "g:2", Gateway: true, Storage: true, Zone: "z", Level: 2},
		SetNodeState{ID: "a", State: Draining},
		SetReplicas{Shard: 1, Replicas: []Replica{{Node: "a", ID: ReplicaID("a", 5)}, {Node: "b"}}},
		NameReplica{Shard: CatalogShard, Node: "a", ID: ReplicaID("a", 7)},
		BeginMove{Shard: 300, From: "a", To: "b"},
		FinishMove{Shard: 300},
		CancelMove{Shard: 300},
		SetSchema{Text: []byte("text")},
		SetReplication{Copies: 5},
		SplitShard{Shard: 1, At: 3000, New: 70000},
		RaiseLevel{Level: 3},
	}
}

func goldenCommands(t *testing.T) []byte {
	var all []byte
	for i, e := range goldenEdits() {
		b := mustCommand(t, uint64(i*100), e)
		expected, got, err := ParseCommand(b)
		if err != nil || expected != uint64(i*100) {
			t.Fatalf("%T: %d, %v", e, expected, err)
		}
		mustEqual(t, got, e)
		all = append(append(all, byte(len(b))), b...)
	}
	return all
}

func mustCommand(t testing.TB, expected uint64, e Edit) []byte {
	t.Helper()
	b, err := Command(expected, e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func goldenRows(t *testing.T) []byte {
	store := kv.NewMem(nil)
	defer store.Close()
	w := newWorking(*sample())
	w.all()
	b := store.NewBatch()
	defer b.Close()
	if err := errors.Join(w.cut(b), b.Commit(kv.Sync)); err != nil {
		t.Fatal(err)
	}
	var all []byte
	each(t, store, func(key, value []byte) {
		all = append(append(all, byte(len(key))), key...)
		all = append(append(all, byte(len(value))), value...)
	})
	m, err := load(store)
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, m, sample())
	return all
}

func each(t *testing.T, r kv.Reader, f func(key, value []byte)) {
	t.Helper()
	it, err := r.NewIter(kv.Span{})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.Value()
		if err != nil {
			t.Fatal(err)
		}
		f(it.Key(), v)
	}
}

func TestCommandRefusesWhatCannotBeApplied(t *testing.T) {
	for _, e := range []Edit{
		Found{}, Found{Map: &Map{Version: 1}},
		RegisterNode{}, RegisterNode{ID: strings.Repeat("x", 65)}, RegisterNode{ID: "a", Zone: strings.Repeat("x", 65)},
		SetNodeState{ID: "a", State: 9}, SetReplicas{Replicas: []Replica{{Node: "a", ID: "a-1"}}}, SetReplicas{Replicas: make([]Replica, 8)},
		NameReplica{Node: "a", ID: "b-0000000000000001"}, SetReplication{Copies: -1}, SetReplication{Copies: 8},
		SetSchema{Text: make([]byte, MaxSchema+1)}, SplitShard{At: 4096},
	} {
		if _, err := Command(1, e); !errors.Is(err, ErrRefused) {
			t.Errorf("%T: %v", e, err)
		}
	}
}

// One document has one encoding, so that equal maps have equal bytes.
func TestOtherEncodingsAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"a number of two bytes that needs one": {1, byte(kindSetReplication), 0, 0x85, 0x00},
		"an id in full that was met before":    {1, byte(kindBeginMove), 0, 5, 1, 0, 1, 'a', 1, 0, 1, 'a'},
		"an id by a number not given yet":      {1, byte(kindBeginMove), 0, 5, 1, 0, 1, 'a', 1, 2},
		"a flag that is neither 0 nor 1":       {1, byte(kindBeginMove), 0, 5, 2, 0, 1, 'a', 0},
	} {
		if _, e, err := ParseCommand(b); !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	good := []byte{1, byte(kindBeginMove), 0, 5, 1, 0, 1, 'a', 1, 0, 1, 'b'}
	if _, _, err := ParseCommand(good); err != nil {
		t.Error(err)
	}
}

func TestDeltasAddUpToTheMap(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	h := newHistory(t, rng)
	for range 400 {
		h.step()
	}
	last := h.maps[len(h.maps)-1]
	if last.Version < 200 {
		t.Fatalf("only %d edits changed the map", last.Version)
	}
	for range 300 {
		i := rng.Intn(len(h.maps))
		j := i + rng.Intn(len(h.maps)-i)
		base := h.maps[rng.Intn(i+1)].Version // older than what it is added to
		d, err := DecodeDelta(h.maps[j].Since(base).Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := h.maps[i].Advance(d)
		if err != nil {
			t.Fatalf("from %d, delta since %d to %d: %v", h.maps[i].Version, base, h.maps[j].Version, err)
		}
		mustEqual(t, got.Encode(), h.maps[j].Encode())
	}
	if n, whole := len(last.Since(last.Version-1).Encode()), len(last.Encode()); n*3 > whole {
		t.Errorf("a delta of one edit has %d bytes, the map %d", n, whole)
	}
}

func TestDeltasOfOthersAreRefused(t *testing.T) {
	m := sample()
	other := *m
	other.ClusterID = "another"
	restored := *m
	restored.Timeline++
	for _, d := range []Delta{other.Since(0), restored.Since(0)} {
		if _, err := m.Advance(d); !errors.Is(err, ErrForeign) {
			t.Error(err)
		}
	}
	later := *m
	later.Version = 1000
	if _, err := m.Advance(later.Since(950)); !errors.Is(err, ErrGap) {
		t.Error(err)
	}
	older := *m
	older.Version = 899
	if got, err := m.Advance(older.Since(0)); got != m || err != nil {
		t.Error(got, err)
	}
	broken := later
	broken.Shards = broken.Shards[1:]
	if _, err := m.Advance(broken.Since(0)); err == nil {
		t.Error("a map with a hole was taken")
	}
	if _, err := DecodeMap(m.Since(850).Encode()); !errors.Is(err, kv.ErrCorruption) {
		t.Errorf("a delta was taken for a map: %v", err)
	}
}

func fuzzDecoder(f *testing.F, seeds [][]byte, decode func(b []byte) (encoded []byte, err error)) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again, err := decode(b)
		if err != nil {
			if !errors.Is(err, kv.ErrCorruption) {
				t.Fatalf("%v", err)
			}
			return
		}
		if len(b) > 0 && b[0] < formatVersion {
			b = again // what is read of an older format is written in this one
			again, err = decode(b)
		}
		if err != nil || !slices.Equal(again, b) {
			t.Fatalf("%x\nbecomes %x, %v", b, again, err)
		}
	})
}

// What a decoder takes has one encoding, and is a sound map.
func FuzzDecodeMap(f *testing.F) {
	fuzzDecoder(f, [][]byte{sample().Encode(), firstOf(sample()).Encode(), (&Map{}).Encode()}, func(b []byte) ([]byte, error) {
		m, err := DecodeMap(b)
		if err != nil {
			return nil, err
		}
		return m.Encode(), m.Validate()
	})
}

func FuzzDecodeDelta(f *testing.F) {
	fuzzDecoder(f, [][]byte{sample().Since(0).Encode(), sample().Since(850).Encode(), sample().Since(899).Encode()}, func(b []byte) ([]byte, error) {
		d, err := DecodeDelta(b)
		if err != nil {
			return nil, err
		}
		if m, err := sample().Advance(d); err == nil {
			return d.Encode(), m.Validate()
		}
		return d.Encode(), nil
	})
}

// Whatever commands parse, they are answered, leave a sound map, and have one encoding.
func FuzzParseCommand(f *testing.F) {
	var seeds [][]byte
	for _, e := range goldenEdits() {
		seeds = append(seeds, mustCommand(f, AnyVersion, e))
	}
	fuzzDecoder(f, seeds, func(b []byte) ([]byte, error) {
		expected, edit, err := ParseCommand(b)
		if err != nil {
			return nil, err
		}
		w := newWorking(*sample())
		_, _ = w.apply(expected, edit)
		if err := w.m.Validate(); err != nil {
			return nil, err
		}
		return Command(expected, edit)
	})
}

// What nodes are sent and keep, at the size of the simulator: 1,000 nodes, 4,096
// shards of three copies.
func TestABigMapIsSmall(t *testing.T) {
	nodes := makeNodes(1000, zonesOf(3))
	for i := range nodes {
		nodes[i].ID = "00112233-4455-4677-8899-aabbcc" + nodes[i].ID[:1] + "0" + nodes[i].ID[1:]
		nodes[i].PeerAddr, nodes[i].GRPCAddr = "10.100.200.30:7403", "10.100.200.30:7400"
	}
	s := newSimulation(t, nodes, 4096, 3)
	for i := range s.w.m.Shards {
		for k := range s.w.m.Shards[i].Replicas {
			r := &s.w.m.Shards[i].Replicas[k]
			r.ID = ReplicaID(r.Node, uint64(i))
		}
	}
	whole := s.w.published()
	step := MakePlan(whole, Situation{Dead: set(nodes[0].ID)}).Steps[0]
	s.begin(step)
	m := s.w.published()
	b := whole.Encode()
	one := m.Since(whole.Version).Encode()
	t.Logf("map: %d bytes; delta of a move begun and named: %d bytes", len(b), len(one))
	if len(b) > 256<<10 || len(one) > 400 {
		t.Errorf("%d and %d bytes", len(b), len(one))
	}
	got, err := DecodeMap(b)
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, got, whole)
}

func BenchmarkMap(b *testing.B) {
	m := newSimulation(b, makeNodes(1000, zonesOf(3)), 4096, 3).w.published()
	encoded := m.Encode()
	b.Run("Encode", func(b *testing.B) {
		for b.Loop() {
			m.Encode()
		}
	})
	b.Run("Decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := DecodeMap(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Edit", func(b *testing.B) { // and publish
		w := newWorking(*m)
		for i := 0; b.Loop(); i++ {
			if _, err := w.apply(AnyVersion, SetReplication{Copies: 1 + i%7}); err != nil {
				b.Fatal(err)
			}
			w.published()
		}
	})
	b.Run("Plan", func(b *testing.B) {
		sit := Situation{Dead: set("n0007")}
		for b.Loop() {
			MakePlan(m, sit)
		}
	})
	b.Run("Leaders", func(b *testing.B) {
		for b.Loop() {
			PreferredLeaders(m, Situation{})
		}
	})
}
