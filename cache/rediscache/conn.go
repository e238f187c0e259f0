package rediscache

import (
	"context"
	"errors"
	"fmt"

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
	cmds := make([]redis.Cmder, len(which))
	for j, i := range which {
		cmds[j] = c.queue(ctx, pipe, &calls[i], withText)
	}
	// The error of Exec is that of the first call that failed; each call has its own.
	_, _ = pipe.Exec(ctx)
	for j, i := range which {
		replies[i] = replyOf(cmds[j])
	}
}

func (c *redisConn) queue(ctx context.Context, pipe redis.Pipeliner, call *call, withText bool) redis.Cmder {
	if call.script == scriptNone {
		return pipe.MGet(ctx, call.keys...)
	}
	args := make([]any, len(call.args))
	for i, a := range call.args {
		args[i] = a
	}
	if withText {
		return pipe.Eval(ctx, call.script.text(), call.keys, args...)
	}
	return pipe.EvalSha(ctx, c.shas[call.script], call.keys, args...)
}

func replyOf(cmd redis.Cmder) reply {
	switch cmd := cmd.(type) {
	case *redis.SliceCmd:
		found, err := cmd.Result()
		r := reply{values: make([][]byte, len(found)), err: err}
		for i, v := range found {
			if s, ok := v.(string); ok {
				r.values[i] = []byte(s)
			}
		}
		return r
	case *redis.Cmd:
		text, err := cmd.Text()
		if errors.Is(err, redis.Nil) {
			return reply{values: [][]byte{nil}}
		}
		return reply{values: [][]byte{[]byte(text)}, err: err}
	}
	return reply{err: fmt.Errorf("a reply of type %T", cmd)}
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
