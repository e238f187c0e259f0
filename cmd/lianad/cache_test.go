package main

import (
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// question is one random read, asked of a daemon with a consistency; it returns the
// answer without its tokens.
type question func(d *daemon, c *pb.Consistency) (string, error)

func user(id uint64) *pb.Vertex { return &pb.Vertex{Type: "user", Id: id} }
func note(id uint64) *pb.Vertex { return &pb.Vertex{Type: "note", Id: id} }

// The ids of users and notes in these tests: few, so that lists are read again, and a token
// has room for the slots of all.
const (
	askUsers = 6
	askNotes = 24
)

// seen is all that a client has seen. It reads and writes the users and notes past base.
type seen struct {
	t    *testing.T
	base uint64
	all  graph.Token
}

func (s *seen) aUser(r *rand.Rand) uint64 { return s.base + uint64(1+r.Intn(askUsers)) }
func (s *seen) aNote(r *rand.Rand) uint64 { return s.base + uint64(1+r.Intn(askNotes)) }

// add takes the token of a write of an edge to (or a counter of) dst. Where the inverse is
// on its way, a read under the token waits for it, and tells the position in its place.
func (s *seen) add(d *daemon, text string, dst *pb.Vertex) {
	s.t.Helper()
	tok, err := graph.ParseToken(text)
	if err != nil || tok.Others {
		s.t.Fatalf("token %+v: %v", tok, err)
	}
	if len(tok.Pending) > 0 {
		resp, err := d.graph.CountEdges(testCtx(s.t), &pb.CountEdgesRequest{
			Vertex: dst, Type: "like", Direction: pb.Direction_IN, Consistency: &pb.Consistency{Token: text},
		})
		if err != nil {
			s.t.Fatal(err)
		}
		if t, _ := graph.ParseToken(resp.GetToken()); len(t.Pending) > 0 {
			s.t.Fatalf("under the token %+v a read gave %+v", tok, t)
		}
		s.add(d, resp.GetToken(), dst)
	}
	s.all.Timeline = tok.Timeline
	for _, p := range tok.Seen {
		i := slices.IndexFunc(s.all.Seen, func(q graph.SlotPosition) bool { return q.Slot == p.Slot })
		if i < 0 {
			s.all.Seen = append(s.all.Seen, p)
		} else {
			s.all.Seen[i].Pos = max(s.all.Seen[i].Pos, p.Pos)
		}
	}
}

// token is the text of it.
func (s *seen) token() string {
	if s.all.Timeline == 0 {
		return ""
	}
	return s.all.Encode()
}

func (s *seen) randomQuestion(r *rand.Rand) question {
	t, u, n := s.t, s.aUser(r), s.aNote(r)
	said := func(m proto.Message, err error, hide func()) (string, error) {
		if err != nil {
			return "", err
		}
		hide()
		return fmt.Sprint(m), nil
	}
	switch r.Intn(6) {
	case 0:
		var dsts []uint64
		for range 20 {
			dsts = append(dsts, s.aNote(r))
		}
		return func(d *daemon, c *pb.Consistency) (string, error) {
			resp, err := d.graph.HasEdges(testCtx(t), &pb.HasEdgesRequest{SrcIds: []uint64{u}, Type: "like", DstIds: dsts, Consistency: c})
			return said(resp, err, func() { resp.Token = "" })
		}
	case 1:
		return func(d *daemon, c *pb.Consistency) (string, error) {
			resp, err := d.graph.CountEdgesBatch(testCtx(t), &pb.CountEdgesBatchRequest{
				Vertices:    []*pb.Vertex{note(n), note(s.base + (n-s.base)%askNotes + 1)},
				Lists:       []*pb.ListKind{{Type: "like", Direction: pb.Direction_IN}, {Type: "favorite", Direction: pb.Direction_IN}},
				Consistency: c,
			})
			return said(resp, err, func() { resp.Token = "" })
		}
	case 2:
		w := &pb.Window{}
		if r.Intn(2) == 0 {
			since := int64(r.Intn(200))
			until := since + int64(r.Intn(100))
			w = &pb.Window{Since: &since, Until: &until}
		}
		return func(d *daemon, c *pb.Consistency) (string, error) {
			resp, err := d.graph.CountEdges(testCtx(t), &pb.CountEdgesRequest{Vertex: user(u), Type: "like", Window: w, Consistency: c})
			return said(resp, err, func() { resp.Token = "" })
		}
	case 3, 4:
		order := pb.Order_NEWEST_FIRST
		if r.Intn(5) == 0 {
			order = pb.Order_ID_ASCENDING
		}
		size, skip := int32(1+r.Intn(9)), uint64(r.Intn(2)*r.Intn(5))
		return func(d *daemon, c *pb.Consistency) (string, error) { return d.pages(u, order, size, skip, c) }
	default:
		return func(d *daemon, c *pb.Consistency) (string, error) {
			resp, err := d.counters.Get(testCtx(t), &pb.GetCounterRequest{Counter: &pb.CounterRef{Vertex: note(n)}, Consistency: c})
			return said(resp, err, func() { resp.Token = "" })
		}
	}
}

// pages reads a list page by page.
func (d *daemon) pages(u uint64, order pb.Order, size int32, skip uint64, c *pb.Consistency) (string, error) {
	var out strings.Builder
	req := &pb.ListEdgesRequest{Vertex: user(u), Type: "like", Order: order, PageSize: size, Skip: skip, Consistency: c}
	for {
		resp, err := d.graph.ListEdges(testCtx(d.t), req)
		if err != nil {
			return "", err
		}
		for _, e := range resp.GetEdges() {
			fmt.Fprintf(&out, "%d@%d%v ", e.GetDst().GetId(), e.GetTime(), e.GetProperties())
		}
		fmt.Fprint(&out, "| ")
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return out.String(), nil
		}
		req.Skip = 0
	}
}

