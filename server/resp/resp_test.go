package resp

import (
	"context"
	"fmt"
	"math/rand"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
)

func TestCommands(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial()
	for _, s := range []struct{ line, want string }{
		{"PING", "+PONG"}, {"ping hello", "$hello"}, {"PING a b", "-ERR wrong number of arguments for 'ping' command"},
		{"ECHO x", "$x"}, {"SELECT 0", "+OK"}, {"SELECT 1", "-ERR DB index is out of range"}, {"SELECT x", "-" + errInteger},
		{"INCR n", ":1"}, {"incrBY n 41", ":42"}, {"DECR n", ":41"}, {"DECRBY n 1", ":40"}, {"GET n", "$40"}, {"GET none", "nil"},
		{"INCRBY n 1.0", "-" + errInteger}, {"INCRBY n +5", "-" + errInteger}, {"INCRBY n 007", "-" + errInteger}, {"INCRBY n -0", "-" + errInteger},
		{"DECRBY n -9223372036854775808", "-ERR decrement would overflow"}, {"INCRBY n 9223372036854775807", "-" + errOverflow}, {"GET n", "$40"},
		{"SET n 5", "+OK"}, {"SET n 6 NX", "nil"}, {"SET n 6 XX GET", "$5"}, {"SET m 7 XX", "nil"}, {"SET m 1 GET", "nil"}, {"GET m", "$1"},
		{"SET n x", "-" + errInteger}, {"SET n 1 NX XX", "-" + errSyntax}, {"SET n 1 EX", "-" + errSyntax}, {"SET n 1 EX 0", "-ERR invalid expire time in 'set' command"},
		{"SET n 1 EX 10 KEEPTTL", "-" + errSyntax}, {"SETEX n 0 1", "-ERR invalid expire time in 'setex' command"},
		{"SETNX n 1", ":0"}, {"SETNX o 1", ":1"}, {"GETSET o 2", "$1"}, {"GETDEL o", "$2"}, {"GETDEL o", "nil"},
		{"MSET a 1 b 2 c", "-ERR wrong number of arguments for 'mset' command"}, {"MSET a 1 b 2", "+OK"}, {"MGET a zz b note:7", "[$1 nil $2 nil]"},
		{"EXISTS a a zz b", ":3"}, {"DEL a a zz", ":1"}, {"UNLINK b", ":1"}, {"TYPE n", "+string"}, {"TYPE zz", "+none"},
		{"TTL n", ":-1"}, {"TTL zz", ":-2"}, {"EXPIRE n 100", ":1"}, {"TTL n", ":100"}, {"EXPIRE n 50 GT", ":0"}, {"EXPIRE n 50 LT", ":1"}, {"EXPIRE n 70 NX", ":0"},
		{"EXPIRE n 70 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible"},
		{"EXPIRE n 70 GT LT", "-ERR GT and LT options at the same time are not compatible"}, {"EXPIRE n 70 ZZ", "-ERR Unsupported option ZZ"},
		{"INCR n", ":7"}, {"TTL n", ":50"}, {"SET n 8 KEEPTTL", "+OK"}, {"TTL n", ":50"}, {"PERSIST n", ":1"}, {"PERSIST n", ":0"}, {"TTL n", ":-1"},
		{"EXPIREAT n 33177117420", ":1"}, {"EXPIRETIME n", ":33177117420"}, {"PEXPIREAT n 33177117420123", ":1"}, {"PEXPIRETIME n", ":33177117420123"},
		{"SET n 8", "+OK"}, {"EXPIRETIME n", ":-1"}, {"EXPIRE n 9223372036854775807", "-ERR invalid expire time in 'expire' command"},
		{"GETEX n EX 100", "$8"}, {"TTL n", ":100"}, {"GETEX n PERSIST", "$8"}, {"TTL n", ":-1"}, {"GETEX n", "$8"}, {"GETEX n KEEP", "-" + errSyntax},
		{"EXPIRE n -1", ":1"}, {"EXISTS n", ":0"}, {"EXPIRE n 10", ":0"},
		{"HINCRBY note:7 views 3", ":3"}, {"HGET note:7 views", "$3"}, {"HGET note:7 shares", "nil"}, {"HGET note:7 nosuch", "nil"},
		{"HINCRBY note:7 nosuch 1", "-ERR the schema has no such metric of note"}, {"HSET note:7 views 5 shares 1", ":1"},
		{"HSET note:7 views", "-ERR wrong number of arguments for 'hset' command"}, {"HMGET note:7 views nosuch replies shares", "[$5 nil nil $1]"},
		{"HGETALL note:7", "[$views $5 $shares $1]"}, {"HKEYS note:7", "[$views $shares]"}, {"HVALS note:7", "[$5 $1]"}, {"HLEN note:7", ":2"},
		{"HEXISTS note:7 views", ":1"}, {"HEXISTS note:7 replies", ":0"}, {"HSETNX note:7 views 9", ":0"}, {"HMSET note:7 replies 2", "+OK"},
		{"HDEL note:7 replies nosuch", ":1"}, {"HDEL note:7 replies", ":0"}, {"TYPE note:7", "+hash"}, {"EXISTS note:7 note:8", ":1"}, {"TTL note:7", ":-1"}, {"TTL note:8", ":-2"},
		{"HINCRBY note:7 views 9223372036854775807", "-" + errOverflow},
		{"HINCRBY user:1 likes_received 1", "-ERR likes_received is derived from edges and cannot be written"}, {"HGET user:1 likes_received", "nil"},
		{"DEL note:7 note:8", ":1"}, {"HGETALL note:7", "[]"}, {"TYPE note:7", "+none"},
		{"GET note:7", "-" + errWrongType}, {"INCR note:7", "-" + errWrongType}, {"SET note:7 1", "-" + errWrongType},
		{"INCR note:07", ":1"}, {"INCR note:x", ":1"}, {"INCR nosuch:7", ":1"}, {"INCR note:0", ":1"}, {"INCR note:18446744073709551615", ":1"},
		{"HGET note:07 views", "-" + errWrongType}, {"HSET plain views 1", "-" + errNoVertex}, {"HGET plain views", "nil"}, {"HGETALL plain", "[]"}, {"HLEN plain", ":0"},
		{"HMGET plain a b", "[nil nil]"}, {"HDEL plain a", ":0"},
		{"NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "}, {"GET", "-ERR wrong number of arguments for 'get' command"},
		{"AUTH x", "-" + errNoPassword}, {"AUTH default x", "+OK"}, {"AUTH someone x", "-" + errWrongPass}, {"DBSIZE", "-ERR DBSIZE is not supported: Liana does not count its keys"},
		{"CONFIG GET save", "[$save $]"}, {"CONFIG GET append*", "[$appendfsync $always $appendonly $yes]"}, {"CONFIG SET save x", "-ERR CONFIG SET is not supported: settings are those of lianad"},
		{"CONFIG NO", "-ERR unknown subcommand 'NO'. Try CONFIG HELP."}, {"CLIENT NO", "-ERR unknown subcommand 'NO'. Try CLIENT HELP."},
		{"CLIENT GETNAME", "nil"}, {"CLIENT SETNAME me", "+OK"}, {"CLIENT GETNAME", "$me"}, {"CLIENT SETINFO LIB-NAME x", "+OK"}, {"CLIENT ID", ":1"}, {"CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command"},
		{"COMMAND COUNT", fmt.Sprintf(":%d", len(table()))}, {"COMMAND INFO get nosuch", "[[$get :2 [+readonly +fast] :1 :1 :1 [] [] [] []] nil]"},
		{"RESET", "+RESET"}, {"CLIENT GETNAME", "nil"},
	} {
		if got := c.words(s.line); got != s.want {
			t.Errorf("%s: %s, want %s", s.line, got, s.want)
		}
	}
	if got := c.do("INFO"); !strings.Contains(got, "redis_version:7.0.0\r\n") || !strings.Contains(got, "cmdstat_incr:calls=") {
		t.Errorf("INFO: %s", got)
	}
	if got := c.do("INFO", "replication"); got != "$# Replication\r\nrole:master\r\nconnected_slaves:0\r\n" {
		t.Errorf("INFO replication: %q", got)
	}
	if got := c.do("CLIENT", "LIST"); !strings.Contains(got, "id=1 ") {
		t.Errorf("CLIENT LIST: %s", got)
	}
	for _, key := range []string{"", strings.Repeat("k", graph.MaxCounterKey+1)} {
		if got := c.do("INCR", key); got != "-"+errKey {
			t.Errorf("a key of %d bytes: %s", len(key), got)
		}
	}
	if got := c.do("QUIT"); got != "+OK" {
		t.Errorf("QUIT: %s", got)
	}
	c.ended()
}

