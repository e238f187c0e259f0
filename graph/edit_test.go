package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"testing"

	"github.com/lianadb/liana/kv/counter"
)

func TestEditsComeBackAsTheyWereEncoded(t *testing.T) {
	want := sampleEdits()
	cmd := encodeEdits(want, []int{2, 0, 1})
	d := decoder{b: cmd[1:]}
	if n := d.count(); n != 3 {
		t.Fatalf("%d edits", n)
	}
	for _, i := range []int{2, 0, 1} {
		if got := d.edit(); got != want[i] {
			t.Errorf("edit %+v, want %+v", got, want[i])
		}
	}
	must(t, d.done())
}

// An edit that this program does not know must stop the shard: another replica would apply it.
func TestUnknownEditsAreCorruption(t *testing.T) {
	good := CounterEdit{Counter: CounterRef{Key: "k"}, Kind: counter.Add, Value: 1}
	for name, change := range map[string]func([]byte){
		"kind": func(b []byte) { b[5] = byte(counter.Expire) + 1 }, "no kind": func(b []byte) { b[5] = 0 },
		"condition": func(b []byte) { b[6] = 0x80 }, "flag": func(b []byte) { b[7] = 2 },
	} {
		m := newTestMachine(t, 0, 1)
		cmd := encodeEdits([]CounterEdit{good}, []int{0})
		change(cmd)
		if _, err := applyCommands(m, 5, cmd); err == nil {
			t.Errorf("%s: applied", name)
		}
	}
}

func FuzzEdits(f *testing.F) {
	f.Add(encodeEdits(sampleEdits(), []int{0, 1, 2})[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		d := decoder{b: b}
		var es []CounterEdit
		var pick []int
		for n := d.count(); n > 0 && d.err == nil; n-- {
			pick, es = append(pick, len(es)), append(es, d.edit())
		}
		if d.done() != nil {
			return
		}
		back := decoder{b: encodeEdits(es, pick)[1:]}
		back.count()
		for i := range es {
			if got := back.edit(); got != es[i] {
				t.Fatalf("edit %+v, want %+v", got, es[i])
			}
		}
	})
}

