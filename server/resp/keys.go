package resp

import (
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
)

// Commands on keys, whatever they hold.

func planDel(p *planner, args [][]byte)    { p.each(args[1:], counter.Remove, replyRemoved) }
func planExists(p *planner, args [][]byte) { p.each(args[1:], counter.Look, replyExisting) }

func (p *planner) each(names [][]byte, kind counter.EditKind, reply func(*conn, *step, []graph.EditResult)) {
	for _, name := range names {
		k, bad := p.key(name)
		if bad != "" {
			p.fail(bad)
			return
		}
		p.all(k, kind, kind == counter.Look)
	}
	p.add(reply)
}

func replyRemoved(c *conn, s *step, res []graph.EditResult) {
	c.w.int(c.keysWhere(s, res, func(r *graph.EditResult) bool { return r.Changed }))
}

func replyExisting(c *conn, s *step, res []graph.EditResult) {
	c.w.int(c.keysWhere(s, res, func(r *graph.EditResult) bool { return r.Before.Exists }))
}

// keysWhere counts the keys of which an edit is as asked.
func (c *conn) keysWhere(s *step, res []graph.EditResult, so func(*graph.EditResult) bool) (n int64) {
	heads := c.b.heads[s.from:s.to]
	counted := false
	for i := range res {
		if heads[i] {
			counted = false
		}
		if !counted && so(&res[i]) {
			counted = true
			n++
		}
	}
	return n
}

func planType(p *planner, args [][]byte) {
	k, bad := p.key(args[1])
	if bad != "" {
		p.fail(bad)
		return
	}
	p.look(k)
	s := p.add(replyType)
	if s.text = "string"; k.isHash {
		s.text = "hash"
	}
}

func replyType(c *conn, s *step, res []graph.EditResult) {
	for i := range res {
		if res[i].Before.Exists {
			c.w.simple(s.text)
			return
		}
	}
	c.w.simple("none")
}
