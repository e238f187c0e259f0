package graph

import (
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// outbox sends what the shard's outbox rows hold to their shards, while this
// replica leads. One sender a stream keeps the order: rows go out in the order
// of their positions, some batches at once, and after any failure again from
// what the receiver says it has (RULES B1).
type outbox struct {
	m *Machine

	mu      sync.Mutex
	senders map[uint32]*sender
	peers   peers
	ctx     context.Context    // of the senders
	stop    context.CancelFunc // not nil while leading
	done    sync.WaitGroup
}

// peers reach the shards of the store.
type peers interface {
	// deliver hands a delivery to the leader of a shard, without waiting. far: it
	// is another node.
	deliver(ctx context.Context, to uint32, cmd []byte) (d onTheWay, far bool, err error)
	// propose hands a command to the own shard, without waiting.
	propose(own uint32, cmd []byte) error
	// learn takes what a receiver says about the owners of slots.
	learn(o owners)
}

// onTheWay is a delivery that was handed over. Result is called after Done, and
// returns a deliverResult.
type onTheWay interface {
	Done() <-chan struct{}
	Result() (any, error)
}

// Bounds of a stream.
const (
	outboxMemory   = 1 << 20                // bytes of rows kept beside the store
	deliveryBytes  = 256 << 10              // of rows in one deliver command
	deliveryFlying = 4                      // deliver commands of a stream at once, within a node
	trimEvery      = time.Second            // between trims
	resendFirst    = 5 * time.Millisecond   // after a failed delivery, doubling
	resendLast     = 500 * time.Millisecond // up to this
)

func newOutbox(m *Machine) *outbox {
	return &outbox{m: m, senders: map[uint32]*sender{}}
}

// lead starts or stops sending. It is called between entries, so the streams of
// the machine stand still.
func (o *outbox) lead(leading bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop != nil {
		o.stop()
		o.stop = nil
		o.done.Wait()
	}
	clear(o.senders)
	if !leading || o.peers == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.ctx, o.stop = ctx, cancel
	for id, s := range *o.m.streams.Load() {
		if s.last > 0 {
			o.start(ctx, id, s)
		}
	}
}

// start begins to send a stream from what is trimmed: where the receiver has
// more, its first answer says so. o.mu is held.
func (o *outbox) start(ctx context.Context, to uint32, s *stream) *sender {
	snd := &sender{
		o: o, to: to, epoch: s.outEpoch,
		acked: s.trimmed, trimmed: s.trimmed, scanTo: s.last, given: s.last, reach: s.reach, pred: s.pred,
		uncounted: s.last > s.trimmed, wake: make(chan struct{}, 1),
	}
	o.senders[to] = snd
	o.done.Go(func() { snd.run(ctx) })
	return snd
}

func (o *outbox) close() { o.lead(false) }

// published takes the outbox rows of a cut that readers can see now.
func (o *outbox) published(rows []row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop == nil {
		return
	}
	for i := range rows {
		if s := rows[i].to; s != nil && !s.renewed {
			snd, ok := o.senders[s.peer]
			if !ok {
				snd = o.start(o.ctx, s.peer, s)
			}
			snd.push(rows[i].last, rows[i].value)
		}
	}
}

// renew has a sender begin anew with what the store holds of its stream, after rows
// came to it or went to another one.
func (o *outbox) renew(s *stream, routing uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop == nil {
		return
	}
	snd, ok := o.senders[s.peer]
	if !ok {
		snd = o.start(o.ctx, s.peer, s)
	}
	snd.renew(s, routing)
}

// sender returns the sender to a shard, nil where nothing was ever sent to it or
// this replica does not lead.
func (o *outbox) sender(to uint32) *sender {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.senders[to]
}

// pending is the number of rows that are not acknowledged.
func (o *outbox) pending() (n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.senders {
		s.mu.Lock()
		for _, r := range s.unacked {
			n += uint64(r.rows)
		}
		s.mu.Unlock()
	}
	return n
}

// sender is the outgoing end of a stream.
type sender struct {
	o     *outbox
	to    uint32
	epoch uint64
	wake  chan struct{}

	mu     sync.Mutex
	queue  []outRow // rows past scanTo, or none of them
	memory int      // bytes in queue
	scanTo uint64   // rows up to here are read from the store
	given  uint64   // last row published
	reach  uint64   // the receiver has to come so far, whether or not rows lead there
	pred   predecessor
	// What was given up to renewed may have gone to another stream, as routing says.
	renewed, routing uint64
	acked            uint64
	unacked          []unackedRow
	bytes            int  // in unacked
	uncounted        bool // the store has rows up to given that are not in unacked
	waiters          waiters
	ended            bool // run has returned
	failed           bool // the receiver has failed where it runs: waiting is in vain

	// Of run.
	trimmed  uint64
	trimTime time.Time
}

type outRow struct {
	last uint64
	row  []byte
}

// unackedRow is a row that is not acknowledged, or some of them that came before the
// sender did.
type unackedRow struct {
	last  uint64
	bytes int
	rows  int
	at    time.Time
}

// push takes the next row of the stream. Past outboxMemory the store is the queue.
func (s *sender) push(last uint64, row []byte) {
	s.mu.Lock()
	if last <= s.given && s.scanTo >= last {
		// The row was there already when the sender began.
		s.mu.Unlock()
		return
	}
	s.given = last
	s.unacked = append(s.unacked, unackedRow{last, len(row), 1, time.Now()})
	s.bytes += len(row)
	if s.memory+len(row) > outboxMemory {
		s.queue, s.memory, s.scanTo = nil, 0, last
	} else {
		s.queue = append(s.queue, outRow{last, row})
		s.memory += len(row)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// renew: see outbox.renew. Those who wait have to look where their records are.
func (s *sender) renew(st *stream, routing uint64) {
	s.mu.Lock()
	s.queue, s.memory = nil, 0
	s.scanTo, s.given, s.reach, s.renewed, s.routing = st.last, st.last, st.reach, st.last, routing
	s.uncounted = true
	for _, w := range s.waiters {
		w.moved, w.index = true, -1
		close(w.done)
	}
	s.waiters = nil
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// flying is a deliver command that waits for its answer.
type flying struct {
	onTheWay
	last uint64
	far  bool
}

func (s *sender) run(ctx context.Context) {
	defer s.end()
	sent, backoff := s.ackedNow(), resendFirst
	var out []flying
	for {
		err := s.countStored()
		if err == nil {
			sent, out, err = s.sendMore(ctx, sent, out)
		}
		if err == nil && len(out) > 0 {
			select {
			case <-ctx.Done():
				return
			case <-out[0].Done():
				if err = s.answered(ctx, out[0]); err == nil {
					out, backoff = out[1:], resendFirst
				}
			case <-s.wake:
			}
		} else if err == nil {
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			case <-time.After(trimEvery):
				s.trim()
			}
		}
		if err == nil {
			continue
		}
		s.note(err)
		// Answers to what flies behind the failed one say nothing new.
		out = nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, resendLast)
		sent = s.rewind()
	}
}

func (s *sender) ackedNow() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// rewind makes the sender begin again after what the receiver has.
func (s *sender) rewind() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.memory, s.scanTo = nil, 0, s.given
	return s.acked
}

// sendMore sends rows after sent while there are some and few enough are flying.
// To another node one flies alone: two could overtake each other on the way, and
// the second be refused.
func (s *sender) sendMore(ctx context.Context, sent uint64, out []flying) (uint64, []flying, error) {
	for len(out) < deliveryFlying && (len(out) == 0 || !out[0].far) && ctx.Err() == nil {
		rows, last, reach, version, err := s.take(sent)
		if err != nil {
			return sent, out, err
		}
		d := delivery{from: s.o.m.cfg.ID, epoch: s.epoch, after: sent, version: version, rows: rows}
		if len(rows) == 0 {
			if sent >= reach {
				break
			}
			d.upTo, last = reach, reach // no rows lead there, and the receiver does not know
		}
		if d.pred = s.pred; s.ackedNow() >= s.pred.base {
			d.pred = predecessor{}
		}
		p, far, err := s.o.peers.deliver(ctx, s.to, d.encode())
		if err != nil {
			return sent, out, err
		}
		sent = last
		out = append(out, flying{p, last, far})
	}
	return sent, out, nil
}

// take returns the rows that follow sent, from memory or from the store. Where there
// are none, none lead up to reach.
func (s *sender) take(sent uint64) (rows [][]byte, last, reach, version uint64, err error) {
	s.mu.Lock()
	scanTo := s.scanTo
	reach = s.reach // never past scanTo
	if sent >= scanTo {
		n, size := 0, 0
		for n < len(s.queue) && (n == 0 || size+len(s.queue[n].row) <= deliveryBytes) {
			size += len(s.queue[n].row)
			last = s.queue[n].last
			rows = append(rows, s.queue[n].row)
			n++
		}
		s.queue = s.queue[n:]
		s.memory -= size
	}
	s.mu.Unlock()
	v, err := s.o.m.acquire()
	if err != nil {
		return nil, 0, 0, 0, err
	}
	defer v.release()
	if sent < scanTo {
		rows, last, err = v.outboxRows(s.to, sent, scanTo, deliveryBytes)
	}
	return rows, last, reach, v.schema.Version, err
}

// outboxRows reads rows of the outbox to a shard after a position, up to a size.
func (v *view) outboxRows(to uint32, after, upTo uint64, most int) (rows [][]byte, last uint64, err error) {
	id := v.m.cfg.ID
	it, err := v.snap.NewIter(kv.Span{Lower: outboxKey(nil, id, to, after+1), Upper: outboxKey(nil, id, to, upTo+1)})
	if err != nil {
		return nil, 0, err
	}
	size := 0
	for ok := it.First(); ok && size < most; ok = it.Next() {
		value, err := it.Value()
		if err != nil {
			break
		}
		k := it.Key()
		last = binary.BigEndian.Uint64(k[len(k)-8:])
		rows = append(rows, append([]byte(nil), value...))
		size += len(value)
	}
	if err := it.Error(); err != nil {
		_ = it.Close()
		return nil, 0, err
	}
	return rows, last, it.Close()
}

// answered takes the answer to a delivery.
func (s *sender) answered(ctx context.Context, f flying) error {
	res, err := f.Result()
	if err != nil {
		return err
	}
	r := res.(deliverResult)
	if r.refused != "" && r.cursor < s.ackedNow() {
		return s.broken(ctx, r.cursor)
	}
	s.ack(r.cursor)
	s.heed(r.owners)
	if r.refused != "" {
		return fmt.Errorf("delivery from shard %d to %d refused: %s", s.o.m.cfg.ID, s.to, r.refused)
	}
	if time.Since(s.trimTime) > trimEvery {
		s.trim()
	}
	return nil
}

// heed takes what the receiver says about the owners of slots: records may have to go
// to another shard.
func (s *sender) heed(o owners) {
	if o == nil {
		return
	}
	s.o.peers.learn(o)
	if now := s.o.m.routes.Load(); now != nil && now.older(o) {
		// A refused one is made good by the next answer.
		_ = s.o.peers.propose(s.o.m.cfg.ID, encodeClaims(o))
	}
}

func (s *sender) ack(cursor uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = false
	if cursor <= s.acked {
		return
	}
	s.acked = cursor
	n := 0
	for n < len(s.unacked) && s.unacked[n].last <= cursor {
		s.bytes -= s.unacked[n].bytes
		n++
	}
	s.unacked = s.unacked[n:]
	for len(s.waiters) > 0 && s.waiters[0].pos <= cursor {
		w := heap.Pop(&s.waiters).(*waiter)
		close(w.done)
	}
}

// trim proposes to delete what is acknowledged. A lost proposal is made good by
// the next one.
func (s *sender) trim() {
	acked := s.ackedNow()
	s.trimTime = time.Now()
	if acked <= s.trimmed {
		return
	}
	if err := s.o.peers.propose(s.o.m.cfg.ID, trim{to: s.to, epoch: s.epoch, pos: acked}.encode()); err == nil {
		s.trimmed = acked
	}
}

// waiter waits for a stream to be acknowledged up to pos.
type waiter struct {
	pos   uint64
	index int
	done  chan struct{}
	lost  bool // set before done is closed: not acknowledged
	moved bool // likewise: the records may be on another stream
}

// errRerouted: what is waited for may have gone to the stream of another shard.
var errRerouted = errors.New("records may have gone to another stream")

// await returns once everything up to pos is applied by the receiver, or
// ErrInverseLate when ctx ends or leadership is lost first. errRerouted: the stream was
// renewed since the routing that the caller knows.
func (s *sender) await(ctx context.Context, pos, routing uint64) error {
	s.mu.Lock()
	if pos <= s.renewed && routing < s.routing {
		s.mu.Unlock()
		return errRerouted
	}
	if s.acked >= pos || s.ended || s.failed {
		acked := s.acked
		s.mu.Unlock()
		return s.lostUnless(acked >= pos)
	}
	w := &waiter{pos: pos, done: make(chan struct{})}
	heap.Push(&s.waiters, w)
	s.mu.Unlock()
	select {
	case <-w.done:
		if w.moved {
			return errRerouted
		}
		return s.lostUnless(!w.lost)
	case <-ctx.Done():
		s.mu.Lock()
		if w.index >= 0 {
			heap.Remove(&s.waiters, w.index)
		}
		s.mu.Unlock()
		return fmt.Errorf("%w: %w", ErrInverseLate, ctx.Err())
	}
}

func (s *sender) lostUnless(acked bool) error {
	if acked {
		return nil
	}
	return fmt.Errorf("shard %d does not lead, or shard %d has failed: %w", s.o.m.cfg.ID, s.to, ErrInverseLate)
}

// end ends all waits for good.
func (s *sender) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.releaseAll()
}

// note takes the error of a delivery. Where the receiver has failed, not only
// lost its leader, nobody waits for it until a delivery comes through again.
func (s *sender) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed = errors.Is(err, shard.ErrFault); s.failed {
		s.releaseAll()
	}
}

// releaseAll ends all waits without success; s.mu is held.
func (s *sender) releaseAll() {
	for _, w := range s.waiters {
		w.lost, w.index = true, -1
		close(w.done)
	}
	s.waiters = nil
}

// waiters is a heap by position.
type waiters []*waiter

func (w waiters) Len() int           { return len(w) }
func (w waiters) Less(i, j int) bool { return w[i].pos < w[j].pos }
func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}
func (w *waiters) Push(x any) {
	e := x.(*waiter)
	e.index = len(*w)
	*w = append(*w, e)
}
func (w *waiters) Pop() any {
	old := *w
	e := old[len(old)-1]
	e.index = -1
	*w = old[:len(old)-1]
	return e
}