func TestEditsAreRefusedWithTheFieldNamed(t *testing.T) {
	w := newWorld(t, true, nil)
	ok := CounterEdit{Counter: CounterRef{Key: "k"}, Kind: counter.Add, Value: 1}
	for field, bad := range map[string]CounterEdit{
		"edits[1].counter.metric": {Counter: CounterRef{Vertex: Vertex{2, 7}, Metric: 99}, Kind: counter.Look},
		"edits[1].kind":           {Counter: CounterRef{Key: "k"}, Kind: 9},
		"edits[1].expire_at":      {Counter: CounterRef{Key: "k"}, Kind: counter.Put, ExpireAt: -1},
		"edits[1].counter.key":    {Counter: CounterRef{Key: string(make([]byte, 513))}, Kind: counter.Look},
	} {
		_, err := w.g.EditCounters(context.Background(), []CounterEdit{ok, bad})
		var inv *InvalidError
		if !errors.As(err, &inv) || inv.Field != field {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	derived := CounterEdit{Counter: CounterRef{Vertex: Vertex{1, 7}, Metric: 1}, Kind: counter.Put, Value: 1}
	if _, err := w.g.EditCounters(context.Background(), []CounterEdit{ok, derived}); !errors.Is(err, ErrDerived) {
		t.Errorf("a derived metric: %v", err)
	}
	derived.Kind = counter.Look
	res, err := w.g.EditCounters(context.Background(), []CounterEdit{derived, ok})
	must(t, err)
	if res[0].Err != nil || res[0].Before.Exists || res[1].Value != 1 { // nothing before has counted
		t.Errorf("looking at a derived metric: %+v", res)
	}
}

// The same edits through the routers of two nodes with four shards leave the same counters as one after the other; and each sees those before it.
func TestEditsOfACallKeepTheirOrder(t *testing.T) {
	seed := rand.Int63()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewSource(seed))
	one := newWorld(t, true, func(c *Config) { c.Shards = 1 })
	town := newTown(t)
	kinds := []counter.EditKind{counter.Look, counter.Add, counter.Put, counter.Remove, counter.Expire}
	for round := range 60 {
		es := make([]CounterEdit, 1+rnd.Intn(40))
		for i := range es {
			es[i] = CounterEdit{
				Counter: CounterRef{Key: fmt.Sprint("k", rnd.Intn(8))}, Kind: kinds[rnd.Intn(len(kinds))],
				If: counter.Condition(rnd.Intn(2)) * counter.IfPresent, Value: int64(rnd.Intn(9)),
			}
		}
		together, err := town.routers[round%2].EditCounters(context.Background(), es)
		must(t, err)
		for i := range es {
			alone, err := one.g.EditCounters(context.Background(), es[i:i+1])
			must(t, err)
			if alone[0].Edited != together[i].Edited {
				t.Fatalf("edit %d, %+v: %+v together, %+v alone", i, es[i], together[i], alone[0])
			}
			if together[i].Changed && together[i].Pos == 0 {
				t.Fatalf("edit %d has no position", i)
			}
		}
	}
}

// What edits change is in the change log, once an entry and counter, with what it came to.
func TestEditsAreChanges(t *testing.T) {
	m := newTestMachine(t, 0, 1)
	before := m.pos
	res := m.mustApply(t, 5, encodeEdits([]CounterEdit{
		{Counter: CounterRef{Key: "a"}, Kind: counter.Add, Value: 1},
		{Counter: CounterRef{Key: "a"}, Kind: counter.Add, Value: 1},
		{Counter: CounterRef{Key: "b"}, Kind: counter.Look},
		{Counter: CounterRef{Key: "c"}, Kind: counter.Remove},
	}, []int{0, 1, 2, 3}))
	items := res[0].(*editsResult).items
	if len(items) != 4 || items[1].Before.Value != 1 || items[1].Value != 2 || items[3].Changed {
		t.Errorf("results %+v", items)
	}
	if m.pos != before+1 {
		t.Errorf("%d changes, want 1", m.pos-before)
	}
	row, err := m.cfg.Store.Get(nil, changeKey(nil, 0, m.pos))
	must(t, err)
	r := readRow(row)
	if !r.next() || r.rec.kind != recCounter || r.rec.key != "a" || r.rec.value != 2 || bytes.Contains(row, []byte("b")) {
		t.Errorf("change %+v", r.rec)
	}
}

func TestEditsWaitForTheClusterToKnowThem(t *testing.T) {
	w := newWorld(t, true, nil)
	known := false
	w.g.cfg.Edits = func() bool { return known }
	r := NewRouter(RouterConfig{Local: w.g, Self: "a", Replicas: func(uint32) []string { return []string{"a"} }})
	add := CounterEdit{Counter: CounterRef{Key: "k"}, Kind: counter.Add, Value: 2}
	put := CounterEdit{Counter: CounterRef{Key: "k"}, Kind: counter.Put, Value: 9}
	res, err := r.EditCounters(context.Background(), []CounterEdit{add, add})
	must(t, err)
	if res[1].Value != 4 || !res[1].Changed || res[1].Outcome != counter.Applied || res[1].Pos == 0 {
		t.Errorf("increments meanwhile: %+v", res)
	}
	if _, err := r.EditCounters(context.Background(), []CounterEdit{add, put}); !errors.Is(err, ErrOldProgram) {
		t.Errorf("other edits meanwhile: %v", err)
	}
	known = true
	res, err = r.EditCounters(context.Background(), []CounterEdit{add, put})
	must(t, err)
	if res[0].Value != 6 || res[1].Value != 9 {
		t.Errorf("edits: %+v", res)
	}
}

func TestSession(t *testing.T) {
	const timeline = 7
	s := NewSession(timeline)
	refs := make([]CounterRef, 100)
	for i := range refs {
		refs[i] = CounterRef{Key: fmt.Sprint("key", i)}
	}
	if got := s.TokenFor(refs); got != "" {
		t.Errorf("a new session asks for %q", got)
	}
	for i := range refs {
		s.Edited(&refs[i], &EditResult{Pos: uint64(i + 1)})
		s.Edited(&refs[i], &EditResult{Pos: 1})
	}
	tok, err := ParseToken(s.TokenFor(refs[40:42]))
	must(t, err)
	if tok.Others || len(tok.Seen) != 2 || tok.position(refs[41].Slot()) != 42 || tok.Timeline != timeline {
		t.Errorf("the token for two: %+v", tok)
	}
	if tok, err = ParseToken(s.Token()); err != nil || !tok.Others || len(tok.Seen) != maxTokenSlots {
		t.Errorf("the token of all: %+v, %v", tok, err)
	}
	if got := s.TokenFor([]CounterRef{{Key: "elsewhere"}}); got != "" {
		t.Errorf("a read of what it has not seen asks for %q", got)
	}
	other := NewSession(timeline)
	must(t, other.Join(s.Token()))
	if tok, err = ParseToken(other.TokenFor(refs[:1])); err != nil || !tok.Others {
		t.Errorf("after joining a token that had no room for all: %+v, %v", tok, err)
	}
	if err := NewSession(8).Join(s.Token()); !errors.Is(err, ErrOldTimeline) {
		t.Errorf("a token of another cluster: %v", err)
	}
	// A change whose position is not known: every read has to be sure.
	s = NewSession(timeline)
	s.Edited(&refs[0], &EditResult{Edited: counter.Edited{Changed: true}})
	if tok, err = ParseToken(s.TokenFor(refs[1:2])); err != nil || !tok.Others {
		t.Errorf("after a change without a position: %+v, %v", tok, err)
	}
}
