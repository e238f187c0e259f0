package graph

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lianadb/liana/kv"
)

// Bounds of a feed.
const (
	// feedBytes is how much memory the newest changes of a shard that a feed keeps take.
	feedBytes = 16 << 20
	// feedWait is how long a feed waits at a shard for a change before it asks anew.
	feedWait = time.Second
	// feedPause is how long it waits after an error.
	feedPause = 100 * time.Millisecond
	// changeBytes is what a change takes beside its row.
	changeBytes = 200
)

// feeds are the feeds of all shards: who follows changes on one node shares the reading of
// them. A feed runs as long as somebody uses it.
type feeds struct {
	graph *Graph
	read  func(context.Context, ChangesWant) (ChangeRows, error)

	mu     sync.Mutex
	of     map[uint32]*feed
	births map[uint32]*Birth // nil: of a shard that was not split off
}

func newFeeds(g *Graph, read func(context.Context, ChangesWant) (ChangeRows, error)) *feeds {
	return &feeds{graph: g, read: read, of: map[uint32]*feed{}, births: map[uint32]*Birth{}}
}

// feed keeps the newest changes of a shard.
type feed struct {
	feeds *feeds
	shard uint32
	users int // guarded by feeds.mu
	stop  context.CancelFunc

	moved notifier
	mu    sync.Mutex
	begun bool
	head  uint64 // position up to which the shard was read
	// batches follow one another without a gap, up to head.
	batches []*changeBatch
	size    int
	err     error // of the last attempt to read
}

// changeBatch is a run of changes of a shard. It is never changed.
type changeBatch struct {
	past, through uint64
	floor         uint64
	timeline      uint64
	owners        owners
	changes       []Change
	size          int
}

// join returns the feed of a shard, running; leave is called when it is needed no more.
func (fs *feeds) join(id uint32) (f *feed, leave func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f = fs.of[id]
	if f == nil {
		ctx, cancel := context.WithCancel(fs.graph.life)
		f = &feed{feeds: fs, shard: id, stop: cancel}
		fs.of[id] = f
		if ctx.Err() == nil {
			fs.graph.done.Go(func() { f.run(ctx) })
		}
	}
	f.users++
	return f, sync.OnceFunc(func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if f.users--; f.users == 0 {
			f.stop()
			delete(fs.of, id)
		}
	})
}

// birth tells of which shard one was split off. Shards never change that.
func (fs *feeds) birth(ctx context.Context, id uint32) (*Birth, error) {
	fs.mu.Lock()
	b, known := fs.births[id]
	fs.mu.Unlock()
	if known {
		return b, nil
	}
	rows, err := fs.read(ctx, ChangesWant{Shard: id, Past: ChangesNow})
	if err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.births[id] = rows.Birth
	return rows.Birth, nil
}

// batch reads changes past a position at the shard itself.
func (fs *feeds) batch(ctx context.Context, want ChangesWant) (*changeBatch, error) {
	rows, err := fs.read(ctx, want)
	if err != nil {
		return nil, err
	}
	b := &changeBatch{past: want.Past, through: rows.Through, floor: rows.Floor, timeline: rows.Timeline, owners: rows.Owners}
	if b.changes, err = decodeRows(rows.Rows, want.Past); err != nil {
		return nil, fmt.Errorf("shard %d: changes past %d: %w", want.Shard, want.Past, err)
	}
	b.size = len(b.changes) * changeBytes
	for _, r := range rows.Rows {
		b.size += len(r)
	}
	return b, nil
}

// run reads the log on and on.
func (f *feed) run(ctx context.Context) {
	for ctx.Err() == nil {
		want := ChangesWant{Shard: f.shard, Past: ChangesNow}
		if f.begun {
			want.Past, want.Wait = f.head, feedWait
		}
		b, err := f.feeds.batch(ctx, want)
		f.take(b, err)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(feedPause):
			}
		}
	}
}

func (f *feed) take(b *changeBatch, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		f.err = err
	case !f.begun:
		f.begun, f.head, f.err = true, b.through, nil
	case b.floor > f.head: // what readers missed they learn when they ask for it
		f.head, f.batches, f.size, f.err = max(b.floor, b.through), nil, 0, nil
	case b.through > f.head:
		f.err = nil
		f.head = b.through
		f.batches = append(f.batches, b)
		for f.size += b.size; f.size > feedBytes && len(f.batches) > 1; {
			f.size -= f.batches[0].size
			f.batches = f.batches[1:]
		}
	default:
		f.err = nil
		return // nothing new: nobody needs to wake
	}
	f.moved.wake()
}

// next returns a batch that tells what comes past a position, once there is something.
func (f *feed) next(ctx context.Context, past uint64) (*changeBatch, error) {
	for {
		moved := f.moved.wait()
		b, behind, err := f.look(past)
		switch {
		case err != nil:
			return nil, err
		case b != nil:
			return b, nil
		case behind:
			b, err := f.feeds.batch(ctx, ChangesWant{Shard: f.shard, Past: past})
			if err != nil || b.through > past || b.floor > past {
				return b, err
			}
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.feeds.graph.life.Done():
			return nil, kv.ErrClosed
		}
	}
}

// look returns the batch of what is kept that goes on past a position. behind: it was kept
// once, or never.
func (f *feed) look(past uint64) (b *changeBatch, behind bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil && !again(f.err, toReadHere) && !errors.Is(f.err, context.Canceled) {
		return nil, false, f.err
	}
	if !f.begun || past >= f.head {
		return nil, false, nil
	}
	for _, b := range f.batches {
		if b.past <= past && past < b.through {
			return b, false, nil
		}
	}
	return nil, true, nil
}