// randomWrite changes something.
func (d *daemon) randomWrite(r *rand.Rand, s *seen) {
	d.t.Helper()
	e := like(s.aUser(r), s.aNote(r))
	if r.Intn(4) == 0 {
		e.Type = "favorite"
	}
	e.Time = int64(1 + r.Intn(300))
	if r.Intn(40) == 0 {
		e.Properties = map[string]string{"from": "feed"}
	}
	counter := &pb.CounterRef{Vertex: note(s.aNote(r)), Metric: []string{"views", "replies"}[r.Intn(2)]}
	var token string
	var err error
	switch r.Intn(12) {
	case 0, 1, 2, 3, 4:
		var resp *pb.AddEdgeResponse
		resp, err = d.graph.AddEdge(testCtx(d.t), &pb.AddEdgeRequest{Edge: e})
		token = resp.GetToken()
	case 5, 6:
		var resp *pb.DeleteEdgeResponse
		resp, err = d.graph.DeleteEdge(testCtx(d.t), &pb.DeleteEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst})
		token = resp.GetToken()
	case 7:
		var resp *pb.SetCounterResponse
		set := &pb.SetCounterRequest{Counter: counter, Value: int64(r.Intn(100))}
		if r.Intn(2) == 0 {
			set.ExpireAt = time.Now().Add(time.Duration(10+r.Intn(2000)) * time.Millisecond).UnixMicro()
		}
		resp, err = d.counters.Set(testCtx(d.t), set)
		token = resp.GetToken()
	case 8:
		var resp *pb.DeleteCounterResponse
		resp, err = d.counters.Delete(testCtx(d.t), &pb.DeleteCounterRequest{Counter: counter})
		token = resp.GetToken()
	default:
		var resp *pb.IncrByResponse
		resp, err = d.counters.IncrBy(testCtx(d.t), &pb.IncrByRequest{Increment: &pb.Increment{Counter: counter, Delta: int64(r.Intn(7) - 3)}})
		token = resp.GetToken()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	s.add(d, token, e.GetDst())
}

// askBoth asks a question by the cache and of the storage, and wants one answer. What has an
// expiry may go between the two, so a difference is looked at once more.
func askBoth(t *testing.T, d *daemon, q question, token string) {
	t.Helper()
	cached := &pb.Consistency{Token: token}
	for try := 0; ; try++ {
		got, err := q(d, cached)
		if err != nil {
			t.Fatal(err)
		}
		want, err := q(d, &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE})
		if err != nil {
			t.Fatal(err)
		}
		if got == want {
			return
		}
		if try == 3 || !strings.Contains(got+want, "expire_at") {
			t.Fatalf("with the cache:\n%s\nof the storage:\n%s", got, want)
		}
	}
}

