package graph

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// across returns a user and a note that lie in different shards of w.
func across(w *world) (user, note uint64) {
	user, note = 1, 1
	for w.g.shardOf(SlotOf(Vertex{1, user})) == w.g.shardOf(SlotOf(Vertex{2, note})) {
		note++
	}
	return user, note
}

// CACHE.md T1: the token of a BOTH write covers both ends.
func TestTokenOfBothCoversBothEnds(t *testing.T) {
	w := newWorld(t, true, nil)
	user, note := across(w)
	_, text, err := w.g.Mutate(context.Background(), []Mutation{{Op: OpAdd, Type: 1, Src: user, Dst: note}}, WaitBoth)
	must(t, err)
	tok, err := ParseToken(text)
	must(t, err)
	if tok.position(SlotOf(Vertex{1, user})) == 0 || tok.position(SlotOf(Vertex{2, note})) == 0 || len(tok.Pending) != 0 {
		t.Errorf("token %+v", tok)
	}
	var n [1]uint64
	_, err = w.g.CountEdges(context.Background(), ReadOptions{Token: text}, []ListKey{{Vertex: Vertex{2, note}, Type: 1, Dir: In}}, AllTime(), n[:])
	must(t, err)
	if n[0] != 1 {
		t.Errorf("count %d under the token", n[0])
	}
}

// CACHE.md T2: the token of a FORWARD write makes a read of the other end wait
// for the delivery.
func TestTokenOfForwardWaitsForTheInverse(t *testing.T) {
	w := newWorld(t, true, nil)
	user, note := across(w)
	for i := range 200 {
		op := OpAdd
		if i%2 == 1 {
			op = OpDelete
		}
		_, text, err := w.g.Mutate(context.Background(), []Mutation{{Op: op, Type: 1, Src: user, Dst: note}}, WaitForward)
		must(t, err)
		tok, err := ParseToken(text)
		must(t, err)
		if len(tok.Pending) != 1 {
			t.Fatalf("token %+v: the inverse is pending", tok)
		}
		var n [1]uint64
		_, err = w.g.CountEdges(context.Background(), ReadOptions{Token: text}, []ListKey{{Vertex: Vertex{2, note}, Type: 1, Dir: In}}, AllTime(), n[:])
		must(t, err)
		if n[0] != uint64(1-i%2) {
			t.Fatalf("step %d: count %d under the token", i, n[0])
		}
	}
}

// CACHE.md T3: an answer with changed = false has a token too, of positions that
// a quiet slot has reached.
func TestTokenOfUnchangedIsReached(t *testing.T) {
	w := newWorld(t, true, nil)
	user, note := across(w)
	w.add(1, user, note, 5)
	for i := range uint64(20) {
		w.add(1, user+100+i, note+100, 5) // others move on
	}
	_, text, err := w.g.Mutate(context.Background(), []Mutation{{Op: OpAdd, Type: 1, Src: user, Dst: note}}, WaitBoth)
	must(t, err)
	tok, err := ParseToken(text)
	must(t, err)
	slot := SlotOf(Vertex{1, user})
	if p := tok.position(slot); p == 0 || p > w.g.lastOf(slot) {
		t.Errorf("position %d of slot %d, its last change is %d", p, slot, w.g.lastOf(slot))
	}
}

