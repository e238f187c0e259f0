package resp

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lianadb/liana/graph"
)

// Commands on the connection and the server.

// version is what of Redis the port answers like.
const version = "7.0.0"

func planPing(p *planner, args [][]byte) {
	switch len(args) {
	case 1:
		p.add(func(c *conn, _ *step, _ []graph.EditResult) { c.w.simple("PONG") })
	case 2:
		p.add(replyArg).args = slices.Clone(args[1:])
	default:
		p.fail(arityText("ping"))
	}
}

func planEcho(p *planner, args [][]byte) { p.add(replyArg).args = slices.Clone(args[1:]) }

func replyArg(c *conn, s *step, _ []graph.EditResult) { c.w.bulk(s.args[0]) }

// Without API keys there is one user, whom every password fits.
const (
	errNoPassword = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
	errWrongPass  = "WRONGPASS invalid username-password pair or user is disabled."
)

func planAuth(p *planner, args [][]byte) {
	switch {
	case len(args) > 3:
		p.fail(errSyntax)
	case len(args) == 2:
		p.fail(errNoPassword)
	case string(args[1]) != "default":
		p.fail(errWrongPass)
	default:
		p.add(replyOK)
	}
}

// planHello is HELLO [2|3 [AUTH user password] [SETNAME name]].
func planHello(p *planner, args [][]byte) {
	wanted := int64(0) // as it is
	if len(args) > 1 {
		v, ok := parseInt64(args[1])
		if !ok {
			p.fail("ERR Protocol version is not an integer or out of range")
			return
		}
		if wanted = v; v != 2 && v != 3 {
			p.fail("NOPROTO unsupported protocol version")
			return
		}
	}
	name, named := "", false
	for i := 2; i < len(args); {
		switch {
		case is(args[i], "AUTH") && i+2 < len(args):
			if string(args[i+1]) != "default" {
				p.fail(errWrongPass)
				return
			}
			i += 3
		case is(args[i], "SETNAME") && i+1 < len(args):
			if name, named = string(args[i+1]), true; !validName(name) {
				p.fail(errClientName)
				return
			}
			i += 2
		default:
			p.fail("ERR Syntax error in HELLO option '" + string(echo(args[i], maxEcho)) + "'")
			return
		}
	}
	p.add(func(c *conn, _ *step, _ []graph.EditResult) {
		if wanted != 0 {
			c.w.three = wanted == 3
		}
		if named {
			c.name.Store(&name)
		}
		c.hello()
	})
}

func (c *conn) hello() {
	c.w.dict(7)
	c.w.text("server")
	c.w.text("redis")
	c.w.text("version")
	c.w.text(version)
	c.w.text("proto")
	c.w.int(c.proto())
	c.w.text("id")
	c.w.int(int64(c.id))
	c.w.text("mode")
	c.w.text("standalone")
	c.w.text("role")
	c.w.text("master")
	c.w.text("modules")
	c.w.array(0)
}

func (c *conn) proto() int64 {
	if c.w.three {
		return 3
	}
	return 2
}

func planSelect(p *planner, args [][]byte) {
	n, ok := parseInt64(args[1])
	switch {
	case !ok:
		p.fail(errInteger)
	case n != 0:
		p.fail("ERR DB index is out of range")
	default:
		p.add(replyOK)
	}
}

func planDBSize(p *planner, _ [][]byte) {
	p.fail("ERR DBSIZE is not supported: Liana does not count its keys")
}

func planQuit(p *planner, _ [][]byte) {
	p.last = true
	p.add(func(c *conn, _ *step, _ []graph.EditResult) {
		c.w.ok()
		c.quit = true
	})
}

func planReset(p *planner, _ [][]byte) {
	p.c.tx = transaction{}
	p.add(func(c *conn, _ *step, _ []graph.EditResult) {
		c.w.three = false
		empty := ""
		c.name.Store(&empty)
		c.w.simple("RESET")
	})
}

