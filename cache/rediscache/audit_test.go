package rediscache

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// An operator's SET of an entry in Redis is what the protocol cannot see. The auditor
// finds it, and forgetting its slot puts it right.
func TestAuditorFindsAnOperatorsSet(t *testing.T) {
	s := startServer(t)
	w := newRealWorld(t, patient(), s.client(), s.client(onlyFeeder))
	l := cachetest.Like(1)
	w.m.Apply(cachetest.Add(l, 1, 1), cachetest.Add(l, 2, 2))
	must(t, w.feeder.Round(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	audit := cache.NewAuditor(w.tier, w.m, w.polls)
	found := make(chan cache.Key, 1000)
	running.Go(func() { audit.Run(ctx, func(k cache.Key, err error) { found <- k }) })
	reader := cache.NewReader(w.m, audit, w.polls)
	must(t, w.polls.Round(t.Context(), w.m))
	q := count(1)
	q.Slot = 1
	read := func() uint64 {
		as := make([]cache.Answer, 1)
		_, err := reader.Read(t.Context(), cache.Options{}, []cache.Query{q}, as)
		must(t, err)
		return as[0].Count
	}
	await := func(what string, done func() bool) {
		eventually(t, what, func() error {
			if read(); !done() {
				return fmt.Errorf("%d equal, %d wrong, %d skipped", audit.Stats().Equal.Load(), audit.Stats().Wrong.Load(), audit.Stats().Skipped.Load())
			}
			return nil
		})
	}
	await("the row is audited", func() bool { return audit.Stats().Equal.Load() > 2 })
	if audit.Stats().Wrong.Load() > 0 || read() != 2 {
		t.Fatalf("%d wrong entries before anything happened", audit.Stats().Wrong.Load())
	}
	k := cache.RowKey(1, l.Vertex)
	e := w.m.Entry(&k)
	e.Row.Fields[cache.CountField(l)] = 77
	must(t, s.client().Set(ctx, entryKey(1, w.feeder.shards[1].slots[1].p.gen, &k), encodeEntry(&e), time.Hour).Err())
	if read() != 77 {
		t.Fatal("the operator's row is not read")
	}
	await("the wrong row is found", func() bool { return audit.Stats().Wrong.Load() > 0 })
	if got := <-found; got != k {
		t.Errorf("found %v, the operator has set %v", got, k)
	}
	must(t, w.tier.Forget(ctx, 1, 1))
	await("the row is right again", func() bool { return read() == 2 })
}
