package graph

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
)

// inShard returns the n-th id, from 1, whose vertex of a type lies in a shard of two.
func inShard(t VertexType, shard uint32, n int) uint64 {
	for id := uint64(1); ; id++ {
		if uint32(SlotOf(Vertex{t, id}))*2/NumSlots == shard {
			if n--; n == 0 {
				return id
			}
		}
	}
}

// losing is a graph of two shards where shard 0 has sent records to shard 1, acknowledged
// and trimmed; then the stores are changed as if a shard had lost the end of its log.
func losing(t *testing.T, change func(w *world, cursor uint64) (key, row []byte)) *world {
	w := newWorld(t, true, func(c *Config) { c.Shards = 2 })
	like := w.edgeType("like")
	for i := range 20 {
		w.add(like, inShard(1, 0, i+1), inShard(2, 1, 1), int64(i+1))
	}
	var cursor uint64
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, cursor = w.streamRow(1, localStreamIn, 0)
		if _, trimmed := w.streamRow(0, localStreamOut, 1); trimmed == cursor {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the stream is not trimmed")
		}
	}
	w.close()
	key, row := change(w, cursor)
	b := w.state.NewBatch()
	defer b.Close()
	must(t, errors.Join(b.Set(key, row), b.Commit(kv.Sync)))
	w.open()
	return w
}

func (w *world) streamRow(shard uint32, family byte, peer uint32) (epoch, pos uint64) {
	w.t.Helper()
	row, err := w.state.Get(nil, streamKey(nil, shard, family, peer))
	if errors.Is(err, kv.ErrNotFound) {
		return 0, 1<<64 - 1
	}
	must(w.t, err)
	epoch, pos, err = decodeStream(row)
	must(w.t, err)
	return epoch, pos
}

func (w *world) recover(shard uint32) {
	w.t.Helper()
	g, err := w.g.Group(shard)
	must(w.t, err)
	_, err = g.Propose(context.Background(), RecoverCommand())
	must(w.t, err)
}

// tryAdd adds an edge from shard 0 to shard 1, and reports whether both ends have it in
// time.
func (w *world) tryAdd(n int) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	m := Mutation{Op: OpAdd, Type: w.edgeType("like"), Src: inShard(1, 0, n), Dst: inShard(2, 1, 2), Time: int64(n)}
	res, _, err := w.g.Mutate(ctx, []Mutation{m}, WaitBoth)
	if err != nil || res[0].Err != nil {
		w.t.Logf("edge %d: %v %+v", n, err, res)
		return false
	}
	l := ListKey{Vertex: Vertex{2, m.Dst}, Type: m.Type, Dir: In}
	for _, e := range w.list(ListQuery{List: l, PageSize: 100, Window: AllTime()}) {
		if e.Peer == m.Src {
			return true
		}
	}
	w.t.Logf("edge %d: acknowledged, and not there", n)
	return false
}

// RULES 17, B3: a receiver that was recovered lacks what its sender has trimmed. The
// stream goes on behind the gap; before it, nothing comes through.
func TestRule17_ARecoveredReceiverIsSentWhatComesNext(t *testing.T) {
	w := losing(t, func(w *world, cursor uint64) (key, row []byte) {
		epoch, _ := w.streamRow(1, localStreamIn, 0)
		return streamKey(nil, 1, localStreamIn, 0), encodeStream(epoch, cursor-5)
	})
	if w.tryAdd(30) {
		t.Fatal("a gap in a stream was passed over without a recovery")
	}
	w.recover(1)
	for n := range 5 {
		if !w.tryAdd(31 + n) {
			t.Fatal("the stream stands still")
		}
	}
	w.reopen()
	if !w.tryAdd(40) {
		t.Error("after a restart")
	}
}

