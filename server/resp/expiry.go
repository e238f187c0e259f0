package resp

import (
	"math"
	"strings"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
)

// Commands on the expiry of keys.

func isUnit(b []byte) bool { return is(b, "EX") || is(b, "PX") || is(b, "EXAT") || is(b, "PXAT") }

// unitOf says what a number of a unit comes to: µs each, and whether it counts from now.
func unitOf(unit string) (each int64, fromNow bool) {
	each = 1000
	if unit = strings.ToUpper(unit); unit[0] == 'E' {
		each = 1_000_000
	}
	return each, !strings.HasSuffix(unit, "AT")
}

// expiry reads the expiry of a value that is set, which must be positive.
func (p *planner) expiry(unit string, amount []byte) (at int64, bad string) {
	n, ok := parseInt64(amount)
	if !ok {
		return 0, errInteger
	}
	if at, ok = p.instant(unit, n); n <= 0 || !ok {
		return 0, p.badExpiry()
	}
	return at, ""
}

// badExpiry is the error of a time past all clocks.
func (p *planner) badExpiry() string {
	return "ERR invalid expire time in '" + p.cmd.name + "' command"
}

// instant is a moment in µs, at least 1: whatever is before that has come as well.
func (p *planner) instant(unit string, n int64) (at int64, ok bool) {
	each, fromNow := unitOf(unit)
	switch {
	case n > math.MaxInt64/each, each == 1_000_000 && n < math.MinInt64/1000:
		return 0, false
	case n < math.MinInt64/each:
		return 1, true
	}
	at = n * each
	if fromNow {
		if at > math.MaxInt64-p.now {
			return 0, false
		}
		at += p.now
	}
	return max(at, 1), true
}

func planExpire(p *planner, args [][]byte)    { p.expire(args, "EX") }
func planPExpire(p *planner, args [][]byte)   { p.expire(args, "PX") }
func planExpireAt(p *planner, args [][]byte)  { p.expire(args, "EXAT") }
func planPExpireAt(p *planner, args [][]byte) { p.expire(args, "PXAT") }

// expire is [P]EXPIRE[AT] key n [NX|XX|GT|LT].
func (p *planner) expire(args [][]byte, unit string) {
	cond, bad := expireConditions(args[3:])
	n, ok := parseInt64(args[2])
	if bad == "" && !ok {
		bad = errInteger
	}
	at, ok := p.instant(unit, n)
	if bad == "" && !ok {
		bad = p.badExpiry()
	}
	k, wrong := p.key(args[1])
	if bad == "" {
		bad = wrong
	}
	if bad == "" && k.isHash {
		bad = "ERR the metrics of a vertex do not expire together"
	}
	if bad != "" {
		p.fail(bad)
		return
	}
	p.b.edit(graph.CounterEdit{Counter: k.ref, Kind: counter.Expire, If: cond, ExpireAt: at})
	p.add(replyApplied)
}

func expireConditions(words [][]byte) (cond counter.Condition, bad string) {
	for _, w := range words {
		switch {
		case is(w, "NX"):
			cond |= counter.IfLasting
		case is(w, "XX"):
			cond |= counter.IfExpiring
		case is(w, "GT"):
			cond |= counter.IfLater
		case is(w, "LT"):
			cond |= counter.IfEarlier
		default:
			return 0, "ERR Unsupported option " + string(echo(w, maxEcho))
		}
	}
	if cond&counter.IfLasting != 0 && cond != counter.IfLasting {
		return 0, "ERR NX and XX, GT or LT options at the same time are not compatible"
	}
	if cond&counter.IfLater != 0 && cond&counter.IfEarlier != 0 {
		return 0, "ERR GT and LT options at the same time are not compatible"
	}
	return cond, ""
}

func planPersist(p *planner, args [][]byte) {
	k, bad := p.key(args[1])
	switch {
	case bad != "":
		p.fail(bad)
	case k.isHash:
		p.add(replyZero)
	default:
		p.b.edit(graph.CounterEdit{Counter: k.ref, Kind: counter.Expire, If: counter.IfExpiring})
		p.add(replyApplied)
	}
}

func planTTL(p *planner, args [][]byte)         { p.remaining(args, replyTTL) }
func planPTTL(p *planner, args [][]byte)        { p.remaining(args, replyPTTL) }
func planExpireTime(p *planner, args [][]byte)  { p.remaining(args, replyExpireTime) }
func planPExpireTime(p *planner, args [][]byte) { p.remaining(args, replyPExpireTime) }

func (p *planner) remaining(args [][]byte, reply func(*conn, *step, []graph.EditResult)) {
	k, bad := p.key(args[1])
	if bad != "" {
		p.fail(bad)
		return
	}
	p.look(k)
	s := p.add(reply)
	if s.n = p.now; k.isHash {
		s.reply = replyNoTTL
	}
}

// Answers for a key that is not there, and for one that does not expire.
const (
	ttlAbsent  = -2
	ttlLasting = -1
)

// replyNoTTL answers for a vertex: it never expires as a whole.
func replyNoTTL(c *conn, _ *step, res []graph.EditResult) {
	for i := range res {
		if res[i].Before.Exists {
			c.w.int(ttlLasting)
			return
		}
	}
	c.w.int(ttlAbsent)
}

func replyTTL(c *conn, s *step, res []graph.EditResult) {
	ttl(c, res, s.n, 1_000_000)
}

func replyPTTL(c *conn, s *step, res []graph.EditResult) { ttl(c, res, s.n, 1000) }

func replyExpireTime(c *conn, _ *step, res []graph.EditResult) { ttl(c, res, 0, 1_000_000) }

func replyPExpireTime(c *conn, _ *step, res []graph.EditResult) { ttl(c, res, 0, 1000) }

// ttl answers the time to an expiry since a moment, in units of each µs. Seconds are rounded
// from milliseconds, as Redis rounds them.
func ttl(c *conn, res []graph.EditResult, since, each int64) {
	b := res[0].Before
	switch {
	case !b.Exists:
		c.w.int(ttlAbsent)
	case b.ExpireAt == 0:
		c.w.int(ttlLasting)
	case each == 1000:
		c.w.int(max(0, b.ExpireAt-since) / 1000)
	default:
		c.w.int((max(0, b.ExpireAt-since)/1000 + 500) / 1000)
	}
}