// With a Redis every read under the tokens of all writes is what the storage says.
func TestAnswersWithACacheAreThoseOfTheStorage(t *testing.T) {
	server := startRedis(t)
	d := startDaemon(t, t.TempDir(), "--redis", server.addr)
	r := rand.New(rand.NewSource(4))
	s := seen{t: t}
	for range 1500 {
		if r.Intn(4) == 0 {
			d.randomWrite(r, &s)
		}
		askBoth(t, d, s.randomQuestion(r), s.token())
	}
	if hits := server.stat("keyspace_hits"); hits < 1000 {
		t.Errorf("Redis had %d keys that were asked for", hits)
	}
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK)
}

// ask makes random writes and reads until the time is up, each by one of the daemons. A call
// that fails, or an answer that is not the storage's, fails the test.
func ask(t *testing.T, ds []*daemon, r *rand.Rand, s *seen, length time.Duration) {
	t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); {
		if r.Intn(4) == 0 {
			ds[r.Intn(len(ds))].randomWrite(r, s)
		}
		askBoth(t, ds[r.Intn(len(ds))], s.randomQuestion(r), s.token())
	}
}

// No call fails and no answer is wrong while Redis hangs, dies, comes back empty or was never
// there.
func TestARedisThatFailsFailsNoCall(t *testing.T) {
	server := startRedis(t)
	server.kill()
	d := startDaemon(t, t.TempDir(), "--redis", server.addr)
	r, s := rand.New(rand.NewSource(9)), &seen{t: t}
	some := func() { ask(t, []*daemon{d}, r, s, 1500*time.Millisecond) }
	some()
	for range 2 {
		server.start()
		some()
		server.pause()
		some()
		server.resume()
		some()
		server.kill()
		some()
	}
	server.start()
	waitFor(t, "Redis is used again", func() bool {
		ask(t, []*daemon{d}, r, s, 200*time.Millisecond)
		// The feeder's looks count as hits of Redis too, before any entry answers.
		return server.stat("keyspace_hits") > 100 && !strings.Contains(d.get("/metrics"), "\nliana_cache_hits_total{tier=\"redis\"} 0\n")
	})
	metrics := d.get("/metrics")
	for _, m := range []string{`liana_cache_hits_total{tier="redis"} `, `liana_cache_misses_total{reason="failed",tier="redis"} `, `liana_cache_lag_seconds{tier="feeder"} `} {
		if !strings.Contains(metrics, "\n"+m) || strings.Contains(metrics, "\n"+m+"0\n") {
			t.Errorf("metrics: %s", m)
		}
	}
	server.pause()
	if ready := d.get("/readyz"); !strings.Contains(ready, `"ready":true`) {
		t.Errorf("not ready without Redis: %s", ready)
	}
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK)
}

