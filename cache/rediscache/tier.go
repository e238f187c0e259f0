package rediscache

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
)

// TierConfig configures a Tier.
type TierConfig struct {
	// TTL of entries, on average. It only clears away what nobody reads.
	// Default 1 hour.
	TTL time.Duration
	// Timeout bounds the wait for Redis in each step of a read, as does half of the
	// time that the caller still has. Default 25 ms.
	Timeout time.Duration
	// Lease is for how long one gateway has the right to load an entry. Default
	// 500 ms.
	Lease time.Duration
	// Rebuilds bound how often one entry is loaded. Default DefaultRebuildLimits.
	Rebuilds cache.RebuildLimits
	// Rand is the source of jitter. Default: the runtime's.
	Rand func() uint64
}

func (c *TierConfig) setDefaults() {
	if c.TTL == 0 {
		c.TTL = time.Hour
	}
	if c.Timeout == 0 {
		c.Timeout = 25 * time.Millisecond
	}
	if c.Lease == 0 {
		c.Lease = 500 * time.Millisecond
	}
	if c.Rebuilds == (cache.RebuildLimits{}) {
		c.Rebuilds = cache.DefaultRebuildLimits()
	}
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
}

// Tier is a cache.Source of entries in Redis. What it lacks it loads from the
// source below and stores. Its failures are gaps, never errors.
type Tier struct {
	cfg      TierConfig
	conn     conn
	next     cache.Source
	rebuilds *cache.Rebuilds
	breakers *breakers
	stats    Stats

	mu   sync.Mutex
	gens [cache.NumSlots]knownGen
}

// knownGen is the gen that a slot had when it was last looked at.
type knownGen struct {
	timeline uint64
	gen      gen
}

// Stats count what became of the entries that were wanted.
type Stats struct {
	Hits    atomic.Uint64
	Absent  atomic.Uint64 // no such entry
	Behind  atomic.Uint64 // there was one, from before what was wanted
	Closed  atomic.Uint64 // the slot has no p: no feeder has opened it
	Failed  atomic.Uint64 // Redis did not answer in time, or was left alone
	Corrupt atomic.Uint64
	Fills   atomic.Uint64
	Refused atomic.Uint64 // fills that came too late
	Limited atomic.Uint64 // entries not loaded: somebody else does, or it was too often
}

// NewTier returns a Tier over client. next is what entries are loaded from.
func NewTier(cfg TierConfig, client redis.UniversalClient, next cache.Source) *Tier {
	return newTier(cfg, newRedisConn(client), next)
}

func newTier(cfg TierConfig, c conn, next cache.Source) *Tier {
	cfg.setDefaults()
	return &Tier{cfg: cfg, conn: c, next: next, rebuilds: cache.NewRebuilds(cfg.Rebuilds), breakers: newBreakers()}
}

// Stats returns the counters of this tier.
func (t *Tier) Stats() *Stats { return &t.stats }

// OpenBreakers returns how many servers are left alone at present.
func (t *Tier) OpenBreakers() int { return t.breakers.open() }

// miss says why an entry was not found.
type miss uint8

const (
	hit     miss = iota
	absent       // to be loaded and stored
	behind       // its feeder will bring it up to date
	closed       // nothing can be stored in the slot
	failed       // Redis cannot be asked
	corrupt      // to be loaded and stored
	misses       // how many there are
)

// lookup is one Load under way.
type lookup struct {
	t     *Tier
	wants []cache.Want
	got   []cache.Entry
	miss  []miss
	heads []head // of each want's slot, where miss is hit, absent, behind or corrupt
	next  []int  // the next want of the same group, -1 at its end
}

// Load implements cache.Source.
func (t *Tier) Load(ctx context.Context, wants []cache.Want, got []cache.Entry) error {
	l := lookup{t: t, wants: wants, got: got, miss: make([]miss, len(wants)), heads: make([]head, len(wants))}
	l.find(ctx)
	t.count(l.miss)
	return l.load(ctx)
}

func (t *Tier) count(ms []miss) {
	var n [misses]uint64
	for _, m := range ms {
		n[m]++
	}
	for m, c := range [misses]*atomic.Uint64{&t.stats.Hits, &t.stats.Absent, &t.stats.Behind, &t.stats.Closed, &t.stats.Failed, &t.stats.Corrupt} {
		if n[m] > 0 {
			c.Add(n[m])
		}
	}
}

// slotOf is what a want has in common with those it can be looked up with.
type slotOf struct {
	slot     cache.Slot
	timeline uint64
}

