package target

import (
	"context"
	"errors"
	"fmt"
)

// respServer is a system that speaks the Redis protocol.
type respServer interface {
	respAddr() (string, error)
}

func (r *redisServer) respAddr() (string, error) { return r.addr, nil }

func (s *lianaServer) respAddr() (string, error) {
	if s.resp == "" {
		return "", errors.New("the Redis-protocol port of a server that was not started here is not known")
	}
	return s.resp, nil
}

// Pipe is a caller's connection of the Redis protocol that counts. It is used by one
// goroutine.
type Pipe struct{ conn *respConn }

// OpenPipe connects to a system that speaks the Redis protocol.
func OpenPipe(ctx context.Context, s Server) (*Pipe, error) {
	r, ok := s.(respServer)
	if !ok {
		return nil, fmt.Errorf("%s does not speak the Redis protocol", s.Name())
	}
	addr, err := r.respAddr()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	conn, err := dialRESP(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	return &Pipe{conn}, nil
}

// IncrBy adds 1 to each of keys, with a command each in one pipeline.
func (p *Pipe) IncrBy(ctx context.Context, keys []uint64) error {
	for _, k := range keys {
		p.conn.begin(3)
		p.conn.arg("INCRBY")
		p.conn.key("counter:", k)
		p.conn.arg("1")
	}
	if err := p.conn.send(ctx); err != nil {
		return err
	}
	for range keys {
		if v, err := p.conn.int(); err != nil || v < 1 {
			return fmt.Errorf("INCRBY answered %d: %w", v, err)
		}
	}
	return nil
}

// Close ends the connection.
func (p *Pipe) Close() error { return p.conn.Close() }
