package rediscache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

// The simulator runs the real reader, tiers and feeder against the model of Redis and
// the model of storage. Every message between them is delivered, delayed, lost
// before or after it took effect, or delivered twice, by the choice of a seed; every
// answer is checked against the history of storage (CACHE.md section 3).

// simFaults say what may go wrong in a run.
type simFaults struct {
	lose, repeat bool // messages
	evict, flush bool
	failover     bool // losing up to ten writes, the old master still readable
	split, trim  bool
	oldLeader    bool // feeds and answers polls of who is cut off with it
	restore      bool
	nudge        bool
	groupCommit  bool
	rowWriters   bool // rows are written by writers too (what F1 forbids)
	unconfirmed  bool // an old leader's answers to polls are heard (what R1 forbids)
	noPolls      bool // h alone says what is fresh (what R1 forbids)
	naiveFlights bool // what R3 forbids
	naiveHot     bool // what R2 forbids
	oneGen       bool // gens do not change
	slotCursor   bool // the feeder keeps its own cursor (what F4 forbids)
	redis        redisFlaws
	storage      cachetest.Flaws
}

// everything is all faults that the protocol has to bear.
func everything() simFaults {
	return simFaults{
		lose: true, repeat: true, evict: true, flush: true, failover: true, split: true, trim: true, oldLeader: true,
		restore: true, nudge: true, groupCommit: true,
	}
}

const simBound = time.Second

// simNode is a Redis node: a master, what its replica may be, and old masters.
type simNode struct {
	now  *modelRedis
	past []map[string]string // the last ten states, newest last
	old  *modelRedis         // the master before the last failover
}

// message is a request under way, or its answer.
type message struct {
	from  string
	n     int
	steps []func()   // what is still to be done, one a delivery
	done  chan error // nil: nobody waits
}

type sim struct {
	t      *testing.T
	r      *rand.Rand
	faults simFaults
	m      *cachetest.Model
	nodes  []*simNode
	gates  []*gateway
	feeds  []*simFeeder
	old    *cachetest.Model // as an old leader sees it
	backup *cachetest.Backup
	tokens []cache.Token // of sessions

	mu       sync.Mutex
	messages []*message
	sent     int
	procs    sync.WaitGroup
	trace    []string
	bad      error
}

type gateway struct {
	name   string
	tier   *Tier
	polls  *cache.Polls
	reader *cache.Reader
	conn   *simConn
}

type simFeeder struct {
	f    *Feeder
	conn *simConn
	busy bool
}

var errLost = errors.New("connection lost")

// call sends a message and waits for its answer.
func (s *sim) call(ctx context.Context, from string, steps ...func()) error {
	done := make(chan error, 1)
	s.send(from, done, steps)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sim) send(from string, done chan error, steps []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	s.messages = append(s.messages, &message{from, s.sent, steps, done})
}

// deliver moves one message by one step. It reports whether there was any.
func (s *sim) deliver(calm bool) bool {
	synctest.Wait()
	s.mu.Lock()
	slices.SortFunc(s.messages, func(a, b *message) int {
		if c := strings.Compare(a.from, b.from); c != 0 {
			return c
		}
		return cmp.Compare(a.n, b.n)
	})
	if len(s.messages) == 0 {
		s.mu.Unlock()
		return false
	}
	i := s.r.IntN(len(s.messages))
	m := s.messages[i]
	s.mu.Unlock()
	remove := func() {
		s.mu.Lock()
		s.messages = slices.DeleteFunc(s.messages, func(o *message) bool { return o == m })
		s.mu.Unlock()
	}
	answer := func(err error) {
		if m.done != nil {
			m.done <- err
		}
		remove()
	}
	switch {
	case s.faults.lose && !calm && s.r.IntN(25) == 0:
		s.note("%s: lost with %d steps to go", m.from, len(m.steps))
		answer(errLost)
	case len(m.steps) == 0:
		answer(nil)
	default:
		if s.faults.repeat && !calm && s.r.IntN(25) == 0 {
			s.send(m.from+"'", nil, slices.Clone(m.steps))
		}
		step := m.steps[0]
		m.steps = m.steps[1:]
		step()
		if m.done == nil && len(m.steps) == 0 {
			remove()
		}
	}
	return true
}

