package resp

import (
	"strings"
	"sync/atomic"
)

// command is a command as the table has it.
type command struct {
	name  string // in lower case
	arity int    // with the name; -n: n or more
	flags string // as COMMAND tells them
	// Where the keys are among the arguments, as COMMAND tells it: the first, the last (-1:
	// the end), and the distance.
	first, last, step int
	now               bool // it is executed at once, also inside MULTI
	summary           string
	plan              func(p *planner, args [][]byte)

	calls, errors atomic.Uint64
}

func (c *command) takes(n int) bool {
	if c.arity < 0 {
		return n >= -c.arity
	}
	return n == c.arity
}

// maxName is the length of the longest name.
const maxName = 16

// row is a command without its figures.
type row struct {
	name              string
	arity             int
	flags             string
	first, last, step int
	plan              func(p *planner, args [][]byte)
	summary           string
}

// table is every command of the port. docs/resp.md describes them.
func table() []row {
	return []row{
		{"incr", 2, "write denyoom fast", 1, 1, 1, planIncr, "Adds 1 to a number"},
		{"incrby", 3, "write denyoom fast", 1, 1, 1, planIncrBy, "Adds to a number"},
		{"decr", 2, "write denyoom fast", 1, 1, 1, planDecr, "Takes 1 off a number"},
		{"decrby", 3, "write denyoom fast", 1, 1, 1, planDecrBy, "Takes off a number"},
		{"get", 2, "readonly fast", 1, 1, 1, planGet, "Reads a number"},
		{"set", -3, "write denyoom", 1, 1, 1, planSet, "Gives a key a number"},
		{"setnx", 3, "write denyoom fast", 1, 1, 1, planSetNX, "Gives a key a number where it has none"},
		{"setex", 4, "write denyoom", 1, 1, 1, planSetEX, "Gives a key a number for some seconds"},
		{"psetex", 4, "write denyoom", 1, 1, 1, planPSetEX, "Gives a key a number for some milliseconds"},
		{"getset", 3, "write denyoom fast", 1, 1, 1, planGetSet, "Gives a key a number and answers the one before"},
		{"getdel", 2, "write fast", 1, 1, 1, planGetDel, "Reads a number and removes the key"},
		{"getex", -2, "write fast", 1, 1, 1, planGetEX, "Reads a number and sets its expiry"},
		{"mget", -2, "readonly fast", 1, -1, 1, planMGet, "Reads numbers"},
		{"mset", -3, "write denyoom", 1, -1, 2, planMSet, "Gives keys numbers, each for itself"},

		{"del", -2, "write", 1, -1, 1, planDel, "Removes keys, each for itself"},
		{"unlink", -2, "write fast", 1, -1, 1, planDel, "Removes keys, each for itself"},
		{"exists", -2, "readonly fast", 1, -1, 1, planExists, "Counts the keys that are there"},
		{"touch", -2, "readonly fast", 1, -1, 1, planExists, "Counts the keys that are there"},
		{"type", 2, "readonly fast", 1, 1, 1, planType, "Tells what a key holds"},

		{"expire", -3, "write fast", 1, 1, 1, planExpire, "Sets the expiry of a key in seconds"},
		{"pexpire", -3, "write fast", 1, 1, 1, planPExpire, "Sets the expiry of a key in milliseconds"},
		{"expireat", -3, "write fast", 1, 1, 1, planExpireAt, "Sets the expiry of a key as a Unix time"},
		{"pexpireat", -3, "write fast", 1, 1, 1, planPExpireAt, "Sets the expiry of a key as a Unix time in milliseconds"},
		{"persist", 2, "write fast", 1, 1, 1, planPersist, "Takes the expiry of a key away"},
		{"ttl", 2, "readonly fast", 1, 1, 1, planTTL, "Reads the time to an expiry in seconds"},
		{"pttl", 2, "readonly fast", 1, 1, 1, planPTTL, "Reads the time to an expiry in milliseconds"},
		{"expiretime", 2, "readonly fast", 1, 1, 1, planExpireTime, "Reads an expiry as a Unix time"},
		{"pexpiretime", 2, "readonly fast", 1, 1, 1, planPExpireTime, "Reads an expiry as a Unix time in milliseconds"},

		{"hincrby", 4, "write denyoom fast", 1, 1, 1, planHIncrBy, "Adds to a metric"},
		{"hget", 3, "readonly fast", 1, 1, 1, planHGet, "Reads a metric"},
		{"hmget", -3, "readonly fast", 1, 1, 1, planHMGet, "Reads metrics"},
		{"hgetall", 2, "readonly", 1, 1, 1, planHGetAll, "Reads all metrics of a vertex"},
		{"hset", -4, "write denyoom fast", 1, 1, 1, planHSet, "Sets metrics"},
		{"hmset", -4, "write denyoom fast", 1, 1, 1, planHSet, "Sets metrics"},
		{"hsetnx", 4, "write denyoom fast", 1, 1, 1, planHSetNX, "Sets a metric that is not there"},
		{"hdel", -3, "write fast", 1, 1, 1, planHDel, "Removes metrics"},
		{"hexists", 3, "readonly fast", 1, 1, 1, planHExists, "Tells whether a metric is there"},
		{"hlen", 2, "readonly fast", 1, 1, 1, planHLen, "Counts the metrics that are there"},
		{"hkeys", 2, "readonly", 1, 1, 1, planHKeys, "Names the metrics that are there"},
		{"hvals", 2, "readonly", 1, 1, 1, planHVals, "Reads all metrics without their names"},

		{"ping", -1, "fast", 0, 0, 0, planPing, "Answers PONG"},
		{"echo", 2, "fast", 0, 0, 0, planEcho, "Answers its argument"},
		{"hello", -1, "noscript loading stale fast no_auth", 0, 0, 0, planHello, "Chooses the protocol's version"},
		{"auth", -2, "noscript loading stale fast no_auth", 0, 0, 0, planAuth, "Authenticates"},
		{"select", 2, "loading stale fast", 0, 0, 0, planSelect, "Chooses database 0"},
		{"info", -1, "loading stale", 0, 0, 0, planInfo, "Tells about the server"},
		{"command", -1, "loading stale", 0, 0, 0, planCommand, "Tells about commands"},
		{"client", -2, "noscript loading stale", 0, 0, 0, planClient, "Tells about connections"},
		{"config", -2, "admin noscript loading stale", 0, 0, 0, planConfig, "Tells settings"},
		{"dbsize", 1, "readonly fast", 0, 0, 0, planDBSize, "Is refused: keys are not counted"},
		{"quit", -1, "noscript loading stale fast no_auth", 0, 0, 0, planQuit, "Ends the connection"},
		{"reset", 1, "noscript loading stale fast no_auth", 0, 0, 0, planReset, "Puts the connection back to its beginning"},
		{"multi", 1, "noscript loading stale fast", 0, 0, 0, planMulti, "Begins a transaction on one key"},
		{"exec", 1, "noscript loading stale", 0, 0, 0, planExec, "Executes a transaction"},
		{"discard", 1, "noscript loading stale fast", 0, 0, 0, planDiscard, "Drops a transaction"},
		{"watch", -2, "noscript loading stale fast", 1, -1, 1, planWatch, "Is refused: there is no optimistic locking"},
		{"unwatch", 1, "noscript loading stale fast", 0, 0, 0, planUnwatch, "Does nothing: nothing is watched"},
		{"liana.token", -1, "fast", 0, 0, 0, planToken, "Reads or takes a consistency token"},
	}
}

// catalog is the table with the figures of one server.
type catalog struct {
	byName map[string]*command
	all    []*command
	// unknown stands for what is not in the table.
	unknown *command
}

func newCatalog() *catalog {
	c := &catalog{byName: map[string]*command{}, unknown: &command{name: "unknown"}}
	for _, r := range table() {
		cmd := &command{
			name: r.name, arity: r.arity, flags: r.flags, first: r.first, last: r.last, step: r.step,
			plan: r.plan, summary: r.summary,
		}
		switch r.name {
		case "multi", "exec", "discard", "watch", "quit", "reset":
			cmd.now = true
		}
		c.byName[r.name] = cmd
		c.all = append(c.all, cmd)
	}
	return c
}

// find finds a command by its name, in upper or lower case.
func (c *catalog) find(name []byte) *command {
	var lower [maxName]byte
	if len(name) > maxName {
		return nil
	}
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		lower[i] = b
	}
	return c.byName[string(lower[:len(name)])]
}

// words are the flags of a command.
func (c *command) words() []string { return strings.Fields(c.flags) }
