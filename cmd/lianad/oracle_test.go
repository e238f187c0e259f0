package main

import (
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// cacheOracle is two gateways before a storage and a Redis that has faults, with writers
// and readers that check each answer.
type cacheOracle struct {
	t        *testing.T
	world    *redisWorld
	gateways []*daemon
	schema   *graph.Schema
	parts    []*part
	reads    atomic.Int64
	stop     chan struct{}
	clients  sync.WaitGroup
}

// newCacheOracle starts the nodes, with the Redis at some addresses.
func newCacheOracle(t *testing.T, w *redisWorld, addrs string) *cacheOracle {
	t.Helper()
	text := strings.Replace(graph.DefaultSchema().YAML(), "name: note\n", "name: note\n      ids: dense\n", 1)
	schema, err := graph.ParseSchema([]byte(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	// More patience with Redis than in service, where a busy machine is not the rule.
	conf := writeFile(t, "liana.yaml", "cache: {redis_timeout: 200ms}\n")
	w.f = newFleetOf(t, 1, 1, "--redis", addrs, "--config", conf, "--schema", writeFile(t, "schema.yaml", text))
	o := &cacheOracle{t: t, world: w, schema: schema, stop: make(chan struct{})}
	for range 2 {
		o.gateways = append(o.gateways, w.f.add("--join", w.f.places[0].peer, "--roles", "gateway").daemon())
	}
	for i := range uint64(2) {
		p := &part{o: o, base: 10_000 * (i + 1), users: 4, notes: 26, chronicle: newChronicle()}
		p.fill(1, 24) // enough for a chunk
		o.parts = append(o.parts, p)
	}
	wide := &part{o: o, base: 50_000, users: 1100, notes: 1, wide: true, chronicle: newChronicle()}
	wide.fill(990, 1) // about as many as a window holds
	o.parts = append(o.parts, wide)
	return o
}

// fill has the first users of the part like its first notes.
func (p *part) fill(users, notes uint64) {
	p.o.t.Helper()
	made, req := map[subject]state{}, &pb.MutateEdgesRequest{}
	for i := range users * notes {
		user, note, at := p.base+1+i/notes, p.base+1+i%notes, int64(i+1)
		req.Mutations = append(req.Mutations, &pb.Mutation{Op: pb.MutationOp_ADD, Type: "like", SrcId: user, DstId: note, Time: at})
		made[likesOf(user)] = made[likesOf(user)].with(note, at)
		made[likersOf(note)] = made[likersOf(note)].with(user, at)
	}
	p.chronicle.begin(made)
	if _, err := p.o.gateways[0].graph.MutateEdges(testCtx(p.o.t), req); err != nil {
		p.o.t.Fatal(err)
	}
	p.chronicle.end(made, "")
}

// any is one of the gateways.
func (o *cacheOracle) any(r *rand.Rand) *daemon { return o.gateways[r.Intn(len(o.gateways))] }

func (o *cacheOracle) running() bool {
	select {
	case <-o.stop:
		return false
	default:
		return !o.t.Failed()
	}
}

// run has all clients work while faults strike for a while, and some more.
func (o *cacheOracle) run(length time.Duration, faults ...[]redisNemesis) {
	o.t.Helper()
	seed := time.Now().UnixNano()
	if text := os.Getenv("LIANA_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			o.t.Fatal(err)
		}
	}
	o.t.Logf("LIANA_SEED=%d", seed)
	rng := rand.New(rand.NewSource(seed))
	for _, p := range o.parts {
		w := rand.New(rand.NewSource(rng.Int63()))
		o.clients.Go(func() { p.run(w) })
		for range 2 {
			rd := p.newReader(rand.New(rand.NewSource(rng.Int63())))
			o.clients.Go(rd.run)
		}
	}
	o.used("at the beginning", 100)
	o.torment(rng, length, faults)
	o.used("after all faults", 500)
	close(o.stop)
	o.clients.Wait()
	if o.t.Failed() {
		o.t.FailNow()
	}
	o.atRest()
	o.tell()
}

// torment strikes with one fault after the other, and leaves all well. Where there is time
// it strikes with all of them, those of the first group first.
func (o *cacheOracle) torment(rng *rand.Rand, length time.Duration, groups [][]redisNemesis) {
	o.t.Helper()
	var all []redisNemesis
	for _, g := range groups {
		for _, i := range rng.Perm(len(g)) {
			all = append(all, g[i])
		}
	}
	struck := map[string]int{}
	for n, end := 0, time.Now().Add(length); time.Now().Before(end) && o.running(); n++ {
		one := all[n%len(all)]
		if n >= len(all) {
			one = all[rng.Intn(len(all))]
		}
		struck[one.name]++
		one.strike(o.world, rng)
		if rng.Intn(3) > 0 {
			o.used("after "+one.name, 50)
		} else {
			some(rng, 1, 300)
		}
	}
	var told []string
	for _, one := range all {
		told = append(told, fmt.Sprintf("%s %d", one.name, struck[one.name]))
	}
	o.t.Logf("faults: %s", strings.Join(told, ", "))
}

// used waits until entries in Redis have answered so often, through each gateway.
func (o *cacheOracle) used(when string, hits float64) {
	o.t.Helper()
	for _, d := range o.gateways {
		from := d.figure("redis", "hits_total", "")
		for end := time.Now().Add(60 * time.Second); o.running() && d.figure("redis", "hits_total", "") < from+hits; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				o.t.Logf("figures of the gateway: %s", d.get("/metrics"))
				o.world.f.dump() // where does what stand?
				o.t.Fatalf("Redis does not answer %s", when)
			}
		}
	}
}