func (s *sim) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

func (s *sim) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad == nil {
		s.bad = err
	}
}

// simConn is the connections of one process to the Redis nodes.
type simConn struct {
	s      *sim
	name   string
	behind []bool // per node: it still talks to the old master
}

func (c *simConn) node(string) string { return "" }

func nodeOf(key string, n int) int {
	_, rest, _ := strings.Cut(key, "{")
	return int(rest[0]) % n
}

func (c *simConn) do(ctx context.Context, calls []call) []reply {
	out := make([]reply, len(calls))
	for i := range out {
		out[i].err = errLost
	}
	for n := range c.s.nodes {
		var steps []func()
		var which []int
		got := map[int]reply{}
		for i := range calls {
			if nodeOf(calls[i].keys[0], len(c.s.nodes)) != n {
				continue
			}
			which = append(which, i)
			steps = append(steps, func() { got[i] = c.s.exec(c, n, &calls[i]) })
		}
		if len(steps) == 0 {
			continue
		}
		if err := c.s.call(ctx, fmt.Sprintf("%s redis%d", c.name, n), steps...); err != nil {
			continue
		}
		for _, i := range which {
			out[i] = got[i]
		}
	}
	return out
}

// exec executes a call on a node, as the caller finds it.
func (s *sim) exec(c *simConn, n int, call *call) reply {
	node := s.nodes[n]
	r := node.now
	if c.behind[n] && node.old != nil {
		r = node.old
	}
	if r == node.now && call.script != scriptNone {
		node.past = append(node.past, maps.Clone(r.keys))
		node.past = node.past[max(0, len(node.past)-10):]
	}
	rep := r.call(call)
	if call.script != scriptNone {
		s.note("%s: %v %s %q -> %q", c.name, call.script, strings.Join(call.keys, " "), short(call), rep.values)
	}
	return rep
}

func short(c *call) []string {
	out := []string{}
	for _, a := range c.args {
		out = append(out, a[:min(len(a), 60)])
	}
	return out
}

// simStorage is storage behind messages.
type simStorage struct {
	s    *sim
	name string
	gate *gateway
}

func (st *simStorage) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	found := make([]cache.Entry, len(got))
	var err error
	if e := st.s.call(ctx, st.name+" load", func() { err = st.s.m.Load(ctx, wants, found) }); e != nil {
		return e
	}
	copy(got, found)
	return err
}

func (st *simStorage) Read(ctx context.Context, opt cache.Options, qs []cache.Query, as []cache.Answer) (cache.Token, error) {
	found := make([]cache.Answer, len(as))
	var tok cache.Token
	var err error
	if e := st.s.call(ctx, st.name+" read", func() { tok, err = st.s.m.Read(ctx, opt, qs, found) }); e != nil {
		return tok, e
	}
	copy(as, found)
	return tok, err
}

func (st *simStorage) Poll(ctx context.Context, slots []cache.Slot, tell func(cache.Slot, cache.Position)) error {
	at := make([]cache.Position, len(slots))
	err := st.s.call(ctx, st.name+" poll", func() {
		m := st.s.m
		if st.s.old != nil && st.s.faults.unconfirmed && st.s.r.IntN(2) == 0 {
			m = st.s.old
		}
		for i, slot := range slots {
			at[i] = m.Last(slot)
			if st.s.faults.noPolls {
				at[i].Number = 0
			}
		}
	})
	if err != nil {
		return err
	}
	for i, slot := range slots {
		tell(slot, at[i])
	}
	return nil
}

