package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// addAll adds edges 0 to n-1 by several callers.
func (f *fleet) addAll(n uint64, edge func(i uint64) *pb.Edge) {
	f.t.Helper()
	const callers = 16
	var wg sync.WaitGroup
	for c := range uint64(callers) {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				until(f.t, f, nil, func(ctx context.Context, d *daemon) error {
					_, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: edge(i)})
					return err
				})
			}
		})
	}
	wg.Wait()
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason"`
	Shards []struct {
		ID      uint32 `json:"id"`
		State   string `json:"state"`
		Applied uint64 `json:"applied"`
	} `json:"shards"`
}

// poller looks at a node from its first moment on, as a balancer and a client would.
type poller struct {
	t      *testing.T
	p      *process
	http   string
	health healthpb.HealthClient
	graph  pb.GraphClient
	edges  func(i uint64) *pb.Edge // all of them were acknowledged before the node was started
	n      uint64
	least  map[uint32]uint64 // what was applied of each shard when it was started

	states       map[string]int // of shards, how often each was seen
	answers      int
	refused      int
	notServing   int
	servingSince time.Time
}

// newPoller waits for the ports of a process.
func newPoller(t *testing.T, p *process) *poller {
	t.Helper()
	var grpcAddr, httpAddr string
	ports := regexp.MustCompile(`msg=starting .* grpc=(\S+) http=(\S+)`)
	for end := time.Now().Add(30 * time.Second); grpcAddr == ""; time.Sleep(2 * time.Millisecond) {
		if m := ports.FindStringSubmatch(p.stderr.String()); m != nil {
			grpcAddr, httpAddr = m[1], m[2]
		}
		if time.Now().After(end) {
			t.Fatal("no ports")
		}
	}
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &poller{t: t, p: p, http: httpAddr, health: healthpb.NewHealthClient(conn), graph: pb.NewGraphClient(conn), states: map[string]int{}}
}

// look looks once, and returns what /readyz said.
func (l *poller) look(turn int) readiness {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	l.alive(ctx)
	// Health before the shards: they only get better.
	h, err := l.health.Check(ctx, &healthpb.HealthCheckRequest{})
	serving := err == nil && h.GetStatus() == healthpb.HealthCheckResponse_SERVING
	if serving && l.servingSince.IsZero() {
		l.servingSince = time.Now()
	}
	if !serving {
		l.notServing++
	}
	r := l.readyz(ctx)
	for _, s := range r.Shards {
		l.states[s.State]++
		if serving && s.State == "catching up" {
			l.t.Errorf("SERVING, and shard %d is catching up", s.ID)
		}
		if s.State == "serving" && s.Applied < l.least[s.ID] {
			l.t.Errorf("shard %d serves at entry %d, the shard was at %d when the node was started", s.ID, s.Applied, l.least[s.ID])
		}
	}
	e := l.edges(uint64(turn*7919) % l.n)
	has, err := l.graph.HasEdge(ctx, &pb.HasEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst})
	switch {
	case err == nil && !has.GetExists():
		l.t.Errorf("a wrong no for %v", e)
	case err == nil:
		l.answers++
	case serving || status.Code(err) != codes.Unavailable:
		l.t.Errorf("serving %v: %v", serving, err)
	default:
		l.refused++
	}
	return r
}

// alive: whatever a node still lacks, it is up.
func (l *poller) alive(ctx context.Context) {
	if code, _ := l.get(ctx, "/healthz"); code != http.StatusOK {
		l.t.Errorf("/healthz: %d", code)
	}
}

func (l *poller) readyz(ctx context.Context) (r readiness) {
	code, body := l.get(ctx, "/readyz")
	if err := json.Unmarshal(body, &r); err != nil || r.Ready != (code == http.StatusOK) {
		l.t.Errorf("/readyz: %d, %q, %v", code, body, err)
	}
	return r
}

func (l *poller) get(ctx context.Context, path string) (int, []byte) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.http+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Errorf("%s: %v", path, err)
		return 0, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Errorf("%s: %v", path, err)
	}
	return resp.StatusCode, body
}

