package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// WatchStart says where a watch without a token begins.
type WatchStart uint8

// The starts.
const (
	WatchNow    WatchStart = iota // all that comes after what was acknowledged before the call
	WatchOldest                   // the oldest changes that the logs have
)

// WatchQuery asks for the changes of the cluster.
type WatchQuery struct {
	Token     string // of an earlier watch: it goes on behind what was told with it
	Start     WatchStart
	Filter    ChangeFilter
	Heartbeat time.Duration // 100 ms to 1 min; 0: DefaultHeartbeat
}

// DefaultHeartbeat is the longest silence of a watch.
const DefaultHeartbeat = 5 * time.Second

// ChangeFilter says which changes are told. What is empty takes all.
type ChangeFilter struct {
	Kinds       []ChangeKind
	EdgeTypes   []EdgeType
	VertexTypes []VertexType // of an end of the edge, or of the counter's vertex
	Vertex      *Vertex      // an end of the edge, or the counter's
}

// Watched is a part of a watch: changes, and the token that goes on behind them. It is a
// heartbeat where there are none.
type Watched struct {
	Changes []Change
	Token   string
}

// Watch tells the changes of all shards as they are committed: of edges those of the list of
// facts, so each once, and of counters. It calls tell from one goroutine, at first with the
// token that it begins at. Changes of one slot, so those of one source vertex, come in their
// order, with rising positions. It goes on over changes of leaders, moves and splits, until
// ctx ends, tell fails, or nobody can say what comes next (ErrTrimmed, ErrOldTimeline).
//
// A watch keeps at most one batch of each shard that tell has not taken: a slow one falls
// behind and reads the log, until that is trimmed.
func (r *Router) Watch(ctx context.Context, q WatchQuery, tell func(Watched) error) error {
	return r.feeds.watch(ctx, q, tell)
}

// Watch is Router.Watch over the shards of this node.
func (g *Graph) Watch(ctx context.Context, q WatchQuery, tell func(Watched) error) error {
	return g.feeds.watch(ctx, q, tell)
}

func (fs *feeds) watch(ctx context.Context, q WatchQuery, tell func(Watched) error) error {
	if q.Heartbeat == 0 {
		q.Heartbeat = DefaultHeartbeat
	}
	if q.Heartbeat < 100*time.Millisecond || q.Heartbeat > time.Minute {
		return invalid("heartbeat", "100 ms to 1 min", "%v", q.Heartbeat)
	}
	places, err := fs.begin(ctx, &q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{
		feeds: fs, filter: q.Filter, tell: tell, heartbeat: q.Heartbeat, schema: fs.graph.Schema(),
		pieces: make(chan piece), failed: make(chan error, 1),
	}
	defer w.strands.Wait()
	defer cancel()
	for _, p := range places {
		w.start(ctx, p)
	}
	return w.run(ctx)
}

// begin returns the places at which a watch begins: those of its token, or one for each shard.
func (fs *feeds) begin(ctx context.Context, q *WatchQuery) ([]watchPlace, error) {
	t, err := parseWatchToken(q.Token)
	if err != nil {
		return nil, err
	}
	if t != nil {
		if t.Timeline != fs.graph.cfg.Timeline {
			return nil, ErrOldTimeline
		}
		return t.Places, nil
	}
	if q.Start > WatchOldest {
		return nil, invalid("start", "NOW, OLDEST", "%d", q.Start)
	}
	for begun := time.Now(); ; {
		places, err := fs.ends(ctx, q.Start)
		if err == nil || !errors.Is(err, errOwnersMoved) || time.Since(begun) > 10*time.Second {
			return places, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(feedPause):
		}
	}
}

// errOwnersMoved: slots went to another shard meanwhile.
var errOwnersMoved = fmt.Errorf("slots are moving: %w", ErrUnreachable)

// ends asks all shards how far their logs are, or where they begin.
func (fs *feeds) ends(ctx context.Context, start WatchStart) ([]watchPlace, error) {
	var places []watchPlace
	for _, c := range *fs.graph.owners.Load() {
		rows, err := fs.read(ctx, ChangesWant{Shard: c.Shard, Past: ChangesNow})
		if err != nil {
			return nil, err
		}
		fs.graph.learn(rows.Owners)
		if own := owners(rows.Owners).own(c.Shard); own == nil || own.First != c.First || own.Last != c.Last {
			return nil, errOwnersMoved
		}
		p := watchPlace{First: c.First, Last: c.Last, Pos: rows.Through}
		if start == WatchOldest {
			p.Pos = rows.Floor
		}
		places = append(places, p)
	}
	return places, nil
}

// watch is one call of Watch.
type watch struct {
	feeds     *feeds
	filter    ChangeFilter
	schema    *Schema
	tell      func(Watched) error
	heartbeat time.Duration

	places  []*watchPlace // by first slot; owned by run
	pieces  chan piece
	failed  chan error
	strands sync.WaitGroup
}

// piece is what a strand hands on: changes of its place, and where it is then.
type piece struct {
	place   *watchPlace
	changes []Change
	now     []watchPlace // what the place becomes: one, or parts of it
}

// start begins to follow a place.
func (w *watch) start(ctx context.Context, at watchPlace) *watchPlace {
	p := &at
	w.places = append(w.places, p)
	slices.SortFunc(w.places, func(a, b *watchPlace) int { return int(a.First) - int(b.First) })
	s := strandOf{watch: w, place: p, at: at}
	w.strands.Go(func() {
		if err := s.run(ctx); err != nil && ctx.Err() == nil {
			select {
			case w.failed <- err:
			default:
			}
		}
	})
	return p
}

func (w *watch) run(ctx context.Context) error {
	if err := w.tell(Watched{Token: w.token()}); err != nil {
		return err
	}
	beat := time.NewTimer(w.heartbeat)
	defer beat.Stop()
	for {
		var changes []Change
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-w.failed:
			return err
		case p := <-w.pieces:
			w.move(ctx, p)
			if changes = p.changes; len(changes) == 0 {
				continue
			}
		case <-beat.C:
		}
		if err := w.tell(Watched{Changes: changes, Token: w.token()}); err != nil {
			return err
		}
		beat.Reset(w.heartbeat)
	}
}