// newSim builds two gateways, a feeder and two Redis nodes over an empty storage.
func newSim(t *testing.T, seed uint64, f simFaults) *sim {
	s := &sim{t: t, r: rand.New(rand.NewPCG(seed, 99)), faults: f, m: cachetest.NewModel(3)}
	s.m.Record, s.m.Window, s.m.Flaws = true, 3, f.storage
	for range 2 {
		n := &simNode{now: newModelRedis()}
		n.now.flaws = f.redis
		s.nodes = append(s.nodes, n)
	}
	for i := range 2 {
		g := &gateway{name: fmt.Sprintf("g%d", i)}
		g.conn = &simConn{s: s, name: g.name, behind: make([]bool, len(s.nodes))}
		st := &simStorage{s, g.name, g}
		gens := rand.New(rand.NewPCG(seed, uint64(i)))
		g.tier = newTier(TierConfig{Timeout: 10 * time.Second, Lease: time.Millisecond, Rand: gens.Uint64}, g.conn, st)
		g.polls = cache.NewPolls(simBound)
		g.reader = cache.NewReader(st, s.above(g), g.polls)
		s.gates = append(s.gates, g)
	}
	s.tokens = make([]cache.Token, 3)
	s.addFeeder(s.m)
	return s
}

func (s *sim) above(g *gateway) cache.Source {
	var src cache.Source = g.tier
	if s.faults.naiveFlights {
		src = &naiveFlights{next: src, under: map[cache.Key]chan cache.Entry{}}
	} else {
		src = cache.NewFlights(src)
	}
	if s.faults.naiveHot {
		return &naiveHot{next: src, copies: map[cache.Key]naiveCopy{}}
	}
	h, err := cache.NewHot(src, cache.NewTopK(16, 2), 1<<16)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

func (s *sim) addFeeder(log cache.Log) {
	name := fmt.Sprintf("f%d", len(s.feeds))
	c := &simConn{s: s, name: name, behind: make([]bool, len(s.nodes))}
	gens := rand.New(rand.NewPCG(s.r.Uint64(), 7)).Uint64
	if s.faults.oneGen {
		gens = func() uint64 { return 7 }
	}
	f := newFeeder(FeederConfig{Rand: gens, Window: 3, Least: 1, Raise: 3 * time.Second}, c, log)
	s.feeds = append(s.feeds, &simFeeder{f: f, conn: c})
}

// run makes some steps, then lets everything settle and compares what is cached with
// storage. It returns the first violation.
func (s *sim) run(steps int) error {
	ctx, stop := context.WithCancel(context.Background())
	defer s.procs.Wait()
	defer stop()
	s.warm(ctx)
	for range steps {
		s.step(ctx)
		for n := s.r.IntN(12); n > 0 && s.deliver(false); n-- {
		}
		if s.r.IntN(3) == 0 {
			time.Sleep(time.Duration(s.r.IntN(200)) * time.Millisecond)
		}
		if synctest.Wait(); s.bad != nil {
			return s.bad
		}
	}
	for range 3 { // calm: no faults any more
		synctest.Wait()
		for _, f := range s.feeds[:1] {
			s.feed(ctx, f)
		}
		for _, g := range s.gates {
			s.poll(ctx, g)
		}
		for s.deliver(true) {
		}
		time.Sleep(2 * time.Second)
	}
	synctest.Wait()
	if s.bad != nil {
		return s.bad
	}
	return s.compare()
}

// warm opens the slots and has them polled.
func (s *sim) warm(ctx context.Context) {
	for range 3 {
		synctest.Wait()
		for id := range uint64(3) {
			for _, g := range s.gates {
				q := count(id)
				q.Slot = s.m.SlotOf(q.List.Vertex)
				s.spawn(func() { _, _ = g.reader.Read(ctx, cache.Options{}, []cache.Query{q}, make([]cache.Answer, 1)) })
			}
		}
		s.feed(ctx, s.feeds[0])
		for _, g := range s.gates {
			s.poll(ctx, g)
		}
		for s.deliver(true) {
		}
	}
}

// step lets something happen.
func (s *sim) step(ctx context.Context) {
	synctest.Wait()
	switch n := s.r.IntN(20); {
	case n < 4:
		s.write(ctx)
	case n < 12:
		s.read(ctx)
	case n < 15:
		s.poll(ctx, s.gates[s.r.IntN(len(s.gates))])
	case n < 18:
		s.feed(ctx, s.feeds[s.r.IntN(len(s.feeds))])
	default:
		s.upset()
	}
}

func (s *sim) list() cache.List {
	l := cachetest.Like(1)
	if s.r.IntN(3) == 0 {
		l = cachetest.Like(s.r.Uint64N(3))
	}
	l.In = s.r.IntN(5) == 0
	return l
}

func (s *sim) write(ctx context.Context) {
	var cs []cache.Change
	n := 1
	if s.faults.groupCommit {
		n += s.r.IntN(3)
	}
	l := s.list()
	for range n {
		peer := s.r.Uint64N(6) + 1
		switch s.r.IntN(6) {
		case 0, 1, 2:
			cs = append(cs, cachetest.Add(l, peer, s.r.Int64N(4)))
		case 3:
			cs = append(cs, cachetest.Remove(l, peer))
		case 4:
			cs = append(cs, cache.Change{Kind: cache.EdgeMoved, List: l, Edge: cache.Edge{Peer: peer, Time: s.r.Int64N(4)}})
		default:
			cs = append(cs, cache.Change{Kind: cache.MetricSet, List: cache.List{Vertex: l.Vertex}, Metric: uint16(s.r.IntN(2)), Value: cache.Field(s.r.IntN(1000))})
		}
	}
	made := s.m.Apply(cs...)
	s.note("write %+v", made)
	if len(made) == 0 {
		return
	}
	s.tokens[s.r.IntN(len(s.tokens))].See(made[0].Slot, s.m.Last(made[0].Slot))
	for i := range made {
		if s.faults.nudge && made[i].Kind <= cache.EdgeMoved && s.r.IntN(3) > 0 {
			s.nudge(ctx, &made[i])
		}
	}
	if s.faults.rowWriters {
		s.writeRow(ctx, &made[len(made)-1])
	}
}

// nudge is what a writer may do after its commit.
func (s *sim) nudge(ctx context.Context, c *cache.Change) {
	g := s.gates[s.r.IntN(len(s.gates))]
	at := s.m.Last(c.Slot)
	k, known := g.tier.knownGen(slotOf{c.Slot, at.Timeline})
	if !known {
		return
	}
	s.spawn(func() {
		key := cache.WindowKey(c.Slot, c.List)
		g.conn.do(ctx, []call{nudgeCall(at.Timeline, k, &key, c, 3, 1)})
	})
}

// writeRow breaks F1: a writer stores its own fact in the row, as of its position.
func (s *sim) writeRow(ctx context.Context, c *cache.Change) {
	if c.Kind != cache.MetricSet {
		return
	}
	g := s.gates[0]
	at := s.m.Last(c.Slot)
	k, known := g.tier.knownGen(slotOf{c.Slot, at.Timeline})
	if !known {
		return
	}
	key := cache.RowKey(c.Slot, c.List.Vertex)
	s.send(g.name+" row", nil, []func(){func() {
		r := s.nodes[nodeOf(headKey(at.Timeline, c.Slot), len(s.nodes))].now
		name := entryKey(at.Timeline, k, &key)
		if v, ok := r.keys[name]; ok {
			if v, ok = r.apply(v, 'c', string(appendRowOp(nil, c)), 3, 1); ok {
				r.keys[name] = v
			}
		}
	}})
}

func (s *sim) spawn(f func()) { s.procs.Go(f) }

func (s *sim) query() cache.Query {
	l := s.list()
	q := cache.Query{List: l, Slot: s.m.SlotOf(l.Vertex), Dense: s.r.IntN(2) == 0, Metric: uint16(s.r.IntN(2)), Peer: s.r.Uint64N(6) + 1}
	q.Kind = cache.QueryKind(1 + s.r.IntN(4))
	q.Page = cache.PageQuery{Limit: 1 + s.r.IntN(4)}.AllTime()
	if q.Kind == cache.HasEdge {
		q.List.In = false
	}
	return q
}

// read has a session ask through some gateway.
func (s *sim) read(ctx context.Context) {
	g, session := s.gates[s.r.IntN(len(s.gates))], s.r.IntN(len(s.tokens)+2)
	k := cachetest.Asked{Query: s.query(), At: time.Now(), Bound: simBound}
	if session < len(s.tokens) {
		k.Token = s.tokens[session]
		k.Token.Seen = slices.Clone(k.Token.Seen)
	}
	g.tier.rebuilds = cache.NewRebuilds(cache.DefaultRebuildLimits())
	g.tier.breakers = newBreakers()
	s.spawn(func() {
		as := make([]cache.Answer, 1)
		tok, err := g.reader.Read(ctx, cache.Options{Token: k.Token}, []cache.Query{k.Query}, as)
		switch {
		case errors.Is(err, cachetest.ErrOldTimeline):
			if session < len(s.tokens) {
				s.see(session, cache.Token{}, true)
			}
			return
		case err != nil:
			return
		}
		s.note("%s: %+v -> %+v with %+v", g.name, k, as[0], tok)
		if err := s.m.Check(&k, &as[0], &tok); err != nil {
			s.fail(fmt.Errorf("%s: %w", g.name, err))
		}
		if session < len(s.tokens) {
			s.see(session, tok, false)
		}
	})
}

func (s *sim) see(session int, tok cache.Token, reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.tokens[session]
	if reset {
		*t = cache.Token{}
	}
	for _, p := range tok.Seen {
		t.See(p.Slot, cache.Position{Timeline: tok.Timeline, Number: p.Number})
	}
}

func (s *sim) poll(ctx context.Context, g *gateway) {
	s.spawn(func() { _ = g.polls.Round(ctx, &simStorage{s, g.name, g}) })
}

func (s *sim) feed(ctx context.Context, f *simFeeder) {
	if f.busy {
		return
	}
	f.busy = true
	s.spawn(func() {
		if s.faults.slotCursor {
			f.keepCursor()
		}
		_ = f.f.Round(ctx)
		f.busy = false
	})
}

// keepCursor breaks F4: what the feeder has pushed it takes to be there.
func (f *simFeeder) keepCursor() {
	for _, sh := range f.f.shards {
		for i := range sh.slots {
			if sl := &sh.slots[i]; sl.p.gen != 0 {
				sl.known, sl.seen = true, time.Now().Add(time.Hour)
			}
		}
	}
}

// upset is a fault.
func (s *sim) upset() {
	node := s.nodes[s.r.IntN(len(s.nodes))]
	switch n := s.r.IntN(9); {
	case n < 2 && s.faults.evict:
		if keys := slices.Sorted(maps.Keys(node.now.keys)); len(keys) > 0 {
			k := keys[s.r.IntN(len(keys))]
			s.note("evict %s", k)
			delete(node.now.keys, k)
		}
	case n == 2 && s.faults.flush && s.r.IntN(3) == 0:
		s.note("flush")
		clear(node.now.keys)
	case n == 3 && s.faults.failover && len(node.past) > 0:
		s.failover(node)
	case n == 4 && s.faults.split:
		at := cache.Slot(1 + s.r.IntN(2))
		s.note("split at %d", at)
		s.m.Split(at)
	case n == 5 && s.faults.trim:
		s.note("trim")
		s.m.Trim(s.r.Uint64N(5))
	case n == 6 && s.faults.oldLeader && len(s.feeds) < 3:
		s.note("old leader")
		s.old = s.m.Frozen()
		s.addFeeder(s.old)
	case n == 7 && s.faults.restore:
		if s.backup == nil {
			s.note("backup")
			b := s.m.Backup()
			s.backup = &b
			return
		}
		s.note("restore")
		s.m.Restore(*s.backup, s.r)
		s.backup = nil
	}
}

// failover makes a replica the master; it lacks some of the last writes. Who talks to
// the old one finds out later, one by one.
func (s *sim) failover(node *simNode) {
	n := slices.Index(s.nodes, node)
	lost := 1 + s.r.IntN(len(node.past))
	s.note("failover of node %d loses %d writes", n, lost)
	node.old = node.now
	node.now = newModelRedis()
	node.now.flaws = s.faults.redis
	node.now.keys = maps.Clone(node.past[len(node.past)-lost])
	node.past = nil
	for _, g := range s.gates {
		g.conn.behind[n] = s.r.IntN(2) == 0
	}
	for _, f := range s.feeds {
		f.conn.behind[n] = s.r.IntN(4) == 0
	}
}

// compare compares what can be read from Redis with storage, which stands still.
func (s *sim) compare() error {
	for _, node := range s.nodes {
		for slot := range cache.Slot(3) {
			last := s.m.Last(slot)
			v, ok := node.now.keys[headKey(last.Timeline, slot)]
			if !ok {
				continue
			}
			p, err := decodeHead([]byte(v))
			if err != nil {
				return err
			}
			for _, k := range s.keys(slot) {
				v, ok := node.now.keys[entryKey(last.Timeline, p.gen, &k)]
				if !ok {
					continue
				}
				if err := s.compareEntry(&k, v, p.h, last.Number); err != nil {
					return fmt.Errorf("at rest, %v: %w", k, err)
				}
			}
		}
	}
	return nil
}

func (s *sim) keys(slot cache.Slot) (out []cache.Key) {
	for id := range uint64(3) {
		l := cachetest.Like(id)
		if s.m.SlotOf(l.Vertex) == slot {
			in := l
			in.In = true
			out = append(out, cache.RowKey(slot, l.Vertex), cache.WindowKey(slot, l), cache.WindowKey(slot, in), cache.ChunkKey(slot, l, 1))
		}
	}
	return out
}

func (s *sim) compareEntry(k *cache.Key, v string, h, last uint64) error {
	e, err := decodeEntry(k.Kind, []byte(v))
	if err != nil {
		return err
	}
	if max(e.At.Number, h) < last {
		return nil // it answers nothing
	}
	want := s.m.Entry(k)
	if k.Kind == cache.KindChunk && want.Chunk == nil { // too thin to be given
		return nil
	}
	if w := e.Window; w != nil && !w.Complete() {
		n := len(want.Window.Edges) - len(w.Edges)
		if n > 0 {
			want.Window.Edges = want.Window.Edges[n:]
		}
		want.Window.Floor = w.Floor
	}
	e.At, want.At = cache.Position{}, cache.Position{}
	if w := e.Window; w != nil && w.Complete() {
		want.Window.Floor = w.Floor
	}
	if w := e.Window; w != nil {
		want.Window.Props = w.Props // a window that had some stays so
	}
	if encodeEntry(&e) != encodeEntry(&want) {
		return fmt.Errorf("cached %s, storage %s", show(&e), show(&want))
	}
	return nil
}

func show(e *cache.Entry) string {
	switch {
	case e.Row != nil:
		return fmt.Sprintf("%+v", *e.Row)
	case e.Window != nil:
		return fmt.Sprintf("%+v", e.Window)
	}
	return fmt.Sprintf("%x", e.Chunk.Bits[:4])
}

// simulate runs one seed in a bubble of its own.
func simulate(t *testing.T, seed uint64, f simFaults, steps int) (trace []string, bad error) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, seed, f)
		bad = s.run(steps)
		trace = s.trace
	})
	return trace, bad
}
