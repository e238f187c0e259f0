package shard

import (
	"context"
	"errors"
	"time"
)

// forceEvery is the least time between two flushes forced by the logs' size.
// One flush may not be enough while a shard lags, and many make small tables.
const forceEvery = time.Second

// StateFlushed tells the node that the state store has flushed: the logs may
// be cut up to what is durable now. It never blocks and is wired to the
// engine's flush event.
func (n *Node) StateFlushed() {
	n.flushes.Add(1)
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// lookEvery is how often logs are cut that nothing flushed: those that were kept for
// a replica which has caught up or is gone.
const lookEvery = 30 * time.Second

// logGrown is called after a log has grown.
func (n *Node) logGrown() {
	if n.logBytes.Load() > n.forceAt.Load() && !n.force.Swap(true) {
		n.StateFlushed()
	}
}

func (n *Node) truncateLoop() {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-n.wake:
		case <-look.C:
		case <-n.stop:
			return
		}
		forced := n.force.Load()
		if err := n.Truncate(forced); err != nil {
			n.cfg.Logger.Error("log truncation failed", "err", err)
		}
		left, bound := n.logBytes.Load(), n.cfg.Limits.LogBytes
		switch {
		case left <= bound:
			n.forceAt.Store(bound)
		case forced: // what is kept for a replica asks for no more flushes
			n.forceAt.Store(left + bound/2)
		}
		if !forced {
			continue
		}
		select {
		case <-time.After(forceEvery):
		case <-n.stop:
			return
		}
		n.force.Store(false)
		n.logGrown() // it may have grown while nobody looked
	}
}

// Truncate deletes from each log what the state no longer needs: entries up to
// the applied row as it is durable, less what Limits keep. With flush, the
// state is flushed first.
func (n *Node) Truncate(flush bool) error {
	if flush {
		// A cut follows every batch, so what is applied is in the store and a
		// flush makes it durable.
		if err := n.cfg.State.Flush(); err != nil {
			return err
		}
		n.flushes.Add(1)
	}
	n.mu.Lock()
	shards := n.list()
	n.mu.Unlock()
	l := n.cfg.Limits
	// What all shards keep for followers may fill half of the bound at most.
	keep := min(l.KeepBytes, l.LogBytes/2/int64(max(1, len(shards))))
	var errs []error
	for _, s := range shards {
		errs = append(errs, s.truncate(l.KeepEntries, keep))
	}
	return errors.Join(errs...)
}

func (s *Shard) truncate(keepEntries uint64, keepBytes int64) error {
	if s.fault.get() != nil {
		return nil // its log may be needed to find out why
	}
	p, err := readPosition(s.node.cfg.State.GetDurable, s.id)
	if err != nil {
		return err
	}
	to := p.index
	if s.log.bytes() > s.node.cfg.Limits.PinBytes {
		s.pins.clear()
	} else {
		s.followPins(keepEntries)
		to = s.pins.limit(to, time.Now())
	}
	deleted, err := s.log.truncate(to, keepEntries, keepBytes)
	if deleted > 0 {
		s.logger.Debug("log truncated", "durable", p.index, "pinned", to, "entries", deleted)
	}
	return err
}

// What a log keeps when a replica is to join. To apply entries takes many times the
// processor that it takes to copy what they have made, so a joining replica that was sent all
// of the log would hold up reads and writes for longer.
const (
	joinBytes   = 1 << 20 // a log of less is sent
	joinEntries = 128
)

// shorten cuts a long log for a replica that is no member yet, down to what the others
// may need.
func (s *Shard) shorten(ctx context.Context, joining string) error {
	if s.log.bytes() < joinBytes {
		return nil
	}
	_, last := s.log.bounds()
	keep := uint64(joinEntries)
	for _, m := range s.Progress(ctx) {
		if m.Replica == joining {
			return nil
		}
		if m.Last > 0 && m.Last < last { // it answers
			keep = max(keep, last-m.Last+joinEntries)
		}
	}
	durable, err := readPosition(s.node.cfg.State.GetDurable, s.id)
	if err == nil && durable.index+keep < last { // shards that move together share a flush
		err = s.node.cfg.State.Flush()
	}
	if err != nil {
		return err
	}
	return s.truncate(keep, joinBytes)
}

// followPins asks the replicas that the log is kept for how far they have come.
func (s *Shard) followPins(kept uint64) {
	replicas := s.pins.replicas()
	answers := s.lines.ask(replicas)
	for range replicas {
		if a := <-answers; a.err == nil {
			_, end := s.log.bounds()
			s.pins.follow(a.replica, a.last, end, kept/2)
		}
	}
}