// until looks every 20 ms until what /readyz says is as wanted.
func (l *poller) until(what string, wanted func(r readiness) bool) {
	l.t.Helper()
	for turn, end := 0, time.Now().Add(90*time.Second); ; turn++ {
		r := l.look(turn)
		if wanted(r) {
			break
		}
		if time.Now().After(end) {
			l.t.Fatalf("%s: not so: %+v", what, r)
		}
		time.Sleep(20 * time.Millisecond)
	}
	l.t.Logf("%s: %d answers, %d refusals, %d times not serving; states %v", what, l.answers, l.refused, l.notServing, l.states)
}

// applied is how far the leaders have applied their shards.
func (f *fleet) applied() map[uint32]uint64 {
	out := map[uint32]uint64{}
	for i := range f.places {
		r, err := f.node(i).admin.GetStatus(testCtx(f.t), &pb.GetStatusRequest{})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, s := range r.GetShards() {
			if s.GetLeader() {
				out[s.GetId()] = s.GetApplied()
			}
		}
	}
	return out
}

// CASES 39: whoever asks a node that is restarted with much to catch up, or that joins and
// is given replicas, hears NOT_SERVING or UNAVAILABLE, or a right answer; never a wrong no.
// A replica serves once it has what was applied when its node was started.
func TestCase39_ANodeIsReadyWhenItHasTheData(t *testing.T) {
	likes := uint64(1_000)
	if os.Getenv("LIANA_LONG") != "" {
		likes = 20_000
	}
	f := newTrio(t)
	edges := func(i uint64) *pb.Edge { return bigLike(i+1, i%50+1) }
	f.addAll(likes/2, edges)
	const victim = 2
	p := f.places[victim]
	p.kill()
	rest := f.places[:victim]
	all := f.places
	f.places = rest
	f.addAll(likes, edges)
	least := f.applied()
	f.places = all
	for _, other := range rest { // what it missed comes slowly
		f.board.set(other.name, p.name, wire{rate: int(250 * likes)})
	}
	node := launchWith(t, f.board.env(p.name), startArgs(p.dir, "--peer-addr", p.peer)...)
	l := newPoller(t, node)
	l.edges, l.n, l.least = edges, likes, least
	l.until("a restart", func(r readiness) bool { return r.Ready })
	if l.notServing == 0 || l.states["catching up"]+l.states["no leader"] == 0 {
		t.Error("it was ready at once, or its shards were")
	}
	f.board.heal()
	p.mu.Lock()
	p.d, p.up = node.daemon(), true
	p.mu.Unlock()
	f.settled()

	least = f.applied()
	name := "3"
	joined := &place{f: f, name: name, dir: t.TempDir() + "/data"}
	node = launchWith(t, f.board.env(name), startArgs(joined.dir, "--join", f.places[0].peer)...)
	l = newPoller(t, node)
	l.edges, l.n, l.least = edges, likes, least
	l.until("a join", func(r readiness) bool {
		serve := 0
		for _, s := range r.Shards {
			if s.State == "serving" {
				serve++
			}
		}
		return r.Ready && serve >= 3
	})
	joined.d, joined.up = node.daemon(), true
	joined.peer = joined.d.ready["peer"]
	f.board.know(name, joined.peer)
	f.places = append(f.places, joined)
	f.settled()

	// A shard without a leader on a node that is well otherwise.
	f.isolate(3)
	l.edgeless()
	f.board.heal()
	f.settled()
	f.converged()
}

// edgeless waits until the node says of its shards that they have no leader.
func (l *poller) edgeless() {
	l.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		l.alive(ctx)
		r := l.readyz(ctx)
		h, err := l.health.Check(ctx, &healthpb.HealthCheckRequest{})
		cancel()
		without := 0
		for _, s := range r.Shards {
			if s.State == "no leader" {
				without++
			}
		}
		if err == nil && h.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING && without > 0 && regexp.MustCompile(`shard \d+: no leader`).MatchString(r.Reason) {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("cut off, it says %+v, %v, %v", r, h, err)
		}
	}
}