// move takes where a place is now. Parts of it that are followed elsewhere from now on get
// strands of their own; what comes of them is told behind this piece.
func (w *watch) move(ctx context.Context, p piece) {
	*p.place = p.now[0]
	for _, part := range p.now[1:] {
		w.start(ctx, part)
	}
}

func (w *watch) token() string {
	t := watchToken{Timeline: w.feeds.graph.cfg.Timeline}
	for _, p := range w.places {
		t.Places = append(t.Places, *p)
	}
	return t.encode()
}

// strandOf follows one place.
type strandOf struct {
	*watch
	place *watchPlace // the watch's; only named here
	at    watchPlace
	feed  *feed
	leave func()
}

func (s *strandOf) run(ctx context.Context) error {
	defer func() {
		if s.leave != nil {
			s.leave()
		}
	}()
	for {
		id, upTo, err := s.source(ctx)
		if err != nil {
			return err
		}
		s.use(id)
		b, err := s.feed.next(ctx, s.at.Pos)
		if err != nil {
			return err
		}
		if b.timeline != s.feeds.graph.cfg.Timeline {
			return ErrOldTimeline
		}
		if b.floor > s.at.Pos {
			return &TrimmedError{Shard: id, Asked: s.at.Pos, Oldest: b.floor}
		}
		changes := s.chosen(b, upTo)
		was := s.at
		s.at.Pos = min(b.through, upTo)
		now := []watchPlace{s.at}
		if upTo == ChangesNow {
			if now, err = s.lost(ctx, id, b, was); err != nil {
				return err
			}
		}
		if err := s.hand(ctx, changes, now); err != nil {
			return err
		}
	}
}

