package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/rediscache"
	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// atRest waits until all changes are in Redis, and compares all that is cached, as it lies
// in Redis and as gateways answer, with the storage.
func (o *cacheOracle) atRest() {
	o.t.Helper()
	o.fed()
	kinds := map[cache.Kind]int{}
	o.world.everyMaster(func(c *redis.Client) {
		err := rediscache.Walk(testCtx(o.t), c, func(k cache.Key, e cache.Entry) {
			kinds[k.Kind]++
			truth := o.stored(k, &e)
			if err := e.Differs(&truth); err != nil {
				o.t.Errorf("%v in Redis, at %d: %v", k, e.At.Number, err)
			}
		})
		if err != nil {
			o.t.Error(err)
		}
	})
	o.t.Logf("at rest: %d rows, %d windows and %d chunks in Redis compared with the storage", kinds[cache.KindRow], kinds[cache.KindWindow], kinds[cache.KindChunk])
	if kinds[cache.KindRow] < 10 || kinds[cache.KindWindow] < 10 || kinds[cache.KindChunk] < 1 {
		o.t.Error("too little was cached to be compared")
	}
	for _, p := range o.parts {
		for s := range p.chronicle.states { // any order: each is compared
			if p.wide && s.dir != pb.Direction_IN {
				continue // a thousand lists of one edge
			}
			want := p.chronicle.now(s)
			for _, d := range o.gateways {
				for _, level := range []pb.ReadLevel{pb.ReadLevel_MINIMIZE_LATENCY, pb.ReadLevel_LINEARIZABLE} {
					if got := o.read(d, s, level); !slices.Equal(got.edges, want.edges) || got.exists != want.exists || got.value != want.value {
						o.t.Errorf("%v is %v through %s (%v), and was written as %v", s, got, d.ready["grpc"], level, want)
					}
				}
			}
		}
	}
}

// fed waits until the bound has passed since the last write, and the feeder has nothing left.
func (o *cacheOracle) fed() {
	o.t.Helper()
	time.Sleep(staleness) // the bound that is being tested
	at := time.Now()
	waitFor(o.t, "all changes are in Redis", func() bool {
		done := true
		for _, p := range o.world.f.places {
			var lag float64
			_, text, there := strings.Cut(p.daemon().get("/metrics"), "\nliana_cache_lag_seconds{tier=\"feeder\"} ")
			if there {
				_, err := fmt.Sscan(text, &lag)
				done = done && err == nil && time.Duration(lag*float64(time.Second)) < time.Since(at)
			}
		}
		return done
	})
}

// read is a subject as a node answers now.
func (o *cacheOracle) read(d *daemon, s subject, level pb.ReadLevel) (st state) {
	o.t.Helper()
	c := &pb.Consistency{Level: level}
	if s.dir == pb.Direction_DIRECTION_UNSPECIFIED {
		resp, err := d.counters.Get(testCtx(o.t), &pb.GetCounterRequest{Counter: &pb.CounterRef{Vertex: s.of()}, Metrics: []string{s.name}, Consistency: c})
		if err != nil {
			o.t.Fatal(err)
		}
		return state{value: resp.GetCounters()[0].GetValue(), exists: resp.GetCounters()[0].GetExists()}
	}
	req := &pb.ListEdgesRequest{Vertex: s.of(), Type: s.name, Direction: s.dir, PageSize: 10_000, Consistency: c}
	resp, err := d.graph.ListEdges(testCtx(o.t), req)
	if err != nil || resp.GetNextPageToken() != "" {
		o.t.Fatalf("%v: %v", s, err)
	}
	for _, e := range slices.Backward(resp.GetEdges()) {
		peer := e.GetDst().GetId()
		if s.dir == pb.Direction_IN {
			peer = e.GetSrc().GetId()
		}
		st.edges = append(st.edges, cache.Edge{Time: e.GetTime(), Peer: peer})
	}
	return st
}

// stored is an entry as the storage has it, asked by calls that pass caches by. e is the
// entry that it will be compared with.
func (o *cacheOracle) stored(k cache.Key, e *cache.Entry) cache.Entry {
	o.t.Helper()
	if k.Kind == cache.KindRow {
		return cache.Entry{Row: o.storedRow(k.Vertex, len(e.Row.Fields))}
	}
	def, _ := o.schema.EdgeTypeByID(graph.EdgeType(k.Edge))
	s := subject{o.schema.VertexTypeName(graph.VertexType(k.Vertex.Type)), k.Vertex.ID, def.Name, pb.Direction_OUT}
	if k.In {
		s.dir = pb.Direction_IN
	}
	edges := o.read(o.gateways[0], s, pb.ReadLevel_LINEARIZABLE).edges
	if k.Kind == cache.KindChunk {
		c := &cache.Chunk{Bits: make([]byte, cache.ChunkBytes)}
		for _, e := range edges {
			if e.Peer/cache.ChunkPeers == k.Chunk {
				c.Set(e.Peer)
			}
		}
		return cache.Entry{Chunk: c}
	}
	return cache.Entry{Window: &cache.Window{Total: uint64(len(edges)), Edges: edges}}
}

func (o *cacheOracle) storedRow(v cache.Vertex, fields int) *cache.Row {
	o.t.Helper()
	r := &cache.Row{Fields: slices.Repeat([]cache.Field{cache.Unknown}, fields)}
	set := func(i int, f cache.Field) {
		if i < fields {
			r.Fields[i] = f
		}
	}
	vertex := &pb.Vertex{Type: o.schema.VertexTypeName(graph.VertexType(v.Type)), Id: v.ID}
	exact := &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}
	for _, m := range o.schema.Metrics(graph.VertexType(v.Type)) {
		resp, err := o.gateways[0].counters.Get(testCtx(o.t), &pb.GetCounterRequest{Counter: &pb.CounterRef{Vertex: vertex}, Metrics: []string{m.Name}, Consistency: exact})
		if err != nil {
			o.t.Fatal(err)
		}
		set(cache.MetricField(uint16(m.ID)), cache.Absent)
		if c := resp.GetCounters()[0]; c.GetExists() {
			set(cache.MetricField(uint16(m.ID)), cache.Field(c.GetValue()))
		}
	}
	for _, def := range o.schema.EdgeTypes() {
		for _, in := range []bool{false, true} {
			if end := def.From; in && def.To != graph.VertexType(v.Type) || !in && end != graph.VertexType(v.Type) {
				continue
			}
			l, dir := cache.List{Vertex: v, Edge: uint16(def.ID), In: in}, pb.Direction_OUT
			if in {
				dir = pb.Direction_IN
			}
			resp, err := o.gateways[0].graph.CountEdges(testCtx(o.t), &pb.CountEdgesRequest{Vertex: vertex, Type: def.Name, Direction: dir, Consistency: exact})
			if err != nil || resp.GetCount() > math.MaxInt32 {
				o.t.Fatal(resp, err)
			}
			set(cache.CountField(l), cache.Field(resp.GetCount()))
		}
	}
	return r
}
