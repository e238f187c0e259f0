package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
)

// planner turns commands into steps of a batch.
type planner struct {
	c      *conn
	b      *batch
	schema *graph.Schema
	now    int64 // µs
	last   bool  // nothing is executed after the command
	cmd    *command
	from   int // where the edits of the command begin
}

func newPlanner(c *conn, b *batch) planner {
	return planner{c: c, b: b, schema: b.schema, now: time.Now().UnixMicro()}
}

// add ends a command: its edits are there, reply makes its answer of their results.
func (p *planner) add(reply func(*conn, *step, []graph.EditResult)) *step {
	p.b.steps = append(p.b.steps, step{cmd: p.cmd, from: p.from, to: len(p.b.edits), reply: reply})
	return &p.b.steps[len(p.b.steps)-1]
}

// fail ends a command that is wrong. Nothing of it is executed.
func (p *planner) fail(text string) {
	p.b.cutBack(len(p.b.steps), p.from)
	p.add(replyError).text = text
	if p.c.tx.open {
		p.c.tx.spoiled = true
	}
}

func replyError(c *conn, s *step, _ []graph.EditResult) { c.w.error(s.text) }
func replyOK(c *conn, _ *step, _ []graph.EditResult)    { c.w.ok() }
func replyEmpty(c *conn, _ *step, _ []graph.EditResult) { c.w.array(0) }
func replyZero(c *conn, _ *step, _ []graph.EditResult)  { c.w.int(0) }

// command plans one command. The arguments are valid until the batch is done.
func (p *planner) command(args [][]byte) {
	p.from = len(p.b.edits)
	p.cmd = p.c.server.catalog.find(args[0])
	if p.cmd == nil {
		p.cmd = p.c.server.catalog.unknown
		p.fail(unknownText(args))
		return
	}
	if !p.cmd.takes(len(args)) {
		p.fail(arityText(p.cmd.name))
		return
	}
	if p.c.tx.open && !p.cmd.now {
		p.queue(args)
		return
	}
	p.cmd.plan(p, args)
}

func arityText(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}

// maxEcho bounds what of a wrong command an error repeats, as Redis does.
const maxEcho = 128

func unknownText(args [][]byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ERR unknown command '%s', with args beginning with: ", echo(args[0], maxEcho))
	for left, i := maxEcho, 1; i < len(args) && left > 0; i++ {
		word := echo(args[i], left)
		fmt.Fprintf(&b, "'%s' ", word)
		left -= len(word) + 3
	}
	return b.String()
}

func echo(b []byte, n int) []byte { return b[:min(len(b), n)] }

// render writes the reply of a step.
func (c *conn) render(s *step) {
	res := c.b.results[s.from:s.to]
	before := c.w.errs
	if text := c.wrong(s, res); text != "" {
		c.w.error(text)
	} else {
		s.reply(c, s, res)
	}
	s.cmd.calls.Add(1)
	if c.w.errs != before {
		s.cmd.errors.Add(1)
	}
}

// wrong is the error of a step whose edits were not all made; an unknown outcome is told
// before all others.
func (c *conn) wrong(s *step, res []graph.EditResult) string {
	text := ""
	for i := range res {
		switch err := res[i].Err; {
		case errors.Is(err, graph.ErrOverflow):
			text = errOverflow
		case err != nil:
			if text = c.server.host.Explain(err); strings.HasPrefix(text, UnknownOutcome) {
				return text
			}
		case res[i].Outcome == counter.Capped:
			text = errBounds
		}
	}
	return text
}

func is(b []byte, word string) bool { return strings.EqualFold(string(b), word) }

func lower(b []byte) string { return string(bytes.ToLower(b)) }