// The forms of RESP3 are those of Redis: maps, nulls, text.
func TestHello(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial()
	hello := "$server $redis $version $7.0.0 $proto :%d $id :1 $mode $standalone $role $master $modules []"
	for _, s := range []struct{ line, want string }{
		{"HELLO", "[" + fmt.Sprintf(hello, 2) + "]"},
		{"HELLO 4", "-NOPROTO unsupported protocol version"}, {"HELLO x", "-ERR Protocol version is not an integer or out of range"},
		{"HELLO 3 AUTH bad x", "-" + errWrongPass}, {"HELLO 3 WHAT", "-ERR Syntax error in HELLO option 'WHAT'"},
		{"HELLO 3 AUTH default x SETNAME me", "{" + fmt.Sprintf(hello, 3) + "}"}, {"CLIENT GETNAME", "$me"},
		{"HSET note:1 views 2", ":1"}, {"HGETALL note:1", "{$views $2}"}, {"GET none", "nil"}, {"CONFIG GET save", "{$save $}"}, {"INFO cluster", "=txt:# Cluster\r\ncluster_enabled:0\r\n"},
		{"HELLO 2", "[" + fmt.Sprintf(hello, 2) + "]"}, {"HGETALL note:1", "[$views $2]"},
	} {
		if got := c.words(s.line); got != s.want {
			t.Errorf("%s: %s, want %s", s.line, got, s.want)
		}
	}
	c.send(array("HELLO", "3") + array("GET", "none"))
	c.reply()
	if b, _ := c.in.Peek(3); string(b) != "_\r\n" {
		t.Errorf("an absent key in RESP3: %q", b)
	}
}