// planToken is LIANA.TOKEN [token]: what the connection has seen, or what it has to see from
// now on.
func planToken(p *planner, args [][]byte) {
	switch len(args) {
	case 1:
		p.add(func(c *conn, _ *step, _ []graph.EditResult) { c.w.text(c.session.Token()) })
	case 2:
		// Now: reads that follow in the same batch have to respect it.
		if err := p.c.session.Join(string(args[1])); err != nil {
			p.fail(p.c.server.host.Explain(err))
			return
		}
		p.add(replyOK)
	default:
		p.fail(arityText("liana.token"))
	}
}

const errClientName = "ERR Client names cannot contain spaces, newlines or special characters."

func validName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' })
}

func planClient(p *planner, args [][]byte) {
	sub := lower(echo(args[1], maxEcho))
	arity, known := map[string]int{
		"id": 2, "getname": 2, "setname": 3, "setinfo": 4, "info": 2, "list": -2, "no-evict": 3, "no-touch": 3,
	}[sub]
	if !known {
		p.fail("ERR unknown subcommand '" + string(echo(args[1], maxEcho)) + "'. Try CLIENT HELP.")
		return
	}
	if !(&command{arity: arity}).takes(len(args)) {
		p.fail(arityText("client|" + sub))
		return
	}
	switch sub {
	case "id":
		p.add(func(c *conn, _ *step, _ []graph.EditResult) { c.w.int(int64(c.id)) })
	case "getname":
		p.add(replyName)
	case "setname":
		name := string(args[2])
		if !validName(name) {
			p.fail(errClientName)
			return
		}
		p.add(func(c *conn, _ *step, _ []graph.EditResult) {
			c.name.Store(&name)
			c.w.ok()
		})
	case "info":
		p.add(func(c *conn, _ *step, _ []graph.EditResult) { c.w.verbatim(c.describe()) })
	case "list":
		p.add(func(c *conn, _ *step, _ []graph.EditResult) { c.w.verbatim(c.server.list()) })
	default: // what a library is called, and what is about evicting
		p.add(replyOK)
	}
}

func replyName(c *conn, _ *step, _ []graph.EditResult) {
	if name := *c.name.Load(); name != "" {
		c.w.text(name)
		return
	}
	c.w.null()
}

// describe is a connection as CLIENT INFO and LIST show it.
func (c *conn) describe() string {
	now := time.Now()
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d idle=%d flags=N db=0 cmds=%d\n",
		c.id, c.net.RemoteAddr(), c.net.LocalAddr(), *c.name.Load(), int(now.Sub(c.since).Seconds()),
		int(now.Sub(time.UnixMicro(c.lastSeen.Load())).Seconds()), c.commands.Load())
}

// settings are what CONFIG GET tells: those that clients and redis-benchmark look at.
func (s *Server) settings() [][2]string {
	return [][2]string{
		{"appendfsync", "always"}, {"appendonly", "yes"}, {"databases", "1"}, {"maxmemory", "0"},
		{"maxclients", strconv.Itoa(s.cfg.MaxConnections)},
		{"proto-max-bulk-len", strconv.Itoa(s.cfg.MaxCommandBytes)}, {"save", ""},
		{"timeout", strconv.Itoa(int(s.cfg.IdleTimeout.Seconds()))},
	}
}

func planConfig(p *planner, args [][]byte) {
	sub := lower(echo(args[1], maxEcho))
	switch {
	case sub == "get" && len(args) > 2:
		p.add(replyConfig).args = slices.Clone(args[2:])
	case sub == "get":
		p.fail(arityText("config|get"))
	case sub == "set" || sub == "rewrite" || sub == "resetstat":
		p.fail("ERR CONFIG " + strings.ToUpper(sub) + " is not supported: settings are those of lianad")
	default:
		p.fail("ERR unknown subcommand '" + string(echo(args[1], maxEcho)) + "'. Try CONFIG HELP.")
	}
}

func replyConfig(c *conn, s *step, _ []graph.EditResult) {
	var found [][2]string
	for _, kv := range c.server.settings() {
		for _, pattern := range s.args {
			if ok, err := path.Match(lower(pattern), kv[0]); err == nil && ok {
				found = append(found, kv)
				break
			}
		}
	}
	c.w.dict(len(found))
	for _, kv := range found {
		c.w.text(kv[0])
		c.w.text(kv[1])
	}
}
