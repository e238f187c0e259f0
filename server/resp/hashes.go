package resp

import (
	"slices"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
)

// Commands on hashes: the metrics of a vertex.

// hash reads the key of a command on hashes that only reads or removes. A key that names
// no vertex has no fields; where it holds a number, the command is of the wrong type. done:
// the command is planned, none being its answer.
func (p *planner) hash(name []byte, none func(*conn, *step, []graph.EditResult)) (v graph.Vertex, done bool) {
	k, bad := p.key(name)
	switch {
	case bad != "":
		p.fail(bad)
		return v, true
	case !k.isHash:
		p.look(k)
		p.add(func(c *conn, s *step, res []graph.EditResult) {
			if res[0].Before.Exists {
				c.w.error(errWrongType)
				return
			}
			none(c, s, nil)
		})
		return v, true
	}
	return k.vertex, false
}

// toHash is hash for a command that writes: what is no vertex is refused.
func (p *planner) toHash(name []byte) (v graph.Vertex, done bool) {
	return p.hash(name, func(c *conn, _ *step, _ []graph.EditResult) { c.w.error(errNoVertex) })
}

// metric finds a metric by its name. For a write the bad text says why it cannot be written.
func (p *planner) metric(v graph.Vertex, name []byte) (ref graph.CounterRef, bad string) {
	def, ok := p.schema.Metric(v.Type, string(name))
	switch {
	case !ok:
		return ref, "ERR the schema has no such metric of " + p.schema.VertexTypeName(v.Type)
	case def.Derived:
		bad = "ERR " + def.Name + " is derived from edges and cannot be written"
	}
	return graph.CounterRef{Vertex: v, Metric: def.ID}, bad
}

func planHIncrBy(p *planner, args [][]byte) {
	by, ok := parseInt64(args[3])
	if !ok {
		p.fail(errInteger)
		return
	}
	v, done := p.toHash(args[1])
	if done {
		return
	}
	ref, bad := p.metric(v, args[2])
	if bad != "" {
		p.fail(bad)
		return
	}
	p.b.edit(graph.CounterEdit{Counter: ref, Kind: counter.Add, Value: by})
	p.add(replyValue)
}

// planHSet is HSET and HMSET key field value [field value ...].
func planHSet(p *planner, args [][]byte) {
	if len(args)%2 != 0 {
		p.fail(arityText(p.cmd.name))
		return
	}
	v, done := p.toHash(args[1])
	if done {
		return
	}
	for i := 2; i < len(args); i += 2 {
		if !p.putMetric(v, args[i], args[i+1], 0) {
			return
		}
	}
	if p.cmd.name == "hmset" {
		p.add(replyOK)
		return
	}
	p.add(replyNew)
}

func (p *planner) putMetric(v graph.Vertex, name, value []byte, cond counter.Condition) bool {
	ref, bad := p.metric(v, name)
	n, ok := parseInt64(value)
	if bad == "" && !ok {
		bad = errInteger
	}
	if bad != "" {
		p.fail(bad)
		return false
	}
	p.b.edit(graph.CounterEdit{Counter: ref, Kind: counter.Put, If: cond, Value: n})
	return true
}

// replyNew answers how many counters there are more than before.
func replyNew(c *conn, _ *step, res []graph.EditResult) {
	n := int64(0)
	for i := range res {
		if res[i].Changed && !res[i].Before.Exists {
			n++
		}
	}
	c.w.int(n)
}

func planHSetNX(p *planner, args [][]byte) {
	v, done := p.toHash(args[1])
	if !done && p.putMetric(v, args[2], args[3], counter.IfAbsent) {
		p.add(replyApplied)
	}
}

func planHDel(p *planner, args [][]byte) {
	v, done := p.hash(args[1], replyZero)
	if done {
		return
	}
	for _, name := range args[2:] {
		ref, bad := p.metric(v, name)
		switch {
		case bad != "" && ref.Metric != 0: // derived
			p.fail(bad)
			return
		case bad == "":
			p.b.edit(graph.CounterEdit{Counter: ref, Kind: counter.Remove})
		}
	}
	p.add(replyRemoved)
}