func TestPipelineIsOneCallForAllThatIsWritten(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial()
	c.do("SET", "k", "10")
	r.store.hook(func() { r.store.calls, r.store.reads, r.store.tokens = nil, 0, nil })
	c.send(array("GET", "k") + array("GET", "x") + array("INCR", "k") + array("GET", "k") + array("INCR", "x") + array("MGET", "k", "x") +
		array("DEL", "x") + array("GET", "x") + array("GET", "k"))
	var got []string
	for range 9 {
		got = append(got, c.reply())
	}
	if want := "$10 nil :11 $11 :1 [$11 $1] :1 nil $11"; strings.Join(got, " ") != want {
		t.Errorf("replies %q, want %q", got, want)
	}
	// The reads at both ends are ordinary ones; those between are in the order of the log.
	if len(r.store.calls) != 1 || len(r.store.calls[0]) != 6 || r.store.reads != 2 {
		t.Errorf("%d calls to write and %d to read: %v", len(r.store.calls), r.store.reads, r.store.calls)
	}
	// The read at the end asks for what the writes of this connection have shown.
	if first, last := r.store.tokens[0], r.store.tokens[1]; first == "" || last == "" || first == last {
		t.Errorf("tokens %q", r.store.tokens)
	}
	tok, err := graph.ParseToken(r.store.tokens[1])
	if err != nil || len(tok.Seen) != 2 || tok.Timeline != 7 {
		t.Errorf("token %+v, %v", tok, err)
	}
}

// CASES.md 34: 10,000 INCR in one pipeline, in pieces of 1 to 7 bytes, inline and as arrays.
func TestCase34PipelineInPieces(t *testing.T) {
	const n = 10_000
	rnd := rand.New(rand.NewSource(34))
	var all strings.Builder
	for range n {
		switch rnd.Intn(4) {
		case 0:
			all.WriteString("INCR {case}34\r\n")
		case 1:
			all.WriteString("\r\n  incr \"{case}\\x334\"\n")
		case 2:
			all.WriteString("*0\r\n*-1\r\n" + array("iNcR", "{case}34"))
		default:
			all.WriteString(array("INCR", "{case}34"))
		}
	}
	r := newRig(t, nil)
	c := r.dial()
	go func() {
		for rest := all.String(); rest != ""; {
			k := min(len(rest), 1+rnd.Intn(7))
			if _, err := c.net.Write([]byte(rest[:k])); err != nil {
				return
			}
			rest = rest[k:]
		}
	}()
	for i := range n {
		if got := c.reply(); got != fmt.Sprintf(":%d", i+1) {
			t.Fatalf("reply %d: %s", i+1, got)
		}
	}
	for _, key := range []string{"a\r\nb", "\x00\xff", "{x}", "\u00e9", "e\u0301", "user1", "user10", strings.Repeat("\n", 500)} {
		if got := c.do("INCR", key); got != ":1" {
			t.Errorf("key %q: %s", key, got)
		}
		if got := c.do("GET", key); got != "$1" {
			t.Errorf("key %q: %s", key, got)
		}
	}
}