// hand gives the watch what was read.
func (s *strandOf) hand(ctx context.Context, changes []Change, now []watchPlace) error {
	s.at = now[0]
	select {
	case s.pieces <- piece{place: s.place, changes: changes, now: now}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *strandOf) use(id uint32) {
	if s.feed != nil && s.feed.shard == id {
		return
	}
	if s.leave != nil {
		s.leave()
	}
	s.feed, s.leave = s.feeds.join(id)
}

// source returns the shard whose log tells what comes next, and up to which position it
// does: the owner of the slots, or what that was split off from since.
func (s *strandOf) source(ctx context.Context) (id uint32, upTo uint64, err error) {
	for {
		c := s.feeds.graph.owners.Load().of(s.at.First)
		if c.Last < s.at.Last { // several own it by now
			rest := watchPlace{First: c.Last + 1, Last: s.at.Last, Pos: s.at.Pos}
			if err := s.hand(ctx, nil, []watchPlace{{First: s.at.First, Last: c.Last, Pos: s.at.Pos}, rest}); err != nil {
				return 0, 0, err
			}
			continue
		}
		id, upTo = c.Shard, ChangesNow
		for {
			b, err := s.feeds.birth(ctx, id)
			if err != nil {
				return 0, 0, err
			}
			if b == nil || s.at.Pos >= b.Base {
				return id, upTo, nil
			}
			id, upTo = b.Parent, b.Base
		}
	}
}

// lost returns what the place becomes where a shard has given some of its slots away since
// it was at was: each part goes on where its new owner was born.
func (s *strandOf) lost(ctx context.Context, id uint32, b *changeBatch, was watchPlace) ([]watchPlace, error) {
	own := b.owners.own(id)
	if own != nil && own.First <= s.at.First && own.Last >= s.at.Last {
		return []watchPlace{s.at}, nil
	}
	s.feeds.graph.learn(b.owners)
	var now []watchPlace
	for i := range b.owners {
		c := &b.owners[i]
		part := watchPlace{First: max(c.First, s.at.First), Last: min(c.Last, s.at.Last), Pos: s.at.Pos}
		if part.First > part.Last {
			continue
		}
		for heir := c.Shard; heir != id; {
			birth, err := s.feeds.birth(ctx, heir)
			if err != nil {
				return nil, err
			}
			if birth == nil { // its parent is not known: it may tell again what was told
				part.Pos = was.Pos
				break
			}
			part.Pos, heir = birth.Base, birth.Parent
		}
		now = append(now, part)
	}
	return now, nil
}

// chosen are the changes of a batch that the watch is to tell.
func (s *strandOf) chosen(b *changeBatch, upTo uint64) []Change {
	from, _ := slices.BinarySearchFunc(b.changes, s.at.Pos+1, func(c Change, pos uint64) int {
		if c.Position < pos {
			return -1
		}
		return 1
	})
	var out []Change
	for i := from; i < len(b.changes); i++ {
		c := &b.changes[i]
		if c.Position > upTo {
			break
		}
		if slot := c.Slot(); slot >= s.at.First && slot <= s.at.Last && s.filter.takes(s.schema, c) {
			out = append(out, *c)
		}
	}
	return out
}

// takes reports whether a change is told: one of a fact or a counter that the filter names.
func (f *ChangeFilter) takes(s *Schema, c *Change) bool {
	if c.Kind == SlotsMoved {
		return false
	}
	if len(f.Kinds) > 0 && !slices.Contains(f.Kinds, c.Kind) {
		return false
	}
	if c.Kind == CounterChanged {
		return f.takesCounter(c)
	}
	def, ok := s.EdgeTypeByID(c.List.Type)
	if ok && def.Symmetric && c.List.Vertex.ID > c.Edge.Peer || c.List.Dir == In {
		return false
	}
	if len(f.EdgeTypes) > 0 && !slices.Contains(f.EdgeTypes, c.List.Type) {
		return false
	}
	other := Vertex{Type: c.List.Vertex.Type, ID: c.Edge.Peer}
	if ok {
		other.Type = def.To
	}
	if len(f.VertexTypes) > 0 && !slices.Contains(f.VertexTypes, c.List.Vertex.Type) && !slices.Contains(f.VertexTypes, other.Type) {
		return false
	}
	return f.Vertex == nil || *f.Vertex == c.List.Vertex || *f.Vertex == other
}

func (f *ChangeFilter) takesCounter(c *Change) bool {
	if len(f.EdgeTypes) > 0 || c.Counter.Key != "" && len(f.VertexTypes) > 0 {
		return false
	}
	if len(f.VertexTypes) > 0 && !slices.Contains(f.VertexTypes, c.Counter.Vertex.Type) {
		return false
	}
	return f.Vertex == nil || c.Counter.Key == "" && *f.Vertex == c.Counter.Vertex
}
