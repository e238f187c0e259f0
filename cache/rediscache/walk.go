package rediscache

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/cache"
)

// walkKeys is about how many keys one step of Walk looks at.
const walkKeys = 256

// Walk tells of all entries on one server that readers may find there: those of the gen
// that p of their slot names, each at the position where it stands. It looks at every key
// of the server, and is for checks, not for the service.
func Walk(ctx context.Context, server *redis.Client, tell func(cache.Key, cache.Entry)) error {
	for cursor := uint64(0); ; {
		keys, next, err := server.Scan(ctx, cursor, keyVersion+":*", walkKeys).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := walkOne(ctx, server, key, tell); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func walkOne(ctx context.Context, server *redis.Client, key string, tell func(cache.Key, cache.Entry)) error {
	timeline, g, k, ok := parseEntryKey(key)
	if !ok {
		return nil
	}
	values, err := server.MGet(ctx, headKey(timeline, k.Slot), key).Result()
	if err != nil {
		return err
	}
	position, _ := values[0].(string)
	value, there := values[1].(string)
	if position == "" || !there {
		return nil
	}
	p, err := decodeHead([]byte(position))
	if err != nil || p.gen != g {
		return err
	}
	e, err := decodeEntry(k.Kind, []byte(value))
	if err != nil {
		return err
	}
	e.At = cache.Position{Timeline: timeline, Number: max(e.At.Number, p.h)}
	tell(k, e)
	return nil
}
