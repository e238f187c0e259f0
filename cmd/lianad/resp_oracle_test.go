package main

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// oracleLines is how many command lines are compared.
const oracleLines = 5000

// oracleSeed makes the list the same each time; another one is as good.
const oracleSeed = 20261201

// exclusions are the lines that are not compared: what docs/resp.md ("Differences from Redis")
// says that Liana does not store or do. Liana has to refuse each as the page says; it is not
// sent to Redis then, so that both go on from the same state.
var exclusions = []struct {
	what     string
	commands []string
	because  func(o *oracle, args []string) bool
	answer   string // how Liana's error begins
}{
	{"values that are not integers", []string{"set", "setnx", "getset", "setex", "psetex", "mset", "hset", "hmset", "hsetnx"}, anyText, "ERR value is not an integer"},
	{"commands on numbers that Redis would take a vertex for", numberCommands, freeVertex, "WRONGTYPE"},
	{"keys that are no vertex made a hash", []string{"hincrby", "hset", "hmset", "hsetnx"}, noVertex, "ERR the key names no vertex"},
	{"fields that the schema does not have", []string{"hincrby", "hset", "hmset", "hsetnx"}, anyField, "ERR the schema has no such metric"},
	{"an expiry of a vertex as a whole", expireCommands, onVertex, "ERR the metrics of a vertex"},
	{"an expiry past the year 294,246", append([]string{"set", "setex", "psetex", "getex"}, expireCommands...), late, "ERR invalid expire time"},
	{"empty keys", nil, func(_ *oracle, args []string) bool { return slices.Contains(args[1:], "") }, "ERR invalid key"},
	{"databases 1 to 15", []string{"select"}, func(_ *oracle, args []string) bool { return args[1] == "1" }, "ERR DB index"},
	{"DBSIZE", []string{"dbsize"}, func(*oracle, []string) bool { return true }, "ERR DBSIZE"},
}

var (
	expireCommands = []string{"expire", "pexpire", "expireat", "pexpireat"}
	numberCommands = []string{"incr", "decr", "incrby", "decrby", "get", "getdel", "getex", "getset", "set", "setnx", "setex", "psetex"}
)

func name(args []string) string { return strings.ToLower(args[0]) }

// Keys and numbers at and past each border, and spellings that other stores take.
var (
	plainKeys  = []string{"k", "key:2", "user:42:daily", "\x00\xff\r\n", "{a}b", "\u00e9", "e\u0301", "note:07", "nosuch:7"}
	vertexKeys = []string{"note:7", "note:18446744073709551614"}
	metrics    = []string{"views", "replies", "shares"}
	numbers    = []string{
		"0", "1", "-1", "5", "42", "-7", "3000000000", "17179869184", "2147483647", "2147483648", "-2147483649", "4294967295", "4294967296",
		"9223372036854775806", "9223372036854775807", "9223372036854775808", "-9223372036854775807", "-9223372036854775808", "-9223372036854775809",
		"18446744073709551615", "18446744073709551616", "99999999999999999999", "100000000000000000000000",
		"", " 10", "10 ", "0x10", "+5", "1.0", "-0", "007", "1e3", "--1", "-", "1\x00", "\n1", "nan", "\uff11", "1,000",
	}
	moments = []string{"0", "-1", "100", "1000", "5000000", "33177117420", "33177117420000", "9223372036854775807", "9223372036854775", "-9223372036854775808", "x", ""}
	units   = []string{"EX", "PX", "EXAT", "PXAT", "ex", "Px"}
)

// oracle sends the same commands to Liana and Redis.
type oracle struct {
	t            *testing.T
	rnd          *rand.Rand
	liana, redis *respClient
	compared     int
	bad          int
	excluded     map[string]int
	kinds        map[string]int
}

// A real Redis beside Liana: a generated list of command lines gives the same reply on both,
// or, for an error, the same kind and prefix (CASES.md 9 and 35, and issue 5).
func TestRESPAnswersLikeRedis(t *testing.T) {
	r := startRedis(t)
	d := startDaemon(t, t.TempDir()+"/data")
	o := &oracle{
		t: t, rnd: rand.New(rand.NewSource(oracleSeed)), liana: dialRESP(t, d.ready["resp"]), redis: dialRESP(t, r.addr),
		excluded: map[string]int{}, kinds: map[string]int{},
	}
	for o.compared < oracleLines && o.bad < 20 {
		if o.rnd.Intn(25) > 0 {
			o.try(o.line())
			continue
		}
		for _, args := range o.transaction() {
			o.try(args)
		}
	}
	for _, e := range exclusions {
		if o.excluded[e.what] == 0 {
			t.Errorf("no line was of the exclusion %q", e.what)
		}
	}
	t.Logf("%d lines compared, kinds %v, excluded %v", o.compared, o.kinds, o.excluded)
}

