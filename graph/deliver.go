package graph

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lianadb/liana/kv/shard"
)

// propose implements peers.
func (g *Graph) propose(own uint32, cmd []byte) error {
	s, err := g.running(own)
	if err != nil {
		return err
	}
	_, err = s.ProposeAsync(cmd, shard.System)
	return err
}

// deliver implements peers: on this node where it leads the shard, else through
// the node that does.
func (g *Graph) deliver(ctx context.Context, to uint32, cmd []byte) (onTheWay, bool, error) {
	s, err := g.running(to)
	if err == nil {
		err = g.knows(to, cmd)
	}
	if err == nil {
		var p *shard.Proposal
		if p, err = s.ProposeAsync(cmd, shard.System); err == nil {
			return p, false, nil
		}
	}
	if g.cfg.Remote == nil || !elsewhere(err) {
		return nil, false, err
	}
	f := &farDelivery{done: make(chan struct{})}
	g.done.Go(func() { f.run(ctx, g.cfg.Remote, to, cmd) })
	return f, true, nil
}

// elsewhere reports whether an error of the replica here says that nothing was
// proposed and another node may lead the shard.
func elsewhere(err error) bool {
	if errors.Is(err, shard.ErrOutcomeUnknown) {
		return false
	}
	return errors.Is(err, shard.ErrNotLeader) || errors.Is(err, shard.ErrStopped) || errors.Is(err, shard.ErrFault)
}

// farDelivery is a delivery on its way to another node. It ends with its context.
type farDelivery struct {
	done   chan struct{}
	result deliverResult
	err    error
}

func (f *farDelivery) run(ctx context.Context, r Remote, to uint32, cmd []byte) {
	defer close(f.done)
	b, err := r.Deliver(ctx, to, cmd)
	if err == nil {
		f.result, err = decodeDeliverResult(b)
	}
	f.err = err
}

func (f *farDelivery) Done() <-chan struct{} { return f.done }
func (f *farDelivery) Result() (any, error)  { return f.result, f.err }

// Deliver applies a delivery that another node's shard sends to one that this node
// leads, and returns the encoded answer. Bytes that are no delivery are refused
// before they come into the log.
func (g *Graph) Deliver(ctx context.Context, to uint32, cmd []byte) ([]byte, error) {
	if err := checkDelivery(cmd); err != nil {
		return nil, fmt.Errorf("delivery to shard %d: %v", to, err) // the sender's fault, not corruption here
	}
	if to >= MaxShards {
		return nil, fmt.Errorf("delivery to shard %d of %d at most", to, MaxShards)
	}
	s, err := g.running(to)
	if err != nil {
		return nil, err
	}
	if err := g.knows(to, cmd); err != nil {
		return nil, err
	}
	p, err := s.ProposeAsync(cmd, shard.System)
	if err != nil {
		return nil, err
	}
	res, err := p.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return res.(deliverResult).encode(), nil
}

// knows refuses a delivery of a newer schema than the shard has (RULES B7), before it
// comes into the log. The sender tries again; the shard's leader is about to put the newer
// one into it.
func (g *Graph) knows(to uint32, cmd []byte) error {
	if cmd[0] != cmdDeliver && cmd[0] != cmdConvey {
		return nil
	}
	needs, err := deliveryVersion(cmd[0], cmd[1:])
	if err != nil {
		return err
	}
	mb, err := g.member(to)
	if err != nil || !mb.machine.leads.Load() { // who leads knows better
		return err
	}
	v, err := mb.machine.acquire()
	if err != nil {
		return err
	}
	defer v.release()
	if v.schema == nil || v.schema.Version < needs {
		return fmt.Errorf("shard %d does not have version %d of the schema yet", to, needs)
	}
	return nil
}

func checkDelivery(cmd []byte) error {
	if len(cmd) == 0 {
		return errors.New("empty")
	}
	var err error
	switch cmd[0] {
	case cmdDeliver, cmdConvey:
		_, err = decodeDelivery(cmd[0], cmd[1:])
	case cmdGiven:
		_, err = decodeGiven(cmd[1:])
	case cmdSkip:
		_, err = decodeSkip(cmd[1:])
	default:
		err = errors.New("not a delivery")
	}
	return err
}

// encode is: cursor (uvarint) | length, why it was refused | owners, if any.
func (r deliverResult) encode() []byte {
	b := appendBytes(binary.AppendUvarint(nil, r.cursor), r.refused)
	if r.owners != nil {
		b = append(b, r.owners.encode()...)
	}
	return b
}

func decodeDeliverResult(b []byte) (deliverResult, error) {
	d := decoder{b: b}
	r := deliverResult{cursor: d.uvarint(), refused: string(d.bytes())}
	err := d.err
	if err == nil && len(d.b) > 0 {
		r.owners, err = decodeOwners(d.b)
	}
	if err != nil {
		return r, fmt.Errorf("answer to a delivery: %w", err)
	}
	return r, nil
}
