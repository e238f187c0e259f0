package sink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lianadb/liana/graph"
)

// Source is where changes come from; graph.Graph is one.
type Source interface {
	Schema() *graph.Schema
	// Led are the shards that this node leads.
	Led() []graph.Claim
	ChangeRows(ctx context.Context, want graph.ChangesWant) (graph.ChangeRows, error)
}

// Config configures a Sink.
type Config struct {
	Source Source
	Client redis.UniversalClient
	// Stream begins the key of each stream: a colon and the number of the shard follow.
	Stream string
	// MaxLen is about how many entries a stream keeps; 0: all.
	MaxLen int64
	// Tell hears of errors; the sink goes on by itself.
	Tell func(error)
}

// Sink writes the streams of the shards that a node leads.
type Sink struct {
	cfg Config

	mu      sync.Mutex
	workers map[uint32]context.CancelFunc
	ended   sync.WaitGroup
}

// Times of a sink.
const (
	lookEvery  = 200 * time.Millisecond // at which shards are led
	waitChange = time.Second
	retryAfter = 500 * time.Millisecond
)

// New returns a sink; Run makes it work.
func New(cfg Config) *Sink { return &Sink{cfg: cfg, workers: map[uint32]context.CancelFunc{}} }

// Run writes until ctx ends.
func (s *Sink) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	defer s.ended.Wait()
	for {
		s.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look starts a worker for each shard that is led newly, and stops those of others.
func (s *Sink) look(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	led := map[uint32]bool{}
	for _, c := range s.cfg.Source.Led() {
		led[c.Shard] = true
		if s.workers[c.Shard] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		s.workers[c.Shard] = cancel
		w := worker{cfg: &s.cfg, shard: c.Shard, key: s.cfg.Stream + ":" + strconv.FormatUint(uint64(c.Shard), 10)}
		s.ended.Go(func() { w.run(ctx) })
	}
	for id, cancel := range s.workers { // any order: each is stopped for itself
		if !led[id] {
			cancel()
			delete(s.workers, id)
		}
	}
}

// worker writes the stream of one shard.
type worker struct {
	cfg   *Config
	shard uint32
	key   string
}

func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.write(ctx); err != nil && ctx.Err() == nil {
			w.cfg.Tell(fmt.Errorf("stream %s: %w", w.key, err))
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		}
	}
}

// errOtherTimeline: a stream is of another state of the cluster.
var errOtherTimeline = errors.New("the stream was written before a restore; name another one in sink.stream")

// write goes on behind the last entry of the stream, until something fails.
func (w *worker) write(ctx context.Context) error {
	last, timeline, err := w.last(ctx)
	if err != nil {
		return err
	}
	// The entries of the last position may not all be there.
	past := max(last.pos, 1) - 1
	for {
		rows, err := w.cfg.Source.ChangeRows(ctx, graph.ChangesWant{Shard: w.shard, Past: past, Wait: waitChange})
		if err != nil {
			return err
		}
		if mine := timelineText(rows.Timeline); timeline != "" && timeline != mine {
			return errOtherTimeline
		}
		if rows.Floor > past {
			if past, err = w.skip(ctx, last, &rows); err != nil {
				return err
			}
			continue
		}
		changes, err := rows.Facts(w.cfg.Source.Schema(), past)
		if err != nil {
			return err
		}
		if last, err = w.add(ctx, rows.Timeline, last, changes); err != nil {
			return err
		}
		past = max(past, rows.Through)
	}
}

// skip goes to where the log begins. What is lost is told, but to a stream that begins.
func (w *worker) skip(ctx context.Context, last id, rows *graph.ChangeRows) (past uint64, err error) {
	if last.pos > 0 && rows.Floor > last.pos {
		err = w.send(ctx, []entry{{id{rows.Floor, 0}, []any{
			"timeline", timelineText(rows.Timeline), "kind", "GAP", "from", last.pos,
		}}})
	}
	return rows.Floor, err
}

// id is the id of an entry: a position, and the place among the changes that share it.
type id struct{ pos, n uint64 }

func (i id) String() string {
	return strconv.FormatUint(i.pos, 10) + "-" + strconv.FormatUint(i.n, 10)
}

func (i id) after(j id) bool { return i.pos > j.pos || i.pos == j.pos && i.n > j.n }

func parseID(text string) (i id, err error) {
	pos, n, _ := strings.Cut(text, "-")
	if i.pos, err = strconv.ParseUint(pos, 10, 64); err == nil {
		i.n, err = strconv.ParseUint(n, 10, 64)
	}
	return i, err
}

// last returns the id of the stream's last entry, and its timeline; nothing where there is
// none.
func (w *worker) last(ctx context.Context) (i id, timeline string, err error) {
	found, err := w.cfg.Client.XRevRangeN(ctx, w.key, "+", "-", 1).Result()
	if err != nil || len(found) == 0 {
		return id{}, "", err
	}
	if i, err = parseID(found[0].ID); err != nil {
		return id{}, "", fmt.Errorf("entry %s: %w", found[0].ID, err)
	}
	timeline, _ = found[0].Values["timeline"].(string)
	if timeline == "" {
		return id{}, "", fmt.Errorf("entry %s is no change of Liana's", found[0].ID)
	}
	return i, timeline, nil
}

// entry is an entry of a stream.
type entry struct {
	id     id
	fields []any
}

// add writes the changes that the stream does not have, and returns its last id.
func (w *worker) add(ctx context.Context, timeline uint64, last id, changes []graph.Change) (id, error) {
	n := names{w.cfg.Source.Schema()}
	tl := timelineText(timeline)
	at := id{}
	var out []entry
	for i := range changes {
		c := &changes[i]
		at.n++
		if c.Position != at.pos {
			at = id{c.Position, 1}
		}
		if !at.after(last) {
			continue
		}
		fields, err := n.fields(c)
		if err != nil {
			return last, err
		}
		out = append(out, entry{at, append([]any{"timeline", tl}, fields...)})
	}
	const together = 1000
	for len(out) > 0 {
		k := min(len(out), together)
		if err := w.send(ctx, out[:k]); err != nil {
			return last, err
		}
		last, out = out[k-1].id, out[k:]
	}
	return last, nil
}

// send adds entries in their order. Those that the stream has already, of a leader before or
// of a try whose answer was lost, Redis refuses. They go as one transaction: were one left out
// for want of memory, and the next taken, it would be missing for ever.
func (w *worker) send(ctx context.Context, entries []entry) error {
	pipe := w.cfg.Client.TxPipeline()
	cmds := make([]*redis.StringCmd, len(entries))
	for i, e := range entries {
		cmds[i] = pipe.XAdd(ctx, &redis.XAddArgs{Stream: w.key, ID: e.id.String(), MaxLen: w.cfg.MaxLen, Approx: w.cfg.MaxLen > 0, Values: e.fields})
	}
	_, _ = pipe.Exec(ctx) // each has its own error, or that of all
	for _, c := range cmds {
		if err := c.Err(); err != nil && !strings.Contains(err.Error(), "equal or smaller") {
			return err
		}
	}
	return nil
}

func timelineText(t uint64) string { return strconv.FormatUint(t, 16) }
