package resp

import (
	"math"
	"slices"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
)

// Commands on keys that hold a number.

func planIncr(p *planner, args [][]byte) { p.incr(args[1], 1) }
func planDecr(p *planner, args [][]byte) { p.incr(args[1], -1) }

func planIncrBy(p *planner, args [][]byte) {
	if by, ok := parseInt64(args[2]); ok {
		p.incr(args[1], by)
		return
	}
	p.fail(errInteger)
}

func planDecrBy(p *planner, args [][]byte) {
	by, ok := parseInt64(args[2])
	switch {
	case !ok:
		p.fail(errInteger)
	case by == math.MinInt64:
		p.fail("ERR decrement would overflow")
	default:
		p.incr(args[1], -by)
	}
}

func (p *planner) incr(name []byte, by int64) {
	ref, bad := p.number(name)
	if bad != "" {
		p.fail(bad)
		return
	}
	p.b.edit(graph.CounterEdit{Counter: ref, Kind: counter.Add, Value: by})
	p.add(replyValue)
}

func replyValue(c *conn, _ *step, res []graph.EditResult) { c.w.int(res[0].Value) }

// replyBefore answers what a key held before the command.
func replyBefore(c *conn, _ *step, res []graph.EditResult) {
	if !res[0].Before.Exists {
		c.w.null()
		return
	}
	c.w.number(res[0].Before.Value)
}

func planGet(p *planner, args [][]byte) { p.one(args[1], counter.Look, replyBefore) }

func planGetDel(p *planner, args [][]byte) { p.one(args[1], counter.Remove, replyBefore) }

// one plans a command that is one edit of a number without arguments.
func (p *planner) one(name []byte, kind counter.EditKind, reply func(*conn, *step, []graph.EditResult)) {
	ref, bad := p.number(name)
	if bad != "" {
		p.fail(bad)
		return
	}
	p.b.edit(graph.CounterEdit{Counter: ref, Kind: kind})
	p.add(reply)
}

func planMGet(p *planner, args [][]byte) {
	for _, a := range args[1:] {
		k, bad := p.key(a)
		if bad != "" {
			p.fail(bad)
			return
		}
		if !k.isHash {
			p.look(k)
		}
	}
	p.add(replyMany).args = slices.Clone(args[1:])
}

// replyMany answers numbers; a key that holds a hash is as one that is not there.
func replyMany(c *conn, s *step, res []graph.EditResult) {
	c.w.array(len(s.args))
	for _, a := range s.args {
		if _, ok := vertexOf(c.b.schema, a); ok {
			c.w.null()
			continue
		}
		replyBefore(c, s, res)
		res = res[1:]
	}
}

func planMSet(p *planner, args [][]byte) {
	if len(args)%2 == 0 {
		p.fail(arityText("mset"))
		return
	}
	for i := 1; i < len(args); i += 2 {
		if !p.put(args[i], args[i+1], graph.CounterEdit{}) {
			return
		}
	}
	p.add(replyOK)
}

// put adds an edit that gives a key a value; false: the command has failed.
func (p *planner) put(name, value []byte, e graph.CounterEdit) bool {
	ref, bad := p.number(name)
	v, ok := parseInt64(value)
	if bad == "" && !ok {
		bad = errInteger
	}
	if bad != "" {
		p.fail(bad)
		return false
	}
	e.Counter, e.Kind, e.Value = ref, counter.Put, v
	p.b.edit(e)
	return true
}

func planGetSet(p *planner, args [][]byte) {
	if p.put(args[1], args[2], graph.CounterEdit{}) {
		p.add(replyBefore)
	}
}

func planSetNX(p *planner, args [][]byte) {
	if p.put(args[1], args[2], graph.CounterEdit{If: counter.IfAbsent}) {
		p.add(replyApplied)
	}
}

// replyApplied answers 1 where the edit was not held back.
func replyApplied(c *conn, _ *step, res []graph.EditResult) {
	c.w.flag(res[0].Outcome == counter.Applied)
}

func planSetEX(p *planner, args [][]byte)  { p.setFor(args, "EX") }
func planPSetEX(p *planner, args [][]byte) { p.setFor(args, "PX") }

func (p *planner) setFor(args [][]byte, unit string) {
	at, bad := p.expiry(unit, args[2])
	if bad != "" {
		p.fail(bad)
		return
	}
	if p.put(args[1], args[3], graph.CounterEdit{ExpireAt: at}) {
		p.add(replyOK)
	}
}

// planSet is SET key value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL].
func planSet(p *planner, args [][]byte) {
	var e graph.CounterEdit
	var unit string
	var amount []byte
	get := false
	for i := 3; i < len(args); i++ {
		a := args[i]
		switch {
		case is(a, "NX") && e.If == 0:
			e.If = counter.IfAbsent
		case is(a, "XX") && e.If == 0:
			e.If = counter.IfPresent
		case is(a, "NX") && e.If == counter.IfAbsent, is(a, "XX") && e.If == counter.IfPresent:
		case is(a, "GET"):
			get = true
		case is(a, "KEEPTTL") && unit == "":
			e.Keep = true
		case isUnit(a) && unit == "" && !e.Keep && i+1 < len(args):
			unit, amount = lower(a), args[i+1]
			i++
		default:
			p.fail(errSyntax)
			return
		}
	}
	if unit != "" {
		var bad string
		if e.ExpireAt, bad = p.expiry(unit, amount); bad != "" {
			p.fail(bad)
			return
		}
	}
	if !p.put(args[1], args[2], e) {
		return
	}
	if get {
		p.add(replyBefore)
		return
	}
	p.add(replySet)
}

func replySet(c *conn, _ *step, res []graph.EditResult) {
	if res[0].Outcome != counter.Applied {
		c.w.null()
		return
	}
	c.w.ok()
}

// planGetEX is GETEX key [EX s|PX ms|EXAT s|PXAT ms|PERSIST].
func planGetEX(p *planner, args [][]byte) {
	e := graph.CounterEdit{Kind: counter.Look}
	wrong := "" // only where there is something to expire
	switch {
	case len(args) == 2:
	case len(args) == 3 && is(args[2], "PERSIST"):
		e.Kind, e.If = counter.Expire, counter.IfExpiring
	case len(args) == 4 && isUnit(args[2]):
		if e.ExpireAt, wrong = p.expiry(lower(args[2]), args[3]); wrong == "" {
			e.Kind = counter.Expire
		}
	default:
		p.fail(errSyntax)
		return
	}
	var bad string
	if e.Counter, bad = p.number(args[1]); bad != "" {
		p.fail(bad)
		return
	}
	p.b.edit(e)
	p.add(replyUnless).text = wrong
}

// replyUnless is replyBefore where the command is not wrong.
func replyUnless(c *conn, s *step, res []graph.EditResult) {
	if s.text != "" && res[0].Before.Exists {
		c.w.error(s.text)
		return
	}
	replyBefore(c, s, res)
}
