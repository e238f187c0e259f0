package rediscache

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// migration moves one hash slot of a cluster from its node to another, key by key.
type migration struct {
	t        *testing.T
	hash     int64
	from, to *redis.Client
	ids      [2]string
	port     int
}

func startMigration(t *testing.T, c *cluster, key string) *migration {
	t.Helper()
	ctx, m := context.Background(), &migration{t: t}
	var err error
	for _, s := range c.servers {
		one := redis.NewClient(&redis.Options{Addr: s.addr()})
		t.Cleanup(func() { one.Close() })
		m.hash, err = one.ClusterKeySlot(ctx, key).Result()
		must(t, err)
		id, err := one.Do(ctx, "cluster", "myid").Text()
		must(t, err)
		owned, err := one.ClusterNodes(ctx).Result()
		must(t, err)
		if m.from == nil && ownsHash(owned, m.hash) {
			m.from, m.ids[0] = one, id
		} else if m.to == nil {
			m.to, m.ids[1], m.port = one, id, s.port
		}
	}
	must(t, m.to.Do(ctx, "cluster", "setslot", m.hash, "importing", m.ids[0]).Err())
	must(t, m.from.Do(ctx, "cluster", "setslot", m.hash, "migrating", m.ids[1]).Err())
	return m
}

// ownsHash reads a node's own line of CLUSTER NODES.
func ownsHash(nodes string, hash int64) bool {
	for line := range strings.Lines(nodes) {
		if !strings.Contains(line, "myself") {
			continue
		}
		for _, f := range strings.Fields(line)[8:] {
			var lo, hi int64
			if n, _ := fmt.Sscanf(f, "%d-%d", &lo, &hi); n == 2 && hash >= lo && hash <= hi {
				return true
			}
		}
	}
	return false
}

// move moves the keys that pick chooses.
func (m *migration) move(pick func(string) bool) {
	m.t.Helper()
	ctx := context.Background()
	keys, err := m.from.ClusterGetKeysInSlot(ctx, int(m.hash), 1000).Result()
	must(m.t, err)
	for _, k := range keys {
		if pick(k) {
			must(m.t, m.from.Migrate(ctx, "127.0.0.1", fmt.Sprint(m.port), k, 0, 5*time.Second).Err())
		}
	}
}

func (m *migration) finish() {
	m.t.Helper()
	m.move(func(string) bool { return true })
	for _, c := range []*redis.Client{m.to, m.from} {
		must(m.t, c.Do(context.Background(), "cluster", "setslot", m.hash, "node", m.ids[1]).Err())
	}
}

// Rule F6: a slot that moves to another node under load answers nothing wrong on the
// way, and begins anew when it has arrived.
func TestReshardingUnderChanges(t *testing.T) {
	for name, first := range map[string]func(string) bool{
		"PositionMovesFirst": func(k string) bool { return strings.HasSuffix(k, ":p") },
		"PositionMovesLast":  func(k string) bool { return !strings.HasSuffix(k, ":p") },
		"NothingMovesYet":    func(string) bool { return false },
		"AllMovesAtOnce":     func(string) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			cl := startCluster(t)
			w := newRealWorld(t, patient(), newClient(t, cl.options()), newClient(t, cl.options(), onlyFeeder))
			round := func() error { return w.feeder.Round(t.Context()) }
			change := func(peer uint64) {
				w.m.Apply(cachetest.Add(cachetest.Like(5), peer, 1), cachetest.Add(cachetest.Like(21), peer, 1))
				must(t, w.polls.Round(t.Context(), w.m))
				w.ask(count(5))
				w.ask(count(21))
			}
			must(t, round())
			for peer := range uint64(4) {
				change(peer + 1)
				must(t, round())
			}
			before := w.feeder.shards[1].slots[5].p
			m := startMigration(t, cl, headKey(1, 5))
			m.move(first)
			faults := 0
			for peer := range uint64(4) {
				change(peer + 10)
				if round() != nil {
					faults++
				}
			}
			m.finish()
			eventually(t, "the moved slot is fed", round)
			change(30)
			eventually(t, "the moved slot is fed again", round)
			if p := w.feeder.shards[1].slots[5].p; (faults > 0) != (p.gen != before.gen) {
				t.Errorf("%d rounds met a migration; gen was %d, is %d", faults, before.gen, p.gen)
			}
			w.everythingCachedIsRight(newClient(t, cl.options()), 5)
		})
	}
}

// everythingCachedIsRight compares the entries of a slot with storage.
func (w *realWorld) everythingCachedIsRight(c redis.UniversalClient, slot cache.Slot) {
	w.t.Helper()
	ctx, last := context.Background(), w.m.Last(slot)
	v, err := c.Get(ctx, headKey(last.Timeline, slot)).Bytes()
	must(w.t, err)
	p, err := decodeHead(v)
	must(w.t, err)
	if p.h < last.Number {
		w.t.Errorf("slot %d is fed up to %d, its last change is %d", slot, p.h, last.Number)
	}
	for id := uint64(slot); id < 200; id += uint64(w.m.Slots) {
		k := cache.RowKey(slot, cachetest.Like(id).Vertex)
		v, err := c.Get(ctx, entryKey(last.Timeline, p.gen, &k)).Bytes()
		if err != nil {
			continue
		}
		e, err := decodeEntry(k.Kind, v)
		must(w.t, err)
		want := w.m.Entry(&k)
		if !slices.Equal(e.Row.Fields, want.Row.Fields) {
			w.t.Errorf("%v: cached %v, storage %v", k, e.Row.Fields, want.Row.Fields)
		}
	}
}
