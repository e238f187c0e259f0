package main

import (
	"fmt"
	"math/rand"
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

// seen is all that a client has seen.
type seen struct {
	t   *testing.T
	all graph.Token
}

func (s *seen) add(text string) {
	s.t.Helper()
	tok, err := graph.ParseToken(text)
	if err != nil || tok.Others || len(tok.Pending) > 0 {
		s.t.Fatalf("token %+v: %v", tok, err)
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

func randomQuestion(t *testing.T, r *rand.Rand) question {
	u, n := uint64(1+r.Intn(askUsers)), uint64(1+r.Intn(askNotes))
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
			dsts = append(dsts, uint64(1+r.Intn(askNotes)))
		}
		return func(d *daemon, c *pb.Consistency) (string, error) {
			resp, err := d.graph.HasEdges(testCtx(t), &pb.HasEdgesRequest{SrcIds: []uint64{u}, Type: "like", DstIds: dsts, Consistency: c})
			return said(resp, err, func() { resp.Token = "" })
		}
	case 1:
		return func(d *daemon, c *pb.Consistency) (string, error) {
			resp, err := d.graph.CountEdgesBatch(testCtx(t), &pb.CountEdgesBatchRequest{
				Vertices:    []*pb.Vertex{note(n), note(n%askNotes + 1)},
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

// randomWrite changes something, and returns the token of it.
func (d *daemon) randomWrite(r *rand.Rand) string {
	d.t.Helper()
	e := like(uint64(1+r.Intn(askUsers)), uint64(1+r.Intn(askNotes)))
	if r.Intn(4) == 0 {
		e.Type = "favorite"
	}
	e.Time = int64(1 + r.Intn(300))
	if r.Intn(40) == 0 {
		e.Properties = map[string]string{"from": "feed"}
	}
	counter := &pb.CounterRef{Vertex: note(uint64(1 + r.Intn(askNotes))), Metric: []string{"views", "replies"}[r.Intn(2)]}
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
	return token
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
			s.add(d.randomWrite(r))
		}
		askBoth(t, d, randomQuestion(t, r), s.token())
	}
	if hits := server.stat("keyspace_hits"); hits < 1000 {
		t.Errorf("Redis had %d keys that were asked for", hits)
	}
	d.signal(syscall.SIGTERM)
	d.wantEnd(exitOK)
}