// get is what the HTTP port answers.
func (d *daemon) get(path string) string {
	d.t.Helper()
	resp, err := http.Get("http://" + d.ready["http"] + path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return string(b)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// What is written by one node is read by the others under the token of the write, through
// the Redis that they share, also while leaders move.
func TestThreeNodesShareACache(t *testing.T) {
	server := startRedis(t)
	f := newTrio(t, "--redis", server.addr)
	gateway := f.add("--join", f.places[0].peer, "--roles", "gateway")
	ds := []*daemon{f.node(0), f.node(1), f.node(2), gateway.daemon()}
	r, s := rand.New(rand.NewSource(5)), &seen{t: t}
	ask(t, ds, r, s, 10*time.Second)
	if hits := server.stat("keyspace_hits"); hits < 500 {
		t.Errorf("Redis had %d keys that were asked for", hits)
	}
	operate(t, server, gateway.daemon(), len(f.places))
	// The feeders of new leaders go on where those of the old ones were.
	at := f.leaderOfMost()
	f.places[at].down().signal(syscall.SIGTERM)
	ds = slices.DeleteFunc(ds, func(d *daemon) bool { return d == f.node(at) })
	edge := like(1, 1)
	waitFor(t, "writes are taken again", func() bool {
		resp, err := ds[0].graph.AddEdge(testCtx(t), &pb.AddEdgeRequest{Edge: edge})
		if err == nil { // without its token, answers may be from before it
			s.add(ds[0], resp.GetToken(), edge.GetDst())
		}
		return err == nil
	})
	ask(t, ds, r, s, 5*time.Second)
}

// operate does what operators do with the caches of a cluster of so many nodes.
func operate(t *testing.T, server *redisServer, d *daemon, nodes int) {
	t.Helper()
	hot, err := d.cache.ListHotKeys(testCtx(t), &pb.ListHotKeysRequest{Limit: 10})
	if err != nil || len(hot.GetKeys()) != 10 || len(hot.GetUnanswered()) > 0 || hot.GetKeys()[0].GetTouches() < hot.GetKeys()[9].GetTouches() {
		t.Errorf("hot keys: %v, %v", hot, err)
	}
	c := server.client()
	defer c.Close()
	if err := c.FlushDB(testCtx(t)).Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "Redis is filled again", func() bool {
		warm, err := d.cache.WarmCache(testCtx(t), &pb.WarmCacheRequest{Top: 20})
		if err != nil || warm.GetWarm() > warm.GetHot() || warm.GetHot() == 0 {
			t.Fatalf("warm: %v, %v", warm, err)
		}
		n, err := c.DBSize(testCtx(t)).Result()
		return err == nil && n > 4096 // each slot's p, and entries
	})
	if _, err := d.cache.DropCached(testCtx(t), &pb.DropCachedRequest{Vertex: note(1)}); err != nil {
		t.Errorf("drop: %v", err)
	}
	stats, err := d.cache.GetCacheStats(testCtx(t), &pb.GetCacheStatsRequest{})
	if err != nil || len(stats.GetNodes()) != nodes || len(stats.GetUnanswered()) > 0 {
		t.Fatalf("stats: %v, %v", stats, err)
	}
	sum := map[string]float64{}
	for _, n := range stats.GetNodes() {
		for _, f := range n.GetFigures() {
			sum[f.GetTier()+" "+f.GetName()] += f.GetValue()
		}
	}
	for _, name := range []string{"reader hits_total", "redis hits_total", "redis fills_total", "feeder pushes_total", "audit equal_total"} {
		if sum[name] == 0 {
			t.Errorf("no %s: %v", name, sum)
		}
	}
	if sum["audit wrong_total"] > 0 {
		t.Errorf("the auditor found %v wrong entries", sum["audit wrong_total"])
	}
}

// Without a token an answer is never older than the bound: what was acknowledged a second
// before the question is in it, whichever node is asked.
func TestAnswersAreWithinTheBound(t *testing.T) {
	server := startRedis(t)
	f := newTrio(t, "--redis", server.addr)
	gateway := f.add("--join", f.places[0].peer, "--roles", "gateway").daemon()
	type step struct {
		at    time.Time
		likes uint64
	}
	steps := []step{{time.Now(), 0}} // at least so many likes from then on
	read, stop := make(chan uint64), time.Now().Add(6*time.Second)
	go func() {
		defer close(read)
		for time.Now().Before(stop) {
			resp, err := gateway.graph.CountEdges(testCtx(t), &pb.CountEdgesRequest{Vertex: note(1), Type: "like", Direction: pb.Direction_IN})
			if err != nil {
				t.Error(err)
				return
			}
			read <- resp.GetCount()
		}
	}()
	asked := time.Now()
	write := time.NewTicker(20 * time.Millisecond)
	defer write.Stop()
	for n := uint64(1); ; {
		select {
		case got, more := <-read:
			if !more {
				if n < 20 {
					t.Errorf("%d likes", n)
				}
				return
			}
			least := uint64(0)
			for _, st := range steps {
				if asked.Sub(st.at) > time.Second {
					least = st.likes
				}
			}
			if got < least {
				t.Fatalf("%d likes, %d were acknowledged more than a second before", got, least)
			}
			asked = time.Now()
		case <-write.C:
			f.node(int(n%3)).add(n, 1)
			steps = append(steps, step{time.Now(), n})
			n++
		}
	}
}