// CACHE.md T4: reads return tokens, and a token ahead of the shard waits and then fails.
func TestTokensOfReadsAndOfTheFuture(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.FreshWait = 50 * time.Millisecond })
	w.add(1, 1, 2, 5)
	ctx := context.Background()
	var has [1]bool
	text, err := w.g.HasEdges(ctx, ReadOptions{}, 1, []uint64{1}, []uint64{2}, has[:])
	must(t, err)
	tok, err := ParseToken(text)
	must(t, err)
	slot := SlotOf(Vertex{1, 1})
	if tok.position(slot) == 0 {
		t.Errorf("a read's token: %+v", tok)
	}
	tok.Seen[0].Pos += 1000
	_, err = w.g.HasEdges(ctx, ReadOptions{Token: tok.Encode()}, 1, []uint64{1}, []uint64{2}, has[:])
	if !errors.Is(err, ErrTooFresh) {
		t.Errorf("a token from the future: %v", err)
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() { // the shard catches up with it
		for from := range uint64(15) {
			var ms []Mutation
			for i := range uint64(100) {
				ms = append(ms, Mutation{Op: OpAdd, Type: 1, Src: 1, Dst: from*100 + i + 10})
			}
			_, _, _ = w.g.Mutate(context.Background(), ms, WaitForward)
		}
	})
	w.g.cfg.FreshWait = 20 * time.Second
	if _, err = w.g.HasEdges(ctx, ReadOptions{Token: tok.Encode()}, 1, []uint64{1}, []uint64{2}, has[:]); err != nil {
		t.Errorf("a token that the shard reaches: %v", err)
	}
	tok.Timeline++
	if _, err = w.g.HasEdges(ctx, ReadOptions{Token: tok.Encode()}, 1, []uint64{1}, []uint64{2}, has[:]); !errors.Is(err, ErrOldTimeline) {
		t.Errorf("a token of another timeline: %v", err)
	}
	text = tok.Encode()
	for _, bad := range []string{"x", text[:len(text)-2], "B" + text[1:], string(make([]byte, 1<<16))} {
		var inv *InvalidError
		if _, err = w.g.HasEdges(ctx, ReadOptions{Token: bad}, 1, []uint64{1}, []uint64{2}, has[:]); !errors.As(err, &inv) {
			t.Errorf("token %.20q: %v", bad, err)
		}
	}
}

// A token has room for 32 slots; past that it asks for linearizable reads.
func TestTokenOverflowAsksForLinearizableReads(t *testing.T) {
	w := newWorld(t, true, nil)
	var ms []Mutation
	for i := range uint64(200) {
		ms = append(ms, Mutation{Op: OpAdd, Type: 1, Src: i + 1, Dst: i + 1000})
	}
	_, text, err := w.g.Mutate(context.Background(), ms, WaitBoth)
	must(t, err)
	tok, err := ParseToken(text)
	must(t, err)
	if !tok.Others || len(tok.Seen) > maxTokenSlots {
		t.Fatalf("token %+v", tok)
	}
	before := w.g.Status()
	var has [1]bool
	for i := range uint64(200) {
		_, err = w.g.HasEdges(context.Background(), ReadOptions{Token: text}, 1, []uint64{i + 1}, []uint64{i + 1000}, has[:])
		must(t, err)
		if !has[0] {
			t.Fatalf("edge of %d is not seen", i+1)
		}
	}
	rounds := uint64(0)
	for i, st := range w.g.Status() {
		rounds += st.Raft.Rounds - before[i].Raft.Rounds
	}
	if rounds == 0 {
		t.Error("no read confirmed leadership")
	}
}

func TestLinearizableReadsSeeAcknowledgedWrites(t *testing.T) {
	w := newWorld(t, true, nil)
	var has [1]bool
	for i := range uint64(50) {
		w.add(1, 1, i+1, 5)
		_, err := w.g.HasEdges(context.Background(), ReadOptions{Level: Linearizable}, 1, []uint64{1}, []uint64{i + 1}, has[:])
		must(t, err)
		if !has[0] {
			t.Fatalf("edge %d is not seen", i+1)
		}
	}
}

// Positions go on after a restart, so tokens from before it still hold.
func TestTokensHoldAcrossARestart(t *testing.T) {
	w := newWorld(t, false, nil)
	user, note := across(w)
	_, text, err := w.g.Mutate(context.Background(), []Mutation{{Op: OpAdd, Type: 1, Src: user, Dst: note}}, WaitForward)
	must(t, err)
	w.reopen()
	var n [1]uint64
	_, err = w.g.CountEdges(context.Background(), ReadOptions{Token: text}, []ListKey{{Vertex: Vertex{2, note}, Type: 1, Dir: In}}, AllTime(), n[:])
	must(t, err)
	if n[0] != 1 {
		t.Errorf("count %d", n[0])
	}
}

