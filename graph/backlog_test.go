package graph

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// A leader that begins with a backlog knows its size, as one that has seen it grow, and
// so does the sender of a stream that a split has touched: admission does not forget what
// is owed (RULES B2).
func TestRuleB2_ABacklogIsKnownToWhoTakesOver(t *testing.T) {
	tn := newTown(t, func(_ int, c *Config) { c.MaxBacklogBytes, c.MaxBacklogAge = 2000, time.Hour })
	ctx, g := context.Background(), tn.nodes[0].g
	cut := func() error { return fmt.Errorf("cut off: %w", ErrUnreachable) }
	tn.fail.Store(&cut)
	like, src, n := tn.nodes[0].edgeType("like"), sourceOf(tn, 0), uint64(0)
	from := g.shardOf(SlotOf(Vertex{Type: 1, ID: src}))
	add := func() error {
		n++
		for g.shardOf(SlotOf(Vertex{Type: 2, ID: n})) != 1 {
			n++
		}
		_, _, err := g.Mutate(ctx, []Mutation{{Op: OpAdd, Type: like, Src: src, Dst: n}}, WaitForward)
		return err
	}
	owed := func() int {
		snd := g.sender(from, 1)
		if snd == nil {
			return 0
		}
		bytes, _ := snd.backlog()
		return bytes
	}
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = add()
	}
	if !errors.Is(err, ErrBacklogged) {
		t.Fatalf("with %d bytes owed: %v", owed(), err)
	}
	want, rows := owed(), g.Status()[0].OutboxPending
	m := g.members[from].Load().machine
	for what, do := range map[string]func(){
		"a new leader": func() {
			m.outbox.lead(false)
			m.outbox.lead(true)
		},
		"a stream that a split has touched": func() { m.outbox.renew(m.stream(1), m.routes.Load().n) },
	} {
		do()
		eventually(t, what+" knows what is owed", func() bool { return owed() == want && g.Status()[0].OutboxPending == rows })
		if err := add(); !errors.Is(err, ErrBacklogged) {
			t.Errorf("%s admits writes: %v", what, err)
		}
	}
	tn.fail.Store(nil)
	eventually(t, "nothing is owed", func() bool { return owed() == 0 && g.Status()[0].OutboxPending == 0 })
	must(t, add())
}
