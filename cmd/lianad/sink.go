package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/server/sink"
)

// sinkConfig says where changes are written to as Redis streams.
type sinkConfig struct {
	// Redis are the servers; without addresses there is no sink.
	Redis redisConfig `yaml:"redis"`
	// Stream begins the keys of the streams: a colon and the number of a shard follow.
	Stream string `yaml:"stream"`
	// MaxLen is about how many entries a stream keeps; 0: all.
	MaxLen int64 `yaml:"max_len"`
}

func (c sinkConfig) validate() error {
	var errs []error
	if err := c.Redis.validate(); err != nil {
		errs = append(errs, fmt.Errorf("sink: %w", err))
	}
	if c.Stream == "" || len(c.Stream) > 512 {
		errs = append(errs, fmt.Errorf("sink.stream: %d bytes (allowed: 1 to 512)", len(c.Stream)))
	}
	if c.MaxLen < 0 {
		errs = append(errs, fmt.Errorf("sink.max_len: %d (allowed: 0 or more)", c.MaxLen))
	}
	return errors.Join(errs...)
}

// changeSink is the sink of this node.
type changeSink struct {
	client redis.UniversalClient
	end    context.CancelFunc
	ended  sync.WaitGroup
}

// openSink starts the sink where one is configured and this node has shards.
func (n *node) openSink() error {
	if n.cfg.Sink.Redis.Addrs == "" || !n.cfg.Cluster.has(roleStorage) {
		return nil
	}
	o, err := n.cfg.Sink.Redis.options()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.sink = &changeSink{client: redis.NewUniversalClient(&o), end: cancel}
	told := complaints{log: n.log, text: "changes do not come to the streams in Redis; they are kept until the change log is trimmed"}
	s := sink.New(sink.Config{Source: n.graph, Client: n.sink.client, Stream: n.cfg.Sink.Stream, MaxLen: n.cfg.Sink.MaxLen, Tell: told.tell})
	n.sink.ended.Go(func() { s.Run(ctx) })
	return nil
}

func (s *changeSink) close() error {
	if s == nil {
		return nil
	}
	s.end()
	s.ended.Wait()
	return s.client.Close()
}
