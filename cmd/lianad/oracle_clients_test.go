package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand"
	"slices"
	"time"

	"github.com/lianadb/liana/cache"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// part is a part of the graph that one writer changes and others read. Its users and
// notes have the ids past base.
type part struct {
	o            *cacheOracle
	base         uint64
	users, notes uint64
	wide         bool // more slots than a token holds: read without any
	chronicle    *chronicle
}

func (p *part) user(r *rand.Rand) uint64 { return p.base + uint64(r.Int63n(int64(p.users))) + 1 }
func (p *part) note(r *rand.Rand) uint64 { return p.base + uint64(r.Int63n(int64(p.notes))) + 1 }

func likesOf(user uint64) subject    { return subject{"user", user, "like", pb.Direction_OUT} }
func likersOf(note uint64) subject   { return subject{"note", note, "like", pb.Direction_IN} }
func sharesOf(note uint64) subject   { return subject{vertex: "note", id: note, name: "shares"} }
func (s subject) list() *pb.ListKind { return &pb.ListKind{Type: s.name, Direction: s.dir} }

// write changes something, repeats it until it is acknowledged, and notes both.
func (p *part) write(r *rand.Rand, s *seen) {
	if !p.wide && r.Intn(4) == 0 {
		p.share(r, s)
		return
	}
	user, note := p.user(r), p.note(r)
	likes, likers := p.chronicle.now(likesOf(user)), p.chronicle.now(likersOf(note))
	at := time.Now().UnixMicro() - r.Int63n(3)*r.Int63n(20) // now and then not the newest
	e := like(user, note)
	e.Time = at
	wait := pb.Wait_BOTH
	if !p.wide && r.Intn(3) == 0 {
		wait = pb.Wait_FORWARD
	}
	var call func(context.Context, *daemon) (string, error)
	switch had := likes.has(note); {
	case !had:
		call = func(ctx context.Context, d *daemon) (string, error) {
			resp, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e, Wait: wait})
			return resp.GetToken(), err
		}
	case r.Intn(3) == 0 || user == p.base+1: // a user who likes nearly all, for chunks
		call = func(ctx context.Context, d *daemon) (string, error) {
			resp, err := d.graph.UpdateEdge(ctx, &pb.UpdateEdgeRequest{Edge: e, Wait: wait})
			return resp.GetToken(), err
		}
	default:
		at = 0
		call = func(ctx context.Context, d *daemon) (string, error) {
			resp, err := d.graph.DeleteEdge(ctx, &pb.DeleteEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst, Wait: wait})
			return resp.GetToken(), err
		}
	}
	made := map[subject]state{likesOf(user): likes.with(note, at), likersOf(note): likers.with(user, at)}
	p.make(r, s, made, e.GetDst(), call)
}

// with is a list with an edge at a time; 0: without it.
func (s state) with(peer uint64, at int64) state {
	s.edges = slices.DeleteFunc(s.edges, func(e cache.Edge) bool { return e.Peer == peer })
	if at != 0 {
		e := cache.Edge{Time: at, Peer: peer}
		i, _ := slices.BinarySearchFunc(s.edges, e, cache.Edge.Compare)
		s.edges = slices.Insert(s.edges, i, e)
	}
	return s
}

// share counts a note, or gives its count up.
func (p *part) share(r *rand.Rand, s *seen) {
	subj := sharesOf(p.note(r))
	st := p.chronicle.now(subj)
	ref := &pb.CounterRef{Vertex: subj.of(), Metric: subj.name}
	if st.exists && r.Intn(6) == 0 {
		st.exists, st.value = false, 0
		p.make(r, s, map[subject]state{subj: st}, subj.of(), func(ctx context.Context, d *daemon) (string, error) {
			resp, err := d.counters.Delete(ctx, &pb.DeleteCounterRequest{Counter: ref})
			return resp.GetToken(), err
		})
		return
	}
	by := 1 + r.Int63n(5)
	st.exists, st.value = true, st.value+by
	id := fmt.Sprint(r.Uint64())
	p.make(r, s, map[subject]state{subj: st}, subj.of(), func(ctx context.Context, d *daemon) (string, error) {
		resp, err := d.counters.IncrBy(ctx, &pb.IncrByRequest{Increment: &pb.Increment{Counter: ref, Delta: by}, RequestId: id})
		return resp.GetToken(), err
	})
}