func TestTransactions(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial()
	for _, s := range []struct{ line, want string }{
		{"EXEC", "-ERR EXEC without MULTI"}, {"DISCARD", "-ERR DISCARD without MULTI"}, {"WATCH a", "-ERR WATCH is not supported: use SET NX or XX, or a transaction on one key"}, {"UNWATCH", "+OK"},
		{"MULTI", "+OK"}, {"MULTI", "-ERR MULTI calls can not be nested"}, {"INCR k", "+QUEUED"}, {"EXPIRE k 100", "+QUEUED"}, {"GET k", "+QUEUED"}, {"PING", "+QUEUED"},
		{"EXEC", "[:1 :1 $1 +PONG]"}, {"TTL k", ":100"},
		{"MULTI", "+OK"}, {"INCR k", "+QUEUED"}, {"NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "}, {"EXEC", "-" + errExecAbort}, {"GET k", "$1"},
		{"MULTI", "+OK"}, {"INCR k", "+QUEUED"}, {"INCR k x", "-ERR wrong number of arguments for 'incr' command"}, {"EXEC", "-" + errExecAbort},
		{"MULTI", "+OK"}, {"INCR k", "+QUEUED"}, {"DISCARD", "+OK"}, {"GET k", "$1"},
		{"MULTI", "+OK"}, {"INCR k", "+QUEUED"}, {"INCR k2", "+QUEUED"}, {"EXEC", "-" + errCrossSlot}, {"MGET k k2", "[$1 nil]"},
		{"MULTI", "+OK"}, {"INCR k", "+QUEUED"}, {"SET k x", "+QUEUED"}, {"INCR k", "+QUEUED"}, {"EXEC", "[:2 -" + errInteger + " :3]"},
		{"MULTI", "+OK"}, {"WATCH k", "-ERR WATCH inside MULTI is not allowed"}, {"EXEC", "[]"},
		{"MULTI", "+OK"}, {"RESET", "+RESET"}, {"EXEC", "-ERR EXEC without MULTI"},
	} {
		if got := c.words(s.line); got != s.want {
			t.Errorf("%s: %s, want %s", s.line, got, s.want)
		}
	}
	r.store.hook(func() { r.store.calls = nil })
	c.send(array("INCR", "other") + array("MULTI") + array("GET", "k") + array("EXEC") + array("GET", "k"))
	for range 5 {
		c.reply()
	}
	if len(r.store.calls) != 1 || len(r.store.calls[0]) != 2 {
		t.Errorf("a transaction that only reads is not in the log with the rest: %v", r.store.calls)
	}
}

