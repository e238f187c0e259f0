package rediscache

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/redis/go-redis/v9"
)

// call is one command: a script over keys of one tag, or (scriptNone) an MGET of them.
type call struct {
	script script
	keys   []string
	args   []string
}

// reply answers a call: the values of an MGET, or the one value of a script. nil is
// absence.
type reply struct {
	values [][]byte
	err    error
}

// conn is a Redis as the protocol uses it. The calls of one tag are executed in the
// order given.
type conn interface {
	do(ctx context.Context, calls []call) []reply
	// node names the server that has a key, by the latest map.
	node(key string) string
}

// redisConn is a conn over go-redis.
type redisConn struct {
	client redis.UniversalClient
	shas   [numScripts]string
}

func newRedisConn(client redis.UniversalClient) *redisConn {
	c := &redisConn{client: client}
	for s := scriptNone + 1; s < numScripts; s++ {
		c.shas[s] = s.sha()
	}
	return c
}

func (c *redisConn) do(ctx context.Context, calls []call) []reply {
	replies := make([]reply, len(calls))
	all := make([]int, len(calls))
	for i := range all {
		all[i] = i
	}
	c.pipeline(ctx, calls, replies, all, false)
	// A server that was restarted, or flushed its scripts, is sent the text. Where a
	// call of a tag failed so, all later ones of that pipeline to that server did, or
	// came after a reload: the order of a tag's calls stands.
	var unknown []int
	for i := range replies {
		if replies[i].err != nil && redis.HasErrorPrefix(replies[i].err, "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) > 0 {
		c.pipeline(ctx, calls, replies, unknown, true)
	}
	return replies
}

// pipeline sends the calls in which, and sets their replies.
func (c *redisConn) pipeline(ctx context.Context, calls []call, replies []reply, which []int, withText bool) {
	pipe := c.client.Pipeline()
	var gets []gathered
	scripts := make([]*redis.Cmd, len(which))
	for j := 0; j < len(which); {
		if i := which[j]; calls[i].script != scriptNone {
			scripts[j] = c.queueScript(ctx, pipe, &calls[i], withText)
			j++
			continue
		}
		n := c.gather(calls, which[j:])
		gets = append(gets, queueGet(ctx, pipe, calls, which[j:j+n]))
		j += n
	}
	// The error of Exec is that of the first call that failed; each call has its own.
	_, _ = pipe.Exec(ctx)
	for j, cmd := range scripts {
		if cmd != nil {
			replies[which[j]] = replyOf(cmd)
		}
	}
	for _, g := range gets {
		g.split(calls, replies)
	}
}

// gatherKeys is how many keys one MGET asks for at most, so that no command holds
// up Redis.
const gatherKeys = 256

// gather returns how many of the calls in which go as one command. Where all keys lie on
// one server, a command for all its MGETs spares both sides most of the work; a
// Cluster takes keys of one tag only.
func (c *redisConn) gather(calls []call, which []int) int {
	n, keys := 1, len(calls[which[0]].keys)
	if _, clustered := c.client.(*redis.ClusterClient); clustered {
		return n
	}
	for n < len(which) && calls[which[n]].script == scriptNone {
		if keys += len(calls[which[n]].keys); keys > gatherKeys {
			break
		}
		n++
	}
	return n
}

// gathered is one MGET for some calls.
type gathered struct {
	cmd   *redis.SliceCmd
	which []int
}

func queueGet(ctx context.Context, pipe redis.Pipeliner, calls []call, which []int) gathered {
	n := 1
	for _, i := range which {
		n += len(calls[i].keys)
	}
	args := make([]any, 1, n)
	args[0] = "mget"
	for _, i := range which {
		for k := range calls[i].keys {
			args = append(args, &calls[i].keys[k]) // a pointer takes no room in an interface
		}
	}
	g := gathered{redis.NewSliceCmd(ctx, args...), which}
	_ = pipe.Process(ctx, g.cmd)
	return g
}

// split gives each call its part of the values.
func (g *gathered) split(calls []call, replies []reply) {
	found, err := g.cmd.Result()
	values := make([][]byte, len(found))
	for i, v := range found {
		if s, ok := v.(string); ok {
			// The string is ours alone, and what is made of it is never changed.
			values[i] = unsafe.Slice(unsafe.StringData(s), len(s))
			if values[i] == nil {
				values[i] = []byte{} // empty, not absent
			}
		}
	}
	for _, i := range g.which {
		n := len(calls[i].keys)
		if err == nil && len(values) < n {
			err = fmt.Errorf("an MGET answered with %d values too few", n-len(values))
		}
		if err != nil {
			replies[i] = reply{err: err}
			continue
		}
		replies[i], values = reply{values: values[:n]}, values[n:]
	}
}

func (c *redisConn) queueScript(ctx context.Context, pipe redis.Pipeliner, call *call, withText bool) *redis.Cmd {
	args := make([]any, len(call.args))
	for i, a := range call.args {
		args[i] = a
	}
	if withText {
		return pipe.Eval(ctx, call.script.text(), call.keys, args...)
	}
	return pipe.EvalSha(ctx, c.shas[call.script], call.keys, args...)
}

func replyOf(cmd *redis.Cmd) reply {
	text, err := cmd.Text()
	if errors.Is(err, redis.Nil) {
		return reply{values: [][]byte{nil}}
	}
	return reply{values: [][]byte{[]byte(text)}, err: err}
}

func (c *redisConn) node(key string) string {
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	master, err := cluster.MasterForKey(context.Background(), key)
	if err != nil {
		return ""
	}
	return master.Options().Addr
}

// isMigrating reports whether the server said that the keys of a tag are on their way
// to another: what was applied may have missed some of them.
func isMigrating(err error) bool {
	if err == nil {
		return false
	}
	_, ask := redis.IsAskError(err)
	return ask || redis.IsTryAgainError(err)
}