// make has a write made through any node.
func (p *part) make(r *rand.Rand, s *seen, made map[subject]state, dst *pb.Vertex, call func(context.Context, *daemon) (string, error)) {
	p.chronicle.begin(made)
	d := p.o.any(r)
	token, err := call(testCtx(p.o.t), d)
	if err != nil {
		p.o.t.Errorf("a write failed: %v", err)
		return
	}
	if !p.wide {
		s.add(d, token, dst) // what is pending is waited for
		token = s.token()
	}
	p.chronicle.end(made, token)
}

// run writes until the oracle stops.
func (p *part) run(r *rand.Rand) {
	s := &seen{t: p.o.t}
	for p.o.running() {
		p.write(r, s)
		time.Sleep(time.Duration(r.Intn(20)) * time.Millisecond) // a rate, nothing is waited for
	}
}

// reader reads a part, under tokens of its own.
type reader struct {
	p     *part
	r     *rand.Rand
	own   seen // what it was told, by the writer and by answers
	least map[subject]int
}

func (p *part) newReader(r *rand.Rand) *reader {
	return &reader{p: p, r: r, own: seen{t: p.o.t}, least: map[subject]int{}}
}

// run reads until the oracle stops.
func (rd *reader) run() {
	for rd.p.o.running() {
		q := rd.question()
		d := rd.p.o.any(rd.r)
		if token, least := rd.p.chronicle.token(); token != "" && !rd.p.wide && rd.r.Intn(3) == 0 {
			q.token, q.least = token, least
			if rd.r.Intn(4) == 0 { // from now on it knows what the writer knows
				rd.own.add(d, token, nil)
				raise(rd.least, least)
			}
		} else if !rd.p.wide && rd.r.Intn(2) == 0 {
			q.token, q.least = rd.own.token(), maps.Clone(rd.least)
		}
		q.asked = time.Now()
		token, err := q.ask(d, &pb.Consistency{Token: q.token})
		if err != nil {
			rd.p.o.t.Errorf("a read through %s: %v", d.ready["grpc"], err)
			return
		}
		rd.p.o.reads.Add(1)
		if q.token != "" && !rd.p.wide { // answers under it are not older than this one
			rd.own.add(d, token, nil)
			raise(rd.least, q.least)
			raise(rd.least, q.seen)
		}
	}
}

// raise notes that states are covered.
func raise(least, by map[subject]int) {
	for s, n := range by { // any order: the larger of each
		least[s] = max(least[s], n)
	}
}

// inquiry is one question, with what its answer may not be older than.
type inquiry struct {
	p     *part
	token string
	least map[subject]int // that the token covers
	asked time.Time
	seen  map[subject]int // what the answer was of
	ask   func(*daemon, *pb.Consistency) (token string, err error)
}

// judge finds the state that an answer about a subject is of.
func (q *inquiry) judge(s subject, fits func(*state) bool, answer any) error {
	at, err := q.p.chronicle.explain(s, q.asked, q.least[s], fits)
	if err != nil {
		return fmt.Errorf("answer %v: %w", answer, err)
	}
	if was, ok := q.seen[s]; !ok || at < was {
		q.seen[s] = at
	}
	return nil
}

func (rd *reader) question() *inquiry {
	q := &inquiry{p: rd.p, seen: map[subject]int{}, least: map[subject]int{}}
	switch rd.r.Intn(5) {
	case 0:
		rd.hasEdges(q)
	case 1:
		rd.counts(q)
	case 2:
		rd.window(q)
	case 3:
		rd.shares(q)
	default:
		rd.pages(q)
	}
	return q
}

func (rd *reader) hasEdges(q *inquiry) {
	s, notes := likesOf(rd.p.user(rd.r)), []uint64{}
	for range 1 + rd.r.Intn(20) {
		notes = append(notes, rd.p.note(rd.r))
	}
	q.ask = func(d *daemon, c *pb.Consistency) (string, error) {
		resp, err := d.graph.HasEdges(testCtx(d.t), &pb.HasEdgesRequest{SrcIds: []uint64{s.id}, Type: s.name, DstIds: notes, Consistency: c})
		for i := 0; err == nil && i < len(notes); i++ {
			is := resp.GetExists()[i]
			err = q.judge(s, func(st *state) bool { return st.has(notes[i]) == is }, fmt.Sprint(notes[i], " ", is))
		}
		return resp.GetToken(), err
	}
}