// RULES 17: a sender that was recovered has forgotten records that its receiver has
// applied. New ones do not get their numbers, or they would be dropped silently.
func TestRule17_ARecoveredSenderGivesNoNumberTwice(t *testing.T) {
	forgotten := func(w *world, cursor uint64) (key, row []byte) {
		epoch, _ := w.streamRow(1, localStreamIn, 0)
		return streamKey(nil, 1, localStreamIn, 0), encodeStream(epoch, cursor+500)
	}
	w := losing(t, forgotten)
	if w.tryAdd(30) {
		t.Fatal("the schedule does not happen: what was given a number twice arrived")
	}
	w = losing(t, forgotten)
	w.recover(0)
	for n := range 5 {
		if !w.tryAdd(31 + n) {
			t.Fatal("a new record was dropped")
		}
	}
}

// RULES 24, B7: a delivery that needs a newer schema than its receiver has is refused
// before it comes into the log, and comes through once the receiver has it.
func TestRule24_ADeliveryWaitsForTheSchemaOfItsReceiver(t *testing.T) {
	w := newWorld(t, true, func(c *Config) { c.Shards = 2 })
	w.add(w.edgeType("like"), inShard(1, 0, 1), inShard(2, 1, 1), 1)
	g, err := w.g.Group(1)
	must(t, err)
	before := g.Status().Applied
	d := delivery{from: 0, after: 1 << 30, version: w.g.Schema().Version + 1}
	if _, err := w.g.Deliver(context.Background(), 1, d.encode()); err == nil || !strings.Contains(err.Error(), "of the schema yet") {
		t.Errorf("%v", err)
	}
	if _, _, err := w.g.deliver(context.Background(), 1, d.encode()); err == nil {
		t.Error("it was proposed on the same node")
	}
	if now := g.Status().Applied; now != before {
		t.Errorf("%d entries came into the log", now-before)
	}
	d.version--
	if _, err := w.g.Deliver(context.Background(), 1, d.encode()); err != nil {
		t.Errorf("the schema is there: %v", err)
	}
}

func TestTheSuccessorOfASchema(t *testing.T) {
	parse := func(text string) *Schema {
		s, err := ParseSchema([]byte("vertices: [{name: a, id: 1}]\nedges: [" + text + "]\n"))
		must(t, err)
		return s
	}
	one, two := parse("{name: x, id: 1, from: a, to: a}"), parse("{name: x, id: 1, from: a, to: a}, {name: y, id: 2, from: a, to: a}")
	other := parse("{name: x, id: 1, from: a, to: a}, {name: z, id: 2, from: a, to: a}")
	now, err := one.Successor(two)
	must(t, err)
	if now.Version != 2 || two.Version != 1 {
		t.Errorf("versions %d and %d", now.Version, two.Version)
	}
	for _, same := range []*Schema{two, now} {
		if got, err := now.Successor(same); err != nil || got != now {
			t.Errorf("%v, %v", got, err)
		}
	}
	for _, bad := range []*Schema{other, one} { // another type under a number; one too few
		if _, err := now.Successor(bad); !errors.Is(err, ErrSchema) {
			t.Errorf("%v", err)
		}
	}
}

// Nobody skips anything in a shard that lost nothing.
func TestASkipInAShardThatWasNotRecoveredChangesNothing(t *testing.T) {
	m := newTestMachine(t, 0, 2)
	defer m.Close()
	k := skip{from: 1, cursor: 0, to: 9}
	res, err := applyCommands(m, 1, k.encode())
	must(t, err)
	if got := res[0].(deliverResult).cursor; got != 0 {
		t.Errorf("cursor %d", got)
	}
	res, err = applyCommands(m, 2, RecoverCommand(), k.encode(), k.encode())
	must(t, err)
	if got := res[2].(deliverResult).cursor; got != 9 {
		t.Errorf("cursor %d after a recovery", got)
	}
	res, err = applyCommands(m, 3, skip{from: 1, cursor: 0, to: 20}.encode(), skip{from: 1, cursor: 9, to: 4}.encode())
	must(t, err)
	if got := res[1].(deliverResult).cursor; got != 9 {
		t.Errorf("cursor %d after skips that were overtaken", got)
	}
}