// The borders by name, without chance: CASES.md 9 and 35.
func TestCases9And35OnRedisToo(t *testing.T) {
	r := startRedis(t)
	d := startDaemon(t, t.TempDir()+"/data")
	o := &oracle{t: t, liana: dialRESP(t, d.ready["resp"]), redis: dialRESP(t, r.addr), excluded: map[string]int{}, kinds: map[string]int{}}
	do := func(line ...string) { o.try(line) }
	for _, start := range []string{"9223372036854775800", "-9223372036854775800", "0", "41"} {
		for _, n := range numbers {
			do("SET", "c", start)
			do("HSET", "note:9", "views", start)
			for _, cmd := range []string{"INCRBY", "DECRBY", "incrby"} {
				do(cmd, "c", n)
				do("GET", "c")
			}
			do("HINCRBY", "note:9", "views", n)
			do("HGET", "note:9", "views")
		}
	}
	for _, cmd := range []string{"INCR", "DECR", "INCRBY", "DECRBY", "HINCRBY", "GET", "SET", "MGET", "HGET", "HMGET", "HGETALL", "EXPIRE", "TTL", "DEL", "EXISTS", "TYPE", "PERSIST"} {
		do(cmd)
		do(strings.ToLower(cmd), "c", "1", "2", "3", "4", "5", "6")
	}
	if o.compared < 1000 {
		t.Errorf("only %d lines were compared", o.compared)
	}
}

// try compares one line.
func (o *oracle) try(args []string) {
	o.t.Helper()
	liana, err := o.liana.do(args...)
	if err != nil {
		o.t.Fatalf("%q to Liana: %v", args, err)
	}
	for _, e := range exclusions {
		if liana.kind == '-' && strings.HasPrefix(liana.text, e.answer) && (e.commands == nil || slices.Contains(e.commands, name(args))) && e.because(o, args) {
			o.excluded[e.what]++
			return
		}
	}
	redis, err := o.redis.do(args...)
	if err != nil {
		o.t.Fatalf("%q to Redis: %v", args, err)
	}
	o.compared++
	o.kinds[string(redis.kind)]++
	if !alike(args, liana, redis) {
		o.bad++
		o.t.Errorf("%q: Liana %v, Redis %v", args, liana, redis)
	}
}

// alike reports whether two replies are what the same client can do the same with.
func alike(args []string, a, b respReply) bool {
	if a.kind != b.kind || len(a.items) != len(b.items) && !aboutItself(args) {
		return false
	}
	switch {
	case a.kind == '-':
		return a.prefix() == b.prefix()
	case aboutItself(args):
		return true
	case isTTL(args) && a.kind == ':':
		return near(a.text, b.text)
	case a.kind == '*':
		a.items, b.items = ordered(args, a.items), ordered(args, b.items)
		for i := range a.items {
			// A transaction's items are as if alone; of which command is not known here.
			if !alike([]string{""}, a.items[i], b.items[i]) && !(name(args) == "exec" && near(a.items[i].text, b.items[i].text)) {
				return false
			}
		}
		return true
	}
	return a.text == b.text
}