func TestSchemaGrowsAndNeverShrinks(t *testing.T) {
	base := `
vertices: [{name: user, id: 1, metrics: [{name: score, id: 1, max: 10}]}, {name: note, id: 2}]
edges: [{name: like, id: 1, from: user, to: note}]
`
	parse := func(text string) *Schema {
		t.Helper()
		s, err := ParseSchema([]byte(text))
		must(t, err)
		return s
	}
	w := newWorld(t, false, func(c *Config) { c.Schema = parse(base) })
	w.add(1, 1, 2, 5)
	res, _, err := w.g.IncrBy(context.Background(), []Increment{{Counter: CounterRef{Vertex: Vertex{1, 1}, Metric: 1}, Delta: 11}}, "")
	must(t, err)
	if res[0].Changed || res[0].Err != nil {
		t.Errorf("past the metric's cap: %+v", res[0])
	}
	w.cfg.Schema = parse(base)
	w.reopen()
	if v := w.g.Schema().Version; v != 1 {
		t.Errorf("the same schema again made version %d", v)
	}
	w.cfg.Schema = parse(`
vertices: [{name: user, id: 1, metrics: [{name: score, id: 1, max: 20}]}, {name: note, id: 2}]
edges: [{name: like, id: 1, from: user, to: note}, {name: follow, id: 2, from: user, to: user}]
`)
	w.reopen()
	if v := w.g.Schema().Version; v != 2 {
		t.Errorf("a larger schema made version %d", v)
	}
	w.add(2, 1, 3, 5)
	w.cfg.Schema = nil
	w.reopen()
	if _, ok := w.g.Schema().EdgeType("follow"); !ok || !w.has(2, 1, 3) {
		t.Error("the stored schema is not kept")
	}
	w.close()
	for _, bad := range []string{
		base,
		`{vertices: [{name: user, id: 1}, {name: note, id: 2}], edges: [{name: like, id: 1, from: user, to: user}, {name: follow, id: 2, from: user, to: user}]}`,
	} {
		w.cfg.Schema = parse(bad)
		if err := w.tryOpen(); !errors.Is(err, ErrSchema) {
			t.Errorf("schema %q: %v", bad, err)
		}
	}
	w.cfg.Schema = nil
}

func TestBadSchemasAreRefused(t *testing.T) {
	for i, text := range []string{
		"", "a: 1", "vertices: []", "vertices: [{name: user, id: 1}]\nedges: [{name: like, id: 1, from: user, to: note}]",
		"vertices: [{name: User, id: 1}]\nedges: [{name: like, id: 1, from: User, to: User}]",
		"vertices: [{name: user, id: 0}]\nedges: [{name: like, id: 1, from: user, to: user}]",
		"vertices: [{name: user, id: 1, colour: red}]\nedges: [{name: like, id: 1, from: user, to: user}]",
		"vertices: [{name: user, id: 1}, {name: user, id: 2}]\nedges: [{name: like, id: 1, from: user, to: user}]",
		"vertices: [{name: user, id: 1, ids: thick}]\nedges: [{name: like, id: 1, from: user, to: user}]",
		"vertices: [{name: user, id: 1, metrics: [{name: m, id: 65}]}]\nedges: [{name: like, id: 1, from: user, to: user}]",
		"vertices: [{name: user, id: 1, metrics: [{name: m, id: 1, derived: {sum: like, over: like}}]}]\nedges: [{name: like, id: 1, from: user, to: user}]",
	} {
		if _, err := ParseSchema([]byte(text)); !errors.Is(err, ErrSchema) {
			t.Errorf("schema %d: %v", i, err)
		}
	}
	if s, err := ParseSchema([]byte(DefaultSchema().YAML())); err != nil || fmt.Sprint(s.YAML()) != DefaultSchema().YAML() {
		t.Errorf("the default schema does not come back: %v", err)
	}
}