// group is the wants of one slot.
type group struct {
	of    slotOf
	gen   gen
	known bool
	other int // the next group of the same slot, of another timeline; -1: none
	first int // of its wants; the others by lookup.next
	last  int
	n     int
}

// groups sorts the wants by slot.
func (l *lookup) groups() []group {
	groups := make([]group, 0, len(l.wants))
	l.next = make([]int, len(l.wants))
	var index [cache.NumSlots]int32 // of the groups, plus 1
	for i := range l.wants {
		of := slotOf{l.wants[i].Key.Slot, l.wants[i].Min.Timeline}
		j := int(index[of.slot]) - 1
		for j >= 0 && groups[j].of != of {
			j = groups[j].other
		}
		l.next[i] = -1
		if j >= 0 {
			g := &groups[j]
			l.next[g.last], g.last = i, i
			g.n++
			continue
		}
		groups = append(groups, group{of: of, other: int(index[of.slot]) - 1, first: i, last: i, n: 1})
		index[of.slot] = int32(len(groups))
	}
	l.t.knowGens(groups)
	return groups
}

// knowGens fills in the gens that slots had when they were last looked at.
func (t *Tier) knowGens(groups []group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range groups {
		g := &groups[i]
		k := &t.gens[g.of.slot]
		g.gen, g.known = k.gen, k.timeline == g.of.timeline && k.timeline != 0
	}
}

func (t *Tier) knownGen(of slotOf) (gen, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.gens[of.slot]
	return k.gen, k.timeline == of.timeline && k.timeline != 0
}

func (t *Tier) learnGen(of slotOf, g gen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gens[of.slot] = knownGen{of.timeline, g}
}

// find looks the wants up in Redis, one MGET of p and entries a slot. Where a slot
// has another gen than was known, once more.
func (l *lookup) find(ctx context.Context) {
	groups := l.groups()
	for range 2 {
		if len(groups) == 0 {
			return
		}
		groups = l.ask(ctx, groups)
	}
	for i := range groups {
		l.mark(&groups[i], closed) // its gen changes faster than it can be read
	}
}

func (l *lookup) mark(g *group, m miss) {
	for i := g.first; i >= 0; i = l.next[i] {
		l.miss[i] = m
	}
}

// ask asks for some groups, and returns those whose gen has changed.
func (l *lookup) ask(ctx context.Context, groups []group) (again []group) {
	names := newKeyNames(len(l.wants) + len(groups))
	asked := groups[:0:len(groups)]
	for i := range groups {
		g := &groups[i]
		if !l.t.mayAsk(g.of) {
			l.mark(g, failed)
			continue
		}
		names.head(g.of.timeline, g.of.slot)
		for i := g.first; g.known && i >= 0; i = l.next[i] {
			names.entry(g.of.timeline, g.gen, &l.wants[i].Key)
		}
		asked = append(asked, *g)
	}
	keys, calls := names.all(), make([]call, len(asked))
	for i := range asked {
		n := 1
		if asked[i].known {
			n += asked[i].n
		}
		calls[i].keys, keys = keys[:n], keys[n:]
	}
	for i, r := range l.t.do(ctx, calls) {
		if l.take(&asked[i], r) {
			again = append(again, asked[i])
		}
	}
	return again
}

func (t *Tier) mayAsk(of slotOf) bool {
	return t.breakers.allWell() || t.breakers.allow(t.conn.node(headKey(of.timeline, of.slot)))
}

// do calls Redis within the timeout and tells the breakers of it.
func (t *Tier) do(ctx context.Context, calls []call) []reply {
	if len(calls) == 0 {
		return nil
	}
	wait := t.cfg.Timeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2) // the rest is storage's
	}
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	replies := t.conn.do(short, calls)
	for i := range replies {
		ok := replies[i].err == nil || isMigrating(replies[i].err)
		if ok && t.breakers.allWell() || !ok && ctx.Err() != nil { // the caller gave up, not Redis
			continue
		}
		t.breakers.report(t.conn.node(calls[i].keys[0]), ok)
	}
	return replies
}

// take takes the answer for a group. again: its gen is another one.
func (l *lookup) take(g *group, r reply) (again bool) {
	if r.err != nil {
		l.mark(g, failed)
		return false
	}
	if r.values[0] == nil {
		l.mark(g, closed)
		return false
	}
	p, err := decodeHead(r.values[0])
	if err != nil {
		l.mark(g, corrupt)
		return false
	}
	if !g.known || g.gen != p.gen {
		l.t.learnGen(g.of, p.gen)
		g.gen, g.known = p.gen, true
		return true
	}
	for i, j := g.first, 1; i >= 0; i, j = l.next[i], j+1 {
		l.heads[i] = p
		l.miss[i] = l.takeEntry(i, p, r.values[j])
	}
	return false
}