func TestErrorsOfWrites(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial()
	r.store.hook(func() {
		r.store.onEdit = func(es []graph.CounterEdit) ([]graph.EditResult, error) {
			out := make([]graph.EditResult, len(es))
			for i, e := range es {
				switch e.Counter.Key {
				case "unknown":
					out[i].Err = errPlanted
				case "refused":
					return nil, graph.ErrUnreachable
				case "away":
					out[i].Err = graph.ErrUnreachable
				case "capped":
					out[i].Outcome = counter.Capped
				default:
					out[i].Edited = counter.Edited{Value: 1, Outcome: counter.Applied, Changed: true}
				}
			}
			return out, nil
		}
	})
	// One key of several, and the first of several errors: unknown is what counts.
	for line, want := range map[string]string{
		"INCR unknown": "-UNKNOWNOUTCOME planted", "MSET a 1 away 2 unknown 3 b 4": "-UNKNOWNOUTCOME planted",
		"DEL a away": "-TRYAGAIN " + graph.ErrUnreachable.Error(), "INCR refused": "-TRYAGAIN " + graph.ErrUnreachable.Error(),
		"INCR capped": "-" + errBounds, "INCR fine": ":1",
	} {
		if got := c.words(line); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	c.send(array("INCR", "a") + array("INCR", "unknown") + array("INCR", "b"))
	if got := []string{c.reply(), c.reply(), c.reply()}; !slices.Equal(got, []string{":1", "-UNKNOWNOUTCOME planted", ":1"}) {
		t.Errorf("in a pipeline: %q", got)
	}
}

// Prefixes upon which clients repeat by themselves must not tell of an unknown outcome.
func TestUnknownOutcomeHasAPrefixOfItsOwn(t *testing.T) {
	for _, p := range []string{"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY", "ERR", "NOREPLICAS"} {
		if strings.HasPrefix(UnknownOutcome, p) {
			t.Errorf("%s begins with %s", UnknownOutcome, p)
		}
	}
}

func TestTokenOfAConnection(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.dial(), r.dial()
	a.do("INCR", "k")
	token := strings.TrimPrefix(a.do("LIANA.TOKEN"), "$")
	if got := b.do("LIANA.TOKEN", token); got != "+OK" {
		t.Fatal(got)
	}
	r.store.hook(func() { r.store.tokens = nil })
	b.do("GET", "k")
	b.do("GET", "elsewhere")
	own, _ := graph.ParseToken(token)
	seen, err := graph.ParseToken(r.store.tokens[0])
	if err != nil || fmt.Sprint(seen.Seen) != fmt.Sprint(own.Seen) || r.store.tokens[1] != "" {
		t.Errorf("tokens of reads %q, want %v and none", r.store.tokens, own.Seen)
	}
	if got := b.do("LIANA.TOKEN", token+"x"); !strings.HasPrefix(got, "-ERR") {
		t.Error(got)
	}
	if got := b.do("LIANA.TOKEN", (&graph.Token{Timeline: 8}).Encode()); !strings.HasPrefix(got, "-ERR") {
		t.Errorf("a token of another cluster: %s", got)
	}
}

func TestStartingServerSaysLoading(t *testing.T) {
	r := newRig(t, nil)
	r.starting = true
	c := r.dial()
	if got := c.do("INCR", "k"); got != "-LOADING Liana is loading the dataset in memory" {
		t.Fatal(got)
	}
	r.starting = false
	if got := c.do("INCR", "k"); got != ":1" {
		t.Fatal(got)
	}
}

func TestPanicEndsTheConnectionOnly(t *testing.T) {
	r := newRig(t, nil)
	c, other := r.dial(), r.dial()
	r.store.hook(func() {
		r.store.onEdit = func([]graph.CounterEdit) ([]graph.EditResult, error) { panic("planted") }
	})
	c.send(array("INCR", "k"))
	c.ended()
	r.store.hook(func() { r.store.onEdit = nil })
	if got := other.do("INCR", "k"); got != ":1" {
		t.Fatal(got)
	}
	if f := r.Figures(); f.Panics != 1 {
		t.Errorf("figures %+v", f)
	}
}

// Commands that are being executed when the port stops are answered; a client that sees
// only the end of its connection would repeat them.
func TestStopAnswersWhatIsExecuted(t *testing.T) {
	r := newRig(t, nil)
	c, idle := r.dial(), r.dial()
	idle.do("PING")
	entered, release := make(chan struct{}), make(chan struct{})
	r.store.hook(func() {
		r.store.onEdit = func(es []graph.CounterEdit) ([]graph.EditResult, error) {
			close(entered)
			<-release
			return []graph.EditResult{{Edited: counter.Edited{Value: 5, Outcome: counter.Applied}}}, nil
		}
	})
	c.send(array("INCR", "k"))
	<-entered
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		stopped <- r.Stop(ctx)
	}()
	idle.ended()
	close(release)
	if got := c.reply(); got != ":5" {
		t.Fatal(got)
	}
	c.ended()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", r.Addr()); err == nil {
		t.Error("the port still accepts")
	}
}

func TestConfigNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"resp.max_connections": func(c *Config) { c.MaxConnections = 0 }, "resp.max_args": func(c *Config) { c.MaxArgs = 1 },
		"resp.max_command_bytes": func(c *Config) { c.MaxCommandBytes = 1 }, "resp.max_output_bytes": func(c *Config) { c.MaxOutputBytes = 1 },
		"resp.max_buffer_bytes": func(c *Config) { c.MaxBufferBytes = 1 }, "resp.idle_timeout": func(c *Config) { c.IdleTimeout = -1 },
		"resp.write_timeout": func(c *Config) { c.WriteTimeout = 0 }, "resp.call_time": func(c *Config) { c.CallTime = 0 },
	} {
		cfg := Defaults()
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
}

// Every command is in the documentation's table.
func TestCommandsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/resp.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range table() {
		if len(r.name) > maxName {
			t.Errorf("%s is longer than maxName", r.name)
		}
		if !strings.Contains(string(b), "`"+strings.ToUpper(r.name)+"`") {
			t.Errorf("docs/resp.md does not name `%s`", strings.ToUpper(r.name))
		}
	}
}