func (rd *reader) counts(q *inquiry) {
	var subjects []subject
	req := &pb.CountEdgesBatchRequest{Lists: []*pb.ListKind{likersOf(0).list()}}
	for range 1 + rd.r.Intn(10) {
		s := likersOf(rd.p.note(rd.r))
		subjects, req.Vertices = append(subjects, s), append(req.Vertices, s.of())
	}
	q.ask = func(d *daemon, c *pb.Consistency) (string, error) {
		req.Consistency = c
		resp, err := d.graph.CountEdgesBatch(testCtx(d.t), req)
		for i := 0; err == nil && i < len(subjects); i++ {
			n := resp.GetCounts()[i]
			err = q.judge(subjects[i], func(st *state) bool { return st.count(math.MinInt64, allTime) == n }, n)
		}
		return resp.GetToken(), err
	}
}

// list is one of the lists of the part.
func (rd *reader) list() subject {
	if rd.r.Intn(2) == 0 {
		return likesOf(rd.p.user(rd.r))
	}
	return likersOf(rd.p.note(rd.r))
}

func (rd *reader) window(q *inquiry) {
	s, since := rd.list(), time.Now().Add(-time.Duration(rd.r.Intn(20_000))*time.Millisecond).UnixMicro()
	q.ask = func(d *daemon, c *pb.Consistency) (string, error) {
		resp, err := d.graph.CountEdges(testCtx(d.t), &pb.CountEdgesRequest{Vertex: s.of(), Type: s.name, Direction: s.dir, Window: &pb.Window{Since: &since}, Consistency: c})
		if err == nil {
			n := resp.GetCount()
			err = q.judge(s, func(st *state) bool { return st.count(since, allTime) == n }, n)
		}
		return resp.GetToken(), err
	}
}

func (rd *reader) shares(q *inquiry) {
	s := sharesOf(rd.p.note(rd.r))
	q.ask = func(d *daemon, c *pb.Consistency) (string, error) {
		resp, err := d.counters.Get(testCtx(d.t), &pb.GetCounterRequest{Counter: &pb.CounterRef{Vertex: s.of()}, Metrics: []string{s.name}, Consistency: c})
		if err == nil {
			n := resp.GetCounters()[0]
			err = q.judge(s, func(st *state) bool { return st.exists == n.GetExists() && st.value == n.GetValue() }, n)
		}
		return resp.GetToken(), err
	}
}

// pages reads a list page by page. Each page is of some state, and none is of an older one
// than the first.
func (rd *reader) pages(q *inquiry) {
	s, size, most := rd.list(), 1+rd.r.Intn(20), 1+rd.r.Intn(4)
	q.ask = func(d *daemon, c *pb.Consistency) (token string, err error) {
		req := &pb.ListEdgesRequest{Vertex: s.of(), Type: s.name, Direction: s.dir, PageSize: int32(size), Consistency: c}
		var below *cache.Edge
		for range most {
			resp, err := d.graph.ListEdges(testCtx(d.t), req)
			if err != nil {
				return "", err
			}
			var got []cache.Edge
			for _, e := range resp.GetEdges() {
				peer := e.GetDst().GetId()
				if s.dir == pb.Direction_IN {
					peer = e.GetSrc().GetId()
				}
				got = append(got, cache.Edge{Time: e.GetTime(), Peer: peer})
			}
			req.PageToken, token = resp.GetNextPageToken(), resp.GetToken()
			fits := func(st *state) bool {
				edges, more := st.page(below, size)
				return slices.Equal(edges, got) && more == (req.PageToken != "")
			}
			if err := q.judge(s, fits, got); err != nil {
				return "", fmt.Errorf("page of %d below %v, more %v: %w", size, below, req.PageToken != "", err)
			}
			if req.PageToken == "" {
				return token, nil
			}
			below = &got[len(got)-1]
			q.least[s], q.asked = max(q.least[s], q.seen[s]), time.Now()
		}
		return token, nil
	}
}