// ordered puts the fields of a hash in an order: Redis gives them in none.
func ordered(args []string, items []respReply) []respReply {
	width := map[string]int{"hkeys": 1, "hvals": 1, "hgetall": 2}[name(args)]
	if width == 0 {
		return items
	}
	fields := slices.Collect(slices.Chunk(items, width))
	slices.SortFunc(fields, func(a, b []respReply) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return slices.Concat(fields...)
}

func aboutItself(args []string) bool {
	return slices.Contains([]string{"hello", "client", "info", "command"}, name(args))
}

func isTTL(args []string) bool {
	return slices.Contains([]string{"ttl", "pttl", "expiretime", "pexpiretime"}, name(args))
}

// near compares times on two clocks that were read one after the other.
func near(a, b string) bool {
	x, errA := strconv.ParseInt(a, 10, 64)
	y, errB := strconv.ParseInt(b, 10, 64)
	return errA == nil && errB == nil && max(x, y)-min(x, y) <= 5000 && (x < 0) == (y < 0)
}

func pick[T any](rnd *rand.Rand, of []T) T { return of[rnd.Intn(len(of))] }

func (o *oracle) plain() string  { return pick(o.rnd, plainKeys) }
func (o *oracle) vertex() string { return pick(o.rnd, vertexKeys) }
func (o *oracle) number() string { return pick(o.rnd, numbers) }

// key is mostly one for the command, and now and then of the other type.
func (o *oracle) key(right, wrong func() string) string {
	switch o.rnd.Intn(12) {
	case 0:
		return wrong()
	case 1:
		return pick(o.rnd, []string{"", "none", right()})
	}
	return right()
}

// transaction is one on a single key, of commands that are not excluded.
func (o *oracle) transaction() [][]string {
	all := [][]string{{"MULTI"}}
	key := o.plain()
	for range o.rnd.Intn(6) {
		all = append(all, pick(o.rnd, [][]string{
			{"INCR", key}, {"INCRBY", key, o.number()}, {"DECRBY", key, o.number()}, {"GET", key}, {"SET", key, "5", "GET"}, {"SET", key, "6", "NX"}, {"TTL", key},
			{"EXPIRE", key, "1000"}, {"PERSIST", key}, {"GETDEL", key}, {"TYPE", key}, {"EXISTS", key, key}, {"HGET", key, "views"}, {"PING"}, {"SET", key, "7", "WHAT"},
			{"MULTI"}, {"NOSUCH"}, {"WATCH", key}, {"INCR"},
		}))
	}
	return append(all, []string{pick(o.rnd, []string{"EXEC", "EXEC", "exec", "DISCARD"})})
}

func (o *oracle) line() []string {
	var args []string
	switch o.rnd.Intn(10) {
	case 0, 1, 2:
		args = o.strings(o.key(o.plain, o.vertex))
	case 3, 4:
		args = o.expiries(o.key(o.plain, o.vertex))
	case 5, 6, 7:
		args = o.hashes(o.key(o.vertex, o.plain))
	case 8:
		args = o.several()
	default:
		return o.broken()
	}
	if o.rnd.Intn(3) == 0 {
		args[0] = pick(o.rnd, []string{strings.ToLower(args[0]), strings.ToTitle(args[0][:1]) + strings.ToLower(args[0][1:])})
	}
	return args
}

// strings are commands on one key with a number.
func (o *oracle) strings(key string) []string {
	n := o.number()
	switch o.rnd.Intn(12) {
	case 0:
		return []string{"INCR", key}
	case 1:
		return []string{"DECR", key}
	case 2, 3:
		return []string{"INCRBY", key, n}
	case 4:
		return []string{"DECRBY", key, n}
	case 5:
		return []string{pick(o.rnd, []string{"GETSET", "SETNX"}), key, n}
	case 6:
		return []string{pick(o.rnd, []string{"SETEX", "PSETEX"}), key, pick(o.rnd, moments), n}
	case 7:
		return []string{pick(o.rnd, []string{"GETDEL", "GETEX", "GETEX"}), key}
	case 8:
		return []string{"GETEX", key, pick(o.rnd, units), pick(o.rnd, moments)}
	case 9:
		return []string{"GET", key}
	}
	args := []string{"SET", key, n}
	for range o.rnd.Intn(4) {
		switch o.rnd.Intn(5) {
		case 0:
			args = append(args, pick(o.rnd, units), pick(o.rnd, moments))
		default:
			args = append(args, pick(o.rnd, []string{"NX", "XX", "GET", "KEEPTTL", "nx", "WHAT", "EX"}))
		}
	}
	return args
}

func (o *oracle) expiries(key string) []string {
	switch o.rnd.Intn(3) {
	case 0:
		return []string{pick(o.rnd, []string{"TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME", "PERSIST", "TYPE"}), key}
	}
	args := []string{pick(o.rnd, []string{"EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"}), key, pick(o.rnd, moments)}
	for range o.rnd.Intn(3) {
		args = append(args, pick(o.rnd, []string{"NX", "XX", "GT", "LT", "gt", "WHAT"}))
	}
	return args
}

func (o *oracle) hashes(key string) []string {
	field := pick(o.rnd, append(slices.Clone(metrics), "nosuch", "", "VIEWS"))
	switch o.rnd.Intn(9) {
	case 0, 1:
		return []string{"HINCRBY", key, field, o.number()}
	case 2:
		return []string{pick(o.rnd, []string{"HGET", "HEXISTS", "HDEL"}), key, field}
	case 3:
		return []string{pick(o.rnd, []string{"HMGET", "HDEL"}), key, field, pick(o.rnd, metrics)}
	case 4:
		return []string{pick(o.rnd, []string{"HLEN", "HVALS", "HKEYS", "HGETALL", "TYPE"}), key}
	case 5:
		return []string{"HSETNX", key, field, o.number()}
	case 6:
		return []string{"TTL", key}
	}
	args := []string{pick(o.rnd, []string{"HSET", "HMSET"}), key, field, o.number()}
	if o.rnd.Intn(2) == 0 {
		args = append(args, pick(o.rnd, metrics), o.number())
	}
	return args
}

// several are commands on several keys.
func (o *oracle) several() []string {
	args := []string{pick(o.rnd, []string{"MGET", "DEL", "UNLINK", "EXISTS", "TOUCH", "MSET", "MSET"})}
	for range 1 + o.rnd.Intn(4) {
		key := o.key(o.plain, o.vertex)
		if args[0] == "MSET" {
			args = append(args, o.plain(), o.number())
			continue
		}
		args = append(args, key)
	}
	return args
}

// broken are commands with too few or too many arguments, unknown ones, and those about
// the connection.
func (o *oracle) broken() []string {
	switch o.rnd.Intn(6) {
	case 0:
		return []string{pick(o.rnd, []string{"NOSUCH", "", "incr ", "\xff", strings.Repeat("x", 300)}), o.plain(), o.number()}
	case 1:
		return pick(o.rnd, [][]string{
			{"PING"}, {"PING", "x"}, {"PING", "x", "y"}, {"ECHO", "\r\n"}, {"ECHO"}, {"SELECT", "0"}, {"SELECT", "1"}, {"SELECT", "16"}, {"SELECT", "-1"}, {"SELECT", "x"}, {"SELECT"},
			{"DBSIZE"}, {"DBSIZE", "x"}, {"AUTH", "x"}, {"AUTH", "default", "x"}, {"AUTH", "someone", "x"}, {"AUTH", "a", "b", "c"}, {"AUTH"}, {"HELLO"}, {"HELLO", "2"}, {"HELLO", "9"}, {"HELLO", "x"},
			{"HELLO", "2", "AUTH", "no", "x"}, {"HELLO", "2", "WHAT"}, {"HELLO", "2", "SETNAME", "a b"}, {"EXEC"}, {"DISCARD"}, {"UNWATCH"}, {"RESET"},
			{"CLIENT"}, {"CLIENT", "ID"}, {"CLIENT", "ID", "x"}, {"CLIENT", "GETNAME"}, {"CLIENT", "SETNAME", "a b"}, {"CLIENT", "SETNAME", "ok"}, {"CLIENT", "NOSUCH"}, {"CLIENT", "INFO"}, {"CLIENT", "LIST"},
			{"COMMAND", "COUNT"}, {"COMMAND", "COUNT", "x"}, {"COMMAND", "NOSUCH"}, {"COMMAND", "DOCS", "get"}, {"COMMAND", "INFO", "get", "nosuch"}, {"CONFIG", "GET", "save"}, {"CONFIG", "GET"}, {"CONFIG"}, {"CONFIG", "NOSUCH"},
			{"INFO"}, {"INFO", "server"},
		})
	}
	args := o.strings(o.plain())
	switch o.rnd.Intn(3) {
	case 0:
		args = o.hashes(o.vertex())
	case 1:
		args = o.expiries(o.plain())
	}
	if o.rnd.Intn(2) == 0 {
		return args[:1+o.rnd.Intn(len(args))]
	}
	return append(args, o.number(), o.number(), o.number(), o.number())
}

// Why lines are excluded. Where it depends on what is stored, Redis is asked.

func isVertex(key string) bool {
	return slices.Contains(append([]string{"note:9"}, vertexKeys...), key)
}

func canonical(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == s
}

// typeOf asks Redis what a key holds.
func (o *oracle) typeOf(key string) string {
	r, err := o.redis.do("TYPE", key)
	if err != nil {
		o.t.Fatal(err)
	}
	return r.text
}

// anyText: some argument that is no key is no number.
func anyText(_ *oracle, args []string) bool {
	return slices.ContainsFunc(args[2:], func(a string) bool { return !canonical(a) })
}

func onVertex(_ *oracle, args []string) bool { return isVertex(args[1]) }

// freeVertex: Redis has nothing under the key, or does not look at what it has.
func freeVertex(o *oracle, args []string) bool {
	overwrites := slices.Contains([]string{"set", "setnx", "setex", "psetex"}, name(args))
	return isVertex(args[1]) && (overwrites || o.typeOf(args[1]) == "none")
}

func noVertex(o *oracle, args []string) bool {
	return !isVertex(args[1]) && o.typeOf(args[1]) == "none"
}

func anyField(_ *oracle, args []string) bool {
	for i := 2; i < len(args); i += 2 {
		if !slices.Contains(metrics, args[i]) {
			return isVertex(args[1])
		}
	}
	return false
}

// late: a time that milliseconds can count and microseconds cannot.
func late(_ *oracle, args []string) bool {
	return slices.ContainsFunc(args[2:], func(a string) bool {
		n, err := strconv.ParseInt(a, 10, 64)
		return err == nil && n > 9_223_372_036_854
	})
}
