package graph

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// Digest is the content of a replica as it was at one entry of its shard's log. At the
// same entry all replicas of a shard have the same.
type Digest struct {
	Shard   uint32
	Applied uint64 // the entry
	Hash    uint64
}

// Digest hashes the content of this node's replica of a shard: the edges of its lists,
// in whatever pages they lie, and every other row as it is. It reads all of it. While
// the replica is sent the state of another, the hash means nothing.
func (g *Graph) Digest(ctx context.Context, id uint32) (Digest, error) {
	v, err := g.viewOf(id)
	if err != nil {
		return Digest{}, err
	}
	defer v.release()
	return v.digest(ctx)
}

func (v *view) digest(ctx context.Context) (Digest, error) {
	id := v.m.cfg.ID
	at, err := shard.ReadApplied(v.snap, id)
	if err != nil {
		return Digest{}, err
	}
	d := &digester{v: v, hash: xxhash.New()}
	local := appendLocal(nil, id, 0)
	for _, span := range []kv.Span{dataSpan(v.own), kv.PrefixSpan(local[:len(local)-1])} {
		if err := d.span(ctx, span); err != nil {
			return Digest{}, fmt.Errorf("shard %d: digest: %w", id, err)
		}
	}
	return Digest{Shard: id, Applied: at.Index, Hash: d.hash.Sum64()}, nil
}

type digester struct {
	v    *view
	hash *xxhash.Digest
	buf  []byte
}

// span adds the rows of a span.
func (d *digester) span(ctx context.Context, span kv.Span) (err error) {
	it, err := d.v.snap.NewIter(span)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; {
		if err := ctx.Err(); err != nil {
			return err
		}
		key := it.Key()
		switch {
		case isList(key):
			row := storedRow{key: append([]byte(nil), key...)}
			ok = row.takeList(it)
			if err := d.list(ctx, row.list); err != nil {
				return err
			}
			continue
		case d.ofForm(key): // says in what pages lists lie
		default:
			value, err := it.Value()
			if err != nil {
				return err
			}
			d.add(key)
			d.add(value)
		}
		ok = it.Next()
	}
	return it.Error()
}

// ofForm reports whether key is of a row that may differ between replicas.
func (d *digester) ofForm(key []byte) bool {
	return len(key) > 6 && binary.BigEndian.Uint16(key) == localPrefix && key[6] == localTree
}

// add adds bytes, so that they cannot be taken for others beside them.
func (d *digester) add(b []byte) {
	d.number(uint64(len(b)))
	_, _ = d.hash.Write(b) // it never fails
}

func (d *digester) number(n uint64) {
	d.buf = binary.BigEndian.AppendUint64(d.buf[:0], n)
	_, _ = d.hash.Write(d.buf)
}

// list adds what a list says, by whatever pages.
func (d *digester) list(ctx context.Context, l ListKey) error {
	list, err := edgelist.Open(&proofSource{key: l, read: d.v.snap})
	if err != nil {
		return fmt.Errorf("list %v: %w", l, err)
	}
	d.add(appendHeadKey(nil, l))
	d.number(list.Count())
	d.number(list.Version())
	return each(ctx, list, func(e *edgelist.Edge) error {
		d.number(e.Peer)
		d.number(uint64(e.Time))
		d.add(e.Props)
		return nil
	})
}
