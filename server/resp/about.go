package resp

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lianadb/liana/graph"
)

// planInfo is INFO [section ...].
func planInfo(p *planner, args [][]byte) {
	var wanted []string
	for _, a := range args[1:] {
		wanted = append(wanted, lower(a))
	}
	p.add(func(c *conn, _ *step, _ []graph.EditResult) { c.w.verbatim(c.server.info(wanted)) })
}

// infoSection is a part of INFO.
type infoSection struct {
	name  string
	lines []string
}

func (s *Server) info(wanted []string) string {
	every := len(wanted) == 0
	for _, w := range wanted {
		every = every || w == "all" || w == "default" || w == "everything"
	}
	var b strings.Builder
	for _, sec := range s.sections() {
		if !every && !slices.Contains(wanted, strings.ToLower(sec.name)) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		fmt.Fprintf(&b, "# %s\r\n", sec.name)
		for _, l := range sec.lines {
			b.WriteString(l + "\r\n")
		}
	}
	return b.String()
}

func (s *Server) sections() []infoSection {
	f := s.Figures()
	var calls uint64
	var stats []string
	for _, c := range f.Commands {
		calls += c.Calls
		if c.Calls > 0 {
			stats = append(stats, fmt.Sprintf("cmdstat_%s:calls=%d,failed_calls=%d", c.Name, c.Calls, c.Errors))
		}
	}
	uptime := int(time.Since(s.since).Seconds())
	return []infoSection{
		{"Server", []string{
			"redis_version:" + version, "redis_mode:standalone", "server_name:liana", "liana_version:" + s.host.Version(),
			fmt.Sprintf("process_id:%d", os.Getpid()), fmt.Sprintf("tcp_port:%d", s.port()),
			fmt.Sprintf("uptime_in_seconds:%d", uptime), fmt.Sprintf("uptime_in_days:%d", uptime/86400),
		}},
		{"Clients", []string{
			fmt.Sprintf("connected_clients:%d", f.Connections), fmt.Sprintf("maxclients:%d", s.cfg.MaxConnections),
		}},
		{"Memory", []string{fmt.Sprintf("mem_clients_normal:%d", f.BufferBytes), "maxmemory:0", "maxmemory_policy:noeviction"}},
		{"Persistence", []string{"loading:0", "aof_enabled:1", "aof_last_write_status:ok"}},
		{"Stats", []string{
			fmt.Sprintf("total_connections_received:%d", f.Accepted), fmt.Sprintf("total_commands_processed:%d", calls),
			fmt.Sprintf("rejected_connections:%d", f.Refused),
		}},
		{"Replication", []string{"role:master", "connected_slaves:0"}},
		{"Commandstats", stats},
		{"Cluster", []string{"cluster_enabled:0"}},
		{"Keyspace", nil},
	}
}

func planCommand(p *planner, args [][]byte) {
	if len(args) == 1 {
		p.add(func(c *conn, _ *step, _ []graph.EditResult) { c.writeCommands(c.server.catalog.all) })
		return
	}
	sub, names := lower(echo(args[1], maxEcho)), args[2:]
	switch sub {
	case "count":
		if len(names) > 0 {
			p.fail(arityText("command|count"))
			return
		}
		p.add(func(c *conn, _ *step, _ []graph.EditResult) { c.w.int(int64(len(c.server.catalog.all))) })
	case "info":
		p.add(replyCommandInfo).args = slices.Clone(names)
	case "docs":
		p.add(replyCommandDocs).args = slices.Clone(names)
	case "list":
		p.add(func(c *conn, _ *step, _ []graph.EditResult) {
			c.w.array(len(c.server.catalog.all))
			for _, cmd := range c.server.catalog.all {
				c.w.text(cmd.name)
			}
		})
	default:
		p.fail("ERR unknown subcommand '" + string(echo(args[1], maxEcho)) + "'. Try COMMAND HELP.")
	}
}

func replyCommandInfo(c *conn, s *step, _ []graph.EditResult) {
	if len(s.args) == 0 {
		c.writeCommands(c.server.catalog.all)
		return
	}
	cmds := make([]*command, len(s.args))
	for i, name := range s.args {
		cmds[i] = c.server.catalog.find(name)
	}
	c.writeCommands(cmds)
}

func (c *conn) writeCommands(cmds []*command) {
	c.w.array(len(cmds))
	for _, cmd := range cmds {
		c.writeCommand(cmd)
	}
}

// writeCommand writes the ten parts that Redis 7 tells of a command; nil is none.
func (c *conn) writeCommand(cmd *command) {
	if cmd == nil {
		if c.w.three {
			c.w.null()
		} else {
			c.w.b = append(c.w.b, "*-1\r\n"...)
		}
		return
	}
	c.w.array(10)
	c.w.text(cmd.name)
	c.w.int(int64(cmd.arity))
	flags := cmd.words()
	c.w.set(len(flags))
	for _, f := range flags {
		c.w.simple(f)
	}
	c.w.int(int64(cmd.first))
	c.w.int(int64(cmd.last))
	c.w.int(int64(cmd.step))
	c.w.set(0)   // categories of access
	c.w.array(0) // tips
	c.w.array(0) // specifications of keys
	c.w.array(0) // subcommands
}

func replyCommandDocs(c *conn, s *step, _ []graph.EditResult) {
	cmds := c.server.catalog.all
	if len(s.args) > 0 {
		cmds = nil
		for _, name := range s.args {
			if cmd := c.server.catalog.find(name); cmd != nil {
				cmds = append(cmds, cmd)
			}
		}
	}
	c.w.dict(len(cmds))
	for _, cmd := range cmds {
		c.w.text(cmd.name)
		c.w.dict(2)
		c.w.text("summary")
		c.w.text(cmd.summary)
		c.w.text("group")
		c.w.text("generic")
	}
}
