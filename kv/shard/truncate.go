package shard

import (
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
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// logGrown is called after a log has grown.
func (n *Node) logGrown() {
	if n.logBytes.Load() > n.cfg.Limits.LogBytes && !n.force.Swap(true) {
		n.StateFlushed()
	}
}

func (n *Node) truncateLoop() {
	for {
		select {
		case <-n.wake:
		case <-n.stop:
			return
		}
		forced := n.force.Load()
		if err := n.Truncate(forced); err != nil {
			n.cfg.Logger.Error("log truncation failed", "err", err)
		}
		if !forced {
			continue
		}
		left := n.logBytes.Load()
		select {
		case <-time.After(forceEvery):
		case <-n.stop:
			return
		}
		n.force.Store(false)
		if n.logBytes.Load() > left { // grown while nobody looked
			n.logGrown()
		}
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
	deleted, err := s.log.truncate(s.pins.limit(p.index), keepEntries, keepBytes)
	if deleted > 0 {
		s.logger.Debug("log truncated", "durable", p.index, "entries", deleted)
	}
	return err
}