func (l *lookup) takeEntry(i int, p head, value []byte) miss {
	if value == nil {
		return absent
	}
	w := &l.wants[i]
	e, err := decodeEntry(w.Key.Kind, value)
	if err != nil {
		return corrupt
	}
	// All changes up to h have been applied to it, so it stands at h at least.
	e.At = cache.Position{Timeline: w.Min.Timeline, Number: max(e.At.Number, p.h)}
	if !e.At.Covers(w.Min) {
		return behind
	}
	l.got[i] = e
	return hit
}

// load gets from the source below what Redis lacks, and stores it.
func (l *lookup) load(ctx context.Context) error {
	var wants []cache.Want
	var which []int
	for _, i := range l.mine(ctx) {
		wants, which = append(wants, l.wants[i]), append(which, i)
	}
	if len(wants) == 0 {
		return nil
	}
	found := make([]cache.Entry, len(wants))
	if err := l.t.next.Load(ctx, wants, found); err != nil {
		return err
	}
	for j, i := range which {
		if found[j].IsNone() { // not worth an entry, nor another try soon
			l.t.rebuilds.Deny(wants[j].Key)
			continue
		}
		l.got[i] = found[j]
	}
	l.fill(ctx, which)
	return nil
}

// mine returns the places of those missing entries that are to be loaded here and now.
// The others' questions go to storage one by one.
func (l *lookup) mine(ctx context.Context) (which []int) {
	var calls []call
	var leased []int
	for i, m := range l.miss {
		if m != absent && m != corrupt && m != failed {
			continue
		}
		if !l.t.rebuilds.Allow(l.wants[i].Key) {
			l.t.stats.Limited.Add(1)
			continue
		}
		if m == failed {
			which = append(which, i) // for the tiers above
			continue
		}
		key := leaseKey(l.wants[i].Min.Timeline, l.heads[i].gen, &l.wants[i].Key)
		calls = append(calls, call{scriptLease, []string{key}, []string{millis(l.t.cfg.Lease)}})
		leased = append(leased, i)
	}
	for j, r := range l.t.do(ctx, calls) {
		if r.err == nil && string(r.values[0]) != "1" {
			l.t.stats.Limited.Add(1)
			continue
		}
		which = append(which, leased[j])
	}
	return which
}

func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// fill stores what was loaded. An entry that is refused is still the answer.
func (l *lookup) fill(ctx context.Context, which []int) {
	var calls []call
	for _, i := range which {
		w, e := &l.wants[i], &l.got[i]
		if e.IsNone() || l.miss[i] == failed || e.At.Timeline != w.Min.Timeline || e.At.Number > cache.MaxNumber {
			continue
		}
		g := l.heads[i].gen
		calls = append(calls, call{
			scriptFill,
			[]string{headKey(w.Min.Timeline, w.Key.Slot), entryKey(w.Min.Timeline, g, &w.Key)},
			[]string{encodeNumber(uint64(g)), encodeEntry(e), millis(l.t.jitter())},
		})
	}
	for _, r := range l.t.do(ctx, calls) {
		switch {
		case r.err != nil:
		case string(r.values[0]) == "1":
			l.t.stats.Fills.Add(1)
		default:
			l.t.stats.Refused.Add(1)
		}
	}
}

// jitter is the time to live of one entry: from three to five quarters of the
// average, so that what was filled together does not go together.
func (t *Tier) jitter() time.Duration {
	half := uint64(t.cfg.TTL / 2)
	return t.cfg.TTL*3/4 + time.Duration(t.cfg.Rand()%max(half, 1))
}

// Forget has all that is cached of a slot read anew: it gives the slot a new gen, as
// REGEN does, at the position where it stands. A slot without p has nothing to forget.
func (t *Tier) Forget(ctx context.Context, timeline uint64, slot cache.Slot) error {
	key := headKey(timeline, slot)
	for {
		r := t.do(ctx, []call{{keys: []string{key}}})[0]
		if r.err != nil || r.values[0] == nil {
			return r.err
		}
		p, err := decodeHead(r.values[0])
		if err != nil {
			return err
		}
		next := head{gen(t.cfg.Rand()), p.h}.encode()
		if r = t.do(ctx, []call{{scriptRegen, []string{key}, []string{p.encode(), next}}})[0]; r.err != nil {
			return r.err
		}
		if string(r.values[0]) == next {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err // a feeder moves it all the time
		}
	}
}
