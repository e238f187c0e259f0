package target

import (
	"context"
	"errors"
	"time"

	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// Keys: s:USER set of notes, c:NOTE count of likes, b:NOTE bitmap of users,
// u:USER and n:NOTE sorted sets by time.
//
// All scripts get the same keys and arguments: KEYS s, c, u, n (or b, c);
// ARGV user, note, time. They return 1 where they changed something.
func (m redisMode) scripts() (add, del, update string) {
	if m.bitmap {
		return `if redis.call('SETBIT',KEYS[1],ARGV[1],1)==1 then return 0 end redis.call('INCR',KEYS[2]) return 1`,
			`if redis.call('SETBIT',KEYS[1],ARGV[1],0)==0 then return 0 end redis.call('DECR',KEYS[2]) return 1`,
			`return redis.call('GETBIT',KEYS[1],ARGV[1])`
	}
	add = `if redis.call('SISMEMBER',KEYS[1],ARGV[2])==1 then return 0 end
redis.call('SADD',KEYS[1],ARGV[2]) redis.call('INCR',KEYS[2]) `
	del = `if redis.call('SREM',KEYS[1],ARGV[2])==0 then return 0 end redis.call('DECR',KEYS[2]) `
	update = `if redis.call('SISMEMBER',KEYS[1],ARGV[2])==0 then return 0 end `
	if m.lists {
		const put = `redis.call('ZADD',KEYS[3],ARGV[3],ARGV[2]) redis.call('ZADD',KEYS[4],ARGV[3],ARGV[1]) `
		add += put
		del += `redis.call('ZREM',KEYS[3],ARGV[2]) redis.call('ZREM',KEYS[4],ARGV[1]) `
		update += put
	}
	return add + `return 1`, del + `return 1`, update + `return 1`
}

// Errors of what a form of data cannot do.
var (
	errNoLists = errors.New("this target was started without lists by time")
	errNoOut   = errors.New("bitmaps of notes know nothing by user")
	errBigID   = errors.New("bitmaps hold ids below 2^32 only: use dense ids")
)

type redisSession struct {
	conn   *respConn
	mode   redisMode
	script redisScripts
}

func (s *redisSession) Close() error { return s.conn.Close() }

func (s *redisSession) AddEdge(ctx context.Context, e workload.Edge) (bool, error) {
	return s.write(ctx, s.script.add, e)
}

func (s *redisSession) DeleteEdge(ctx context.Context, e workload.Edge) (bool, error) {
	return s.write(ctx, s.script.del, e)
}

func (s *redisSession) UpdateEdge(ctx context.Context, e workload.Edge) (bool, error) {
	return s.write(ctx, s.script.update, e)
}

func (s *redisSession) write(ctx context.Context, script string, e workload.Edge) (bool, error) {
	if err := s.put(script, e); err != nil {
		return false, err
	}
	if err := s.conn.send(ctx); err != nil {
		return false, err
	}
	n, err := s.conn.int()
	return n == 1, err
}

// put begins the call of a script.
func (s *redisSession) put(script string, e workload.Edge) error {
	c := s.conn
	if s.mode.bitmap {
		if e.Src >= 1<<32 {
			return errBigID
		}
		c.begin(6)
		c.arg("EVALSHA")
		c.arg(script)
		c.arg("2")
		c.key("b:", e.Dst)
		c.key("c:", e.Dst)
		c.uint(e.Src)
		return nil
	}
	keys, args := 2, 2
	if s.mode.lists {
		keys, args = 4, 3
	}
	c.begin(3 + keys + args)
	c.arg("EVALSHA")
	c.arg(script)
	c.uint(uint64(keys))
	c.key("s:", e.Src)
	c.key("c:", e.Dst)
	if s.mode.lists {
		c.key("u:", e.Src)
		c.key("n:", e.Dst)
	}
	c.uint(e.Src)
	c.uint(e.Dst)
	if s.mode.lists {
		c.uint(uint64(timeOrNow(e.Time)))
	}
	return nil
}

func timeOrNow(t int64) int64 {
	if t == 0 {
		return time.Now().UnixMicro()
	}
	return t
}

func (s *redisSession) AddEdges(ctx context.Context, edges []workload.Edge) (int, error) {
	changed := 0
	err := s.pipeline(ctx, len(edges),
		func(i int) error { return s.put(s.script.add, edges[i]) },
		func(_ int, n int64) { changed += int(n) })
	return changed, err
}

// pipeline sends n commands, pipelineDepth at a time, and reads their numbers.
func (s *redisSession) pipeline(ctx context.Context, n int, put func(int) error, got func(int, int64)) error {
	for first := 0; first < n; first += pipelineDepth {
		end := min(first+pipelineDepth, n)
		for i := first; i < end; i++ {
			if err := put(i); err != nil {
				return err
			}
		}
		if err := s.conn.send(ctx); err != nil {
			return err
		}
		for i := first; i < end; i++ {
			v, err := s.conn.int()
			if err != nil {
				return err
			}
			got(i, v)
		}
	}
	return nil
}

func (s *redisSession) HasEdges(ctx context.Context, src uint64, dsts []uint64, exists []bool) error {
	return s.pipeline(ctx, len(dsts), func(i int) error {
		s.conn.begin(3)
		if s.mode.bitmap {
			s.conn.arg("GETBIT")
			s.conn.key("b:", dsts[i])
			s.conn.uint(src)
			return nil
		}
		s.conn.arg("SISMEMBER")
		s.conn.key("s:", src)
		s.conn.uint(dsts[i])
		return nil
	}, func(i int, v int64) { exists[i] = v == 1 })
}

func (s *redisSession) CountEdges(ctx context.Context, in bool, ids []uint64, counts []uint64) error {
	c := s.conn
	if !in {
		if s.mode.bitmap {
			return errNoOut
		}
		return s.pipeline(ctx, len(ids), func(i int) error {
			c.begin(2)
			c.arg("SCARD")
			c.key("s:", ids[i])
			return nil
		}, func(i int, v int64) { counts[i] = uint64(v) })
	}
	c.begin(1 + len(ids))
	c.arg("MGET")
	for _, id := range ids {
		c.key("c:", id)
	}
	if err := c.send(ctx); err != nil {
		return err
	}
	if _, err := c.array(); err != nil {
		return err
	}
	for i := range ids {
		v, err := c.int()
		if err != nil {
			return err
		}
		counts[i] = uint64(v)
	}
	return nil
}

// list begins a command on the sorted set of a list.
func (s *redisSession) list(args int, command string, l List) error {
	if !s.mode.lists {
		return errNoLists
	}
	s.conn.begin(args)
	s.conn.arg(command)
	if l.In {
		s.conn.key("n:", l.Vertex)
	} else {
		s.conn.key("u:", l.Vertex)
	}
	return nil
}

func (s *redisSession) ListNewest(ctx context.Context, l List, skip, limit int, page []Peer) ([]Peer, error) {
	if err := s.list(5, "ZREVRANGE", l); err != nil {
		return page, err
	}
	c := s.conn
	c.uint(uint64(skip))
	c.uint(uint64(skip + limit - 1))
	c.arg("WITHSCORES")
	if err := c.send(ctx); err != nil {
		return page, err
	}
	n, err := c.array()
	if err != nil {
		return page, err
	}
	for ; n >= 2; n -= 2 {
		id, err := c.int()
		if err != nil {
			return page, err
		}
		at, err := c.int()
		if err != nil {
			return page, err
		}
		page = append(page, Peer{ID: uint64(id), Time: at})
	}
	return page, nil
}

func (s *redisSession) CountWindow(ctx context.Context, l List, since, until int64) (uint64, error) {
	if err := s.list(4, "ZCOUNT", l); err != nil {
		return 0, err
	}
	s.conn.uint(uint64(since))
	s.conn.uint(uint64(until - 1))
	if err := s.conn.send(ctx); err != nil {
		return 0, err
	}
	n, err := s.conn.int()
	return uint64(n), err
}