// figure is one of a node's caches.
func (d *daemon) figure(tier, name, reason string) (v float64) {
	d.t.Helper()
	line := fmt.Sprintf("\nliana_cache_%s{tier=%q} ", name, tier)
	if reason != "" {
		line = fmt.Sprintf("\nliana_cache_%s{reason=%q,tier=%q} ", name, reason, tier)
	}
	if _, text, ok := strings.Cut(d.get("/metrics"), line); ok {
		if _, err := fmt.Sscan(text, &v); err != nil {
			d.t.Fatal(err)
		}
	}
	return v
}

// tell logs what came of it, and fails where too little did.
func (o *cacheOracle) tell() {
	o.t.Helper()
	var told []string
	for _, f := range [][3]string{
		{"reader", "hits_total"}, {"reader", "asked_total"}, {"hot", "hits_total"}, {"redis", "hits_total"}, {"redis", "fills_total"}, {"redis", "refused_total"},
		{"redis", "misses_total", "behind"}, {"redis", "misses_total", "failed"}, {"audit", "equal_total"}, {"audit", "wrong_total"},
	} {
		sum := 0.0
		for _, d := range o.gateways {
			sum += d.figure(f[0], f[1], f[2])
		}
		told = append(told, fmt.Sprintf("%s %s %s %.0f", f[0], f[1], f[2], sum))
		if (sum == 0) == (f[1] != "wrong_total") && f[1] != "refused_total" {
			o.t.Errorf("%v: %v", f, sum)
		}
	}
	o.t.Logf("%d answers checked; %s", o.reads.Load(), strings.Join(told, ", "))
}

// tormentFor is for how long faults strike.
func tormentFor() time.Duration {
	if os.Getenv("LIANA_LONG") != "" {
		return 4 * time.Minute
	}
	return 15 * time.Second
}

// Whatever happens to a Redis and on the way to it, no call fails, no answer is older than
// its token or than the bound, and none of a state that never was; at rest, all that is
// cached equals the storage.
func TestOracleOfACacheInOneRedis(t *testing.T) {
	s := startRedis(t)
	o := newCacheOracle(t, &redisWorld{servers: []*redisServer{s}}, s.addr)
	o.run(tormentFor(), redisNemeses())
}

// The same over a Redis Cluster, whose masters fail over and whose slots move.
func TestOracleOfACacheInARedisCluster(t *testing.T) {
	rc := startReplicatedRedisCluster(t)
	o := newCacheOracle(t, &redisWorld{servers: rc.servers, cluster: rc}, rc.addrs())
	o.run(tormentFor(), clusterNemeses(), redisNemeses())
}
