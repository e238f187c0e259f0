package graph

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// view is the state of a shard after one cut: what a read sees from beginning to
// end. The machine publishes one after each cut; readers hold it while they
// read, and the last to let go closes its snapshot.
type view struct {
	m        *Machine
	snap     kv.Snapshot
	cut      uint64
	position uint64 // of the shard's last change
	// changeFloor is the position up to which the change log is trimmed.
	changeFloor uint64
	totals      totals
	now         int64 // log time, µs
	elapsed     int64 // dedupe clock, µs
	// No counter expires before nextExpiry (log time), no answer is forgotten
	// before nextForget (dedupe clock).
	nextExpiry, nextForget int64

	owners owners
	own    *Claim // the shard's own slots; nil: none
	family *family
	birth  *Birth
	// backfills say which sums are not part of derived counters yet.
	backfills backfills
	// marked vertices are not plain; jobs are at work on some of them.
	marked int
	jobs   []runningJob

	schema   *Schema
	timeline uint64
	refs     atomic.Int64 // the machine's own one included
}

// acquire returns the newest view. It is released after the read.
func (m *Machine) acquire() (*view, error) {
	for {
		v := m.view.Load()
		if v == nil {
			return nil, kv.ErrClosed
		}
		for n := v.refs.Load(); n > 0; n = v.refs.Load() {
			if v.refs.CompareAndSwap(n, n+1) {
				return v, nil
			}
		}
	}
}

// acquireAt returns a view at or past f, and waits for it up to the given time.
func (m *Machine) acquireAt(ctx context.Context, patience time.Duration, f freshness) (*view, error) {
	v, err := m.acquireIf(f)
	if v != nil || err != nil {
		return v, err
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		moved := m.moved.wait()
		if v, err := m.acquireIf(f); v != nil || err != nil {
			return v, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, fmt.Errorf("shard %d: waiting for position %d: %w", m.cfg.ID, f.pos, ctx.Err())
		case <-timeout.C:
			return nil, fmt.Errorf("shard %d: position %d: %w", m.cfg.ID, f.pos, ErrTooFresh)
		}
	}
}

// acquireIf returns the newest view if it is at or past f, else nil. Deliveries
// are looked at first: they are told after the view that holds them is out.
func (m *Machine) acquireIf(f freshness) (*view, error) {
	if !m.received(f.incoming) {
		return nil, nil
	}
	v, err := m.acquire()
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", m.cfg.ID, err)
	}
	if v.position < f.pos {
		v.release()
		return nil, nil
	}
	return v, nil
}

// received reports whether deliveries have come at least so far.
func (m *Machine) received(want []streamPosition) bool {
	for _, w := range want {
		s, ok := (*m.streams.Load())[w.to]
		if !ok || s.delivered.Load() < w.pos {
			return false
		}
	}
	return true
}

func (v *view) release() {
	if v.refs.Add(-1) == 0 {
		// Nothing is lost by an error here: the snapshot was only read.
		_ = v.snap.Close()
	}
}

// list opens an edge list as the view shows it.
func (v *view) list(l ListKey) (*edgelist.List, error) {
	list, err := edgelist.Open(&pageSource{key: l, cache: v.m.cache, read: v.snap, cut: v.cut, begun: &v.m.cutBegun})
	return list, v.m.faultOf(err, l)
}

// pageSource reads the pages of one list through the cache.
type pageSource struct {
	key   ListKey
	cache *pageCache
	read  kv.Reader
	cut   uint64
	begun *atomic.Uint64
	buf   [headSize + pageSuffix]byte
}

// Page implements edgelist.Source.
func (s *pageSource) Page(id edgelist.PageID) (*edgelist.Page, error) {
	k := makePageKey(&s.key, id)
	if page, known := s.cache.get(k, s.cut); known {
		return page, nil
	}
	page, err := readPage(s.read, appendPageKey(s.buf[:0], s.key, id))
	if err != nil {
		return nil, err
	}
	s.cache.fill(k, page, s.cut, s.begun)
	return page, nil
}

func readPage(r kv.Reader, key []byte) (*edgelist.Page, error) {
	value, err := r.Get(nil, key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return edgelist.DecodePage(value)
}

func appendPageKey(b []byte, l ListKey, id edgelist.PageID) []byte {
	b = appendHeadKey(b, l)
	if id == (edgelist.PageID{}) {
		return b
	}
	b = append(b, byte(id.Order))
	return append(b, byte(id.No>>24), byte(id.No>>16), byte(id.No>>8), byte(id.No))
}