func planHGet(p *planner, args [][]byte)    { p.field(args, replyNull, replyBefore) }
func planHExists(p *planner, args [][]byte) { p.field(args, replyZero, replyExisting) }

func replyNull(c *conn, _ *step, _ []graph.EditResult) { c.w.null() }

// field plans the read of one field; none is the answer where it cannot be there.
func (p *planner) field(args [][]byte, none, reply func(*conn, *step, []graph.EditResult)) {
	v, done := p.hash(args[1], none)
	if done {
		return
	}
	ref, _ := p.metric(v, args[2])
	if ref.Metric == 0 {
		p.add(none)
		return
	}
	p.b.edit(graph.CounterEdit{Counter: ref, Kind: counter.Look})
	p.add(reply)
}

func planHMGet(p *planner, args [][]byte) {
	n := len(args) - 2
	v, done := p.hash(args[1], replyNulls(n))
	if done {
		return
	}
	for _, name := range args[2:] {
		if ref, _ := p.metric(v, name); ref.Metric != 0 {
			p.b.edit(graph.CounterEdit{Counter: ref, Kind: counter.Look})
		}
	}
	s := p.add(replyFields)
	s.args, s.n = slices.Clone(args[2:]), int64(v.Type)
}

func replyNulls(n int) func(*conn, *step, []graph.EditResult) {
	return func(c *conn, _ *step, _ []graph.EditResult) {
		c.w.array(n)
		for range n {
			c.w.null()
		}
	}
}

// replyFields answers fields in the order in which they were asked for, those that the
// schema does not have among them.
func replyFields(c *conn, s *step, res []graph.EditResult) {
	c.w.array(len(s.args))
	for _, name := range s.args {
		if _, ok := c.b.schema.Metric(graph.VertexType(s.n), string(name)); !ok || len(res) == 0 {
			c.w.null()
			continue
		}
		replyBefore(c, s, res)
		res = res[1:]
	}
}

func planHGetAll(p *planner, args [][]byte) { p.fields(args, replyEmptyDict, replyPairs) }
func planHKeys(p *planner, args [][]byte)   { p.fields(args, replyEmpty, replyNames) }
func planHVals(p *planner, args [][]byte)   { p.fields(args, replyEmpty, replyValues) }
func planHLen(p *planner, args [][]byte)    { p.fields(args, replyZero, replyLen) }

func replyEmptyDict(c *conn, _ *step, _ []graph.EditResult) { c.w.dict(0) }

// fields plans the read of all fields of a hash, in the order of the schema.
func (p *planner) fields(args [][]byte, none, reply func(*conn, *step, []graph.EditResult)) {
	v, done := p.hash(args[1], none)
	if done {
		return
	}
	p.look(key{vertex: v, isHash: true})
	p.add(reply).n = int64(v.Type)
}

// present counts the fields that are there.
func present(res []graph.EditResult) (n int) {
	for i := range res {
		if res[i].Before.Exists {
			n++
		}
	}
	return n
}

func replyPairs(c *conn, s *step, res []graph.EditResult) {
	c.w.dict(present(res))
	c.eachField(s, res, true, true)
}

func replyNames(c *conn, s *step, res []graph.EditResult) {
	c.w.array(present(res))
	c.eachField(s, res, true, false)
}

func replyValues(c *conn, s *step, res []graph.EditResult) {
	c.w.array(present(res))
	c.eachField(s, res, false, true)
}

func replyLen(c *conn, _ *step, res []graph.EditResult) { c.w.int(int64(present(res))) }

// eachField writes names and values of the fields that are there.
func (c *conn) eachField(s *step, res []graph.EditResult, names, values bool) {
	edits := c.b.edits[s.from:s.to]
	for i := range res {
		if !res[i].Before.Exists {
			continue
		}
		if names {
			def, _ := c.b.schema.MetricByID(graph.VertexType(s.n), edits[i].Counter.Metric)
			c.w.text(def.Name)
		}
		if values {
			c.w.number(res[i].Before.Value)
		}
	}
}
