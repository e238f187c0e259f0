package graph

import (
	"context"
	"time"

	"github.com/lianadb/liana/kv/shard"
)

// Pauses between steps of what runs in the background.
const (
	workIdle = 100 * time.Millisecond // there was nothing to do
	workStep = 5 * time.Second        // for a step, at most
)

// work makes the steps of what the shards that this node leads have to do in the
// background. Each is a command of the shard's log, and says what it goes on from: a step
// that is lost, or made twice, or by two leaders, does no harm. After a step it rests as
// long as the step took, so that it takes no more than half of the time of anything.
func (g *Graph) work(ctx context.Context) {
	for ctx.Err() == nil {
		begun, did := time.Now(), false
		for _, mb := range g.replicas() {
			did = g.workOn(ctx, mb) || did
		}
		rest := workIdle
		if did {
			rest = max(time.Since(begun), time.Millisecond)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

// workOn makes a step of what a shard has to do, and reports whether there was one.
func (g *Graph) workOn(ctx context.Context, mb *member) bool {
	s := mb.group.Load()
	if s == nil || !mb.machine.leads.Load() {
		return false
	}
	step, err := mb.machine.backfillStep()
	if err != nil {
		g.cfg.Logger.Error("a derived counter is not counted on", "shard", mb.machine.cfg.ID, "error", err)
		return false
	}
	return step != nil && proposeStep(ctx, s, step)
}

// proposeStep reports whether a step was made. One that was not is made good at the next
// look.
func proposeStep(ctx context.Context, s *shard.Shard, step []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, workStep)
	defer cancel()
	p, err := s.ProposeAsync(step, shard.System)
	if err == nil {
		_, err = p.Wait(ctx)
	}
	return err == nil
}

// backfillStep is the next step for a derived counter; nil: none is needed.
func (m *Machine) backfillStep() ([]byte, error) {
	v, err := m.acquire()
	if err != nil {
		return nil, nil // closed
	}
	defer v.release()
	s, ok, err := v.nextBackfill(backfillOwned, backfillWalked)
	if !ok || err != nil {
		return nil, err
	}
	return s.encode(), nil
}
