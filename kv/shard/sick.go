package shard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A disk that fails ends the shard that meets it (guard) or the process (the engine).
// One that is only sick does neither, and a leader on it would keep its group waiting:
// heartbeats need no disk. So a node watches how long its stores take, and hands its
// leaderships over. It measures what it needs by Limits.StoreTimeout.
const (
	// stallPart is the part of StoreTimeout after which a call that has not returned
	// makes the disk sick. It is less than the time after which its own shard fails: the
	// others have given way by then.
	stallPart = 2
	// slowPart is the part of it that storing entries takes on a slow disk, if it does so
	// for all of it.
	slowPart = 10
	// restTimes is how many times StoreTimeout a shard is not handed over again because
	// the disk is slow: where all disks are, one has to do.
	restTimes = 30
	// forgetTimes is after how many of it without a call a slow disk is no more known to
	// be slow.
	forgetTimes = 6
	// watchPart is the part of it between two looks.
	watchPart = 10
)

// work is a call to a store that may be under way.
type work struct{ began atomic.Int64 } // by the clock of disk, 0: none

// works are the calls of one replica that the watch looks at. Each is of one goroutine.
type works struct{ log, stable, apply work }

// disk is what a node knows of the disk under its stores.
type disk struct {
	patience time.Duration // Limits.StoreTimeout
	base     time.Time

	slowSince atomic.Int64 // by the clock, 0: it is not slow
	lastSync  atomic.Int64 // when entries were stored last
	syncTime  atomic.Int64 // how long it took, ns
	sick      atomic.Pointer[string]
}

func newDisk(patience time.Duration) *disk {
	return &disk{patience: patience, base: time.Now().Add(-1)}
}

// now is more than 0.
func (d *disk) now() int64 { return int64(time.Since(d.base)) }

func (d *disk) begin(w *work) { w.began.Store(d.now()) }
func (d *disk) end(w *work)   { w.began.Store(0) }

// stored takes how long storing entries took: it is a sync of the disk.
func (d *disk) stored(took time.Duration) {
	now := d.now()
	d.lastSync.Store(now)
	d.syncTime.Store(int64(took))
	switch slow := d.patience / slowPart; {
	case took >= slow:
		d.slowSince.CompareAndSwap(0, now-int64(took))
	case took < slow/2:
		d.slowSince.Store(0)
	}
}

// stalled returns the call under way that has taken longest.
func (d *disk) stalled(shards []*Shard) (what string, took time.Duration) {
	now := d.now()
	for _, s := range shards {
		for _, w := range []struct {
			*work
			name string
		}{{&s.works.log, "storing log entries"}, {&s.works.stable, "storing a term or vote"}, {&s.works.apply, "applying entries"}} {
			if began := w.began.Load(); began > 0 && time.Duration(now-began) > took {
				what, took = fmt.Sprintf("%s of shard %d", w.name, s.id), time.Duration(now-began)
			}
		}
	}
	return what, took
}

// look finds out whether the disk is sick, and how: stalled is true where a call hangs.
func (d *disk) look(shards []*Shard) (why string, stalled bool) {
	now := d.now()
	if what, took := d.stalled(shards); took >= d.patience/stallPart {
		return fmt.Sprintf("%s has not returned for %v", what, took.Round(time.Millisecond)), true
	}
	if now-d.lastSync.Load() > int64(forgetTimes*d.patience) {
		d.slowSince.Store(0)
	}
	if since := d.slowSince.Load(); since > 0 && now-since >= int64(d.patience) {
		return fmt.Sprintf("storing log entries takes %v, and has been slow for %v",
			time.Duration(d.syncTime.Load()).Round(time.Millisecond), time.Duration(now-since).Round(time.Second)), false
	}
	return "", false
}

// watchDisk looks again and again, until the node is closed.
func (n *Node) watchDisk() {
	t := time.NewTicker(n.disk.patience / watchPart)
	defer t.Stop()
	var giving sync.WaitGroup
	defer giving.Wait()
	for {
		select {
		case <-t.C:
		case <-n.stop:
			return
		}
		n.mu.Lock()
		shards := n.list()
		n.mu.Unlock()
		why, stalled := n.disk.look(shards)
		n.tell(why)
		if why == "" {
			continue
		}
		for _, s := range shards {
			giving.Go(func() { s.giveWay(why, stalled) })
		}
	}
}

// tell keeps why the disk is sick, and logs a change.
func (n *Node) tell(why string) {
	old := n.disk.sick.Swap(&why)
	switch was := old != nil && *old != ""; {
	case why != "" && !was:
		n.cfg.Logger.Error("the disk is sick; leaderships are handed over", "why", why)
	case why == "" && was:
		n.cfg.Logger.Info("the disk is well again", "was", *old)
	}
}

// Sick returns what is wrong with the disk, "" where nothing is known to be.
func (n *Node) Sick() string {
	if why := n.disk.sick.Load(); why != nil {
		return *why
	}
	return ""
}

// giveWay hands the leadership of a shard over because of a sick disk, where this
// replica has it and there is somebody else.
func (s *Shard) giveWay(why string, stalled bool) {
	if s.raft().State() != raft.Leader || s.fault.get() != nil || !s.givingWay.CompareAndSwap(false, true) {
		return
	}
	defer s.givingWay.Store(false)
	now, last := s.node.disk.now(), s.gaveWay.Load()
	switch {
	case stalled && (s.works.log.began.Load() > 0 || s.works.stable.began.Load() > 0):
		return // Raft is in that call itself, and the shard fails unless it returns
	case !stalled && last > 0 && now-last < int64(restTimes*s.node.disk.patience):
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.node.disk.patience)
	defer cancel()
	to := s.nextLeader(ctx)
	if to == "" {
		return
	}
	if err := await(ctx, s.raft().LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(to))); err != nil {
		s.logger.Warn("the leadership was not handed over", "why", why, "err", err)
		return
	}
	s.gaveWay.Store(now)
	s.handovers.Add(1)
	s.logger.Warn("the leadership was handed over: the disk is sick", "why", why)
}

// nextLeader returns the voter that has come furthest of those that answer, "" where
// none does.
func (s *Shard) nextLeader(ctx context.Context) (replica string) {
	if others, _ := s.voters(); len(others) == 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.heartbeat())
	defer cancel()
	last := uint64(0)
	for _, m := range s.Progress(ctx) {
		if m.Voter && m.Replica != s.replica && m.Last > last {
			replica, last = m.Replica, m.Last
		}
	}
	return replica
}
