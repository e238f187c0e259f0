package shard

import (
	"context"
	"time"
)

// standEvery is the pause between looks for enough others to be elected by.
const standEvery = 10 * time.Millisecond

// Stand has this replica stand for election as soon as so many voters answer that it can
// win, rather than after the silence of a leader: the shard never had one. It returns when
// the replica stands, a leader is known, or ctx ends.
func (s *Shard) Stand(ctx context.Context) {
	for ctx.Err() == nil && s.fault.get() == nil {
		if _, leader := s.raft().LeaderWithID(); leader != "" || s.node.cfg.Dial == nil {
			return
		}
		if s.enoughAnswer(ctx) {
			s.stand()
			return
		}
		select {
		case <-time.After(standEvery):
		case <-s.done:
			return
		case <-ctx.Done():
		}
	}
}

// enoughAnswer reports whether voters answer that are a majority with this one.
func (s *Shard) enoughAnswer(ctx context.Context) bool {
	others, need := s.voters()
	answers := s.lines.ask(others)
	for range others {
		if need <= 0 {
			break
		}
		select {
		case a := <-answers:
			if a.err == nil {
				need--
			}
		case <-ctx.Done():
			return false
		}
	}
	return need <= 0
}

// stand has the replica stand for election now, as a transfer of leadership does.
func (s *Shard) stand() { s.instance.Load().transport.standNow() }
